"""What /metrics says: the engine's own counts, and what the HTTP edge saw of each request.

The engine thread writes plain numbers into an EngineStats; they are read from the event loop without a lock,
so a reading may be one step old and never blocks a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


@dataclass
class EngineStats:
    """The engine's counts. None means unbounded, and is left out of /metrics. Owner: the engine thread."""

    n_queued: int = 0
    n_prefilling: int = 0
    n_decoding: int = 0
    n_slots_used: int = 0
    n_slots: int | None = None
    kv_booked_bytes: int = 0
    kv_held_bytes: int = 0
    kv_budget_bytes: int | None = None
    n_prefilled_tokens: int = 0
    n_generated_tokens: int = 0
    n_decode_steps: int = 0
    n_failed_steps: int = 0


_GAUGES = {
    "n_queued": ("mlxcel_queue_depth", "Requests that wait for their prefill"),
    "n_prefilling": ("mlxcel_prefilling", "Sequences in prefill"),
    "n_decoding": ("mlxcel_decoding", "Sequences in the decode batch"),
    "n_slots_used": ("mlxcel_slots_used", "Places taken in the cache pool"),
    "n_slots": ("mlxcel_slots", "Places in the cache pool; absent when unbounded"),
    "kv_booked_bytes": ("mlxcel_kv_booked_bytes", "KV memory promised to sequences"),
    "kv_held_bytes": ("mlxcel_kv_held_bytes", "KV memory that sequences fill"),
    "kv_budget_bytes": ("mlxcel_kv_budget_bytes", "KV memory that may be promised; absent when unbounded"),
}
_COUNTERS = {
    "n_prefilled_tokens": ("mlxcel_prefill_tokens", "Prompt tokens prefilled"),
    "n_generated_tokens": ("mlxcel_generated_tokens", "Tokens generated"),
    "n_decode_steps": ("mlxcel_decode_steps", "Decode steps launched"),
    "n_failed_steps": ("mlxcel_failed_steps", "Model steps that raised"),
}


class _EngineCollector(Collector):
    def __init__(self, read: Callable[[], EngineStats]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        stats = self._read()
        for attribute, (name, text) in _GAUGES.items():
            if (value := getattr(stats, attribute)) is not None:
                yield GaugeMetricFamily(name, text, value=value)
        for attribute, (name, text) in _COUNTERS.items():
            yield CounterMetricFamily(name, text, value=getattr(stats, attribute))


class ServerMetrics:
    """The registry of one server; nothing is global."""

    def __init__(self, read_engine: Callable[[], EngineStats], read_tokenizing: Callable[[], float] = float) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_EngineCollector(read_engine))
        Gauge(
            "mlxcel_tokenizing", "Requests whose prompt is being tokenised, or waits for it", registry=self.registry
        ).set_function(read_tokenizing)
        self.requests = Counter(
            "mlxcel_requests",
            "Requests that ended, by route and HTTP status or finish reason",
            ["route", "outcome"],
            registry=self.registry,
        )
        self.prompt_tokens = Counter(
            "mlxcel_prompt_tokens", "Prompt tokens of accepted requests", registry=self.registry
        )
        self.time_to_first_token = Histogram(
            "mlxcel_time_to_first_token_seconds",
            "From the request's arrival to its first token",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.request_duration = Histogram(
            "mlxcel_request_seconds",
            "From the request's arrival to its end",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
