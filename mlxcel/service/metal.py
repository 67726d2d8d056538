"""Whether this process would see a Metal device: asked in a child, for mlx aborts its process where there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from mlxcel.errors import StateError

PROBE = (sys.executable, "-c", "import mlx.core as mx; mx.eval(mx.zeros(1))")
PROBE_S = 60.0


def check_metal(probe: Sequence[str] = PROBE) -> None:
    """Errors: StateError when the probe dies or hangs."""
    try:
        code = subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PROBE_S).returncode
    except subprocess.TimeoutExpired:
        code = None
    if code != 0:
        raise StateError(
            "no Metal device can be used by this process; nothing was started. mlx needs the GPU of an Apple-silicon "
            "Mac, which most virtual machines do not show",
            code="no_metal",
        )
