"""DRY ("don't repeat yourself"): how much a token is penalised for continuing a repetition of the row's own text.

If the text ends with L tokens that were seen before, followed there by token t, then t loses
multiplier * base ** (L - allowed_length), for the longest such L of at least allowed_length. The text is prompt
and answer; a repetition neither begins before the last `dry_penalty_last_n` tokens nor reaches across a sequence
breaker. It knows no tensor and no vocabulary.

Source: the DRY sampler of llama.cpp (llama_sampler_init_dry), with its exponent bounded so that no penalty is
larger than a float32.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence as SequenceOf

import numpy as np
from numpy.typing import NDArray

from mlxcel.core import SamplingParams

Ints = NDArray[np.int32]
LARGEST_EXPONENT = 88.7228391
"""The natural logarithm of the largest float32."""


class DryHistory:
    """One row's tokens and how far the text's end repeats at each of them.

    `_matches[j]` is the length of the longest common ending of the first j tokens and of all of them: one pass
    over the prompt to begin with, one array operation a token from then on.
    """

    def __init__(self, params: SamplingParams, tokens: SequenceOf[int]) -> None:
        self._params = params
        self._n = len(tokens)
        self._tokens: Ints = np.zeros(_room_for(self._n), np.int32)
        self._tokens[: self._n] = tokens
        self._matches: Ints = np.zeros_like(self._tokens)
        self._matches[: self._n] = _common_endings(tokens)
        self._breakers: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for breaker in params.dry_sequence_breakers:
            if breaker:
                self._breakers[breaker[-1]].append(breaker)
        self._break_start, self._break_end = -1, 0
        if self._breakers:
            for n in (np.flatnonzero(np.isin(self._tokens[: self._n], list(self._breakers))) + 1).tolist():
                self._find_break(n)

    @property
    def n_tokens(self) -> int:
        return self._n

    def append(self, token: int) -> None:
        n = self._n
        if n == len(self._tokens):
            room = _room_for(n + 1)
            self._tokens = np.concatenate([self._tokens, np.zeros(room - n, np.int32)])
            self._matches = np.concatenate([self._matches, np.zeros(room - n, np.int32)])
        self._matches[1 : n + 1] = np.where(self._tokens[:n] == token, self._matches[:n] + 1, 0)
        self._tokens[n] = token
        self._n = n + 1
        self._find_break(self._n)

    def penalties(self) -> tuple[Ints, NDArray[np.float32]]:
        """Token ids, each once, and what each one's score loses."""
        params, n = self._params, self._n
        first = 0 if params.dry_penalty_last_n is None else max(0, n - params.dry_penalty_last_n)
        # The latest breaker counts only if it begins inside the window.
        longest = n - self._break_end if self._break_start >= first else n - first
        if n - first <= params.dry_allowed_length or longest < params.dry_allowed_length:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        ends = np.arange(first + 1, n)
        lengths = np.minimum(np.minimum(self._matches[first + 1 : n], ends - first), longest)
        is_repeat = lengths >= params.dry_allowed_length
        ids, which = np.unique(self._tokens[first + 1 : n][is_repeat], return_inverse=True)
        longest_of = np.zeros(len(ids), np.int64)
        np.maximum.at(longest_of, which, lengths[is_repeat])
        exponents = np.minimum(longest_of - params.dry_allowed_length, _largest_exponent(params.dry_base))
        penalties = params.dry_multiplier * np.power(float(params.dry_base), exponents)
        return ids.astype(np.int32), penalties.astype(np.float32)

    def _find_break(self, n: int) -> None:
        """Keep the breaker that begins last, of those the longest, with those that end at token `n`."""
        for breaker in self._breakers.get(int(self._tokens[n - 1]), ()):
            start = n - len(breaker)
            if start >= max(0, self._break_start) and tuple(self._tokens[start:n].tolist()) == breaker:
                self._break_start, self._break_end = start, n


def _room_for(n_tokens: int) -> int:
    return max(256, 2 * n_tokens)


def _largest_exponent(base: float) -> float:
    return LARGEST_EXPONENT // math.log(base) if base > 1.000001 else math.inf


def _common_endings(tokens: SequenceOf[int]) -> list[int]:
    """For each j < n, the length of the longest common ending of the first j tokens and of all n.

    Source: the Z algorithm (Gusfield 1997) on the reversed tokens; linear whatever they are.
    """
    backwards = list(tokens)[::-1]
    n = len(backwards)
    z = [0] * n
    left = right = 0
    for k in range(1, n):
        length = min(right - k, z[k - left]) if k < right else 0
        while k + length < n and backwards[length] == backwards[k + length]:
            length += 1
        if k + length > right:
            left, right = k, k + length
        z[k] = length
    return [0, *z[:0:-1]] if n else []
