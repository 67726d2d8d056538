"""Writes safetensors files piece by piece, so that a model larger than memory can pass through.

Source: https://github.com/huggingface/safetensors (format). It knows nothing of what the tensors mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mlxcel.errors import BugError

_DTYPES = {"<f4": "F32", "<f2": "F16", "<u4": "U32"}


@dataclass(frozen=True)
class Entry:
    """One tensor to come. `dtype` is '<f4', '<f2' or '<u4'."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class SafetensorsWriter:
    """An open file with room for each entry; every entry is filled from its first row to its last."""

    def __init__(self, file: BinaryIO, entries: Sequence[Entry]) -> None:
        self._file = file
        self._entries = {entry.name: entry for entry in entries}
        header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
        end = 0
        for entry in entries:
            start, end = end, end + entry.n_bytes
            header[entry.name] = {
                "dtype": _DTYPES[entry.dtype],
                "shape": list(entry.shape),
                "data_offsets": [start, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)
        data_start = 8 + len(text)
        self._next = {name: data_start + header[name]["data_offsets"][0] for name in self._entries}
        self._end = {name: data_start + header[name]["data_offsets"][1] for name in self._entries}

    def write(self, name: str, rows: npt.NDArray[Any]) -> None:
        """Append rows to an entry. Errors: BugError for another dtype or more rows than the entry has."""
        data = np.ascontiguousarray(rows)
        if data.dtype.newbyteorder("<") != np.dtype(self._entries[name].dtype):
            raise BugError(f"{name} was to be {self._entries[name].dtype}, not {data.dtype}")
        if self._next[name] + data.nbytes > self._end[name]:
            raise BugError(f"{name} got more than its {self._entries[name].n_bytes} bytes")
        self._file.seek(self._next[name])
        self._file.write(data.data.cast("B"))
        self._next[name] += data.nbytes

    def check_full(self) -> None:
        if short := [name for name, position in self._next.items() if position != self._end[name]]:
            raise BugError(f"{short[0]} was not written to its end")


@contextmanager
def safetensors_file(path: Path, entries: Sequence[Entry]) -> Iterator[SafetensorsWriter]:
    with path.open("wb") as file:
        writer = SafetensorsWriter(file, entries)
        yield writer
        writer.check_full()
