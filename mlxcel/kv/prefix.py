"""Prefixes: tokens whose keys and values outlive their sequence, and the longest of them that a prompt begins with.

An index by heads: a head is a prefix's first 32 tokens, its first 64, and so on, each known by a hash that is made
from the one before. What a hash finds is compared token by token, so no collision ever lends anybody a stranger's keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

HEAD_TOKENS = 32
"""A prefix shorter than this is not worth its copy, and what all prompts of a chat template share is often shorter."""


@dataclass(eq=False)
class Prefix:
    """Tokens whose keys and values are kept. `can_be_cut`: so are those of every beginning of it.

    A sliding window that moved on, or a recurrent state, is good for exactly its tokens and what follows them.
    """

    id: str
    tokens: SequenceOf[int]
    n_bytes: int
    used_s: float = 0.0
    can_be_cut: bool = False


class PrefixIndex:
    """Finds prefixes by what a prompt begins with."""

    def __init__(self) -> None:
        self._by_head: dict[int, dict[str, Prefix]] = {}

    def add(self, prefix: Prefix) -> None:
        for head in self._heads_of(prefix):
            self._by_head.setdefault(head, {})[prefix.id] = prefix

    def remove(self, prefix: Prefix) -> None:
        for head in self._heads_of(prefix):
            under = self._by_head.get(head, {})
            under.pop(prefix.id, None)
            if not under:
                self._by_head.pop(head, None)

    def longest(self, tokens: SequenceOf[int]) -> tuple[Prefix, int] | None:
        """The prefix of which `tokens` can use most, and how many of its tokens that is: at least HEAD_TOKENS."""
        for head in reversed(list(_heads(tokens))):
            usable = [(_n_usable(prefix, tokens), prefix) for prefix in self._by_head.get(head, {}).values()]
            n_tokens, prefix = max(usable, key=lambda found: found[0], default=(0, None))
            if prefix is not None and n_tokens >= HEAD_TOKENS:
                return prefix, n_tokens
        return None

    @staticmethod
    def _heads_of(prefix: Prefix) -> list[int]:
        heads = list(_heads(prefix.tokens))
        return heads if prefix.can_be_cut else heads[-1:]


def _heads(tokens: SequenceOf[int]) -> Iterator[int]:
    head = 0
    for end in range(HEAD_TOKENS, len(tokens) + 1, HEAD_TOKENS):
        head = hash((head, *tokens[end - HEAD_TOKENS : end]))
        yield head


def _n_usable(prefix: Prefix, tokens: SequenceOf[int]) -> int:
    n_common = _n_common(prefix.tokens, tokens)
    return n_common if prefix.can_be_cut or n_common == len(prefix.tokens) else 0


def _n_common(a: SequenceOf[int], b: SequenceOf[int]) -> int:
    """How many tokens both begin with: whole slices are compared, twice as fine each time they differ."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
