from __future__ import annotations

from mlxcel.core import Event, FinishReason, Start
from mlxcel.engine.pace import Journey, Pace
from mlxcel.metrics.histogram import Histogram
from mlxcel.metrics.traffic import Traffic


def counted(histogram: Histogram) -> tuple[int, float]:
    return histogram.n, round(histogram.sum, 9)


def token(name: str = "a", *, start: Start | None = None, finish: FinishReason | None = None) -> Event:
    return Event(name, 7, finish, start=start)


def test_a_sequences_times_are_those_of_its_steps() -> None:
    traffic, journey = Traffic(), Journey(n_prompt_tokens=12, submitted_s=100.0)
    pace = Pace(traffic)
    pace.measure([(journey, Event("a", None))], 100.5)
    assert traffic.queue_time.n == 0
    pace.measure([(journey, token(start=Start(101.0, n_computed=9)))], 103.0)
    pace.measure([(journey, token())], 103.25)
    pace.measure([(journey, token(finish=FinishReason.LENGTH))], 104.0)
    assert counted(traffic.queue_time) == (1, 1.0)
    assert counted(traffic.prefill_time) == (1, 2.0)
    assert counted(traffic.token_gap) == (2, 1.0)
    assert counted(traffic.decode_time) == (1, 1.0)
    assert (counted(traffic.prompt_length), counted(traffic.answer_length)) == ((1, 12), (1, 3))
    assert (traffic.n_computed_tokens, traffic.n_tokens_max) == (9, 15)
    assert traffic.prefill_speed.tokens_per_s(104.0) == 4.5
    assert traffic.decode_speed.tokens_per_s(104.0) == 2.0


def test_rows_of_one_step_are_observed_together_and_each_counts() -> None:
    observed: list[tuple[float, int]] = []

    class Listening(Histogram):
        def observe(self, value: float, n: int = 1) -> None:
            observed.append((value, n))

    traffic = Traffic()
    traffic.token_gap = Listening((1,))
    journeys = [Journey(1, 0.0) for _ in range(64)]
    pace = Pace(traffic)
    pace.measure([(journey, token()) for journey in journeys], 1.0)
    pace.measure([(journey, token()) for journey in journeys[:10]], 2.0)
    pace.measure([(journey, token()) for journey in journeys], 4.0)
    assert observed == [(1.0, 10), (2.0, 10), (3.0, 54)]


def test_a_sequence_that_ended_without_a_token_has_no_decode_time() -> None:
    traffic = Traffic()
    Pace(traffic).measure([(Journey(5, 0.0), Event("a", None, FinishReason.CANCELLED))], 9.0)
    assert traffic.decode_time.n == traffic.answer_length.n == traffic.queue_time.n == traffic.n_tokens_max == 0
