"""Several answers to one request: n, lists of prompts, and what they share."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from tests.support.prompts import tokenizer_of
from tests.support.server_process import ServerProcess, metric, serving, wait_for_metric

PROMPTS = ["The Licensor grants", "Derivative Works", "a"]
QUESTION: Any = {"role": "user", "content": "What may I do?"}
DRAWN: dict[str, Any] = {"max_tokens": 10, "temperature": 1, "seed": 7}


def texts_of(body: dict[str, Any]) -> list[str]:
    assert [choice["index"] for choice in body["choices"]] == list(range(len(body["choices"])))
    return [choice["text"] for choice in body["choices"]]


def complete(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", json={**DRAWN, **fields})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def streamed(client: httpx.Client, **fields: Any) -> tuple[list[str], list[str], dict[str, Any]]:
    """Each choice's text and reason, and the usage, of a stream."""
    answer = client.post(
        "/v1/completions", json={**DRAWN, **fields, "stream": True, "stream_options": {"include_usage": True}}
    )
    texts: dict[int, str] = defaultdict(str)
    reasons: dict[int, str] = {}
    *frames, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    *chunks, last = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        assert choice["index"] not in reasons, "text after a choice's end"
        texts[choice["index"]] += choice["text"]
        if choice["finish_reason"] is not None:
            reasons[choice["index"]] = choice["finish_reason"]
    n = len(texts)
    return [texts[index] for index in range(n)], [reasons[index] for index in range(n)], last["usage"]


def test_each_prompt_of_a_list_gets_what_it_gets_alone_text_or_ids(client: httpx.Client, tiny_model: Path) -> None:
    alone = [complete(client, prompt=prompt) for prompt in PROMPTS]
    ids = [tokenizer_of(tiny_model).encode(prompt) for prompt in PROMPTS]
    expected = [texts_of(body)[0] for body in alone]
    assert len(set(expected)) == 3
    together = complete(client, prompt=PROMPTS)
    assert texts_of(together) == texts_of(complete(client, prompt=ids)) == expected
    assert texts_of(complete(client, prompt=ids[0])) == expected[:1]
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][count] == sum(body["usage"][count] for body in alone)


def test_each_choice_draws_with_a_seed_of_its_own_and_the_prompt_counts_once(client: httpx.Client) -> None:
    alone = [complete(client, prompt=PROMPTS[0], seed=7 + index) for index in range(4)]
    body = complete(client, prompt=PROMPTS[0], n=4)
    assert texts_of(body) == [texts_of(one)[0] for one in alone] and len(set(texts_of(body))) == 4
    assert body["usage"]["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]
    assert body["usage"]["completion_tokens"] == 40
    unseeded = complete(client, prompt=PROMPTS[0], n=3, seed=None)
    assert len(set(texts_of(unseeded))) == 3


def test_choices_are_prompt_by_prompt_and_a_stream_of_them_is_the_whole(client: httpx.Client) -> None:
    for fields in ({"prompt": PROMPTS, "n": 2}, {"prompt": PROMPTS, "n": 2, "echo": True, "logprobs": 1}):
        body = complete(client, **fields)
        texts, reasons, usage = streamed(client, **fields)
        assert texts == texts_of(body) and usage == body["usage"]
        assert reasons == [choice["finish_reason"] for choice in body["choices"]]
        assert texts[2:4] == texts_of(complete(client, **{**fields, "prompt": PROMPTS[1]}))


def test_a_stream_interleaves_its_choices(client: httpx.Client) -> None:
    answer = client.post("/v1/completions", json={"prompt": PROMPTS[:2], "max_tokens": 60, "stream": True})
    frames = [json.loads(frame[6:]) for frame in answer.text.split("\n\n")[:-2]]
    order = [frame["choices"][0]["index"] for frame in frames]
    assert sum(one != other for one, other in pairwise(order)) > 10


def test_a_groups_prompt_is_prefilled_once(client: httpx.Client) -> None:
    before = metric(client, "mlxcel_prefill_tokens_total")
    body = complete(client, prompt=PROMPTS[0] * 20, n=8)
    n_prompt = body["usage"]["prompt_tokens"]
    assert metric(client, "mlxcel_prefill_tokens_total") - before < 2 * n_prompt


def test_the_openai_client_gets_n_chats_whole_and_streamed(openai_client: OpenAI) -> None:
    options: Any = {"model": "tiny", "messages": [QUESTION], "max_completion_tokens": 10, "seed": 3, "n": 3}
    whole = openai_client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    texts: dict[int, str] = defaultdict(str)
    tokens: dict[int, list[str]] = defaultdict(list)
    roles: list[tuple[int, str | None]] = []
    with openai_client.chat.completions.create(**options, logprobs=True, top_logprobs=2, stream=True) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                roles += [(choice.index, choice.delta.role)] if choice.delta.role else []
                texts[choice.index] += choice.delta.content or ""
                tokens[choice.index] += [one.token for one in (choice.logprobs and choice.logprobs.content) or []]
    assert roles == [(index, "assistant") for index in range(3)]
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert [texts[choice.index] for choice in whole.choices] == [choice.message.content for choice in whole.choices]
    assert len(set(texts.values())) == 3
    for choice in whole.choices:
        assert [one.token for one in choice.logprobs.content] == tokens[choice.index] != []


def test_the_openai_client_gets_lists_echoes_and_logprobs_whole_and_streamed(openai_client: OpenAI) -> None:
    options: Any = {"model": "tiny", "prompt": PROMPTS, "max_tokens": 6, "temperature": 0, "echo": True, "logprobs": 2}
    whole = openai_client.completions.create(**options)
    texts: dict[int, str] = defaultdict(str)
    tokens: dict[int, list[str]] = defaultdict(list)
    with openai_client.completions.create(**options, stream=True) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                tokens[choice.index] += (choice.logprobs and choice.logprobs.tokens) or []
    for choice, prompt in zip(whole.choices, PROMPTS, strict=True):
        assert choice.text.startswith(prompt) and len(choice.text) > len(prompt)
        assert choice.logprobs is not None and choice.logprobs.token_logprobs is not None
        assert choice.logprobs.token_logprobs[0] is None
        assert texts[choice.index] == choice.text and tokens[choice.index] == choice.logprobs.tokens


def test_a_client_that_leaves_takes_all_choices_with_it(client: httpx.Client) -> None:
    endless = {"prompt": PROMPTS, "n": 2, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", json=endless) as stream:
        lines = stream.iter_lines()
        next(lines)
        assert metric(client, "mlxcel_slots_used") == 6
    wait_for_metric(client, "mlxcel_slots_used", 0)


def test_more_choices_than_places_are_refused_and_nothing_runs(narrow_server: ServerProcess) -> None:
    with narrow_server.client() as client:
        for fields, param in (({"prompt": "a", "n": 5}, "n"), ({"prompt": ["a"] * 5}, "prompt")):
            refused = client.post("/v1/completions", json=fields)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        assert len(complete(client, prompt=["a", "b"], n=2)["choices"]) == 4
        endless = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=endless) as stream:
            lines = stream.iter_lines()
            next(lines)
            busy = client.post("/v1/completions", json={"prompt": ["a", "b"], "n": 2})
            assert (busy.status_code, busy.json()["error"]["code"]) == (503, "server_busy")
            wait_for_metric(client, "mlxcel_slots_used", 1)
        wait_for_metric(client, "mlxcel_slots_used", 0)


def test_a_choice_that_fails_ends_the_stream_with_an_error_frame_and_the_others_with_it(tiny_model: Path) -> None:
    body = {"prompt": PROMPTS[:2], "max_tokens": 1500, "ignore_eos": True, "stream": True}
    program = ("-m", "tests.support.faulty_server", "prefill=2")
    with serving(tiny_model, program=program) as server, server.client() as client:
        *_, last, end = client.post("/v1/completions", json=body).text.split("\n\n")
        assert (json.loads(last.removeprefix("data: "))["error"]["code"], end) == ("generation_failed", "")
        wait_for_metric(client, "mlxcel_slots_used", 0)
