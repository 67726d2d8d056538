"""How one check of an audit ended."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from .stack import Value


class Status(Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


class Finding(Value, frozen=True, kw_only=True):
    """`details`: what is wrong if it failed, why if it was not checked, else what a reader should know."""

    status: Status
    details: tuple[str, ...] = ()
    reading: str = ""


def found(problems: Iterable[str], *, notes: Iterable[str] = (), reading: str = "") -> Finding:
    """Failed with the problems, or passed with the notes."""
    wrong = tuple(problems)
    if wrong:
        return Finding(status=Status.FAILED, details=wrong, reading=reading)
    return Finding(status=Status.PASSED, details=tuple(notes), reading=reading)


def not_checked(reason: str) -> Finding:
    return Finding(status=Status.NOT_CHECKED, details=(reason,))


NO_RECORD = "there is no record that can be read"
