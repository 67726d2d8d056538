"""Anthropic's shapes: blocks one at a time, reasons, and the error envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlxcel.api.wire.answers import End, Piece, Usage, Whole
from mlxcel.api.wire.message_answers import MessageShape, error_body
from mlxcel.core import FinishReason
from mlxcel.errors import BodyTooLarge, BugError, InputError, MlxcelError, ServerBusy, UnknownModel
from mlxcel.text.deltas import Call, CallArguments, CallStart, Content, Message, Reasoning

END = End(FinishReason.STOP)
USAGE = Usage(n_prompt_tokens=9, n_tokens=5, n_cached_tokens=4)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    events = []
    for chunk in stream.decode().split("\n\n")[:-1]:
        name, data = chunk.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def test_a_stream_opens_and_closes_one_block_after_another() -> None:
    shape = MessageShape("7", "tiny")
    stream = [
        shape.opening(9),
        shape.chunk(0, Piece([Reasoning("h"), Reasoning("m"), Content("a")])),
        shape.chunk(0, Piece([Content("b"), CallStart(0, "c1", "f"), CallArguments(0, "{}"), CallStart(1, "c2", "g")])),
        shape.chunk(0, Piece([CallArguments(1, "{}")], FinishReason.TOOL_CALLS)),
        shape.closing([End(FinishReason.TOOL_CALLS)], USAGE),
    ]
    start, *events, delta, stop = events_of(b"".join(stream))
    assert (start["type"], start["message"]["id"], stop) == ("message_start", "msg_7", {"type": "message_stop"})
    assert start["message"]["usage"]["input_tokens"] == 9
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert (delta["usage"]["output_tokens"], delta["usage"]["cache_read_input_tokens"]) == (5, 4)
    assert delta["usage"]["input_tokens"] == 5
    seen = [(event["type"].removeprefix("content_block_"), event["index"]) for event in events]
    assert seen == [
        *[("start", 0), ("delta", 0), ("delta", 0), ("stop", 0)],
        *[("start", 1), ("delta", 1), ("delta", 1), ("stop", 1)],
        *[("start", 2), ("delta", 2), ("stop", 2)],
        *[("start", 3), ("delta", 3), ("stop", 3)],
    ]
    kinds = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]


@pytest.mark.parametrize(
    ("finish", "stopped_by", "reason"),
    [
        (FinishReason.STOP, None, "end_turn"),
        (FinishReason.STOP, "x", "stop_sequence"),
        (FinishReason.LENGTH, None, "max_tokens"),
        (FinishReason.TOOL_CALLS, "x", "tool_use"),
    ],
)
def test_reasons_have_anthropics_names(finish: FinishReason, stopped_by: str | None, reason: str) -> None:
    whole = MessageShape("7", "tiny").whole([Whole(Message([Content("a")]), End(finish, stopped_by))], USAGE)
    assert whole["stop_reason"] == reason
    assert whole["stop_sequence"] == (stopped_by if reason == "stop_sequence" else None)
    assert whole["content"] == [{"type": "text", "text": "a"}]


def test_an_empty_answer_is_an_empty_text_whole_or_streamed() -> None:
    whole = MessageShape("7", "tiny").whole([Whole(Message(), END)], USAGE)
    start, stop, *_ = events_of(MessageShape("7", "tiny").closing([END], USAGE))
    assert whole["content"] == [start["content_block"]] == [{"type": "text", "text": ""}]
    assert (start["type"], stop["type"]) == ("content_block_start", "content_block_stop")


def test_blocks_of_a_whole_answer_are_in_the_order_of_its_parts() -> None:
    message = Message([Content("a"), Call("c", "f", "{}"), Content("b")])
    whole = MessageShape("7", "tiny").whole([Whole(message, END)], USAGE)
    assert whole["content"] == [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        {"type": "text", "text": "b"},
    ]


def test_a_call_that_was_cut_short_is_not_lost() -> None:
    whole = MessageShape("7", "tiny").whole([Whole(Message([Call("c", "f", '{"a": "x')]), END)], USAGE)
    assert whole["content"] == [{"type": "text", "text": 'f({"a": "x'}]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InputError("m", param="top_p"), "invalid_request_error"),
        (UnknownModel("m", param="model"), "not_found_error"),
        (InputError("m", code="not_found"), "not_found_error"),
        (BodyTooLarge("m"), "request_too_large"),
        (ServerBusy("m"), "overloaded_error"),
        (BugError("m"), "api_error"),
    ],
)
def test_an_error_is_anthropics_envelope_whole_or_in_a_stream(error: MlxcelError, kind: str) -> None:
    body = error_body(error)
    assert (body["type"], body["error"]["type"], body["error"]["message"]) == ("error", kind, "m")
    assert events_of(MessageShape("7", "tiny").failure(error)) == [body]
