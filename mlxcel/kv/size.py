"""How many bytes of KV memory a sequence of a given length takes."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_TOKENS = 256
"""Caches grow by whole blocks of this many tokens (mlx_lm's KVCache.step)."""
SHARE_OF_MEMORY = 0.8
"""Of the machine's memory (on Metal: of what may be wired), for weights and keys and values together."""
FEWEST_TOKENS = 1024
"""A server that has no room for a sequence of so many is no use; it says so instead of starting."""


def memory_for_kv(memory_bytes: int, weights_bytes: int) -> int:
    """What a machine's memory leaves for keys and values; less than nothing where the weights alone are too much."""
    return int(memory_bytes * SHARE_OF_MEMORY) - weights_bytes


@dataclass(frozen=True)
class KVSize:
    """Bytes by length. `window_tokens` bounds a sliding-window cache; None grows with the sequence.

    Units: `bytes_per_token` over all layers, `fixed_bytes` for state that has no length (SSM layers).
    """

    bytes_per_token: int
    fixed_bytes: int = 0
    window_tokens: int | None = None

    def bytes_for(self, n_tokens: int) -> int:
        """Bytes that `n_tokens` cached tokens take, rounded up to whole blocks."""
        if self.window_tokens is not None:
            n_tokens = min(n_tokens, self.window_tokens)
        n_blocks = -(-n_tokens // BLOCK_TOKENS)
        return n_blocks * BLOCK_TOKENS * self.bytes_per_token + self.fixed_bytes
