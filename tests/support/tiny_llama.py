"""A tiny random Llama on disk in mlx-lm's format, for tests that run the real loader and the real engine.

    from tests.support.tiny_llama import make_tiny_llama
    python -m tests.support.tiny_llama DIR

Both work from the repository's root: tests/ is a package, and a folder of tests in it has an `__init__.py`.

Its weights are random but not careless. Greedy text depends on the whole prompt, does not fall into a loop,
and is made of words: the rows of the output matrix that would emit special tokens or single bytes outside
ASCII are quiet unless `is_readable=False`. So a text ends only at its token limit, unless a test names an
end-of-sequence id of its own: take one from a text seen without it and pass it as `eos_token_ids`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer
from safetensors.numpy import save_file

from tests.support.tiny_tokenizer import CHATML_TEMPLATE, SPECIAL_TOKENS, TURN_END, write_tiny_tokenizer

Weights = dict[str, npt.NDArray[np.float32]]

N_HEADS, N_KV_HEADS, HEAD_SIZE, WIDTH, FEED_FORWARD_WIDTH = 4, 2, 16, 64, 128


def make_tiny_llama(
    folder: Path,
    *,
    n_vocabulary: int = 1024,
    n_layers: int = 2,
    context_tokens: int = 2048,
    eos_token_ids: Sequence[int] = (2, 0),
    adds_bos: bool = False,
    templates_bos: bool = False,
    has_chat_template: bool = True,
    chat_template: str | None = None,
    markers: Sequence[str] = (),
    is_tied: bool = False,
    is_readable: bool = True,
    seed: int = 2,
) -> Path:
    """Write the model and its tokenizer into `folder` (made if missing) and return it.

    `eos_token_ids` go to generation_config.json; config.json and the tokenizer name the first of them and
    `<|im_end|>`. `chat_template` stands in for ChatML; `markers` are special tokens beside the usual ones. Equal
    arguments give equal files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_tiny_tokenizer(
        folder,
        n_vocabulary=n_vocabulary,
        adds_bos=adds_bos,
        templates_bos=templates_bos,
        chat_template=chat_template or CHATML_TEMPLATE,
        markers=markers,
    )
    if not has_chat_template:
        _drop_chat_template(folder / "tokenizer_config.json")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": FEED_FORWARD_WIDTH,
        "num_hidden_layers": n_layers,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": N_KV_HEADS,
        "head_dim": HEAD_SIZE,
        "max_position_embeddings": context_tokens,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": n_vocabulary,
        "tie_word_embeddings": is_tied,
        "bos_token_id": SPECIAL_TOKENS.index("<|bos|>") if adds_bos or templates_bos else None,
        "eos_token_id": eos_token_ids[0] if eos_token_ids else SPECIAL_TOKENS.index(TURN_END),
        "torch_dtype": "float32",
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"eos_token_id": list(eos_token_ids)})
    weights = draw_weights(n_vocabulary=n_vocabulary, n_layers=n_layers, is_tied=is_tied, seed=seed)
    if is_readable:
        _quieten(
            weights["model.embed_tokens.weight" if is_tied else "lm_head.weight"], folder, {*SPECIAL_TOKENS, *markers}
        )
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    return folder


def draw_weights(*, n_vocabulary: int, n_layers: int, is_tied: bool, seed: int) -> Weights:
    """Random weights. Layers write more into the residual stream than the embedding does, and attention is
    sharp, so that the next token follows from the whole prompt rather than from the last token."""
    draw = np.random.default_rng(seed)

    def matrix(n_out: int, n_in: int, gain: float) -> npt.NDArray[np.float32]:
        return np.asarray(draw.standard_normal((n_out, n_in)) * gain / np.sqrt(n_in), np.float32)

    def norm() -> npt.NDArray[np.float32]:
        return np.asarray(1 + 0.1 * draw.standard_normal(WIDTH), np.float32)

    weights: Weights = {"model.embed_tokens.weight": matrix(n_vocabulary, WIDTH, 2.0 if is_tied else 8.0)}
    for layer in range(n_layers):
        prefix = f"model.layers.{layer}"
        weights |= {
            f"{prefix}.input_layernorm.weight": norm(),
            f"{prefix}.self_attn.q_proj.weight": matrix(N_HEADS * HEAD_SIZE, WIDTH, 2.5),
            f"{prefix}.self_attn.k_proj.weight": matrix(N_KV_HEADS * HEAD_SIZE, WIDTH, 2.5),
            f"{prefix}.self_attn.v_proj.weight": matrix(N_KV_HEADS * HEAD_SIZE, WIDTH, 2.0),
            f"{prefix}.self_attn.o_proj.weight": matrix(WIDTH, N_HEADS * HEAD_SIZE, 2.0),
            f"{prefix}.post_attention_layernorm.weight": norm(),
            f"{prefix}.mlp.gate_proj.weight": matrix(FEED_FORWARD_WIDTH, WIDTH, 2.0),
            f"{prefix}.mlp.up_proj.weight": matrix(FEED_FORWARD_WIDTH, WIDTH, 2.0),
            f"{prefix}.mlp.down_proj.weight": matrix(WIDTH, FEED_FORWARD_WIDTH, 2.0),
        }
    weights["model.norm.weight"] = norm()
    if not is_tied:
        weights["lm_head.weight"] = matrix(n_vocabulary, WIDTH, 3.0)
    return weights


def _quieten(output: npt.NDArray[np.float32], folder: Path, special_tokens: set[str]) -> None:
    """Make the rows of special tokens and of bytes outside printable ASCII too small ever to win."""
    vocabulary: dict[str, int] = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    for token, row in vocabulary.items():
        text = token.replace("Ġ", "")
        if token in special_tokens or not (text.isascii() and text.isprintable()):
            output[row] *= 0.1


def _drop_chat_template(path: Path) -> None:
    config = json.loads(path.read_text("utf-8"))
    del config["chat_template"]
    _write_json(path, config)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


if __name__ == "__main__":
    typer.run(lambda folder: print(make_tiny_llama(Path(folder))))
