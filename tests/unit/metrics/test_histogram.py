from __future__ import annotations

from mlxcel.metrics.histogram import Histogram


def test_a_value_falls_under_the_first_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((0.5, 1, 2))
    for value in (0.1, 0.5, 0.7, 2, 2.1):
        histogram.observe(value)
    assert histogram.buckets == [("0.5", 2), ("1.0", 3), ("2.0", 4), ("+Inf", 5)]
    assert (histogram.n, round(histogram.sum, 9)) == (5, 5.4)


def test_n_equal_values_are_one_observation_n_times() -> None:
    once, often = Histogram((1, 2)), Histogram((1, 2))
    once.observe(1.5, 3)
    for _ in range(3):
        often.observe(1.5)
    assert once.buckets == often.buckets and once.sum == often.sum
