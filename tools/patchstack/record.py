"""UPSTREAM.md: the record's tables as text and back. `parse(render(x)) == x`.

The tables stand between marker lines; everything else in the file is the maintainer's and is kept byte for
byte. It knows nothing of git: what the tables should say is bookkeeping.py's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from command.errors import ToolError, refused

from .cells import Cells, code_cell, list_cell, text_cell
from .page import TEMPLATE
from .stack import (
    CarriedRow,
    CommitKind,
    DropRow,
    EvidenceRow,
    Pin,
    Record,
    RecutRow,
    TopicRow,
    TopicState,
)
from .table import parse_table, render_table, replace_table

FILE = "UPSTREAM.md"

COLUMNS: dict[str, tuple[str, ...]] = {
    "base": ("base", "describe", "date"),
    "pins": ("package", "requirement"),
    "topics": ("topic", "state", "issue", "pull request", "old tip", "new tip", "archive tag", "note"),
    "carried": ("commit", "kind", "topic", "subject"),
    "re-cuts": ("date", "old base", "new base", "old local", "archive tags"),
    "archive": ("archive tag", "commit"),
    "superseded": ("patch", "topic", "subject", "upstream commit", "pull request", "reason"),
    "evidence": ("artefact", "commit", "sha256"),
}

_RECORD_ERRORS = (
    "correct that line by hand, or take the last good page: git checkout HEAD -- {source}",
    "then run: tools/recut record --check",
)


def render(record: Record, text: str = "") -> str:
    """`text` with its tables replaced by the record's; the standard page where `text` is empty.

    Errors: refused where a marker line is missing or doubled.
    """
    tables = {name: render_table(name, COLUMNS[name], rows) for name, rows in _rows(record).items()}
    if not text.strip():
        return re.sub(r"^\{([a-z-]+)\}$", lambda found: tables[found[1]], TEMPLATE, flags=re.MULTILINE)
    for name, table in tables.items():
        text = replace_table(text, name, table, source=FILE)
    return text


def _rows(record: Record) -> dict[str, list[tuple[str, ...]]]:
    return {
        "base": [(code_cell(record.base), text_cell(record.describe), text_cell(record.base_date))],
        "pins": [(text_cell(pin.name), text_cell(pin.requirement)) for pin in record.pins],
        "topics": [
            (
                text_cell(row.topic),
                row.state.value,
                text_cell(row.issue),
                text_cell(row.pull_request),
                code_cell(row.old or ""),
                code_cell(row.new or ""),
                code_cell(row.archive_tag),
                text_cell(row.note),
            )
            for row in record.topics
        ],
        "carried": [
            (code_cell(row.commit), row.kind.value, text_cell(row.topic), text_cell(row.subject))
            for row in record.carried
        ],
        "re-cuts": [
            (
                text_cell(row.date),
                code_cell(row.base_old),
                code_cell(row.base_new),
                code_cell(row.local_old),
                list_cell(row.archive_tags),
            )
            for row in record.recuts
        ],
        "archive": [(code_cell(tag.name), code_cell(tag.commit)) for tag in record.archive],
        "superseded": [
            (
                code_cell(row.patch),
                text_cell(row.topic),
                text_cell(row.subject),
                code_cell(row.upstream or ""),
                text_cell(row.pull_request),
                text_cell(row.reason),
            )
            for row in record.drops
        ],
        "evidence": [(text_cell(row.what), code_cell(row.commit), code_cell(row.sha256)) for row in record.evidence],
    }


def parse(text: str, *, source: str = FILE) -> Record:
    """The record that the page's tables say.

    Errors: refused, naming the line, what is wrong there and what to do.
    """
    page = _Page(text, source)
    base = page.read("base", lambda cells: (cells.sha(0), cells.text(1), cells.text(2)))
    if len(base) != 1:
        raise refused(f"{source}: the table 'base' has {len(base)} rows where one base is expected", *page.next_steps)
    return Record(
        base=base[0][0],
        describe=base[0][1],
        base_date=base[0][2],
        pins=page.read("pins", lambda cells: Pin(name=cells.text(0), requirement=cells.text(1))),
        topics=page.read(
            "topics",
            lambda cells: TopicRow(
                topic=cells.text(0),
                state=cells.one_of(TopicState, 1),
                issue=cells.text(2),
                pull_request=cells.text(3),
                old=cells.sha_or_none(4),
                new=cells.sha_or_none(5),
                archive_tag=cells.code(6),
                note=cells.text(7),
            ),
        ),
        carried=page.read(
            "carried",
            lambda cells: CarriedRow(
                commit=cells.sha(0),
                kind=cells.one_of(CommitKind, 1),
                topic=cells.text(2),
                subject=cells.text(3),
            ),
        ),
        recuts=page.read(
            "re-cuts",
            lambda cells: RecutRow(
                date=cells.text(0),
                base_old=cells.sha(1),
                base_new=cells.sha(2),
                local_old=cells.sha(3),
                archive_tags=cells.several(4),
            ),
        ),
        archive=page.read("archive", lambda cells: cells.archive_tag(0, 1)),
        drops=page.read(
            "superseded",
            lambda cells: DropRow(
                patch=cells.sha(0),
                topic=cells.text(1),
                subject=cells.text(2),
                upstream=cells.sha_or_none(3),
                pull_request=cells.text(4),
                reason=cells.text(5),
            ),
        ),
        evidence=page.read(
            "evidence",
            lambda cells: EvidenceRow(what=cells.text(0), commit=cells.sha(1), sha256=cells.code(2)),
        ),
    )


T = TypeVar("T")


class _Page(NamedTuple):
    """A page being read; every refusal also says how to get the last good one."""

    text: str
    source: str

    @property
    def next_steps(self) -> list[str]:
        return [step.format(source=self.source) for step in _RECORD_ERRORS]

    def read(self, table: str, read_row: Callable[[Cells], T]) -> tuple[T, ...]:
        try:
            rows = parse_table(self.text, table, COLUMNS[table], source=self.source)
            return tuple(read_row(Cells(row, COLUMNS[table], self.source)) for row in rows)
        except ToolError as error:
            raise refused(error.reasons, *error.next_steps, *self.next_steps) from error
