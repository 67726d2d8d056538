"""Asking launchd, in its modern verbs: bootstrap, bootout, enable, kickstart, print.

`bootout` returns while the process still drains, and a `bootstrap` in that window fails with 5: whoever boots a job
out waits here until launchd has forgotten it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mlxcel.errors import StateError, reason_of
from mlxcel.service.layout import Layout

PROGRAM = "launchctl"
GONE_S = 75.0
"""How long a job may take to be gone: the plist's ExitTimeOut and some."""
POLL_S = 0.2
NO_SUCH_JOB = 113
ON_ITS_WAY_OUT = (3, 36, NO_SUCH_JOB)
"""What bootout says of a job that is gone meanwhile, or that still ends: whoever calls it waits for that anyway."""
MEANINGS = {
    5: "launchd refused: the job is loaded already, its last process is not gone yet, or nobody is logged in here",
    37: "launchd is still busy with this job; try again in a moment",
    NO_SUCH_JOB: "launchd knows no such job; it is not started",
    119: "the job is disabled; 'launchctl enable' lets it start",
    125: "this domain cannot be reached from here: an agent needs a login on the screen",
}
_ENDS = {
    0: "stopped on purpose",
    70: "a fault of ours",
    75: "try again",
    78: "a setting or model cannot be used",
}
_LINE = re.compile(r"^\s*(state|pid|last exit code|runs) = (\d+|.+?)(?::.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class JobState:
    """What launchd says of a job. `pid` is None while none runs; `last_exit` before the first end."""

    state: str
    pid: int | None
    last_exit: int | None


def is_here() -> bool:
    """Whether this machine has a launchd to ask."""
    return shutil.which(PROGRAM) is not None


def bootstrap(layout: Layout) -> list[str]:
    return [PROGRAM, "bootstrap", layout.domain, str(layout.plist)]


def bootout(layout: Layout) -> list[str]:
    return [PROGRAM, "bootout", layout.target]


def enable(layout: Layout) -> list[str]:
    return [PROGRAM, "enable", layout.target]


def kickstart(layout: Layout) -> list[str]:
    return [PROGRAM, "kickstart", layout.target]


def print_job(layout: Layout) -> list[str]:
    return [PROGRAM, "print", layout.target]


def run(command: Sequence[str]) -> None:
    """Errors: StateError with launchctl's words and what its exit code means."""
    done = _call(command)
    if done.returncode and not (command[1] == "bootout" and done.returncode in ON_ITS_WAY_OUT):
        raise _refusal(command, done)


def job_state(layout: Layout) -> JobState | None:
    """None: launchd does not know the job. Errors: StateError without a launchctl, or when it does not tell."""
    done = _call(print_job(layout))
    if done.returncode == NO_SUCH_JOB:
        return None
    if done.returncode:
        raise _refusal(print_job(layout), done)
    # The first of each: what follows is about the job's endpoints.
    told: dict[str, str] = {}
    for key, value in _LINE.findall(done.stdout):
        told.setdefault(key, value)
    return JobState(told.get("state", "unknown"), _number(told.get("pid")), _number(told.get("last exit code")))


def meaning_of_end(code: int) -> str:
    """A run's exit code and what the server means by it."""
    return f"{code} ({_ENDS[code]})" if code in _ENDS else str(code)


def wait_until_gone(layout: Layout, timeout_s: float = GONE_S) -> None:
    """Errors: StateError when launchd still knows the job after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while job_state(layout) is not None:
        if time.monotonic() > deadline_s:
            raise StateError(
                f"{layout.target} is still there after {timeout_s:g} s; nothing else was changed. "
                f"See 'launchctl print {layout.target}'",
                code="launchd_refused",
            )
        time.sleep(POLL_S)


def _refusal(command: Sequence[str], done: subprocess.CompletedProcess[str]) -> StateError:
    told = reason_of(done.stderr or done.stdout or "no word from it")
    meaning = MEANINGS.get(done.returncode, "see 'launchctl error " + str(done.returncode) + "'")
    return StateError(
        f"'{shlex.join(command)}' failed ({done.returncode}: {told}). {meaning}. What was done before it stays; "
        "mend that and run the same command again",
        code="launchd_refused",
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        raise StateError(
            f"there is no {command[0]} here: services are launchd's, on macOS. Nothing was changed; "
            "'mlxcel serve' runs the server without it",
            code="no_launchd",
        ) from None
    except OSError as error:
        raise StateError(
            f"{command[0]} cannot be run: {reason_of(error)}; nothing was asked of launchd. "
            f"'which {command[0]}' says which one is meant",
            code="no_launchd",
        ) from error
