"""A constraint that waits until a row has thought. Owner: as the constraint's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlxcel.core import Constraint

Mask = NDArray[np.uint32]


class AfterThinking:
    """Lets a row think first: the constraint begins once the end of its thinking has been said.

    `is_open`: the prompt has begun the thinking. Otherwise the row may begin it, with its first token or not at
    all. While it thinks everything may come but an end token, which would leave nothing that fits the grammar.
    """

    def __init__(
        self,
        constraint: Constraint,
        *,
        start_ids: Sequence[int],
        end_ids: Sequence[int],
        eos_ids: frozenset[int],
        n_vocabulary: int,
        is_open: bool,
    ) -> None:
        self._constraint = constraint
        self._start_ids = tuple(start_ids)
        self._end_ids = tuple(end_ids)
        self._is_thinking = is_open
        self._may_start = not is_open and len(self._start_ids) == 1
        self._recent: tuple[int, ...] = ()
        self._thoughts = _all_but(eos_ids, n_vocabulary)

    def mask(self) -> Mask | None:
        if self._is_thinking:
            return self._thoughts
        mask = self._constraint.mask()
        if not self._may_start or mask is None:
            return mask
        return mask | _only(self._start_ids[0], len(mask))

    def advance(self, token: int) -> None:
        may_start, self._may_start = self._may_start, False
        if may_start and token == self._start_ids[0]:
            self._is_thinking = True
        elif self._is_thinking:
            self._recent = (*self._recent, token)[-len(self._end_ids) :]
            self._is_thinking = self._recent != self._end_ids
        else:
            self._constraint.advance(token)

    @property
    def is_complete(self) -> bool:
        return not self._is_thinking and self._constraint.is_complete


def _only(token: int, n_words: int) -> Mask:
    mask = np.zeros(n_words, dtype=np.uint32)
    mask[token // 32] = np.uint32(1) << np.uint32(token % 32)
    return mask


def _all_but(tokens: frozenset[int], n_vocabulary: int) -> Mask:
    mask = np.full(-(-n_vocabulary // 32), 0xFFFFFFFF, dtype=np.uint32)
    for token in tokens:
        if 0 <= token < n_vocabulary:
            mask[token // 32] &= ~(np.uint32(1) << np.uint32(token % 32))
    return mask
