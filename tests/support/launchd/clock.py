"""A clock that runs `scale` times as fast as the wall's, so that thirty seconds of throttle need not be waited for."""

from __future__ import annotations

import time


class Clock:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self._started_s = time.monotonic()

    def now_s(self) -> float:
        """Scaled seconds since the clock was made."""
        return (time.monotonic() - self._started_s) * self.scale

    def wall_s(self, scaled_s: float) -> float:
        """How long to wait on the wall's clock for that many scaled seconds."""
        return max(0.0, scaled_s) / self.scale
