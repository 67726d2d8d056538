from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.api.wire import responses
from mlxcel.api.wire.answers import KEEP_ALIVE, End, Piece, Usage, Whole
from mlxcel.core import FinishReason
from mlxcel.errors import BugError, ContextLengthExceeded, InputError, MlxcelError, ServerBusy
from mlxcel.text.deltas import Call, CallArguments, CallStart, Content, Delta, Message, Reasoning

END = End(FinishReason.LENGTH)
USAGE = Usage(n_prompt_tokens=3, n_tokens=2)


def events_of(stream: bytes) -> list[str]:
    """The data of each event. Source: WHATWG HTML, 9.2.6 Interpreting an event stream."""
    events, data = [], list[str]()
    for line in stream.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            events += ["\n".join(data)] if data else []
            data = []
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        else:
            assert line.startswith(":"), line
    assert not data, "an event that is not closed"
    return events


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_frame_is_one_event_whatever_its_text(text: str) -> None:
    shape = responses.CompletionShape("1", 5, "m")
    (event,) = events_of(shape.chunk(0, Piece([Content(text)])))
    assert json.loads(event)["choices"][0]["text"] == text


def test_a_streamed_chat_is_openings_then_text_then_the_reason_then_usage_then_done() -> None:
    shape = responses.ChatShape("7", 5, "tiny", wants_usage=True)
    stream = b"".join(
        [
            shape.opening(3),
            KEEP_ALIVE,
            shape.chunk(0, Piece([Content("Hel\n"), Content("lo")])),
            shape.chunk(0, Piece([], FinishReason.LENGTH)),
            shape.closing([END], USAGE),
        ]
    )
    *events, last = events_of(stream)
    chunks: list[dict[str, Any]] = [json.loads(event) for event in events]
    assert last == "[DONE]" and len(chunks) == 4
    for chunk in chunks:
        assert (chunk["id"], chunk["created"], chunk["model"]) == ("chatcmpl-7", 5, "tiny")
        assert chunk["object"] == "chat.completion.chunk"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:3]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "Hel\nlo"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:3]] == [None, None, "length"]
    assert chunks[3]["choices"] == [] and chunks[3]["usage"]["total_tokens"] == 5


def test_whole_answers_have_openais_shapes() -> None:
    completion = responses.CompletionShape("7", 5, "tiny").whole(
        [Whole(Message([Content("text")]), End(FinishReason.STOP))], USAGE
    )
    assert completion == {
        "id": "cmpl-7",
        "object": "text_completion",
        "created": 5,
        "model": "tiny",
        "choices": [{"index": 0, "text": "text", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }
    chat = responses.ChatShape("7", 5, "tiny").whole([Whole(Message([Content("text")]), END)], USAGE)
    assert chat["object"] == "chat.completion" and chat["id"] == "chatcmpl-7"
    (choice,) = chat["choices"]
    assert choice["message"] == {"role": "assistant", "content": "text", "refusal": None}
    assert choice["finish_reason"] == "length"


def test_a_chat_that_calls_functions_has_them_beside_null_content_and_its_thinking() -> None:
    message = Message([Reasoning("hm"), Call("call_1", "f", '{"a":1}')])
    chat = responses.ChatShape("7", 5, "tiny").whole([Whole(message, End(FinishReason.TOOL_CALLS))], USAGE)
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    assert chat["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "hm",
        "tool_calls": [call],
    }
    assert chat["choices"][0]["finish_reason"] == "tool_calls"


def test_a_chunk_keeps_thinking_content_and_calls_apart() -> None:
    shape = responses.ChatShape("7", 5, "tiny")
    deltas: list[Delta] = [
        Reasoning("h"),
        Reasoning("m"),
        Content("x"),
        CallStart(0, "call_1", "f"),
        CallArguments(0, "{}"),
    ]
    (event,) = events_of(shape.chunk(0, Piece(deltas)))
    assert json.loads(event)["choices"][0]["delta"] == {
        "reasoning_content": "hm",
        "content": "x",
        "tool_calls": [
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}},
            {"index": 0, "function": {"arguments": "{}"}},
        ],
    }


@pytest.mark.parametrize(
    ("error", "kind", "param", "code"),
    [
        (InputError("m", param="top_p"), "invalid_request_error", "top_p", "invalid_value"),
        (ContextLengthExceeded("m"), "invalid_request_error", None, "context_length_exceeded"),
        (ServerBusy("m"), "unavailable_error", None, "server_busy"),
        (BugError("m"), "server_error", None, "internal_error"),
    ],
)
def test_an_error_is_openais_envelope(error: MlxcelError, kind: str, param: str | None, code: str) -> None:
    assert responses.error_body(error) == {"error": {"message": "m", "type": kind, "param": param, "code": code}}


def test_the_list_of_models_holds_the_served_ones() -> None:
    body = responses.models_body("tiny", 5)
    assert (body["object"], body["has_more"], body["first_id"], body["last_id"]) == ("list", False, "tiny", "tiny")
    openais = {"id": "tiny", "object": "model", "created": 5, "owned_by": "mlxcel"}
    anthropics = {"type": "model", "display_name": "tiny", "created_at": "1970-01-01T00:00:05Z"}
    assert body["data"] == [{**openais, **anthropics}]
