"""Which tokens a drawn row chooses among: typical_p, then top_p, min_p, XTC and top_k, each on what is left.

top_p, min_p, XTC and top_k are mlx_lm's, in its order, on log-probabilities before the temperature. The most likely
token that typical_p leaves is always kept, though XTC may remove it in favour of a less likely one. Deliberate
differences from mlx_lm: (1) a top_k of the vocabulary or more filters nothing, where mlx_lm raises; (2) a top_p of 0
keeps the most likely token alone, where mlx_lm filters nothing; (3) whether XTC cuts is decided by a coin of the
row's own, where mlx_lm tosses one for all rows; end tokens are always exempt.

Source: mlx_lm.sample_utils; Locally Typical Sampling (Meister et al. 2022, arXiv:2202.00666) for typical_p; XTC
(github.com/oobabooga/text-generation-webui, pull request 6335).
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import mlx.core as mx
import numpy as np

from mlxcel.core import Sequence
from mlxcel.sampling.noise import token_coin


class Filters:
    """For a fixed list of rows; rows that are greedy are filtered too, to no effect on them.

    Shapes: logprobs [B, V] in; [B, V] out, the tokens that a row's filters reject at -inf.
    """

    def __init__(self, rows: SequenceOf[Sequence], n_vocabulary: int) -> None:
        params = [row.request.sampling for row in rows]
        drawn = [one for one in params if one.temperature > 0]
        self._params = params
        self._typical_p = column([p.typical_p for p in params]) if any(p.typical_p < 1 for p in drawn) else None
        self._top_p = column([p.top_p for p in params]) if any(p.top_p < 1 for p in drawn) else None
        self._min_p = column([p.min_p for p in params]) if any(p.min_p > 0 for p in drawn) else None
        self._top_k = mx.array([[p.top_k or 2**31 - 1] for p in params]) if any(p.top_k > 0 for p in drawn) else None
        self._xtc = _Xtc(rows, n_vocabulary) if any(p.xtc_probability > 0 for p in drawn) else None
        self._sorts = any(one is not None for one in (self._top_p, self._min_p, self._top_k, self._xtc))

    def __call__(self, logprobs: mx.array, positions: SequenceOf[int]) -> mx.array:
        if self._typical_p is not None:
            logprobs = _typical(logprobs, self._typical_p)
        if not self._sorts:
            return logprobs
        order = mx.argsort(-logprobs, axis=-1)
        descending = mx.take_along_axis(logprobs, order, axis=-1)
        is_kept = descending > -mx.inf
        if self._top_p is not None:
            probs = mx.exp(descending)
            mass_before = mx.cumsum(probs, axis=-1, inclusive=False)
            is_within = (mass_before < self._top_p * probs.sum(axis=-1, keepdims=True)) | (self._top_p >= 1)
            # Tokens as likely as the last one within are kept too: their order means nothing.
            lowest = mx.where(is_within, descending, mx.inf).min(axis=-1, keepdims=True)
            is_kept = is_kept & (descending >= lowest)
        if self._min_p is not None:
            is_kept = is_kept & (descending >= descending[:, :1] + mx.log(self._min_p))
        is_kept = is_kept | (mx.arange(logprobs.shape[-1])[None] == 0)
        if self._xtc is not None:
            is_kept = self._xtc(descending, order, is_kept, positions)
        if self._top_k is not None:
            is_kept = is_kept & (mx.cumsum(is_kept.astype(mx.int32), axis=-1) <= self._top_k)
        by_token = mx.put_along_axis(mx.zeros_like(is_kept), order, is_kept, axis=-1)
        return mx.where(by_token, logprobs, -mx.inf)


def _typical(logprobs: mx.array, typical_p: mx.array) -> mx.array:
    """Keep the tokens whose information is nearest to the expected, up to a mass of `typical_p`."""
    probs = mx.exp(logprobs)
    entropy = -mx.where(probs > 0, probs * logprobs, 0).sum(axis=-1, keepdims=True)
    surprise = mx.abs(-logprobs - entropy)
    order = mx.argsort(surprise, axis=-1)
    nearest = mx.take_along_axis(probs, order, axis=-1)
    mass_before = mx.cumsum(nearest, axis=-1, inclusive=False)
    is_within = (mass_before < typical_p * probs.sum(axis=-1, keepdims=True)) | (mx.arange(probs.shape[-1])[None] == 0)
    farthest = mx.where(is_within, mx.take_along_axis(surprise, order, axis=-1), -mx.inf).max(axis=-1, keepdims=True)
    return mx.where((surprise <= farthest) | (typical_p >= 1), logprobs, -mx.inf)


class _Xtc:
    """Exclude top choices: of several tokens over the threshold, only the least likely stays."""

    def __init__(self, rows: SequenceOf[Sequence], n_vocabulary: int) -> None:
        self._params = [row.request.sampling for row in rows]
        self._threshold = column([p.xtc_threshold for p in self._params])
        is_exempt = np.zeros((len(rows), n_vocabulary), np.bool_)
        for index, row in enumerate(rows):
            exempt = row.end_ids | row.request.sampling.xtc_exempt_ids
            is_exempt[index, [token for token in exempt if 0 <= token < n_vocabulary]] = True
        self._is_exempt = mx.array(is_exempt)

    def __call__(
        self, descending: mx.array, order: mx.array, is_kept: mx.array, positions: SequenceOf[int]
    ) -> mx.array:
        cuts = [
            [p.xtc_probability > 0 and token_coin(p.seed, n) < p.xtc_probability]
            for p, n in zip(self._params, positions, strict=True)
        ]
        if not any(cut for (cut,) in cuts):
            return is_kept
        probs = mx.where(is_kept, mx.exp(descending), 0)
        share = probs / probs.sum(axis=-1, keepdims=True)
        least = mx.where(share > self._threshold, share, mx.inf).min(axis=-1, keepdims=True)
        is_exempt = mx.take_along_axis(self._is_exempt, order, axis=-1)
        return is_kept & ~((share > least) & mx.array(cuts) & ~is_exempt)


def column(values: SequenceOf[float]) -> mx.array:
    """One value a row. Shapes: [B, 1]."""
    return mx.array([[value] for value in values], dtype=mx.float32)
