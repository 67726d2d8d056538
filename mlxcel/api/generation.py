"""One answer in the making: a ticket's tokens become text and its deltas, until a stop string, the end, or an error."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from mlxcel.api.wire.answers import End, Piece
from mlxcel.core import Event, FinishReason
from mlxcel.engine.tickets import Ticket
from mlxcel.text.logprobs import LogprobStream, ReportedToken
from mlxcel.text.reader import PlainReader, Reader
from mlxcel.text.stream import TextStream


class Generation:
    """Reads one ticket to its end.

    `reader` tells what the text means; without one all of it is content. `logprobs` reports the tokens, if they were
    asked for. With `is_prompt_only` no token of the answer is shown or counted. `n_tokens` counts what was generated
    for this answer, the end token included, `n_cached_tokens` those of the prompt that a prefix had; `first_token_s` is
    a monotonic time, None until it happens.
    """

    def __init__(
        self,
        ticket: Ticket,
        text: TextStream,
        reader: Reader | None = None,
        logprobs: LogprobStream | None = None,
        *,
        is_prompt_only: bool = False,
    ) -> None:
        self.n_tokens = 0
        self.n_cached_tokens = 0
        self.finish: FinishReason | None = None
        self.first_token_s: float | None = None
        self._ticket = ticket
        self._text = text
        self._reader = reader or PlainReader()
        self._logprobs = logprobs
        self._is_prompt_only = is_prompt_only

    @property
    def id(self) -> str:
        return self._ticket.request.id

    @property
    def n_prompt_tokens(self) -> int:
        return len(self._ticket.request.prompt)

    @property
    def end(self) -> End | None:
        """How it ended, once it has."""
        return None if self.finish is None else End(self.finish, self._text.stopped_by)

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
            tokens = None if self._logprobs is None else self._prompt_tokens(self._logprobs, events)
            text, error = self._read(events)
            deltas = self._reader.feed(text) if text else []
            if self._reader.is_done and self.finish is None:
                self._ticket.cancel()
                self.finish = FinishReason.STOP
            if self._logprobs is not None and tokens is not None:
                tokens += self._logprobs.shown(text)
                if self.finish is not None and self._text.stopped_by is None:
                    tokens += self._logprobs.finish()
            if self.finish is not None:
                deltas += self._reader.finish()
                if self.finish is FinishReason.STOP and self._reader.has_calls:
                    self.finish = FinishReason.TOOL_CALLS
            if error is not None:
                if deltas:
                    yield Piece(deltas, tokens=tokens)
                raise error
            if deltas or tokens or self.finish is not None:
                yield Piece(deltas, self.finish, tokens)
            if self.finish is not None:
                return

    def _prompt_tokens(self, logprobs: LogprobStream, events: list[Event]) -> list[ReportedToken]:
        """Those of an echoed prompt, which come with its answer's first token."""
        prompt = self._ticket.request.prompt
        return [
            token
            for event in events
            if event.prompt_logprobs is not None
            for token in logprobs.prompt(prompt, event.prompt_logprobs)
        ]

    def _read(self, events: list[Event]) -> tuple[str, Exception | None]:
        shown = []
        for event in events:
            if event.start is not None:
                self.n_cached_tokens = event.start.n_from_prefix
            if event.token is not None and not self._is_prompt_only:
                self.n_tokens += 1
                # The token that stops a sequence has no text of its own.
                if event.finish is not FinishReason.STOP:
                    if self._logprobs is not None and event.logprobs is not None:
                        self._logprobs.add(event.token, event.logprobs)
                    shown.append(self._text.add(event.token))
                if self._text.stopped_by is not None:
                    self._ticket.cancel()
                    self.finish = FinishReason.STOP
                    break
            if event.finish is not None:
                shown.append(self._text.finish())
                self.finish = FinishReason.STOP if self._text.stopped_by is not None else event.finish
                if self._is_prompt_only and self.finish is FinishReason.STOP:
                    self.finish = FinishReason.LENGTH
                return "".join(shown), event.error
        return "".join(shown), None
