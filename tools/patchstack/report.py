"""What commands that run something answer as JSON."""

from __future__ import annotations

from .journal import Doubt, Entry, Run, final_moves
from .stack import Move, Sha, Value

RUN_SCHEMA = "recut.run/1"
LOG_SCHEMA = "recut.log/1"
ERROR_SCHEMA = "recut.error/1"


class PinnedTag(Value, frozen=True, kw_only=True):
    name: str
    commit: Sha


class RunReport(Value, frozen=True, kw_only=True):
    """A run. phase: replaying, stopped, ready, publishing, moved, published or aborted; `plan` is its id;
    `moves` is empty until the run is ready."""

    id: str
    kind: str
    phase: str
    plan: str
    release_tag: str
    tags: tuple[PinnedTag, ...]
    moves: tuple[Move, ...]
    doubts: tuple[Doubt, ...]
    """Commits to prove before they are published."""
    entries: tuple[Entry, ...]


class Log(Value, frozen=True, kw_only=True):
    """Every run of this clone, oldest first."""

    runs: tuple[RunReport, ...]


def report_run(run: Run) -> RunReport:
    return RunReport(
        id=run.id,
        kind=run.plan.kind,
        phase=run.phase,
        plan=run.plan.id,
        release_tag=run.plan.release_tag,
        tags=tuple(PinnedTag(name=tag.name, commit=tag.commit) for tag in run.plan.archive),
        moves=tuple(final_moves(run)) if run.has_done("ready") else (),
        doubts=tuple(run.doubts()),
        entries=tuple(run.entries),
    )
