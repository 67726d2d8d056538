"""Runs the command line in a forked process, which a test may have killed (SIGKILL) at a chosen moment.

A moment is just after an entry of the journal is on disk, or just after a step is done and before the journal
says so, counted from 0. The fork saves
the imports, which the crash loops could not afford; the process, the kill and the repositories are real, and
nothing of the tool is replaced: the real command line is composed with an observer of its journal.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchstack.cli import run
from patchstack.journal import Entry
from tests.git.forge import Forge


@dataclass(frozen=True)
class Ended:
    """How the process ended: `code` is its exit code, or minus the signal.

    moments: what it came past, in order: "b" before a step was noted as done, "a" after an entry was on disk.
    """

    code: int
    out: str
    moments: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


def run_forked(folder: Path, environ: Mapping[str, str], *args: str, kill: int = -1) -> Ended:
    """Run `recut *args` in `folder` and wait for its end. `kill`: at that moment; -1: never."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as moments:
        process = os.fork()
        if process == 0:
            _child(folder, environ, args, kill, out.fileno(), moments.fileno())
        _, status = os.waitpid(process, 0)
        out.seek(0)
        moments.seek(0)
        return Ended(
            code=os.waitstatus_to_exitcode(status),
            out=out.read().decode(errors="replace"),
            moments=moments.read().decode(),
        )


def _child(folder: Path, environ: Mapping[str, str], args: tuple[str, ...], kill: int, out: int, moments: int) -> None:
    code = 70
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        count = 0

        def observe(moment: str, entry: Entry) -> None:
            nonlocal count
            if moment == "before" and not entry.done:
                return  # the same as after the entry before it: nothing happens between two steps
            if count == kill:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            os.write(moments, moment[:1].encode())

        code = run(args, environ=dict(environ), folder=folder, observer=observe)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def must(forge: Forge, *args: str, code: int = 0) -> Ended:
    """Run the command in the forge's clone to its end and assert its exit code."""
    ended = run_forked(forge.work.folder, forge.environ, *args)
    assert ended.code == code, f"recut {' '.join(args)} ended with {ended.code}, not {code}:\n{ended.out}"
    return ended
