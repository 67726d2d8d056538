"""A folder that appears whole or not at all: written beside its place, synced, then renamed.

What a killed process left is swept away by the next one that writes to the same place; a lock on the folder
itself, which ends with its owner, tells the living from the dead.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlxcel.errors import FileExistsAlready, StateError


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; when the block ends it becomes `target`, when it raises it is removed.

    Errors: FileExistsAlready if there is something at `target`, before or after the block; StateError while
    another process writes to the same place; OSError from the disk.
    """
    _refuse_existing(target)
    parent = target.parent
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    draft = parent / f"{_prefix(target)}{secrets.token_hex(4)}"
    draft.mkdir()
    handle = os.open(draft, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not draft.exists():  # swept away between mkdir and flock
            raise _busy(target)
        yield draft
        for path in draft.iterdir():
            _sync(path)
        os.fsync(handle)
        _refuse_existing(target)
        try:
            draft.rename(target)
        except OSError as error:
            _refuse_existing(target, error)
            raise
        _sync(parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # already gone under this name if all went well
        os.close(handle)


def _prefix(target: Path) -> str:
    return f".{target.name}.importing-"


def _refuse_existing(target: Path, cause: OSError | None = None) -> None:
    if os.path.lexists(target):
        raise FileExistsAlready(
            f"{target} exists and was left as it is. Name another folder, or remove this one first."
        ) from cause


def _sweep(target: Path) -> None:
    """Remove what dead processes left. Errors: StateError if a living one is at work."""
    for leftover in target.parent.glob(f"{_glob_escaped(_prefix(target))}*"):
        try:
            handle = os.open(leftover, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its owner has just finished
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(leftover, ignore_errors=True)
        except BlockingIOError as error:
            raise _busy(target) from error
        finally:
            os.close(handle)


def _busy(target: Path) -> StateError:
    return StateError(f"Another import is writing {target} now; nothing was changed. Wait for it to end.")


def _glob_escaped(text: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
