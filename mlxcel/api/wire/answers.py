"""What every API's answer has in common: how it is worded, whole or in frames, and the frames themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from mlxcel.core import FinishReason
from mlxcel.errors import MlxcelError
from mlxcel.text.deltas import Delta, Message

KEEP_ALIVE = b": keep-alive\n\n"

_encode = msgspec.json.Encoder().encode


class End(NamedTuple):
    """How an answer ended. `n_tokens` counts the end token; `stopped_by` is the stop string that was found."""

    finish: FinishReason
    n_prompt_tokens: int
    n_tokens: int
    n_cached_tokens: int = 0
    stopped_by: str | None = None


class AnswerShape(Protocol):
    """How one endpoint words an answer. A stream is opening, chunks, and then closing or failure."""

    def whole(self, message: Message, end: End) -> dict[str, Any]: ...
    def opening(self, n_prompt_tokens: int) -> bytes: ...
    def chunk(self, deltas: Sequence[Delta], finish: FinishReason | None) -> bytes: ...
    def closing(self, end: End) -> bytes: ...
    def failure(self, error: MlxcelError) -> bytes: ...


def frame(payload: Any, *, event: str | None = None) -> bytes:
    """One server-sent event. Source: WHATWG HTML, server-sent events."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + _encode(payload) + b"\n\n"
