"""POST /tokenize, /detokenize and /apply-template: what a client may send. Sources: llama.cpp's server, vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from mlxcel.api.wire.body import Fields
from mlxcel.api.wire.chat import ChatFields, ChatMessage, ChatTool
from mlxcel.api.wire.conversation import Conversation
from mlxcel.api.wire.described import described
from mlxcel.errors import InputError


class TemplateFields(Fields, kw_only=True):
    """POST /apply-template."""

    messages: Annotated[list[ChatMessage], described(minItems=1)]
    tools: list[ChatTool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def conversation(self) -> Conversation:
        """Errors: InputError, as a chat."""
        return _conversation(self.messages, self.tools, self.chat_template_kwargs)


class TokenizeFields(Fields, kw_only=True):
    """POST /tokenize: one of `content` (llama.cpp), `prompt` and `messages` (vLLM).

    `add_special` and `add_special_tokens` are two names of one thing; `parse_special` goes with `content`.
    """

    content: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], described(minItems=1)] | None = None
    tools: list[ChatTool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None

    def check(self) -> None:
        if sum(value is not None for value in (self.content, self.prompt, self.messages)) != 1:
            raise InputError("send one of content, prompt and messages; nothing was tokenised", param="content")
        if None not in (self.add_special, self.add_special_tokens) and self.add_special != self.add_special_tokens:
            raise InputError(
                "add_special and add_special_tokens differ; nothing was tokenised. Send one of them",
                param="add_special_tokens",
            )
        misplaced: dict[str, bool] = {
            "tools": self.tools is not None and self.messages is None,
            "chat_template_kwargs": self.chat_template_kwargs is not None and self.messages is None,
            "add_special": bool(self.add_special) and self.messages is not None,
            "add_special_tokens": bool(self.add_special_tokens) and self.messages is not None,
            "parse_special": self.parse_special is not None and self.content is None,
        }
        for name in (name for name, is_misplaced in misplaced.items() if is_misplaced):
            raise InputError(
                f"{name} means nothing beside what is to be tokenised; nothing was tokenised. Leave it out", param=name
            )

    @property
    def text(self) -> str:
        return self.content or self.prompt or ""

    @property
    def adds_special(self) -> bool:
        """Each API's own default: a prompt is tokenised as one, content as it is."""
        asked = self.add_special if self.add_special_tokens is None else self.add_special_tokens
        return self.prompt is not None if asked is None else asked

    def conversation(self) -> Conversation | None:
        """Errors: InputError, as a chat."""
        if self.messages is None:
            return None
        return _conversation(self.messages, self.tools, self.chat_template_kwargs)


def pieces(tokens: Sequence[int], texts: Iterable[bytes]) -> list[dict[str, Any]]:
    """Tokens with what each stands for: text, or its bytes where they are a part of a character."""
    return [{"id": token, "piece": _piece(text)} for token, text in zip(tokens, texts, strict=True)]


def _piece(text: bytes) -> str | list[int]:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return list(text)


class DetokenizeFields(Fields, kw_only=True):
    """POST /detokenize."""

    tokens: list[Annotated[int, described(minimum=0)]]


def _conversation(
    messages: list[ChatMessage], tools: list[ChatTool] | None, template_kwargs: dict[str, Any] | None
) -> Conversation:
    fields = ChatFields(messages=messages, tools=tools, chat_template_kwargs=template_kwargs)
    fields.check()
    return fields.conversation()
