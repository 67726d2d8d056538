"""What a client gets: bodies, stream frames, and the error envelope."""

from __future__ import annotations

from typing import Any

import msgspec

from mlxcel.core import FinishReason
from mlxcel.errors import InputError, MlxcelError, StateError

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

_encode = msgspec.json.Encoder().encode


def frame(payload: Any) -> bytes:
    """One server-sent event. Source: WHATWG HTML, server-sent events."""
    return b"data: " + _encode(payload) + b"\n\n"


def usage(n_prompt: int, n_completion: int) -> dict[str, Any]:
    """Token counts; completion tokens include the end token that stopped it."""
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def error_body(error: MlxcelError) -> dict[str, Any]:
    """OpenAI's error envelope."""
    if isinstance(error, InputError):
        kind, param = "invalid_request_error", error.param
    else:
        kind, param = "unavailable_error" if isinstance(error, StateError) else "server_error", None
    return {"error": {"message": error.message, "type": kind, "param": param, "code": error.code}}


def models_body(model_ids: list[str], created: int) -> dict[str, Any]:
    return {"object": "list", "data": [model_body(model_id, created) for model_id in model_ids]}


def model_body(model_id: str, created: int) -> dict[str, Any]:
    return {"id": model_id, "object": "model", "created": created, "owned_by": "mlxcel"}


class AnswerShape:
    """How one endpoint words an answer, whole or in chunks."""

    id_prefix: str
    object: str
    chunk_object: str

    def __init__(self, answer_id: str, created: int, model: str) -> None:
        self._head = {"id": f"{self.id_prefix}{answer_id}", "created": created, "model": model}

    def opening(self) -> list[bytes]:
        """Frames before the first text."""
        return []

    def whole(self, text: str, finish: FinishReason, counts: dict[str, Any]) -> dict[str, Any]:
        choice = {**self._whole_choice(text), "index": 0, "logprobs": None, "finish_reason": finish.value}
        return {**self._head, "object": self.object, "choices": [choice], "usage": counts}

    def chunk(self, text: str, finish: FinishReason | None) -> bytes:
        reason = None if finish is None else finish.value
        choice = {**self._chunk_choice(text), "index": 0, "logprobs": None, "finish_reason": reason}
        return frame({**self._head, "object": self.chunk_object, "choices": [choice]})

    def usage_chunk(self, counts: dict[str, Any]) -> bytes:
        return frame({**self._head, "object": self.chunk_object, "choices": [], "usage": counts})

    def _whole_choice(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def _chunk_choice(self, text: str) -> dict[str, Any]:
        raise NotImplementedError


class CompletionShape(AnswerShape):
    id_prefix = "cmpl-"
    object = chunk_object = "text_completion"

    def _whole_choice(self, text: str) -> dict[str, Any]:
        return {"text": text}

    _chunk_choice = _whole_choice


class ChatShape(AnswerShape):
    id_prefix = "chatcmpl-"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> list[bytes]:
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return [frame({**self._head, "object": self.chunk_object, "choices": [choice]})]

    def _whole_choice(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _chunk_choice(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}
