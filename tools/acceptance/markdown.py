"""A report as Markdown for a pull request: the conclusion, a table of matrices, every row, every difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from .report import Difference, Ending, Report, Result, Side
from .tally import BAD, tally_matrix

SIGNS = {
    Ending.PASSED: "✓",
    Ending.FAILED: "✗",
    Ending.BROKEN: "!",
    Ending.SKIPPED: "–",
    Ending.DOES_NOT_APPLY: "–",
    Ending.NOT_PROVEN: "?",
}

_SPECIAL = re.compile(r"[\\|<>&*_`\[\]]")


def render_markdown(report: Report) -> str:
    """The whole text, ending in a newline."""
    return "\n".join(_lines(report)) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell(text) for text in row)} |"


def cell(text: str) -> str:
    """Text that can neither end its cell nor become markup."""
    return " ".join(_SPECIAL.sub(_escape, text).split())


def _escape(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};" if found[0] in "<>&" else f"\\{found[0]}"


def _lines(report: Report) -> Iterator[str]:
    labels = [side.label for side in report.sides]
    yield f"## Evidence: {report.title}"
    yield ""
    yield f"**{'Holds' if report.conclusion.holds else 'Does not hold'}**: {cell(report.conclusion.text)}"
    yield ""
    yield from table(
        ["matrix", "shows", *labels],
        (
            [matrix, shows, *(tally_matrix(report, matrix, side) for side in report.sides)]
            for matrix, shows in report.shows.items()
        ),
    )
    yield ""
    yield "<details><summary>Every row</summary>"
    yield ""
    rows = []
    for row in report.rows:
        results = [report.result(row, side) for side in report.sides]
        rows.append([row.matrix, row.case, *map(_sign, results), _detail(results)])
    yield from table(["matrix", "case", *labels, ""], rows)
    yield ""
    yield "</details>"
    yield ""
    for side in report.sides:
        yield from _differences(report, side)
    yield "<details><summary>Made from</summary>"
    yield ""
    yield from table(["", "value"], _made_from(report))
    yield ""
    yield "</details>"


def _sign(result: Result | None) -> str:
    return f"{SIGNS[result.ending]} {result.ending.value}" if result else "not run"


def _detail(results: Sequence[Result | None]) -> str:
    """The after side's words; the before side's too where it did not pass."""
    before = results[0] if len(results) == 2 else None
    said = [f"before: {before.detail}"] if before and before.ending in BAD and before.detail else []
    return "; ".join([*said, *(result.detail for result in results[-1:] if result and result.detail)])


def _differences(report: Report, side: Side) -> Iterator[str]:
    for row in report.rows:
        result = report.result(row, side)
        if result and result.difference:
            yield f"**{side.label}, {row.matrix}, {row.case}**"
            yield ""
            yield "```text"
            yield from difference_lines(result.difference)
            yield "```"
            yield ""


def difference_lines(difference: Difference) -> list[str]:
    """Three lines: where, what was expected, what came. Texts are shown as Python writes them."""
    where = f"token {difference.token}" if difference.token is not None else "the end"
    return [
        f"first difference at {where} (character {difference.character}), after {difference.context!r}",
        f"  expected {difference.expected!r}",
        f"  got      {difference.got!r}",
    ]


def _made_from(report: Report) -> Iterator[Sequence[str]]:
    yield "made by", report.made_by
    yield "made at", report.made_at
    machine = report.machine
    yield "machine", f"{machine.platform}, {machine.processor}, Python {machine.python}"
    for name, version in machine.versions.items():
        yield f"reference: {name}", version
    for side in report.sides:
        yield side.label, side.subject
        if side.commit:
            yield f"{side.label}: commit", side.commit + (" with uncommitted changes" if side.is_dirty else "")
        for name, version in side.versions.items():
            yield f"{side.label}: {name}", version
        for artefact in side.artefacts:
            yield f"{side.label}: sha256", f"{artefact.sha256} {artefact.path}"
        for note in side.notes:
            yield f"{side.label}: note", note
    for name, value in report.inputs.items():
        yield name, value
