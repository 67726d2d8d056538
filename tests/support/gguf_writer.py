"""Writes GGUF files for tests, after the format's own text and without a look at the code under test.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TYPE_NUMBERS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11}
TYPE_NUMBERS |= {"Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "BF16": 30}

MetadataValue = bool | int | float | str | list[str] | list[int] | list[float]


@dataclass(frozen=True)
class GgufTensor:
    """`shape` has the rows first; `data` is already in the type's own form."""

    name: str
    type: str
    shape: tuple[int, ...]
    data: bytes


def write_gguf(
    path: Path,
    metadata: Mapping[str, MetadataValue],
    tensors: Sequence[GgufTensor],
    *,
    version: int = 3,
    alignment: int = 32,
) -> Path:
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        header += string(key) + typed(value)
    body = b""
    for tensor in tensors:
        body += b"\0" * (-len(body) % alignment)
        header += string(tensor.name) + struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape[::-1])
        header += struct.pack("<IQ", TYPE_NUMBERS[tensor.type], len(body))
        body += tensor.data
    path.write_bytes(header + b"\0" * (-len(header) % alignment) + body)
    return path


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def typed(value: MetadataValue) -> bytes:
    """The number of the value's kind, and the value: uint32, float32, bool, string, or a list."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<IQ", 10, value) if value >= 1 << 32 else struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + string(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(string(str(item)) for item in value)
    code, kind = ("f", 6) if value and isinstance(value[0], float) else ("i", 5)
    return struct.pack("<IIQ", 9, kind, len(value)) + struct.pack(f"<{len(value)}{code}", *value)
