"""How fast requests went lately: tokens for each second that requests spent on them."""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0


class Speed:
    """Tokens a second over the requests of the last WINDOW_S seconds.

    The seconds are each request's own: two requests side by side spend two in one. Units: `now_s` is monotonic.
    """

    def __init__(self) -> None:
        self._spent: deque[tuple[float, int, float]] = deque()

    def add(self, n_tokens: int, took_s: float, *, now_s: float) -> None:
        self._spent.append((now_s, n_tokens, took_s))
        self._forget(now_s)

    def tokens_per_s(self, now_s: float) -> float:
        """0 where nothing was done lately."""
        self._forget(now_s)
        took_s = sum(took for _, _, took in self._spent)
        return sum(n for _, n, _ in self._spent) / took_s if took_s > 0 else 0.0

    def _forget(self, now_s: float) -> None:
        while self._spent and self._spent[0][0] < now_s - WINDOW_S:
            self._spent.popleft()
