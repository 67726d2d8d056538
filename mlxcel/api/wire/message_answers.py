"""POST /v1/messages: what a client gets. Source: Anthropic's API reference, messages and streaming messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mlxcel.api.wire.answers import End, Piece, Usage, Whole, frame
from mlxcel.core import FinishReason
from mlxcel.errors import BodyTooLarge, InputError, MlxcelError, StateError, Unauthorized, UnknownModel
from mlxcel.text.deltas import NOTHING, CallStart, Content, Delta, Part, Reasoning

_KINDS: tuple[tuple[type[MlxcelError], str], ...] = (
    (UnknownModel, "not_found_error"),
    (Unauthorized, "authentication_error"),
    (BodyTooLarge, "request_too_large"),
    (InputError, "invalid_request_error"),
    (StateError, "overloaded_error"),
    (MlxcelError, "api_error"),
)


def error_body(error: MlxcelError) -> dict[str, Any]:
    """Anthropic's error envelope, with our param and code beside its own fields."""
    kind = next(kind for family, kind in _KINDS if isinstance(error, family))
    if error.code == "not_found":
        kind = "not_found_error"
    details = {"type": kind, "message": error.message, "code": error.code}
    if isinstance(error, InputError):
        details["param"] = error.param or ""
    return {"type": "error", "error": details, "request_id": None}


class MessageShape:
    """How /v1/messages words one answer; a stream is a sequence of content blocks, one open at a time."""

    def __init__(self, answer_id: str, model: str) -> None:
        self._head = {"id": f"msg_{answer_id}", "type": "message", "role": "assistant", "model": model}
        self._n_blocks = 0
        self._open: str | None = None

    def whole(self, choices: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        ((message, end, _),) = choices
        blocks = [_block(part) for part in message.parts or [NOTHING]]
        return {**self._head, "content": blocks, **_stop(end), "usage": _usage_body(usage)}

    def opening(self, n_prompt_tokens: int) -> bytes:
        message: dict[str, Any] = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message={**message, "usage": _usage_body(Usage(n_prompt_tokens, 0))})

    def chunk(self, index: int, piece: Piece) -> bytes:  # noqa: ARG002 - there is one choice
        return b"".join(map(self._delta, piece.deltas))

    def closing(self, ends: Sequence[End], usage: Usage) -> bytes:
        (end,) = ends
        delta = _event("message_delta", delta=_stop(end), usage=_usage_body(usage))
        empty = self._begin(_block(NOTHING)) if self._open is None and not self._n_blocks else b""
        return empty + self._close() + delta + _event("message_stop")

    def failure(self, error: MlxcelError) -> bytes:
        return frame(error_body(error), event="error")

    def _delta(self, delta: Delta) -> bytes:
        if isinstance(delta, CallStart):
            block = {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}
            return self._close() + self._begin(block)
        if isinstance(delta, Content):
            begun = self._begin(_block(NOTHING))
            return begun + self._more({"type": "text_delta", "text": delta.text})
        if isinstance(delta, Reasoning):
            begun = self._begin(_block(Reasoning("")))
            return begun + self._more({"type": "thinking_delta", "thinking": delta.text})
        return self._more({"type": "input_json_delta", "partial_json": delta.text})

    def _begin(self, block: dict[str, Any]) -> bytes:
        """Open a block of this type, unless one is open."""
        if self._open == block["type"]:
            return b""
        closed = self._close()
        self._open = block["type"]
        return closed + _event("content_block_start", index=self._n_blocks, content_block=block)

    def _more(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._n_blocks, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        self._n_blocks += 1
        return _event("content_block_stop", index=self._n_blocks - 1)


def _event(kind: str, **fields: Any) -> bytes:
    return frame({"type": kind, **fields}, event=kind)


def _stop(end: End) -> dict[str, Any]:
    reasons = {FinishReason.LENGTH: "max_tokens", FinishReason.TOOL_CALLS: "tool_use"}
    reason = reasons.get(end.finish, "end_turn" if end.stopped_by is None else "stop_sequence")
    return {"stop_reason": reason, "stop_sequence": end.stopped_by if reason == "stop_sequence" else None}


def _usage_body(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.n_prompt_tokens - usage.n_cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.n_cached_tokens,
        "output_tokens": usage.n_tokens,
    }


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, Content):
        return {"type": "text", "text": part.text}
    if isinstance(part, Reasoning):
        return {"type": "thinking", "thinking": part.text, "signature": ""}
    try:
        arguments = json.loads(part.arguments)
    except ValueError:
        # Cut short by the token limit: no input, but nothing of it is lost.
        return {"type": "text", "text": f"{part.name}({part.arguments}"}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
