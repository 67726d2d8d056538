"""Where answers for people go: rich tables with colour on a terminal, plain aligned columns anywhere else.

A file or a pipe gets no colour and no folding, whatever its width; and rich is not even loaded for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Paper:
    """Lines and tables on a stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._console = _terminal() if self._stream.isatty() else None

    def line(self, text: str, *, style: str = "") -> None:
        """One line of plain text, however long; `style` as rich names it."""
        if self._console:
            self._console.print(text, style=style or None, markup=False, soft_wrap=True)
        else:
            self._stream.write(f"{printable(text)}\n")

    def rows(self, heading: str, columns: Sequence[str], cells: Sequence[Sequence[str | Text]]) -> None:
        """A titled table; nothing at all without rows."""
        if not cells:
            return
        self.line("")
        if heading:
            self.line(heading, style="bold")
        self.table(columns, cells)

    def table(self, columns: Sequence[str], cells: Sequence[Sequence[str | Text]]) -> None:
        """A table without frames. A cell may have several lines; it folds and is never cut off."""
        if self._console:
            self._rich_table(columns, cells)
            return
        rows = [[str(cell).split("\n") for cell in row] for row in cells]
        widths = [
            max(len(line) for row in [[[name]] * len(columns), *rows] for line in row[at])
            if at < len(columns) - 1
            else 0
            for at, name in enumerate(columns)
        ]
        self._plain_row([[name] for name in columns], widths)
        for row in rows:
            self._plain_row(row, widths)

    def _plain_row(self, row: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
        for at in range(max(len(cell) for cell in row)):
            lines = [cell[at] if at < len(cell) else "" for cell in row]
            text = "  ".join(line.ljust(width) for line, width in zip(lines, widths, strict=True))
            self._stream.write(f"{printable(text.rstrip())}\n")

    def _rich_table(self, columns: Sequence[str], cells: Sequence[Sequence[str | Text]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in cells:
            table.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
        assert self._console
        self._console.print(table)


def _terminal() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def printable(text: str) -> str:
    """`text` with bytes of file names that are no UTF-8 shown as a replacement character."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
