"""The answers to one request: several prompts, several choices each, made side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from mlxcel.api.generation import Generation
from mlxcel.api.wire.answers import End, Piece, Usage, Whole
from mlxcel.core import FinishReason
from mlxcel.text.deltas import Message
from mlxcel.text.logprobs import ReportedToken


class Choices:
    """Prompt by prompt; a group of generations answers one. A choice's index counts through all of them.

    An error of one choice is the request's, and ends what is read of the others.
    """

    def __init__(self, groups: Sequence[Sequence[Generation]]) -> None:
        self._groups = groups
        self._all = [generation for group in groups for generation in group]

    @property
    def id(self) -> str:
        return self._all[0].id

    @property
    def usage(self) -> Usage:
        return Usage(
            n_prompt_tokens=sum(group[0].n_prompt_tokens for group in self._groups),
            n_tokens=sum(generation.n_tokens for generation in self._all),
            n_cached_tokens=sum(max(generation.n_cached_tokens for generation in group) for group in self._groups),
        )

    @property
    def first_token_s(self) -> float | None:
        """When the first token of any choice came, in monotonic seconds."""
        return min((one.first_token_s for one in self._all if one.first_token_s is not None), default=None)

    @property
    def ends(self) -> list[End]:
        """How each choice ended; empty until all have."""
        ends = [generation.end for generation in self._all]
        return [end for end in ends if end is not None] if None not in ends else []

    @property
    def finish(self) -> FinishReason | None:
        """One reason for them all, once all have ended: the first's, unless one was cancelled."""
        reasons = [end.finish for end in self.ends]
        if FinishReason.CANCELLED in reasons:
            return FinishReason.CANCELLED
        return reasons[0] if reasons else None

    def cancel(self) -> None:
        """Nobody wants the rest. Safe to repeat."""
        for generation in self._all:
            generation.cancel()

    async def pieces(self, *, idle_s: float | None = None) -> AsyncIterator[tuple[int, Piece] | None]:
        """Each choice's pieces as they come, with its index; None when nothing came for `idle_s` seconds.

        Errors: the first error that ended a choice.
        """
        if len(self._all) == 1:
            async for piece in self._all[0].pieces(idle_s=idle_s):
                yield None if piece is None else (0, piece)
            return
        sources = [generation.pieces() for generation in self._all]
        waiting = {asyncio.ensure_future(_next(source)): index for index, source in enumerate(sources)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, timeout=idle_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    yield None
                for index, task in sorted((waiting[task], task) for task in done):
                    del waiting[task]
                    piece = task.result()
                    if piece is not None:
                        waiting[asyncio.ensure_future(_next(sources[index]))] = index
                        yield index, piece
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def whole(self) -> list[Whole]:
        """All of each choice.

        Errors: the first error that ended one.
        """
        messages = [Message() for _ in self._all]
        tokens: list[list[ReportedToken] | None] = [None] * len(self._all)
        async for arrived in self.pieces():
            if arrived is None:
                continue
            index, piece = arrived
            messages[index].add(piece.deltas)
            if piece.tokens is not None:
                tokens[index] = [*(tokens[index] or ()), *piece.tokens]
        return [Whole(*one) for one in zip(messages, self.ends, tokens, strict=True)]


async def _next(pieces: AsyncIterator[Piece | None]) -> Piece | None:
    """The next piece; None at the end."""
    return await anext(pieces, None)
