"""Two reports side by side: what changed between them, in what went in and in what came out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .report import Ending, Report, Row, Side, Value

SCHEMA = "evidence.compare/1"


class Change(Value, frozen=True, kw_only=True):
    """One thing that is not the same. "" where one report does not have it."""

    what: str
    was: str
    now: str


class RowChange(Value, frozen=True, kw_only=True):
    """A row whose ending or words on the after side changed; "" where one report does not have it."""

    matrix: str
    case: str
    was: str
    now: str
    why: str

    @property
    def is_regression(self) -> bool:
        return self.was == Ending.PASSED.value and self.now != Ending.PASSED.value


class Comparison(Value, frozen=True, kw_only=True):
    """first, second: the reports' titles and dates. `n_same`: rows that ended the same."""

    first: str
    second: str
    versions: tuple[Change, ...]
    ids: tuple[Change, ...]
    inputs: tuple[Change, ...]
    rows: tuple[RowChange, ...]
    n_same: int

    @property
    def regressions(self) -> tuple[RowChange, ...]:
        return tuple(row for row in self.rows if row.is_regression)


def compare(first: Report, second: Report) -> Comparison:
    """What changed from the first report to the second."""
    rows = tuple(_row_changes(first, second))
    shared = {(row.matrix, row.case) for row in first.rows} & {(row.matrix, row.case) for row in second.rows}
    changed = {(row.matrix, row.case) for row in rows}
    return Comparison(
        first=f"{first.title}, {first.made_at}",
        second=f"{second.title}, {second.made_at}",
        versions=_changes(_versions(first), _versions(second)),
        ids=_changes(_ids(first), _ids(second)),
        inputs=_changes(first.inputs, second.inputs),
        rows=rows,
        n_same=len(shared - changed),
    )


def _changes(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(
        Change(what=name, was=first.get(name, ""), now=second.get(name, ""))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    )


def _versions(report: Report) -> dict[str, str]:
    machine = report.machine
    made = {"platform": machine.platform, "processor": machine.processor, "python": machine.python}
    made |= {f"reference: {name}": version for name, version in machine.versions.items()}
    for side in report.sides:
        made |= {f"{side.label}: {name}": version for name, version in side.versions.items()}
    return made


def _ids(report: Report) -> dict[str, str]:
    return {name: value for side in report.sides for name, value in _side_ids(side)}


def _side_ids(side: Side) -> Iterator[tuple[str, str]]:
    yield f"{side.label}: server", side.subject
    yield f"{side.label}: commit", side.commit + (" with uncommitted changes" if side.is_dirty else "")
    for artefact in side.artefacts:
        yield f"{side.label}: sha256 of {artefact.path}", artefact.sha256


def _row_changes(first: Report, second: Report) -> Iterator[RowChange]:
    was = {(row.matrix, row.case): row for row in first.rows}
    now = {(row.matrix, row.case): row for row in second.rows}
    for key in dict.fromkeys([*was, *now]):
        old, new = _ending(was.get(key)), _ending(now.get(key))
        if old != new:
            yield RowChange(matrix=key[0], case=key[1], was=old, now=new, why=_why(now.get(key)) or _why(was.get(key)))


def _ending(row: Row | None) -> str:
    return row.after.ending.value if row and row.after else ""


def _why(row: Row | None) -> str:
    return row.after.detail if row and row.after else ""
