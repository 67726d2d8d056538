"""The one table that turns errors into exit codes, and how the program leaves."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TextIO

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


FOUND_PROBLEMS = 1
"""A command did what it was asked to, and what it looked at is not well."""
READER_LEFT = 141
"""As a shell reports a program that SIGPIPE ended."""
OUTPUT_FAILED = 74
"""EX_IOERR of sysexits(3)."""


def guarded(call: Callable[[], None]) -> NoReturn:
    """Run `call` and leave with its exit code; an error becomes a line on stderr, several at once one each."""
    try:
        call()
    except MlxcelError as error:
        for line in error.message.splitlines():
            say(line)
        leave(exit_code_of(error))
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except BrokenPipeError:
        leave(READER_LEFT)
    except OSError as error:
        say(f"reading or writing failed: {error}; what was written is not whole. Make room, or write elsewhere")
        leave(OUTPUT_FAILED)
    except Exception as error:  # noqa: BLE001 - the edge of the program
        bug = BugError(f"a fault of ours ({type(error).__name__}). Report it with the traceback")
        if _says_json:
            say(bug.message, error)
        else:
            traceback.print_exc()
            say(bug.message)
        leave(exit_code_of(bug))
    leave(0)


LONGEST_WAIT_S = 1.0
"""How long a reader of stderr may take before a line for it is left out."""


_says_json = False


def say_json() -> None:
    """From now on each line on stderr is an object as those of a JSON log are."""
    global _says_json
    _says_json = True


def say(text: str, error: Exception | None = None) -> None:
    """A line for the person on stderr; one that cannot be written, or that nobody reads, must not hold up a server."""
    line = _json_line(text, error) if _says_json else f"mlxcel: {text}"
    with contextlib.suppress(OSError, ValueError):
        if _is_stuck(sys.stderr):
            return
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _json_line(text: str, error: Exception | None) -> str:
    import logging

    from mlxcel.cli.logs import JsonFormatter

    trace = (type(error), error, error.__traceback__) if error else None
    return JsonFormatter().format(logging.LogRecord("mlxcel", logging.ERROR, __file__, 0, text, None, trace))


def _is_stuck(stream: TextIO) -> bool:
    try:
        return not select.select([], [stream], [], LONGEST_WAIT_S)[1]
    except (OSError, ValueError):
        return False


def open_standard_files() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed: else the next file opened would take its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def leave(code: int) -> NoReturn:
    """End the process without running native destructors.

    A model call that hangs would block an ordinary exit, and MLX's stream threads can abort one; both would
    spoil the exit code that launchd acts on.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or OUTPUT_FAILED if stream is sys.stdout else code
    os._exit(code)
