"""What a model will need to run, told from its settings and headers alone.

The server measures the same on the loaded model; where the shapes do not tell how a family caches, this says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.kv.size import KVSize, memory_for_kv
from mlxcel.model.checkpoint import Checkpoint, read_checkpoint
from mlxcel.store.integrity import read_tensors
from mlxcel.store.record import Record, read_record
from mlxcel.store.safetensors import Tensor

_KV_PROJECTION = re.compile(r"(?:^|.*\.)layers\.(\d+)\.\w+\.(k|v|qkv)_proj\.weight")
_ON_THE_WAY_TO_KV = re.compile(r".*(?:embed\w*|\w*norm|(?:k|v|qkv|o)_proj|down_proj)\.(?:weight|scales)")
_OTHER_TOWERS = re.compile(r"(?:^|.*\.)(?:vision|visual|audio|multi_modal)\w*\.")
_FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_UNTOLD = {
    "kv_lora_rank": "it keeps compressed keys and values",
    "num_kv_shared_layers": "some of its layers share keys and values",
    "linear_attn_config": "some of its layers have linear attention",
}


@dataclass(frozen=True)
class Fit:
    """So many sequences of `n_tokens` each fit into the memory for keys and values at once."""

    n_tokens: int
    n_sequences: int


@dataclass(frozen=True)
class Inspection:
    """A model folder. `kv_size` is None where `kv_note` says why; `fits` is empty then."""

    folder: Path
    model_type: str
    precision: str
    n_files: int
    n_tensors: int
    weights_bytes: int
    context_tokens: int | None
    record: Record | None
    kv_size: KVSize | None
    kv_note: str
    kv_budget_bytes: int
    fits: tuple[Fit, ...]


def inspect_model(
    folder: Path, *, memory_bytes: int, kv_budget_bytes: int | None = None, lengths: Sequence[int] = ()
) -> Inspection:
    """Inspect a folder; the budget is what `memory_bytes` leaves beside the weights, unless it is given.

    `lengths` are tokens of a sequence, prompt and answer together; powers of 4 from 1024 and the context if empty.

    Errors: ModelError when the folder is no MLX model or not whole.
    """
    checkpoint = read_checkpoint(folder)
    files = read_tensors(folder)
    tensors = [tensor for held in files.values() for tensor in held]
    weights_bytes = sum(tensor.n_bytes for tensor in tensors)
    kv_size, kv_note = kv_size_of(checkpoint, tensors)
    budget = max(0, memory_for_kv(memory_bytes, weights_bytes)) if kv_budget_bytes is None else kv_budget_bytes
    chosen = sorted({*lengths}) or _usual_lengths(checkpoint.context_tokens)
    return Inspection(
        folder=folder,
        model_type=str(checkpoint.config.get("model_type")),
        precision=_precision(checkpoint, tensors),
        n_files=len(files),
        n_tensors=len(tensors),
        weights_bytes=weights_bytes,
        context_tokens=checkpoint.context_tokens,
        record=read_record(folder),
        kv_size=kv_size,
        kv_note=kv_note,
        kv_budget_bytes=budget,
        fits=() if kv_size is None else tuple(Fit(n, budget // kv_size.bytes_for(n)) for n in chosen),
    )


def kv_size_of(checkpoint: Checkpoint, tensors: Iterable[Tensor]) -> tuple[KVSize | None, str]:
    """The size of a sequence's keys and values, and how it was told or why it cannot be."""
    config = _text_config(checkpoint.config)
    tensors = [tensor for tensor in tensors if not _OTHER_TOWERS.match(tensor.name)]
    projections = [(match, tensor.shape[0]) for tensor in tensors if (match := _KV_PROJECTION.fullmatch(tensor.name))]
    for key, reason in _UNTOLD.items():
        if config.get(key):
            return None, f"cannot be told without loading it: {reason}"
    if not projections:
        return None, "cannot be told without loading it: it has no k_proj, v_proj or qkv_proj"
    value_bytes = _value_bytes(tensors)
    kinds = config.get("layer_types")
    is_windowed = isinstance(kinds, list) and {*kinds} == {"sliding_attention"}
    window = config.get("sliding_window") if is_windowed else None
    n_caching, n_layers = len({match[1] for match, _ in projections}), config.get("num_hidden_layers")
    note = f"{n_caching} layers, {value_bytes * 8}-bit"
    if isinstance(n_layers, int) and n_layers > n_caching:
        note += f"; the state of the {n_layers - n_caching} layers without keys and values is not counted"
    if config.get("sliding_window") and not is_windowed:
        note += "; at most, for layers may keep a window"
    n_values = sum(n_rows if match[2] != "qkv" else _kv_share(config, n_rows) for match, n_rows in projections)
    return KVSize(n_values * value_bytes, window_tokens=window if isinstance(window, int) else None), note


def _kv_share(config: dict[str, Any], n_rows: int) -> int:
    """Of the rows of a matrix that makes queries, keys and values at once."""
    n_heads = int(config["num_attention_heads"])
    n_kv_heads = int(config.get("num_key_value_heads") or n_heads)
    return n_rows * 2 * n_kv_heads // (n_heads + 2 * n_kv_heads)


def _value_bytes(tensors: Iterable[Tensor]) -> int:
    """MLX computes in the widest type that it meets, and float32 where float16 meets bfloat16."""
    dtypes = {tensor.dtype for tensor in tensors if _ON_THE_WAY_TO_KV.fullmatch(tensor.name)} & _FLOAT_BYTES.keys()
    return _FLOAT_BYTES[dtypes.pop()] if len(dtypes) == 1 else 4


def _precision(checkpoint: Checkpoint, tensors: Iterable[Tensor]) -> str:
    packing = checkpoint.config.get("quantization")
    if isinstance(packing, dict) and "bits" in packing:
        return f"{packing['bits']}-bit"
    by_dtype: dict[str, int] = {}
    for tensor in tensors:
        by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + tensor.n_bytes
    return max(by_dtype, key=lambda dtype: by_dtype[dtype])


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    for key in ("text_config", "llm_config"):
        if isinstance(config.get(key), dict):
            return dict(config[key])
    return config


def _usual_lengths(context_tokens: int | None) -> list[int]:
    context = context_tokens or 4096
    return [n for n in (1024, 4096, 16384, 65536, 262144) if n < context] + [context]
