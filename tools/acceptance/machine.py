"""Where a run took place, and what can't be shown there: named rows, never left out."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping

from .reference import SnapshotFacts
from .report import Artefact, Ending, Machine, Result, Row, Side

MATRIX = "this machine"
SHOWS = "what only a Mac with the port can show"
PORT_PREFIX = "/opt/local/"


def read_machine(versions: Mapping[str, str]) -> Machine:
    """This machine. versions: of whatever the rows were compared with, by name."""
    return Machine(
        platform=platform.platform(),
        processor=platform.processor() or platform.machine(),
        python=platform.python_version(),
        versions=dict(versions),
    )


def machine_rows(facts: SnapshotFacts, side: Side) -> tuple[Row, ...]:
    """One row each for Metal, the port's binary and launchd, proven or not."""
    metal = (
        Result(ending=Ending.PASSED, detail=f"mlx computes on {facts.device} with Metal")
        if facts.has_metal
        else _not_proven(f"there is no Metal here; mlx computes on {facts.device}")
    )
    return (
        Row(matrix=MATRIX, case="Metal kernels", after=metal),
        Row(matrix=MATRIX, case="a binary built by the port", after=_port(side.artefacts)),
        Row(matrix=MATRIX, case="started by launchctl", after=_not_proven("launchd did not start this server")),
    )


def _port(artefacts: Iterable[Artefact]) -> Result:
    built = [artefact.path for artefact in artefacts if artefact.path.startswith(PORT_PREFIX)]
    if built:
        return Result(ending=Ending.PASSED, detail=built[0])
    return _not_proven(f"no file of the server lies under {PORT_PREFIX}")


def _not_proven(why: str) -> Result:
    return Result(ending=Ending.NOT_PROVEN, detail=why)
