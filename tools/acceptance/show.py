"""Reports, comparisons and the list of matrices for a person at a terminal. Scripts use --json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from command.paper import Paper

from .compare import Change, Comparison
from .markdown import difference_lines
from .report import Ending, Report, Result
from .tally import tally_matrix

if TYPE_CHECKING:
    from rich.text import Text

    from .matrices.matrix import Matrix

STYLES = {
    Ending.PASSED: "green",
    Ending.FAILED: "red",
    Ending.BROKEN: "red",
    Ending.SKIPPED: "yellow",
    Ending.DOES_NOT_APPLY: "yellow",
    Ending.NOT_PROVEN: "yellow",
}


def show_result(paper: Paper, side: str, matrix: str, case: str, result: Result) -> None:
    """One row as it comes."""
    said = result.detail if result.ending is not Ending.PASSED else ""
    text = f"{side:7}{matrix:10}{case:32} {result.ending.value} ({result.duration_s:.1f} s)"
    paper.line(f"{text}  {said}".rstrip(), style=STYLES[result.ending])


def show_report(paper: Paper, report: Report) -> None:
    """The matrices with their tallies, what did not pass and where it differs, and the conclusion."""
    from rich.text import Text

    labels = [side.label for side in report.sides]
    paper.line(f"evidence: {report.title}", style="bold")
    cells: list[tuple[str, ...]] = [
        (matrix, *(tally_matrix(report, matrix, side) for side in report.sides), shows)
        for matrix, shows in report.shows.items()
    ]
    paper.rows("", ("matrix", *labels, "shows"), cells)
    told: list[tuple[str | Text, ...]] = []
    for row in report.rows:
        results = [report.result(row, side) for side in report.sides]
        if all(result and result.ending is Ending.PASSED for result in results):
            continue
        marks = [Text(r.ending.value, style=STYLES[r.ending]) if r else Text("not run") for r in results]
        said = [f"{s.label}: {r.detail}" for s, r in zip(report.sides, results, strict=True) if r and _is_told(r)]
        told.append((row.matrix, row.case, *marks, "\n".join(said)))
    paper.rows("Rows that did not pass on every side", ("matrix", "case", *labels, "why"), told)
    for side in report.sides:
        for row in report.rows:
            result = report.result(row, side)
            if result and result.difference:
                paper.line("")
                paper.line(f"{side.label}, {row.matrix}, {row.case}", style="bold")
                for text in difference_lines(result.difference):
                    paper.line(f"  {text}")
    paper.line("")
    style = "green" if report.conclusion.holds else "red"
    paper.line(f"{'Holds' if report.conclusion.holds else 'Does not hold'}. {report.conclusion.text}", style=style)


def _is_told(result: Result) -> bool:
    return result.ending is not Ending.PASSED and bool(result.detail)


def show_comparison(paper: Paper, comparison: Comparison) -> None:
    paper.line(f"from  {comparison.first}")
    paper.line(f"to    {comparison.second}")
    groups: Mapping[str, tuple[Change, ...]] = {
        "Versions": comparison.versions,
        "Ids": comparison.ids,
        "Inputs": comparison.inputs,
    }
    for heading, changes in groups.items():
        cells = [(change.what, change.was or "-", change.now or "-") for change in changes]
        paper.rows(heading, ("", "was", "is"), cells)
    cells_of_rows = [(row.matrix, row.case, row.was or "-", row.now or "-", row.why) for row in comparison.rows]
    paper.rows("Rows", ("matrix", "case", "was", "is", "why"), cells_of_rows)
    paper.line("")
    n_worse = len(comparison.regressions)
    said = f"{comparison.n_same} rows ended the same, {len(comparison.rows)} changed"
    if n_worse:
        paper.line(f"{said}; {n_worse} passed before and do not now.", style="red")
    else:
        paper.line(f"{said}; none that passed fails now.", style="green")


def show_matrices(paper: Paper, matrices: Mapping[str, Matrix], flags: Mapping[str, str]) -> None:
    cells = [(matrix.name, matrix.shows, matrix.needs) for matrix in matrices.values()]
    paper.rows("", ("matrix", "shows", "needs"), cells)
    paper.rows("Flags that a server may have (--flag NAME='...')", ("name", "means"), list(flags.items()))
