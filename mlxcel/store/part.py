"""A file that is being made: what of it is on the disk, and whether that is what was promised."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mlxcel.errors import StateError
from mlxcel.store.hub import HubFile

_PIECE_BYTES = 2**22


class Part:
    """`folder / file.name`, open to grow. What was there before is read again, for nobody vouches for it."""

    def __init__(self, folder: Path, file: HubFile) -> None:
        self._promised = file
        self._file = (folder / file.name).open("a+b")
        self._start_over()
        self._file.seek(0)
        while piece := self._file.read(_PIECE_BYTES):
            self._count(piece)
        if self.n_bytes > file.n_bytes:
            self.discard()

    def close(self) -> None:
        self._file.close()

    @property
    def is_complete(self) -> bool:
        return self.n_bytes == self._promised.n_bytes

    def append(self, piece: bytes) -> None:
        """Errors: StateError when that is more than was promised, and then nothing is left of it; OSError."""
        if self.n_bytes + len(piece) > self._promised.n_bytes:
            self.discard()
            raise self._damaged("is longer than the hub says")
        self._file.write(piece)
        self._count(piece)

    def check(self) -> None:
        """Errors: StateError when a complete file is not the promised one, and then nothing is left of it."""
        if self._digest.hexdigest() != self._promised.digest.partition(":")[2]:
            self.discard()
            raise self._damaged("is not what the hub names by its digest")

    def discard(self) -> None:
        self._file.truncate(0)
        self._start_over()

    def _count(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.n_bytes += len(piece)

    def _start_over(self) -> None:
        self.n_bytes = 0
        if self._promised.digest.startswith("sha256:"):
            self._digest = hashlib.sha256()
        else:  # Source: gitformat-pack(5), the name of a blob
            self._digest = hashlib.sha1(b"blob %d\0" % self._promised.n_bytes, usedforsecurity=False)

    def _damaged(self, reason: str) -> StateError:
        return StateError(
            f"{self._promised.name} {reason}; it was thrown away and the model was not made. Run the same command "
            "again to fetch that file anew",
            code="damaged",
        )
