"""What one run was asked for: the model, how much of each matrix, and every limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LENGTHS = (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 267, 511, 513)
NO_BATCH_LENGTHS = (33, 200, 267)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Units: lengths are prompt tokens; `n_tokens` bounds each answer, `n_batch` requests at once, `n_queue` the
    depth N of the queue matrix, `n_runs` the runs of each EOS row. model_id: what requests name as the model.
    only: try the rows whose name has this in it; the others are there, skipped."""

    model: Path
    lengths: tuple[int, ...] = LENGTHS
    no_batch_lengths: tuple[int, ...] = NO_BATCH_LENGTHS
    n_tokens: int = 24
    n_batch: int = 8
    n_queue: int = 3
    n_runs: int = 3
    only: str = ""
    model_id: str | None = None
    request_s: float = 120.0
    start_s: float = 300.0
    stop_s: float = 30.0
