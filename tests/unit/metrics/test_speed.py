from __future__ import annotations

from mlxcel.metrics.speed import WINDOW_S, Speed


def test_a_speed_is_tokens_over_the_seconds_that_requests_spent() -> None:
    speed = Speed()
    assert speed.tokens_per_s(0) == 0
    speed.add(100, 2.0, now_s=10)
    speed.add(50, 8.0, now_s=10)
    assert speed.tokens_per_s(11) == 15


def test_what_is_older_than_the_window_counts_no_more() -> None:
    speed = Speed()
    speed.add(100, 1.0, now_s=0)
    speed.add(30, 1.0, now_s=50)
    assert speed.tokens_per_s(WINDOW_S) == 65
    assert speed.tokens_per_s(WINDOW_S + 1) == 30
    assert speed.tokens_per_s(WINDOW_S + 51) == 0


def test_tokens_that_took_no_time_have_no_speed() -> None:
    speed = Speed()
    speed.add(0, 0.0, now_s=1)
    assert speed.tokens_per_s(1) == 0
