"""The randomness of a row: a key for its n-th token, made of its seed alone.

A row's keys do not depend on the batch, on the clock or on what was computed before, so the same seed gives
the same text alone, in a batch, and after the row had to start over.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1


def token_key(seed: int, n_generated: int) -> tuple[int, int]:
    """Two 32-bit words for a row's token number `n_generated`.

    Source: SplitMix64 (Steele, Lea, Flood 2014): the output at step n of a generator that starts at `seed`.
    """
    z = (seed + (n_generated + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return z >> 32, z & 0xFFFFFFFF
