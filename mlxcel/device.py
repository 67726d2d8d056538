"""Which device MLX computes on here: asked in a child, for mlx aborts its process where there is none to use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mlxcel.child import NoAnswer, ask_child
from mlxcel.errors import StateError, reason_of

PROBE_S = 60.0
_PROGRAM = """
import json
import mlx.core as mx
mx.eval(mx.zeros(1))
info = mx.device_info() if hasattr(mx, "device_info") else {}
kind = "metal" if mx.metal.is_available() else "cuda" if "gpu" in str(mx.default_device()) else "cpu"
memory_bytes = info.get("max_recommended_working_set_size")
print(json.dumps({"kind": kind, "name": info.get("device_name", ""), "memory_bytes": memory_bytes}))
"""
PROBE = (sys.executable, "-c", _PROGRAM)


@dataclass(frozen=True)
class Device:
    """`kind` is metal, cuda or cpu; `memory_bytes` is what Metal lets a process use of the machine's."""

    kind: str
    name: str
    memory_bytes: int | None


def probe_device(probe: Sequence[str] = PROBE, *, timeout_s: float = PROBE_S) -> Device:
    """The device that this process would compute on.

    Errors: StateError when the probe dies, hangs or says nothing.
    """
    try:
        return Device(**ask_child(probe, timeout_s=timeout_s))
    except NoAnswer as error:
        how = str(error)
    except TypeError as error:
        how = f"failed: {reason_of(error)}"
    raise StateError(
        f"no Metal device, nor another one, can be used by this process (the probe {how}); nothing was started. On a "
        "Mac, mlx needs the GPU of an Apple-silicon chip, which most virtual machines do not show",
        code="no_device",
    )
