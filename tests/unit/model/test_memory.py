from __future__ import annotations

import mlx.core as mx
import pytest

from mlxcel.model.memory import FEWEST_BUFFER_BYTES, SHARE_OF_BUFFERS, cap_memory, default_buffer_bytes, memory_bytes


def keeps_freed_buffers() -> bool:
    """MLX 0.31's CPU backend gives them back at once, and has no cap."""
    mx.eval(mx.zeros(2**20) + 1)
    return mx.get_cache_memory() > 0


def test_the_cap_on_freed_buffers_is_what_was_asked_and_by_default_grows_with_the_machine() -> None:
    has_cap = keeps_freed_buffers()
    before = mx.set_cache_limit(0)
    try:
        cap_memory(123_456)
        assert mx.set_cache_limit(0) == (123_456 if has_cap else 0)
    finally:
        mx.set_cache_limit(before)
    assert default_buffer_bytes() == max(FEWEST_BUFFER_BYTES, int(memory_bytes() * SHARE_OF_BUFFERS))


def test_a_small_machine_keeps_a_little_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxcel.model.memory.memory_bytes", lambda: 2**20)
    assert default_buffer_bytes() == FEWEST_BUFFER_BYTES
