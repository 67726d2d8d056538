from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import pytest

from mlxcel.errors import BugError
from mlxcel.kv.pool import CachePool
from mlxcel.kv.prefix import Prefix
from mlxcel.kv.prefixes import PrefixCache, PrefixLimits


def cache_of(
    *, budget_bytes: int | None = None, pool_bytes: int | None = None, ttl_s: float = 100
) -> tuple[PrefixCache, CachePool]:
    pool = CachePool(capacity=None, budget_bytes=pool_bytes)
    return PrefixCache(PrefixLimits(budget_bytes, ttl_s), pool), pool


def keep(cache: PrefixCache, tokens: SequenceOf[int], n_bytes: int = 10, *, can_be_cut: bool = True) -> Prefix:
    prefix = cache.reserve(list(tokens), n_bytes)
    assert prefix is not None
    cache.add(prefix, can_be_cut=can_be_cut)
    return prefix


def tokens_of(start: int, n: int = 40) -> list[int]:
    return list(range(start, start + n))


def test_the_least_recently_used_goes_first_for_its_own_budget_and_for_sequences() -> None:
    cache, pool = cache_of(budget_bytes=30, pool_bytes=50)
    a, b, c = (keep(cache, tokens_of(100 * i)) for i in range(3))
    assert cache.find(tokens_of(0)) == (a, 40)
    d = keep(cache, tokens_of(300))
    assert (a in cache, b in cache, c in cache, d in cache) == (True, False, True, True)
    assert cache.take_dropped() == (b.id,) and pool.kept_bytes == 30
    pool.reserve("s")
    assert not pool.book("s", 25)
    assert cache.make_room(pool.growth_of("s", 25)) and pool.book("s", 25)
    pool.check()
    assert cache.take_dropped() == (c.id,) and (pool.booked_bytes, pool.kept_bytes) == (25, 20)
    assert not cache.make_room(26), "all of them together are not enough"
    assert len(cache) == 2 and cache.take_dropped() == ()
    assert cache.make_room(25)
    assert pool.kept_bytes == 0


@pytest.mark.parametrize(("n_tokens", "n_bytes"), [(31, 10), (40, 31)])
def test_what_is_too_short_or_too_large_is_not_kept_and_displaces_nobody(n_tokens: int, n_bytes: int) -> None:
    cache, _ = cache_of(budget_bytes=30)
    keep(cache, tokens_of(0))
    assert cache.reserve(tokens_of(100, n_tokens), n_bytes) is None
    assert len(cache) == 1


def test_a_budget_of_0_keeps_nothing() -> None:
    cache, pool = cache_of(budget_bytes=0)
    assert cache.is_on is False
    assert cache.reserve(tokens_of(0), 1) is None and cache.find(tokens_of(0)) is None
    assert pool.kept_bytes == 0


def test_one_that_nobody_used_for_its_time_to_live_goes() -> None:
    cache, _ = cache_of(ttl_s=10)
    a = keep(cache, tokens_of(0))
    cache.expire(5)
    b = keep(cache, tokens_of(100))
    cache.find(tokens_of(0))
    cache.expire(14.9)
    assert len(cache) == 2 and cache.expires_s == 15
    cache.expire(15)
    assert len(cache) == 0 and set(cache.take_dropped()) == {a.id, b.id}


def test_of_two_that_begin_alike_the_longer_is_enough_where_it_can_be_cut() -> None:
    cache, pool = cache_of()
    short = keep(cache, tokens_of(0, 50))
    long = keep(cache, tokens_of(0, 90))
    assert cache.take_dropped() == (short.id,) and cache.find(tokens_of(0, 50)) == (long, 50)
    again = cache.reserve(tokens_of(0, 70), 10)
    assert again is not None
    cache.add(again, can_be_cut=True)
    assert again not in cache and len(cache) == 1 and pool.kept_bytes == 10


def test_one_that_cannot_be_cut_serves_what_goes_on_from_all_of_it() -> None:
    cache, _ = cache_of()
    short = keep(cache, tokens_of(0, 50), can_be_cut=False)
    long = keep(cache, tokens_of(0, 90), can_be_cut=False)
    assert cache.find(tokens_of(0, 89)) == (short, 50)
    assert cache.find(tokens_of(0, 90)) == (long, 90) == cache.find(tokens_of(0, 200))
    assert cache.find(tokens_of(0, 49)) is None


def test_a_reserved_one_takes_memory_and_is_found_once_it_is_there() -> None:
    cache, pool = cache_of(pool_bytes=10)
    prefix = cache.reserve(tokens_of(0), 10)
    assert prefix is not None and pool.kept_bytes == 10 and cache.find(tokens_of(0)) is None
    with pytest.raises(BugError):
        pool.keep("another", 1)
    cache.clear()
    assert pool.kept_bytes == 0
    cache.add(prefix, can_be_cut=True)
    assert cache.find(tokens_of(0)) is None and cache.take_dropped() == (prefix.id,)
