"""Answers that must fit a schema, from a model that knows nothing: through the official openai client."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam
from pydantic import BaseModel, Field

from tests.support.server_process import ServerProcess, serving

MODEL = "tiny-llama"
QUESTION = ChatCompletionUserMessageParam(role="user", content="Describe the licence.")
VALUES = ["red", "grün", 'a"b', "", 7, -1.5, True, None, [1], {"k": "v"}]


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with serving(tiny_model, "--alias", MODEL) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        yield client


def schema_format(schema: Any, *, strict: bool = True) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}


def bounded_schema(draw: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema whose values are bounded: maxLength, maxItems, enum, minimum and maximum."""
    kinds = ["string", "integer", "enum", "boolean"] + ["object", "array"] * (depth < 3)
    kind = draw.choice(kinds) if depth else "object"
    if kind == "string":
        return {"type": "string", "maxLength": draw.randint(0, 12)}
    if kind == "integer":
        lowest = draw.randint(-1000, 1000)
        return {"type": "integer", "minimum": lowest, "maximum": lowest + draw.randint(0, 5000)}
    if kind == "enum":
        return {
            "enum": draw.sample(["red", "grün", 'a"b', "", 7, -1.5, True, None, [1], {"k": "v"}], draw.randint(1, 5))
        }
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "array":
        n_least = draw.randint(0, 2)
        items = bounded_schema(draw, depth + 1)
        return {"type": "array", "items": items, "minItems": n_least, "maxItems": n_least + draw.randint(0, 2)}
    names = draw.sample(["id", "name", "größe", "two words", "x"], draw.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: bounded_schema(draw, depth + 1) for name in names},
        "required": draw.sample(names, draw.randint(0, len(names))),
        "additionalProperties": False,
    }


def test_fifty_bounded_schemas_at_once_give_answers_that_all_fit_and_stop(server: ServerProcess) -> None:
    draw = random.Random(50)
    schemas = [bounded_schema(draw) for _ in range(50)]
    assert len({json.dumps(schema) for schema in schemas}) >= 48
    for word in ("maxLength", "maxItems", "enum", "minimum", "maximum"):
        assert sum(word in json.dumps(schema) for schema in schemas) >= 10

    async def ask(client: AsyncOpenAI, seed: int) -> tuple[str, str | None]:
        options: Any = {"seed": seed, "response_format": schema_format(schemas[seed], strict=seed % 3 > 0)}
        if seed % 2:
            whole = await client.chat.completions.create(model=MODEL, messages=[QUESTION], **options)
            return whole.choices[0].message.content or "", whole.choices[0].finish_reason
        stream = await client.chat.completions.create(model=MODEL, messages=[QUESTION], stream=True, **options)
        choices = [choice async for chunk in stream for choice in chunk.choices]
        return "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason

    async def ask_all() -> list[tuple[str, str | None]]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120) as client:
            return await asyncio.gather(*(ask(client, seed) for seed in range(len(schemas))))

    answers = asyncio.run(ask_all())
    for (text, finish), schema in zip(answers, schemas, strict=True):
        assert finish == "stop", (text, schema)
        value = json.loads(text)
        jsonschema.validate(value, schema)
        assert not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", text)), f"space between tokens: {text}"


SPELLING: list[tuple[dict[str, Any], str]] = [
    ({"const": "<|im_end|>"}, '"<|im_end|>"'),
    ({"enum": ["<|im_end|>x"]}, '"<|im_end|>x"'),
    ({"type": "string", "pattern": r"^<\|im_end\|>$"}, '"<|im_end|>"'),
    ({"const": "a<|im_start|>b"}, '"a<|im_start|>b"'),
    ({"const": {"<|endoftext|>": 1}}, '{"<|endoftext|>":1}'),
]


@pytest.mark.parametrize(("schema", "text"), SPELLING)
def test_a_schema_may_spell_the_models_special_tokens(client: OpenAI, schema: Any, text: str) -> None:
    options: Any = {"model": MODEL, "messages": [QUESTION], "response_format": schema_format(schema)}
    whole = client.chat.completions.create(**options).choices[0]
    assert (whole.message.content, whole.finish_reason) == (text, "stop")
    stream = client.chat.completions.create(stream=True, **options)
    choices = [choice for chunk in stream for choice in chunk.choices]
    assert ("".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason) == (text, "stop")


@pytest.mark.parametrize("kind", ["schema", "object"])
def test_an_unbounded_schema_ends_with_length_and_what_there_is_is_its_beginning(client: OpenAI, kind: str) -> None:
    strings = {"type": "array", "items": {"type": "string", "minLength": 3}, "minItems": 200}
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[QUESTION],
        max_completion_tokens=64,
        temperature=0,
        response_format=schema_format(strings) if kind == "schema" else {"type": "json_object"},
    )
    assert answer.choices[0].finish_reason == "length"
    assert (answer.choices[0].message.content or "")[:1] == ("[" if kind == "schema" else "{")
    assert answer.usage is not None and answer.usage.completion_tokens == 64


def test_a_greedy_answer_is_the_same_alone_streamed_and_beside_others(server: ServerProcess, client: OpenAI) -> None:
    schema = {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 3, "maxItems": 3}
    options: Any = {"temperature": 0, "response_format": schema_format(schema)}
    alone = client.chat.completions.create(model=MODEL, messages=[QUESTION], **options).choices[0].message.content

    async def ask_all() -> list[str | None]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60) as others:
            free = [others.chat.completions.create(model=MODEL, messages=[QUESTION], max_tokens=40) for _ in range(3)]
            same = [others.chat.completions.create(model=MODEL, messages=[QUESTION], **options) for _ in range(3)]
            answers = await asyncio.gather(*(ask for pair in zip(free, same, strict=True) for ask in pair))
            return [answer.choices[0].message.content for answer in answers[1::2]]

    assert asyncio.run(ask_all()) == [alone] * 3
    stream = client.chat.completions.create(model=MODEL, messages=[QUESTION], stream=True, **options)
    assert "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices) == alone


class Clause(BaseModel):
    number: int = Field(ge=1, le=40)
    kind: Literal["grant", "notice"]


class Licence(BaseModel):
    clauses: list[Clause] = Field(max_length=2)


def test_the_clients_own_models_are_parsed(client: OpenAI) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=[QUESTION], response_format=Licence, seed=3)
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Licence)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strin"}, "Invalid type"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "pattern": "("}, "regex"),
        (False, "JSON schema"),
        ({"$ref": "#"}, "it only refers to itself; nothing was done"),
        ({"enum": ["x" * 70_000]}, "bytes"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_and_the_server_goes_on(
    client: OpenAI, schema: Any, reason: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=reason) as refused:
            client.chat.completions.create(
                model=MODEL, messages=[QUESTION], response_format=schema_format(schema), stream=stream
            )
        assert refused.value.param == "response_format"
    assert client.chat.completions.create(model=MODEL, messages=[QUESTION], max_tokens=1).choices


def test_a_schema_that_turns_out_too_complex_ends_its_own_answer_as_the_callers_error(client: OpenAI) -> None:
    properties = {f"k{index}": {"type": "integer"} for index in range(1500)}
    schema = {"type": "object", "properties": properties, "required": ["k1499"]}
    with pytest.raises(openai.BadRequestError, match="more that may come than can be kept") as refused:
        client.chat.completions.create(model=MODEL, messages=[QUESTION], response_format=schema_format(schema))
    assert (refused.value.param, refused.value.code) == ("response_format", "schema_too_complex")
    assert "others went on" in refused.value.message and "recursive" not in refused.value.message
    assert client.chat.completions.create(model=MODEL, messages=[QUESTION], max_tokens=1).choices


def test_without_llguidance_a_schema_is_refused_with_the_reason_and_everything_else_is_served(
    tiny_model: Path, tmp_path: Path
) -> None:
    without = tmp_path / "without_llguidance.py"
    without.write_text(
        "import sys\nsys.modules['llguidance'] = None\nfrom mlxcel.__main__ import main\nmain()\n", encoding="utf-8"
    )
    with (
        serving(tiny_model, "--alias", MODEL, program=[str(without)]) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60) as client,
    ):
        tool: Any = {"type": "function", "function": {"name": "f"}}
        for fields, param in (
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"tools": [tool], "tool_choice": "required"}, "tools[0].function.parameters"),
        ):
            with pytest.raises(openai.BadRequestError, match="llguidance is not installed") as refused:
                client.chat.completions.create(model=MODEL, messages=[QUESTION], **fields)
            assert refused.value.param == param
        assert client.chat.completions.create(model=MODEL, messages=[QUESTION], max_tokens=1).choices
