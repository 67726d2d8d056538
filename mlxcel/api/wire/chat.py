"""POST /v1/chat/completions: what a client may send. Source: OpenAI's API reference, chat completions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mlxcel.api.wire.conversation import (
    NAME_PATTERN,
    AnswerSchema,
    Chosen,
    Conversation,
    Tool,
    ToolChoice,
    allowed_choice,
    arguments_of,
    by_path,
    template_call,
)
from mlxcel.api.wire.described import described, one_of
from mlxcel.api.wire.ranges import Limit, NChoices, NTopLogprobs
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.errors import InputError

ROLES = ("system", "developer", "user", "assistant", "tool")
ANY_OBJECT = {"type": "object"}


class ContentPart(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("text", "refusal")]
    text: str | None = None
    refusal: str | None = None


class CalledFunction(msgspec.Struct, kw_only=True):
    name: str
    arguments: str | None = None


class ToolCall(msgspec.Struct, kw_only=True):
    function: CalledFunction
    id: str | None = None
    type: str = "function"


class ChatMessage(msgspec.Struct, kw_only=True):
    role: Annotated[str, one_of(*ROLES)]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


class Function(msgspec.Struct, kw_only=True):
    name: Annotated[str, described(pattern=NAME_PATTERN)]
    description: str | None = None
    parameters: Any = None


class ChatTool(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("function")]
    function: Function | None = None


class NamedFunction(msgspec.Struct, kw_only=True):
    name: str


class NamedTool(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("function")]
    function: NamedFunction | None = None


class AllowedTools(msgspec.Struct, kw_only=True):
    mode: Annotated[str, one_of("auto", "required")]
    tools: list[NamedTool]


class ChosenTools(NamedTool, kw_only=True):
    """One function that must be called, or those that may be. Which fields it has follows from its type."""

    type: Annotated[str, one_of("function", "allowed_tools")]
    allowed_tools: AllowedTools | None = None


class JsonSchema(msgspec.Struct, kw_only=True):
    name: str | None = None
    schema: Any = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("text", "json_object", "json_schema")]
    json_schema: JsonSchema | None = None


class ChatFields(GenerationFields, kw_only=True):
    """POST /v1/chat/completions. `max_completion_tokens` is the newer name of `max_tokens`."""

    messages: Annotated[list[ChatMessage], described(minItems=1)]
    max_completion_tokens: Limit | None = None
    n: NChoices | None = None
    logprobs: bool | None = None
    top_logprobs: NTopLogprobs | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[ChatTool] | None = None
    tool_choice: Annotated[str, one_of("none", "auto", "required")] | ChosenTools | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None

    def check(self) -> None:
        super().check()
        if None not in (self.max_tokens, self.max_completion_tokens) and (
            self.max_tokens != self.max_completion_tokens
        ):
            raise InputError(
                "max_tokens and max_completion_tokens differ; nothing was done. Send one of them",
                param="max_completion_tokens",
            )
        if self.top_logprobs and not self.logprobs:
            raise InputError("top_logprobs is only for logprobs: true; nothing was done", param="top_logprobs")
        if "chat_template" in (self.chat_template_kwargs or {}):
            raise InputError(
                "a request cannot replace the chat template; nothing was done",
                param="chat_template_kwargs.chat_template",
            )

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def n_choices(self) -> int:
        return self.n or 1

    @property
    def n_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def conversation(self) -> Conversation:
        """What is asked, in no API's words.

        Errors: InputError for an empty list, an unknown role, content that is not text, or tools, a choice or a
        format that cannot be.
        """
        if not self.messages:
            raise InputError("messages is empty; nothing was done", param="messages")
        chosen = _tool_choice(self.tool_choice)
        conversation = Conversation(
            messages=[_template_message(message, f"messages[{i}]") for i, message in enumerate(self.messages)],
            tools=tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(self.tools or [])),
            tool_choice=chosen.choice,
            forced_tool=chosen.forced,
            allowed_tools=chosen.allowed,
            is_parallel=self.parallel_tool_calls is not False,
            answer=_answer_schema(self.response_format),
            template_kwargs=self.chat_template_kwargs or {},
            sources=by_path("messages", self.messages)
            | by_path("tools", self.tools)
            | {"chat_template_kwargs": self.chat_template_kwargs},
        )
        conversation.check(tools="tools", tool_choice="tool_choice")
        return conversation


def _template_message(message: ChatMessage, path: str) -> dict[str, Any]:
    if message.role not in ROLES:
        raise InputError(
            f"{path}.role = {message.role!r} is none of {', '.join(ROLES)}; nothing was done",
            param=f"{path}.role",
        )
    if message.tool_calls and message.role != "assistant":
        raise InputError(
            f"{path}.tool_calls: only an assistant calls tools; nothing was done", param=f"{path}.tool_calls"
        )
    # Templates know the newer name of the system role only by its older one.
    shown: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
    if message.content is None and message.tool_calls:
        shown["content"] = ""
    else:
        refusal = message.refusal if message.role == "assistant" else None
        shown["content"] = _content_text(refusal if message.content is None else message.content, path)
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            shown[name] = value
    if message.tool_calls:
        shown["tool_calls"] = [
            template_call(
                call.id,
                call.function.name,
                arguments_of(call.function.arguments, f"{path}.tool_calls[{index}].function.arguments"),
            )
            for index, call in enumerate(message.tool_calls)
        ]
    return shown


def _content_text(content: str | list[ContentPart] | None, path: str) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise InputError(f"{path}.content is missing; nothing was done", param=f"{path}.content")
    texts = []
    for index, part in enumerate(content):
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in ("text", "refusal") or text is None:
            raise InputError(
                f"{path}.content[{index}]: only parts of type text, with a text, are served; nothing was done",
                param=f"{path}.content[{index}]",
            )
        texts.append(text)
    return "".join(texts)


def _tool(tool: ChatTool, path: str) -> Tool:
    if tool.type != "function" or tool.function is None:
        raise InputError(
            f"{path}: only tools of type function, with a function, are served; nothing was done",
            param=f"{path}.type" if tool.type != "function" else f"{path}.function",
            code="unsupported_value",
        )
    function = tool.function
    return Tool(function.name, function.description, function.parameters, f"{path}.function.parameters")


def _tool_choice(choice: str | ChosenTools | None) -> Chosen:
    if isinstance(choice, ChosenTools):
        if choice.type == "allowed_tools" and choice.allowed_tools is not None:
            functions = [tool.function for tool in choice.allowed_tools.tools]
            return allowed_choice(choice.allowed_tools.mode, [None if one is None else one.name for one in functions])
        if choice.type != "function" or choice.function is None:
            raise InputError(
                "tool_choice: only choices of type function, with the function's name, and allowed_tools are served; "
                "nothing was done",
                param="tool_choice",
                code="unsupported_value",
            )
        return Chosen(ToolChoice.REQUIRED, choice.function.name)
    try:
        return Chosen(ToolChoice(choice or "auto"))
    except ValueError:
        raise InputError(
            f"tool_choice = {choice!r} is none of auto, none, required, and no function; nothing was done",
            param="tool_choice",
        ) from None


def _answer_schema(response_format: ResponseFormat | None) -> AnswerSchema | None:
    """Strict or not, the schema is followed to the letter."""
    if response_format is None or response_format.type == "text":
        return None
    if response_format.type == "json_object":
        return AnswerSchema(ANY_OBJECT, "response_format")
    if response_format.type != "json_schema":
        raise InputError(
            f"response_format.type = {response_format.type!r} is none of text, json_object, json_schema; nothing was "
            "done",
            param="response_format.type",
        )
    if response_format.json_schema is None or response_format.json_schema.schema is None:
        raise InputError(
            "response_format.json_schema.schema is missing; nothing was done",
            param="response_format.json_schema.schema",
        )
    return AnswerSchema(response_format.json_schema.schema, "response_format")
