"""The tensors of KV memory: each sequence's own while it prefills, one batch while it decodes.

They are mlx_lm's caches, made by `model`: a lone row keeps its single-row caches, several are merged into
mlx_lm's batch caches, which pad every row to the longest. This room knows their verbs (merge, extend,
filter) and nothing of the model that fills them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import Any

import mlx.core as mx

from mlxcel.errors import BugError
from mlxcel.kv.size import BLOCK_TOKENS

LayerCaches = list[Any]
"""One cache object a layer."""


def can_merge(caches: LayerCaches) -> bool:
    """Whether rows with such caches can decode together."""
    return all(
        can_merge(list(cache.caches)) if hasattr(cache, "caches") else hasattr(cache, "merge") for cache in caches
    )


def copy_caches(caches: LayerCaches) -> LayerCaches:
    """The same keys and values in arrays of their own."""
    return copy.deepcopy(caches)


def cut_caches(caches: LayerCaches, n_tokens: int) -> bool:
    """Keep the first `n_tokens` tokens of single-row caches; False, with nothing changed, where that cannot be done.

    They get memory of their own, no more than a row of that length books. A recurrent state cannot go back, nor can a
    sliding window that has moved on.
    """
    leaves = list(_leaves(caches))
    offsets = [getattr(leaf, "offset", None) for leaf in leaves]
    if not all(
        isinstance(offset, int) and offset >= n_tokens and (offset == n_tokens or leaf.is_trimmable())
        for leaf, offset in zip(leaves, offsets, strict=True)
    ):
        return False
    for leaf in leaves:
        leaf.trim(leaf.offset - n_tokens)
        if isinstance(leaf.keys, mx.array):
            # A plain cache grows by blocks from where it ends; a window's memory has no blocks.
            n_spare = 0 if hasattr(leaf, "max_size") else -n_tokens % BLOCK_TOKENS
            leaf.keys, leaf.values = (_with_spare(a[..., :n_tokens, :], n_spare) for a in (leaf.keys, leaf.values))
    return True


def drop_spare(caches: LayerCaches) -> None:
    """Give back what plain caches have beyond the blocks of their tokens: odd chunks leave up to a block."""
    for leaf in _leaves(caches):
        if isinstance(getattr(leaf, "keys", None), mx.array) and not hasattr(leaf, "max_size"):
            n_booked = leaf.offset + -leaf.offset % BLOCK_TOKENS
            if leaf.keys.shape[-2] > n_booked:
                leaf.keys, leaf.values = (mx.contiguous(a[..., :n_booked, :]) for a in (leaf.keys, leaf.values))


def _with_spare(array: mx.array, n_spare: int) -> mx.array:
    padded: mx.array = mx.pad(array, [(0, 0), (0, 0), (0, n_spare), (0, 0)]) if n_spare else mx.contiguous(array)
    return padded


def can_cut(caches: LayerCaches, n_tokens: int) -> bool:
    """Whether caches that hold `n_tokens` tokens can be cut to any fewer."""
    return all(getattr(leaf, "offset", None) == n_tokens and leaf.is_trimmable() for leaf in _leaves(caches))


def _leaves(caches: SequenceOf[Any]) -> Iterator[Any]:
    for cache in caches:
        if hasattr(cache, "caches"):
            yield from _leaves(cache.caches)
        else:
            yield cache


class BatchArrays:
    """The decoding rows' caches. Owner: the engine thread."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.caches: LayerCaches = []
        self._is_merged = False

    @property
    def nbytes(self) -> int:
        return sum(int(cache.nbytes) for cache in self.caches)

    def join(self, sequence_id: str, caches: LayerCaches) -> None:
        """Add a row behind the others."""
        if not self.ids:
            self.caches, self._is_merged = caches, False
        elif self._is_merged:
            for ours, theirs in zip(self.caches, _merge([caches]), strict=True):
                ours.extend(theirs)
        else:
            self.caches, self._is_merged = _merge([self.caches, caches]), True
        self.ids.append(sequence_id)

    def take_row(self, sequence_id: str) -> LayerCaches:
        """Like `copy_row`, for a row that ended: a lone one's caches are not copied."""
        return self.copy_row(sequence_id) if self._is_merged else self.caches

    def copy_row(self, sequence_id: str) -> LayerCaches:
        """One row's keys and values, in single-row caches of their own."""
        if not self._is_merged:
            return copy_caches(self.caches)
        row = self.ids.index(sequence_id)
        return [cache.extract(row) for cache in self.caches]

    def keep(self, rows: SequenceOf[int]) -> None:
        """Drop every row but these, by index in ascending order."""
        if not rows:
            self.drop()
            return
        if not self._is_merged:
            raise BugError("BatchArrays: a lone row can only be kept or dropped")
        indices = mx.array(list(rows))
        for cache in self.caches:
            cache.filter(indices)
        self.ids = [self.ids[row] for row in rows]

    def drop(self) -> None:
        self.ids, self.caches, self._is_merged = [], [], False


def _merge(rows: SequenceOf[LayerCaches]) -> LayerCaches:
    return [row_caches[0].merge(list(row_caches)) for row_caches in zip(*rows, strict=True)]
