from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from mlxcel.errors import ModelError
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.load import load_model
from mlxcel.store.inspection import Fit, inspect_model
from tests.support.tiny_llama import HEAD_SIZE, N_KV_HEADS

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 96,
    "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}  # fmt: skip
LINEAR = {
    "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4, "num_experts": 0, "num_experts_per_tok": 1, "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 32, "mlp_only_layers": [0, 1, 2, 3], "moe_intermediate_size": 32,
    "partial_rotary_factor": 0.25, "full_attention_interval": 2,
}  # fmt: skip


def make_model(folder: Path, family: str, dtype: mx.Dtype, *, bits: int | None = None, **config: Any) -> Path:
    """A model of the family with random weights, as mlx_lm stores it."""
    settings = {**SMALL, "model_type": family, **config}
    module = importlib.import_module(f"mlx_lm.models.{family}")
    model = module.Model(module.ModelArgs.from_dict(settings))
    model.set_dtype(dtype)
    if bits is not None:
        nn.quantize(model, group_size=32, bits=bits)
        settings["quantization"] = {"group_size": 32, "bits": bits}
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("family", "dtype", "bits", "config"),
    [
        ("llama", mx.float32, None, {}),
        ("qwen3", mx.bfloat16, 4, {}),
        ("phi3", mx.float16, None, {"hidden_size": 128}),
        ("gemma3_text", mx.bfloat16, None, {"sliding_window": 16, "sliding_window_pattern": 2}),
        ("llama", mx.float16, 8, {}),
        ("qwen3_next", mx.bfloat16, None, LINEAR),
    ],
)
def test_what_headers_tell_is_what_the_loaded_model_measures(
    tmp_path: Path, family: str, dtype: mx.Dtype, bits: int | None, config: dict[str, Any]
) -> None:
    folder = make_model(tmp_path, family, dtype, bits=bits, **config)
    told = inspect_model(folder, memory_bytes=10**9)
    model = load_model(read_checkpoint(folder))
    assert told.kv_size is not None
    assert told.kv_size.bytes_per_token == model.kv_size.bytes_per_token
    assert told.kv_size.window_tokens == model.kv_size.window_tokens
    assert told.weights_bytes == model.weights_bytes
    assert ("not counted" in told.kv_note) == (model.kv_size.fixed_bytes > 0)
    assert told.precision == (f"{bits}-bit" if bits else {mx.float32: "F32", mx.float16: "F16"}.get(dtype, "BF16"))


def test_as_many_sequences_fit_as_the_budget_holds_blocks(tiny_model: Path) -> None:
    told = inspect_model(tiny_model, memory_bytes=1, kv_budget_bytes=10_000_000, lengths=[257, 256, 1, 2048])
    token_bytes = 2 * 2 * N_KV_HEADS * HEAD_SIZE * 4
    assert [fit.n_tokens for fit in told.fits] == [1, 256, 257, 2048]
    assert [fit.n_sequences for fit in told.fits] == [
        10_000_000 // (n_tokens * token_bytes) for n_tokens in (256, 256, 512, 2048)
    ]
    assert inspect_model(tiny_model, memory_bytes=1).fits == (Fit(1024, 0), Fit(2048, 0))


def test_a_family_whose_shapes_do_not_tell_says_so_instead_of_guessing(tmp_path: Path) -> None:
    folder = make_model(tmp_path, "llama", mx.float16, kv_lora_rank=8)
    told = inspect_model(folder, memory_bytes=10**9)
    assert (told.kv_size, told.fits) == (None, ())
    assert "compressed" in told.kv_note
    mx.save_safetensors(str(folder / "model.safetensors"), {"x": mx.zeros(3)})
    (folder / "config.json").write_text(json.dumps({"model_type": "other"}))
    assert inspect_model(folder, memory_bytes=10**9).kv_size is None


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nothing was loaded"):
        inspect_model(tmp_path, memory_bytes=10**9)
