"""The cells of a Markdown table: any text to one cell and back without loss, ids, and lists of ids.

What would end a cell, a row or a comment is written as a backslash escape or a character reference, which a
forge shows as the character itself. It knows nothing of what the cells are for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from command.errors import ToolError, refused

from .stack import ArchiveTag, Sha, is_sha
from .table import Row

# A cell's own markup: `code` for ids, <br> between several values. Everything else is text.
_CODE = re.compile(r"`([^`]*)`")
_BREAK = "<br>"
_SPECIAL = re.compile(r"[\\|<&]|[\x00-\x1f\x7f\x85\u2028\u2029]")
_ESCAPED = re.compile(r"\\(.)|&#(\d+);")


def text_cell(text: str) -> str:
    """`text` as a cell; cell_text reads it back the same."""
    written = _SPECIAL.sub(_escape, text)
    lead = len(written) - len(written.lstrip(" "))
    written = "&#32;" * lead + written[lead:]
    tail = len(written) - len(written.rstrip(" "))
    return written[: len(written) - tail] + "&#32;" * tail


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return f"\\{character}" if character in "\\|<&" else f"&#{ord(character)};"


def cell_text(cell: str) -> str:
    return _ESCAPED.sub(lambda found: found[1] if found[1] is not None else chr(int(found[2])), cell)


def code_cell(text: str) -> str:
    """An id or a tag name, shown in a fixed-width face; empty stays empty."""
    return f"`{text}`" if text else ""


def cell_code(cell: str) -> str:
    """The id in a cell, with or without its backticks."""
    found = _CODE.fullmatch(cell)
    return found[1].strip() if found else cell_text(cell)


def list_cell(texts: Sequence[str]) -> str:
    return _BREAK.join(code_cell(text) for text in texts)


def cell_list(cell: str) -> tuple[str, ...]:
    return tuple(cell_code(part.strip()) for part in cell.split(_BREAK)) if cell else ()


E = TypeVar("E", bound=Enum)


class Cells(NamedTuple):
    """A row of a table, read cell by cell; a cell that cannot be read is refused with its line and column."""

    row: Row
    columns: Sequence[str]
    source: str

    def text(self, at: int) -> str:
        return cell_text(self.row.cells[at])

    def code(self, at: int) -> str:
        return cell_code(self.row.cells[at])

    def several(self, at: int) -> tuple[str, ...]:
        return cell_list(self.row.cells[at])

    def sha(self, at: int) -> Sha:
        found = self.code(at)
        if not is_sha(found):
            raise self._wrong(at, found, "a full commit id of 40 hex digits")
        return Sha(found)

    def sha_or_none(self, at: int) -> Sha | None:
        return self.sha(at) if self.row.cells[at] else None

    def archive_tag(self, name_at: int, commit_at: int) -> ArchiveTag:
        name, commit = self.code(name_at), self.sha(commit_at)
        label = re.fullmatch(r"archive/(.+)-([0-9a-f]{7})", name)
        if not label or label[2] != commit[:7]:
            raise self._wrong(name_at, name, f"archive/<label>-{commit[:7]}, after the commit beside it")
        return ArchiveTag(label=label[1], commit=commit)

    def one_of(self, kinds: type[E], at: int) -> E:
        found = self.text(at)
        for kind in kinds:
            if kind.value == found:
                return kind
        raise self._wrong(at, found, "one of " + ", ".join(str(kind.value) for kind in kinds))

    def _wrong(self, at: int, found: str, expected: str) -> ToolError:
        return refused(f"{self.source} line {self.row.line}: {self.columns[at]!r} is {found!r}, expected {expected}")
