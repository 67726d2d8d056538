"""What an operator's Prometheus and Grafana get from a running server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlxcel.metrics.quantities import QUANTITIES
from tests.support.exposition import assert_spellings_agree, families_of, samples_of, values_of
from tests.support.metrics_table import DOCUMENT, table, table_in
from tests.support.server_process import serving, wait_for_metric

DASHBOARD = DOCUMENT.with_name("dashboard.json")
REQUESTS: tuple[dict[str, Any], ...] = (
    {"prompt": "Once upon a time", "max_tokens": 1},
    {"prompt": "A quick brown fox jumps over", "max_tokens": 9, "ignore_eos": True},
    {"prompt": "Zebras", "max_tokens": 20, "ignore_eos": True},
)


@pytest.fixture(scope="module")
def client(tiny_model: Path) -> Iterator[httpx.Client]:
    with serving(tiny_model, "--alias", "tiny", "--kv-cache-budget", "64MiB") as server, server.client() as client:
        yield client


@pytest.fixture(scope="module")
def usages(client: httpx.Client) -> list[dict[str, Any]]:
    """What the server's first requests, one after the other, were told that they used."""
    return [client.post("/v1/completions", json={"temperature": 0, **body}).json()["usage"] for body in REQUESTS]


def page(client: httpx.Client) -> str:
    return client.get("/metrics").text


def test_known_requests_make_exact_counts(client: httpx.Client, usages: list[dict[str, Any]]) -> None:
    wait_for_metric(client, "mlxcel_slots_used", 0)
    values = values_of(page(client))
    prompts, answers = [[usage[key] for usage in usages] for key in ("prompt_tokens", "completion_tokens")]
    cached = [(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in usages]
    assert answers == [1, 9, 20]
    expected = {
        "vllm:prompt_tokens_total": sum(prompts),
        "llamacpp:prompt_tokens_total": sum(prompts) - sum(cached),
        "llamacpp:tokens_predicted_total": 30,
        "vllm:request_prompt_tokens_sum": sum(prompts),
        "vllm:request_generation_tokens_sum": 30,
        "vllm:inter_token_latency_seconds_count": 0 + 8 + 19,
        "llamacpp:n_tokens_max": max(map(sum, zip(prompts, answers, strict=True))),
        "mlxcel_failed_steps_total": 0,
        "mlxcel_requeued_total": 0,
        "mlxcel_running": 0,
        "mlxcel_queue_depth": 0,
        "mlxcel_kv_budget_bytes": 64 * 2**20,
        "mlxcel_slots": 32 + 256,
    }
    assert {name: values[name] for name in expected} == expected
    for name in ("time_to_first_token", "request_queue_time", "request_prefill_time", "request_decode_time"):
        assert values[f"vllm:{name}_seconds_count"] == 3
    assert values["llamacpp:n_decode_total"] > values["mlxcel_decode_steps_total"] >= 30
    assert values["llamacpp:n_busy_slots_per_decode"] == 1
    # Each part of a request's time is within the whole.
    parts = [values[f"mlxcel_{part}_sum"] for part in ("queue_time_seconds", "prefill_time_seconds")]
    assert 0 < sum(parts) <= values["mlxcel_time_to_first_token_seconds_sum"] < values["mlxcel_request_seconds_sum"]
    assert values["vllm:inter_token_latency_seconds_sum"] == pytest.approx(values["mlxcel_decode_seconds_total"])
    assert values["llamacpp:predicted_tokens_seconds"] == pytest.approx(27 / values["mlxcel_decode_seconds_total"])


def test_ends_are_counted_by_reason(client: httpx.Client, usages: list[dict[str, Any]]) -> None:
    assert len(usages) == 3
    assert client.post("/v1/completions", json={"prompt": "x", "top_p": 7}).status_code == 400
    with client.stream("POST", "/v1/completions", json={**REQUESTS[1], "max_tokens": 900, "stream": True}) as answer:
        next(answer.iter_lines())
    wait_for_metric(client, 'mlxcel_responses_total{status="200"}', 4)
    families = families_of(page(client))
    by_reason = {
        dict(labels)["finished_reason"]: n
        for (_, labels), n in samples_of(families["vllm:request_success_total"]).items()
    }
    assert by_reason == {"length": 3, "abort": 1}
    assert samples_of(families["mlxcel_requests_total"]) == {
        ("_total", (("outcome", "length"), ("route", "/v1/completions"))): 3,
        ("_total", (("outcome", "cancelled"), ("route", "/v1/completions"))): 1,
    }
    by_status = {dict(labels)["status"]: n for (_, labels), n in samples_of(families["mlxcel_responses_total"]).items()}
    assert by_status == {"200": 4, "400": 1}
    sample = families["vllm:request_success_total"].samples[0]
    assert (sample.labels["model_name"], sample.labels["engine"]) == ("tiny", "0")


def test_every_spelling_agrees_in_text_and_in_openmetrics(client: httpx.Client, usages: list[dict[str, Any]]) -> None:
    assert usages
    assert assert_spellings_agree(page(client), QUANTITIES) == sum(len(quantity.names) for quantity in QUANTITIES)
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = families_of(answer.text, is_openmetrics=True)
    assert families.keys() == families_of(page(client)).keys()


def test_who_runs_and_who_waits_is_told_while_they_do(tiny_model: Path) -> None:
    long = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with serving(tiny_model, "--max-batch-size", "1") as server, server.client() as client:
        with ExitStack() as streams:
            for _ in range(3):
                streams.enter_context(client.stream("POST", "/v1/completions", json=long))
            wait_for_metric(client, "mlxcel_queue_depth", 2)
            wait_for_metric(client, "mlxcel_decoding", 1)
            wait_for_metric(client, "mlxcel_time_to_first_token_seconds_count", 1)
            values = values_of(page(client))
        waiting = ("mlxcel_queue_depth", "llamacpp:requests_deferred", "vllm:num_requests_waiting")
        running = ("mlxcel_running", "llamacpp:requests_processing", "vllm:num_requests_running")
        assert [values[name] for name in waiting] == [2, 2, 2] and [values[name] for name in running] == [1, 1, 1]
        assert values["mlxcel_slots_used"] == 3
        wait_for_metric(client, "mlxcel_slots_used", 0)
        ended = values_of(page(client))
        # Who left the queue is known from who got a token, and how long all waited is not made up.
        assert ended["vllm:request_queue_time_seconds_count"] == ended["vllm:request_decode_time_seconds_count"] <= 3


def test_an_unbounded_server_leaves_its_limits_out(tiny_model: Path) -> None:
    arguments = ("--max-queue-depth", "unbounded", "--kv-cache-budget", "unbounded")
    with serving(tiny_model, *arguments) as server, server.client() as client:
        families = families_of(page(client))
    optional = {name for quantity in QUANTITIES if quantity.is_optional for name in quantity.names}
    assert {name for quantity in QUANTITIES for name in quantity.names} - families.keys() == optional


def test_the_manual_has_the_table_of_what_the_server_exposes(client: httpx.Client) -> None:
    text = DOCUMENT.read_text()
    assert table_in(text) == table(), "run python -m tests.support.metrics_table"
    rows = [line.strip("| ").split(" | ") for line in table().splitlines()[2:]]
    listed = {name: row[1] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    assert listed == {name: family.type for name, family in families_of(page(client)).items()}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:mlxcel_|vllm:|llamacpp:)\w+", expression))


def test_every_metric_of_the_dashboard_is_served(client: httpx.Client, usages: list[dict[str, Any]]) -> None:
    assert usages
    dashboard = json.loads(DASHBOARD.read_text())
    named = {name for panel in dashboard["panels"] for one in panel["targets"] for name in metrics_in(one["expr"])}
    named |= {name for one in dashboard["templating"]["list"] for name in metrics_in(str(one["query"]))}
    samples = {sample.name for family in families_of(page(client)).values() for sample in family.samples}
    assert named - samples == set() and len(named) > 20


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["title"] == dashboard["uid"] == "mlxcel" and dashboard["schemaVersion"] >= 36
    assert "id" not in dashboard, "an id of another Grafana is no use here"
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in ("timeseries", "stat") and panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["fieldConfig"]["overrides"] == []
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken
        taken |= cells
        assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"]) > 0
        for one in [panel, *panel["targets"]]:
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for one in panel["targets"]:
            assert one["expr"].count("(") == one["expr"].count(")") and one["legendFormat"]
            used = set(re.findall(r"\$\{?(\w+)", one["expr"]))
            assert used <= variables | {"__rate_interval"}
            assert metrics_in(one["expr"])
