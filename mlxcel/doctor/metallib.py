"""A library of Metal kernels, read as a file: neither mlx nor Metal is asked."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"MTLB"
_LIST_AT = struct.Struct("<24xQ")
"""A metallib's head: after 24 bytes, where its list of functions begins."""
_COUNT = struct.Struct("<I")
_TAG = struct.Struct("<4sH")
"""An entry of the list: its size in bytes, that number included, then tags: four letters, a size, the value."""
_CHUNK_BYTES = 2**20
_MOST_ENTRY_BYTES = 64 * 2**10


@dataclass(frozen=True)
class Metallib:
    """One library of kernels."""

    path: Path
    n_bytes: int
    sha256: str
    kernels: frozenset[str]

    @property
    def n_nax(self) -> int:
        return sum("nax" in name for name in self.kernels)


def read_metallib(path: Path) -> Metallib:
    """Errors: OSError; ValueError where the file is no metallib, or ends too early."""
    with path.open("rb") as file:
        kernels = _read_names(file)
        file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
        return Metallib(path, file.tell(), digest.hexdigest(), kernels)


def _read_names(file: BinaryIO) -> frozenset[str]:
    """The names in a metallib's list of functions (its form: worked out by others, checked on those of mlx-metal)."""
    head = file.read(_LIST_AT.size)
    if not head.startswith(_MAGIC) or len(head) < _LIST_AT.size:
        raise ValueError("it does not begin as a metallib does")
    (list_at,) = _LIST_AT.unpack(head)
    file.seek(0, os.SEEK_END)
    if list_at > file.tell():
        raise ValueError("it ends before its list of functions")
    file.seek(list_at)
    (n_functions,) = _COUNT.unpack(_read_whole(file, _COUNT.size))
    names = set()
    for _ in range(n_functions):
        (n_bytes,) = _COUNT.unpack(_read_whole(file, _COUNT.size))
        if not _COUNT.size < n_bytes <= _MOST_ENTRY_BYTES:
            raise ValueError("its list of functions is damaged")
        names.add(_name_in(_read_whole(file, n_bytes - _COUNT.size)))
    return frozenset(names)


def _name_in(entry: bytes) -> str:
    at = 0
    while at + _TAG.size <= len(entry):
        tag, n_bytes = _TAG.unpack_from(entry, at)
        at += _TAG.size
        if tag == b"NAME":
            return entry[at : at + n_bytes].rstrip(b"\0").decode("utf-8", "replace")
        at += n_bytes
    raise ValueError("its list of functions has one without a name")


def _read_whole(file: BinaryIO, n_bytes: int) -> bytes:
    content = file.read(n_bytes)
    if len(content) < n_bytes:
        raise ValueError("it ends within its list of functions")
    return content


def find_metallibs() -> list[Path]:
    """Those beside the installed mlx, which is not imported: that may end the process."""
    spec = importlib.util.find_spec("mlx")
    folders = (spec and spec.submodule_search_locations) or ()
    return sorted(path for folder in folders for path in Path(folder).rglob("*.metallib"))
