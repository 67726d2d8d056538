"""Log-probabilities and biases over HTTP are those of the model in numpy; their bytes are the text's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
import numpy.typing as npt
import pytest
from openai import OpenAI

from mlxcel.model.vocabulary import Vocabulary
from tests.support.numpy_llama import NumpyLlama, NumpySequence
from tests.support.prompts import tokenizer_of

PROMPT = "The Licensor grants"
N_TOKENS = 12
Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def vocabulary(tiny_model: Path) -> Vocabulary:
    return tokenizer_of(tiny_model).vocabulary


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> NumpyLlama:
    return NumpyLlama(tiny_model)


def greedy(
    model: NumpyLlama, prompt: list[int], n_tokens: int, bias: dict[int, float] | None = None
) -> tuple[list[int], Floats]:
    """The tokens of an answer, and the log-probabilities after each token of prompt and answer [T, V]."""
    sequence = NumpySequence(model)
    logprobs = list(sequence.logprobs(prompt))
    tokens: list[int] = []
    for _ in range(n_tokens):
        scores = logprobs[-1].copy()
        for token, value in (bias or {}).items():
            scores[token] += value
        tokens.append(int(scores.argmax()))
        logprobs.append(sequence.logprobs(tokens[-1:])[0])
    return tokens, np.array(logprobs)


def post(client: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    answer = client.post(path, json={"temperature": 0, "max_tokens": N_TOKENS, "ignore_eos": True, **fields})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def complete(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    choice: dict[str, Any] = post(client, "/v1/completions", prompt=PROMPT, **fields)["choices"][0]
    return choice


def most_likely(logprobs: Floats, vocabulary: Vocabulary, n: int) -> dict[str, float]:
    best = np.argsort(-logprobs, kind="stable")[:n].tolist()
    return {vocabulary.bytes_of(token).decode(): float(logprobs[token]) for token in best}


def test_a_completions_logprobs_are_the_models_own(
    client: httpx.Client, model: NumpyLlama, vocabulary: Vocabulary
) -> None:
    prompt = model.encode(PROMPT)
    tokens, logprobs = greedy(model, prompt, N_TOKENS)
    choice = complete(client, logprobs=5)
    report = choice["logprobs"]
    assert report["tokens"] == [vocabulary.bytes_of(token).decode() for token in tokens]
    of_answer = logprobs[len(prompt) - 1 : -1]
    expected = [float(one[token]) for one, token in zip(of_answer, tokens, strict=True)]
    assert report["token_logprobs"] == pytest.approx(expected, abs=1e-3) and max(report["token_logprobs"]) <= 0
    for shown, one in zip(report["top_logprobs"], of_answer, strict=True):
        assert shown == pytest.approx(most_likely(one, vocabulary, 5), abs=1e-3)
        assert list(shown.values()) == sorted(shown.values(), reverse=True) and max(shown.values()) <= 0
    for token, offset in zip(report["tokens"][1:], report["text_offset"][1:], strict=True):
        assert choice["text"][offset:].startswith(token)
    assert report["text_offset"][0] == 0


def test_without_alternatives_the_chosen_token_is_reported_all_the_same(client: httpx.Client) -> None:
    report = complete(client, logprobs=0, temperature=1, seed=5)["logprobs"]
    assert [list(shown.items()) for shown in report["top_logprobs"]] == [
        [pair] for pair in zip(report["tokens"], report["token_logprobs"], strict=True)
    ]
    assert complete(client)["logprobs"] is None


def test_a_bias_moves_the_choice_as_in_numpy_and_leaves_the_reported_logprobs_the_models(
    client: httpx.Client, model: NumpyLlama, vocabulary: Vocabulary
) -> None:
    prompt = model.encode(PROMPT)
    plain, _ = greedy(model, prompt, N_TOKENS)
    bias = {plain[0]: -100.0, plain[3]: -2.5, 300: 1.5, 301: 3.0}
    tokens, logprobs = greedy(model, prompt, N_TOKENS, bias)
    report = complete(client, logprobs=1, logit_bias={str(token): value for token, value in bias.items()})["logprobs"]
    assert report["tokens"] == [vocabulary.bytes_of(token).decode() for token in tokens] and tokens != plain
    expected = [float(one[token]) for one, token in zip(logprobs[len(prompt) - 1 :], tokens, strict=False)]
    assert report["token_logprobs"] == pytest.approx(expected, abs=1e-3)


def test_a_bias_of_100_makes_every_token_that_one(client: httpx.Client, vocabulary: Vocabulary) -> None:
    token = next(token for token in range(300, 1024) if vocabulary.bytes_of(token).startswith(b" "))
    text = complete(client, logit_bias={str(token): 100}, max_tokens=4)["text"]
    assert text == (vocabulary.bytes_of(token).decode() * 4).removeprefix(" ")


def test_an_echo_is_the_prompt_before_the_answer_with_the_prompts_logprobs(
    client: httpx.Client, model: NumpyLlama, vocabulary: Vocabulary
) -> None:
    prompt = model.encode(PROMPT)
    tokens, logprobs = greedy(model, prompt, N_TOKENS)
    choice = complete(client, echo=True, logprobs=3)
    report = choice["logprobs"]
    everything = [*prompt, *tokens]
    assert choice["text"] == b"".join(map(vocabulary.bytes_of, everything)).decode()
    assert choice["text"].startswith(PROMPT)
    assert report["tokens"] == [vocabulary.bytes_of(token).decode() for token in everything]
    assert (report["token_logprobs"][0], report["top_logprobs"][0]) == (None, None)
    expected = [float(one[token]) for one, token in zip(logprobs, everything[1:], strict=False)]
    assert report["token_logprobs"][1:] == pytest.approx(expected, abs=1e-3)
    for shown, one in zip(report["top_logprobs"][1:], logprobs, strict=False):
        assert shown.items() >= {key: shown[key] for key in most_likely(one, vocabulary, 3)}.items()
    for token, offset in zip(report["tokens"], report["text_offset"], strict=True):
        assert choice["text"][offset:].startswith(token)


def test_a_token_after_a_broken_character_stands_after_it(client: httpx.Client) -> None:
    prompt = [68, 176, 257, 68, 176, 69]
    choice = post(client, "/v1/completions", prompt=prompt, echo=True, logprobs=0, max_tokens=2)["choices"][0]
    assert choice["text"].startswith("a\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}b")
    assert choice["logprobs"]["text_offset"][:6] == [0, 1, 1, 2, 3, 4]


def test_an_echo_may_be_all_that_is_wanted(client: httpx.Client, model: NumpyLlama) -> None:
    n_prompt = len(model.encode(PROMPT))
    for fields in ({"prompt": PROMPT}, {"prompt": model.encode(PROMPT)}):
        body = post(client, "/v1/completions", **fields, echo=True, logprobs=1, max_tokens=0)
        (choice,) = body["choices"]
        assert (choice["text"], choice["finish_reason"]) == (PROMPT, "length")
        assert len(choice["logprobs"]["tokens"]) == n_prompt
        assert body["usage"]["completion_tokens"] == 0 and body["usage"]["prompt_tokens"] == n_prompt
        stream = client.post(
            "/v1/completions", json={**fields, "echo": True, "logprobs": 1, "max_tokens": 0, "stream": True}
        )
        assert stream.text.count("data: ") == 2, "a chunk and [DONE]"


def test_an_answer_after_an_echo_keeps_the_space_that_it_begins_without_alone(
    client: httpx.Client, vocabulary: Vocabulary
) -> None:
    token = next(token for token in range(300, 1024) if vocabulary.bytes_of(token).startswith(b" "))
    word = vocabulary.bytes_of(token).decode()
    fields: dict[str, Any] = {"logit_bias": {str(token): 100}, "max_tokens": 2, "logprobs": 0}
    alone, after = complete(client, **fields), complete(client, **fields, echo=True)
    assert (alone["text"], after["text"]) == ((word * 2)[1:], PROMPT + word * 2)
    assert alone["logprobs"]["text_offset"] == [0, len(word) - 1]
    assert after["logprobs"]["text_offset"][-2:] == [len(PROMPT), len(PROMPT) + len(word)]


QUESTION: Any = {"role": "user", "content": "Which mark?"}
MARKS = {"type": "string", "pattern": "^[🙂漢é]{4}$"}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "marks", "schema": MARKS}}


def test_a_chats_tokens_have_the_bytes_of_its_text_also_inside_characters(openai_client: OpenAI) -> None:
    def ask(stream: bool) -> Any:
        return openai_client.chat.completions.create(
            model="tiny", messages=[QUESTION], response_format=FORMAT, logprobs=True, top_logprobs=20, seed=3,
            stream=stream,
        )  # fmt: skip

    whole = ask(False).choices[0]
    content = whole.logprobs.content
    assert bytes(byte for one in content for byte in one.bytes) == whole.message.content.encode()
    parts = [one for one in content if one.token.startswith("bytes:")]
    assert parts and all(one.token == "bytes:" + "".join(f"\\x{byte:02x}" for byte in one.bytes) for one in parts)
    for one in content:
        values = [other.logprob for other in one.top_logprobs]
        assert len(values) == 20 and values == sorted(values, reverse=True) and max(values) <= 0 and one.logprob <= 0
    with ask(True) as stream:
        chunks = [chunk.choices[0] for chunk in stream if chunk.choices]
    assert [one for chunk in chunks if chunk.logprobs for one in chunk.logprobs.content] == content
    assert "".join(chunk.delta.content or "" for chunk in chunks) == whole.message.content
    assert not any("\ufffd" in (chunk.delta.content or "") for chunk in chunks)


def test_what_a_stop_string_hides_is_not_reported_either(client: httpx.Client) -> None:
    plain = complete(client, logprobs=0, max_tokens=40)
    stop = plain["text"][20:24]
    cut = plain["text"].index(stop)
    for stream in (False, True):
        answer = client.post(
            "/v1/completions",
            json={"prompt": PROMPT, "temperature": 0, "max_tokens": 40, "logprobs": 0, "stop": stop, "stream": stream},
        )
        if stream:
            choices = [httpx.Response(200, text=line[6:]).json()["choices"][0] for line in data_lines(answer.text)]
            tokens = [token for one in choices if one["logprobs"] for token in one["logprobs"]["tokens"]]
        else:
            tokens = answer.json()["choices"][0]["logprobs"]["tokens"]
        expected = [
            token
            for token, offset in zip(plain["logprobs"]["tokens"], plain["logprobs"]["text_offset"], strict=True)
            if offset < cut
        ]
        assert tokens == expected


def data_lines(stream: str) -> list[str]:
    lines = [line for line in stream.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return lines[:-1]


def test_reports_are_as_the_document_describes_them(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    message = {"messages": [QUESTION], "top_logprobs": 2, "logprobs": True}
    for path, fields in (
        ("/v1/completions", {"prompt": PROMPT, "echo": True, "logprobs": 2}),
        ("/v1/chat/completions", message),
    ):
        schema = document["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        body = post(client, path, **fields)
        jsonschema.validate(body, {**schema, "components": document["components"]})
        assert body["choices"][0]["logprobs"]
