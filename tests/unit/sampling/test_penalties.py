from __future__ import annotations

import random

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import sample_utils

from mlxcel.core import SamplingParams
from mlxcel.sampling.penalties import REPETITION_WINDOW_TOKENS, AnswerPenalty, RepetitionPenalty
from tests.support.rows import answer_formula, repetition_formula, row_of

V = 50


def logits_of(seed: int, *, n_rows: int) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal((n_rows, V)).astype(np.float32) * 3)


@pytest.mark.parametrize("seed", range(3))
def test_penalties_are_those_of_the_formulas_though_the_last_token_is_never_read(seed: int) -> None:
    draw = random.Random(seed)
    rows = [
        row_of(
            SamplingParams(
                seed=0,
                repetition_penalty=draw.choice([0.5, 1.0, 1.3]),
                presence_penalty=draw.choice([-2.0, 0.0, 0.7]),
                frequency_penalty=draw.choice([0.0, 0.4, 2.0]),
            ),
            prompt=[draw.randrange(V) for _ in range(draw.choice([1, 2, 63, 64, 65, 200]))],
        )
        for _ in range(5)
    ]
    repetition = answer = None
    under_way = [row.tokens[-1] for row in rows]
    for step in range(100):
        positions = [step] * len(rows)
        # The rows change now and then: everything is made again from what was read so far.
        if repetition is None or answer is None or draw.random() < 0.1:
            repetition, answer = RepetitionPenalty(rows, positions), AnswerPenalty(rows, positions, V)
        if step > 0:
            for row, token in zip(rows, under_way, strict=True):
                row.tokens.append(token)
        inputs = mx.array(under_way, dtype=mx.uint32)
        logits = logits_of(1000 * seed + step, n_rows=len(rows))
        got = np.array(answer(repetition(logits, inputs), inputs))
        for index, row in enumerate(rows):
            params = row.request.sampling
            expected = repetition_formula(np.array(logits[index], np.float64), row.tokens, params.repetition_penalty)
            expected = answer_formula(
                expected,
                row.tokens[len(row.request.prompt) :],
                presence=params.presence_penalty,
                frequency=params.frequency_penalty,
            )
            np.testing.assert_allclose(got[index], expected, rtol=1e-5, atol=1e-5)
        under_way = [draw.randrange(V) for _ in rows]


@pytest.mark.parametrize("penalty", [0.7, 1.2])
def test_the_formula_is_mlx_lms(penalty: float) -> None:
    draw = random.Random(1)
    tokens = [draw.randrange(V) for _ in range(150)]
    logits = logits_of(1, n_rows=1)
    ours = repetition_formula(np.array(logits[0], np.float64), tokens, penalty)
    theirs = sample_utils.make_repetition_penalty(penalty, REPETITION_WINDOW_TOKENS)(mx.array(tokens), logits + 0)
    np.testing.assert_allclose(np.array(theirs[0]), ours, rtol=1e-5)
    ours = answer_formula(np.array(logits[0], np.float64), tokens, presence=penalty, frequency=0)
    theirs = sample_utils.make_presence_penalty(penalty, len(tokens))(mx.array(tokens), logits + 0)
    np.testing.assert_allclose(np.array(theirs[0]), ours, rtol=1e-5, atol=1e-6)
    ours = answer_formula(np.array(logits[0], np.float64), tokens, presence=0, frequency=penalty)
    theirs = sample_utils.make_frequency_penalty(penalty, len(tokens))(mx.array(tokens), logits + 0)
    np.testing.assert_allclose(np.array(theirs[0]), ours, rtol=1e-5, atol=1e-6)


def test_a_prompts_tokens_count_for_repetition_and_not_for_presence_or_frequency() -> None:
    params = SamplingParams(seed=0, repetition_penalty=2, presence_penalty=1, frequency_penalty=1)
    row = row_of(params, prompt=[3, 4])
    logits = mx.ones((1, V))
    inputs = mx.array([4], dtype=mx.uint32)
    repeated = np.array(RepetitionPenalty([row], [0])(logits, inputs))[0]
    assert np.flatnonzero(repeated != 1).tolist() == [3, 4]
    assert (np.array(AnswerPenalty([row], [0], V)(logits, inputs)) == 1).all()
