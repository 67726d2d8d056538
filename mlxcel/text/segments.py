"""The parts of an answer's text, told apart by the markers around them: thinking, calls, and the content itself.

Knows no tokens and no model: the markers are handed in. Text comes in pieces; where they are cut changes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mlxcel.text.stop import StopMatcher


class Kind(Enum):
    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call"


@dataclass(frozen=True)
class Markers:
    """What a model writes around its thinking and its calls; None where it does neither.

    `call_end` may be empty: then calls go on to the end of the answer. `noise` is written around content and
    means nothing. `thinks_first`: thinking comes first or not at all, and once content has begun all is content.
    """

    think_start: str | None = None
    think_end: str | None = None
    call_start: str | None = None
    call_end: str | None = None
    noise: tuple[str, ...] = ()
    thinks_first: bool = False

    def after(self, kind: Kind) -> dict[str, Kind]:
        """Each marker that may come inside a segment, and what begins after it."""
        steps: dict[str | None, Kind] = {}
        if kind is Kind.CONTENT:
            steps = {self.think_start: Kind.REASONING, self.call_start: Kind.CALL}
            steps |= dict.fromkeys(self.noise, Kind.CONTENT)
        elif kind is Kind.REASONING:
            steps = {self.think_end: Kind.CONTENT, self.call_start: Kind.CALL}
        else:
            steps = {self.call_end: Kind.CONTENT}
        return {marker: next_kind for marker, next_kind in steps.items() if marker}


class Segment(NamedTuple):
    """A piece of one part. `is_end`: the part ends here, by its marker."""

    kind: Kind
    text: str
    is_end: bool = False


class Segmenter:
    """Splits text into segments; the markers themselves are not shown."""

    def __init__(self, markers: Markers, *, is_thinking: bool = False) -> None:
        self._markers = markers
        self._enter(Kind.REASONING if is_thinking else Kind.CONTENT)

    def feed(self, text: str) -> Iterator[Segment]:
        """Take the next piece of text."""
        while True:
            shown = self._matcher.feed(text)
            if shown and self._kind is Kind.CONTENT and self._markers.thinks_first:
                shown += self._all_content()
            if self._matcher.matched is None:
                if shown:
                    yield Segment(self._kind, shown)
                return
            text = yield from self._leave(shown)

    def finish(self) -> Iterator[Segment]:
        """No more text follows: what was held back in case it began a marker."""
        while True:
            shown = self._matcher.flush()
            if self._matcher.matched is None:
                if shown:
                    yield Segment(self._kind, shown)
                return
            yield from self.feed((yield from self._leave(shown)))

    def _leave(self, shown: str) -> Generator[Segment, None, str]:
        """End this part at its marker and return the text after that."""
        assert self._matcher.matched is not None
        yield Segment(self._kind, shown, is_end=True)
        rest = self._matcher.rest
        self._enter(self._steps[self._matcher.matched])
        if self._kind is Kind.CONTENT and self._markers.thinks_first:
            self._all_content()
        return rest

    def _enter(self, kind: Kind) -> None:
        self._kind = kind
        self._steps = self._markers.after(kind)
        self._matcher = StopMatcher(list(self._steps))

    def _all_content(self) -> str:
        """Look for no more markers, and return the text that was taken for one, or might have become one."""
        taken = self._matcher.flush()
        if self._matcher.matched is not None:
            taken += self._matcher.matched + self._matcher.rest
        self._matcher = StopMatcher([])
        return taken
