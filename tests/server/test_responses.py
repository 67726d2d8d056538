"""/v1/responses through the official openai client: whole, streamed, kept, gone on from, deleted, cancelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ToolChoiceAllowed
from pydantic import BaseModel

from tests.support.server_process import ServerProcess, wait_for_metric
from tests.support.tools import WEATHER

MODEL = "tiny-llama"
QUESTION = "Who may reproduce the Work?"
TOOLS: Any = [
    {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": WEATHER, "strict": True},
    {"type": "function", "name": "get_time"},
]
NO_THINKING: Any = {"effort": "none"}


@pytest.fixture
def client(tool_server: ServerProcess) -> Iterator[OpenAI]:
    with connect(tool_server) as client:
        yield client


def connect(server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=60)


def fields_of(options: dict[str, Any]) -> Any:
    return {"input": QUESTION, "reasoning": NO_THINKING, "max_output_tokens": 20, "temperature": 0, **options}


def ask(client: OpenAI, **options: Any) -> Response:
    response: Response = client.responses.create(model=MODEL, **fields_of(options))
    return response


def streamed(client: OpenAI, **options: Any) -> tuple[Response, list[Any]]:
    """The response that ends a stream, and its events."""
    with client.responses.create(model=MODEL, stream=True, **fields_of(options)) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events[-1].response, events


def items_of(response: Response) -> list[dict[str, Any]]:
    """Output items without the ids, which are drawn at random."""
    return [item.model_dump(exclude={"id", "call_id"}, exclude_none=True) for item in response.output]


def test_a_response_has_text_a_status_and_counts(client: OpenAI) -> None:
    response = ask(client)
    assert (response.object, response.model, response.status) == ("response", MODEL, "incomplete")
    assert response.incomplete_details is not None and response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text
    assert response.usage is not None and response.usage.output_tokens == 20
    assert response.usage.total_tokens == response.usage.input_tokens + 20
    assert response.max_output_tokens == 20 and response.temperature == 0


def test_a_streamed_response_is_the_whole_one_event_by_event(client: OpenAI) -> None:
    whole = ask(client)
    response, events = streamed(client)
    assert items_of(response) == items_of(whole) and response.usage == whole.usage
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert {event.response.id for event in events if hasattr(event, "response")} == {response.id}


def test_forced_functions_are_called_with_arguments_that_fit_streamed_or_not(client: OpenAI) -> None:
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        options: Any = {"tools": TOOLS, "tool_choice": choice, "max_output_tokens": 1000}
        whole = ask(client, **options)
        response, events = streamed(client, **options)
        assert items_of(response) == items_of(whole)
        assert whole.status == response.status == "completed"
        for item in whole.output:
            assert item.type == "function_call"
            schema = WEATHER if item.name == "get_weather" else {"maxProperties": 0}
            jsonschema.validate(json.loads(item.arguments), schema)
        deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        assert "".join(deltas) == "".join(item.arguments for item in whole.output if item.type == "function_call")


def test_of_allowed_tools_only_those_are_called(client: OpenAI) -> None:
    allowed: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_time"}]}
    response = ask(client, tools=TOOLS, tool_choice=allowed, max_output_tokens=200, parallel_tool_calls=False)
    assert [item.name for item in response.output if item.type == "function_call"] == ["get_time"]
    assert response.tool_choice == ToolChoiceAllowed.model_validate(allowed)


def test_the_clients_stream_accumulates_thinking_text_and_calls(saying_server: ServerProcess) -> None:
    arguments = '{"city": "Oslo", "days": 2}'
    call = {"type": "function_call", "name": "get_weather", "arguments": arguments, "status": "completed"}
    with connect(saying_server) as client:
        whole = ask(client, tools=TOOLS, max_output_tokens=500)
        fields = fields_of({"tools": TOOLS, "max_output_tokens": 500})
        with client.responses.stream(model=MODEL, **fields) as stream:
            for _ in stream:
                pass
            final = stream.get_final_response()
    for output in (whole.output, final.output):
        reasoning, message, first, second, last = output
        assert reasoning.type == "reasoning" and reasoning.content is not None
        assert reasoning.content[0].text == "\nI should look.\n"
        assert message.type == "message" and message.content[0].type == "output_text"
        assert message.content[0].text == "\nOne moment."
        for item in (first, second):
            assert call.items() <= item.model_dump().items()
        assert last.type == "message" and last.content[0].type == "output_text" and last.content[0].text == " Bye."
    assert whole.status == final.status == "completed"


def test_the_token_limit_cuts_the_last_item_and_no_call_before_it(saying_server: ServerProcess) -> None:
    seen = set()
    with connect(saying_server) as client:
        for limit in (30, 60, 90, 120, 150, 180):
            whole = ask(client, tools=TOOLS, max_output_tokens=limit)
            final, _ = streamed(client, tools=TOOLS, max_output_tokens=limit)
            assert items_of(whole) == items_of(final)
            items = items_of(whole)
            statuses = [item["status"] for item in items]
            assert statuses == [*["completed"] * (len(statuses) - 1), whole.status]
            seen |= {(item["type"], item["status"]) for item in items}
    assert seen >= {("function_call", "completed"), ("message", "incomplete")}


def test_an_answer_that_stops_at_once_is_an_empty_message_whole_or_streamed(saying_server: ServerProcess) -> None:
    with connect(saying_server) as client:
        whole = ask(client, extra_body={"stop": ["<think>"]})
        final, _ = streamed(client, extra_body={"stop": ["<think>"]})
    assert items_of(whole) == items_of(final)
    assert (whole.status, whole.output_text, final.output_text) == ("completed", "", "")
    (item,) = whole.output
    assert item.type == "message" and item.content[0].type == "output_text" and item.content[0].text == ""


class Verdict(BaseModel):
    kind: Literal["grant", "notice"]
    clause: Literal[1, 2, 3]


def test_the_clients_own_models_are_parsed(client: OpenAI) -> None:
    response = client.responses.parse(model=MODEL, input=QUESTION, reasoning=NO_THINKING, text_format=Verdict)
    assert isinstance(response.output_parsed, Verdict)


def test_a_conversation_goes_on_by_id_or_by_items_alike(client: OpenAI) -> None:
    choice: Any = {"type": "function", "name": "get_weather"}
    first = ask(client, tools=TOOLS, tool_choice=choice, max_output_tokens=200, instructions="Be brief.")
    (call,) = first.output
    assert call.type == "function_call"
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    by_id = ask(client, input=[result], previous_response_id=first.id, tools=TOOLS)
    items: Any = [{"role": "user", "content": QUESTION}, call.model_dump(exclude_none=True), result]
    by_items = ask(client, input=items, tools=TOOLS)
    assert by_id.output_text == by_items.output_text
    assert by_id.usage is not None and by_items.usage is not None
    # How much of the prompt was kept from before may differ.
    assert by_id.usage.input_tokens == by_items.usage.input_tokens
    assert by_id.previous_response_id == first.id
    again = ask(client, input="And then?", previous_response_id=by_id.id)
    assert again.usage is not None and by_id.usage is not None


def test_a_result_of_a_call_that_nobody_made_is_refused(client: OpenAI) -> None:
    first = ask(client)
    call: Any = {"type": "function_call", "call_id": "c", "name": "get_time", "arguments": "{}"}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "Noon."}
    assert ask(client, input=[call, result], tools=TOOLS).output_text
    wrong: list[dict[str, Any]] = [
        {"input": [result, call]},
        {"input": [call, {**result, "call_id": "d"}]},
        {"input": [result], "previous_response_id": first.id},
    ]
    for fields in wrong:
        with pytest.raises(openai.BadRequestError) as refusal:
            ask(client, tools=TOOLS, **fields)
        assert refusal.value.param in ("input[0].call_id", "input[1].call_id")


def test_a_response_is_kept_until_it_is_deleted_unless_it_asked_not_to_be(client: OpenAI) -> None:
    for response in (ask(client), streamed(client)[0]):
        kept = client.responses.retrieve(response.id)
        assert kept.model_dump() == response.model_dump()
        client.responses.delete(response.id)
        for gone in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
            with pytest.raises(openai.NotFoundError) as refused:
                gone(response.id)
            assert refused.value.code == "response_not_found"
        with pytest.raises(openai.NotFoundError) as refused:
            ask(client, previous_response_id=response.id)
        assert refused.value.param == "previous_response_id"
    unkept = ask(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_a_kept_responses_own_input_is_listed_page_by_page(client: OpenAI) -> None:
    call: Any = {"type": "function_call", "call_id": "c", "name": "get_time", "arguments": "{}"}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "Noon."}
    assistant: Any = {"role": "assistant", "content": "Hello."}
    response = ask(client, input=[{"role": "user", "content": "Hi"}, assistant, call, result])
    for order in ("asc", "desc"):
        listed = list(client.responses.input_items.list(response.id, order=order, limit=3))
        kinds = ["message", "message", "function_call", "function_call_output"]
        assert [item.type for item in listed] == (kinds if order == "asc" else kinds[::-1])
    page = client.responses.input_items.list(response.id, limit=1).model_dump()
    assert page["has_more"] and page["data"][0]["id"] == page["first_id"] == page["last_id"]
    (only,) = client.responses.input_items.list(ask(client).id)
    assert only.model_dump(include={"role", "content"}, exclude_none=True) == {
        "role": "user",
        "content": [{"type": "input_text", "text": QUESTION}],
    }
    for wrong, param in (({"order": "up"}, "order"), ({"limit": 0}, "limit"), ({"after": "x"}, "after")):
        with pytest.raises(openai.BadRequestError) as refusal:
            client.responses.input_items.list(response.id, extra_query=wrong)
        assert refusal.value.param == param
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list("resp_none")


def test_a_stream_under_way_can_be_looked_at_and_cancelled_and_an_ended_one_cannot(
    client: OpenAI, tool_server: ServerProcess
) -> None:
    extra: Any = {"ignore_eos": True}
    with client.responses.create(
        model=MODEL, input=QUESTION, reasoning=NO_THINKING, stream=True, extra_body=extra
    ) as stream:
        created = next(iter(stream))
        assert created.type == "response.created"
        response_id = created.response.id
        assert client.responses.retrieve(response_id).status == "in_progress"
        assert client.responses.cancel(response_id).status == "cancelled"
        *_, last = stream
    assert last.type == "response.incomplete" and last.response.status == "cancelled"
    with tool_server.client() as http:
        wait_for_metric(http, "mlxcel_slots_used", 0)
    assert client.responses.retrieve(response_id).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="has ended") as refused:
        client.responses.cancel(response_id)
    assert refused.value.code == "response_ended"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "arguments": "{}"}]}, "input[0].name"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{"}]}, "input[0].arguments"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "x"}}}}, "text.format.schema"),
    ],
)
def test_a_bad_request_names_the_field(client: OpenAI, fields: dict[str, Any], param: str) -> None:
    for call in (ask, streamed):
        with pytest.raises(openai.BadRequestError, match="nothing was done") as refused:
            call(client, **fields)
        assert refused.value.param == param
