"""Pieces of prefill, and how many prompt tokens one turn may prefill, so that no running stream waits too long.

The size halves while a turn's prefill takes longer than the limit and doubles again while it takes less than
half of it; powers of two, so that few shapes are ever compiled.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from mlxcel.core import Sequence
from mlxcel.kv.prefix import Prefix

LONGEST_PREFILL_S = 0.25
FIRST_CHUNK_TOKENS = 16
LARGEST_CHUNK_TOKENS = 8192


@dataclass(frozen=True)
class Chunk:
    """Tokens `start` to `end` of one sequence, to be prefilled in one model call."""

    sequence: Sequence
    start: int
    end: int

    @property
    def tokens(self) -> SequenceOf[int]:
        return self.sequence.tokens[self.start : self.end]

    @property
    def next_tokens(self) -> SequenceOf[int]:
        """What follows each of the chunk's tokens."""
        return self.sequence.tokens[self.start + 1 : self.end + 1]

    @property
    def is_last(self) -> bool:
        return self.end == len(self.sequence.tokens) - 1


@dataclass(frozen=True)
class Fork:
    """A sequence takes over the keys and values of the first `n_tokens` tokens, which `source` shares with it."""

    sequence: Sequence
    source: Sequence | Prefix
    n_tokens: int


@dataclass(frozen=True)
class Keep:
    """All that a sequence which ended has cached outlives it as a prefix: just the prefix's tokens."""

    sequence: Sequence
    prefix: Prefix


class ChunkSize:
    """The current size in tokens, between 1 and the configured bound (0: only our own bound)."""

    def __init__(self, bound_tokens: int, *, first_tokens: int = FIRST_CHUNK_TOKENS) -> None:
        self._bound = min(bound_tokens, LARGEST_CHUNK_TOKENS) if bound_tokens else LARGEST_CHUNK_TOKENS
        self.n_tokens = min(first_tokens, self._bound)

    def observe(self, n_tokens: int, took_s: float) -> None:
        """Learn from a turn that prefilled `n_tokens` in `took_s` seconds."""
        while took_s > LONGEST_PREFILL_S and self.n_tokens > 1 and n_tokens >= 1:
            self.n_tokens = max(1, self.n_tokens // 2)
            took_s /= 2
        if n_tokens >= self.n_tokens and took_s < LONGEST_PREFILL_S / 2:
            self.n_tokens = min(self._bound, self.n_tokens * 2)
