"""When the refused may come back: one after another, at the rate at which places come free.

Were all told the same, all would come at once, again and again, and be refused; what that costs the accepted would pay.
"""

from __future__ import annotations

import math
from collections import deque

N_ENDS = 32
"""How many of the last ends make the rate."""
SOONEST_S = 1
LATEST_S = 60
"""Whoever would have to wait longer comes to look: by then the rate is another one."""


class Returns:
    """Gives each refused request a time of its own. Owner: the event loop's thread. Units: monotonic seconds."""

    def __init__(self) -> None:
        self._ends_s: deque[float] = deque(maxlen=N_ENDS)
        self._last_s = 0.0

    def place_freed(self, now_s: float) -> None:
        self._ends_s.append(now_s)

    def after_s(self, now_s: float) -> int:
        """In how many whole seconds the next of the refused should ask again."""
        gap_s = (now_s - self._ends_s[0]) / len(self._ends_s) if self._ends_s else float(SOONEST_S)
        self._last_s = min(max(self._last_s, now_s) + gap_s, now_s + LATEST_S)
        return max(SOONEST_S, math.ceil(self._last_s - now_s))
