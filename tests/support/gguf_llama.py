"""A tiny Llama as a GGUF file: what llama.cpp's converter would make of the folder that `make_tiny_llama` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from tests.support.gguf_blocks import encode
from tests.support.gguf_writer import GgufTensor, MetadataValue, write_gguf

Floats = npt.NDArray[np.float32]

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def llama_tensors(folder: Path, type_of: Callable[[str], str] = lambda _: "F32") -> list[GgufTensor]:
    """The folder's weights, q and k permuted, each matrix in the type that `type_of` its GGUF name says."""
    config = json.loads((folder / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    tensors = []
    for name, weight in load_file(folder / "model.safetensors").items():
        for part, n_heads in heads.items():
            if f".{part}." in name:
                weight = permute(weight, n_heads)
        type = type_of(gguf_name(name)) if weight.ndim > 1 else "F32"
        tensors.append(GgufTensor(gguf_name(name), type, weight.shape, encode(weight, type)))
    return tensors


def permute(weight: Floats, n_heads: int) -> Floats:
    """Half-split rotary order to interleaved, as `permute` in llama.cpp's `convert_hf_to_gguf.py` does it."""
    rows, columns = weight.shape
    halves = weight.reshape(n_heads, 2, rows // n_heads // 2, columns)
    return np.asarray(halves.swapaxes(1, 2).reshape(rows, columns))


def llama_metadata(folder: Path) -> dict[str, MetadataValue]:
    config = json.loads((folder / "config.json").read_text())
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.rope.freq_base": config["rope_theta"],
        "llama.rope.dimension_count": config["head_dim"],
        "llama.vocab_size": config["vocab_size"],
        **tokenizer_metadata(folder),
    }


def tokenizer_metadata(folder: Path) -> dict[str, MetadataValue]:
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    control = {token["content"] for token in tokenizer["added_tokens"]}
    in_order = sorted(ids, key=lambda token: ids[token])
    metadata: dict[str, MetadataValue] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": in_order,
        "tokenizer.ggml.token_type": [3 if token in control else 1 for token in in_order],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": ids[config["eos_token"]],
        "tokenizer.ggml.add_bos_token": config["add_bos_token"],
    }
    if config["bos_token"]:
        metadata["tokenizer.ggml.bos_token_id"] = ids[config["bos_token"]]
    if "chat_template" in config:
        metadata["tokenizer.chat_template"] = config["chat_template"]
    return metadata


def write_llama_gguf(
    path: Path,
    folder: Path,
    *,
    type_of: Callable[[str], str] = lambda _: "F32",
    metadata: Mapping[str, MetadataValue | None] | None = None,
    tensors: Callable[[list[GgufTensor]], list[GgufTensor]] = lambda tensors: tensors,
    **options: Any,
) -> Path:
    """`metadata` replaces single entries, or drops them where it says None; `tensors` changes the list."""
    entries: dict[str, Any] = {**llama_metadata(folder), **(metadata or {})}
    entries = {key: value for key, value in entries.items() if value is not None}
    return write_gguf(path, entries, tensors(llama_tensors(folder, type_of)), **options)
