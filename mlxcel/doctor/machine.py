"""The machine: what computes, its memory, its files and its disk."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from mlxcel.device import PROBE, Device, probe_device
from mlxcel.doctor.finding import Finding, ok, problem, warning
from mlxcel.errors import StateError
from mlxcel.open_files import ENOUGH, attainable_open_files
from mlxcel.store.inspection import Inspection

PROBE_S = 30.0
LEAST_FREE_BYTES = 200 * 10**6
ROOM_FOR_A_MODEL_BYTES = 10 * 10**9


def look_at_device(probe: Sequence[str] = PROBE) -> tuple[Finding, Device | None]:
    """What MLX would compute on, asked in a child; None where it cannot compute."""
    try:
        device = probe_device(probe, timeout_s=PROBE_S)
    except StateError as error:
        return problem("device", error.message, "Run 'python -c \"import mlx.core\"' to see what mlx says"), None
    name = f" ({device.name})" if device.name else ""
    if device.kind == "cpu":
        return warning(
            "device",
            f"MLX computes on the CPU{name}: right, but many times slower than on a GPU",
            "Serve from an Apple-silicon Mac"
            + ("; a virtual machine shows no GPU" if sys.platform == "darwin" else ""),
        ), device
    return ok("device", f"MLX computes on {'Metal' if device.kind == 'metal' else 'CUDA'}{name}"), device


def physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def look_at_memory(memory_bytes: int, model: Inspection | None) -> Finding:
    """Whether the model leaves memory for keys and values. `model` is None where none was named, or it is not whole."""
    size = f"{memory_bytes / 10**9:.1f} GB"
    if model is None:
        return ok("memory", f"{size} for weights, keys and values")
    weights = f"{model.weights_bytes / 10**9:.2f} GB of weights"
    if model.kv_budget_bytes <= 0 or any(fit.n_sequences == 0 for fit in model.fits):
        return problem(
            "memory",
            f"{size} leave too little beside {weights} for even one sequence's keys and values",
            "Choose a smaller model, or one of fewer bits",
        )
    room = f"{model.kv_budget_bytes / 10**9:.1f} GB for keys and values"
    return ok(
        "memory", f"{size}: {weights}, {room}" + "".join(f", {f.n_sequences} x {f.n_tokens} tokens" for f in model.fits)
    )


def look_at_open_files(least: int = ENOUGH) -> Finding:
    """How many connections a server could take once it has raised its limit as far as it may."""
    most = attainable_open_files()
    if most >= least:
        return ok("open files", f"up to {most}, once a server has raised its limit")
    return warning(
        "open files",
        f"up to {most}, and each client takes one: many clients at once will be turned away",
        f"Start the server under 'ulimit -n {least}', or with HardResourceLimits in its launchd job",
    )


def look_at_disk(
    folder: Path, *, least_bytes: int = LEAST_FREE_BYTES, room_bytes: int = ROOM_FOR_A_MODEL_BYTES
) -> Finding:
    """Free space where models are pulled to."""
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(place).free
    told = f"{free / 10**9:.1f} GB free in {place}"
    if free < least_bytes:
        return problem(
            "disk", f"{told}: nothing can be pulled, and logs may fail", "Remove models with 'mlxcel rm NAME'"
        )
    if free < room_bytes:
        return warning(
            "disk", f"{told}: too little for most models", "Remove models with 'mlxcel rm NAME' before a pull"
        )
    return ok("disk", told)
