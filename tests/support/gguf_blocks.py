"""Quantised blocks for tests: a plain quantiser, random blocks of every type, and what each block's numbers are.

`decode` is written element by element after `dequantize_row_*` in ggml's `ggml-quants.c`, slow and independent of
the code under test. All arithmetic is float32, as there.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

F32 = np.float32
Floats = npt.NDArray[np.float32]

BLOCK = {  # elements, bytes
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
# Where each type keeps the float16 scale and minimum of a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108]}
SCALES |= {"Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def random_blocks(type: str, n_blocks: int, seed: int = 0) -> bytes:
    """Blocks with every bit pattern likely, but scales that are ordinary numbers."""
    draw = np.random.default_rng(seed)
    blocks = draw.integers(0, 256, (n_blocks, BLOCK[type][1]), dtype=np.uint8)
    for start in SCALES[type]:
        scales = draw.standard_normal((n_blocks, 1)).astype("<f2")
        blocks[:, start : start + 2] = scales.view(np.uint8)
    return blocks.tobytes()


def encode(values: Floats, type: str) -> bytes:
    """Quantise as simply as the type allows; the result is what counts as the original from then on."""
    if type == "F32":
        return values.astype("<f4").tobytes()
    if type == "F16":
        return values.astype("<f2").tobytes()
    if type == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    blocks = values.reshape(-1, 32).astype(F32)
    if type == "Q8_0":
        d = _scales(np.abs(blocks).max(1) / 127)
        quants = _quants(blocks, d, np.zeros_like(d), -127, 127).astype(np.int8)
        return np.concatenate([d.view(np.uint8), quants.view(np.uint8)], axis=1).tobytes()
    if type == "Q4_0":
        d = _scales(np.abs(blocks).max(1) / 7)
        quants = (_quants(blocks, d, np.zeros_like(d), -8, 7) + 8).astype(np.uint8)
        return np.concatenate([d.view(np.uint8), quants[:, :16] | (quants[:, 16:] << 4)], axis=1).tobytes()
    if type == "Q4_1":
        m = _scales(blocks.min(1))
        d = _scales((blocks.max(1) - blocks.min(1)) / 15)
        quants = _quants(blocks, d, m, 0, 15).astype(np.uint8)
        packed = quants[:, :16] | (quants[:, 16:] << 4)
        return np.concatenate([d.view(np.uint8), m.view(np.uint8), packed], axis=1).tobytes()
    raise KeyError(type)


def decode(data: bytes, type: str) -> Floats:
    """Every element of the blocks in `data`, in order."""
    if type == "F32":
        return np.frombuffer(data, "<f4")
    if type == "F16":
        return np.frombuffer(data, "<f2").astype(F32)
    if type == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    n_elements, n_bytes = BLOCK[type]
    numbers = [
        element
        for start in range(0, len(data), n_bytes)
        for element in _decode_block(data[start : start + n_bytes], type, n_elements)
    ]
    return np.array(numbers, F32)


def _decode_block(block: bytes, type: str, n_elements: int) -> list[Any]:
    first, second = [_half(block, start) for start in [*SCALES[type], *SCALES[type]][:2]]
    if type in ("Q4_0", "Q4_1"):
        quants = block[len(block) - 16 :]
        values = [quants[i] & 15 for i in range(16)] + [quants[i] >> 4 for i in range(16)]
        return [first * F32(q - 8) if type == "Q4_0" else first * F32(q) + second for q in values]
    if type == "Q8_0":
        return [first * F32(q) for q in struct.unpack("<32b", block[2:])]
    if type in ("Q5_0", "Q5_1"):
        quants, high = block[len(block) - 16 :], int.from_bytes(block[len(block) - 20 : len(block) - 16], "little")
        values = [(quants[i % 16] >> (4 * (i // 16)) & 15) | ((high >> i & 1) << 4) for i in range(32)]
        return [first * F32(q - 16) if type == "Q5_0" else first * F32(q) + second for q in values]
    return [_decode_k(block, type, first, second, i) for i in range(n_elements)]


def _decode_k(block: bytes, type: str, d: Any, minimum: Any, i: int) -> Any:
    """Element `i` of a K-quant block."""
    half, quarter, place, group = i // 128, i % 128 // 32, i % 32, i // 16
    if type == "Q2_K":
        q = block[16 + 32 * half + place] >> (2 * quarter) & 3
        return d * F32(block[group] & 15) * F32(q) - minimum * F32(block[group] >> 4)
    if type == "Q3_K":
        q = (block[32 + 32 * half + place] >> (2 * quarter) & 3) - (0 if block[place] >> (i // 32) & 1 else 4)
        scales = block[96:108]
        low = scales[group] & 15 if group < 8 else scales[group - 8] >> 4
        high = scales[8 + group % 4] >> (2 * (group // 4)) & 3
        return d * F32((low | high << 4) - 32) * F32(q)
    if type == "Q6_K":
        low = block[64 * half + 32 * (quarter % 2) + place] >> (4 * (quarter // 2)) & 15
        high = block[128 + 32 * half + place] >> (2 * quarter) & 3
        scale = struct.unpack("<16b", block[192:208])[group]
        return d * F32(scale) * F32((low | high << 4) - 32)
    part, packed = i // 32, block[4:16]
    if part < 4:
        scale, offset = packed[part] & 63, packed[part + 4] & 63
    else:
        scale = (packed[part + 4] & 15) | (packed[part - 4] >> 6 << 4)
        offset = (packed[part + 4] >> 4) | (packed[part] >> 6 << 4)
    start = 16 if type == "Q4_K" else 48
    q = block[start + 32 * (i // 64) + place] >> (4 * (part % 2)) & 15
    if type == "Q5_K":
        q |= (block[16 + place] >> part & 1) << 4
    return d * F32(scale) * F32(q) - minimum * F32(offset)


def _half(block: bytes, start: int) -> Any:
    return F32(np.frombuffer(block[start : start + 2], "<f2")[0])


def _scales(values: Floats) -> npt.NDArray[np.float16]:
    return np.asarray(values[:, None], "<f2")


def _quants(blocks: Floats, d: Any, m: Any, low: int, high: int) -> npt.NDArray[Any]:
    safe = np.where(d == 0, 1, d).astype(F32)
    return np.asarray(np.clip(np.rint((blocks - m.astype(F32)) / safe), low, high))
