"""OpenAI's responses: items, events in order, and how a stream fails."""

from __future__ import annotations

import json
from typing import Any

from mlxcel.api.wire.answers import End, Piece, Usage, Whole
from mlxcel.api.wire.response_objects import ResponseShape, template_message
from mlxcel.api.wire.response_requests import ResponseFields
from mlxcel.core import FinishReason
from mlxcel.errors import GenerationError
from mlxcel.text.deltas import Call, CallArguments, CallStart, Content, Delta, Message, Reasoning

END = End(FinishReason.STOP)
USAGE = Usage(n_prompt_tokens=9, n_tokens=5)


def shape(ended: list[tuple[dict[str, Any], Message]]) -> ResponseShape:
    return ResponseShape("7", 5, "tiny", ResponseFields(input="x"), lambda *end: ended.append(end))


def events_of(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(chunk.split("\ndata: ")[1]) for chunk in stream.decode().split("\n\n")[:-1]]


def test_a_stream_ends_with_the_body_of_the_whole_answer_and_tells_it_once() -> None:
    ended: list[tuple[dict[str, Any], Message]] = []
    one, other = shape(ended), shape(ended)
    call: list[Delta] = [CallStart(0, "c", "f"), CallArguments(0, '{"a"'), CallArguments(0, ":1}")]
    stream = [
        one.opening(9),
        one.chunk(0, Piece([Reasoning("h"), Reasoning("m"), Content("a")])),
        one.chunk(0, Piece([Content("b"), *call], FinishReason.TOOL_CALLS)),
        one.closing([END], USAGE),
    ]
    message = Message([Reasoning("hm"), Content("ab"), Call("c", "f", '{"a":1}')])
    whole = other.whole([Whole(message, END)], USAGE)
    events = events_of(b"".join(stream))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed" and events[-1]["response"] == whole
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call"]
    assert {item["status"] for item in whole["output"]} == {"completed"}
    assert ended == [(whole, message)] * 2


def test_a_stream_that_fails_says_so_with_what_there_was_and_is_not_kept() -> None:
    ended: list[tuple[dict[str, Any], Message]] = []
    failing = shape(ended)
    failing.chunk(0, Piece([Content("a")]))
    (event,) = events_of(failing.failure(GenerationError("m")))
    assert (event["type"], event["response"]["status"]) == ("response.failed", "failed")
    assert event["response"]["error"] == {"code": "server_error", "message": "m"}
    assert event["response"]["output"][0]["content"][0]["text"] == "a"
    assert ended == []


def test_an_empty_answer_is_an_empty_message_whole_or_streamed() -> None:
    whole = shape([]).whole([Whole(Message(), END)], USAGE)
    (item,) = whole["output"]
    assert (item["type"], item["content"][0]["text"], item["status"]) == ("message", "", "completed")
    events = events_of(shape([]).closing([END], USAGE))
    assert events[0]["type"] == "response.output_item.added" and events[-1]["response"] == whole


def test_an_answers_end_cuts_its_last_item_and_no_other_whole_or_streamed() -> None:
    deltas: list[Delta] = [Content("a"), CallStart(0, "c", "f"), CallArguments(0, "{}"), Content("<call>{")]
    message = Message()
    message.add(deltas)
    end = End(FinishReason.LENGTH)
    whole = shape([]).whole([Whole(message, end)], USAGE)
    assert [(item["type"], item["status"]) for item in whole["output"]] == [
        ("message", "completed"),
        ("function_call", "completed"),
        ("message", "incomplete"),
    ]
    streamed = shape([])
    streamed.chunk(0, Piece(deltas))
    assert events_of(streamed.closing([end], USAGE))[-1]["response"] == whole


def test_an_answer_goes_on_as_a_message_without_the_call_that_was_cut_short() -> None:
    calls = [Call("c", "f", '{"a":1}'), Call("d", "f", '{"a":')]
    assert template_message(Message([Reasoning("r"), Content("t"), *calls])) == {
        "role": "assistant",
        "content": "t",
        "reasoning_content": "r",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
    }
