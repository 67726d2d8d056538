"""What a run has done, on disk before it goes on, and the lock that keeps a second run out.

<common git dir>/recut/lock; current (the id of the run in progress); plan.json (the last plan);
runs/<id>/plan.json and journal.jsonl, one entry a line, each synced to disk before the next step.
It knows nothing of git: what a step does and whether it may be repeated is replay.py's and publish.py's.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import msgspec

from command.errors import BugError, Outcome, StateError, refused

from . import plan as planned
from .forecast import Decision
from .plan import Plan
from .stack import Move, PatchClass, Sha, Value


class Entry(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the journal: `step` is about to happen (done False) or has happened."""

    step: str
    done: bool = True
    at: str = ""
    """UTC, to the second."""
    branch: str = ""
    patch: Sha | None = None
    new: Sha | None = None
    upstream: Sha | None = None
    reason: str = ""
    paths: tuple[str, ...] = ()


Observer = Callable[[Literal["before", "after"], Entry], None]
"""Told of every entry just before and just after it is on disk; the cli shows progress with it."""


def ignore_entries(_moment: Literal["before", "after"], _entry: Entry) -> None:
    """The observer that does nothing."""


class Run:
    """A run: its plan and its journal."""

    def __init__(self, folder: Path, plan: Plan, entries: list[Entry], observer: Observer) -> None:
        self.folder = folder
        self.plan = plan
        self.entries = entries
        self._observer = observer

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def worktree(self) -> Path:
        return self.folder / "worktree"

    @property
    def ref_prefix(self) -> str:
        """Refs that keep the run's commits alive."""
        return f"refs/recut/{self.id}/"

    def write(self, step: str, *, done: bool = True, **fields: object) -> None:
        """Put one entry on disk, then go on."""
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        entry = msgspec.convert({"step": step, "done": done, "at": now, **fields}, Entry)
        self._observer("before", entry)
        with (self.folder / "journal.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)
        self._observer("after", entry)

    def has_done(self, step: str, **fields: object) -> bool:
        return any(
            entry.step == step and entry.done and all(getattr(entry, k) == v for k, v in fields.items())
            for entry in self.entries
        )

    def has_begun(self, step: str) -> bool:
        return any(entry.step == step for entry in self.entries)

    def last(self, step: str, *, branch: str = "") -> Entry | None:
        """The newest entry of that step (for that branch)."""
        return next((e for e in reversed(self.entries) if e.step == step and e.branch == branch), None)

    def decisions(self) -> dict[Sha, Decision]:
        """Patch -> what a person decided about it; the last word counts."""
        return {
            entry.patch: Decision(resolved=entry.new, upstream=entry.upstream, reason=entry.reason)
            for entry in self.entries
            if entry.step in ("resolved", "dropped") and entry.patch
        }

    def doubts(self) -> list[Doubt]:
        """Resolved conflicts, with what rerere filled in, and patches of which upstream has a part."""
        doubts = [
            Doubt(branch=branch.branch, commit=patch.new, why=patch.fate.value)
            for branch in self.plan.branches
            for patch in branch.patches
            if patch.fate is PatchClass.PARTLY_SUPERSEDED and patch.new
        ]
        from_memory = {entry.patch for entry in self.entries if entry.step == "stopped" and "rerere" in entry.reason}
        for entry in self.entries:
            if entry.step == "resolved" and entry.new:
                why = "resolved with rerere's memory" if entry.patch in from_memory else "resolved by hand"
                doubts.append(Doubt(branch=entry.branch, commit=entry.new, why=why))
        return doubts

    @property
    def outcome(self) -> str:
        """published, aborted, or "" while it goes on."""
        end = self.last("end")
        return end.reason if end else ""

    @property
    def phase(self) -> str:
        """In one word, where the run is."""
        if self.outcome:
            return self.outcome
        if self.has_done("move"):
            return "moved"
        if self.has_begun("abort"):
            return "aborting"
        if self.has_begun("pin"):
            return "publishing"
        if self.has_done("ready"):
            return "ready"
        return "stopped" if self.stopped else "replaying"

    @property
    def stopped(self) -> Entry | None:
        """The stop that waits for a decision."""
        stops = [entry for entry in self.entries if entry.step == "stopped"]
        return stops[-1] if stops and stops[-1].patch not in self.decisions() else None


class Doubt(Value, frozen=True, kw_only=True):
    """A commit that went in, but not as it was reviewed: worth proving before anything is published."""

    branch: str
    commit: Sha
    why: str


class Runs:
    """The runs of one repository."""

    def __init__(self, common_dir: Path, observer: Observer = ignore_entries) -> None:
        self.folder = common_dir / "recut"
        self._observer = observer

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second run out. The kernel frees it with the process, however that ends. Errors: locked."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise StateError(
                    Outcome.LOCKED,
                    f"another tools/recut is at work here ({file.read().strip() or 'just started'})",
                    next_steps=["wait until it has ended, then run the same command again"],
                ) from error
            file.truncate(0)
            file.write(f"process {os.getpid()}\n")
            file.flush()
            yield

    def current(self) -> Run | None:
        """The run in progress."""
        try:
            name = (self.folder / "current").read_text().strip()
        except FileNotFoundError:
            return None
        run = self._read(self.folder / "runs" / name)
        if run is None:
            raise BugError(f"{self.folder / 'current'} names the run {name!r}, which has no plan")
        return run

    def require_current(self) -> Run:
        """Errors: refused where no run is in progress."""
        run = self.current()
        if run is None:
            raise refused("no run is in progress", "tools/recut status", "tools/recut plan --onto REF")
        return run

    def require_none(self) -> None:
        """Errors: run-in-progress."""
        run = self.current()
        if run is not None:
            raise StateError(
                Outcome.RUN_IN_PROGRESS,
                f"run {run.id} ({run.plan.kind}) is in progress: {run.phase}",
                next_steps=["tools/recut status", *ways_on(run)],
            )

    def all(self) -> list[Run]:
        """Every run, oldest first."""
        folders = sorted((self.folder / "runs").glob("*-*")) if (self.folder / "runs").exists() else []
        return [run for folder in folders if (run := self._read(folder)) is not None]

    def begin(self, plan: Plan) -> Run:
        """A new run, in progress from the moment `current` names it."""
        taken = [int(path.name.partition("-")[0]) for path in (self.folder / "runs").glob("[0-9]*-*")]
        folder = self.folder / "runs" / f"{max(taken, default=0) + 1:04d}-{plan.kind}-{plan.id[:7]}"
        folder.mkdir(parents=True)
        write_file(folder / "plan.json", planned.encode(plan))
        write_file(self.folder / "current", folder.name.encode())
        run = Run(folder, plan, [], self._observer)
        run.write("begin", reason=plan.id)
        return run

    def end(self, run: Run, outcome: str) -> None:
        """The run is over. Safe to repeat."""
        if not run.outcome:
            run.write("end", reason=outcome)
        (self.folder / "current").unlink(missing_ok=True)

    def save_plan(self, plan: Plan) -> None:
        write_file(self.folder / "plan.json", planned.encode(plan))

    def last_plan(self) -> Plan | None:
        try:
            text = (self.folder / "plan.json").read_bytes()
        except FileNotFoundError:
            return None
        return planned.decode_own(text, source=str(self.folder / "plan.json"))

    def _read(self, folder: Path) -> Run | None:
        try:
            plan = planned.decode_own((folder / "plan.json").read_bytes(), source=str(folder / "plan.json"))
        except FileNotFoundError:
            return None
        return Run(folder, plan, read_entries(folder / "journal.jsonl"), self._observer)


def read_entries(path: Path) -> list[Entry]:
    """The journal's entries. A last line that a crash cut short did not happen, and is cut off."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return [msgspec.json.decode(line, type=Entry) for line in whole.splitlines()]


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: a crash leaves the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def ways_on(run: Run) -> list[str]:
    """The commands that are open to a person now."""
    if run.phase == "ready":
        return ["tools/recut publish", "tools/recut abort"]
    if run.phase == "stopped":
        return [
            f"cd {run.worktree}   # resolve, then: git add FILE...",
            "tools/recut continue",
            "tools/recut skip --superseded-by SHA",
            'tools/recut skip --withdraw "REASON"',
            "tools/recut abort",
        ]
    if run.phase == "moved":
        return ["tools/recut continue", "tools/recut undo"]
    return ["tools/recut continue", "tools/recut abort"]


def final_moves(run: Run) -> list[Move]:
    """The run's moves with the tips that it really made."""
    moves = []
    for branch in run.plan.branches:
        done = run.last("branch", branch=branch.branch)
        new = done.new if done else branch.new
        stays = done is not None and done.reason == "stays"
        if new is None:
            raise BugError(f"{branch.branch} has no new tip, yet the run is to be published")
        if branch.moves and not stays and new != branch.old:
            moves.append(Move(branch=branch.branch, old=branch.old, new=new))
    return moves
