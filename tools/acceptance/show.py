"""Reports, comparisons and the list of matrices for a person at a terminal. Scripts use --json."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .compare import Change, Comparison
from .markdown import difference_lines
from .report import Ending, Report, Result
from .tally import tally_matrix

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from .matrices.matrix import Matrix

PIPE_WIDTH = 240
"""Columns of a table that goes into a file or a pipe: wide enough never to fold an id."""
STYLES = {
    Ending.PASSED: "green",
    Ending.FAILED: "red",
    Ending.BROKEN: "red",
    Ending.SKIPPED: "yellow",
    Ending.DOES_NOT_APPLY: "yellow",
    Ending.NOT_PROVEN: "yellow",
}


def make_console(*, is_error: bool = False) -> Console:
    """Colour only on a terminal."""
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, no_color=True, force_terminal=False, width=PIPE_WIDTH)


def line(console: Console, text: str, *, style: str = "") -> None:
    """One line of plain text, however long."""
    console.print(text, style=style or None, markup=False, soft_wrap=True)


def rows(console: Console, heading: str, columns: Sequence[str], cells: Sequence[Sequence[str | Text]]) -> None:
    """A titled table without frames; nothing at all without rows. Cells fold and are never cut off."""
    from rich.table import Table
    from rich.text import Text

    if not cells:
        return
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in cells:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    line(console, "")
    if heading:
        line(console, heading, style="bold")
    console.print(made)


def show_result(console: Console, side: str, matrix: str, case: str, result: Result) -> None:
    """One row as it comes."""
    said = result.detail if result.ending is not Ending.PASSED else ""
    text = f"{side:7}{matrix:10}{case:32} {result.ending.value} ({result.duration_s:.1f} s)"
    line(console, f"{text}  {said}".rstrip(), style=STYLES[result.ending])


def show_report(console: Console, report: Report) -> None:
    """The matrices with their tallies, what did not pass and where it differs, and the conclusion."""
    from rich.text import Text

    labels = [side.label for side in report.sides]
    line(console, f"evidence: {report.title}", style="bold")
    cells: list[tuple[str, ...]] = [
        (matrix, *(tally_matrix(report, matrix, side) for side in report.sides), shows)
        for matrix, shows in report.shows.items()
    ]
    rows(console, "", ("matrix", *labels, "shows"), cells)
    told: list[tuple[str | Text, ...]] = []
    for row in report.rows:
        results = [report.result(row, side) for side in report.sides]
        if all(result and result.ending is Ending.PASSED for result in results):
            continue
        marks = [Text(r.ending.value, style=STYLES[r.ending]) if r else Text("not run") for r in results]
        said = [f"{s.label}: {r.detail}" for s, r in zip(report.sides, results, strict=True) if r and _is_told(r)]
        told.append((row.matrix, row.case, *marks, "\n".join(said)))
    rows(console, "Rows that did not pass on every side", ("matrix", "case", *labels, "why"), told)
    for side in report.sides:
        for row in report.rows:
            result = report.result(row, side)
            if result and result.difference:
                line(console, "")
                line(console, f"{side.label}, {row.matrix}, {row.case}", style="bold")
                for text in difference_lines(result.difference):
                    line(console, f"  {text}")
    line(console, "")
    style = "green" if report.conclusion.holds else "red"
    line(console, f"{'Holds' if report.conclusion.holds else 'Does not hold'}. {report.conclusion.text}", style=style)


def _is_told(result: Result) -> bool:
    return result.ending is not Ending.PASSED and bool(result.detail)


def show_comparison(console: Console, comparison: Comparison) -> None:
    line(console, f"from  {comparison.first}")
    line(console, f"to    {comparison.second}")
    groups: Mapping[str, tuple[Change, ...]] = {
        "Versions": comparison.versions,
        "Ids": comparison.ids,
        "Inputs": comparison.inputs,
    }
    for heading, changes in groups.items():
        cells = [(change.what, change.was or "-", change.now or "-") for change in changes]
        rows(console, heading, ("", "was", "is"), cells)
    cells_of_rows = [(row.matrix, row.case, row.was or "-", row.now or "-", row.why) for row in comparison.rows]
    rows(console, "Rows", ("matrix", "case", "was", "is", "why"), cells_of_rows)
    line(console, "")
    n_worse = len(comparison.regressions)
    said = f"{comparison.n_same} rows ended the same, {len(comparison.rows)} changed"
    if n_worse:
        line(console, f"{said}; {n_worse} passed before and do not now.", style="red")
    else:
        line(console, f"{said}; none that passed fails now.", style="green")


def show_matrices(console: Console, matrices: Mapping[str, Matrix], flags: Mapping[str, str]) -> None:
    cells = [(matrix.name, matrix.shows, matrix.needs) for matrix in matrices.values()]
    rows(console, "", ("matrix", "shows", "needs"), cells)
    rows(console, "Flags that a server may have (--flag NAME='...')", ("name", "means"), list(flags.items()))
