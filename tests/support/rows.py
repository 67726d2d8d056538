"""Rows to sample for, and plain numpy formulas of what sampling should do to their scores."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt

from mlxcel.core import SamplingParams, Sequence
from tests.support.turns import request

Floats = npt.NDArray[np.float64]


def row_of(
    params: SamplingParams, *, name: str = "r", prompt: SequenceOf[int] = (1,), end_ids: Collection[int] = ()
) -> Sequence:
    return Sequence(request(name, list(prompt), 1000, sampling=params), end_ids=frozenset(end_ids))


def any_params(draw: random.Random, *, n_vocabulary: int) -> SamplingParams:
    """Every parameter is set in about every other row."""
    return SamplingParams(
        seed=draw.randrange(2**63),
        temperature=draw.choice([0, 0, 0, 1e-30, 0.5, 1, 100]),
        top_p=draw.choice([0, 0.5, 0.95, 1]),
        top_k=draw.choice([0, 1, 10, n_vocabulary, 10**6]),
        min_p=draw.choice([0, 0.05, 1]),
        typical_p=draw.choice([0.1, 0.6, 1, 1]),
        xtc_probability=draw.choice([0, 0, 0.5, 1]),
        xtc_threshold=draw.choice([0.02, 0.1]),
        repetition_penalty=draw.choice([0.8, 1, 1, 1.3]),
        presence_penalty=draw.choice([-1.0, 0, 0, 1.5]),
        frequency_penalty=draw.choice([0, 0, 0.3]),
        dry_multiplier=draw.choice([0, 0, 0.8]),
        dry_allowed_length=1,
        dry_sequence_breakers=((7,), (8, 9)),
        logit_bias=draw.choice([{}, {}, {3: 100.0, 5: -100.0}, {n_vocabulary - 1: 2.5}]),
        min_tokens=draw.choice([0, 0, 12]),
        n_logprobs=draw.choice([None, None, 0, 5]),
    )


def repetition_formula(scores: Floats, tokens: SequenceOf[int], penalty: float) -> Floats:
    """CTRL's, with mlx_lm's sign rule, over the last 64 tokens."""
    scores = scores.copy()
    for token in set(tokens[-64:]):
        scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
    return scores


def answer_formula(scores: Floats, answer: SequenceOf[int], *, presence: float, frequency: float) -> Floats:
    """OpenAI's: mu[j] -= c[j] * frequency + (c[j] > 0) * presence."""
    scores = scores.copy()
    for token, count in Counter(answer).items():
        scores[token] -= count * frequency + presence
    return scores


def dry_formula(tokens: SequenceOf[int], params: SamplingParams) -> dict[int, float]:
    """llama.cpp's DRY, by its definition: for each earlier position, how far it repeats what the text ends with."""
    last_n = len(tokens) if params.dry_penalty_last_n is None else params.dry_penalty_last_n
    window = list(tokens)[len(tokens) - min(last_n, len(tokens)) :]
    n, limit = len(window), len(window)
    for start in reversed(range(n)):
        found = [len(b) for b in params.dry_sequence_breakers if b and tuple(window[start : start + len(b)]) == b]
        if found:
            limit = n - start - max(found)
            break
    lengths: dict[int, int] = {}
    if n <= params.dry_allowed_length or limit < params.dry_allowed_length:
        return {}
    for end in range(1, n):
        length = 0
        while length < min(end, limit) and window[end - 1 - length] == window[n - 1 - length]:
            length += 1
        if length >= params.dry_allowed_length:
            lengths[window[end]] = max(length, lengths.get(window[end], 0))
    longest = int(88.7228391 / np.log(params.dry_base)) if params.dry_base > 1.000001 else 10**9
    return {
        token: params.dry_multiplier * params.dry_base ** min(length - params.dry_allowed_length, longest)
        for token, length in lengths.items()
    }


def edited_formula(logits: Floats, row: Sequence, allowed: Collection[int] | None) -> Floats:
    """Every edit of a row's scores in the documented order; `row.tokens` is everything up to the step's input."""
    params, n_prompt = row.request.sampling, len(row.request.prompt)
    scores = logits.astype(np.float64)
    for token, bias in params.logit_bias.items():
        scores[token] += bias
    scores = repetition_formula(scores, row.tokens, params.repetition_penalty)
    scores = answer_formula(
        scores, row.tokens[n_prompt:], presence=params.presence_penalty, frequency=params.frequency_penalty
    )
    if params.dry_multiplier:
        for token, penalty in dry_formula(row.tokens, params).items():
            scores[token] -= penalty
    may = set(range(len(scores))) if allowed is None else set(allowed)
    if len(row.tokens) - n_prompt < params.min_tokens and may - row.end_ids:
        may -= row.end_ids
    scores[[token for token in range(len(scores)) if token not in may]] = -np.inf
    return scores
