"""Sampling a batch: filters, then one draw a row. All rows go through the same few array operations.

The filters are mlx_lm's, in its order, on log-probabilities before the temperature: top_p, min_p, top_k; the
temperature shapes only the draw. Deliberate differences: (1) a draw is the argmax of log-probabilities plus
temperature times Gumbel noise from the row's own key (the same distribution), where mlx_lm uses one global
generator; (2) a top_k of the vocabulary or more filters nothing, where mlx_lm raises; (3) a top_p of 0 keeps
the most likely token alone, where mlx_lm filters nothing.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import mlx.core as mx

from mlxcel.core import SamplingParams
from mlxcel.sampling.noise import token_key


class RowsSampler:
    """Samples for a fixed list of rows; make a new one when the rows change.

    Shapes: logprobs [B, V] in, tokens [B] out.
    """

    def __init__(self, rows: SequenceOf[SamplingParams]) -> None:
        self._rows = rows
        self._is_greedy = all(row.temperature == 0 for row in rows)
        self._temperature = _column([row.temperature for row in rows])
        self._greedy_rows = mx.array([row.temperature == 0 for row in rows])
        drawn = [row for row in rows if row.temperature > 0]
        self._top_p = _column([row.top_p for row in rows]) if any(r.top_p < 1 for r in drawn) else None
        self._min_p = _column([row.min_p for row in rows]) if any(r.min_p > 0 for r in drawn) else None
        self._top_k = mx.array([[row.top_k or 2**31 - 1] for row in rows]) if any(r.top_k > 0 for r in drawn) else None

    def __call__(self, logprobs: mx.array, n_generated: SequenceOf[int]) -> mx.array:
        """Pick each row's token number `n_generated`."""
        greedy = mx.argmax(logprobs, axis=-1)
        if self._is_greedy:
            return greedy
        logprobs = logprobs.astype(mx.float32)
        keys = [token_key(row.seed, n) for row, n in zip(self._rows, n_generated, strict=True)]
        noise = _gumbel(mx.array(keys, dtype=mx.uint32), logprobs.shape[-1])
        # Scaling the noise instead of dividing by the temperature keeps a tiny temperature exact.
        drawn = mx.argmax(self._filtered(logprobs) + self._temperature * noise, axis=-1)
        return mx.where(self._greedy_rows, greedy, drawn)

    def _filtered(self, logprobs: mx.array) -> mx.array:
        """Log-probabilities with the tokens that a row's filters reject at -inf. Shapes: [B, V]."""
        if self._top_p is None and self._min_p is None and self._top_k is None:
            return logprobs
        order = mx.argsort(-logprobs, axis=-1)
        descending = mx.take_along_axis(logprobs, order, axis=-1)
        rank = mx.arange(logprobs.shape[-1])[None]
        is_kept = mx.ones(logprobs.shape, dtype=mx.bool_)
        if self._top_p is not None:
            probs = mx.exp(descending)
            mass_before = mx.cumsum(probs, axis=-1, inclusive=False)
            is_within = (mass_before < self._top_p * probs.sum(axis=-1, keepdims=True)) | (self._top_p >= 1)
            # Tokens as likely as the last one within are kept too: their order means nothing.
            lowest = mx.where(is_within, descending, mx.inf).min(axis=-1, keepdims=True)
            is_kept = is_kept & (descending >= lowest)
        if self._min_p is not None:
            is_kept = is_kept & (descending >= descending[:, :1] + mx.log(self._min_p))
        if self._top_k is not None:
            is_kept = is_kept & (rank < self._top_k)
        is_kept = is_kept | (rank == 0)
        by_token = mx.put_along_axis(mx.zeros_like(is_kept), order, is_kept, axis=-1)
        return mx.where(by_token, logprobs, -mx.inf)


def _column(values: SequenceOf[float]) -> mx.array:
    return mx.array([[value] for value in values], dtype=mx.float32)


def _gumbel(keys: mx.array, n_vocabulary: int) -> mx.array:
    """Standard Gumbel noise, each row from its own key. Shapes: [B, 2] -> [B, V]."""
    draw = mx.vmap(lambda key: mx.random.gumbel((n_vocabulary,), key=key))
    noise: mx.array = draw(keys)
    return noise
