"""How fast tokens come, measured where they leave the engine for their clients.

Owner: the event loop's thread. The clock is read once a step, and the rows that got a token in the same earlier step
share one observation.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlxcel.core import Event
from mlxcel.metrics.traffic import Traffic


class Journey:
    """When a sequence was submitted, and when its tokens came. Units: monotonic seconds."""

    __slots__ = ("first_token_s", "last_token_s", "n_prompt_tokens", "n_tokens", "submitted_s")

    def __init__(self, n_prompt_tokens: int, submitted_s: float) -> None:
        self.n_prompt_tokens = n_prompt_tokens
        self.submitted_s = submitted_s
        self.first_token_s: float | None = None
        self.last_token_s = submitted_s
        self.n_tokens = 0


class Pace:
    """Measures each step's events into a Traffic."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def measure(self, step: Iterable[tuple[Journey, Event]], now_s: float) -> None:
        """One step's events, each with its sequence's journey."""
        n_by_last: dict[float, int] = {}
        for journey, event in step:
            if event.token is not None:
                journey.n_tokens += 1
                if journey.first_token_s is None:
                    self._begin(journey, event, now_s)
                else:
                    n_by_last[journey.last_token_s] = n_by_last.get(journey.last_token_s, 0) + 1
                journey.last_token_s = now_s
            if event.finish is not None:
                self._end(journey, now_s)
        for last_s, n in n_by_last.items():
            self._traffic.token_gap.observe(now_s - last_s, n)

    def _begin(self, journey: Journey, event: Event, now_s: float) -> None:
        traffic = self._traffic
        journey.first_token_s = now_s
        if event.start is None:
            return
        prefill_s = now_s - event.start.left_queue_s
        traffic.queue_time.observe(event.start.left_queue_s - journey.submitted_s)
        traffic.prefill_time.observe(prefill_s)
        traffic.prefill_speed.add(event.start.n_computed, prefill_s, now_s=now_s)
        traffic.n_computed_tokens += event.start.n_computed
        traffic.prompt_length.observe(journey.n_prompt_tokens)

    def _end(self, journey: Journey, now_s: float) -> None:
        traffic = self._traffic
        if journey.first_token_s is None:
            return
        decode_s = journey.last_token_s - journey.first_token_s
        traffic.decode_time.observe(decode_s)
        traffic.decode_speed.add(journey.n_tokens - 1, decode_s, now_s=now_s)
        traffic.answer_length.observe(journey.n_tokens)
        traffic.n_tokens_max = max(traffic.n_tokens_max, journey.n_prompt_tokens + journey.n_tokens)
