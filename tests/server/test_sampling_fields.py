"""Every way to pick tokens, over HTTP and side by side; and the lanes in which requests wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.prompts import prompt_of
from tests.support.server_process import ServerProcess, metric, wait_for_metric

N_TOKENS = 40
QUESTION = {"role": "user", "content": "Describe the licence."}
SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": "^[a-z ]{30}$"}}}
GREEDY: dict[str, Any] = {"temperature": 0}
DRAWN: dict[str, Any] = {"temperature": 1.2, "seed": 11}
REPETITIVE: dict[str, Any] = {"temperature": 0, "logit_bias": {"300": 9, "301": 9, "302": 9}}
ROWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (GREEDY, {"repetition_penalty": 1.3}),
    (GREEDY, {"presence_penalty": 1.5, "frequency_penalty": 0.7}),
    (REPETITIVE, {"dry_multiplier": 5, "dry_allowed_length": 1, "dry_sequence_breakers": ["x"]}),
    (DRAWN, {"xtc_probability": 0.9, "xtc_threshold": 0.01}),
    (DRAWN, {"typical_p": 0.3}),
    (DRAWN, {"min_p": 0.2, "top_k": 30}),
    (GREEDY, {"logit_bias": {"300": 4.5, "301": 4.5, "302": -100}, "logprobs": True, "top_logprobs": 3}),
    (DRAWN, {"response_format": SCHEMA}),
]
"""How a row draws, and the fields that make its text another one."""


def chat(url: str, **fields: Any) -> dict[str, Any]:
    body = {"messages": [QUESTION], "max_tokens": N_TOKENS, "ignore_eos": True, **fields}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def test_eight_rows_each_with_other_samplers_get_together_what_each_gets_alone(
    tiny_server: ServerProcess, client: httpx.Client
) -> None:
    url = tiny_server.url
    alone = [chat(url, **how, **fields) for how, fields in ROWS]
    for (how, _), choice in zip(ROWS, alone, strict=True):
        assert choice["message"] != chat(url, **how)["message"], "the fields change nothing"
    before = metric(client, "mlxcel_decode_steps_total")
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda row: chat(url, **row[0], **row[1]), ROWS))
    n_steps = metric(client, "mlxcel_decode_steps_total") - before
    assert n_steps < 0.7 * N_TOKENS * len(ROWS), "the rows did not run together"
    assert [without_logprobs(one) for one in together] == [without_logprobs(one) for one in alone]
    reported, expected = (choices[6]["logprobs"]["content"] for choices in (together, alone))
    assert [one["token"] for one in reported] == [one["token"] for one in expected]
    assert [one["logprob"] for one in reported] == pytest.approx([one["logprob"] for one in expected], abs=1e-4)


def without_logprobs(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name != "logprobs"}


def test_a_stop_token_ends_a_row_and_min_tokens_puts_it_off(tiny_server: ServerProcess) -> None:
    def complete(**fields: Any) -> dict[str, Any]:
        body = {"prompt": "The Licensor", "temperature": 0, "max_tokens": 20, "logprobs": 0, **fields}
        answer = httpx.post(f"{tiny_server.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        return {**body["choices"][0], "n_tokens": body["usage"]["completion_tokens"]}

    # A bias makes every token the same, so that its id is known to be the stop's.
    stopped = complete(logit_bias={"300": 100}, stop_token_ids=[300], ignore_eos=True)
    assert (stopped["text"], stopped["finish_reason"], stopped["n_tokens"]) == ("", "stop", 1)
    put_off = complete(logit_bias={"300": 100}, stop_token_ids=[300], min_tokens=5, ignore_eos=True)
    assert (put_off["finish_reason"], put_off["n_tokens"]) == ("stop", 6)
    assert len(put_off["logprobs"]["tokens"]) == 5


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_a_lane_that_does_not_exist_is_refused_and_those_that_do_are_taken(client: httpx.Client, path: str) -> None:
    body: dict[str, Any] = {"input": "a"} if path == "/v1/responses" else {"prompt": "a", "messages": [QUESTION]}
    body["max_tokens"] = 1
    for lane in ("high", "normal", "low"):
        assert client.post(path, json=body, headers={"X-Priority": lane}).status_code == 200
    for lane in ("urgent", "HIGH", "", "high, low"):
        refused = client.post(path, json=body, headers={"X-Priority": lane})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "X-Priority")


def test_those_who_wait_are_served_lane_by_lane(narrow_server: ServerProcess, tiny_model: Path) -> None:
    prompt = prompt_of(tiny_model, 20)
    done: list[str] = []

    def wait(url: str, lane: str) -> None:
        body = {"prompt": prompt, "max_tokens": 200, "ignore_eos": True}
        assert httpx.post(f"{url}/v1/completions", json=body, headers={"X-Priority": lane}, timeout=60).is_success
        done.append(lane)

    with narrow_server.client() as client, ThreadPoolExecutor(3) as pool:
        endless = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=endless) as stream:
            lines = stream.iter_lines()
            next(lines)
            for n_waiting, lane in enumerate(("low", "normal", "high"), start=1):
                pool.submit(wait, narrow_server.url, lane)
                wait_for_metric(client, "mlxcel_queue_depth", n_waiting)
        pool.shutdown(wait=True)
    assert done == ["high", "normal", "low"]


def test_a_penalty_of_the_servers_is_the_default_and_a_request_goes_before_it(
    tiny_server: ServerProcess, narrow_server: ServerProcess
) -> None:
    plain, penalised = (chat(tiny_server.url, **GREEDY, repetition_penalty=by)["message"] for by in (1, 1.3))
    assert chat(narrow_server.url, **GREEDY)["message"] == penalised != plain
    assert chat(narrow_server.url, **GREEDY, repetition_penalty=1)["message"] == plain
