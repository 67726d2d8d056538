"""What OpenAI's clients get: the bodies and frames of completions and chats, and the error envelope."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from mlxcel.api.wire.answers import AnswerShape, End, Piece, Usage, Whole, frame
from mlxcel.api.wire.logprobs import chat_logprobs, completion_logprobs
from mlxcel.errors import InputError, MlxcelError, StateError
from mlxcel.text.deltas import CallArguments, CallStart, Content, Delta, Message, Reasoning
from mlxcel.text.logprobs import ReportedToken


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts; completion tokens include the end token that stopped it."""
    return {
        "prompt_tokens": usage.n_prompt_tokens,
        "completion_tokens": usage.n_tokens,
        "total_tokens": usage.n_prompt_tokens + usage.n_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.n_cached_tokens},
    }


def error_body(error: MlxcelError) -> dict[str, Any]:
    """OpenAI's error envelope."""
    if isinstance(error, InputError):
        kind, param = "invalid_request_error", error.param
    else:
        kind, param = "unavailable_error" if isinstance(error, StateError) else "server_error", None
    return {"error": {"message": error.message, "type": kind, "param": param, "code": error.code}}


def models_body(model_id: str, created: int) -> dict[str, Any]:
    """A list of the one model, in OpenAI's shape and in Anthropic's at once."""
    data = [model_body(model_id, created)]
    return {"object": "list", "data": data, "has_more": False, "first_id": model_id, "last_id": model_id}


def model_body(model_id: str, created: int) -> dict[str, Any]:
    """Units: `created` is seconds since the epoch."""
    created_at = datetime.fromtimestamp(created, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    anthropics = {"type": "model", "display_name": model_id, "created_at": created_at}
    return {"id": model_id, "object": "model", "created": created, "owned_by": "mlxcel", **anthropics}


DONE = b"data: [DONE]\n\n"


class OpenAIShape(AnswerShape):
    """How completions and chats word an answer: choices, whole or in chunks of one each."""

    id_prefix: str
    object: str
    chunk_object: str

    def __init__(self, answer_id: str, created: int, model: str, *, wants_usage: bool = False) -> None:
        self._head = {"id": f"{self.id_prefix}{answer_id}", "created": created, "model": model}
        self._wants_usage = wants_usage

    def opening(self, n_prompt_tokens: int) -> bytes:  # noqa: ARG002 - some APIs tell it here
        return b""

    def whole(self, choices: Sequence[Whole], usage: Usage) -> dict[str, Any]:
        bodies = [
            {
                **self._whole_choice(choice.message),
                "index": index,
                "logprobs": None if choice.tokens is None else self._logprobs(choice.tokens),
                "finish_reason": choice.end.finish.value,
            }
            for index, choice in enumerate(choices)
        ]
        return {**self._head, "object": self.object, "choices": bodies, "usage": usage_body(usage)}

    def chunk(self, index: int, piece: Piece) -> bytes:
        choice = {
            **self._chunk_choice(piece.deltas),
            "index": index,
            "logprobs": self._logprobs(piece.tokens) if piece.tokens else None,
            "finish_reason": None if piece.finish is None else piece.finish.value,
        }
        return self._chunk(choices=[choice])

    def closing(self, ends: Sequence[End], usage: Usage) -> bytes:  # noqa: ARG002 - the chunks told each end
        return (self._chunk(choices=[], usage=usage_body(usage)) if self._wants_usage else b"") + DONE

    def failure(self, error: MlxcelError) -> bytes:
        return frame(error_body(error))

    def _chunk(self, **fields: Any) -> bytes:
        return frame({**self._head, "object": self.chunk_object, **fields})

    def _whole_choice(self, message: Message) -> dict[str, Any]:
        raise NotImplementedError

    def _chunk_choice(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        raise NotImplementedError

    def _logprobs(self, tokens: Sequence[ReportedToken]) -> dict[str, Any]:
        raise NotImplementedError


class CompletionShape(OpenAIShape):
    id_prefix = "cmpl-"
    object = chunk_object = "text_completion"

    def _whole_choice(self, message: Message) -> dict[str, Any]:
        return {"text": message.text}

    def _chunk_choice(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        return {"text": "".join(delta.text for delta in deltas if isinstance(delta, Content))}

    def _logprobs(self, tokens: Sequence[ReportedToken]) -> dict[str, Any]:
        return completion_logprobs(tokens)


class ChatShape(OpenAIShape):
    id_prefix = "chatcmpl-"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(
        self, answer_id: str, created: int, model: str, *, wants_usage: bool = False, n_choices: int = 1
    ) -> None:
        super().__init__(answer_id, created, model, wants_usage=wants_usage)
        self._n_choices = n_choices

    def opening(self, n_prompt_tokens: int) -> bytes:  # noqa: ARG002
        delta = {"role": "assistant", "content": ""}
        return b"".join(
            self._chunk(choices=[{"index": index, "delta": delta, "finish_reason": None}])
            for index in range(self._n_choices)
        )

    def _whole_choice(self, message: Message) -> dict[str, Any]:
        content = message.text if message.text or not message.calls else None
        whole: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if message.reasoning:
            whole["reasoning_content"] = message.reasoning
        if message.calls:
            whole["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.calls
            ]
        return {"message": whole}

    def _chunk_choice(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        chunk: dict[str, Any] = {}
        for delta in deltas:
            if isinstance(delta, Content):
                chunk["content"] = chunk.get("content", "") + delta.text
            elif isinstance(delta, Reasoning):
                chunk["reasoning_content"] = chunk.get("reasoning_content", "") + delta.text
            else:
                chunk.setdefault("tool_calls", []).append(_call_chunk(delta))
        return {"delta": chunk}

    def _logprobs(self, tokens: Sequence[ReportedToken]) -> dict[str, Any]:
        return chat_logprobs(tokens)


def _call_chunk(delta: CallStart | CallArguments) -> dict[str, Any]:
    if isinstance(delta, CallArguments):
        return {"index": delta.index, "function": {"arguments": delta.text}}
    function = {"name": delta.name, "arguments": ""}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": function}
