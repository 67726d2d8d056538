"""Text and tokens both ways, prompts as templates make them, and what the server says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.prompts import tokenizer_of
from tests.support.server_process import ServerProcess, serving, wait_for_metric
from tests.support.tiny_llama import make_tiny_llama
from tests.support.tiny_tokenizer import SPECIAL_TOKENS, TURN_END, TURN_START

END_ID = SPECIAL_TOKENS.index(TURN_END)
LONG = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def server(tool_model: Path) -> Iterator[ServerProcess]:
    with serving(tool_model, "--alias", "tiny", "--max-batch-size", "1", "--max-queue-depth", "1") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def ask(client: httpx.Client, path: str, **fields: Any) -> Any:
    answer = client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_both_spellings_give_what_the_tokenizer_gives(client: httpx.Client, tool_model: Path) -> None:
    for text in ("Hello", "", " été\n日本語", f"a{TURN_END}b"):
        ids = tokenizer_of(tool_model).encode(text)
        expected = {"tokens": ids, "count": len(ids), "max_model_len": 2048}
        assert ask(client, "/tokenize", content=text) == expected
        assert ask(client, "/tokenize", prompt=text, model="tiny") == expected
        assert ask(client, "/detokenize", tokens=ids) == {"content": text, "prompt": text}


def test_pieces_are_text_or_the_bytes_of_a_part_of_a_character(client: httpx.Client) -> None:
    text = "héllo 日"
    pieces = ask(client, "/tokenize", content=text, with_pieces=True)["tokens"]
    assert [piece["id"] for piece in pieces] == ask(client, "/tokenize", content=text)["tokens"]
    shown = [piece["piece"].encode() if isinstance(piece["piece"], str) else bytes(piece["piece"]) for piece in pieces]
    assert b"".join(shown) == text.encode()
    assert any(isinstance(piece["piece"], list) for piece in pieces)


def test_a_text_gets_the_bos_token_where_it_is_asked_for(tmp_path: Path) -> None:
    with serving(make_tiny_llama(tmp_path, adds_bos=True)) as server, server.client() as client:
        plain = ask(client, "/tokenize", content=f"a{TURN_END}")["tokens"]
        assert ask(client, "/tokenize", prompt=f"a{TURN_END}")["tokens"] == [3, *plain]
        assert ask(client, "/tokenize", content=f"a{TURN_END}", add_special=True)["tokens"] == [3, *plain]
        assert ask(client, "/tokenize", prompt=f"a{TURN_END}", add_special_tokens=False)["tokens"] == plain
        data = ask(client, "/tokenize", content=f"a{TURN_END}", add_special=True, parse_special=False)["tokens"]
        assert data[0] == 3 and END_ID not in data
        assert ask(client, "/detokenize", tokens=data[1:])["content"] == f"a{TURN_END}"


def test_a_conversation_is_tokenised_as_the_prompt_that_its_chat_has(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": f"Hello {TURN_END}"}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    for fields in ({"tools": tools}, {"chat_template_kwargs": {"enable_thinking": True}}, {}):
        tokens = ask(client, "/tokenize", messages=messages, **fields)
        chat = ask(client, "/v1/chat/completions", messages=messages, max_tokens=1, **fields)
        assert tokens["count"] == len(tokens["tokens"]) == chat["usage"]["prompt_tokens"]
        prompt = ask(client, "/apply-template", messages=messages, **fields)["prompt"]
        assert ask(client, "/detokenize", tokens=tokens["tokens"])["content"] == prompt
    assert prompt.startswith(f"{TURN_START}user\nHello {TURN_END}{TURN_END}\n{TURN_START}assistant\n")
    assert tokens["tokens"].count(END_ID) == 1
    assert ask(client, "/v1/messages/count_tokens", messages=messages) == {"input_tokens": tokens["count"]}
    response = ask(client, "/v1/responses", input=messages[0]["content"], max_output_tokens=1)
    assert response["usage"]["input_tokens"] == tokens["count"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "prompt": "a"}, "content"),
        ("/tokenize", {"content": 1}, "content"),
        ("/tokenize", {"content": "a", "add_special": True, "add_special_tokens": False}, "add_special_tokens"),
        ("/tokenize", {"content": "a", "tools": []}, "tools"),
        ("/tokenize", {"prompt": "a", "parse_special": False}, "parse_special"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "add_special": True}, "add_special"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": False}, None),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [5, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1024]}, "tokens[0]"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/apply-template", {}, "messages"),
        ("/apply-template", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("/v1/embeddings", {}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": ""}, "input"),
        ("/v1/embeddings", {"input": ["a", 1]}, "input"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "text"}, "encoding_format"),
        ("/v1/embeddings", {"input": "a"}, "model"),
        ("/v1/embeddings", {"input": [[1, 2], [3]]}, "model"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    client: httpx.Client, path: str, fields: dict[str, Any], param: str | None
) -> None:
    answer = client.post(path, json=fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == (param or list(fields)[-1])
    assert "nothing was " in answer.json()["error"]["message"]


@pytest.mark.parametrize("n_words", [9_000, 120_000])
def test_a_text_is_counted_however_much_longer_than_the_context_it_is(client: httpx.Client, n_words: int) -> None:
    text = "the " * n_words
    counted = ask(client, "/tokenize", content=text)
    assert counted["count"] == len(counted["tokens"]) > n_words > counted["max_model_len"]
    messages = [{"role": "user", "content": text}]
    assert text in ask(client, "/apply-template", messages=messages)["prompt"]
    n_tokens = ask(client, "/tokenize", messages=messages)["count"]
    assert n_tokens > counted["count"] - 2
    assert ask(client, "/v1/messages/count_tokens", messages=messages) == {"input_tokens": n_tokens}


@pytest.mark.parametrize("n_words", [9_000, 120_000])
@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/v1/completions", "prompt"),
        ("/v1/chat/completions", "messages"),
        ("/v1/messages", "messages"),
        ("/v1/responses", "input"),
    ],
)
def test_what_is_longer_than_the_context_is_refused_by_the_field_it_came_in(
    client: httpx.Client, path: str, param: str, n_words: int
) -> None:
    text = "the " * n_words
    said = [{"role": "user", "content": text}] if param == "messages" else text
    answer = client.post(path, json={param: said, "max_tokens": 5})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert "nothing was done" in error["message"]
    assert (error["param"], error["code"]) == (param, "context_length_exceeded")


def test_another_model_is_404_here_too(client: httpx.Client) -> None:
    for path, fields in {"/tokenize": {"prompt": "a"}, "/v1/embeddings": {"input": "a"}}.items():
        answer = client.post(path, json={"model": "other", **fields})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_slots_say_who_runs_and_who_waits_and_when_there_is_no_room(client: httpx.Client) -> None:
    idle = client.get("/slots?fail_on_no_slot=1").json()
    assert idle["slots"] == []
    assert (idle["n_slots"], idle["n_slots_used"], idle["n_rows"], idle["is_batching_exact"]) == (2, 0, 1, True)
    assert idle["served"] == "served one row at a time"
    with client.stream("POST", "/v1/completions", json=LONG) as running:
        lines = running.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        with client.stream("POST", "/v1/completions", json={**LONG, "max_tokens": 7}):
            wait_for_metric(client, "mlxcel_queue_depth", 1)
            slots = client.get("/slots").json()["slots"]
            assert [(slot["state"], slot["is_processing"], slot["max_tokens"]) for slot in slots] == [
                ("decoding", True, 2000),
                ("queued", False, 7),
            ]
            assert f"cmpl-{slots[0]['id']}" == first["id"]
            assert slots[0]["n_decoded"] > 0 and slots[1]["n_decoded"] == 0
            assert slots[0]["n_prefilled"] == slots[0]["n_prompt"] and slots[1]["n_prefilled"] == 0
            full = client.get("/slots?fail_on_no_slot=1")
            assert (full.status_code, full.json()["error"]["code"]) == (503, "server_busy")
            assert int(full.headers["retry-after"]) >= 1
    wait_for_metric(client, "mlxcel_slots_used", 0)
    assert client.get("/slots?fail_on_no_slot=true").status_code == 200


def test_a_parameter_of_slots_that_is_neither_on_nor_off_is_refused(client: httpx.Client) -> None:
    answer = client.get("/slots?fail_on_no_slot=maybe")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "fail_on_no_slot")


def test_version_names_the_packages_that_an_answer_depends_on(client: httpx.Client) -> None:
    packages = {name: metadata.version(name) for name in ("mlxcel", "mlx", "mlx-lm")}
    assert client.get("/version").json() == {"version": packages["mlxcel"], "packages": packages}
