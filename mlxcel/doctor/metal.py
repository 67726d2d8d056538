"""Metal: the library of kernels that mlx brings, and how much memory it may wire.

MLX's NAX kernels use the neural accelerators that Apple's GPUs have since the M5; an mlx that was built without them
runs there, only slower.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mlxcel.child import NoAnswer, ask_child
from mlxcel.device import Device
from mlxcel.doctor.finding import Finding, ok, problem, warning
from mlxcel.doctor.metallib import find_metallibs, read_metallib

ASK_S = 5.0
WIRED_LIMIT = ("/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb")
LEAST_FOR_THE_SYSTEM_BYTES = 2 * 2**30
MIB = 2**20
_FIRST_WITH_NAX = 5


def look_at_metallib(device: Device | None, found: Sequence[Path] | None = None) -> list[Finding]:
    """The kernels that Metal would run. `device` is None where MLX cannot compute at all."""
    about = "metallib"
    paths = find_metallibs() if found is None else found
    if not paths:
        if device is not None and device.kind != "metal":
            return [ok(about, "none beside mlx: this one computes without Metal")]
        return [
            warning(
                about,
                "none beside mlx: Metal has no kernels, or they come from elsewhere and are not looked at",
                "Install mlx again, if Metal fails",
            )
        ]
    return [_look_at(path, device) for path in paths]


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


def _look_at(path: Path, device: Device | None) -> Finding:
    about = "metallib"
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
