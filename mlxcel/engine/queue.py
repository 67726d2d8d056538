"""PrefillQueue: who waits, and who is next. It knows no limit: the pool's slots are the limit.

Three lanes, the higher first, first come first served inside each. A lane that was passed over
PASSES_UNTIL_DUE times goes next whatever waits above it, so that none starves; time is counted in sequences taken,
not in seconds.
"""

from __future__ import annotations

from collections import OrderedDict

from mlxcel.core import Priority, Sequence

PASSES_UNTIL_DUE = 8


class PrefillQueue:
    """Sequences waiting for their prefill; removal by id is O(1)."""

    def __init__(self) -> None:
        self._lanes: dict[Priority, OrderedDict[str, Sequence]] = {lane: OrderedDict() for lane in Priority}
        self._n_passed = dict.fromkeys(Priority, 0)

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def append(self, sequence: Sequence) -> None:
        self._lane_of(sequence)[sequence.id] = sequence

    def put_back(self, sequence: Sequence) -> None:
        """To the front of its lane: it was running before."""
        lane = self._lane_of(sequence)
        lane[sequence.id] = sequence
        lane.move_to_end(sequence.id, last=False)

    @property
    def first(self) -> Sequence | None:
        """The sequence that `take` takes."""
        lane = self._next_lane
        return None if lane is None else next(iter(self._lanes[lane].values()))

    def take(self) -> Sequence:
        """Remove the first.

        Errors: IndexError if nobody waits.
        """
        taken = self._next_lane
        if taken is None:
            raise IndexError("PrefillQueue: nobody waits")
        lanes = list(Priority)
        for lane in lanes[lanes.index(taken) + 1 :]:
            self._n_passed[lane] += bool(self._lanes[lane])
        self._n_passed[taken] = 0
        return self._lanes[taken].popitem(last=False)[1]

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out from wherever it is."""
        lane = self._lane_of(sequence)
        del lane[sequence.id]
        if not lane:
            self._n_passed[sequence.request.priority] = 0

    def _lane_of(self, sequence: Sequence) -> OrderedDict[str, Sequence]:
        return self._lanes[sequence.request.priority]

    @property
    def _next_lane(self) -> Priority | None:
        waiting = [lane for lane in Priority if self._lanes[lane]]
        due = [lane for lane in waiting if self._n_passed[lane] >= PASSES_UNTIL_DUE]
        if due:
            return max(due, key=self._n_passed.__getitem__)
        return waiting[0] if waiting else None
