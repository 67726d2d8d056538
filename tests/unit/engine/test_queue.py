from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core import Priority, Sequence
from mlxcel.engine.queue import PASSES_UNTIL_DUE, PrefillQueue
from tests.support.turns import request

HIGH, NORMAL, LOW = Priority
MOST_PASSES = PASSES_UNTIL_DUE + 1
"""The other of the two lower lanes may be due just before."""


def waiting(name: str, priority: Priority) -> Sequence:
    return Sequence(request(name, [1], 1, priority=priority))


def queue_of(*names: str) -> PrefillQueue:
    queue = PrefillQueue()
    for name in names:
        queue.append(waiting(name, {"h": HIGH, "n": NORMAL, "l": LOW}[name[0]]))
    return queue


def taken(queue: PrefillQueue) -> list[str]:
    names = []
    while queue:
        first = queue.first
        assert queue.take() is first
        assert first is not None
        names.append(first.id)
    assert queue.first is None
    return names


def test_higher_lanes_go_first_and_a_lane_goes_in_order() -> None:
    assert taken(queue_of("l1", "n1", "h1", "n2", "l2", "h2")) == ["h1", "h2", "n1", "n2", "l1", "l2"]


def test_one_that_was_put_back_is_the_first_of_its_lane_and_no_more() -> None:
    queue = queue_of("n1", "n2", "h1", "l1")
    queue.put_back(waiting("n0", NORMAL))
    assert taken(queue) == ["h1", "n0", "n1", "n2", "l1"]


def test_one_that_is_removed_leaves_the_others_in_order() -> None:
    queue = PrefillQueue()
    all_of_them = [waiting(f"{lane.value}{index}", lane) for lane in (LOW, HIGH) for index in range(3)]
    for one in all_of_them:
        queue.append(one)
    queue.remove(all_of_them[4])
    queue.remove(all_of_them[0])
    assert len(queue) == 4 and taken(queue) == ["high0", "high2", "low1", "low2"]


def test_a_low_one_waits_for_a_bounded_number_of_higher_ones_that_never_cease() -> None:
    queue = queue_of("l1", "l2", "n1")
    names = []
    for index in range(40):
        queue.append(waiting(f"h{index}", HIGH))
        names.append(queue.take().id)
    assert names.index("n1") == PASSES_UNTIL_DUE
    assert names.index("l1") == PASSES_UNTIL_DUE + 1
    assert names.index("l2") - names.index("l1") == PASSES_UNTIL_DUE + 1
    assert [name for name in names if name[0] == "h"] == [f"h{index}" for index in range(37)]


def test_a_lane_that_was_emptied_owes_nothing_to_those_that_come_later() -> None:
    queue = PrefillQueue()
    left = waiting("l1", LOW)
    queue.append(left)
    for index in range(PASSES_UNTIL_DUE):
        queue.append(waiting(f"h{index}", HIGH))
        queue.take()
    queue.remove(left)
    queue.append(waiting("l2", LOW))
    queue.append(waiting("h", HIGH))
    assert taken(queue) == ["h", "l2"]


def test_an_empty_queue_has_nobody_to_take() -> None:
    with pytest.raises(IndexError):
        PrefillQueue().take()


@given(st.lists(st.one_of(st.sampled_from(Priority), st.none()), max_size=300))
def test_whatever_comes_and_goes_nobody_is_lost_and_no_front_is_passed_over_for_long(
    steps: list[Priority | None],
) -> None:
    queue = PrefillQueue()
    lanes: dict[Priority, list[str]] = {lane: [] for lane in Priority}
    n_passed = dict.fromkeys(Priority, 0)
    for number, arrives in enumerate(steps):
        if arrives is not None:
            queue.append(waiting(str(number), arrives))
            lanes[arrives].append(str(number))
        elif queue:
            first = queue.take().id
            lane = next(lane for lane, names in lanes.items() if names[:1] == [first])
            del lanes[lane][0]
            for other in Priority:
                n_passed[other] = n_passed[other] + 1 if other is not lane and lanes[other] else 0
            assert max(n_passed[LOW], n_passed[NORMAL]) <= MOST_PASSES and n_passed[HIGH] <= 2
        assert len(queue) == sum(map(len, lanes.values()))
