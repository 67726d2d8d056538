"""A text that a person gave: a file that cannot be read, or is no UTF-8, is that person's to mend."""

from __future__ import annotations

from pathlib import Path

from .errors import usage


def read_text_file(file: Path) -> str:
    """The text as it stands, line ends too. Errors: usage, naming the file."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise usage(f"{file} cannot be read: {error}") from error
    return text_of(content, source=str(file))


def text_of(content: bytes, *, source: str) -> str:
    """Errors: usage, naming the source."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise usage(f"{source} cannot be read: {error}") from error
