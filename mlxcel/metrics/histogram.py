"""Histograms as plain numbers of one thread, where many equal observations cost as much as one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of what was observed, by upper bound; the last count is of what is over every bound.

    Owner: the event loop's thread, which also reads it.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, n: int = 1) -> None:
        """`value` was seen `n` times."""
        self.counts[bisect_left(self.bounds, value)] += n
        self.sum += value * n

    @property
    def n(self) -> int:
        return sum(self.counts)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: each bound, and how many were at most that."""
        total, buckets = 0, []
        for bound, count in zip((*map(str, map(float, self.bounds)), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets
