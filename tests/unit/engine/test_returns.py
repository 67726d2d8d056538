"""When the refused are told to come back."""

from __future__ import annotations

from mlxcel.engine.returns import Returns


def test_the_refused_come_back_one_after_another_as_places_come_free() -> None:
    returns = Returns()
    for eighth in range(16):
        returns.place_freed(eighth / 8)
    assert [returns.after_s(2.0) for _ in range(32)] == [1] * 8 + [2] * 8 + [3] * 8 + [4] * 8
    # Three seconds later most of those have come, and the next are told to come behind the rest.
    assert returns.after_s(5.0) == 2


def test_where_nothing_has_ended_yet_they_come_a_second_apart_and_within_a_minute() -> None:
    returns = Returns()
    assert [returns.after_s(7.0) for _ in range(3)] == [1, 2, 3]
    assert max(returns.after_s(7.0) for _ in range(200)) == 60


def test_the_rate_is_that_of_the_last_ends() -> None:
    returns = Returns()
    for end_s in (*range(100), *(100 + quick / 32 for quick in range(32))):
        returns.place_freed(float(end_s))
    assert [returns.after_s(101.0) for _ in range(33)] == [1] * 32 + [2]
