"""An answer's text becomes deltas: content, thinking and calls. Knows no API and no tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from mlxcel.text.calls import ForcedCalls, Parser, deltas_of
from mlxcel.text.deltas import CallStart, Content, Delta, Reasoning
from mlxcel.text.segments import Kind, Markers, Segment, Segmenter


class Reader(Protocol):
    """Reads one answer. Once `is_done`, nothing more of the answer is wanted."""

    is_done: bool

    @property
    def has_calls(self) -> bool:
        """The answer calls functions, and each call is whole."""

    def feed(self, text: str) -> list[Delta]: ...
    def finish(self) -> list[Delta]: ...


class PlainReader:
    """All of it is content."""

    is_done = False
    has_calls = False

    def feed(self, text: str) -> list[Delta]:
        return [Content(text)] if text else []

    def finish(self) -> list[Delta]:
        return []


class EchoReader(PlainReader):
    """All of it is content, after the prompt."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def feed(self, text: str) -> list[Delta]:
        prompt, self._prompt = self._prompt, ""
        return super().feed(prompt + text)

    def finish(self) -> list[Delta]:
        return self.feed("")


class MessageReader:
    """Tells a chat model's thinking and calls from its content.

    `parse` reads the calls that the model makes by itself; what it cannot read stays content, markers and all.
    `forced` reads those that a grammar made. Without either there are no calls. With `is_parallel` off the
    answer is done with its first call.
    """

    def __init__(
        self,
        markers: Markers,
        *,
        new_id: Callable[[], str],
        is_thinking: bool = False,
        parse: Parser | None = None,
        forced: ForcedCalls | None = None,
        is_parallel: bool = True,
    ) -> None:
        self._n_calls = 0
        self.is_done = False
        self._markers = markers
        self._segmenter = Segmenter(markers, is_thinking=is_thinking)
        self._new_id = new_id
        self._parse = parse
        self._forced = forced
        self._is_parallel = is_parallel
        self._call = ""

    @property
    def has_calls(self) -> bool:
        return self._n_calls > 0 and not (self._forced is not None and self._forced.is_open)

    def feed(self, text: str) -> list[Delta]:
        """Take the next piece of text."""
        return list(self._read(self._segmenter.feed(text)))

    def finish(self) -> list[Delta]:
        """No more text follows."""
        deltas = list(self._read(self._segmenter.finish()))
        if self._call and not self.is_done:
            deltas += self._close_call("")
        if self._forced is not None and (rest := self._forced.finish()):
            deltas.append(Content(rest))
        return deltas

    def _read(self, segments: Iterator[Segment]) -> Iterator[Delta]:
        for segment in segments:
            if self.is_done:
                return
            if segment.kind is Kind.CALL:
                self._call += segment.text
                if segment.is_end:
                    yield from self._close_call(self._markers.call_end or "")
            elif not segment.text:
                continue
            elif segment.kind is Kind.REASONING:
                yield Reasoning(segment.text)
            elif self._forced is None:
                yield Content(segment.text)
            else:
                for delta in self._forced.feed(segment.text):
                    self._n_calls += isinstance(delta, CallStart)
                    yield delta

    def _close_call(self, end: str) -> Iterator[Delta]:
        text, self._call = self._call, ""
        calls = self._parse(text) if self._parse is not None else None
        if not calls:
            yield Content(f"{self._markers.call_start}{text}{end}")
            return
        for call in calls if self._is_parallel else calls[:1]:
            yield from deltas_of(call, self._n_calls, self._new_id)
            self._n_calls += 1
        self.is_done = not self._is_parallel
