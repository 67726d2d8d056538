"""Where a pulled model came from: a small JSON file in its folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mlxcel.regular_file import read_regular

NAME = "mlxcel-source.json"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a folder, pinned: `commit` is what `revision` meant when it was pulled.

    `files` maps each file to its size in bytes and its digest, `sha256:...` or `git-sha1:...`, as the hub gave them.
    """

    repo: str
    revision: str
    commit: str
    endpoint: str
    files: dict[str, tuple[int, str]]

    @property
    def n_bytes(self) -> int:
        return sum(size for size, _ in self.files.values())

    def __str__(self) -> str:
        return f"{self.repo}@{self.commit[:12]}"


def read_record(folder: Path) -> Record | None:
    """None where there is no record, or none that can be read."""
    try:
        return msgspec.json.decode(read_regular(folder / NAME), type=Record)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None


def write_record(folder: Path, record: Record) -> None:
    (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
