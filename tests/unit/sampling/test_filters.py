from __future__ import annotations

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from mlx_lm import sample_utils

from mlxcel.core import SamplingParams
from mlxcel.sampling.filters import Filters
from mlxcel.sampling.noise import token_coin
from tests.support.rows import row_of

Floats = npt.NDArray[np.float32]
V = 97


def logprobs_of(seed: int, *, spread: float = 2.0) -> Floats:
    logits = np.random.default_rng(seed).standard_normal(V).astype(np.float32) * spread
    return np.asarray(logits - np.log(np.exp(logits).sum()), np.float32)


def kept_of(logprobs: Floats, params: SamplingParams, *, position: int = 0, end_ids: tuple[int, ...] = ()) -> set[int]:
    filtered = Filters([row_of(params, end_ids=end_ids)], V)(mx.array(logprobs)[None], [position])
    return set(np.flatnonzero(np.isfinite(np.array(filtered)[0])).tolist())


def typical_by_formula(logprobs: Floats, mass: float) -> set[int]:
    """Meister et al. 2022, section 4: the smallest set, nearest to the entropy first, whose mass reaches `mass`."""
    exact = logprobs.astype(np.float64)
    entropy = -(np.exp(exact) * exact).sum()
    nearest = np.argsort(np.abs(-exact - entropy))
    reached = np.cumsum(np.exp(exact[nearest]))
    n_kept = int(np.searchsorted(reached, mass)) + 1
    return set(nearest[:n_kept].tolist())


@pytest.mark.parametrize("mass", [0.05, 0.2, 0.5, 0.9, 0.99])
def test_typical_p_keeps_the_tokens_nearest_to_the_expected_information(mass: float) -> None:
    for seed in range(20):
        logprobs = logprobs_of(seed)
        kept = kept_of(logprobs, SamplingParams(seed=0, typical_p=mass))
        assert kept == typical_by_formula(logprobs, mass)


def test_typical_p_may_leave_the_most_likely_token_out_and_the_others_filter_what_is_left() -> None:
    probs = np.full(V, 0.5 / (V - 1))
    probs[3] = 0.5
    logprobs = np.log(probs).astype(np.float32)
    assert 3 not in kept_of(logprobs, SamplingParams(seed=0, typical_p=0.4))
    assert kept_of(logprobs, SamplingParams(seed=0, typical_p=0.4, top_k=1)) <= set(range(V)) - {3}


def xtc_by_formula(logprobs: Floats, threshold: float, exempt: set[int]) -> set[int]:
    """Of the tokens over the threshold all but the least likely go."""
    probs = np.exp(logprobs.astype(np.float64))
    above = sorted(np.flatnonzero(probs > threshold).tolist(), key=lambda token: probs[token])
    return set(range(V)) - (set(above[1:]) - exempt)


@pytest.mark.parametrize("threshold", [0.0, 0.02, 0.05, 0.1, 0.3, 0.5])
def test_xtc_removes_the_top_choices_but_one_and_no_end_token(threshold: float) -> None:
    for seed in range(20):
        logprobs = logprobs_of(seed, spread=3)
        top = int(logprobs.argmax())
        params = SamplingParams(seed=seed, xtc_probability=1, xtc_threshold=threshold)
        assert kept_of(logprobs, params) == xtc_by_formula(logprobs, threshold, set())
        assert kept_of(logprobs, params, end_ids=(top, 10**6)) == xtc_by_formula(logprobs, threshold, {top})
        also = SamplingParams(seed=seed, xtc_probability=1, xtc_threshold=threshold, xtc_exempt_ids=frozenset({top}))
        assert kept_of(logprobs, also) == xtc_by_formula(logprobs, threshold, {top})


def test_xtc_follows_min_p_and_goes_before_top_k_as_in_mlx_lm() -> None:
    for seed in range(20):
        logprobs = logprobs_of(seed, spread=3)
        theirs = sample_utils.apply_top_p(mx.array(logprobs)[None], 0.95)
        theirs = sample_utils.apply_min_p(theirs, 0.02)
        theirs = sample_utils.apply_xtc(theirs, 1.0, 0.08, [])
        theirs = sample_utils.apply_top_k(theirs, 4)
        expected = set(np.flatnonzero(np.isfinite(np.array(theirs)[0])).tolist())
        params = SamplingParams(seed=0, top_p=0.95, min_p=0.02, xtc_probability=1, xtc_threshold=0.08, top_k=4)
        assert kept_of(logprobs, params) == expected


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_xtc_cuts_at_the_positions_that_the_rows_own_coin_says(probability: float) -> None:
    logprobs = np.full(V, -20, np.float32)
    logprobs[[3, 4]] = np.log([0.6, 0.4])
    params = SamplingParams(seed=11, xtc_probability=probability)
    n_cut = 0
    for position in range(200):
        is_cut = 3 not in kept_of(logprobs, params, position=position)
        assert is_cut == (token_coin(11, position) < probability)
        n_cut += is_cut
    assert abs(n_cut - 200 * probability) < 25
