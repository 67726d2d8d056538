"""PrefixCache: which prefixes are kept, for how long, and in whose memory. Pure: bytes and times, no tensor.

Its bytes are in the pool's books, and give way to sequences: the least recently used one goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import count

from mlxcel.kv.pool import CachePool
from mlxcel.kv.prefix import HEAD_TOKENS, Prefix, PrefixIndex


@dataclass(frozen=True)
class PrefixLimits:
    """`budget_bytes` bounds the prefixes' share of the pool's budget: 0 keeps none, None has no bound but the pool's.

    Units: a prefix that nobody used for `ttl_s` seconds goes.
    """

    budget_bytes: int | None = 0
    ttl_s: float = float("inf")


class PrefixCache:
    """Prefixes in the pool's books. Owner: the engine thread.

    `now_s` is the time that prefixes are stamped with. `n_hits` and `n_misses` count sequences that began from a
    prefix and those that found none, `n_hit_tokens` the tokens that were not prefilled for that, of `n_asked_tokens`.
    """

    def __init__(self, limits: PrefixLimits, pool: CachePool) -> None:
        self.n_hits = 0
        self.n_misses = 0
        self.n_hit_tokens = 0
        self.n_asked_tokens = 0
        self.now_s = 0.0
        self._limits = limits
        self._pool = pool
        self._kept: OrderedDict[str, Prefix] = OrderedDict()
        self._index = PrefixIndex()
        self._dropped: list[str] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, prefix: Prefix) -> bool:
        return prefix.id in self._kept

    @property
    def is_on(self) -> bool:
        return self._limits.budget_bytes != 0

    def reserve(self, tokens: SequenceOf[int], n_bytes: int) -> Prefix | None:
        """Book the memory of a new prefix; older ones go for it. None if it is too short, or too large.

        Nobody finds it until it is added.
        """
        budget = self._limits.budget_bytes
        if not self.is_on or len(tokens) < HEAD_TOKENS or (budget is not None and n_bytes > budget):
            return None
        while budget is not None and self._pool.kept_bytes + n_bytes > budget:
            self._drop_oldest()
        if not self.make_room(n_bytes):
            return None
        prefix = Prefix(f"prefix-{next(self._numbers)}", tokens, n_bytes, self.now_s)
        self._pool.keep(prefix.id, n_bytes)
        self._kept[prefix.id] = prefix
        return prefix

    def add(self, prefix: Prefix, *, can_be_cut: bool) -> None:
        """Its keys and values are there, unless it went already.

        Of two prefixes that begin alike and can be cut, the longer one is enough.
        """
        if prefix not in self:
            return
        prefix.can_be_cut = can_be_cut
        found = self._index.longest(prefix.tokens) if can_be_cut else None
        if found is not None and found[0].can_be_cut:
            other, n_common = found
            if n_common == len(prefix.tokens):
                self._touch(other)
                self.drop(prefix)
                return
            if n_common == len(other.tokens):
                self.drop(other)
        self._index.add(prefix)

    def find(self, tokens: SequenceOf[int]) -> tuple[Prefix, int] | None:
        """The prefix that saves `tokens` most, and how many tokens of it; it counts as used now."""
        found = self._index.longest(tokens) if self._kept else None
        if found is not None:
            self._touch(found[0])
        return found

    def count(self, n_tokens: int, n_found: int) -> None:
        """A sequence of `n_tokens` was looked up, and begins with `n_found` of them from a prefix."""
        if self.is_on:
            self.n_hits += n_found > 0
            self.n_misses += n_found == 0
            self.n_hit_tokens += n_found
            self.n_asked_tokens += n_tokens

    def make_room(self, n_bytes: int) -> bool:
        """Let prefixes go until the pool has so many bytes free; False, with none gone, if that is not enough."""
        shortage = self._pool.shortage_of(n_bytes)
        if shortage > self._pool.kept_bytes:
            return False
        while self._pool.shortage_of(n_bytes) > 0:
            self._drop_oldest()
        return True

    def expire(self, now_s: float) -> None:
        """Let go of those that nobody used for too long."""
        self.now_s = now_s
        while self._kept and self.expires_s is not None and self.expires_s <= now_s:
            self._drop_oldest()

    @property
    def expires_s(self) -> float | None:
        """When the next one goes, if nobody uses it."""
        if not self._kept or self._limits.ttl_s == float("inf"):
            return None
        return next(iter(self._kept.values())).used_s + self._limits.ttl_s

    def drop(self, prefix: Prefix) -> None:
        """Let one go. Safe to repeat."""
        if self._kept.pop(prefix.id, None) is not None:
            self._index.remove(prefix)
            self._pool.drop(prefix.id)
            self._dropped.append(prefix.id)

    def clear(self) -> None:
        while self._kept:
            self._drop_oldest()

    def take_dropped(self) -> tuple[str, ...]:
        """Prefixes that went since the last call: their arrays can go, once no fork that is planned is from them."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def _drop_oldest(self) -> None:
        self.drop(next(iter(self._kept.values())))

    def _touch(self, prefix: Prefix) -> None:
        prefix.used_s = self.now_s
        self._kept.move_to_end(prefix.id)
