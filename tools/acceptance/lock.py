"""One run at a time uses a machine: an advisory lock on a file that everyone on it shares.

Two runs at once would time each other, and a machine that swaps shows nothing of a server.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command.errors import Outcome, StateError

LOCK_FILE = Path("/tmp/mlxcel-evidence.lock")
POLL_S = 0.2


@contextmanager
def machine_lock(path: Path, *, wait_s: float) -> Iterator[None]:
    """Hold the lock; it is free again when the block is left or the process ends, however it ends.

    Errors: locked, naming the holder, where it is not free within `wait_s`.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _wait(handle, path, wait_s)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    is_told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        if time.monotonic() >= deadline:
            raise StateError(
                Outcome.LOCKED,
                f"another run (process {holder}) uses this machine: {path} was not free within {wait_s:g} s",
                next_steps=["wait for it, or give --lock-wait SECONDS"],
            )
        if not is_told:
            sys.stderr.write(f"waiting for the run of process {holder} (at most {wait_s:g} s)\n")
            is_told = True
        time.sleep(POLL_S)
