"""Stop strings over HTTP: streamed, whole, and the full text cut at the first match are the same, 500 times.

The texts are the tiny model's: words as it makes them, and marks of several bytes that a grammar makes it write,
since random weights write no UTF-8 of their own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx

from tests.support.server_process import ServerProcess

N_TEXTS, CASES_PER_TEXT = 50, 10
MARKS = "🙂👩‍🚀漢字é\u0301\u0308ñ \n"
SCHEMA = {"type": "string", "pattern": "^(🙂|👩‍🚀|漢|字|e\u0301|a\u0308|ñ| |x){3,6}$"}


class Text(NamedTuple):
    """What the server says to this body without stops."""

    path: str
    body: dict[str, Any]
    text: str


class Said(NamedTuple):
    text: str
    finish_reason: str


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    for seed in range(N_TEXTS):
        if seed % 2:
            yield "/v1/completions", {"prompt": "Licence", "max_tokens": 14, "seed": seed, "top_k": 20}
        else:
            schema = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
            messages = [{"role": "user", "content": "Marks"}]
            yield "/v1/chat/completions", {"messages": messages, "seed": seed, "response_format": schema}


def say(client: httpx.Client, path: str, body: dict[str, Any]) -> Said:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    return Said(choice["text"] if "text" in choice else choice["message"]["content"], choice["finish_reason"])


def say_streamed(client: httpx.Client, path: str, body: dict[str, Any]) -> Said:
    answer = client.post(path, json={**body, "stream": True})
    *frames, done, _ = answer.text.split("\n\n")
    assert done == "data: [DONE]"
    choices = [json.loads(frame.removeprefix("data: "))["choices"][0] for frame in frames]
    pieces = [choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices]
    assert not any("\ufffd" in piece for piece in pieces), "a character was shown before it was whole"
    return Said("".join(pieces), choices[-1]["finish_reason"])


def stops_for(draw: random.Random, text: str) -> list[str]:
    """Most from the text itself: whole words, parts of characters' clusters, the start of a match that fails."""

    def one() -> str:
        start = draw.randrange(len(text))
        piece = text[start : start + draw.randint(1, 6)]
        kind = draw.random()
        if kind < 0.6:
            return piece
        if kind < 0.8:
            return piece + draw.choice("Zqü🙃")
        return "".join(draw.choices(MARKS + "ethe ", k=draw.randint(1, 3)))

    return [one() for _ in range(draw.randint(1, 4))]


def cut(text: str, stops: list[str]) -> str:
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def test_500_stops_cut_streamed_and_whole_text_alike_and_nothing_leaks(tiny_server: ServerProcess) -> None:
    with tiny_server.client() as client, ThreadPoolExecutor(16) as pool:
        texts = [
            Text(path, body, said.text)
            for (path, body), said in zip(bodies(), pool.map(lambda one: say(client, *one), bodies()), strict=True)
        ]
        assert sum(not text.text.isascii() for text in texts) >= N_TEXTS // 2
        assert not any("\ufffd" in text.text for text in texts)
        draw = random.Random(500)
        cases = [(text, stops_for(draw, text.text)) for text in texts for _ in range(CASES_PER_TEXT)]

        def check(case: tuple[Text, list[str]]) -> bool:
            text, stops = case
            body = {**text.body, "stop": stops}
            whole, streamed = say(client, text.path, body), say_streamed(client, text.path, body)
            expected = cut(text.text, stops)
            assert (whole.text, streamed) == (expected, whole), stops
            is_cut = any(stop in text.text for stop in stops)
            assert not is_cut or whole.finish_reason == "stop"
            return is_cut

        n_cut = sum(pool.map(check, cases))
    assert len(cases) == 500 and 300 < n_cut < 490
