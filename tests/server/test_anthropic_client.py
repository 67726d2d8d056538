"""The official anthropic client against a real server: its calls, its streams, its error classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import jsonschema
import pytest
from anthropic import Anthropic

from tests.support.server_process import ServerProcess, serving, wait_for_metric
from tests.support.tools import WEATHER

MODEL = "tiny-llama"
QUESTION: Any = {"role": "user", "content": "Who may reproduce the Work?"}
TOOLS: Any = [
    {"name": "get_weather", "description": "Weather.", "input_schema": WEATHER},
    {"name": "get_time", "input_schema": {"type": "object"}},
]
NO_THINKING: Any = {"type": "disabled"}


@pytest.fixture
def client(tool_server: ServerProcess) -> Iterator[Anthropic]:
    with connect(tool_server) as client:
        yield client


def connect(server: ServerProcess) -> Anthropic:
    return Anthropic(base_url=server.url, api_key="unused", max_retries=0, timeout=60)


def fields_of(options: dict[str, Any]) -> Any:
    """Sampling goes as extra fields: the newest clients have none of their own."""
    extra = {name: options.pop(name) for name in ("temperature", "ignore_eos") if name in options}
    return {"messages": [QUESTION], "max_tokens": 20, "thinking": NO_THINKING, "extra_body": extra, **options}


def ask(client: Anthropic, **options: Any) -> anthropic.types.Message:
    message: anthropic.types.Message = client.messages.create(model=MODEL, **fields_of(options))
    return message


def streamed(client: Anthropic, **options: Any) -> tuple[anthropic.types.Message, list[str]]:
    """The message that the client accumulates, and the types of the events it was made of."""
    with client.messages.stream(model=MODEL, **fields_of(options)) as stream:
        kinds: list[str] = [event.type for event in stream]
        return stream.get_final_message(), kinds


def blocks_of(message: anthropic.types.Message) -> list[dict[str, Any]]:
    """Content blocks without the ids, which are drawn at random."""
    fields = {"text", "thinking", "name", "input", "type"}
    return [block.model_dump(include=fields, exclude_none=True) for block in message.content]


def test_a_message_has_text_a_reason_and_counts(client: Anthropic) -> None:
    message = ask(client, temperature=0)
    assert (message.type, message.role, message.model, message.stop_reason) == (
        "message",
        "assistant",
        MODEL,
        "max_tokens",
    )
    (block,) = message.content
    assert block.type == "text" and block.text
    assert message.usage.output_tokens == 20
    assert (
        message.usage.input_tokens
        == client.messages.count_tokens(model=MODEL, messages=[QUESTION], thinking=NO_THINKING).input_tokens
    )


def test_a_streamed_message_is_the_whole_one(client: Anthropic) -> None:
    whole = ask(client, temperature=0)
    message, kinds = streamed(client, temperature=0)
    assert blocks_of(message) == blocks_of(whole)
    assert (message.stop_reason, message.usage) == (whole.stop_reason, whole.usage)
    raw = [kind for kind in kinds if kind not in ("text", "thinking", "input_json")]
    assert raw[:2] == ["message_start", "content_block_start"]
    assert raw[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_the_model_is_listed_and_found_by_id(client: Anthropic) -> None:
    (model,) = client.models.list()
    assert (model.id, model.type, model.display_name) == (MODEL, "model", MODEL)
    assert client.models.retrieve(MODEL) == model and model.created_at.tzinfo is not None


def test_a_stop_sequence_is_named_and_not_shown(client: Anthropic) -> None:
    (whole,) = blocks_of(ask(client, temperature=0, max_tokens=40))
    stop = whole["text"][10:13]
    expected = whole["text"][: whole["text"].index(stop)]
    for message in (
        ask(client, temperature=0, max_tokens=40, stop_sequences=[stop]),
        streamed(client, temperature=0, max_tokens=40, stop_sequences=[stop])[0],
    ):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
        assert "".join(block["text"] for block in blocks_of(message)) == expected


def test_system_is_read_at_the_top_and_in_the_middle(client: Anthropic) -> None:
    def n_tokens(**fields: Any) -> int:
        return client.messages.count_tokens(model=MODEL, **{"messages": [QUESTION], **fields}).input_tokens

    blocks: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert n_tokens(system="Be brief.") == n_tokens(system=blocks) > n_tokens()
    middle: Any = [QUESTION, {"role": "system", "content": "Be brief."}, QUESTION]
    assert n_tokens(messages=middle) > n_tokens(messages=[QUESTION, QUESTION]) > n_tokens()
    assert ask(client, messages=middle, system="Be kind.").content


@pytest.mark.parametrize(
    "choice",
    [{"type": "any"}, {"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_weather"}],
)
def test_forced_tools_are_called_with_input_that_fits_streamed_or_not(client: Anthropic, choice: Any) -> None:
    options: Any = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 1000, "temperature": 0}
    whole = ask(client, **options)
    message, _ = streamed(client, **options)
    assert blocks_of(message) == blocks_of(whole)
    assert whole.stop_reason == message.stop_reason == "tool_use"
    assert choice == {"type": "any"} or len(whole.content) == 1
    for block in whole.content:
        assert block.type == "tool_use"
        jsonschema.validate(block.input, WEATHER if block.name == "get_weather" else {"type": "object"})
        assert choice["type"] == "any" or block.name == "get_weather"


def test_thinking_text_and_calls_of_the_models_own_are_blocks_of_their_own(saying_server: ServerProcess) -> None:
    call = {"type": "tool_use", "name": "get_weather", "input": {"city": "Oslo", "days": 2}}
    expected = [
        {"type": "thinking", "thinking": "\nI should look.\n"},
        {"type": "text", "text": "\nOne moment."},
        call,
        call,
        {"type": "text", "text": " Bye."},
    ]
    with connect(saying_server) as client:
        for message in (
            ask(client, tools=TOOLS, max_tokens=500),
            streamed(client, tools=TOOLS, max_tokens=500)[0],
        ):
            assert blocks_of(message) == expected
            assert message.stop_reason == "tool_use"


def test_an_answer_that_stops_at_once_is_an_empty_text_whole_or_streamed(saying_server: ServerProcess) -> None:
    with connect(saying_server) as client:
        options: Any = {"max_tokens": 20, "stop_sequences": ["<think>"]}
        for message in (ask(client, **options), streamed(client, **options)[0]):
            assert blocks_of(message) == [{"type": "text", "text": ""}]
            assert message.stop_sequence == "<think>"


@pytest.mark.parametrize("limit", [1, 6])
def test_a_forced_call_that_is_cut_before_its_name_is_whole_is_text_whole_or_streamed(
    client: Anthropic, limit: int
) -> None:
    options: Any = {"tools": TOOLS, "tool_choice": {"type": "any"}, "max_tokens": limit, "temperature": 0}
    whole = ask(client, **options)
    message, _ = streamed(client, **options)
    assert blocks_of(message) == blocks_of(whole)
    (block,) = whole.content
    assert block.type == "text" and block.text and whole.stop_reason == "max_tokens"


def test_a_conversation_goes_on_with_the_clients_own_blocks_and_a_result(client: Anthropic) -> None:
    first = ask(client, tools=TOOLS, tool_choice={"type": "tool", "name": "get_weather"}, max_tokens=200)
    (call,) = first.content
    assert call.type == "tool_use"
    messages: Any = [
        QUESTION,
        {"role": "assistant", "content": first.content},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": [{"type": "text", "text": "No such city."}],
                    "is_error": True,
                },
                {"type": "text", "text": "Try another."},
            ],
        },
    ]
    assert ask(client, messages=messages, tools=TOOLS).content


def test_a_schema_is_followed(client: Anthropic) -> None:
    config: Any = {"format": {"type": "json_schema", "schema": WEATHER}}
    (block,) = blocks_of(ask(client, output_config=config, max_tokens=200))
    jsonschema.validate(json.loads(block["text"]), WEATHER)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [QUESTION, {"role": "assistant", "content": "So"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}, QUESTION]},
            "messages[0].content[0].name",
        ),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10_000}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "some"}}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        (
            {"tools": [{"name": "f", "input_schema": {"type": "string"}}], "tool_choice": {"type": "any"}},
            "tools[0].input_schema",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
            "output_config.format.schema",
        ),
    ],
)
def test_a_bad_request_is_anthropics_error_and_names_the_field(
    client: Anthropic, fields: dict[str, Any], param: str
) -> None:
    for call in (ask, streamed):
        with pytest.raises(anthropic.BadRequestError, match="nothing was done") as refused:
            call(client, **fields)
        body: Any = refused.value.body
        assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
        assert body["error"]["param"] == param


def test_other_errors_have_the_same_envelope(client: Anthropic, tool_server: ServerProcess) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="another", messages=[QUESTION], max_tokens=5)
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with tool_server.client() as http:
        assert http.get("/v1/messages").json()["type"] == "error"
        assert http.post("/v1/messages", content=b"{").json()["error"]["type"] == "invalid_request_error"
        body = {"model": MODEL, "messages": [QUESTION]}
        assert http.post("/v1/messages", json=body).json()["error"]["param"] == "max_tokens"


def test_a_client_that_leaves_a_stream_frees_its_place(client: Anthropic, tool_server: ServerProcess) -> None:
    with client.messages.stream(
        model=MODEL, messages=[QUESTION], max_tokens=1500, extra_body={"ignore_eos": True}
    ) as stream:
        next(iter(stream))
    with tool_server.client() as http:
        wait_for_metric(http, "mlxcel_slots_used", 0)


def test_a_stream_that_the_server_gives_up_raises_and_never_just_ends(tool_model: Path) -> None:
    program = ("-m", "tests.support.faulty_server", "decode=5")
    with (
        serving(tool_model, "--alias", MODEL, program=program) as server,
        connect(server) as client,
        pytest.raises(anthropic.APIStatusError, match="step of this request failed"),
    ):
        streamed(client, ignore_eos=True)
