"""What a matrix is: named cases, each with the server that it needs and the check that it makes.

A check returns what it compared, or raises one of `verdict`. Whatever it needs of the reference it asks for
before it sends a request, so that nothing waits for the reference while a server is being timed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..client import Client
from ..reference import Reference
from ..server import Launch
from ..settings import Settings


@dataclass(frozen=True)
class Inputs:
    """What cases are made from. scratch: a folder for copies of the snapshot. flags: those the side has."""

    reference: Reference
    settings: Settings
    scratch: Path
    flags: frozenset[str]

    @property
    def base(self) -> Launch:
        return Launch(self.settings.model)

    def with_flags(self, *flags: tuple[str, int | None]) -> Launch:
        return Launch(self.settings.model, flags)


@dataclass(frozen=True)
class Bench:
    """What a check works with."""

    client: Client
    inputs: Inputs

    @property
    def reference(self) -> Reference:
        return self.inputs.reference

    @property
    def settings(self) -> Settings:
        return self.inputs.settings


Check = Callable[[Bench], Awaitable[str]]


class Case(NamedTuple):
    """One row. why_not: why it cannot be tried, known before any server is started."""

    name: str
    launch: Launch
    check: Check
    why_not: str = ""


@dataclass(frozen=True)
class Matrix:
    """`keeps_state`: a row that fails may leave the server changed, so the next one gets a fresh server."""

    name: str
    shows: str
    needs: str
    cases: Callable[[Inputs], Iterable[Case]]
    keeps_state: bool = False
