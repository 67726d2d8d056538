from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence as SequenceOf
from typing import cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from mlx_lm import sample_utils

from mlxcel.core import SamplingParams, Sequence, TokenLogprobs
from mlxcel.sampling.mask import Words, packed
from mlxcel.sampling.sampler import RowsSampler, Samples
from tests.support.constraints import ThirdOfVocabulary, allowed_after
from tests.support.rows import any_params, edited_formula, row_of
from tests.support.turns import request

Floats = npt.NDArray[np.float32]
V = 97
GREEDY = SamplingParams(seed=0, temperature=0)


def logprobs_of(seed: int, *, n_rows: int = 1, spread: float = 2.0) -> Floats:
    logits = np.random.default_rng(seed).standard_normal((n_rows, V)).astype(np.float32) * spread
    return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), np.float32)


def kept_by_reference(logprobs: Floats, params: SamplingParams) -> set[int]:
    """The tokens that may be drawn, one row: mlx_lm.sample_utils' filters in its order, in plain numpy."""
    kept = np.ones(V, bool)
    probs = np.exp(logprobs.astype(np.float64))
    if 0 < params.top_p < 1:
        above = np.array([probs[logprobs > one].sum() for one in logprobs])
        kept &= above < params.top_p * probs.sum()
    if params.min_p > 0:
        kept &= probs >= probs.max() * params.min_p * (1 - 1e-6)
    if 0 < params.top_k < V:
        kept &= np.argsort(np.argsort(-logprobs, kind="stable"), kind="stable") < params.top_k
    return set(np.flatnonzero(kept).tolist())


def sample(sampler: RowsSampler, logits: mx.array, positions: SequenceOf[int]) -> list[int]:
    """One step whose input does not matter."""
    inputs = mx.ones(logits.shape[0], dtype=mx.uint32)
    return cast("list[int]", sampler(logits, inputs, positions).tokens.tolist())


def drawn_tokens(logprobs: Floats, params: SamplingParams, n_draws: int) -> npt.NDArray[np.int64]:
    """Many tokens from one distribution: the same row at positions 0, 1, 2, ..."""
    rows = [row_of(params)] * n_draws
    return np.array(sample(RowsSampler(rows), mx.array(np.repeat(logprobs, n_draws, axis=0)), range(n_draws)))


FILTERS = [
    {"top_p": 0.9},
    {"top_p": 0.3},
    {"top_p": 1.0},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": V},
    {"top_k": V + 1},
    {"top_k": 2**31 - 1},
    {"top_p": 0.8, "min_p": 0.05},
    {"top_p": 0.95, "min_p": 0.02, "top_k": 12},
]


@pytest.mark.parametrize("filters", FILTERS)
def test_the_filters_keep_the_tokens_that_mlx_lm_keeps(filters: dict[str, float]) -> None:
    for seed in range(4):
        logprobs = logprobs_of(seed)
        params = SamplingParams(seed=seed, temperature=100, **filters)  # type: ignore[arg-type]
        kept = kept_by_reference(logprobs[0], params)
        drawn = set(drawn_tokens(logprobs, params, 3000).tolist())
        assert drawn <= kept
        # At this temperature every kept token is about as likely as any other.
        assert len(drawn) == len(kept)


@pytest.mark.parametrize("filters", [{"top_p": 0.9}, {"top_p": 0.95, "min_p": 0.02, "top_k": 12}])
def test_the_reference_is_mlx_lm(filters: dict[str, float]) -> None:
    for seed in range(4):
        logprobs = logprobs_of(seed)
        filtered = mx.array(logprobs)
        if 0 < filters.get("top_p", 0) < 1:
            filtered = sample_utils.apply_top_p(filtered, filters["top_p"])
        if "min_p" in filters:
            filtered = sample_utils.apply_min_p(filtered, filters["min_p"])
        if "top_k" in filters:
            filtered = sample_utils.apply_top_k(filtered, filters["top_k"])
        params = SamplingParams(seed=seed, **filters)  # type: ignore[arg-type]
        kept = set(np.flatnonzero(np.isfinite(np.array(filtered[0]))).tolist())
        assert kept == kept_by_reference(logprobs[0], params)


def test_top_p_keeps_every_token_as_likely_as_the_least_likely_that_it_keeps() -> None:
    logits = np.full((1, V), -20, np.float32)
    logits[0, 10:20] = 0  # ten equal tokens, of which 0.35 takes in four
    logprobs = logits - np.log(np.exp(logits).sum())
    drawn = drawn_tokens(logprobs, SamplingParams(seed=0, temperature=1, top_p=0.35), 500)
    assert set(drawn.tolist()) == set(range(10, 20))


def test_top_p_of_zero_keeps_the_most_likely_token_alone() -> None:
    logprobs = logprobs_of(1)
    drawn = drawn_tokens(logprobs, SamplingParams(seed=0, temperature=100, top_p=0), 200)
    assert set(drawn.tolist()) == {int(logprobs.argmax())}


def any_row(draw: random.Random, *, index: int) -> Sequence:
    n_prompt = draw.choice([1, 3, 70])
    asked = request(
        f"r{index}", [draw.randrange(20) for _ in range(n_prompt)], 1000, sampling=any_params(draw, n_vocabulary=V)
    )
    if draw.random() < 0.4:
        asked = dataclasses.replace(asked, constraint=ThirdOfVocabulary(n_vocabulary=V, n_tokens=10**6))
    return Sequence(asked, end_ids=frozenset({2, 11}))


def allowed_to(row: Sequence) -> list[int] | None:
    return None if row.request.constraint is None else allowed_after(row.tokens, n_vocabulary=V)


def mask_of(row: Sequence) -> Words | None:
    allowed = allowed_to(row)
    return None if allowed is None else packed(allowed, V)


def reported(samples: Samples) -> dict[int, TokenLogprobs]:
    return {} if samples.logprobs is None else samples.logprobs.read()


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_a_mixed_batch_get_exactly_what_they_get_alone_and_what_the_formulas_say(seed: int) -> None:
    draw = random.Random(seed)
    rows = [any_row(draw, index=index) for index in range(8)]
    alone = [RowsSampler([row]) for row in rows]
    running = list(rows)
    together: RowsSampler | None = None
    for step in range(30):
        if together is None or draw.random() < 0.1:
            # Rows leave and come back in another order; the lone samplers see none of it.
            running = draw.sample(rows, draw.choice([2, 7, 8])) if step else running
            together = RowsSampler(running, together)
        logits = mx.array(logprobs_of(1000 * seed + step, n_rows=len(rows)) + 3)
        inputs = mx.array([row.tokens[-1] for row in rows], dtype=mx.uint32)
        masks = [mask_of(row) for row in rows]
        picked, tops = {}, {}
        for index, row in enumerate(rows):
            at, n = slice(index, index + 1), len(row.tokens) - len(row.request.prompt)
            samples = alone[index](logits[at], inputs[at], [n], masks[at])
            picked[row.id], tops[row.id] = cast("int", samples.tokens.item()), reported(samples).get(0)
            exact = edited_formula(np.array(logits[index]), row, allowed_to(row))
            if row.request.sampling.temperature == 0:
                assert exact[picked[row.id]] == pytest.approx(exact.max(), abs=1e-4)
            assert np.isfinite(exact[picked[row.id]]), "a masked token was picked"
        chosen = [rows.index(row) for row in running]
        at_rows = mx.array(chosen)
        positions = [len(row.tokens) - len(row.request.prompt) for row in running]
        samples = together(logits[at_rows], inputs[at_rows], positions, [masks[index] for index in chosen])
        assert samples.tokens.tolist() == [picked[row.id] for row in running]
        logprobs = reported(samples)
        assert [logprobs.get(index) for index in range(len(running))] == [tops[row.id] for row in running]
        for row in rows:
            row.tokens.append(picked[row.id])


def test_a_sampler_made_from_one_that_missed_some_steps_is_none_the_worse() -> None:
    row = row_of(dataclasses.replace(GREEDY, dry_multiplier=50, dry_allowed_length=1), prompt=[1, 2, 3, 1])
    first = RowsSampler([row])
    sample(first, mx.zeros((1, V)), [0])
    row.tokens += [4, 1]
    logits, inputs = mx.zeros((1, V)) + mx.array([9.0 if token in (2, 4) else 0.0 for token in range(V)]), mx.array([1])
    picked = [RowsSampler([row], previous)(logits, inputs, [2]).tokens.item() for previous in (first, None)]
    # Both 2 and 4 would repeat what followed a 1.
    assert picked[0] == picked[1] not in (2, 4)


def test_a_bias_for_a_token_that_does_not_exist_is_an_error_and_not_a_write_elsewhere() -> None:
    for token in (-1, V):
        sampler = RowsSampler([row_of(SamplingParams(seed=0, logit_bias={token: 1.0}))])
        with pytest.raises(ValueError, match=f"token {token}"):
            sample(sampler, mx.zeros((1, V)), [0])


def test_a_greedy_row_of_half_precision_is_picked_alike_beside_rows_of_every_kind() -> None:
    greedy, n_rounded = row_of(GREEDY, name="greedy"), 0
    others = [dataclasses.replace(GREEDY, repetition_penalty=1.5), SamplingParams(seed=1, top_k=3)]
    for seed in range(20):
        # Logits so close that their log-probabilities are equal in this precision: mlx_lm picks the first of those.
        logits = (mx.array(logprobs_of(seed, n_rows=2)) * 0.01).astype(mx.bfloat16)
        alone = sample(RowsSampler([greedy]), logits[:1], [0])
        n_rounded += alone != mx.argmax(logits[:1].astype(mx.float32), axis=-1).tolist()
        for other in others:
            assert sample(RowsSampler([greedy, row_of(other)]), logits, [0, 0])[:1] == alone
    assert n_rounded > 0


def test_the_same_seed_gives_the_same_tokens_and_a_neighbouring_seed_unrelated_ones() -> None:
    uniform = np.full((1, V), -np.log(V), np.float32)

    def tokens(seed: int) -> list[int]:
        return [int(token) for token in drawn_tokens(uniform, SamplingParams(seed=seed), 200)]

    assert tokens(5) == tokens(5)
    n_equal = sum(a == b for a, b in zip(tokens(5), tokens(6), strict=True))
    assert n_equal < 10  # two are expected by chance


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_as_frequent_as_their_probabilities_say(temperature: float) -> None:
    probs = np.array([[0.4, 0.25, 0.15, 0.1, 0.06, 0.04]])
    expected = probs[0] ** (1 / temperature) / (probs[0] ** (1 / temperature)).sum()
    n_draws = 6000
    for seed in (0, 1, 2**63 - 1):
        drawn = drawn_tokens(
            np.log(probs).astype(np.float32), SamplingParams(seed=seed, temperature=temperature), n_draws
        )
        counts = np.bincount(drawn, minlength=6)
        chi_square = (((counts - n_draws * expected) ** 2) / (n_draws * expected)).sum()
        assert chi_square < 25, counts  # 5 degrees of freedom: 25 is a one in 7000 chance


def test_successive_tokens_of_a_row_are_independent() -> None:
    drawn = drawn_tokens(np.log(np.full((1, 4), 0.25, np.float32)), SamplingParams(seed=9), 8000)
    pairs = np.bincount(drawn[:-1] * 4 + drawn[1:], minlength=16)
    expected = 7999 / 16
    assert (((pairs - expected) ** 2) / expected).sum() < 45  # 15 degrees of freedom


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-45])
def test_no_temperature_and_a_tiny_one_pick_the_most_likely_token(temperature: float) -> None:
    logprobs = logprobs_of(4)
    drawn = drawn_tokens(logprobs, SamplingParams(seed=1, temperature=temperature), 300)
    assert set(drawn.tolist()) == {int(logprobs.argmax())}


def test_a_high_temperature_draws_nearly_uniformly() -> None:
    drawn = drawn_tokens(logprobs_of(5), SamplingParams(seed=1, temperature=100), 4000)
    counts = np.bincount(drawn, minlength=V)
    assert counts.min() > 10 and counts.max() < 90


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision_logits_are_sampled_and_filtered(dtype: mx.Dtype) -> None:
    logprobs = mx.array(logprobs_of(6, n_rows=3)).astype(dtype)
    rows = [
        SamplingParams(seed=1, temperature=0),
        SamplingParams(seed=2, top_k=1),
        SamplingParams(seed=3, temperature=1, min_p=1),
    ]
    tokens = sample(RowsSampler([row_of(params) for params in rows]), logprobs, [0, 0, 0])
    assert tokens == np.array(logprobs.astype(mx.float32)).argmax(-1).tolist()
