"""The report of a piece of evidence: rows with a before and an after, and everything needed to make it again.

Shared by `tools/evidence run` (servers) and `tools/recut prove` (a fix taken back): it knows neither servers
nor git. `parse(render(report)) == report`; a change of meaning changes SCHEMA.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from command.errors import InputError, usage

SCHEMA = "evidence.report/1"


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the values in a report."""


class Ending(Enum):
    """How one row ended on one side."""

    PASSED = "passed"
    FAILED = "failed"
    BROKEN = "not a test failure"
    """The test could not run, so it says nothing."""
    SKIPPED = "skipped"
    DOES_NOT_APPLY = "does not apply"
    """The server has no flag for it, or the model nothing that it could be shown with."""
    NOT_PROVEN = "not proven here"
    """This machine cannot show it."""


class Difference(Value, frozen=True, kw_only=True):
    """The first place where a text is not the expected one.

    token: its index in the expected tokens, from 0; None where the expected text ended before.
    context: the text that both have in common just before.
    """

    token: int | None
    character: int
    context: str
    expected: str
    got: str


class Result(Value, frozen=True, kw_only=True):
    """One row on one side. `detail`: what was compared, or why it did not pass."""

    ending: Ending
    detail: str = ""
    difference: Difference | None = None
    duration_s: float = 0.0


class Row(Value, frozen=True, kw_only=True):
    """One case of one matrix; a side that was not asked for is None."""

    matrix: str
    case: str
    before: Result | None = None
    after: Result | None = None


class Artefact(Value, frozen=True, kw_only=True):
    """A file that was used: a binary, a script, a weight file."""

    path: str
    sha256: str


class Side(Value, frozen=True, kw_only=True):
    """What stood in one column.

    label: the column's heading. subject: a command, a URL, a commit with its fix taken back.
    commit: the full id of the checkout that it was built from; "" where it is not known. notes: what a reader
    must know of the side as a whole.
    """

    label: str
    subject: str
    commit: str = ""
    is_dirty: bool = False
    versions: dict[str, str] = {}
    artefacts: tuple[Artefact, ...] = ()
    notes: tuple[str, ...] = ()


class Machine(Value, frozen=True, kw_only=True):
    """Where it was made, and with which versions of the reference."""

    platform: str
    processor: str
    python: str
    versions: dict[str, str] = {}


class Conclusion(Value, frozen=True, kw_only=True):
    """The one sentence that a reviewer reads, and whether it is good news."""

    holds: bool
    text: str


class Report(Value, frozen=True, kw_only=True):
    """inputs: whatever the rows depend on, by name. made_at: UTC, ISO 8601. shows: matrix -> what it shows."""

    schema: str = SCHEMA
    title: str
    made_by: str
    made_at: str
    conclusion: Conclusion
    machine: Machine
    inputs: dict[str, str]
    before: Side | None = None
    after: Side
    shows: dict[str, str]
    rows: tuple[Row, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.before, self.after) if self.before else (self.after,)

    def result(self, row: Row, side: Side) -> Result | None:
        return row.before if side is self.before else row.after

    def rows_of(self, matrix: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.matrix == matrix)


def render(report: Report) -> str:
    """The report as JSON, one value a line."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def parse(text: str, *, source: str) -> Report:
    """Read a report back. Errors: usage where `text` is none, or of another schema."""
    try:
        schema = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("schema")
        if schema is None or msgspec.json.decode(schema) != SCHEMA:
            raise _not_a_report(source, f"its schema is {bytes(schema).decode() if schema else 'missing'}")
        return msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as error:
        raise _not_a_report(source, str(error)) from error


def _not_a_report(source: str, why: str) -> InputError:
    return usage(f"{source} is no report of schema {SCHEMA!r}: {why}", "tools/evidence run ... -o DIR makes one")
