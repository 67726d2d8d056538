"""A conversation as every chat API means it, whatever its words: messages, tools, and what the answer must be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from mlxcel.errors import InputError, reason_of

NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,128}$"
_NAME = re.compile(NAME_PATTERN.strip("^$"))


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. `parameters` is its arguments' schema; `path` names that in errors."""

    name: str
    description: str | None
    parameters: Any
    path: str

    @property
    def template_form(self) -> dict[str, Any]:
        """As chat templates take it: OpenAI's form."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = {"type": "object", "properties": {}} if self.parameters is None else self.parameters
        return {"type": "function", "function": function}


class ToolChoice(Enum):
    """Whether the answer may, must or must not call functions."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True)
class AnswerSchema:
    """What the content of the answer must be. `path` names it in errors."""

    schema: Any
    path: str


@dataclass(frozen=True)
class Conversation:
    """What a chat model is asked.

    `messages` are as chat templates take them; `forced_tool` is the one function that must be called, and
    `allowed_tools` are those that may be, None for all; `template_kwargs_path` is the field that the template's
    variables come from. `sources` are the client's own words for all that the template is given, by their paths in the
    body.
    """

    messages: Sequence[dict[str, Any]]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice.AUTO
    forced_tool: str | None = None
    allowed_tools: frozenset[str] | None = None
    is_parallel: bool = True
    answer: AnswerSchema | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    template_kwargs_path: str = "chat_template_kwargs"
    sources: Mapping[str, Any] = field(default_factory=dict)

    def written(self) -> dict[str, Any]:
        """The sources as JSON values."""
        return {path: msgspec.to_builtins(value) for path, value in self.sources.items()}

    @property
    def text(self) -> str:
        """What the messages say, for judging their length."""
        return "".join(content for message in self.messages if isinstance(content := message.get("content"), str))

    @property
    def forces_calls(self) -> bool:
        return self.forced_tool is not None or self.tool_choice is ToolChoice.REQUIRED

    @property
    def may_think(self) -> bool:
        """The client has not turned thinking off, by the name that templates have for it."""
        return self.template_kwargs.get("enable_thinking") is not False

    @property
    def offered_tools(self) -> tuple[Tool, ...]:
        if self.tool_choice is ToolChoice.NONE:
            return ()
        return tuple(tool for tool in self.tools if self.allowed_tools is None or tool.name in self.allowed_tools)

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """Those that an answer may call: the forced one alone, where one is."""
        return tuple(tool for tool in self.offered_tools if self.forced_tool in (None, tool.name))

    def check(self, *, tools: str, tool_choice: str) -> None:
        """Errors: InputError for tools and a choice that do not go together; the arguments name their fields."""
        _check_names(tool.name for tool in self.tools)
        if self.forces_calls and not self.tools:
            raise InputError(
                f"{tool_choice} forces a call, but there are no {tools}; nothing was done", param=tool_choice
            )
        named = self.allowed_tools or (frozenset() if self.forced_tool is None else {self.forced_tool})
        if strange := sorted(named - {tool.name for tool in self.tools}):
            raise InputError(
                f"{tool_choice} names {strange[0][:60]!r}, which is not among the {tools}; nothing was done",
                param=tool_choice,
            )
        if self.forces_calls and self.answer is not None:
            raise InputError(
                f"{tool_choice} forces a call, so {self.answer.path} cannot shape the answer too; nothing was "
                "done. Leave one of them out",
                param=self.answer.path,
            )


def by_path(name: str, items: Sequence[Any] | None) -> dict[str, Any]:
    """The items of a list, by their paths."""
    return {f"{name}[{index}]": item for index, item in enumerate(items or [])}


@dataclass(frozen=True)
class Chosen:
    """What a tool_choice asks for. `allowed` are the functions that may be called at all, None for every one."""

    choice: ToolChoice
    forced: str | None = None
    allowed: frozenset[str] | None = None


def allowed_choice(mode: str | None, names: Sequence[str | None] | None) -> Chosen:
    """A choice of type allowed_tools: only these functions are shown, and called where `mode` requires it.

    Errors: InputError for another mode, no functions, or one without a name.
    """
    allowed = frozenset(name for name in names or () if name is not None)
    if mode not in ("auto", "required") or not allowed or None in (names or ()):
        raise InputError(
            "tool_choice of type allowed_tools needs a mode, auto or required, and functions by their names; nothing "
            "was done",
            param="tool_choice",
        )
    return Chosen(ToolChoice(mode), allowed=allowed)


def template_call(call_id: str | None, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """An assistant's call as chat templates take it: with its arguments as an object, not as text."""
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return call if call_id is None else {"id": call_id, **call}


def arguments_of(text: str | None, path: str) -> dict[str, Any]:
    """A call's arguments from their JSON text.

    Errors: InputError naming `path`.
    """
    try:
        arguments = msgspec.json.decode(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {reason_of(error)}; nothing was done", param=path) from error
    if not isinstance(arguments, dict):
        raise InputError(f"{path} is JSON, but not an object; nothing was done", param=path)
    return arguments


def _check_names(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not _NAME.fullmatch(name):
            raise InputError(
                f"tools[{index}]: the name {name[:60]!r} is not 1 to 128 letters, digits, '_', '-' and '.'; nothing "
                "was done",
                param=f"tools[{index}]",
            )
        if name in seen:
            raise InputError(f"tools[{index}]: there are two tools {name!r}; nothing was done", param=f"tools[{index}]")
        seen.add(name)
