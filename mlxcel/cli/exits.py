"""The one table that turns errors into exit codes, and how the program leaves."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from mlxcel.errors import (
    BugError,
    ConfigError,
    FileExistsAlready,
    InputError,
    MlxcelError,
    ModelError,
    StateError,
)

# Source: sysexits(3). launchd restarts a job on any of them; 0 means that it was stopped on purpose.
EXIT_CODES: tuple[tuple[type[MlxcelError], int], ...] = (
    (ConfigError, 78),
    (ModelError, 78),
    (FileExistsAlready, 73),
    (InputError, 64),
    (StateError, 75),
    (BugError, 70),
)


def exit_code_of(error: MlxcelError) -> int:
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def guarded(call: Callable[[], None]) -> None:
    """Run `call`; an error of ours becomes one line on stderr and its exit code."""
    try:
        call()
    except MlxcelError as error:
        sys.stderr.write(f"mlxcel: {error.message}\n")
        leave(exit_code_of(error))


def leave_quietly_on_signals() -> None:
    """Until the server handles them itself, a signal to stop ends a start that has served nothing yet, with 0."""
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: leave(0))


def leave(code: int) -> NoReturn:
    """End the process without running native destructors.

    A model call that hangs would block an ordinary exit, and MLX's stream threads can abort one; both would
    spoil the exit code that launchd acts on.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
