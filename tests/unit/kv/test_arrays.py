"""Copies and cuts of mlx_lm's caches, by what attention would see of them."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from mlxcel.kv.arrays import BatchArrays, LayerCaches, copy_caches, cut_caches

Floats = Any


def states(n_tokens: int, *, seed: int) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal((1, 2, n_tokens, 4)).astype(np.float32))


def caches_of(n_tokens: int, *, seed: int = 0, max_size: int | None = None) -> LayerCaches:
    """One plain layer and, with a `max_size`, a sliding one beside it in a list of its own."""
    layers: LayerCaches = [KVCache()]
    if max_size is not None:
        layers.append(CacheList(RotatingKVCache(max_size)))
    for leaf in leaves(layers):
        for token in range(n_tokens):
            keys = states(n_tokens, seed=seed)[..., token : token + 1, :]
            leaf.update_and_fetch(keys, 2 * keys)
    return layers


def leaves(caches: LayerCaches) -> list[Any]:
    return [leaf for cache in caches for leaf in (cache.caches if hasattr(cache, "caches") else [cache])]


def next_of(caches: LayerCaches, token: mx.array) -> list[Floats]:
    """The keys that a next token would attend to, and its own."""
    return [np.array(leaf.update_and_fetch(token, token)[0]) for leaf in leaves(caches)]


def assert_same(a: list[Floats], b: list[Floats]) -> None:
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n_tokens", [1, 5, 255, 256, 300])
def test_a_copy_is_the_same_and_goes_its_own_way(n_tokens: int) -> None:
    caches = caches_of(n_tokens, max_size=1000)
    copied = copy_caches(caches)
    a, b = states(1, seed=1), states(1, seed=2)
    assert_same(next_of(copied, a), next_of(caches_of(n_tokens, max_size=1000), a))
    assert_same(next_of(caches, b), next_of(caches_of(n_tokens, max_size=1000), b))


@pytest.mark.parametrize("n_kept", [1, 100, 255, 256, 300])
def test_a_cut_leaves_what_the_first_tokens_alone_would_and_the_memory_that_they_book(n_kept: int) -> None:
    caches = caches_of(300, max_size=400)
    assert cut_caches(caches, n_kept)
    one_token = states(1, seed=0).nbytes * 2
    n_booked = 256 if n_kept <= 256 else 512
    assert [leaf.nbytes for leaf in leaves(caches)] == [n_booked * one_token, n_kept * one_token]
    token = states(1, seed=3)
    for leaf, got in zip(leaves(caches), next_of(caches, token), strict=True):
        expected = mx.concatenate([states(300, seed=0)[..., :n_kept, :], token], axis=2)
        np.testing.assert_array_equal(got, np.array(expected))
        assert leaf.offset == n_kept + 1
    assert caches[0].keys.shape[2] == (256 if n_kept < 256 else 512)


def test_a_window_that_has_moved_on_and_a_recurrent_state_are_not_cut() -> None:
    moved = caches_of(60, max_size=50)
    before = next_of(copy_caches(moved), states(1, seed=4))
    assert not cut_caches(moved, 20)
    assert_same(next_of(moved, states(1, seed=4)), before)
    assert not cut_caches([ArraysCache(2)], 1)
    assert not cut_caches(caches_of(5), 6), "there are only 5"


def test_a_row_copied_from_a_batch_is_that_row_without_its_padding() -> None:
    arrays = BatchArrays()
    for name, n_tokens in (("a", 7), ("b", 300), ("c", 40)):
        arrays.join(name, caches_of(n_tokens, seed=n_tokens, max_size=1000))
    token = states(1, seed=5)
    for name, n_tokens in (("c", 40), ("a", 7), ("b", 300)):
        expected = next_of(caches_of(n_tokens, seed=n_tokens, max_size=1000), token)
        assert_same(next_of(arrays.copy_row(name), token), expected)
        assert_same(next_of(arrays.copy_row(name), token), expected)


def test_a_lone_row_is_copied_and_keeps_its_own() -> None:
    arrays = BatchArrays()
    arrays.join("a", caches_of(7))
    token = states(1, seed=5)
    expected = next_of(caches_of(7), token)
    assert_same(next_of(arrays.copy_row("a"), token), expected)
    assert_same(next_of(arrays.caches, token), expected)
