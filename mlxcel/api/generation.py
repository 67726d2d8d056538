"""One answer in the making: a ticket's tokens become text, until a stop string, the end, or an error."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from mlxcel.core import Event, FinishReason
from mlxcel.engine.tickets import Ticket
from mlxcel.text.stream import TextStream


@dataclass(frozen=True)
class Piece:
    """Text that may be shown now; the last piece has the finish reason."""

    text: str
    finish: FinishReason | None = None


class Generation:
    """Reads one ticket to its end.

    `n_tokens` counts what was generated for this answer, the end token included; `first_token_s` and
    `ended_s` are monotonic times, None until they happen.
    """

    def __init__(self, ticket: Ticket, text: TextStream) -> None:
        self.n_tokens = 0
        self.finish: FinishReason | None = None
        self.first_token_s: float | None = None
        self.ended_s: float | None = None
        self._ticket = ticket
        self._text = text

    @property
    def id(self) -> str:
        return self._ticket.request.id

    @property
    def n_prompt_tokens(self) -> int:
        return len(self._ticket.request.prompt)

    def cancel(self) -> None:
        """Nobody wants the rest. Safe to repeat."""
        self._ticket.cancel()

    async def pieces(self, *, idle_s: float | None = None) -> AsyncIterator[Piece | None]:
        """Text as it comes; None when nothing came for `idle_s` seconds.

        Errors: the error that the engine ended the sequence with.
        """
        while True:
            events = await self._ticket.events(timeout_s=idle_s)
            if not events:
                yield None
                continue
            if self.first_token_s is None:
                self.first_token_s = time.monotonic()
            text, error = self._read(events)
            if self.finish is not None:
                self.ended_s = time.monotonic()
            if error is not None:
                if text:
                    yield Piece(text)
                raise error
            if text or self.finish is not None:
                yield Piece(text, self.finish)
            if self.finish is not None:
                return

    async def whole(self) -> str:
        """All of the text."""
        return "".join([piece.text async for piece in self.pieces() if piece is not None])

    def _read(self, events: list[Event]) -> tuple[str, Exception | None]:
        shown = []
        for event in events:
            if event.token is not None:
                self.n_tokens += 1
                # The token that stops a sequence has no text of its own.
                if event.finish is not FinishReason.STOP:
                    shown.append(self._text.add(event.token))
                if self._text.stopped_by is not None:
                    self._ticket.cancel()
                    self.finish = FinishReason.STOP
                    break
            if event.finish is not None:
                shown.append(self._text.finish())
                self.finish = FinishReason.STOP if self._text.stopped_by is not None else event.finish
                return "".join(shown), event.error
        return "".join(shown), None
