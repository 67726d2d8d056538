"""One row's place in a grammar. Owner: one thread at a time; the engine's, once a request is submitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from llguidance.numpy import fill_next_token_bitmask
from numpy.typing import NDArray

from mlxcel.errors import InputError
from mlxcel.grammar.refusal import cause_of


class MatcherConstraint:
    """Follows one grammar with an llguidance matcher.

    Errors: InputError naming `param` when the grammar costs more than its limits, or a token does not fit.
    """

    def __init__(self, matcher: Any, *, n_words: int, n_vocabulary: int, param: str) -> None:
        self._matcher = matcher
        self._param = param
        self._n_words = -(-n_vocabulary // 32)
        self._bits = np.empty((1, n_words), dtype=np.int32)

    def mask(self) -> NDArray[np.uint32]:
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
                f"{self._param} cannot be followed any further: {cause_of(self._matcher.get_error())}; this answer "
                "ended, others went on. Simplify it",
                param=self._param,
                code="schema_too_complex",
            )
