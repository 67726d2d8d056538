"""POST /v1/responses: what a client gets. Source: OpenAI's API reference, responses and their streaming events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mlxcel.api.wire.answers import End, Piece, Usage, Whole, frame
from mlxcel.api.wire.conversation import template_call
from mlxcel.api.wire.response_requests import ResponseFields
from mlxcel.core import FinishReason
from mlxcel.errors import MlxcelError
from mlxcel.text.deltas import NOTHING, Call, CallStart, Content, Delta, Message, Reasoning


class ResponseShape:
    """How /v1/responses words one answer: items, of which one at a time is open.

    `on_end` gets the finished body and the answer.
    """

    def __init__(
        self,
        answer_id: str,
        created: int,
        model: str,
        fields: ResponseFields,
        on_end: Callable[[dict[str, Any], Message], None],
    ) -> None:
        self.id = f"resp_{answer_id}"
        self._answer_id = answer_id
        self._head = _head(self.id, created, model, fields)
        self._on_end = on_end
        self._message = Message()
        self._items: list[dict[str, Any]] = []
        self._is_open = False
        self._n_events = 0

    def body(self, status: str, end: End | None = None, usage: Usage | None = None) -> dict[str, Any]:
        """The response as it is now."""
        is_cut = end is not None and end.finish is FinishReason.LENGTH
        return {
            **self._head,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": list(self._items),
            "usage": None if usage is None else _usage_body(usage),
        }

    def whole(self, choices: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        ((message, end, _),) = choices
        self.chunk(0, Piece(message.deltas))
        self._end(end)
        return self._finished(end, usage)

    def opening(self, n_prompt_tokens: int) -> bytes:  # noqa: ARG002 - usage comes at the end
        body = self.body("in_progress")
        return self._event("response.created", response=body) + self._event("response.in_progress", response=body)

    def chunk(self, index: int, piece: Piece) -> bytes:  # noqa: ARG002 - there is one choice
        self._message.add(piece.deltas)
        return b"".join(map(self._delta, piece.deltas))

    def closing(self, ends: Sequence[End], usage: Usage) -> bytes:
        (end,) = ends
        closed = self._end(end)
        body = self._finished(end, usage)
        kind = "response.completed" if body["status"] == "completed" else "response.incomplete"
        return closed + self._event(kind, response=body)

    def failure(self, error: MlxcelError) -> bytes:
        body = {**self.body("failed"), "error": {"code": "server_error", "message": error.message}}
        return self._event("response.failed", response=body)

    def _end(self, end: End) -> bytes:
        """Close the last item, which is what an answer's end cuts short."""
        empty = b"" if self._items else self._delta(NOTHING)
        return empty + self._close("incomplete" if end.finish in _STATUSES else "completed")

    def _finished(self, end: End, usage: Usage) -> dict[str, Any]:
        body = self.body(_STATUSES.get(end.finish, "completed"), end, usage)
        self._on_end(body, self._message)
        return body

    def _delta(self, delta: Delta) -> bytes:
        if isinstance(delta, Content):
            begun = self._begin("message", role="assistant", content=[])
            return begun + self._more_text(delta.text, "response.output_text.delta", logprobs=[])
        if isinstance(delta, Reasoning):
            begun = self._begin("reasoning", summary=[], content=[])
            return begun + self._more_text(delta.text, "response.reasoning_text.delta")
        if isinstance(delta, CallStart):
            closed = self._close("completed")
            return closed + self._begin("function_call", call_id=delta.id, name=delta.name, arguments="")
        self._items[-1]["arguments"] += delta.text
        return self._item_event("response.function_call_arguments.delta", delta=delta.text)

    def _begin(self, kind: str, **fields: Any) -> bytes:
        """Open an item of this type, unless one is open."""
        if self._is_open and self._items[-1]["type"] == kind:
            return b""
        closed = self._close("completed")
        item_id = f"{_PREFIXES[kind]}_{self._answer_id}_{len(self._items)}"
        item = {"id": item_id, "type": kind, "status": "in_progress", **fields}
        self._items.append(item)
        self._is_open = True
        added = self._event("response.output_item.added", output_index=len(self._items) - 1, item=item)
        if kind == "function_call":
            return closed + added
        item["content"] = [_part(kind)]
        return closed + added + self._part_event("response.content_part.added", part=item["content"][0])

    def _more_text(self, text: str, kind: str, **fields: Any) -> bytes:
        self._items[-1]["content"][0]["text"] += text
        return self._part_event(kind, delta=text, **fields)

    def _close(self, status: str) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        item = self._items[-1]
        item["status"] = status
        if item["type"] == "function_call":
            done = self._item_event(
                "response.function_call_arguments.done", arguments=item["arguments"], name=item["name"]
            )
        else:
            part = item["content"][0]
            if item["type"] == "message":
                done = self._part_event("response.output_text.done", text=part["text"], logprobs=[])
            else:
                done = self._part_event("response.reasoning_text.done", text=part["text"])
            done += self._part_event("response.content_part.done", part=part)
        return done + self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        return self._item_event(kind, content_index=0, **fields)

    def _item_event(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._items[-1]["id"], output_index=len(self._items) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._n_events += 1
        return frame({"type": kind, "sequence_number": self._n_events - 1, **fields}, event=kind)


_STATUSES = {FinishReason.LENGTH: "incomplete", FinishReason.CANCELLED: "cancelled"}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


def template_message(answer: Message) -> dict[str, Any]:
    """The answer as chat templates take it, for a response that goes on from it."""
    shown: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        shown["reasoning_content"] = answer.reasoning
    calls = [call for call in answer.calls if _arguments(call) is not None]
    if calls:
        shown["tool_calls"] = [template_call(call.id, call.name, _arguments(call) or {}) for call in calls]
    return shown


def _arguments(call: Call) -> dict[str, Any] | None:
    """None for a call that was cut short: nothing can answer it."""
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _part(kind: str) -> dict[str, Any]:
    if kind == "message":
        return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return {"type": "reasoning_text", "text": ""}


def _head(response_id: str, created: int, model: str, fields: ResponseFields) -> dict[str, Any]:
    """What a response says of its request."""
    choice = fields.tool_choice or "auto"
    text_format = fields.text.format if fields.text is not None else None
    tools = [{**_sent(tool), "strict": bool(tool.strict)} for tool in fields.tools or []]
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "model": model,
        "error": None,
        "instructions": fields.instructions,
        "max_output_tokens": fields.limit,
        "metadata": fields.metadata or {},
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "previous_response_id": fields.previous_response_id,
        "reasoning": {"effort": fields.reasoning.effort if fields.reasoning is not None else None, "summary": None},
        "store": fields.is_kept,
        "temperature": fields.temperature,
        "text": {"format": {"type": "text"} if text_format is None else _sent(text_format)},
        "tool_choice": choice if isinstance(choice, str) else _sent(choice),
        "tools": tools,
        "top_p": fields.top_p,
        "truncation": "disabled",
    }


def _sent(value: msgspec.Struct) -> dict[str, Any]:
    """A struct's fields that were set."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return {name: value for name, value in fields.items() if value is not None}


def _usage_body(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.n_prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.n_cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.n_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.n_prompt_tokens + usage.n_tokens,
    }
