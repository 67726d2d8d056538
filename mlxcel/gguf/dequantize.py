"""Tensor types without an exact form in MLX, as float32 values: bfloat16, the 5-bit blocks, the K-quants.

Each function takes blocks [n, bytes of a block] and gives [n, elements of a block]; d is a block's scale, m
its minimum. Source: `dequantize_row_*` in ggml's `ggml-quants.c`, layouts in `ggml-common.h`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mlxcel.gguf.blocks import Array, Bytes, float16_at
from mlxcel.gguf.tensor_type import BF16, Q2_K, Q3_K, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, TensorType

Floats = npt.NDArray[np.float32]


def dequantize(rows: Bytes, type: TensorType) -> Floats:
    """Shapes: rows [rows, bytes of a row] to [rows, columns]."""
    values = FORMULAS[type](rows.reshape(-1, type.block_bytes))
    return np.asarray(values, np.float32).reshape(len(rows), -1)


def _bf16(blocks: Bytes) -> Array:
    words: Array = blocks.view("<u2").astype("<u4") << 16
    return words.view("<f4")


def _q5_0(blocks: Bytes) -> Array:
    quants: Array = _five_bits(blocks[:, 2:6], blocks[:, 6:]) - 16
    return _scale(blocks, 0) * quants


def _q5_1(blocks: Bytes) -> Array:
    return _scale(blocks, 0) * _five_bits(blocks[:, 4:8], blocks[:, 8:]) + _scale(blocks, 2)


def _q2_k(blocks: Bytes) -> Array:
    scales, quants = blocks[:, :16], _crumbs(blocks[:, 16:80])
    d, minimum = _scale(blocks, 80) * (scales & 0x0F), _scale(blocks, 82) * (scales >> 4)
    return _spread(d, 16) * quants - _spread(minimum, 16)


def _q3_k(blocks: Bytes) -> Array:
    high_bits, packed = blocks[:, :32], blocks[:, 96:108]
    # Bit k of high byte l belongs to element 32 k + l; where it is off, 4 is taken away.
    high = (high_bits[:, None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    quants: Array = _crumbs(blocks[:, 32:96]).astype(np.int8) + 4 * high.reshape(len(blocks), 256).astype(np.int8) - 4
    low = np.concatenate([packed[:, :8] & 0x0F, packed[:, :8] >> 4], axis=1)
    top = (packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    scales = (low | (top.reshape(len(blocks), 16) << 4)).astype(np.int8) - 32
    return _spread(_scale(blocks, 108) * scales, 16) * quants


def _q4_k(blocks: Bytes) -> Array:
    d, minimum = _eight_scales(blocks)
    return _spread(d, 32) * _nibbles(blocks[:, 16:], 32) - _spread(minimum, 32)


def _q5_k(blocks: Bytes) -> Array:
    d, minimum = _eight_scales(blocks)
    high = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    quants: Array = _nibbles(blocks[:, 48:], 32) | (high.reshape(len(blocks), 256) << 4)
    return _spread(d, 32) * quants - _spread(minimum, 32)


def _q6_k(blocks: Bytes) -> Array:
    low = _nibbles(blocks[:, :128], 64)
    quants: Array = (low | (_crumbs(blocks[:, 128:192]) << 4)).astype(np.int8) - 32
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return _spread(_scale(blocks, 208) * scales, 16) * quants


FORMULAS: dict[TensorType, Callable[[Bytes], Array]] = {
    BF16: _bf16,
    Q5_0: _q5_0,
    Q5_1: _q5_1,
    Q2_K: _q2_k,
    Q3_K: _q3_k,
    Q4_K: _q4_k,
    Q5_K: _q5_k,
    Q6_K: _q6_k,
}


def _scale(blocks: Bytes, start: int) -> Floats:
    """Shapes: [n, 1]."""
    return float16_at(blocks, start).astype(np.float32)[:, None]


def _spread(values: Array, n_elements: int) -> Array:
    return np.repeat(values, n_elements, axis=1)


def _nibbles(data: Bytes, stride: int) -> Bytes:
    """Of each `stride` bytes first all low halves, then all high halves."""
    groups = data.reshape(len(data), -1, 1, stride)
    return np.concatenate([groups & 0x0F, groups >> 4], axis=2).reshape(len(data), -1)


def _crumbs(data: Bytes) -> Bytes:
    """Two bits each: of each 32 bytes first all lowest pairs, then the next, four times."""
    groups = data.reshape(len(data), -1, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    return np.asarray(groups & 3, np.uint8).reshape(len(data), -1)


def _five_bits(high: Bytes, low: Bytes) -> Array:
    """Low halves first, then high halves, each with its fifth bit from the 32-bit word `high`."""
    bits = np.unpackbits(np.ascontiguousarray(high), axis=1, bitorder="little")
    return np.asarray(_nibbles(low, 16) | (bits << 4), np.int8)


def _eight_scales(blocks: Bytes) -> tuple[Array, Array]:
    """The 6-bit scales and minimums of Q4_K and Q5_K, times d and dmin. Shapes: [n, 8] each."""
    first, second, last = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, (last & 0x0F) | ((first >> 6) << 4)], axis=1)
    minimums = np.concatenate([second & 63, (last >> 4) | ((second >> 6) << 4)], axis=1)
    return _scale(blocks, 0) * scales, _scale(blocks, 2) * minimums
