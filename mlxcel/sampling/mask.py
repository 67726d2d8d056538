"""Which tokens a row may pick at all: its constraint's mask, and no end token before `min_tokens`.

Masks are packed, 32 tokens a word, and become a tensor for all rows at once. Where a constraint allows nothing
but end tokens, its answer is over and `min_tokens` gives way.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxcel.core import Sequence

Words = NDArray[np.uint32]
_ALL = np.uint32(0xFFFFFFFF)


class RowMasks:
    """For a fixed list of rows and a vocabulary of `n_vocabulary`."""

    def __init__(self, rows: SequenceOf[Sequence], n_vocabulary: int) -> None:
        self._n_vocabulary = n_vocabulary
        self._all = np.full(-(-n_vocabulary // 32), _ALL)
        if n_vocabulary % 32:
            self._all[-1] = (1 << n_vocabulary % 32) - 1
        self._min_tokens = [row.request.sampling.min_tokens for row in rows]
        self._no_ends = [
            self._all & ~packed(row.end_ids, n_vocabulary) if row.request.sampling.min_tokens else self._all
            for row in rows
        ]
        self._shifts = mx.arange(32, dtype=mx.uint32)

    def __call__(self, positions: SequenceOf[int], masks: SequenceOf[Words | None] | None) -> mx.array | None:
        """What each row may pick as its token number `positions[row]`; None if that is everything for all.

        Shapes: masks [ceil(V / 32)] each, [B, V] out.
        Errors: ValueError if a mask allows no token of the vocabulary.
        """
        words = [
            self._words(row, n < self._min_tokens[row], None if masks is None else masks[row])
            for row, n in enumerate(positions)
        ]
        if all(row is self._all for row in words):
            return None
        bits = (mx.array(np.stack(words))[:, :, None] >> self._shifts) & 1
        return bits.reshape(len(words), -1)[:, : self._n_vocabulary].astype(mx.bool_)

    def _words(self, row: int, is_too_short: bool, mask: Words | None) -> Words:
        if mask is None:
            return self._no_ends[row] if is_too_short else self._all
        words = np.zeros_like(self._all)
        n_words = min(len(mask), len(words))
        words[:n_words] = mask[:n_words] & self._all[:n_words]
        if not words.any():
            raise ValueError("its constraint allows no token that the model has")
        if is_too_short and (words & self._no_ends[row]).any():
            words &= self._no_ends[row]
        return words


def packed(token_ids: Iterable[int], n_vocabulary: int) -> Words:
    """A mask of these tokens; ids outside the vocabulary are left out. Shapes: [ceil(V / 32)]."""
    words = np.zeros(-(-n_vocabulary // 32), np.uint32)
    for token in token_ids:
        if 0 <= token < n_vocabulary:
            words[token // 32] |= np.uint32(1 << token % 32)
    return words
