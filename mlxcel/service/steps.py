"""What `mlxcel service` does, as values: a command is a list of steps, printed by --dry-run, else taken in order."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxcel.errors import InputError
from mlxcel.service import launchctl, templates
from mlxcel.service.layout import Layout


@dataclass(frozen=True)
class Write:
    """Write a file of ours, whole or not at all."""

    path: Path
    text: str
    mode: int

    def __str__(self) -> str:
        return f"write {shlex.quote(str(self.path))} (mode {self.mode:o})"

    def take(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.new")
        draft.write_text(self.text, encoding="utf-8")
        draft.chmod(self.mode)
        draft.replace(self.path)


@dataclass(frozen=True)
class MakeFolder:
    path: Path

    def __str__(self) -> str:
        return f"mkdir -p {shlex.quote(str(self.path))}"

    def take(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class Remove:
    """Remove a file that may be gone already, and its folder once that is empty."""

    path: Path
    and_folder: bool = False

    @property
    def is_due(self) -> bool:
        return os.path.lexists(self.path) or (self.and_folder and self.path.parent.is_dir())

    def __str__(self) -> str:
        return f"rm {shlex.quote(str(self.path))}" + (" and its folder, if that is empty" if self.and_folder else "")

    def take(self) -> None:
        self.path.unlink(missing_ok=True)
        folder = self.path.parent
        if self.and_folder and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@dataclass(frozen=True)
class Call:
    command: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.command)

    def take(self) -> None:
        launchctl.run(self.command)


@dataclass(frozen=True)
class AwaitGone:
    layout: Layout

    def __str__(self) -> str:
        return f"until {shlex.join(launchctl.print_job(self.layout))} fails, at most {launchctl.GONE_S:g} s: wait"

    def take(self) -> None:
        launchctl.wait_until_gone(self.layout)


Step = Write | MakeFolder | Remove | Call | AwaitGone


def start(layout: Layout, job: launchctl.JobState | None) -> list[Step]:
    """`enable` first: an earlier `launchctl disable` would make bootstrap fail."""
    if job is None:
        return [Call(tuple(launchctl.enable(layout))), Call(tuple(launchctl.bootstrap(layout)))]
    return [] if job.pid else [Call(tuple(launchctl.kickstart(layout)))]


def stop(layout: Layout, job: launchctl.JobState | None) -> list[Step]:
    return [] if job is None else [Call(tuple(launchctl.bootout(layout))), AwaitGone(layout)]


def restart(layout: Layout, job: launchctl.JobState | None) -> list[Step]:
    """A stop and a start: `kickstart -k` would keep the plist that launchd read last (docs/adr/0019)."""
    return [*stop(layout, job), *start(layout, None)]


def install(layout: Layout, job: launchctl.JobState | None) -> list[Step]:
    """Write the agent's files and start it; a running one is stopped first, so that launchd reads the new ones."""
    return [
        *stop(layout, job),
        MakeFolder(layout.logs),
        Write(layout.wrapper, templates.wrapper(layout), 0o755),
        Write(layout.plist, templates.plist(layout), 0o644),
        *start(layout, None),
    ]


def uninstall(layout: Layout, job: launchctl.JobState | None) -> list[Step]:
    """Stop the agent and remove all that `install` and the server made; settings and models are the user's."""
    removals = [
        Remove(layout.plist),
        Remove(layout.pid_file),
        Remove(layout.wrapper, and_folder=True),
        *map(Remove, sorted(layout.logs.glob("mlxcel.log*"))),
        Remove(layout.start_log, and_folder=True),
    ]
    return [*stop(layout, job), *(removal for removal in removals if removal.is_due)]


def take(steps: Sequence[Step]) -> None:
    """Errors: StateError from launchd; InputError for a file that cannot be written, naming it."""
    for step in steps:
        try:
            step.take()
        except OSError as error:
            raise InputError(
                f"cannot {step}: {error}. The steps before it were taken; mend that and run again"
            ) from error
