from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from mlx_lm.utils import load

from mlxcel.errors import InputError, ModelError
from mlxcel.gguf.conversion import import_gguf
from tests.support.gguf_blocks import decode
from tests.support.gguf_llama import gguf_name, llama_tensors, write_llama_gguf
from tests.support.gguf_writer import GgufTensor
from tests.support.tiny_llama import make_tiny_llama

Write = Callable[..., Path]
PROMPT = "Unless required by applicable law, 42 \U0001f600"


def logits(folder: Path) -> npt.NDArray[np.float32]:
    model, tokenizer = load(str(folder))
    return np.array(model(mx.array([tokenizer.encode(PROMPT)]))[0].astype(mx.float32))


def weights(folder: Path) -> dict[str, mx.array]:
    loaded: dict[str, mx.array] = {}
    for path in folder.glob("model*.safetensors"):
        file = mx.load(str(path))
        assert isinstance(file, dict)
        loaded |= file
    return loaded


def numbers(folder: Path, module: str) -> npt.NDArray[np.float32]:
    """A module's weight in float32, unpacked if it is packed."""
    stored, config = weights(folder), json.loads((folder / "config.json").read_text())
    weight = stored[f"{module}.weight"]
    if f"{module}.scales" not in stored:
        return np.array(weight.astype(mx.float32))
    packing = config["quantization"] | config["quantization"].get(module, {})
    scales, biases = (stored[f"{module}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
    return np.array(mx.dequantize(weight, scales, biases, packing["group_size"], packing["bits"]))


def mixed(name: str) -> str:
    """Q4_1 with Q8_0 embeddings, and one layer's parts in other types, as real files have them."""
    special = {"token_embd.weight": "Q8_0", "blk.1.attn_k.weight": "Q8_0", "blk.1.ffn_down.weight": "Q4_0"}
    return special.get(name, "F16" if name == "blk.0.attn_v.weight" else "Q4_1")


@pytest.mark.parametrize("is_tied", [False, True])
def test_an_imported_model_has_the_logits_of_the_original(tmp_path: Path, is_tied: bool) -> None:
    original = make_tiny_llama(tmp_path / "original", is_tied=is_tied, n_layers=3)
    source = write_llama_gguf(tmp_path / "model.gguf", original)
    before = source.read_bytes()
    report = import_gguf(source, tmp_path / "imported")
    assert np.array_equal(logits(tmp_path / "imported"), logits(original))
    assert source.read_bytes() == before
    assert report.types == {"F32": 3 * 9 + (2 if is_tied else 3)}
    assert sorted(path.name for path in (tmp_path / "imported").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_mixed_types_are_kept_per_layer_and_lose_nothing(tmp_path: Path, tiny_model: Path, gguf: Write) -> None:
    report = import_gguf(gguf(type_of=mixed), tmp_path / "imported")
    assert report.types == {"F32": 5, "F16": 1, "Q4_0": 1, "Q4_1": 12, "Q8_0": 2}
    assert (report.dequantized, report.rounded) == ({}, ())
    config = json.loads((tmp_path / "imported" / "config.json").read_text())
    packing = {"group_size": 32, "bits": 4, "mode": "affine"}
    assert config["quantization"] == packing | {
        "model.embed_tokens": packing | {"bits": 8},
        "model.layers.1.self_attn.k_proj": packing | {"bits": 8},
    }
    plain = {tensor.name: tensor for tensor in llama_tensors(tiny_model, mixed)}
    modules = {name.removesuffix(".weight") for name in weights(tmp_path / "imported") if name.endswith(".weight")}
    assert {f"{gguf_name(module)}.weight" for module in modules} == set(plain)
    for module in modules - {m for m in modules if m.endswith(("q_proj", "k_proj"))}:  # those are permuted
        tensor = plain[f"{gguf_name(module)}.weight"]
        assert np.array_equal(numbers(tmp_path / "imported", module).ravel(), decode(tensor.data, tensor.type)), module


def test_quantised_rows_of_q_and_k_get_their_rotary_order_back(tmp_path: Path, tiny_model: Path, gguf: Write) -> None:
    """The model that the original becomes when its weights are exactly the numbers in the GGUF's blocks."""
    # The embedding stays float32: MLX looks packed rows up in float16 arithmetic, which would blur the comparison.
    source = gguf(type_of=lambda name: "F32" if name == "token_embd.weight" else mixed(name))
    import_gguf(source, tmp_path / "imported")
    exact = make_tiny_llama(tmp_path / "exact")
    stored = {name: mx.array(numbers(tmp_path / "imported", name.removesuffix(".weight"))) for name in weights(exact)}
    for name, original in weights(tiny_model).items():
        worst = np.abs(np.array(stored[name]) - np.array(original)).max()
        assert worst < 0.1 * np.abs(np.array(original)).max(), name
    mx.save_safetensors(str(exact / "model.safetensors"), stored, metadata={"format": "mlx"})
    assert np.allclose(logits(tmp_path / "imported"), logits(exact), atol=1e-3)


def test_settings_come_from_the_metadata(tmp_path: Path, tiny_model: Path, gguf: Write) -> None:
    import_gguf(gguf(metadata={"llama.rope.freq_base": 25000.0}), tmp_path / "imported")
    original = json.loads((tiny_model / "config.json").read_text())
    imported = json.loads((tmp_path / "imported" / "config.json").read_text())
    kept = set(original) - {"rope_theta", "bos_token_id"}
    assert {key: imported[key] for key in kept} == {key: original[key] for key in kept}
    assert imported["rope_theta"] == 25000.0
    generation = json.loads((tmp_path / "imported" / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [2, 0]}


def test_a_large_model_is_split_into_indexed_files(tmp_path: Path, tiny_gguf: Path, tiny_model: Path) -> None:
    import_gguf(tiny_gguf, tmp_path / "imported", max_shard_bytes=200_000)
    index = json.loads((tmp_path / "imported" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "imported").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    for name in files:
        held = mx.load(str(tmp_path / "imported" / name))
        assert {key for key, file in index["weight_map"].items() if file == name} == set(held)
    assert np.array_equal(logits(tmp_path / "imported"), logits(tiny_model))


def test_progress_rises_to_the_whole(tmp_path: Path, tiny_gguf: Path) -> None:
    seen: list[tuple[int, int]] = []
    import_gguf(tiny_gguf, tmp_path / "imported", progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {seen[-1][0]}


def test_float16_norms_are_stored_so_when_asked_and_losses_are_listed(tmp_path: Path, gguf: Write) -> None:
    report = import_gguf(gguf(type_of=mixed), tmp_path / "imported", float16_norms=True)
    stored = weights(tmp_path / "imported")
    assert stored["model.norm.weight"].dtype == stored["model.embed_tokens.scales"].dtype == mx.float16
    assert "output_norm.weight" in report.rounded
    assert len(report.rounded) == 5


def bf16_but_norms(name: str) -> str:
    return "BF16" if "ffn" in name else "Q8_0"


def test_other_types_are_refused_by_name_or_stored_as_float16_and_listed(tmp_path: Path, gguf: Write) -> None:
    source = gguf(type_of=bf16_but_norms)
    with pytest.raises(ModelError, match=r"no exact form for: BF16 \('blk.0.ffn_down.weight' and 5 more\)") as refused:
        import_gguf(source, tmp_path / "imported")
    assert "--dequantize" in refused.value.message
    assert not (tmp_path / "imported").exists()
    report = import_gguf(source, tmp_path / "imported", dequantize=True)
    assert report.dequantized == {
        f"blk.{layer}.ffn_{part}.weight": "BF16" for layer in (0, 1) for part in ("gate", "up", "down")
    }
    stored = weights(tmp_path / "imported")
    assert stored["model.layers.0.mlp.gate_proj.weight"].dtype == mx.float16
    assert stored["model.layers.0.self_attn.q_proj.weight"].dtype == mx.uint32
    load(str(tmp_path / "imported"))
    assert msgspec.json.decode(msgspec.json.encode(report))["dequantized"] == report.dequantized
    assert "stored as float16: blk.1.ffn_up.weight (BF16)" in str(report)


def replaced(name: str, **fields: object) -> Callable[[list[GgufTensor]], list[GgufTensor]]:
    def change(tensors: list[GgufTensor]) -> list[GgufTensor]:
        return [GgufTensor(**(vars(tensor) | fields)) if tensor.name == name else tensor for tensor in tensors]

    return change


def without(name: str) -> Callable[[list[GgufTensor]], list[GgufTensor]]:
    return lambda tensors: [tensor for tensor in tensors if tensor.name != name]


def plus(name: str) -> Callable[[list[GgufTensor]], list[GgufTensor]]:
    return lambda tensors: [*tensors, GgufTensor(name, "F32", (8,), bytes(32))]


NORM, GATE = "blk.0.attn_norm.weight", "blk.0.ffn_gate.weight"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": {"general.architecture": "qwen2"}}, "architecture 'qwen2'"),
        ({"metadata": {"general.architecture": None}}, "no 'general.architecture'"),
        ({"metadata": {"llama.block_count": None}}, "no 'llama.block_count'"),
        ({"metadata": {"llama.block_count": 3}}, "blk.2.attn_norm.weight is missing"),
        ({"metadata": {"llama.block_count": 2**31 - 1}}, "claims 2147483647 layers"),
        ({"metadata": {"llama.block_count": 1}}, "blk.1.attn_norm.weight is not known"),
        ({"metadata": {"llama.embedding_length": 66}}, "66 channels"),
        ({"metadata": {"llama.attention.head_count_kv": 3}}, "4 heads of size 16 for 3 key-value heads"),
        ({"metadata": {"llama.rope.dimension_count": 8}}, "'llama.rope.dimension_count' 8"),
        ({"metadata": {"llama.attention.value_length": 8}}, "'llama.attention.value_length' 8"),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, "'yarn'"),
        ({"metadata": {"llama.expert_count": 8}}, "llama.expert_count = 8"),
        ({"metadata": {"llama.attention.sliding_window": 4096}}, "llama.attention.sliding_window = 4096"),
        ({"metadata": {"llama.vocab_size": 1000}}, "'llama.vocab_size' 1000, but 1024 tokens"),
        ({"metadata": {"tokenizer.ggml.model": "bert"}}, "kind 'bert'"),
        ({"metadata": {"tokenizer.ggml.model": None}}, "no 'tokenizer.ggml.model'"),
        ({"metadata": {"tokenizer.ggml.pre": "new-fashion"}}, "pre-tokenizer 'new-fashion'"),
        ({"tensors": without("output_norm.weight")}, "output_norm.weight is missing"),
        ({"tensors": plus("blk.0.attn_q.bias")}, "blk.0.attn_q.bias is not known"),
        ({"tensors": replaced(NORM, shape=(32,), data=bytes(128))}, f"{NORM} has the shape [32], not [64]"),
        ({"tensors": replaced(NORM, type="Q8_0", data=bytes(68))}, f"cannot be imported: Q8_0 ({NORM!r})"),
        ({"tensors": replaced(GATE, type="IQ4_NL", data=bytes(18 * 256))}, f"cannot be imported: IQ4_NL ({GATE!r})"),
        (
            {"tensors": replaced(GATE, type="F16", data=b"\x00\x7c" * 8192)},
            "not finite, or beyond float16, in the F16",
        ),
        ({"tensors": replaced(GATE, type="Q8_0", data=b"\xff\x7b" * 17 * 256)}, "not finite"),
        ({"tensors": plus("rope_freqs.weight")}, "rope_freqs.weight that is not all positive"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(
    tmp_path: Path, gguf: Write, changes: dict[str, object], reason: str
) -> None:
    source = gguf(**changes)
    with pytest.raises(ModelError) as refused:
        import_gguf(source, tmp_path / "imported")
    assert reason in refused.value.message
    assert "Nothing was written" in refused.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_settings_that_are_switched_off_are_no_reason_to_refuse(tmp_path: Path, gguf: Write) -> None:
    off = {"llama.expert_count": 0, "llama.attention.key_length": 16, "llama.rope.scaling.type": "none"}
    import_gguf(gguf(metadata=off), tmp_path / "imported")
    assert (tmp_path / "imported").is_dir()


@pytest.mark.parametrize("source", ["missing.gguf", "."])
def test_a_source_that_cannot_be_read_is_the_callers_input(tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError, match="was not made"):
        import_gguf(tmp_path / source, tmp_path / "imported")
    assert list(tmp_path.iterdir()) == []


def test_damaged_bytes_are_imported_or_refused_and_nothing_else(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path / "original", n_vocabulary=300, n_layers=1)
    source = write_llama_gguf(tmp_path / "model.gguf", folder, type_of=lambda _: "Q8_0")
    data, draw = source.read_bytes(), random.Random(1)
    n_refused = 0
    for number in range(150):
        damaged = bytearray(data)
        place = draw.randrange(draw.choice([24, 1400, 8000, len(data)]))
        damaged[place : place + 8] = draw.randbytes(8) if number % 2 else bytes([draw.choice([0, 1, 255])])
        source.write_bytes(damaged)
        try:
            import_gguf(source, tmp_path / f"imported-{number}")
        except ModelError:
            n_refused += 1
            assert not (tmp_path / f"imported-{number}").exists()
    assert 30 < n_refused < 150
