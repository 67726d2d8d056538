"""Prefixes over HTTP: the same text, the counts that say what was saved, and the memory that is given back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.exposition import values_of
from tests.support.prompts import prompt_of
from tests.support.reference import reference_texts
from tests.support.server_process import ServerProcess, metric, serving, wait_for_metric

N = 12


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with serving(tiny_model) as server:
        yield server


def complete(url: str, prompt: str, **fields: Any) -> tuple[str, int]:
    body = {"prompt": prompt, "max_tokens": N, "temperature": 0, **fields}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_prompt_asked_again_gives_the_reference_text_and_says_what_was_cached(
    server: ServerProcess, tiny_model: Path
) -> None:
    lengths = (20, 33, 34, 65, 257, 258, 300)
    prompts = [prompt_of(tiny_model, n, seed=9) for n in lengths]
    expected = reference_texts(tiny_model, prompts, N)
    assert [complete(server.url, prompt) for prompt in prompts] == [(text, 0) for text in expected]
    saved = [n - 1 if n > 32 else 0 for n in lengths]
    assert [complete(server.url, prompt) for prompt in prompts] == list(zip(expected, saved, strict=True))


def test_hits_and_queries_are_counted_in_tokens(tiny_model: Path) -> None:
    lengths = (20, 40, 300)
    prompts = [prompt_of(tiny_model, n, seed=9) for n in lengths]
    with serving(tiny_model) as server, server.client() as client:
        for prompt in prompts * 2:
            complete(server.url, prompt)
        wait_for_metric(client, "mlxcel_slots_used", 0)
        values = values_of(client.get("/metrics").text)
    assert values["vllm:prefix_cache_queries_total"] == 2 * sum(lengths)
    assert values["vllm:prefix_cache_hits_total"] == 39 + 299
    assert (values["mlxcel_prefix_hits_total"], values["mlxcel_prefix_misses_total"]) == (2, 4)
    assert values["llamacpp:prompt_tokens_total"] == 2 * sum(lengths) - 39 - 299
    assert values["vllm:prompt_tokens_total"] == 2 * sum(lengths)


def test_every_api_reports_the_cached_tokens_of_a_conversations_next_turn(server: ServerProcess) -> None:
    with server.client() as client:
        messages = [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": "Hello"}]

        def ask(path: str, **fields: Any) -> dict[str, Any]:
            answer: dict[str, Any] = client.post(path, json={"max_tokens": N, "temperature": 0, **fields}).json()
            return answer

        first = ask("/v1/chat/completions", messages=messages)
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        messages += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
        hits, saved = metric(client, "mlxcel_prefix_hits_total"), metric(client, "mlxcel_prefix_tokens_total")
        second = ask("/v1/chat/completions", messages=[{"role": m["role"], "content": m["content"]} for m in messages])
        n_cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert n_cached >= first["usage"]["prompt_tokens"]
        assert metric(client, "mlxcel_prefix_hits_total") == hits + 1
        assert metric(client, "mlxcel_prefix_tokens_total") == saved + n_cached
        assert 0 < metric(client, "mlxcel_prefix_bytes") <= metric(client, "mlxcel_kv_budget_bytes")

        turns = [{"role": "user", "content": "Tell me of the sea. " * 10}]
        n_prompt = ask("/v1/messages", model="tiny-llama", messages=turns)["usage"]["input_tokens"]
        usage = ask("/v1/messages", model="tiny-llama", messages=turns)["usage"]
        assert (usage["cache_read_input_tokens"], usage["input_tokens"]) == (n_prompt - 1, 1)
        responses = {"input": turns[0]["content"], "max_output_tokens": N, "temperature": 0}
        usage = client.post("/v1/responses", json=responses).json()["usage"]
        assert usage["input_tokens_details"]["cached_tokens"] == usage["input_tokens"] - 1


def test_a_client_that_leaves_in_mid_answer_leaves_its_prompt_for_its_next_try(
    server: ServerProcess, tiny_model: Path
) -> None:
    prompt = prompt_of(tiny_model, 400, seed=4)
    body = {"prompt": prompt, "max_tokens": 1500, "temperature": 0, "stream": True}
    with server.client() as client:
        with client.stream("POST", "/v1/completions", json=body) as answer:
            next(answer.iter_lines())
        wait_for_metric(client, "mlxcel_slots_used", 0)
    assert complete(server.url, prompt)[1] == 399


def test_prefixes_give_way_to_requests_and_every_text_stays(tiny_model: Path) -> None:
    prompts = [prompt_of(tiny_model, 200 + n, seed=n) for n in range(8)]
    with (
        serving(tiny_model, "--kv-cache-budget", "1MiB", "--prefix-cache-bytes", "1MiB") as small,
        small.client() as client,
    ):
        with ThreadPoolExecutor(8) as pool:
            first = list(pool.map(lambda prompt: complete(small.url, prompt)[0], prompts))
            again = list(pool.map(lambda prompt: complete(small.url, prompt)[0], prompts))
        assert 0 < metric(client, "mlxcel_prefix_bytes") <= 2**20
        assert metric(client, "mlxcel_failed_steps_total") == 0
    assert first == again == reference_texts(tiny_model, prompts, N)


def test_without_a_prefix_cache_nothing_is_kept(tiny_model: Path) -> None:
    prompt = prompt_of(tiny_model, 100)
    with serving(tiny_model, "--prefix-cache-bytes", "0", "--no-batch") as server, server.client() as client:
        assert complete(server.url, prompt) == complete(server.url, prompt)
        assert metric(client, "mlxcel_prefixes") == metric(client, "mlxcel_prefix_hits_total") == 0
        assert metric(client, "mlxcel_prefix_misses_total") == 0
