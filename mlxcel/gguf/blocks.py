"""Quantised blocks of 32 as MLX stores them: packed integers, one scale and one bias per block. Lossless.

MLX reads an element as `scale * q + bias` with unsigned q. Bias and scale stay float16 and exact, because the
formulas below only multiply by powers of two:

    Q4_0    d * (q - 8)       scale d, bias -8 d
    Q4_1    d * q + m         scale d, bias m
    Q8_0    d * int8          q = int8 + 128, scale d, bias -128 d

Source: ggml's `ggml-common.h` and `ggml-quants.c` for the blocks; `mx.quantize` for the packing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlxcel.gguf.tensor_type import Q4_0, Q4_1, Q8_0, TensorType

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

GROUP_SIZE = 32
BITS: dict[TensorType, int] = {Q4_0: 4, Q4_1: 4, Q8_0: 8}


@dataclass(frozen=True)
class Packed:
    """Shapes: weight [rows, columns * bits / 32] uint32; scales and biases [rows, columns / 32] float16."""

    weight: Array
    scales: Array
    biases: Array


def pack(rows: Bytes, type: TensorType) -> Packed:
    """Shapes: rows [rows, bytes of a row], straight from the file. A bias beyond float16 comes out
    infinite."""
    blocks = rows.reshape(len(rows), -1, type.block_bytes)
    scales = float16_at(blocks, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        if type is Q4_0:
            return Packed(_pack_nibbles(blocks[..., 2:]), scales, scales * np.float16(-8))
        if type is Q4_1:
            return Packed(_pack_nibbles(blocks[..., 4:]), scales, float16_at(blocks, 2))
        if type is Q8_0:
            unsigned = blocks[..., 2:] ^ np.uint8(0x80)  # int8 + 128
            return Packed(_as_words(unsigned), scales, scales * np.float16(-128))
    raise KeyError(type.name)


def float16_at(blocks: Bytes, start: int) -> Array:
    """The float16 at byte `start` of each block. Shapes: blocks [..., bytes of a block] to [...]."""
    return np.ascontiguousarray(blocks[..., start : start + 2]).view("<f2")[..., 0]


def _pack_nibbles(nibbles: Bytes) -> Array:
    """A block's byte j holds element j in its low half and element j + 16 in its high half; MLX wants
    neighbours in one byte. Two bytes at a time, as little-endian words: 0x_b_a and 0xb_a_ become 0xba."""
    pairs = np.ascontiguousarray(nibbles).view("<u2")
    low = (pairs & 0x000F) | ((pairs >> 4) & 0x00F0)
    high = ((pairs >> 4) & 0x000F) | ((pairs >> 8) & 0x00F0)
    return _as_words(np.concatenate([low, high], axis=-1).astype(np.uint8))


def _as_words(elements: Bytes) -> Array:
    return np.ascontiguousarray(elements).reshape(len(elements), -1).view("<u4")
