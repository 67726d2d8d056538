"""Metal: the library of kernels that mlx brings, and how much memory it may wire.

MLX's NAX kernels use the neural accelerators that Apple's GPUs have since the M5; an mlx that was built without them
runs there, only slower.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mlxcel.child import NoAnswer, ask_child
from mlxcel.device import Device
from mlxcel.doctor.finding import Finding, ok, problem, warning

ASK_S = 5.0
WIRED_LIMIT = ("/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb")
LEAST_FOR_THE_SYSTEM_BYTES = 2 * 2**30
MIB = 2**20
_MAGIC = b"MTLB"
_LIST_AT = struct.Struct("<24xQ")
"""A metallib's head: after 24 bytes, where its list of functions begins."""
_COUNT = struct.Struct("<I")
_TAG = struct.Struct("<4sH")
"""An entry of the list: its size in bytes, that number included, then tags: four letters, a size, the value."""
_CHUNK_BYTES = MIB
_MOST_ENTRY_BYTES = 64 * 2**10
_FIRST_WITH_NAX = 5


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


def look_at_metallib(device: Device | None, found: Sequence[Path] | None = None) -> list[Finding]:
    """The kernels that Metal would run. `device` is None where MLX cannot compute at all."""
    about = "metallib"
    paths = find_metallibs() if found is None else found
    if not paths:
        if device is None or device.kind != "metal":
            return [ok(about, "none beside mlx: this one computes without Metal")]
        return [
            warning(
                about,
                "none beside mlx, so the kernels come from elsewhere and are not looked at",
                "Install mlx again, if Metal fails",
            )
        ]
    return [_about_metallib(about, path, device) for path in paths]


def look_at_wired_limit(device: Device | None, total_bytes: int, sysctl: Sequence[str] = WIRED_LIMIT) -> Finding:
    """How much memory Metal may wire, and who said so. `total_bytes` is the machine's memory."""
    about = "wired limit"
    if device is None or device.kind != "metal" or not device.memory_bytes:
        return ok(about, "none: MLX computes without Metal here")
    told = f"Metal may wire {device.memory_bytes / 10**9:.1f} of {total_bytes / 10**9:.1f} GB"
    try:
        limit_bytes = int(ask_child(sysctl, timeout_s=ASK_S)) * MIB
    except (NoAnswer, TypeError, ValueError):
        return ok(about, f"{told}; iogpu.wired_limit_mb cannot be read")
    if limit_bytes == 0:
        return ok(about, f"{told}, the system's own limit (iogpu.wired_limit_mb is 0)")
    told += f"; iogpu.wired_limit_mb is {limit_bytes // MIB}, until the next boot"
    if total_bytes - limit_bytes < LEAST_FOR_THE_SYSTEM_BYTES:
        return warning(
            about,
            f"{told}, which leaves too little for the system",
            "sudo sysctl iogpu.wired_limit_mb=0, or a smaller one",
        )
    return ok(about, told)


def _about_metallib(about: str, path: Path, device: Device | None) -> Finding:
    try:
        library = read_metallib(path)
    except (OSError, ValueError) as error:
        return problem(about, f"{path} cannot be used: {error}", "Install mlx again")
    told = f"{path}, {library.n_bytes} bytes, sha256 {library.sha256}"
    if not library.kernels:
        return problem(about, f"{told}; there is no kernel in it", "Install mlx again")
    told += f"; {len(library.kernels)} kernels, {library.n_nax} of them NAX"
    if library.n_nax == 0 and device is not None and _has_nax(device.name):
        return warning(
            about,
            f"{told}: the neural accelerators of {device.name} stay unused",
            "Install an mlx that was built with a macOS SDK of 26.2 or newer",
        )
    return ok(about, told)


def _has_nax(device_name: str) -> bool:
    model = re.match(r"Apple M(\d+)\b", device_name)
    return model is not None and int(model[1]) >= _FIRST_WITH_NAX
