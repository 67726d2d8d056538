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


Part = Content | Reasoning | Call

NOTHING = Content("")
"""What an answer says that has no part: every API words it as a text that is empty, so that clients find one."""


@dataclass
class Message:
    """A whole answer: its parts in the order in which they began, none of them twice in a row but calls."""

    parts: list[Part] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of its content, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Content))

    @property
    def reasoning(self) -> str:
        """All of its thinking, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def deltas(self) -> list[Delta]:
        """The fewest deltas that add up to it."""
        deltas: list[Delta] = []
        n_calls = 0
        for part in self.parts:
            if isinstance(part, Call):
                deltas += [CallStart(n_calls, part.id, part.name), CallArguments(n_calls, part.arguments)]
                n_calls += 1
            else:
                deltas.append(part)
        return deltas

    def add(self, deltas: Iterable[Delta]) -> None:
        """Take the next deltas of the answer."""
        for delta in deltas:
            if isinstance(delta, CallStart):
                self.parts.append(Call(delta.id, delta.name))
            elif isinstance(delta, CallArguments):
                self.calls[delta.index].arguments += delta.text
            else:
                self._add_text(delta)

    def _add_text(self, delta: Content | Reasoning) -> None:
        last = self.parts[-1] if self.parts else None
        if isinstance(last, Content) and isinstance(delta, Content):
            self.parts[-1] = Content(last.text + delta.text)
        elif isinstance(last, Reasoning) and isinstance(delta, Reasoning):
            self.parts[-1] = Reasoning(last.text + delta.text)
        else:
            self.parts.append(delta)
