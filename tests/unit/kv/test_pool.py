from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mlxcel.errors import BugError, ServerBusy
from mlxcel.kv.pool import CachePool, pool_capacity


def test_one_running_and_eight_waiting_hold_exactly_nine() -> None:
    pool = CachePool(capacity=pool_capacity(1, 8), budget_bytes=100)
    for index in range(9):
        pool.reserve(f"s{index}")
        assert pool.book(f"s{index}", index)
    assert pool.is_full
    with pytest.raises(ServerBusy) as refusal:
        pool.reserve("s9")
    assert "9" in refusal.value.message
    assert len(pool) == 9 and "s9" not in pool and pool.booked_bytes == 36
    pool.check()
    pool.release("s4")
    pool.reserve("s9")
    assert len(pool) == 9


def test_a_group_takes_a_slot_for_each_or_none() -> None:
    pool = CachePool(capacity=4, budget_bytes=None)
    pool.reserve("a", "b")
    with pytest.raises(ServerBusy, match="2 are taken and 3 more"):
        pool.reserve("c", "d", "e")
    with pytest.raises(BugError):
        pool.reserve("c", "b")
    with pytest.raises(BugError):
        pool.reserve("c", "c")
    assert len(pool) == 2 and "c" not in pool
    assert pool.has_room_for(2) and not pool.has_room_for(3)
    pool.reserve("c", "d")
    assert pool.is_full
    pool.check()


def test_an_unbounded_queue_makes_an_unbounded_pool() -> None:
    assert pool_capacity(1, None) is None
    pool = CachePool(capacity=None, budget_bytes=None)
    for index in range(10_000):
        pool.reserve(f"s{index}")
        assert pool.book(f"s{index}", 10**12)
    assert len(pool) == 10_000 and not pool.is_full
    pool.check()


def test_no_waiting_room_still_holds_what_runs() -> None:
    assert [pool_capacity(rows, 0) for rows in (1, 32)] == [1, 32]


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_pool_that_holds_nothing_is_a_bug(capacity: int) -> None:
    with pytest.raises(BugError):
        CachePool(capacity=capacity, budget_bytes=None)


def test_a_booking_that_does_not_fit_changes_nothing_and_fits_once_others_leave() -> None:
    pool = CachePool(capacity=None, budget_bytes=10)
    pool.reserve("a")
    pool.reserve("b")
    assert pool.book("a", 6) and not pool.book("b", 5)
    assert (pool.booked_bytes, pool.held_bytes) == (6, 0)
    assert pool.book("b", 4) and not pool.book("a", 7) and pool.book("a", 3)
    assert pool.booked_bytes == 10
    assert pool.fits_ever(10) and not pool.fits_ever(11)
    pool.hold("a", 6)
    pool.unbook("a")
    assert (pool.booked_bytes, pool.held_bytes, "a" in pool) == (4, 0, True)
    assert pool.book("b", 10)
    pool.check()


def test_holding_more_than_was_booked_is_a_bug_that_changes_nothing() -> None:
    pool = CachePool(capacity=None, budget_bytes=None)
    pool.reserve("a")
    pool.book("a", 5)
    pool.hold("a", 5)
    with pytest.raises(BugError, match="holds 6 bytes but booked 5"):
        pool.hold("a", 6)
    assert pool.held_bytes == 5
    pool.check()


def test_a_second_slot_for_one_sequence_is_a_bug() -> None:
    pool = CachePool(capacity=None, budget_bytes=None)
    pool.reserve("a")
    pool.book("a", 5)
    with pytest.raises(BugError):
        pool.reserve("a")
    assert pool.booked_bytes == 5
    pool.check()


@pytest.mark.parametrize(
    ("attribute", "value", "rule"),
    [
        ("booked_bytes", 9, "booked sum"),
        ("held_bytes", 9, "held sum"),
        ("budget_bytes", 4, "within the budget"),
        ("capacity", 1, "within the capacity"),
    ],
)
def test_check_names_the_book_that_is_broken(attribute: str, value: int, rule: str) -> None:
    pool = CachePool(capacity=2, budget_bytes=5)
    for name in ("a", "b"):
        pool.reserve(name)
    pool.book("a", 5)
    pool.hold("a", 3)
    pool.check()
    setattr(pool, attribute, value)
    with pytest.raises(BugError, match=rule):
        pool.check()


class PoolBooks(RuleBasedStateMachine):
    """The pool beside the plainest model of it: a dict of (booked, held)."""

    @initialize(capacity=st.none() | st.integers(1, 5), budget=st.none() | st.integers(0, 30))
    def open(self, capacity: int | None, budget: int | None) -> None:
        self.pool = CachePool(capacity=capacity, budget_bytes=budget)
        self.slots: dict[str, tuple[int, int]] = {}
        self.n_made = 0

    def any_slot(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.slots)))

    @rule()
    def reserve(self) -> None:
        self.n_made += 1
        if self.pool.capacity is not None and len(self.slots) == self.pool.capacity:
            with pytest.raises(ServerBusy):
                self.pool.reserve(f"s{self.n_made}")
        else:
            self.pool.reserve(f"s{self.n_made}")
            self.slots[f"s{self.n_made}"] = (0, 0)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), n_bytes=st.integers(0, 20))
    def book(self, data: st.DataObject, n_bytes: int) -> None:
        name = self.any_slot(data)
        booked, held = self.slots[name]
        total = sum(other for other, _ in self.slots.values()) + max(0, n_bytes - booked)
        fits = self.pool.budget_bytes is None or total <= self.pool.budget_bytes
        assert self.pool.book(name, n_bytes) is fits
        if fits:
            self.slots[name] = (max(booked, n_bytes), held)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), n_bytes=st.integers(0, 20))
    def hold(self, data: st.DataObject, n_bytes: int) -> None:
        name = self.any_slot(data)
        booked, _ = self.slots[name]
        if n_bytes > booked:
            with pytest.raises(BugError):
                self.pool.hold(name, n_bytes)
        else:
            self.pool.hold(name, n_bytes)
            self.slots[name] = (booked, n_bytes)

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def unbook(self, data: st.DataObject) -> None:
        name = self.any_slot(data)
        self.pool.unbook(name)
        self.slots[name] = (0, 0)

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = self.any_slot(data)
        self.pool.release(name)
        del self.slots[name]

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        assert len(self.pool) == len(self.slots) and all(name in self.pool for name in self.slots)
        assert self.pool.booked_bytes == sum(booked for booked, _ in self.slots.values())
        assert self.pool.held_bytes == sum(held for _, held in self.slots.values())


TestPoolBooks = PoolBooks.TestCase
TestPoolBooks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
