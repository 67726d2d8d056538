"""Log-probabilities for the rows that asked for them: the chosen token's and the most likely ones'.

They are those of the model's own distribution: before bias, penalties, masks, filters and temperature. So they say
what the model thinks, whatever made the choice, as OpenAI's have done since biases stopped showing in them.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx

from mlxcel.core import TokenLogprobs

LARGEST_N_LOGPROBS = 20
"""Always as many are computed, so that a row's ties are broken alike in every batch."""


@dataclass(frozen=True)
class RowsLogprobs:
    """On the device, for R of the batch's rows. Shapes: chosen [R, 1], ids and values [R, K]."""

    rows: SequenceOf[tuple[int, int]]
    """A row's index in the batch, and how many it asked for."""
    chosen: mx.array
    ids: mx.array
    values: mx.array

    def read(self) -> dict[int, TokenLogprobs]:
        """By index in the batch; waits for the device."""
        read: dict[int, TokenLogprobs] = {}
        of_rows = zip(self.rows, *map(_numbers, (self.chosen, self.ids, self.values)), strict=True)
        for (row, n), (chosen,), ids, values in of_rows:
            ranked = sorted(zip(ids, values, strict=True), key=lambda pair: (-pair[1], pair[0]))
            read[row] = TokenLogprobs(chosen, tuple(ranked[:n]))
        return read


def _numbers(array: mx.array) -> list[list[Any]]:
    return cast("list[list[Any]]", array.tolist())


def measure_logprobs(logits: mx.array, tokens: mx.array, rows: SequenceOf[tuple[int, int]]) -> RowsLogprobs:
    """Shapes: logits [B, V], tokens [B]."""
    of_rows = mx.array([row for row, _ in rows])
    logits = logits[of_rows].astype(mx.float32)
    logprobs = mx.minimum(logits - mx.logsumexp(logits, axis=-1, keepdims=True), 0)
    n_top = min(LARGEST_N_LOGPROBS, logits.shape[-1])
    ids = mx.argpartition(-logprobs, kth=n_top - 1, axis=-1)[:, :n_top]
    return RowsLogprobs(
        rows=rows,
        chosen=mx.take_along_axis(logprobs, tokens[of_rows][:, None], axis=-1),
        ids=ids,
        values=mx.take_along_axis(logprobs, ids, axis=-1),
    )
