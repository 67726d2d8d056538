"""A folder that appears whole or not at all, and disappears the same way.

It is written as a draft beside its place, synced, then renamed; it is removed by a rename to a draft first. What a
killed process left is swept away by the next one that writes to the same place, or taken up by one that can go on.
A lock on the folder itself, which ends with its owner, tells the living from the dead: whoever writes a draft or
removes a folder holds it alone, whoever uses a folder shares it. It knows nothing of what a folder is for.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlxcel.errors import FileExistsAlready, InputError, MlxcelError, ModelError, StateError

_DRAFT = re.compile(r"\.(.+)\.draft-[0-9a-f]+")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def new_folder(target: Path, *, resume_key: str | None = None) -> Iterator[Path]:
    """Yield a folder to fill; when the block ends it becomes `target`, when it raises it is removed.

    With a `resume_key` (hexadecimal) it is kept when the block raises anything but a ModelError or the process dies,
    and the next call with the same key gets it as it was left.

    Errors: FileExistsAlready if there is something at `target`, before or after the block; StateError while
    another process writes to the same place; OSError from the disk.
    """
    _refuse_existing(target)
    parent = target.parent
    parent.mkdir(parents=True, exist_ok=True)
    draft = _draft_path(target, resume_key or secrets.token_hex(4))
    _sweep(target, spared=draft)
    draft.mkdir(exist_ok=resume_key is not None)
    is_kept = resume_key is not None
    handle = os.open(draft, os.O_RDONLY)
    try:
        _lock_alone(handle, _busy(target))
        if not _is_at(handle, draft):  # swept away between mkdir and flock
            raise _busy(target)
        yield draft
        for path in draft.iterdir():
            _sync(path)
        os.fsync(handle)
        is_kept = False
        _refuse_existing(target)
        try:
            draft.rename(target)
        except OSError as error:
            _refuse_existing(target, error)
            raise
        _sync(parent)
    except ModelError:
        is_kept = False
        raise
    finally:
        if not is_kept:
            shutil.rmtree(draft, ignore_errors=True)  # already gone under this name if all went well
        os.close(handle)


@contextmanager
def folder_in_use(folder: Path) -> Iterator[None]:
    """Keep others from removing `folder` with `remove_folder` until the block ends.

    Errors: StateError when another process was removing it.
    """
    gone = StateError(f"{folder} was being removed; nothing was started. Name another folder")
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError as error:
        raise gone from error
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)  # who holds it alone has just written it, looks at it, or removes it
        if not _is_at(handle, folder):
            raise gone
        yield
    finally:
        os.close(handle)


def is_in_use(folder: Path) -> bool:
    """Whether a process holds `folder` now, to use or to write it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without such locks
    finally:
        os.close(handle)
    return False


def remove_folder(target: Path) -> None:
    """Remove `target` and every draft for it that is left over; of a symbolic link, the link alone.

    Errors: StateError while a process uses or writes it, and then it is as it was; OSError from the disk.
    """
    _sweep(target)
    if target.is_symlink():
        target.unlink()
        return
    if not target.exists():
        return
    handle = os.open(target, os.O_RDONLY)
    try:
        in_use = StateError(f"{target} is in use by a running mlxcel; it was left as it is. Stop that one first")
        _lock_alone(handle, in_use)
        draft = _draft_path(target, secrets.token_hex(4))
        target.rename(draft)
        shutil.rmtree(draft)
    finally:
        os.close(handle)


def drafts_in(parent: Path) -> dict[Path, Path]:
    """The target of each draft in `parent` -> the draft."""
    return {parent / name: path for path in sorted(parent.iterdir()) if (name := _target_name(path))}


def refuse_lack_of_room(folder: Path, needed_bytes: int) -> None:
    """Errors: StateError when the disk under `folder` has less left than that."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        raise StateError(
            f"The model needs {needed_bytes / 1e9:.2f} GB and the disk has {free_bytes / 1e9:.2f} GB left; it was not "
            "written. Make room and try again."
        )


def refusal_of(error: OSError, target: Path) -> MlxcelError:
    """What an error of the disk means for whoever asked for `target`."""
    if error.errno in _NO_ROOM:
        return StateError(f"The disk is full ({error.strerror}); {target} was not made. Make room and try again.")
    reason = error.strerror or error
    return InputError(f"{error.filename or target}: {reason}. {target} was not made. Check the paths.")


def _draft_path(target: Path, key: str) -> Path:
    return target.with_name(f".{target.name}.draft-{key}")


def _refuse_existing(target: Path, cause: OSError | None = None) -> None:
    if os.path.lexists(target):
        raise FileExistsAlready(
            f"{target} exists and was left as it is. Name another folder, or remove this one first."
        ) from cause


def _sweep(target: Path, *, spared: Path | None = None) -> None:
    """Remove what dead processes left. Errors: StateError if a living one is at work."""
    if not target.parent.is_dir():
        return
    leftovers = [path for path in target.parent.iterdir() if _target_name(path) == target.name and path != spared]
    for leftover in leftovers:
        try:
            handle = os.open(leftover, os.O_RDONLY)
        except FileNotFoundError:
            continue  # its owner has just finished
        try:
            _lock_alone(handle, _busy(target))
            shutil.rmtree(leftover, ignore_errors=True)
        finally:
            os.close(handle)


def _target_name(path: Path) -> str | None:
    match = _DRAFT.fullmatch(path.name)
    return match[1] if match else None


def _busy(target: Path) -> StateError:
    return StateError(f"Another process is writing {target} now; nothing was changed. Wait for it to end.")


def _lock_alone(handle: int, refusal: StateError) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise refusal from error


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
