"""Rotary embedding of a llama-family GGUF as config.json has it: base, linear scaling, and Llama 3's scaling.

Llama 3's is not in the metadata but in a tensor of divisors, one per pair of channels, which config.json has
no room for. Its four parameters are found again by computing the divisors that each known set of them gives.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mlxcel.gguf.header import Header
from mlxcel.gguf.metadata import Metadata
from mlxcel.gguf.refusal import USE_MLX_VERSION, refusal
from mlxcel.gguf.tensor_data import read_rows
from mlxcel.gguf.tensor_type import F32

Divisors = npt.NDArray[np.floating[Any]]

# Llama 3.1 to 3.3 were published with 1, 4 and 8192; the others are the obvious neighbours.
_LOW_FREQUENCY_FACTORS = (1.0, 2.0)
_HIGH_FREQUENCY_FACTORS = (4.0, 8.0)
_ORIGINAL_CONTEXT_TOKENS = (8192, 4096, 2048, 16384, 32768)


_FACTOR_KEYS = ("llama.rope.scaling.factor", "llama.rope.scale_linear")


def read_divisors(file: BinaryIO, header: Header) -> Divisors | None:
    """What `rope_freqs.weight` holds, if there is one. Shapes: [head size / 2]."""
    tensor = header.tensors.get("rope_freqs.weight")
    if tensor is None:
        return None
    if tensor.type is not F32 or len(tensor.shape) != 1:
        raise refusal(f"has rope_freqs.weight as {tensor.type.name} of shape {list(tensor.shape)}")
    return np.asarray(read_rows(file, tensor, 0, 1).view("<f4")[0])


def rope_config(metadata: Metadata, divisors: Divisors | None) -> dict[str, Any]:
    """`rope_theta`, and `rope_scaling` where there is any. `divisors` are those of `rope_freqs.weight`.

    Errors: ModelError for a scaling that config.json cannot represent, by name.
    """
    base = metadata.number("llama.rope.freq_base") if "llama.rope.freq_base" in metadata else 10000.0
    kind = metadata.text("llama.rope.scaling.type") if "llama.rope.scaling.type" in metadata else "linear"
    if kind not in ("none", "linear"):
        raise refusal(
            f"scales its rotary embedding by {kind!r}; only 'linear' and Llama 3's can be imported",
            USE_MLX_VERSION,
        )
    factors = [metadata.number(key) for key in _FACTOR_KEYS if key in metadata and kind == "linear"]
    scaling = {"rope_type": "linear", "factor": factors[0]} if factors and factors[0] != 1 else None
    if divisors is not None and (llama3 := llama3_scaling(divisors, base)):
        if scaling:
            raise refusal(
                "has both rope_freqs.weight and a linear rotary scaling, which config.json cannot represent",
                USE_MLX_VERSION,
            )
        scaling = llama3
    config: dict[str, Any] = {"rope_theta": base, "rope_traditional": False}
    return config | {"rope_scaling": scaling} if scaling else config


def llama3_scaling(divisors: Divisors, base: float) -> dict[str, Any] | None:
    """`rope_scaling` for the divisors in `rope_freqs.weight`, None where all are 1.

    Shapes: divisors [head size / 2]. Errors: ModelError if no known parameters give these divisors.
    """
    if not (divisors > 0).all():
        raise refusal("has a rope_freqs.weight that is not all positive")
    if np.all(divisors == 1):
        return None
    factor = float(divisors.max())
    for low, high, original in product(_LOW_FREQUENCY_FACTORS, _HIGH_FREQUENCY_FACTORS, _ORIGINAL_CONTEXT_TOKENS):
        scaling = {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }
        if np.allclose(llama3_divisors(scaling, base, 2 * len(divisors)), divisors, rtol=1e-5):
            return scaling
    raise refusal(
        "has a rope_freqs.weight that is no Llama 3 scaling with known parameters, so config.json cannot represent it",
        USE_MLX_VERSION,
    )


def llama3_divisors(scaling: dict[str, Any], base: float, head_size: int) -> Divisors:
    """What each frequency is divided by. Shapes: [head size / 2]. Source: Llama 3.1's `apply_scaling`."""
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    wavelengths = 2 * math.pi * base ** (np.arange(0, head_size, 2) / head_size)
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - smooth) / factor + smooth))
