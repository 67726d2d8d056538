"""POST /v1/responses: what a client may send. Source: OpenAI's API reference, responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

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
from mlxcel.api.wire.ranges import Limit
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.errors import InputError

ROLES = ("user", "assistant", "system", "developer")
ITEM_TYPES = ("message", "reasoning", "function_call", "function_call_output")
TEXT_TYPES = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")


class Part(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of(*TEXT_TYPES)]
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct, kw_only=True):
    """An item of the input. Which fields it has follows from its type; one without a type is a message."""

    type: Annotated[str, one_of(*ITEM_TYPES)] = "message"
    role: Annotated[str, one_of(*ROLES)] | None = None
    content: str | list[Part] | None = None
    summary: list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[Part] | None = None


class FunctionTool(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("function")]
    name: Annotated[str, described(pattern=NAME_PATTERN)] | None = None
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None


class AllowedFunction(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("function")]
    name: str | None = None


class ChosenFunctions(AllowedFunction, kw_only=True):
    """One function that must be called, or those that may be. Which fields it has follows from its type."""

    type: Annotated[str, one_of("function", "allowed_tools")]
    mode: Annotated[str, one_of("auto", "required")] | None = None
    tools: list[AllowedFunction] | None = None


class TextFormat(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("text", "json_object", "json_schema")]
    name: str | None = None
    schema: Any = None
    strict: bool | None = None


class TextConfig(msgspec.Struct, kw_only=True):
    format: TextFormat | None = None


class ReasoningConfig(msgspec.Struct, kw_only=True):
    effort: str | None = None


class ResponseFields(GenerationFields, kw_only=True):
    """POST /v1/responses."""

    prompt_field: ClassVar[str] = "input"

    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: Limit | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Annotated[str, one_of("none", "auto", "required")] | ChosenFunctions | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    background: Annotated[bool, described(enum=[False])] | None = None
    truncation: Annotated[str, one_of("disabled")] | None = None
    conversation_id: Any = msgspec.field(name="conversation", default=None)
    prompt: Any = None
    include: list[str] | None = None

    def check(self) -> None:
        super().check()
        refused: tuple[tuple[str, bool], ...] = (
            ("background", bool(self.background)),
            ("truncation", self.truncation not in (None, "disabled")),
            ("conversation", self.conversation_id is not None),
            ("prompt", self.prompt is not None),
            ("include", any("logprobs" in name for name in self.include or [])),
        )
        for name, is_refused in refused:
            if is_refused:
                raise InputError(
                    f"this {name} is not served here; nothing was done. Leave the field out",
                    param=name,
                    code="unsupported_value",
                )

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_output_tokens is None else self.max_output_tokens

    @property
    def is_kept(self) -> bool:
        return self.store is not False

    def messages(self, before: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The conversation so far, without the instructions, which are each response's own.

        Errors: InputError for an item that cannot be served.
        """
        if isinstance(self.input, str):
            return [*before, {"role": "user", "content": self.input}]
        if not self.input:
            raise InputError("input is empty; nothing was done", param="input")
        return _Messages(before).with_items(self.input)

    def conversation(self, messages: Sequence[dict[str, Any]]) -> Conversation:
        """What is asked, in no API's words.

        Errors: InputError for tools, a choice or a format that cannot be.
        """
        if self.instructions is not None:
            messages = [{"role": "system", "content": self.instructions}, *messages]
        chosen = _tool_choice(self.tool_choice)
        conversation = Conversation(
            messages=messages,
            tools=tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(self.tools or [])),
            tool_choice=chosen.choice,
            forced_tool=chosen.forced,
            allowed_tools=chosen.allowed,
            is_parallel=self.parallel_tool_calls is not False,
            answer=_answer_schema(self.text),
            template_kwargs=_template_kwargs(self.reasoning),
            template_kwargs_path="reasoning.effort",
            sources=self._sources(messages),
        )
        conversation.check(tools="tools", tool_choice="tool_choice")
        return conversation

    def _sources(self, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        sources: dict[str, Any] = {"instructions": self.instructions}
        sources |= {"input": self.input} if isinstance(self.input, str) else by_path("input", self.input)
        sources |= by_path("tools", self.tools) | {"reasoning.effort": self.reasoning and self.reasoning.effort}
        # What nothing above says was said before.
        return sources if self.previous_response_id is None else {**sources, "previous_response_id": messages}


class _Messages:
    """Builds messages from items: calls and thinking are items of their own, but parts of a message in templates."""

    def __init__(self, before: Sequence[dict[str, Any]]) -> None:
        self._shown = list(before)
        self._n_before = len(self._shown)
        self._thoughts: list[str] = []

    def with_items(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        for index, item in enumerate(items):
            self._add(item, f"input[{index}]")
        return self._shown

    def _add(self, item: Item, path: str) -> None:
        if item.type == "message":
            self._add_message(item, path)
        elif item.type == "reasoning":
            self._thoughts.append(_text(item.content or item.summary or "", path))
        elif item.type == "function_call":
            if item.name is None:
                raise _missing(f"{path}.name")
            self._assistant().setdefault("tool_calls", []).append(
                template_call(item.call_id, item.name, arguments_of(item.arguments, f"{path}.arguments"))
            )
        elif item.type == "function_call_output":
            if item.call_id is None:
                raise _missing(f"{path}.call_id")
            if item.call_id not in self._call_ids():
                raise InputError(
                    f"{path}.call_id = {item.call_id[:60]!r} is no call of the input before it or of an "
                    "earlier response; nothing was done",
                    param=f"{path}.call_id",
                )
            output = _text(item.output, f"{path}.output")
            self._shown.append({"role": "tool", "content": output, "tool_call_id": item.call_id})
        else:
            raise InputError(
                f"{path}.type = {item.type[:60]!r} is not served here; nothing was done",
                param=f"{path}.type",
                code="unsupported_value",
            )

    def _add_message(self, item: Item, path: str) -> None:
        if item.role not in ROLES:
            raise InputError(
                f"{path}.role = {item.role!r} is none of {', '.join(ROLES)}; nothing was done",
                param=f"{path}.role",
            )
        role = "system" if item.role == "developer" else item.role
        shown: dict[str, Any] = {"role": role, "content": _text(item.content, f"{path}.content")}
        if role == "assistant":
            self._think(shown)
        self._shown.append(shown)

    def _call_ids(self) -> set[str | None]:
        return {call.get("id") for message in self._shown for call in message.get("tool_calls", ())}

    def _assistant(self) -> dict[str, Any]:
        """The assistant's message under way, or a new one without content."""
        if len(self._shown) > self._n_before and self._shown[-1]["role"] == "assistant":
            return self._shown[-1]
        shown = self._think({"role": "assistant", "content": ""})
        self._shown.append(shown)
        return shown

    def _think(self, shown: dict[str, Any]) -> dict[str, Any]:
        if self._thoughts:
            shown["reasoning_content"] = "\n".join(self._thoughts)
            self._thoughts = []
        return shown


def _missing(path: str) -> InputError:
    return InputError(f"{path} is missing; nothing was done", param=path)


def _text(content: str | list[Part] | None, path: str) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        raise _missing(path)
    texts = []
    for index, part in enumerate(content):
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in TEXT_TYPES or text is None:
            raise InputError(
                f"{path}[{index}]: a part of type {part.type[:60]!r} is not served here, or has no text; nothing was "
                "done",
                param=f"{path}[{index}]",
                code="unsupported_value",
            )
        texts.append(text)
    return "".join(texts)


def _tool(tool: FunctionTool, path: str) -> Tool:
    if tool.type != "function":
        raise InputError(
            f"{path}.type = {tool.type[:60]!r}: only functions are served; nothing was done",
            param=f"{path}.type",
            code="unsupported_value",
        )
    if tool.name is None:
        raise _missing(f"{path}.name")
    return Tool(tool.name, tool.description, tool.parameters, f"{path}.parameters")


def _tool_choice(choice: str | ChosenFunctions | None) -> Chosen:
    if isinstance(choice, ChosenFunctions):
        if choice.type == "function" and choice.name is not None:
            return Chosen(ToolChoice.REQUIRED, choice.name)
        if choice.type == "allowed_tools":
            return allowed_choice(choice.mode, [tool.name for tool in choice.tools or []])
    elif choice in (None, "auto", "none", "required"):
        return Chosen(ToolChoice(choice or "auto"))
    raise InputError(
        "tool_choice is none of auto, none, required, allowed_tools, and no function with a name; nothing was done",
        param="tool_choice",
    )


def _answer_schema(config: TextConfig | None) -> AnswerSchema | None:
    """Strict or not, the schema is followed to the letter."""
    if config is None or config.format is None or config.format.type == "text":
        return None
    if config.format.type == "json_object":
        return AnswerSchema({"type": "object"}, "text.format")
    if config.format.type != "json_schema":
        raise InputError(
            f"text.format.type = {config.format.type!r} is none of text, json_object, json_schema; nothing was done",
            param="text.format.type",
        )
    return AnswerSchema(config.format.schema, "text.format.schema")


def _template_kwargs(reasoning: ReasoningConfig | None) -> dict[str, Any]:
    """Templates that know an effort take it; `none` turns thinking off in those that only know on and off."""
    if reasoning is None or reasoning.effort is None:
        return {}
    if reasoning.effort == "none":
        return {"enable_thinking": False}
    return {"reasoning_effort": reasoning.effort}
