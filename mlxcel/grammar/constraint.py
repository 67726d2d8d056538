"""What a row may say next, token by token. Owner: one thread at a time; the engine's, once a request is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance.numpy import fill_next_token_bitmask

from mlxcel.core import Constraint
from mlxcel.errors import InputError

Mask = npt.NDArray[np.uint32]
"""One bit a token, the lowest of the first word being token 0. Shapes: [ceil(V / 32)]."""


class MatcherConstraint:
    """Follows one grammar with an llguidance matcher.

    Errors: InputError naming `param` when the grammar costs more than its limits, or a token does not fit.
    """

    def __init__(self, matcher: Any, *, n_words: int, n_vocabulary: int, param: str) -> None:
        self._matcher = matcher
        self._param = param
        self._n_words = -(-n_vocabulary // 32)
        self._bits = np.empty((1, n_words), dtype=np.int32)

    def mask(self) -> Mask:
        """The tokens that may come next; good until the next call."""
        fill_next_token_bitmask(self._matcher, self._bits)
        self._check()
        return self._bits[0, : self._n_words].view(np.uint32)

    def advance(self, token: int) -> None:
        """Take the row's next token."""
        self._matcher.consume_token(token)
        self._check()

    @property
    def is_complete(self) -> bool:
        """Nothing may follow but an end token."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InputError(
                f"{self._param} cannot be followed any further: {short(self._matcher.get_error())}; this answer ended, "
                "others went on. Simplify it",
                param=self._param,
                code="schema_too_complex",
            )


class AfterThinking:
    """Lets a row think first: the constraint begins once the end of its thinking has been said.

    `is_open`: the prompt has begun the thinking. Otherwise the row may begin it, with its first token or not at
    all. While it thinks everything may come but an end token, which would leave nothing that fits the grammar.
    """

    def __init__(
        self,
        constraint: Constraint,
        *,
        start_ids: Sequence[int],
        end_ids: Sequence[int],
        eos_ids: frozenset[int],
        n_vocabulary: int,
        is_open: bool,
    ) -> None:
        self._constraint = constraint
        self._start_ids = tuple(start_ids)
        self._end_ids = tuple(end_ids)
        self._is_thinking = is_open
        self._may_start = not is_open and len(self._start_ids) == 1
        self._recent: tuple[int, ...] = ()
        self._thoughts = _all_but(eos_ids, n_vocabulary)

    def mask(self) -> Mask | None:
        if self._is_thinking:
            return self._thoughts
        mask = self._constraint.mask()
        if not self._may_start or mask is None:
            return mask
        return mask | _only(self._start_ids[0], len(mask))

    def advance(self, token: int) -> None:
        may_start, self._may_start = self._may_start, False
        if may_start and token == self._start_ids[0]:
            self._is_thinking = True
        elif self._is_thinking:
            self._recent = (*self._recent, token)[-len(self._end_ids) :]
            self._is_thinking = self._recent != self._end_ids
        else:
            self._constraint.advance(token)

    @property
    def is_complete(self) -> bool:
        return not self._is_thinking and self._constraint.is_complete


def short(text: str) -> str:
    """llguidance's words, on one line of bounded length."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."


def _only(token: int, n_words: int) -> Mask:
    mask = np.zeros(n_words, dtype=np.uint32)
    mask[token // 32] = np.uint32(1) << np.uint32(token % 32)
    return mask


def _all_but(tokens: frozenset[int], n_vocabulary: int) -> Mask:
    mask = np.full(-(-n_vocabulary // 32), 0xFFFFFFFF, dtype=np.uint32)
    for token in tokens:
        if 0 <= token < n_vocabulary:
            mask[token // 32] &= ~(np.uint32(1) << np.uint32(token % 32))
    return mask
