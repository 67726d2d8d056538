"""The randomness of a row: a key and a coin for its n-th token, made of its seed alone.

A row's keys do not depend on the batch, on the clock or on what was computed before, so the same seed gives
the same text alone, in a batch, and after the row had to start over.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_COIN_STREAM = 0xD1B54A32D192ED03
"""Sets a row's coins apart from its keys."""


def token_key(seed: int, n_generated: int) -> tuple[int, int]:
    """Two 32-bit words for a row's token number `n_generated`.

    Source: SplitMix64 (Steele, Lea, Flood 2014): the output at step n of a generator that starts at `seed`.
    """
    z = (seed + (n_generated + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return z >> 32, z & 0xFFFFFFFF


def token_coin(seed: int, n_generated: int) -> float:
    """A uniform number in [0, 1) for a row's token number `n_generated`, independent of that token's key."""
    high, _ = token_key(seed ^ _COIN_STREAM, n_generated)
    return high / 2**32
