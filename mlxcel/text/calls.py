"""Calls of functions in an answer's text, read as they come. Knows no model: its words are handed in.

Two ways: a grammar made the calls, so that their form is known to the letter and arguments pass through at once;
or the model made them in its own form, and a parser reads each when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from mlxcel.text.deltas import CallArguments, CallStart, Delta


@dataclass(frozen=True)
class CallForm:
    """The text around and between calls that a grammar makes; each is `{"name":"...","arguments":{...}}`."""

    opening: str = "["
    between: str = ","
    closing: str = "]"


HEAD = '{"name":"'
MIDDLE = '","arguments":'
END = "}"


class ParsedCall(NamedTuple):
    """A call as a model's parser reads it. `id` is the model's own, if it gives one."""

    name: str
    arguments: Any
    id: str | None = None


Parser = Callable[[str], "list[ParsedCall] | None"]
"""The text of one call segment -> its calls, or None where it is none."""


class ForcedCalls:
    """Reads calls that a grammar made; nothing else can be in the text."""

    def __init__(self, form: CallForm, new_id: Callable[[], str]) -> None:
        self._form = form
        self._new_id = new_id
        self._waiting = ""
        self._index = -1
        self._depth = 0
        self._is_in_arguments = False
        self._is_in_string = False
        self._is_escaped = False

    @property
    def is_open(self) -> bool:
        """A call has begun and is not whole yet."""
        return self._is_in_arguments

    def feed(self, text: str) -> Iterator[Delta]:
        """Take the next piece of text."""
        self._waiting += text
        while self._waiting:
            if self._is_in_arguments:
                taken = self._take_arguments()
                if taken:
                    yield CallArguments(self._index, taken)
                continue
            start = self._waiting.find(HEAD)
            end = self._waiting.find(MIDDLE, start + len(HEAD)) if start >= 0 else -1
            if end < 0:
                return
            self._index += 1
            yield CallStart(self._index, self._new_id(), self._waiting[start + len(HEAD) : end])
            self._waiting = self._waiting[end + len(MIDDLE) :]
            self._is_in_arguments = True

    def finish(self) -> str:
        """No more text follows: what was written of a call that is cut before its name is whole."""
        rest, self._waiting = self._waiting, ""
        if self._index < 0:
            return rest
        after = [END + words for words in (self._form.between, self._form.closing)]
        return "" if any(words.startswith(rest) for words in after) else rest.removeprefix(after[0])

    def _take_arguments(self) -> str:
        """Text up to the end of the arguments' object, or all there is."""
        text = self._waiting
        for at, char in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._is_in_string:
                self._is_escaped = char == "\\"
                self._is_in_string = char != '"'
            elif char == '"':
                self._is_in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    self._is_in_arguments = False
                    self._waiting = text[at + 1 :]
                    return text[: at + 1]
        self._waiting = ""
        return text


def deltas_of(call: ParsedCall, index: int, new_id: Callable[[], str]) -> list[Delta]:
    """A parsed call as deltas."""
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return [CallStart(index, call.id or new_id(), call.name), CallArguments(index, arguments)]
