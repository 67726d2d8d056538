"""Constraints whose every mask is known, and some that fail on cue."""

from __future__ import annotations

import random
from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]


def allowed_after(tokens: SequenceOf[int], *, n_vocabulary: int) -> list[int]:
    """A third of the vocabulary, another one after each token."""
    draw = random.Random(str(list(tokens)))
    return sorted(draw.sample(range(n_vocabulary), n_vocabulary // 3))


class ThirdOfVocabulary:
    """Allows `allowed_after` what it heard, and is complete after `n_tokens`; insists on the engine's promises."""

    def __init__(self, *, n_vocabulary: int, n_tokens: int) -> None:
        self.tokens: list[int] = []
        self._n_vocabulary = n_vocabulary
        self._n_tokens = n_tokens

    def renewed(self) -> ThirdOfVocabulary:
        return ThirdOfVocabulary(n_vocabulary=self._n_vocabulary, n_tokens=self._n_tokens)

    def mask(self) -> Words:
        assert not self.is_complete, "a mask was asked for after the end"
        words = np.zeros(-(-self._n_vocabulary // 32), np.uint32)
        for token in allowed_after(self.tokens, n_vocabulary=self._n_vocabulary):
            words[token // 32] |= np.uint32(1 << token % 32)
        return words

    def advance(self, token: int) -> None:
        assert not self.is_complete, "a token came after the end"
        assert token in allowed_after(self.tokens, n_vocabulary=self._n_vocabulary)
        self.tokens.append(token)

    @property
    def is_complete(self) -> bool:
        return len(self.tokens) >= self._n_tokens


class CompleteAfter:
    """Allows everything and is complete after `n_tokens`."""

    def __init__(self, n_tokens: int) -> None:
        self.tokens: list[int] = []
        self._n_tokens = n_tokens

    def mask(self) -> None:
        assert not self.is_complete, "a mask was asked for after the end"

    def advance(self, token: int) -> None:
        assert not self.is_complete, "a token came after the end"
        self.tokens.append(token)

    @property
    def is_complete(self) -> bool:
        return len(self.tokens) >= self._n_tokens


class FailsIn(CompleteAfter):
    """Raises in one of its three methods once it heard `n_tokens`."""

    def __init__(self, method: str, *, n_tokens: int) -> None:
        super().__init__(10**9)
        self._method, self._n_heard = method, n_tokens

    def _check(self, method: str) -> None:
        if method == self._method and len(self.tokens) >= self._n_heard:
            raise RuntimeError(f"{method} failed on cue")

    def mask(self) -> None:
        self._check("mask")

    def advance(self, token: int) -> None:
        self._check("advance")
        super().advance(token)

    @property
    def is_complete(self) -> bool:
        self._check("is_complete")
        return super().is_complete
