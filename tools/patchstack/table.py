"""A Markdown table between two marker lines: rows of cells to text and back; the text around it is kept.

It knows nothing of what stands in the cells; that is cells.py's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from command.errors import refused


class Row(NamedTuple):
    """One row as read: its cells, and its line in the file, from 1."""

    line: int
    cells: tuple[str, ...]


def opening(name: str) -> str:
    return f"<!-- recut:{name} -->"


def closing(name: str) -> str:
    return f"<!-- /recut:{name} -->"


def render_table(name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The marker lines and the table between them, without a last newline."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join([opening(name), *(f"| {' | '.join(cells)} |" for cells in lines), closing(name)])


def find_table(text: str, name: str, *, source: str) -> tuple[int, int]:
    """The lines (first, last; from 0) of the two markers. Errors: refused, saying which marker is wrong."""
    lines = [line.strip() for line in text.split("\n")]
    first = [at for at, line in enumerate(lines) if line == opening(name)]
    last = [at for at, line in enumerate(lines) if line == closing(name)]
    if len(first) == 1 and len(last) == 1 and first[0] < last[0]:
        return first[0], last[0]
    if not first and not last:
        said = f"{source} has no table {name!r}: the line {opening(name)} is missing"
    elif len(first) > 1 or len(last) > 1:
        at = (first if len(first) > 1 else last)[1]
        said = f"{source} line {at + 1}: a second marker of the table {name!r}"
    elif not last:
        said = f"{source} line {first[0] + 1}: the table {name!r} has no closing line {closing(name)}"
    elif not first:
        said = f"{source} line {last[0] + 1}: the table {name!r} has no opening line {opening(name)}"
    else:
        said = f"{source} line {last[0] + 1}: the closing line of {name!r} comes before its opening line"
    raise refused(said, f"put the lines {opening(name)} and {closing(name)} around that table")


def parse_table(text: str, name: str, columns: Sequence[str], *, source: str) -> list[Row]:
    """The rows of the table `name`. Errors: refused, naming the line and what is expected there."""
    first, last = find_table(text, name, source=source)
    found = [
        Row(first + 2 + at, _cells(line)) for at, line in enumerate(text.split("\n")[first + 1 : last]) if line.strip()
    ]
    if not found or found[0].cells != tuple(columns):
        line = found[0].line if found else first + 1
        raise refused(
            f"{source} line {line}: the table {name!r} must begin with its heading",
            f"write this line there: | {' | '.join(columns)} |",
        )
    if len(found) < 2 or not all(re.fullmatch(r":?-+:?", cell) for cell in found[1].cells):
        raise refused(
            f"{source} line {found[0].line + 1}: a line of dashes must follow the heading of {name!r}",
            f"write this line there: |{'---|' * len(columns)}",
        )
    for row in found[2:]:
        if len(row.cells) != len(columns):
            raise refused(
                f"{source} line {row.line}: {len(row.cells)} cells where the table {name!r} has "
                f"{len(columns)} ({', '.join(columns)})",
                f"write line {row.line} with {len(columns)} cells; a pipe inside a cell is written \\|",
            )
    return found[2:]


def replace_table(text: str, name: str, table: str, *, source: str) -> str:
    first, last = find_table(text, name, source=source)
    lines = text.split("\n")
    return "\n".join([*lines[:first], *table.split("\n"), *lines[last + 1 :]])


def _cells(line: str) -> tuple[str, ...]:
    """The cells between unescaped pipes, each still as written."""
    inner = line.strip().removeprefix("|")
    cells = [""]
    escaped = False
    for character in inner:
        if character == "|" and not escaped:
            cells.append("")
        else:
            cells[-1] += character
        escaped = character == "\\" and not escaped
    if not cells[-1].strip():
        cells.pop()
    return tuple(cell.strip(" \t\r") for cell in cells)
