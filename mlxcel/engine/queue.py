"""PrefillQueue: who waits, first come first served. It knows no limit: the pool's slots are the limit."""

from __future__ import annotations

from collections import OrderedDict

from mlxcel.core import Sequence


class PrefillQueue:
    """Sequences waiting for their prefill, oldest first; removal by id is O(1)."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, sequence: Sequence) -> None:
        self._waiting[sequence.id] = sequence

    def put_back(self, sequence: Sequence) -> None:
        """To the front: it was running before."""
        self._waiting[sequence.id] = sequence
        self._waiting.move_to_end(sequence.id, last=False)

    @property
    def first(self) -> Sequence | None:
        return next(iter(self._waiting.values()), None)

    def remove(self, sequence_id: str) -> None:
        del self._waiting[sequence_id]
