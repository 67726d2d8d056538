"""The HTTP contract: what is answered, what is refused, and that the server lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.prompts import tokenizer_of
from tests.support.server_process import ServerProcess, serving


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with serving(tiny_model, "--alias", "tiny", "--max-body-bytes", "1MiB") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        # Whatever a test sent, the next request is served.
        assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def completion(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 4, "temperature": 0, **fields})


def chat(client: httpx.Client, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0, **fields}
    return client.post("/v1/chat/completions", json=body)


def assert_refused(answer: httpx.Response, param: str, *, code: str | None = None) -> None:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert "nothing was done" in error["message"]
    assert code is None or error["code"] == code


REFUSED_FIELDS: list[tuple[str, Any, str]] = [
    ("prompt", ["a", 1], "prompt"),
    ("prompt", [], "prompt"),
    ("prompt", 7, "prompt"),
    ("prompt", "", "prompt"),
    ("prompt", None, "prompt"),
    ("stop", [1], "stop[0]"),
    ("stop", ["x", None], "stop[1]"),
    ("stop", "", "stop"),
    ("stop", ["s"] * 65, "stop"),
    ("max_tokens", 0, "max_tokens"),
    ("max_tokens", -1, "max_tokens"),
    ("max_tokens", 1.5, "max_tokens"),
    ("max_tokens", "4", "max_tokens"),
    ("max_tokens", True, "max_tokens"),
    ("temperature", -0.1, "temperature"),
    ("temperature", 101, "temperature"),
    ("temperature", True, "temperature"),
    ("temperature", "0", "temperature"),
    ("top_p", 1.1, "top_p"),
    ("min_p", -1, "min_p"),
    ("top_k", -1, "top_k"),
    ("seed", -1, "seed"),
    ("seed", 2**63, "seed"),
    ("stream", "yes", "stream"),
    ("stream_options", {"include_usage": True}, "stream_options"),
    ("ignore_eos", 1, "ignore_eos"),
    ("model", 3, "model"),
    ("n", 0, "n"),
    ("n", 129, "n"),
    ("n", True, "n"),
    ("best_of", 2, "best_of"),
    ("echo", "yes", "echo"),
    ("logprobs", 6, "logprobs"),
    ("logprobs", True, "logprobs"),
    ("suffix", "x", "suffix"),
    ("logit_bias", {"1": 101}, "logit_bias"),
    ("logit_bias", {"1024": 1}, "logit_bias"),
    ("logit_bias", {"-1": 1}, "logit_bias"),
    ("logit_bias", {"1e3": 1}, "logit_bias"),
    ("logit_bias", {"5": None}, "logit_bias"),
    ("xtc_threshold", 1.1, "xtc_threshold"),
    ("xtc_probability", 2, "xtc_probability"),
    ("repetition_penalty", 0, "repetition_penalty"),
    ("presence_penalty", 3, "presence_penalty"),
    ("typical_p", -1, "typical_p"),
    ("dry_multiplier", -1, "dry_multiplier"),
    ("dry_sequence_breakers", [""], "dry_sequence_breakers[0]"),
    ("min_tokens", 5, "min_tokens"),
    ("stop_token_ids", [5, 1024], "stop_token_ids[1]"),
    ("prompt", [5, 1024], "prompt[1]"),
    ("prompt", [[5], [5, 1024]], "prompt[1][1]"),
    ("prompt", [[5], []], "prompt[1]"),
    ("prompt", [[]], "prompt[0]"),
    ("prompt", ["ab", ""], "prompt[1]"),
    ("prompt", ["ab", "x" * 3000], "prompt[1]"),
    ("prompt", ["ab", "x" * 300_000], "prompt[1]"),
    ("prompt", "x" * 3000, "prompt"),
]


@pytest.mark.parametrize(("field", "value", "param"), REFUSED_FIELDS)
def test_a_field_that_cannot_be_honoured_is_refused_by_name(
    client: httpx.Client, field: str, value: Any, param: str
) -> None:
    assert_refused(completion(client, **{field: value}), param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "tool", "tool_call_id": "x"}]}, "messages[0].content"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "x"}}}},
            "response_format",
        ),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"echo": True}, "echo"),
        ({"logit_bias": {"1024": 1}}, "logit_bias"),
        ({"chat_template": "x"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"documents": [1]}}, "chat_template_kwargs"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
    ],
)
def test_a_chat_that_cannot_be_honoured_is_refused_by_name(
    client: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    assert_refused(chat(client, **fields), param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b'{"prompt": "\xff"}', "body"),
        (b'{"prompt": "\\ud800"}', "prompt"),
        (b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}", "max_tokens"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature"),
        (b'{"prompt": "a", "top_p": Infinity}', "top_p"),
        (b'{"prompt": "a", "temperature": 1e999}', "temperature"),
        (b'{"prompt": "a", "logit_bias": {"1": -Infinity}}', "logit_bias.1"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(client: httpx.Client, body: bytes, param: str) -> None:
    assert_refused(client.post("/v1/completions", content=body), param)


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 1024, "temperature": 1},
        {"top_k": 10**9, "temperature": 1},
        {"temperature": 1e-30},
        {"temperature": 100},
        {"top_p": 0, "temperature": 1},
        {"min_p": 1, "temperature": 1},
        {"seed": 2**63 - 1, "temperature": 1},
        {"logit_bias": None},
        {"logit_bias": {}},
        {"n": 1, "best_of": 1, "echo": False, "logprobs": None, "presence_penalty": 0, "repetition_penalty": 1.0},
        {"user": "me", "store": True, "metadata": {"a": "b"}, "service_tier": "auto"},
        {"stop": None, "model": None, "stream": None, "stream_options": None, "seed": None},
    ],
)
def test_a_field_that_asks_for_nothing_special_is_served(client: httpx.Client, fields: dict[str, Any]) -> None:
    answer = completion(client, ignore_eos=True, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 4
    assert "x-ignored-fields" not in answer.headers


def test_an_unknown_field_is_ignored_and_named(client: httpx.Client) -> None:
    answer = completion(client, flavour="sweet", **{"smile\n☺": 1})
    assert answer.status_code == 200
    assert answer.headers["x-ignored-fields"] == "flavour, smile?\\u263a"
    assert answer.json()["choices"] == completion(client).json()["choices"]


def test_strict_refuses_an_unknown_field(tiny_model: Path) -> None:
    with serving(tiny_model, "--strict") as strict, strict.client() as client:
        assert_refused(completion(client, flavour="sweet"), "flavour", code="unknown_field")
        assert completion(client, user="me").status_code == 200


def test_an_unknown_model_is_404_and_the_served_one_is_not(client: httpx.Client) -> None:
    for name in ("gpt-4", "/etc/passwd", "../tiny", "mlx-community/x"):
        answer = completion(client, model=name)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"
        assert client.get(f"/v1/models/{name}").status_code == 404
    assert completion(client, model="tiny").status_code == 200
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny"]
    assert client.get("/v1/models/tiny").json()["id"] == "tiny"


def test_wrong_paths_and_methods_get_the_envelope(client: httpx.Client) -> None:
    assert client.post("/v1/completions/", json={"prompt": "a"}).status_code == 404
    missing = client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    wrong = client.put("/v1/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json()["error"]["code"] == "method_not_allowed"


def test_a_body_over_the_limit_is_413(client: httpx.Client) -> None:
    answer = client.post("/v1/completions", content=b"x" * (2**20 + 1))
    assert answer.status_code == 413
    assert "1048576 bytes" in answer.json()["error"]["message"]


def test_the_context_is_a_limit_and_not_a_clamp(client: httpx.Client, tiny_model: Path) -> None:
    context = 2048
    for n_prompt, limit, is_served in [(2000, 48, True), (2000, 49, False), (2047, 1, True), (2048, 1, False)]:
        prompt = "the " * n_prompt
        while len(tokenizer_of(tiny_model).encode(prompt)) > n_prompt:
            prompt = prompt[:-4]
        n_tokens = len(tokenizer_of(tiny_model).encode(prompt))
        assert n_tokens == n_prompt
        answer = completion(client, prompt=prompt, max_tokens=limit, ignore_eos=True)
        if is_served:
            usage = answer.json()["usage"]
            counts = (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"])
            assert counts == (n_prompt, limit, n_prompt + limit)
        else:
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert error["code"] == "context_length_exceeded"
            assert str(n_prompt) in error["message"]
            assert str(context) in error["message"]


def frames_of(answer: httpx.Response) -> list[Any]:
    """The events of a stream, each checked to be one data line."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-1] == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
    assert events[-2] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def test_a_streamed_completion_is_the_whole_one_in_pieces(client: httpx.Client) -> None:
    whole = completion(client, max_tokens=40).json()
    frames = frames_of(completion(client, max_tokens=40, stream=True, stream_options={"include_usage": True}))
    assert "".join(frame["choices"][0]["text"] for frame in frames[:-1]) == whole["choices"][0]["text"]
    assert [f["choices"][0]["finish_reason"] for f in frames[:-1]] == [None] * (len(frames) - 2) + ["length"]
    assert frames[-1]["choices"] == []
    assert frames[-1]["usage"] == whole["usage"]
    assert len({frame["id"] for frame in frames}) == 1
    assert whole["object"] == frames[0]["object"] == "text_completion"


def test_a_streamed_chat_opens_with_the_role_and_ends_with_one_reason(client: httpx.Client) -> None:
    whole = chat(client, max_tokens=40).json()
    frames = frames_of(chat(client, max_tokens=40, stream=True))
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(frame["choices"][0]["delta"].get("content", "") for frame in frames)
    assert text == whole["choices"][0]["message"]["content"]
    assert [f["choices"][0]["finish_reason"] for f in frames][-1] == "length"
    assert sum(f["choices"][0]["finish_reason"] is not None for f in frames) == 1
    assert (whole["object"], frames[0]["object"]) == ("chat.completion", "chat.completion.chunk")
    assert all("usage" not in frame for frame in frames)


def test_a_stop_string_cuts_the_text_and_never_leaks(client: httpx.Client) -> None:
    text = completion(client, max_tokens=40).json()["choices"][0]["text"]
    for start, length in [(1, 3), (7, 1), (11, 9), (30, 4)]:
        stop = text[start : start + length]
        expected = text[: text.index(stop)]
        whole = completion(client, max_tokens=40, stop=[stop, "never in it"]).json()["choices"][0]
        assert whole == {"text": expected, "index": 0, "logprobs": None, "finish_reason": "stop"}
        frames = frames_of(completion(client, max_tokens=40, stop=stop, stream=True))
        assert "".join(frame["choices"][0]["text"] for frame in frames) == expected
        assert frames[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_stop_on_the_last_allowed_token_is_a_stop(client: httpx.Client) -> None:
    text = completion(client, max_tokens=6).json()["choices"][0]["text"]
    answer = completion(client, max_tokens=6, stop=text[-1]).json()["choices"][0]
    assert answer["finish_reason"] == "stop"


def test_max_completion_tokens_is_max_tokens_and_chat_runs_to_the_context_without(client: httpx.Client) -> None:
    limited = chat(client, max_tokens=None, max_completion_tokens=3).json()
    assert limited["usage"]["completion_tokens"] == 3
    open_ended = chat(client, max_tokens=None, ignore_eos=True).json()
    assert open_ended["usage"]["total_tokens"] == 2048
    assert open_ended["choices"][0]["finish_reason"] == "length"


def test_text_parts_and_the_developer_role_read_as_text_and_system(client: httpx.Client) -> None:
    plain = chat(client, messages=[{"role": "system", "content": "ab"}, {"role": "user", "content": "cd"}]).json()
    parts = [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]
    same = chat(client, messages=[{"role": "developer", "content": "ab"}, {"role": "user", "content": parts}]).json()
    assert same["choices"] == plain["choices"]
    assert same["usage"] == plain["usage"]


def test_health_says_ok_and_metrics_are_prometheus_text(client: httpx.Client) -> None:
    health = client.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "ok")
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "\nmlxcel_slots 288.0\n" in metrics.text
