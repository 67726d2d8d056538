"""What a client may send: one struct per endpoint, and the limits of every field."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from mlxcel.errors import InputError

LARGEST_TEMPERATURE = 100.0
MOST_STOPS = 64
ROLES = ("system", "developer", "user", "assistant")


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """Fields that both generating endpoints share."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None

    def check(self) -> None:
        """Errors: InputError naming the first field out of its range."""
        _check_range("temperature", self.temperature, 0, LARGEST_TEMPERATURE)
        _check_range("top_p", self.top_p, 0, 1)
        _check_range("min_p", self.min_p, 0, 1)
        _check_range("top_k", self.top_k, 0, 2**31 - 1)
        _check_range("seed", self.seed, 0, 2**63 - 1)
        _check_range("max_tokens", self.max_tokens, 1, 2**31 - 1)
        if len(self.stops) > MOST_STOPS:
            raise InputError(f"stop holds more than {MOST_STOPS} strings; nothing was generated", param="stop")
        if "" in self.stops:
            raise InputError("stop holds an empty string; nothing was generated", param="stop")
        if self.stream_options is not None and not self.stream:
            raise InputError("stream_options is only for stream: true; nothing was generated", param="stream_options")

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class CompletionFields(GenerationFields, kw_only=True):
    """POST /v1/completions."""

    prompt: str


class ContentPart(msgspec.Struct, kw_only=True):
    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, kw_only=True):
    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None


class ChatFields(GenerationFields, kw_only=True):
    """POST /v1/chat/completions. `max_completion_tokens` is the newer name of `max_tokens`."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def check(self) -> None:
        _check_range("max_completion_tokens", self.max_completion_tokens, 1, 2**31 - 1)
        super().check()
        if None not in (self.max_tokens, self.max_completion_tokens) and (
            self.max_tokens != self.max_completion_tokens
        ):
            raise InputError(
                "max_tokens and max_completion_tokens differ; nothing was generated. Send one of them",
                param="max_completion_tokens",
            )
        if "chat_template" in (self.chat_template_kwargs or {}):
            raise InputError(
                "a request cannot replace the chat template; nothing was generated",
                param="chat_template_kwargs.chat_template",
            )

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def template_messages(self) -> list[dict[str, Any]]:
        """The messages as chat templates take them.

        Errors: InputError for an empty list, an unknown role, or content that is not text.
        """
        if not self.messages:
            raise InputError("messages is empty; nothing was generated", param="messages")
        return [_template_message(message, f"messages[{i}]") for i, message in enumerate(self.messages)]


def _template_message(message: ChatMessage, path: str) -> dict[str, Any]:
    if message.role == "tool" or message.tool_calls:
        raise InputError(
            f"{path}: tool messages are not served here; nothing was generated",
            param=f"{path}.role" if message.role == "tool" else f"{path}.tool_calls",
            code="unsupported_value",
        )
    if message.role not in ROLES:
        raise InputError(
            f"{path}.role = {message.role!r} is none of {', '.join(ROLES)}; nothing was generated",
            param=f"{path}.role",
        )
    # Templates know the newer name of the system role only by its older one.
    role = "system" if message.role == "developer" else message.role
    shown = {"role": role, "content": _content_text(message.content, path)}
    return shown if message.name is None else {**shown, "name": message.name}


def _content_text(content: str | list[ContentPart] | None, path: str) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise InputError(f"{path}.content is missing; nothing was generated", param=f"{path}.content")
    texts = []
    for index, part in enumerate(content):
        if part.type != "text" or part.text is None:
            raise InputError(
                f"{path}.content[{index}]: only parts of type text, with a text, are served; nothing was generated",
                param=f"{path}.content[{index}]",
            )
        texts.append(part.text)
    return "".join(texts)


def _check_range(name: str, value: float | None, lowest: float, highest: float) -> None:
    if value is not None and not (math.isfinite(value) and lowest <= value <= highest):
        raise InputError(f"{name} = {value} is not between {lowest} and {highest}; nothing was generated", param=name)
