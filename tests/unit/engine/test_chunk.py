from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlxcel.engine.chunk import FIRST_CHUNK_TOKENS, LARGEST_CHUNK_TOKENS, LONGEST_PREFILL_S, ChunkSize


def grown(bound_tokens: int) -> ChunkSize:
    """A size that learnt on a machine that is never slow."""
    size = ChunkSize(bound_tokens)
    for _ in range(20):
        size.observe(size.n_tokens, 0.001)
    return size


def test_it_starts_small_and_doubles_up_to_the_bound_while_turns_are_fast() -> None:
    size = ChunkSize(100)
    sizes = [size.n_tokens]
    for _ in range(5):
        size.observe(size.n_tokens, 0.001)
        sizes.append(size.n_tokens)
    assert sizes == [16, 32, 64, 100, 100, 100]


def test_zero_leaves_our_own_bound_and_a_small_bound_holds_from_the_start() -> None:
    assert ChunkSize(0).n_tokens == FIRST_CHUNK_TOKENS
    assert grown(0).n_tokens == grown(10**9).n_tokens == LARGEST_CHUNK_TOKENS
    assert ChunkSize(3).n_tokens == grown(3).n_tokens == 3


def test_a_slow_turn_halves_it_until_the_time_would_fit() -> None:
    for took_s, expected in ((LONGEST_PREFILL_S, 512), (0.26, 256), (0.5, 256), (0.51, 128), (4.0, 32), (10**6, 1)):
        size = grown(512)
        size.observe(512, took_s)
        assert size.n_tokens == expected, took_s


def test_a_turn_between_half_the_limit_and_the_limit_leaves_it() -> None:
    size = ChunkSize(512, first_tokens=64)
    size.observe(64, LONGEST_PREFILL_S / 2)
    size.observe(64, LONGEST_PREFILL_S)
    assert size.n_tokens == 64


def test_a_fast_turn_that_did_not_fill_the_size_proves_nothing() -> None:
    size = ChunkSize(512, first_tokens=64)
    size.observe(63, 0.001)
    assert size.n_tokens == 64


def test_it_recovers_after_one_slow_turn() -> None:
    size = grown(512)
    size.observe(512, 4.0)
    n_turns = 0
    while size.n_tokens < 512:
        size.observe(size.n_tokens, 0.002)
        n_turns += 1
    assert n_turns == 4


@given(bound=st.integers(0, 10_000), turns=st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 1e6))))
def test_it_stays_between_one_and_the_bound(bound: int, turns: list[tuple[int, float]]) -> None:
    size = ChunkSize(bound)
    for n_tokens, took_s in turns:
        size.observe(n_tokens, took_s)
        assert 1 <= size.n_tokens <= (bound or LARGEST_CHUNK_TOKENS)
