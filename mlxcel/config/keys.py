"""The keys that clients must send: from a file that only its owner may read, or from the environment.

Never a setting: `config show` prints settings, and a flag is there for every user of the machine to read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mlxcel.errors import ConfigError
from mlxcel.regular_file import open_regular

KEYS_VARIABLE = "MLXCEL_API_KEYS"
LARGEST_FILE_BYTES = 2**20


def read_keys(file: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Every key of both places; none where neither is set, and then no key is asked for.

    In a file they stand one a line, with blank lines and lines that begin with # between them; in the environment,
    apart by commas.

    Errors: ConfigError for a file that others may read, a key that no header could carry, or a place without one.
    """
    keys: list[str] = []
    if file is not None:
        lines = [line.strip() for line in _read_private(file).splitlines()]
        keys += _checked([line for line in lines if line and not line.startswith("#")], f"the file {file}")
    if (listed := environ.get(KEYS_VARIABLE)) is not None:
        keys += _checked([key for item in listed.split(",") if (key := item.strip())], KEYS_VARIABLE)
    return tuple(dict.fromkeys(keys))


def _read_private(file: str) -> str:
    """Its text. The file is checked through the descriptor that it is read from, so none can take its place."""
    try:
        opened = open_regular(Path(file).expanduser())
    except OSError as error:
        raise _refusal(file, f"cannot be opened: {error.strerror or error}", "Name a file that can") from error
    with opened:
        status = os.fstat(opened.fileno())
        if status.st_uid != os.geteuid():
            raise _refusal(file, "belongs to another user", "Make it your own")
        if status.st_mode & 0o077:
            raise _refusal(file, f"may be read by others (mode {status.st_mode & 0o777:o})", f"Run 'chmod 600 {file}'")
        content = opened.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise _refusal(file, f"is larger than {LARGEST_FILE_BYTES} bytes", "Name a file of keys")
    # What is not ASCII is refused key by key, without showing it.
    return content.decode("latin-1")


def _checked(keys: list[str], place: str) -> list[str]:
    """Errors never show a key."""
    if not keys:
        raise ConfigError(
            f"{place} holds no key; nothing was started. Put one there, or set none at all to serve without keys",
            param="api_keys_file",
        )
    for number, key in enumerate(keys, 1):
        if not all("!" <= char <= "~" for char in key):
            raise ConfigError(
                f"key {number} of {place} has a character that a header cannot carry; nothing was started. Make it of "
                "visible ASCII, without spaces",
                param="api_keys_file",
            )
    return keys


def _refusal(file: str, reason: str, next_step: str) -> ConfigError:
    return ConfigError(f"the keys file {file} {reason}; nothing was started. {next_step}", param="api_keys_file")
