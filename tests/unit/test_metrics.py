from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mlxcel.metrics import EngineStats, ServerMetrics


def samples_of(metrics: ServerMetrics) -> dict[str, float]:
    """Samples without labels, by name."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def test_the_engines_counts_are_read_when_they_are_asked_for() -> None:
    stats = EngineStats(n_slots=9, kv_budget_bytes=2**40)
    metrics = ServerMetrics(lambda: stats)
    assert samples_of(metrics)["mlxcel_slots_used"] == 0
    stats.n_slots_used, stats.n_generated_tokens, stats.kv_held_bytes = 7, 123, 5
    samples = samples_of(metrics)
    assert (samples["mlxcel_slots_used"], samples["mlxcel_slots"], samples["mlxcel_kv_held_bytes"]) == (7, 9, 5)
    assert (samples["mlxcel_generated_tokens_total"], samples["mlxcel_kv_budget_bytes"]) == (123, 2**40)


def test_unbounded_is_absent_and_never_a_huge_number() -> None:
    samples = samples_of(ServerMetrics(EngineStats))
    assert "mlxcel_slots" not in samples and "mlxcel_kv_budget_bytes" not in samples
    assert "mlxcel_slots_used" in samples and max(samples.values()) < 10**10


def test_two_servers_share_no_counter() -> None:
    first, second = ServerMetrics(EngineStats), ServerMetrics(EngineStats)
    first.prompt_tokens.inc(5)
    assert samples_of(first)["mlxcel_prompt_tokens_total"] == 5
    assert samples_of(second)["mlxcel_prompt_tokens_total"] == 0
