"""Plain text in columns, for a person; scripts get --json."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows, each column as wide as its widest cell."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def sized(n_bytes: int) -> str:
    """A number of bytes in three digits or so."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} B"


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
