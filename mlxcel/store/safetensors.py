"""Reads the header of a safetensors file: which tensors it holds, and whether the file is as long as they are.

Source: https://github.com/huggingface/safetensors (format). It reads no weights.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxcel.regular_file import open_regular
from mlxcel.store.refusal import NotWhole

MAX_HEADER_BYTES = 100_000_000
"""safetensors' own limit."""
_BITS = {"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16}
_BITS |= {"U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}


@dataclass(frozen=True)
class Tensor:
    """`dtype` is safetensors' own name for it; `shape` has the rows first."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int


def read_header(path: Path) -> tuple[Tensor, ...]:
    """Every tensor of a file.

    Errors: NotWhole when the file is no safetensors file, or shorter or longer than its header says.
    """
    try:
        opened = open_regular(path)
    except OSError as error:
        raise NotWhole(path.parent, f"{path.name} cannot be read ({error})") from error
    with opened as file:
        size_bytes = os.fstat(file.fileno()).st_size
        start = file.read(8)
        if start == b"version ":
            raise NotWhole(path.parent, f"{path.name} is the pointer that git leaves without git-lfs, not the weights")
        header_bytes = int.from_bytes(start, "little")
        if len(start) < 8 or header_bytes > min(size_bytes - 8, MAX_HEADER_BYTES):
            raise NotWhole(path.parent, f"{path.name} is cut off or no safetensors file ({size_bytes} bytes)")
        text = file.read(header_bytes)
    try:
        header = json.loads(text)
        spans = [(_tensor(name, value), value["data_offsets"]) for name, value in header.items() if name[:2] != "__"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotWhole(path.parent, f"{path.name} has a header that cannot be read ({error})") from error
    end = 0
    for tensor, (first, last) in sorted(spans, key=lambda span: span[1]):
        if first != end or last - first != tensor.n_bytes:
            raise NotWhole(path.parent, f"{path.name} has a header that does not fit together at {tensor.name}")
        end = last
    if size_bytes != 8 + header_bytes + end:
        raise NotWhole(
            path.parent, f"{path.name} has {size_bytes} bytes where its header says {8 + header_bytes + end}"
        )
    return tuple(tensor for tensor, _ in spans)


def _tensor(name: str, value: dict[str, Any]) -> Tensor:
    first, last = value["data_offsets"]
    shape = tuple(int(size) for size in value["shape"])
    dtype = str(value["dtype"])
    n_bytes = math.prod(shape) * _BITS[dtype] // 8 if dtype in _BITS else int(last - first)
    return Tensor(name, dtype, shape, n_bytes)
