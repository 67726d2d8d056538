"""POST /v1/messages: what a client may send. Source: Anthropic's API reference, messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from mlxcel.api.wire.conversation import (
    NAME_PATTERN,
    AnswerSchema,
    Chosen,
    Conversation,
    Tool,
    ToolChoice,
    by_path,
    template_call,
)
from mlxcel.api.wire.described import described, one_of
from mlxcel.api.wire.ranges import Stops
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.errors import InputError

ROLES = ("user", "assistant", "system")
THINKING = ("enabled", "adaptive", "disabled")
BLOCK_TYPES = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


class Block(msgspec.Struct, kw_only=True):
    """A content block, or one inside a tool's result. Which fields it has follows from its type."""

    type: Annotated[str, one_of(*BLOCK_TYPES)]
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None


class InputMessage(msgspec.Struct, kw_only=True):
    role: Annotated[str, one_of(*ROLES)]
    content: str | list[Block]


class InputTool(msgspec.Struct, kw_only=True):
    name: Annotated[str, described(pattern=NAME_PATTERN)]
    type: Annotated[str, one_of("custom")] | None = None
    description: str | None = None
    input_schema: Any = None


class InputToolChoice(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("auto", "any", "none", "tool")]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of(*THINKING)]
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct, kw_only=True):
    type: Annotated[str, one_of("json_schema")]
    schema: Any = None


class OutputConfig(msgspec.Struct, kw_only=True):
    format: OutputFormat | None = None


class CountTokensFields(GenerationFields, kw_only=True):
    """POST /v1/messages/count_tokens: a conversation, of which nothing is generated."""

    messages: Annotated[list[InputMessage], described(minItems=1)]
    system: str | list[Block] | None = None
    tools: list[InputTool] | None = None
    tool_choice: InputToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    def conversation(self) -> Conversation:
        """What is asked, in no API's words.

        Errors: InputError for messages, tools or a choice that cannot be served.
        """
        if not self.messages:
            raise InputError("messages is empty; nothing was done", param="messages")
        if self.messages[-1].role == "assistant":
            raise InputError(
                "the last message is the assistant's, and this server begins each answer anew; nothing was done. "
                "End with a user message",
                param="messages",
                code="unsupported_value",
            )
        chosen = _tool_choice(self.tool_choice)
        conversation = Conversation(
            messages=self._template_messages(),
            tools=tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(self.tools or [])),
            tool_choice=chosen.choice,
            forced_tool=chosen.forced,
            is_parallel=self.tool_choice is None or not self.tool_choice.disable_parallel_tool_use,
            answer=_answer_schema(self.output_config),
            template_kwargs=_template_kwargs(self.thinking),
            template_kwargs_path="thinking",
            sources={"system": self.system} | by_path("messages", self.messages) | by_path("tools", self.tools),
        )
        conversation.check(tools="tools", tool_choice="tool_choice")
        return conversation

    def _template_messages(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        if self.system:
            shown.append({"role": "system", "content": _text(self.system, "system")})
        for index, message in enumerate(self.messages):
            for part in _parts(message, f"messages[{index}]"):
                if shown and _continues(shown[-1], part):
                    shown[-1] = {**shown[-1], "content": f"{shown[-1]['content']}\n{part['content']}"}
                else:
                    shown.append(part)
        return shown


class MessagesFields(CountTokensFields, kw_only=True):
    """POST /v1/messages."""

    stop_sequences: Stops | None = None

    def check(self) -> None:
        if self.max_tokens is None:
            raise InputError("max_tokens is missing; nothing was done", param="max_tokens")
        super().check()

    @property
    def stops(self) -> list[str]:
        return [*super().stops, *(self.stop_sequences or [])]


def _continues(last: dict[str, Any], part: dict[str, Any]) -> bool:
    """Turns of one speaker in a row are one turn, as the API has it; templates want them to alternate."""
    is_plain = last.keys() == part.keys() == {"role", "content"}
    return is_plain and last["role"] == part["role"] in ("user", "assistant")


def _parts(message: InputMessage, path: str) -> Iterator[dict[str, Any]]:
    """A message as templates take it: results of tools are messages of their own."""
    if message.role not in ROLES:
        raise InputError(
            f"{path}.role = {message.role!r} is none of {', '.join(ROLES)}; nothing was done",
            param=f"{path}.role",
        )
    if message.role == "assistant" and not isinstance(message.content, str):
        yield _assistant(message.content, f"{path}.content")
    elif message.role == "user" and not isinstance(message.content, str):
        yield from _user(message.content, f"{path}.content")
    else:
        yield {"role": message.role, "content": _text(message.content, f"{path}.content")}


def _user(blocks: list[Block], path: str) -> Iterator[dict[str, Any]]:
    texts: list[str] = []
    for index, block in enumerate(blocks):
        if block.type != "tool_result":
            texts.append(_block_text(block, f"{path}[{index}]"))
            continue
        if texts:
            yield {"role": "user", "content": "\n".join(texts)}
            texts = []
        result = _text(block.content or "", f"{path}[{index}].content")
        shown = {"role": "tool", "content": f"Error: {result}" if block.is_error else result}
        yield shown if block.tool_use_id is None else {**shown, "tool_call_id": block.tool_use_id}
    if texts or not blocks:
        yield {"role": "user", "content": "\n".join(texts)}


def _assistant(blocks: list[Block], path: str) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        if block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type == "tool_use":
            if block.name is None:
                raise InputError(f"{path}[{index}].name is missing; nothing was done", param=f"{path}[{index}].name")
            calls.append(template_call(block.id, block.name, block.input or {}))
        elif block.type != "redacted_thinking":  # nobody but its maker can read that
            texts.append(_block_text(block, f"{path}[{index}]"))
    shown: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        shown["reasoning_content"] = "\n".join(thoughts)
    if calls:
        shown["tool_calls"] = calls
    return shown


def _text(content: str | list[Block], path: str) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_block_text(block, f"{path}[{index}]") for index, block in enumerate(content))


def _block_text(block: Block, path: str) -> str:
    if block.type != "text" or block.text is None:
        raise InputError(
            f"{path}: a block of type {block.type[:60]!r} is not served here, or has no text; nothing was done",
            param=path,
            code="unsupported_value",
        )
    return block.text


def _tool(tool: InputTool, path: str) -> Tool:
    if tool.type not in (None, "custom"):
        raise InputError(
            f"{path}.type = {tool.type!r}: only tools of the client's own are served; nothing was done",
            param=f"{path}.type",
            code="unsupported_value",
        )
    return Tool(tool.name, tool.description, tool.input_schema, f"{path}.input_schema")


def _tool_choice(choice: InputToolChoice | None) -> Chosen:
    kind = "auto" if choice is None else choice.type
    if kind == "tool" and choice is not None and choice.name is not None:
        return Chosen(ToolChoice.REQUIRED, choice.name)
    choices = {"auto": ToolChoice.AUTO, "none": ToolChoice.NONE, "any": ToolChoice.REQUIRED}
    if kind not in choices:
        raise InputError(
            f"tool_choice.type = {kind!r} is none of auto, any, none, and no tool with a name; nothing was done",
            param="tool_choice",
        )
    return Chosen(choices[kind])


def _answer_schema(config: OutputConfig | None) -> AnswerSchema | None:
    if config is None or config.format is None:
        return None
    if config.format.type != "json_schema":
        raise InputError(
            f"output_config.format.type = {config.format.type!r} is not json_schema; nothing was done",
            param="output_config.format.type",
        )
    return AnswerSchema(config.format.schema, "output_config.format.schema")


def _template_kwargs(thinking: Thinking | None) -> dict[str, Any]:
    if thinking is None:
        return {}
    if thinking.type not in THINKING:
        raise InputError(
            f"thinking.type = {thinking.type!r} is none of {', '.join(THINKING)}; nothing was done",
            param="thinking.type",
        )
    return {"enable_thinking": thinking.type != "disabled"}
