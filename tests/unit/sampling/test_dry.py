from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlxcel.core import SamplingParams
from mlxcel.sampling.dry import DryHistory
from tests.support.rows import dry_formula

breaker = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)


def penalties_of(history: DryHistory) -> dict[int, float]:
    ids, values = history.penalties()
    assert len(set(ids.tolist())) == len(ids)
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


@settings(max_examples=300, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 3), max_size=60),
    n_at_once=st.integers(0, 60),
    base=st.sampled_from([1.0, 1.1, 1.75, 1000.0]),
    allowed_length=st.integers(0, 5),
    last_n=st.sampled_from([None, 0, 1, 4, 20, 1000]),
    breakers=st.lists(breaker, max_size=3).map(tuple),
)
@example(tokens=[5, 0, 0, 0, 0], n_at_once=0, base=1.75, allowed_length=0, last_n=4, breakers=((5, 0, 0),))
def test_penalties_are_those_of_the_definition_however_the_tokens_came(
    tokens: list[int],
    n_at_once: int,
    base: float,
    allowed_length: int,
    last_n: int | None,
    breakers: tuple[tuple[int, ...], ...],
) -> None:
    params = SamplingParams(
        seed=0,
        dry_multiplier=0.8,
        dry_base=base,
        dry_allowed_length=allowed_length,
        dry_penalty_last_n=last_n,
        dry_sequence_breakers=breakers,
    )
    history = DryHistory(params, tokens[:n_at_once])
    for n in range(min(n_at_once, len(tokens)), len(tokens) + 1):
        if n > n_at_once:
            history.append(tokens[n - 1])
        assert penalties_of(history) == pytest.approx(dry_formula(tokens[:n], params), rel=1e-6)
    assert history.n_tokens == len(tokens)


def test_a_token_that_would_continue_a_repetition_loses_more_the_longer_it_is() -> None:
    params = SamplingParams(seed=0, dry_multiplier=0.8)
    assert penalties_of(DryHistory(params, [1, 2, 9, 5, 1, 2])) == pytest.approx({9: 0.8})
    assert penalties_of(DryHistory(params, [4, 1, 2, 9, 5, 4, 1, 2])) == pytest.approx({9: 0.8 * 1.75})
    assert penalties_of(DryHistory(params, [1, 2, 9, 5, 7, 2])) == {}


def test_a_breaker_is_not_counted_across() -> None:
    tokens = [4, 1, 2, 9, 5, 4, 1, 2]
    params = SamplingParams(seed=0, dry_multiplier=0.8, dry_sequence_breakers=((4,),))
    assert penalties_of(DryHistory(params, tokens)) == pytest.approx({9: 0.8})
    params = SamplingParams(seed=0, dry_multiplier=0.8, dry_sequence_breakers=((4, 1),))
    assert penalties_of(DryHistory(params, tokens)) == {}


def test_a_repetition_without_end_is_penalised_by_a_finite_number_and_in_bounded_time() -> None:
    history = DryHistory(SamplingParams(seed=0, dry_multiplier=0.8), [7] * 50_000)
    for _ in range(300):
        history.append(7)
    penalties = penalties_of(history)
    assert penalties.keys() == {7} and 1e37 < penalties[7] < np.inf
