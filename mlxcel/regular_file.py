"""A file that can be read at once and has an end, unlike a pipe that waits for its writer, or a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read, and never wait for one. What is checked is what was opened.

    Errors: OSError, for what is no regular file too.
    """
    opened = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - it is the caller's
    if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        return opened
    opened.close()
    raise OSError("it is no regular file")


def read_regular(path: Path) -> str:
    """A text file. Errors: OSError; UnicodeDecodeError."""
    with open_regular(path) as opened:
        return opened.read().decode("utf-8")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
