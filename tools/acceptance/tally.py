"""Counts a report's rows, one way for every reader of it."""

from __future__ import annotations

from collections.abc import Iterable

from .report import Ending, Report, Result, Side

BAD = (Ending.FAILED, Ending.BROKEN)


def tally(results: Iterable[Result | None]) -> str:
    """`17/18` passed of those that could be tried, and how many could not be, by name."""
    endings = [result.ending for result in results if result]
    tried = [ending for ending in endings if ending in (Ending.PASSED, *BAD)]
    parts = [f"{tried.count(Ending.PASSED)}/{len(tried)}"] if tried else []
    for ending in (Ending.SKIPPED, Ending.DOES_NOT_APPLY, Ending.NOT_PROVEN):
        if n := endings.count(ending):
            parts.append(f"{n} {ending.value}" if tried or n > 1 else ending.value)
    return ", ".join(parts) or "-"


def tally_matrix(report: Report, matrix: str, side: Side) -> str:
    return tally(report.result(row, side) for row in report.rows_of(matrix))
