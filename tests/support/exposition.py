"""What a /metrics page says, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import Metric, parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from mlxcel.metrics.quantities import Quantity

VLLM_LABELS = ("model_name", "engine")
Labels = tuple[tuple[str, str], ...]


def families_of(text: str, *, is_openmetrics: bool = False) -> dict[str, Metric]:
    """Families by the name that dashboards know: that of a counter ends in _total."""
    parse: Any = (openmetrics_parser if is_openmetrics else parser).text_string_to_metric_families
    families: list[Metric] = list(parse(text))
    return {f"{one.name}_total" if one.type == "counter" else one.name: one for one in families}


def samples_of(family: Metric) -> dict[tuple[str, Labels], float]:
    """The samples by what follows the family's name and by their labels, vLLM's model_name and engine left out."""
    return {(sample.name.removeprefix(family.name), _labels(sample.labels)): sample.value for sample in family.samples}


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, text) for name, text in labels.items() if name not in VLLM_LABELS))


def values_of(text: str) -> dict[str, float]:
    """What has one value: gauges and counters without labels of their own, and histograms' sums and counts."""
    values = {}
    for name, family in families_of(text).items():
        for (suffix, labels), value in samples_of(family).items():
            if not labels:
                values[name if suffix in ("", "_total") else name + suffix] = value
    return values


def assert_spellings_agree(text: str, quantities: tuple[Quantity, ...]) -> int:
    """Every quantity says the same under each of its names; returns how many names were compared."""
    families = families_of(text)
    n_compared = 0
    for quantity in quantities:
        here = [families[name] for name in quantity.names if name in families]
        assert len(here) in ((0, len(quantity.names)) if quantity.is_optional else (len(quantity.names),)), quantity
        for family in here:
            assert family.type == quantity.kind.value and family.documentation == quantity.meaning
            assert samples_of(family) == samples_of(here[0]), quantity.names
            has_vllm_labels = [{*VLLM_LABELS} <= sample.labels.keys() for sample in family.samples]
            assert all(has_vllm_labels) if family.name.startswith("vllm:") else not any(has_vllm_labels)
            n_compared += 1
    return n_compared
