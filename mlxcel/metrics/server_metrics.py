"""The registry behind /metrics: each quantity is read once and shown under each of its names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mlxcel.metrics.engine_stats import EngineStats
from mlxcel.metrics.histogram import Histogram
from mlxcel.metrics.quantities import QUANTITIES, Kind, Quantity, Readings, Value
from mlxcel.metrics.traffic import Traffic


class ServerMetrics(Traffic):
    """The traffic of one server, and the registry that shows it beside the engine's counts; nothing is global."""

    def __init__(
        self,
        read_engine: Callable[[], EngineStats],
        read_tokenizing: Callable[[], float] = float,
        *,
        version: str = "",
        model_id: str = "",
    ) -> None:
        super().__init__()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(
            _Spellings(
                lambda: Readings(read_engine(), self, read_tokenizing(), version, model_id, time.monotonic()),
                model_id,
            )
        )


class _Spellings(Collector):
    def __init__(self, read: Callable[[], Readings], model_id: str) -> None:
        self._read = read
        self._own_labels = {"vllm": {"model_name": model_id, "engine": "0"}}

    def collect(self) -> Iterator[Metric]:
        readings = self._read()
        for quantity in QUANTITIES:
            value = quantity.read(readings)
            for name in quantity.names if value is not None else ():
                family, _, _ = name.rpartition(":")
                yield _metric(quantity, name, value, self._own_labels.get(family, {}))


def _metric(quantity: Quantity, name: str, value: Value, own: Mapping[str, str]) -> Metric:
    """The quantity under one name; its samples have the name's `own` labels beside the quantity's."""
    names, texts = [*quantity.labels, *own], tuple(own.values())
    if isinstance(value, Histogram):
        histogram = HistogramMetricFamily(name, quantity.meaning, labels=names)
        histogram.add_metric(texts, value.buckets, value.sum)
        return histogram
    family = (CounterMetricFamily if quantity.kind is Kind.COUNTER else GaugeMetricFamily)(
        name, quantity.meaning, labels=names
    )
    for labels, number in value.items() if isinstance(value, Mapping) else [((), value)]:
        assert number is not None
        family.add_metric((*labels, *texts), number)
    return family
