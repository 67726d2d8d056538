"""What a prompt can begin with, against a search through all of it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.kv.prefix import HEAD_TOKENS, Prefix, PrefixIndex


def prefix(name: str, tokens: SequenceOf[int], *, can_be_cut: bool = True) -> Prefix:
    return Prefix(name, list(tokens), n_bytes=1, can_be_cut=can_be_cut)


def n_common(a: SequenceOf[int], b: SequenceOf[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


TOKENS = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 70)), max_size=4).map(
    lambda runs: [token for token, n in runs for _ in range(n)]
)


@given(kept=st.lists(st.tuples(TOKENS, st.booleans()), max_size=8), prompt=TOKENS, removed=st.sets(st.integers(0, 7)))
def test_the_longest_usable_beginning_is_found_and_nothing_shorter_than_a_head(
    kept: list[tuple[list[int], bool]], prompt: list[int], removed: set[int]
) -> None:
    index = PrefixIndex()
    prefixes = [prefix(str(i), tokens, can_be_cut=cut) for i, (tokens, cut) in enumerate(kept)]
    for one in prefixes:
        index.add(one)
    for i in removed & set(range(len(prefixes))):
        index.remove(prefixes[i])
        index.remove(prefixes[i])
    usable = [0]
    for i, one in enumerate(prefixes):
        n = n_common(one.tokens, prompt)
        if i not in removed and n >= HEAD_TOKENS and (one.can_be_cut or n == len(one.tokens)):
            usable.append(n)
    found = index.longest(prompt)
    assert (0 if found is None else found[1]) == max(usable)
    if found is not None:
        assert found[0].tokens[: found[1]] == prompt[: found[1]]


@pytest.mark.parametrize(("n_shared", "expected"), [(31, None), (32, 32), (33, 33), (63, 63), (64, 64), (65, 65)])
def test_a_beginning_counts_token_by_token_once_it_has_a_head(n_shared: int, expected: int | None) -> None:
    index = PrefixIndex()
    index.add(prefix("a", [*range(n_shared), *range(500, 600)]))
    found = index.longest([*range(n_shared), *range(700, 800)])
    assert (None if found is None else found[1]) == expected


def test_a_collision_of_hashes_lends_nobody_strange_keys() -> None:
    class Same(int):
        def __hash__(self) -> int:
            return 1

    index = PrefixIndex()
    index.add(prefix("a", [Same(7)] * 40))
    assert index.longest([Same(8)] * 40) is None
    assert index.longest([Same(7)] * 40 + [Same(8)]) is not None
