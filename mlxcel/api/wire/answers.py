"""What every API's answer has in common: how it is worded, whole or in frames, and the frames themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from mlxcel.core import FinishReason
from mlxcel.errors import MlxcelError
from mlxcel.text.deltas import Delta, Message
from mlxcel.text.logprobs import ReportedToken

KEEP_ALIVE = b": keep-alive\n\n"

_encode = msgspec.json.Encoder().encode


class Usage(NamedTuple):
    """Tokens of a request. Each prompt counts once, however many answers it has; `n_tokens` counts end tokens too."""

    n_prompt_tokens: int
    n_tokens: int
    n_cached_tokens: int = 0


class End(NamedTuple):
    """How a choice ended. `stopped_by` is the stop string that was found."""

    finish: FinishReason
    stopped_by: str | None = None


class Piece(NamedTuple):
    """What may be shown of a choice now; its last piece has the finish reason.

    `tokens` are those whose text is shown, if their log-probabilities were asked for.
    """

    deltas: Sequence[Delta]
    finish: FinishReason | None = None
    tokens: Sequence[ReportedToken] | None = None


class Whole(NamedTuple):
    """All of a choice."""

    message: Message
    end: End
    tokens: Sequence[ReportedToken] | None = None


class AnswerShape(Protocol):
    """How one endpoint words an answer. A stream is opening, chunks of its choices, and then closing or failure."""

    def whole(self, choices: Sequence[Whole], usage: Usage) -> dict[str, Any]: ...
    def opening(self, n_prompt_tokens: int) -> bytes: ...
    def chunk(self, index: int, piece: Piece) -> bytes: ...
    def closing(self, ends: Sequence[End], usage: Usage) -> bytes: ...
    def failure(self, error: MlxcelError) -> bytes: ...


def frame(payload: Any, *, event: str | None = None) -> bytes:
    """One server-sent event. Source: WHATWG HTML, server-sent events."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + _encode(payload) + b"\n\n"
