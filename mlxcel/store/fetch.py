"""One file from the hub to its end, over as many connections as that takes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from mlxcel.store.hub import BrokenTransfer, Hub, HubFile, Snapshot
from mlxcel.store.part import Part


def complete(part: Part, hub: Hub, snapshot: Snapshot, file: HubFile, *, n_retries: int) -> Iterator[int]:
    """Fetch what `part` lacks of `file`; yields the size of each piece that is in place.

    A connection that breaks is taken up again at once if bytes came over it, else `n_retries` times in a row after
    1, 2, 4 ... seconds.

    Errors: those of `Hub.open` and of `Part`.
    """
    n_failures = 0
    while not part.is_complete:
        held_bytes = part.n_bytes
        try:
            with hub.open(snapshot, file, start=held_bytes) as pieces:
                for piece in pieces:
                    part.append(piece)
                    yield len(piece)
            if not part.is_complete:
                raise BrokenTransfer(f"{hub.endpoint} sent {part.n_bytes} of {file.n_bytes} bytes of {file.name}")
        except BrokenTransfer:
            n_failures = 0 if part.n_bytes > held_bytes else n_failures + 1
            if n_failures > n_retries:
                raise
            if n_failures:
                time.sleep(2.0 ** (n_failures - 1))
    part.check()
