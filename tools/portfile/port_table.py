"""Both subports on every platform that matters, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .evaluation import Evaluation, evaluate
from .lint import lint

SUBPORTS = ("mlxcel", "mlxcel-devel")
PLATFORMS = tuple((os_major, arch) for os_major in (22, 23, 25) for arch in ("arm64", "x86_64"))
COLUMNS = ("subport", "darwin", "arch", "version", "known_fail", "job", "run deps", "phases", "lint")


class Case(NamedTuple):
    subport: str
    os_major: int
    arch: str
    told: Evaluation
    faults: list[str]

    @property
    def cells(self) -> tuple[str, ...]:
        told = self.told
        return (
            self.subport,
            str(self.os_major),
            self.arch,
            told.text("version"),
            told.text("known_fail"),
            told.text("startupitem.uniquename"),
            str(len(told.ports("depends_run"))),
            " ".join(told.phases),
            "; ".join(self.faults) or "clean",
        )


def evaluate_all(portfile: Path) -> list[Case]:
    """Errors: those of `evaluate`."""
    cases = []
    for subport in SUBPORTS:
        for os_major, arch in PLATFORMS:
            told = evaluate(portfile, subport=subport, os_major=os_major, arch=arch)
            cases.append(Case(subport, os_major, arch, told, lint(portfile, told)))
    return cases
