"""Every measured quantity: what it means, where it is read, and the names that it goes by.

The first name is ours. `llamacpp:` and `vllm:` names mean what they mean in llama-server and vLLM; where a name of
theirs means something that we do not measure, it is absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mlxcel.metrics.engine_stats import EngineStats
from mlxcel.metrics.histogram import Histogram
from mlxcel.metrics.traffic import Traffic, counts_of


class Kind(str, Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Readings:
    """What there is to read at one moment. Units: `now_s` is monotonic."""

    engine: EngineStats
    traffic: Traffic
    n_tokenizing: float
    version: str
    model_id: str
    now_s: float


Value = float | Histogram | Mapping[Any, float] | None
"""A mapping's keys are the labels' texts, in order."""


@dataclass(frozen=True)
class Quantity:
    """`read` gives a number, a histogram, or a number for each combination of the `labels`; None is left out.

    `is_optional`: it is left out where there is nothing to measure.
    """

    kind: Kind
    unit: str
    meaning: str
    names: tuple[str, ...]
    read: Callable[[Readings], Value]
    labels: tuple[str, ...] = ()
    is_optional: bool = False


def _gauge(
    names: str, unit: str, meaning: str, read: Callable[[Readings], float | None], *, is_optional: bool = False
) -> Quantity:
    return Quantity(Kind.GAUGE, unit, meaning, tuple(names.split()), read, is_optional=is_optional)


def _counter(names: str, unit: str, meaning: str, read: Callable[[Readings], float]) -> Quantity:
    return Quantity(Kind.COUNTER, unit, meaning, tuple(names.split()), read)


def _histogram(names: str, unit: str, meaning: str, read: Callable[[Readings], Histogram]) -> Quantity:
    return Quantity(Kind.HISTOGRAM, unit, meaning, tuple(names.split()), read)


def _kv_held_ratio(readings: Readings) -> float | None:
    budget = readings.engine.kv_budget_bytes
    return readings.engine.kv_held_bytes / budget if budget else None


_REASONS = {"stop": "stop", "tool_calls": "stop", "length": "length", "cancelled": "abort"}
"""How a request ended, in vLLM's words; whatever else is an error."""


def _n_ended_by_reason(readings: Readings) -> dict[tuple[str, ...], float]:
    n_ended: Counter[tuple[str, ...]] = Counter()
    for (_, outcome), n in counts_of(readings.traffic.requests).items():
        n_ended[(_REASONS.get(outcome, "error"),)] += int(n)
    return dict(n_ended)


# fmt: off
QUANTITIES: tuple[Quantity, ...] = (
    Quantity(
        Kind.GAUGE, "", "Always 1; the labels say what is served, by which version", ("mlxcel_info",),
        lambda r: {(r.version, r.model_id): 1}, labels=("version", "model"),
    ),
    # Requests
    Quantity(
        Kind.COUNTER, "requests", "Requests that were accepted and ended, by finish reason or error code",
        ("mlxcel_requests_total",), lambda r: counts_of(r.traffic.requests), labels=("route", "outcome"),
    ),
    Quantity(
        Kind.COUNTER, "requests", "Requests that were accepted and ended, in vLLM's words: stop, length, abort, error",
        ("vllm:request_success_total",), _n_ended_by_reason, labels=("finished_reason",),
    ),
    Quantity(
        Kind.COUNTER, "requests",
        "Requests that were answered or refused, but for those of /health and /metrics that went well",
        ("mlxcel_responses_total",), lambda r: counts_of(r.traffic.responses), labels=("status",),
    ),
    _histogram(
        "mlxcel_request_seconds vllm:e2e_request_latency_seconds",
        "seconds", "From a request's arrival to its end", lambda r: r.traffic.request_duration,
    ),
    _histogram(
        "mlxcel_time_to_first_token_seconds vllm:time_to_first_token_seconds",
        "seconds", "From a request's arrival to its first token; counted then, or at the end where it is not streamed",
        lambda r: r.traffic.time_to_first_token,
    ),
    _histogram(
        "mlxcel_queue_time_seconds vllm:request_queue_time_seconds",
        "seconds", "From a sequence's submission to the begin of its prefill", lambda r: r.traffic.queue_time,
    ),
    _histogram(
        "mlxcel_prefill_time_seconds vllm:request_prefill_time_seconds",
        "seconds", "From the begin of a sequence's prefill to its first token", lambda r: r.traffic.prefill_time,
    ),
    _histogram(
        "mlxcel_decode_time_seconds vllm:request_decode_time_seconds",
        "seconds", "From a sequence's first token to its last", lambda r: r.traffic.decode_time,
    ),
    _histogram(
        "mlxcel_inter_token_latency_seconds vllm:inter_token_latency_seconds vllm:time_per_output_token_seconds",
        "seconds", "Between two tokens of a sequence, as they leave the engine", lambda r: r.traffic.token_gap,
    ),
    _histogram(
        "mlxcel_prompt_length_tokens vllm:request_prompt_tokens",
        "tokens", "Prompt of a sequence that got its first token", lambda r: r.traffic.prompt_length,
    ),
    _histogram(
        "mlxcel_answer_length_tokens vllm:request_generation_tokens",
        "tokens", "Tokens that a sequence got by its end", lambda r: r.traffic.answer_length,
    ),
    _gauge(
        "mlxcel_longest_sequence_tokens llamacpp:n_tokens_max",
        "tokens", "Most tokens that prompt and answer of one sequence had", lambda r: r.traffic.n_tokens_max,
    ),
    # Places and the queue
    _gauge(
        "mlxcel_tokenizing",
        "requests", "Requests whose prompt is being tokenised, or waits for it", lambda r: r.n_tokenizing,
    ),
    _gauge(
        "mlxcel_queue_depth llamacpp:requests_deferred vllm:num_requests_waiting",
        "sequences", "Sequences that wait for their prefill", lambda r: r.engine.n_queued,
    ),
    _gauge("mlxcel_prefilling", "sequences", "Sequences in prefill", lambda r: r.engine.n_prefilling),
    _gauge("mlxcel_decoding", "sequences", "Sequences in the decode batch", lambda r: r.engine.n_decoding),
    _gauge(
        "mlxcel_running llamacpp:requests_processing vllm:num_requests_running",
        "sequences", "Sequences in prefill or in the decode batch",
        lambda r: r.engine.n_prefilling + r.engine.n_decoding,
    ),
    _gauge("mlxcel_slots_used", "sequences", "Places taken in the cache pool", lambda r: r.engine.n_slots_used),
    _gauge(
        "mlxcel_slots",
        "sequences", "Places in the cache pool; absent when unbounded", lambda r: r.engine.n_slots, is_optional=True,
    ),
    # Tokens
    _counter(
        "mlxcel_prompt_tokens_total",
        "tokens", "Prompt tokens of accepted requests", lambda r: counts_of(r.traffic.prompt_tokens)[()],
    ),
    _counter(
        "mlxcel_begun_prompt_tokens_total vllm:prompt_tokens_total",
        "tokens", "Prompt tokens of sequences that got their first token, computed or not",
        lambda r: r.traffic.prompt_length.sum,
    ),
    _counter(
        "mlxcel_computed_prompt_tokens_total llamacpp:prompt_tokens_total",
        "tokens", "Prompt tokens of sequences that got their first token, if not taken over from another sequence",
        lambda r: r.traffic.n_computed_tokens,
    ),
    _counter(
        "mlxcel_prefill_tokens_total",
        "tokens", "Tokens prefilled so far: also of sequences that have no token yet, and of those that began anew",
        lambda r: r.engine.n_prefilled_tokens,
    ),
    _counter(
        "mlxcel_generated_tokens_total llamacpp:tokens_predicted_total vllm:generation_tokens_total",
        "tokens", "Tokens generated", lambda r: r.engine.n_generated_tokens,
    ),
    _counter(
        "mlxcel_prefill_seconds_total llamacpp:prompt_seconds_total",
        "seconds", "Time that sequences spent in prefill, side by side", lambda r: r.traffic.prefill_time.sum,
    ),
    _counter(
        "mlxcel_decode_seconds_total llamacpp:tokens_predicted_seconds_total",
        "seconds", "Time that sequences spent from first to last token, side by side",
        lambda r: r.traffic.decode_time.sum,
    ),
    _gauge(
        "mlxcel_prefill_tokens_per_second llamacpp:prompt_tokens_seconds",
        "tokens/s", "Computed prompt tokens for each second of prefill, over those begun in the last minute; else 0",
        lambda r: r.traffic.prefill_speed.tokens_per_s(r.now_s),
    ),
    _gauge(
        "mlxcel_decode_tokens_per_second llamacpp:predicted_tokens_seconds",
        "tokens/s", "Tokens for each second of a sequence's decode, over those that ended in the last minute; else 0",
        lambda r: r.traffic.decode_speed.tokens_per_s(r.now_s),
    ),
    # Steps
    _counter(
        "mlxcel_steps_total llamacpp:n_decode_total",
        "steps", "Model calls, each a chunk of prefill or a decode step", lambda r: r.engine.n_steps,
    ),
    _counter("mlxcel_decode_steps_total", "steps", "Decode steps launched", lambda r: r.engine.n_decode_steps),
    _counter("mlxcel_failed_steps_total", "steps", "Model calls that raised", lambda r: r.engine.n_failed_steps),
    _gauge(
        "mlxcel_running_per_step llamacpp:n_busy_slots_per_decode",
        "sequences", "Sequences that were running at a model call, on average since the start",
        lambda r: r.engine.n_step_slots / max(1, r.engine.n_steps),
    ),
    # KV memory
    _gauge("mlxcel_kv_booked_bytes", "bytes", "KV memory promised to sequences", lambda r: r.engine.kv_booked_bytes),
    _gauge("mlxcel_kv_held_bytes", "bytes", "KV memory that sequences fill", lambda r: r.engine.kv_held_bytes),
    _gauge(
        "mlxcel_kv_budget_bytes",
        "bytes", "KV memory that may be promised; absent when unbounded",
        lambda r: r.engine.kv_budget_bytes, is_optional=True,
    ),
    _gauge("mlxcel_prefixes", "prefixes", "Prefixes whose keys and values are kept", lambda r: r.engine.n_prefixes),
    _gauge(
        "mlxcel_prefix_bytes", "bytes", "KV memory that prefixes fill, beside what sequences booked",
        lambda r: r.engine.prefix_bytes,
    ),
    _counter(
        "mlxcel_prefix_hits_total", "sequences", "Sequences that began from a prefix", lambda r: r.engine.n_prefix_hits
    ),
    _counter(
        "mlxcel_prefix_misses_total", "sequences", "Sequences that found no prefix to begin from",
        lambda r: r.engine.n_prefix_misses,
    ),
    _counter(
        "mlxcel_prefix_tokens_total vllm:prefix_cache_hits_total",
        "tokens", "Prompt tokens that a prefix had, so that they were not computed", lambda r: r.engine.n_prefix_tokens,
    ),
    _counter(
        "mlxcel_prefix_asked_tokens_total vllm:prefix_cache_queries_total",
        "tokens", "Tokens of the sequences for which a prefix was looked for", lambda r: r.engine.n_prefix_asked_tokens,
    ),
    _gauge(
        "mlxcel_kv_held_ratio llamacpp:kv_cache_usage_ratio vllm:kv_cache_usage_perc",
        "ratio", "KV memory held over its budget, 1 being full; absent when unbounded", _kv_held_ratio,
        is_optional=True,
    ),
    _counter(
        "mlxcel_requeued_total vllm:num_preemptions_total",
        "sequences", "Times that a sequence gave way to others, and began anew later", lambda r: r.engine.n_requeued,
    ),
)
# fmt: on
