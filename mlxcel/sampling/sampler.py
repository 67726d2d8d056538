"""Sampling a batch: each row by its own parameters, all rows through the same few array operations.

In this order, on a step's logits: logit_bias; repetition penalty; presence and frequency penalties; DRY; tokens that
are not allowed (a constraint's mask, end tokens before min_tokens). A greedy row takes the highest score of that. A
drawn row makes log-probabilities of it, filters them (`filters`: typical_p, top_p, min_p, XTC, top_k) and draws; the
temperature shapes only the draw. Reported log-probabilities are the model's own (`logprobs`).

Deliberate difference from mlx_lm: a draw is the argmax of log-probabilities plus temperature times Gumbel noise from
the row's own key (the same distribution), where mlx_lm uses one global generator.

What a row gets depends on its own parameters alone: an operation that a batch needs for one row changes no bit of
the others' scores, and a row of no edits is picked from the model's own precision whatever its neighbours need.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlxcel.core import SamplingParams, Sequence
from mlxcel.sampling.dry import DryHistory
from mlxcel.sampling.filters import Filters, column
from mlxcel.sampling.logprobs import RowsLogprobs, measure_logprobs
from mlxcel.sampling.mask import RowMasks, Words
from mlxcel.sampling.noise import token_key
from mlxcel.sampling.penalties import AnswerPenalty, RepetitionPenalty, history

Edit = Callable[[mx.array, mx.array], mx.array]
"""Scores [B, V] and the step's input tokens [B] -> scores [B, V]."""


class Samples(NamedTuple):
    """On the device. Shapes: tokens [B]."""

    tokens: mx.array
    logprobs: RowsLogprobs | None = None


class RowsSampler:
    """Samples for a fixed list of rows, one step after the other; when the rows change, a new one takes over.

    It may be made from the `previous` one, to keep what took long to find out about rows that stay.
    """

    def __init__(self, rows: SequenceOf[Sequence], previous: RowsSampler | None = None) -> None:
        params = [row.request.sampling for row in rows]
        self._rows = rows
        self._params = params
        edited = [_is_edited(row) for row in rows]
        self._edits_any = any(edited)
        self._draws_any = any(one.temperature > 0 for one in params)
        self._reported = [(index, one.n_logprobs) for index, one in enumerate(params) if one.n_logprobs is not None]
        self._temperature = column([one.temperature for one in params])
        self._greedy_rows = mx.array([one.temperature == 0 for one in params])
        self._edited_rows = mx.array(edited)
        kept: dict[str, DryHistory] = {} if previous is None else previous._dry
        self._dry: dict[str, DryHistory] = {row.id: kept[row.id] for row in rows if row.id in kept}
        self._edits: list[Edit] = []
        self._masks: RowMasks | None = None
        self._filters: Filters | None = None

    def __call__(
        self,
        logits: mx.array,
        inputs: mx.array,
        positions: SequenceOf[int],
        masks: SequenceOf[Words | None] | None = None,
    ) -> Samples:
        """Pick each row's token number `positions[row]`, for the step that took `inputs`.

        Shapes: logits [B, V], inputs [B], masks [ceil(V / 32)] each.
        Errors: ValueError if a row's parameters do not fit the vocabulary, or its mask allows nothing.
        """
        tokens = mx.argmax(logits - mx.logsumexp(logits, axis=-1, keepdims=True), axis=-1)
        if self._edits_any or self._draws_any:
            tokens = self._pick(logits.astype(mx.float32), inputs, positions, masks, plain=tokens)
        reported = measure_logprobs(logits, tokens, self._reported) if self._reported else None
        return Samples(tokens, reported)

    def _pick(
        self,
        scores: mx.array,
        inputs: mx.array,
        positions: SequenceOf[int],
        masks: SequenceOf[Words | None] | None,
        *,
        plain: mx.array,
    ) -> mx.array:
        greedy = plain
        if self._edits_any:
            scores = self._edited(scores, inputs, positions, masks)
            greedy = mx.where(self._edited_rows, mx.argmax(scores, axis=-1), plain)
        if not self._draws_any:
            return greedy
        if self._filters is None:
            self._filters = Filters(self._rows, scores.shape[-1])
        logprobs = scores - mx.logsumexp(scores, axis=-1, keepdims=True)
        keys = [token_key(one.seed, n) for one, n in zip(self._params, positions, strict=True)]
        noise = _gumbel(mx.array(keys, dtype=mx.uint32), scores.shape[-1])
        # Scaling the noise instead of dividing by the temperature keeps a tiny temperature exact.
        drawn = mx.argmax(self._filters(logprobs, positions) + self._temperature * noise, axis=-1)
        return mx.where(self._greedy_rows, greedy, drawn)

    def _edited(
        self,
        scores: mx.array,
        inputs: mx.array,
        positions: SequenceOf[int],
        masks: SequenceOf[Words | None] | None,
    ) -> mx.array:
        if self._masks is None:
            self._masks = RowMasks(self._rows, scores.shape[-1])
            self._edits = self._make_edits(positions, scores.shape[-1])
        for edit in self._edits:
            scores = edit(scores, inputs)
        is_allowed = self._masks(positions, masks)
        return scores if is_allowed is None else mx.where(is_allowed, scores, -mx.inf)

    def _make_edits(self, positions: SequenceOf[int], n_vocabulary: int) -> list[Edit]:
        edits: list[Edit] = []
        if any(one.logit_bias for one in self._params):
            edits.append(_LogitBias(self._params, n_vocabulary))
        if any(one.repetition_penalty != 1 for one in self._params):
            edits.append(RepetitionPenalty(self._rows, positions))
        if any(one.presence_penalty or one.frequency_penalty for one in self._params):
            edits.append(AnswerPenalty(self._rows, positions, n_vocabulary))
        dry_rows = [row for row, one in enumerate(self._params) if one.dry_multiplier]
        if dry_rows:
            edits.append(_DryPenalty([(row, self._dry_history(row, positions[row])) for row in dry_rows]))
        return edits

    def _dry_history(self, row: int, position: int) -> DryHistory:
        sequence = self._rows[row]
        before = history(sequence, position)
        known = self._dry.get(sequence.id)
        if known is None or known.n_tokens != len(before):
            known = DryHistory(self._params[row], before)
        self._dry[sequence.id] = known
        return known


def needs_last_token(row: Sequence) -> bool:
    """Whether a row's next token can be picked only once its last one was read."""
    return row.request.constraint is not None or row.request.sampling.dry_multiplier != 0


def _is_edited(row: Sequence) -> bool:
    one = row.request.sampling
    return (
        bool(one.logit_bias)
        or one.repetition_penalty != 1
        or one.presence_penalty != 0
        or one.frequency_penalty != 0
        or one.dry_multiplier != 0
        or one.min_tokens > 0
        or row.request.constraint is not None
    )


class _LogitBias:
    def __init__(self, params: SequenceOf[SamplingParams], n_vocabulary: int) -> None:
        entries = [(row, token, bias) for row, one in enumerate(params) for token, bias in one.logit_bias.items()]
        # An id outside would write into another row's scores, or into memory that is not ours.
        if outside := [token for _, token, _ in entries if not 0 <= token < n_vocabulary]:
            raise ValueError(f"logit_bias names token {outside[0]}, but the vocabulary has {n_vocabulary}")
        self._rows = mx.array([row for row, _, _ in entries])
        self._tokens = mx.array([token for _, token, _ in entries])
        self._biases = mx.array([bias for _, _, bias in entries], dtype=mx.float32)

    def __call__(self, scores: mx.array, inputs: mx.array) -> mx.array:  # noqa: ARG002 - as every edit
        return scores.at[self._rows, self._tokens].add(self._biases)


class _DryPenalty:
    """Reads the inputs, so it waits for the step before; the model call that made the scores goes on meanwhile."""

    def __init__(self, histories: SequenceOf[tuple[int, DryHistory]]) -> None:
        self._histories = histories

    def __call__(self, scores: mx.array, inputs: mx.array) -> mx.array:
        read = np.array(inputs)
        rows, ids, penalties = [], [], []
        for row, known in self._histories:
            known.append(int(read[row]))
            of_row = known.penalties()
            rows.append(np.full(len(of_row[0]), row, np.int32))
            ids.append(of_row[0])
            penalties.append(of_row[1])
        if not any(map(len, ids)):
            return scores
        at = (mx.array(np.concatenate(rows)), mx.array(np.concatenate(ids)))
        return scores.at[at].subtract(mx.array(np.concatenate(penalties)))


def _gumbel(keys: mx.array, n_vocabulary: int) -> mx.array:
    """Standard Gumbel noise, each row from its own key. Shapes: [B, 2] -> [B, V]."""
    draw = mx.vmap(lambda key: mx.random.gumbel((n_vocabulary,), key=key))
    noise: mx.array = draw(keys)
    return noise
