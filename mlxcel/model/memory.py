"""How much memory this machine has for MLX, and how much of it MLX may keep once it is free."""

from __future__ import annotations

import os

import mlx.core as mx

SHARE_OF_BUFFERS = 1 / 16
"""Of the machine's memory, for freed buffers that MLX keeps for the next step."""
FEWEST_BUFFER_BYTES = 64 * 2**20


def memory_bytes() -> int:
    """The machine's memory; on Metal, what of it may be wired."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def default_buffer_bytes() -> int:
    """A cap on freed buffers that grows with the machine."""
    return max(FEWEST_BUFFER_BYTES, int(memory_bytes() * SHARE_OF_BUFFERS))


def cap_memory(buffer_bytes: int) -> None:
    """Cap MLX's cache of freed buffers.

    On Metal, also keep the weights resident as mlx_lm does while it generates, and let MLX wait for memory to come
    free rather than take more than may be wired.
    """
    mx.set_cache_limit(buffer_bytes)
    if mx.metal.is_available():
        mx.set_wired_limit(memory_bytes())
        mx.set_memory_limit(memory_bytes())
