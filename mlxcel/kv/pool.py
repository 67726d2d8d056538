"""The books of KV memory: slots and bytes, without a tensor in sight.

A sequence takes a slot when it is accepted and books bytes when it leaves the queue; both come back when it
ends. What it holds never exceeds what it booked. Prefixes that are kept for later take bytes and no slot. Unbounded is
None, never a large number.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlxcel.errors import BugError, ServerBusy, all_places_taken


def pool_capacity(max_batch_size: int, max_queue_depth: int | None) -> int | None:
    """How many sequences the pool holds: those that run and those that wait. None: no bound."""
    return None if max_queue_depth is None else max_batch_size + max_queue_depth


@dataclass
class _Slot:
    booked_bytes: int = 0
    held_bytes: int = 0


class CachePool:
    """Slots and bytes of KV memory, by sequence id. Owner: the engine thread.

    `capacity` counts sequences and `budget_bytes` bounds the bytes booked by sequences and kept for prefixes together;
    None means no bound.
    """

    def __init__(self, *, capacity: int | None, budget_bytes: int | None) -> None:
        if capacity is not None and capacity < 1:
            raise BugError(f"CachePool: a capacity of {capacity} holds no sequence")
        self.capacity = capacity
        self.budget_bytes = budget_bytes
        self.booked_bytes = 0
        self.held_bytes = 0
        self.kept_bytes = 0
        self._slots: dict[str, _Slot] = {}
        self._kept: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, sequence_id: str) -> bool:
        return sequence_id in self._slots

    @property
    def is_full(self) -> bool:
        return not self.has_room_for(1)

    def has_room_for(self, n_sequences: int) -> bool:
        """Whether so many more slots are free."""
        return self.capacity is None or len(self._slots) + n_sequences <= self.capacity

    def reserve(self, *sequence_ids: str) -> None:
        """Take a slot for each, or none.

        Errors: ServerBusy when there are not as many.
        """
        if self.is_full:
            raise all_places_taken(len(self._slots))
        if not self.has_room_for(len(sequence_ids)):
            raise ServerBusy(
                f"of {self.capacity} places (running and waiting) {len(self._slots)} are taken and "
                f"{len(sequence_ids)} more were asked for; nothing was started. "
                "Try again shortly, or start the server with a larger --max-queue-depth"
            )
        taken = [one for one in sequence_ids if one in self._slots]
        if taken or len(set(sequence_ids)) < len(sequence_ids):
            raise BugError(f"CachePool: {', '.join(taken or sequence_ids)} already has a slot")
        for sequence_id in sequence_ids:
            self._slots[sequence_id] = _Slot()

    def fits_ever(self, n_bytes: int) -> bool:
        """Whether a booking of this size fits an empty pool."""
        return self.budget_bytes is None or n_bytes <= self.budget_bytes

    def book(self, sequence_id: str, n_bytes: int) -> bool:
        """Raise a sequence's booking to `n_bytes`; False, with the books unchanged, if it does not fit now."""
        slot = self._slots[sequence_id]
        growth = self.growth_of(sequence_id, n_bytes)
        if growth and self.shortage_of(growth) > 0:
            return False
        slot.booked_bytes += growth
        self.booked_bytes += growth
        return True

    def growth_of(self, sequence_id: str, n_bytes: int) -> int:
        """How many bytes a booking of `n_bytes` would add to what the sequence booked."""
        return max(0, n_bytes - self._slots[sequence_id].booked_bytes)

    def shortage_of(self, n_bytes: int) -> int:
        """How many bytes are missing for `n_bytes` more; 0 where they fit."""
        if self.budget_bytes is None:
            return 0
        return max(0, self.booked_bytes + self.kept_bytes + n_bytes - self.budget_bytes)

    def hold(self, sequence_id: str, n_bytes: int) -> None:
        """Record that a sequence's keys and values now take `n_bytes`."""
        slot = self._slots[sequence_id]
        if n_bytes > slot.booked_bytes:
            raise BugError(f"CachePool: {sequence_id} holds {n_bytes} bytes but booked {slot.booked_bytes}")
        self.held_bytes += n_bytes - slot.held_bytes
        slot.held_bytes = n_bytes

    def unbook(self, sequence_id: str) -> None:
        """Give the bytes back and keep the slot: the sequence waits again."""
        slot = self._slots[sequence_id]
        self.booked_bytes -= slot.booked_bytes
        self.held_bytes -= slot.held_bytes
        self._slots[sequence_id] = _Slot()

    def release(self, sequence_id: str) -> None:
        """Give the slot and its bytes back."""
        self.unbook(sequence_id)
        del self._slots[sequence_id]

    def keep(self, prefix_id: str, n_bytes: int) -> None:
        """Record the bytes of a prefix.

        Errors: BugError where they do not fit: somebody has to make room first.
        """
        if self.shortage_of(n_bytes) > 0 or prefix_id in self._kept:
            raise BugError(f"CachePool: no room to keep {n_bytes} bytes of {prefix_id}")
        self._kept[prefix_id] = n_bytes
        self.kept_bytes += n_bytes

    def drop(self, prefix_id: str) -> None:
        """Give a prefix's bytes back."""
        self.kept_bytes -= self._kept.pop(prefix_id)

    def check(self) -> None:
        """Prove the books: sums agree, held <= booked, booked + kept <= budget, slots <= capacity.

        Errors: BugError naming the sum that does not hold.
        """
        booked = sum(slot.booked_bytes for slot in self._slots.values())
        held = sum(slot.held_bytes for slot in self._slots.values())
        kept = sum(self._kept.values())
        rules = {
            f"booked sum {booked} = {self.booked_bytes}": booked == self.booked_bytes,
            f"held sum {held} = {self.held_bytes}": held == self.held_bytes,
            "every slot holds no more than it booked": all(
                slot.held_bytes <= slot.booked_bytes for slot in self._slots.values()
            ),
            f"kept sum {kept} = {self.kept_bytes}": kept == self.kept_bytes,
            f"booked {booked} and kept {kept} within the budget {self.budget_bytes}": (
                self.budget_bytes is None or booked + kept <= self.budget_bytes
            ),
            f"{len(self._slots)} slots within the capacity {self.capacity}": (
                self.capacity is None or len(self._slots) <= self.capacity
            ),
            "an empty pool holds nothing": bool(self._slots) or (booked == 0 and held == 0),
        }
        broken = [rule for rule, is_true in rules.items() if not is_true]
        if broken:
            raise BugError("CachePool: the books are wrong: " + "; ".join(broken))
