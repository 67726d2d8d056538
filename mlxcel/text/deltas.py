"""What an answer is made of as it comes, and the whole of it. Knows no API's words for either."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Content:
    text: str


@dataclass(frozen=True)
class Reasoning:
    text: str


@dataclass(frozen=True)
class CallStart:
    """A call of a function begins; its arguments follow. `index` counts the answer's calls from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    """More of a call's arguments: joined, the text of a JSON object."""

    index: int
    text: str


Delta = Content | Reasoning | CallStart | CallArguments


@dataclass
class Call:
    """A call of a function. `arguments` is JSON text, cut short where the answer was."""

    id: str
    name: str
    arguments: str = ""


@dataclass
class Message:
    """A whole answer."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, deltas: Iterable[Delta]) -> None:
        """Take the next deltas of the answer."""
        for delta in deltas:
            if isinstance(delta, Content):
                self.text += delta.text
            elif isinstance(delta, Reasoning):
                self.reasoning += delta.text
            elif isinstance(delta, CallStart):
                self.calls.append(Call(delta.id, delta.name))
            else:
                self.calls[delta.index].arguments += delta.text
