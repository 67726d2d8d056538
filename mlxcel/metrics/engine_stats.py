"""What the engine thread counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EngineStats:
    """The engine's counts. None means unbounded, and is left out of /metrics. Owner: the engine thread.

    `n_steps` counts model calls of either kind, and `n_step_slots` the sequences that were running at each of them.
    """

    n_queued: int = 0
    n_prefilling: int = 0
    n_decoding: int = 0
    n_slots_used: int = 0
    n_slots: int | None = None
    kv_booked_bytes: int = 0
    kv_held_bytes: int = 0
    kv_budget_bytes: int | None = None
    n_prefixes: int = 0
    prefix_bytes: int = 0
    n_prefix_hits: int = 0
    n_prefix_misses: int = 0
    n_prefix_tokens: int = 0
    n_prefix_asked_tokens: int = 0
    n_prefilled_tokens: int = 0
    n_generated_tokens: int = 0
    n_steps: int = 0
    n_step_slots: int = 0
    n_decode_steps: int = 0
    n_failed_steps: int = 0
    n_requeued: int = 0
