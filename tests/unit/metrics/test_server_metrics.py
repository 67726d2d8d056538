from __future__ import annotations

import pytest

from mlxcel.metrics import EngineStats, ServerMetrics
from mlxcel.metrics.page import page_of
from mlxcel.metrics.quantities import QUANTITIES
from tests.support.exposition import assert_spellings_agree, families_of, samples_of, values_of


def text_of(metrics: ServerMetrics) -> str:
    return page_of(metrics.registry, "")[0].decode()


def busy_metrics() -> ServerMetrics:
    """Metrics in which no two quantities have the same value by chance, and every quantity is there."""
    stats = EngineStats()
    for number, name in enumerate(vars(stats)):
        setattr(stats, name, 1000 + 7 * number)
    metrics = ServerMetrics(lambda: stats, lambda: 3, version="1.2", model_id='my "model"\n')
    for number, histogram in enumerate(each for each in vars(metrics).values() if hasattr(each, "observe")):
        histogram.observe(0.02, 11 + number)
        histogram.observe(10**9)
    for number, outcome in enumerate(("stop", "tool_calls", "length", "cancelled", "generation_failed")):
        metrics.requests.labels(route="/v1/completions", outcome=outcome).inc(2**number)
    metrics.requests.labels(route="/v1/messages", outcome="stop").inc(100)
    return metrics


def test_the_engines_counts_are_read_when_they_are_asked_for() -> None:
    stats = EngineStats(n_slots=9, kv_budget_bytes=2**40)
    metrics = ServerMetrics(lambda: stats)
    assert values_of(text_of(metrics))["mlxcel_slots_used"] == 0
    stats.n_slots_used, stats.n_generated_tokens, stats.kv_held_bytes = 7, 123, 2**38
    values = values_of(text_of(metrics))
    assert (values["mlxcel_slots_used"], values["mlxcel_slots"], values["mlxcel_kv_held_bytes"]) == (7, 9, 2**38)
    assert (values["mlxcel_generated_tokens_total"], values["mlxcel_kv_held_ratio"]) == (123, 0.25)


def test_unbounded_is_absent_and_never_a_huge_number() -> None:
    families = families_of(text_of(ServerMetrics(EngineStats)))
    absent = {name for quantity in QUANTITIES if quantity.is_optional for name in quantity.names}
    assert absent.isdisjoint(families) and "llamacpp:kv_cache_usage_ratio" in absent
    assert families.keys() | absent == {name for quantity in QUANTITIES for name in quantity.names}
    assert max(value for family in families.values() for value in samples_of(family).values()) < 10**10


def test_two_servers_share_no_counter() -> None:
    first, second = ServerMetrics(EngineStats), ServerMetrics(EngineStats)
    first.prompt_tokens.inc(5)
    assert values_of(text_of(first))["mlxcel_prompt_tokens_total"] == 5
    assert values_of(text_of(second))["mlxcel_prompt_tokens_total"] == 0


def test_every_spelling_of_a_quantity_says_the_same() -> None:
    n_names = sum(len(quantity.names) for quantity in QUANTITIES)
    assert assert_spellings_agree(text_of(busy_metrics()), QUANTITIES) == n_names > 60


def test_no_name_means_two_quantities() -> None:
    names = [name for quantity in QUANTITIES for name in quantity.names]
    assert len({*names}) == len(names)
    assert all(quantity.names[0].startswith(("mlxcel_", "vllm:request_success")) for quantity in QUANTITIES)


# The last three are what Prometheus 2, Prometheus 3 and Grafana's agent send.
@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/html", False),
        ("text/plain;version=1.0.0", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3", True),
        ("application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.6,text/plain;q=0.3", True),
    ],
)
def test_every_reader_gets_the_same_names_and_values(accept: str, is_openmetrics: bool) -> None:
    metrics = busy_metrics()
    expected = families_of(text_of(metrics))
    page, media_type = page_of(metrics.registry, accept)
    assert media_type.startswith("application/openmetrics-text" if is_openmetrics else "text/plain")
    families = families_of(page.decode(), is_openmetrics=is_openmetrics)
    assert families.keys() == expected.keys()
    for name, family in families.items():
        assert samples_of(family) == samples_of(expected[name]) and family.type == expected[name].type


def test_a_histogram_has_growing_buckets_up_to_its_count() -> None:
    for family in families_of(text_of(busy_metrics())).values():
        if family.type != "histogram":
            continue
        buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
        bounds, counts = [float(sample.labels["le"]) for sample in buckets], [sample.value for sample in buckets]
        assert bounds == sorted(bounds) and counts == sorted(counts) and counts[0] < counts[-1]
        assert counts[-1] == samples_of(family)["_count", ()] == counts[-2] + 1


def test_ends_are_summed_in_vllms_words() -> None:
    (family,) = (one for name, one in families_of(text_of(busy_metrics())).items() if "request_success" in name)
    by_reason = {sample.labels["finished_reason"]: sample.value for sample in family.samples}
    assert by_reason == {"stop": 1 + 2 + 100, "length": 4, "abort": 8, "error": 16}
    assert {sample.labels["model_name"] for sample in family.samples} == {'my "model"\n'}
