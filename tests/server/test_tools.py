"""Tools and thinking through the official openai client: forced by a grammar, or the model's own choice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from tests.support.server_process import ServerProcess, serving
from tests.support.tools import SAID, SAID_CALL, WEATHER

MODEL = "tiny-llama"
QUESTION = ChatCompletionUserMessageParam(role="user", content="What is the weather?")
TOOLS: Any = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "get_time"}},
]
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
UNTHINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> Iterator[ServerProcess]:
    """A model whose template knows no tools."""
    with serving(tiny_model, "--alias", MODEL) as server:
        yield server


@pytest.fixture(scope="module")
def knowing(tool_model: Path) -> Iterator[ServerProcess]:
    with serving(tool_model, "--alias", MODEL) as server:
        yield server


@pytest.fixture(scope="module")
def saying(tool_model: Path) -> Iterator[ServerProcess]:
    """A model that thinks, speaks, and calls a tool twice."""
    program = ("-m", "tests.support.saying_server", SAID)
    with serving(tool_model, "--alias", MODEL, program=program) as server:
        yield server


@pytest.fixture(params=["plain", "knowing"])
def client(request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    with connect(request.getfixturevalue(request.param)) as client:
        yield client


def connect(server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60)


def ask(client: OpenAI, **options: Any) -> Any:
    """The one choice of a whole answer, from a prompt that begins no thinking."""
    options = {"extra_body": UNTHINKING, **options}
    (choice,) = client.chat.completions.create(model=MODEL, messages=[QUESTION], **options).choices
    return choice


def streamed(client: OpenAI, **options: Any) -> tuple[Any, list[Any]]:
    """The choice that the client accumulates from a stream, and the deltas it was made of."""
    deltas = []
    with client.chat.completions.stream(model=MODEL, messages=[QUESTION], extra_body=UNTHINKING, **options) as stream:
        for event in stream:
            if event.type == "chunk":
                deltas += [choice.delta for choice in event.chunk.choices]
        (choice,) = stream.get_final_completion().choices
    return choice, deltas


def called(choice: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []]


def assert_fits(name: str, arguments: Any) -> None:
    assert name in ("get_weather", "get_time")
    jsonschema.validate(arguments, WEATHER if name == "get_weather" else {"maxProperties": 0})


@pytest.mark.parametrize("seed", range(4))
def test_required_calls_fit_their_schemas_however_the_model_was_told(client: OpenAI, seed: int) -> None:
    choice = ask(client, tools=TOOLS, tool_choice="required", seed=seed)
    calls = called(choice)
    assert 1 <= len(calls) <= 16
    for name, arguments in calls:
        assert_fits(name, arguments)
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert len({call.id for call in choice.message.tool_calls}) == len(calls)


def test_a_named_tool_is_called_once_and_so_is_one_without_parallel_calls(client: OpenAI) -> None:
    for seed in range(3):
        ((name, arguments),) = called(ask(client, tools=TOOLS, tool_choice=NAMED, seed=seed))
        assert name == "get_weather"
        assert_fits(name, arguments)
        (_,) = called(ask(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed))


def test_of_allowed_tools_only_those_are_shown_and_forced(client: OpenAI) -> None:
    named: Any = [{"type": "function", "function": {"name": "get_time"}}]
    allowed: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}
    (only,) = [tool for tool in TOOLS if tool["function"]["name"] == "get_time"]
    chosen = ask(client, tools=TOOLS, tool_choice=allowed, parallel_tool_calls=False, seed=1)
    alone = ask(client, tools=[only], tool_choice="required", parallel_tool_calls=False, seed=1)
    assert called(chosen) == called(alone)
    assert [name for name, _ in called(chosen)] == ["get_time"]
    named[0]["function"]["name"] = "nobody"
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, tools=TOOLS, tool_choice=allowed)
    assert refusal.value.param == "tool_choice"


def test_a_streamed_call_is_the_whole_one_with_its_arguments_in_pieces(client: OpenAI) -> None:
    options: Any = {"tools": TOOLS, "tool_choice": NAMED, "temperature": 0}
    whole = ask(client, **options)
    choice, deltas = streamed(client, **options)
    assert called(choice) == called(whole)
    assert (choice.finish_reason, choice.message.content or None) == ("tool_calls", None)
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert [call.id is not None for call in calls] == [True] + [False] * (len(calls) - 1)
    assert calls[0].function.name == "get_weather" and calls[0].type == "function"
    assert sum(bool(call.function.arguments) for call in calls) > 3


MARKS = "<|im_end|><think>a</think></tool_call><|im_start|>"
MARKING: Any = {
    "type": "object",
    "properties": {"m": {"enum": [MARKS]}},
    "required": ["m"],
    "additionalProperties": False,
}


def test_forced_arguments_may_spell_special_tokens_and_markers(client: OpenAI) -> None:
    options: Any = {"tools": [{"type": "function", "function": {"name": "mark", "parameters": MARKING}}]}
    for choice in (
        ask(client, tool_choice="required", parallel_tool_calls=False, **options),
        streamed(client, tool_choice="required", parallel_tool_calls=False, **options)[0],
    ):
        assert called(choice) == [("mark", {"m": MARKS})]
        assert (choice.finish_reason, choice.message.content or None) == ("tool_calls", None)


def test_an_answer_that_fits_a_schema_may_spell_markers(client: OpenAI) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": MARKING}}
    for choice in (ask(client, response_format=schema), streamed(client, response_format=schema)[0]):
        assert json.loads(choice.message.content) == {"m": MARKS}
        assert choice.finish_reason == "stop" and not getattr(choice.message, "reasoning_content", None)


def test_forced_calls_that_reach_the_token_limit_end_with_length(client: OpenAI) -> None:
    endless: Any = [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "minProperties": 99}}}
    ]
    choice = ask(client, tools=endless, tool_choice="required", max_tokens=40)
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments.startswith("{")


def test_tool_choice_none_and_no_tools_give_the_same_text(client: OpenAI) -> None:
    options: Any = {"temperature": 0, "max_tokens": 20}
    assert ask(client, tools=TOOLS, tool_choice="none", **options).message == ask(client, **options).message


def test_a_conversation_with_calls_and_results_goes_on(client: OpenAI) -> None:
    first = ask(client, tools=TOOLS, tool_choice=NAMED)
    (call,) = first.message.tool_calls
    messages: Any = [
        QUESTION,
        first.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Rain."},
    ]
    with_history = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=5)
    without_call = client.chat.completions.create(model=MODEL, messages=[messages[0], messages[2]], max_tokens=5)
    assert with_history.choices[0].finish_reason == "length"
    assert with_history.usage is not None and without_call.usage is not None
    n_shown = with_history.usage.prompt_tokens - without_call.usage.prompt_tokens
    assert n_shown > 10, "the call is not shown to the model"


def test_a_template_that_knows_no_tools_leaves_no_choice_and_says_so(plain: ServerProcess) -> None:
    with connect(plain) as client:
        for choice in (openai.omit, "auto"):
            with pytest.raises(openai.BadRequestError, match="template knows no tools") as refused:
                ask(client, tools=TOOLS, tool_choice=choice)
            assert refused.value.param == "tools"


@pytest.mark.parametrize(
    ("parameters", "param", "reason"),
    [
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "tools[1].function.parameters", "Invalid type"),
        ({"type": "array"}, "tools[1].function.parameters", "arguments are an object"),
        ([], "tools[1].function.parameters", "JSON schema"),
    ],
)
def test_a_tool_whose_schema_cannot_be_followed_is_named(
    client: OpenAI, parameters: Any, param: str, reason: str
) -> None:
    wrong = {"type": "function", "function": {"name": "wrong", "parameters": parameters}}
    with pytest.raises(openai.BadRequestError, match=reason) as refused:
        ask(client, tools=[TOOLS[0], wrong], tool_choice="required")
    assert refused.value.param == param


def test_calls_of_the_models_own_are_told_from_its_content_and_thinking(saying: ServerProcess) -> None:
    expected = [("get_weather", {"city": "Oslo", "days": 2})] * 2
    with connect(saying) as client:
        whole = ask(client, tools=TOOLS)
        choice, deltas = streamed(client, tools=TOOLS)
    for got in (whole, choice):
        assert called(got) == expected
        assert got.finish_reason == "tool_calls"
        assert got.message.content == "\nOne moment."
    assert whole.message.reasoning_content == "\nI should look.\n"
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "\nI should look.\n"


def test_without_parallel_calls_the_models_answer_ends_with_its_first(saying: ServerProcess) -> None:
    with connect(saying) as client:
        choice = ask(client, tools=TOOLS, parallel_tool_calls=False)
    assert len(called(choice)) == 1 and choice.finish_reason == "tool_calls"


def test_where_no_tools_are_offered_a_call_is_text(saying: ServerProcess) -> None:
    with connect(saying) as client:
        for options in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            choice = ask(client, **options)
            assert choice.message.content == f"\nOne moment.{SAID_CALL}{SAID_CALL}"
            assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)


def test_a_schema_leaves_no_room_for_tools_that_are_offered(knowing: ServerProcess) -> None:
    with connect(knowing) as client, pytest.raises(openai.BadRequestError, match="leaves no room") as refused:
        ask(client, tools=TOOLS, response_format={"type": "json_object"})
    assert refused.value.param == "response_format"


def test_a_schema_is_followed_once_the_thinking_that_the_prompt_began_has_ended(knowing: ServerProcess) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    options: Any = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        "extra_body": {"chat_template_kwargs": {"enable_thinking": True}},
        "max_tokens": 30,
    }
    with connect(knowing) as client:
        thinking = ask(client, **options)
        done = ask(client, **{**options, "extra_body": UNTHINKING})
    assert (thinking.finish_reason, thinking.message.content) == ("length", "")
    assert thinking.message.reasoning_content
    assert done.finish_reason == "stop" and json.loads(done.message.content)["n"] in (1, 2)
