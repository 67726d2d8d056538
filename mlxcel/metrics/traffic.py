"""What the event loop's side measures of requests and their tokens."""

from __future__ import annotations

from prometheus_client import Counter

from mlxcel.metrics.histogram import Histogram
from mlxcel.metrics.speed import Speed

REQUEST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""From a tiny answer on a fast machine to a very long one on a slow one."""
WAIT_S = (0.001, 0.0025, *REQUEST_S[:-1])
GAP_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)
"""Fine between 5 and 100 ms, where most models decode; a gap over 0.25 s is longer than any chunk of prefill."""
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)


class Traffic:
    """Owner: the event loop's thread, which also reads it. Units: seconds and tokens.

    `requests` and what is beside it count HTTP requests; from `queue_time` on, sequences, of which a request that asks
    for several choices has several.
    """

    def __init__(self) -> None:
        self.requests = Counter("requests", "Requests that ended", ["route", "outcome"], registry=None)
        self.responses = Counter("responses", "Answers", ["status"], registry=None)
        self.prompt_tokens = Counter("prompt_tokens", "Prompt tokens accepted", registry=None)
        self.time_to_first_token = Histogram(WAIT_S)
        self.request_duration = Histogram(REQUEST_S)
        self.queue_time = Histogram(WAIT_S)
        self.prefill_time = Histogram(WAIT_S)
        self.decode_time = Histogram(REQUEST_S)
        self.token_gap = Histogram(GAP_S)
        self.prompt_length = Histogram(TOKENS)
        self.answer_length = Histogram(TOKENS)
        self.prefill_speed = Speed()
        self.decode_speed = Speed()
        self.n_computed_tokens = 0
        self.n_tokens_max = 0


def counts_of(counter: Counter) -> dict[tuple[str, ...], float]:
    """What was counted, by the texts of the counter's labels."""
    (family,) = counter.collect()
    return {tuple(sample.labels.values()): sample.value for sample in family.samples if sample.name.endswith("_total")}
