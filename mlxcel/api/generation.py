"""One answer in the making: a ticket's tokens become text and its deltas, until a stop string, the end, or an error."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from mlxcel.core import Event, FinishReason
from mlxcel.engine.tickets import Ticket
from mlxcel.text.deltas import Delta, Message
from mlxcel.text.reader import PlainReader, Reader
from mlxcel.text.stream import TextStream


@dataclass(frozen=True)
class Piece:
    """What may be shown now; the last piece has the finish reason."""

    deltas: list[Delta]
    finish: FinishReason | None = None


class Generation:
    """Reads one ticket to its end.

    `reader` tells what the text means; without one all of it is content. `n_tokens` counts what was generated for
    this answer, the end token included; `first_token_s` and `ended_s` are monotonic times, None until they happen.
    """

    def __init__(self, ticket: Ticket, text: TextStream, reader: Reader | None = None) -> None:
        self.n_tokens = 0
        self.finish: FinishReason | None = None
        self.first_token_s: float | None = None
        self.ended_s: float | None = None
        self._ticket = ticket
        self._text = text
        self._reader = reader or PlainReader()

    @property
    def id(self) -> str:
        return self._ticket.request.id

    @property
    def n_prompt_tokens(self) -> int:
        return len(self._ticket.request.prompt)

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended it, if one did."""
        return self._text.stopped_by

    def cancel(self) -> None:
        """Nobody wants the rest. Safe to repeat."""
        self._ticket.cancel()

    async def pieces(self, *, idle_s: float | None = None) -> AsyncIterator[Piece | None]:
        """The answer as it comes; None when nothing came for `idle_s` seconds.

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
            deltas = self._reader.feed(text) if text else []
            if self._reader.is_done and self.finish is None:
                self._ticket.cancel()
                self.finish = FinishReason.STOP
            if self.finish is not None:
                self.ended_s = time.monotonic()
                deltas += self._reader.finish()
                if self.finish is FinishReason.STOP and self._reader.has_calls:
                    self.finish = FinishReason.TOOL_CALLS
            if error is not None:
                if deltas:
                    yield Piece(deltas)
                raise error
            if deltas or self.finish is not None:
                yield Piece(deltas, self.finish)
            if self.finish is not None:
                return

    async def whole(self) -> Message:
        """All of the answer."""
        message = Message()
        async for piece in self.pieces():
            if piece is not None:
                message.add(piece.deltas)
        return message

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
