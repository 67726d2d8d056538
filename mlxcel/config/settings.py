"""Every setting of the server: its type, default, bounds and meaning, in one place.

It knows nothing of where values come from; see `sources`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DEFAULT_QUEUE_DEPTH = 256
AUTO = "auto"
UNBOUNDED = "unbounded"

MOST_BYTES = 2**50
MOST_S = 366 * 86400.0
"""A year: longer than any of these times is meant, and short enough for every clock and timer."""
MOST_ROWS = 4096
MOST_WAITING = 10**6
MOST_TOKENS = 2**31 - 1

ORIGIN = r"\*|[a-z][a-z0-9+.-]*://(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(?::\d+)?"
HOST_NAME = r"\*|[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]"


def _setting(
    default: Any,
    meaning: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    pattern: str | None = None,
    wanted: str = "",
) -> Any:
    """`pattern` is what a text, or each of several, must match as a whole; `wanted` says so in words."""
    limits = {"at_least": at_least, "at_most": at_most, "pattern": pattern, "wanted": wanted}
    return field(default=default, metadata={"meaning": meaning, **limits})


@dataclass(frozen=True)
class ServeSettings:
    """What `mlxcel serve` runs with.

    `max_queue_depth` and `kv_cache_budget_bytes` are None for unbounded, or "auto" until `settle`.
    """

    model: str = _setting("", "model folder, or the name of a model in models_dir")
    models_dir: str = _setting("", "where pulled and imported models live; the user's data folder if unset")
    alias: str | None = _setting(None, "model id that clients use; the folder's name if unset")
    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8080, "port to listen on; 0 picks a free one", at_least=0, at_most=65535)
    no_batch: bool = _setting(False, "one sequence at a time, with an unbounded queue unless told otherwise")
    max_batch_size: int = _setting(32, "sequences that run at once", at_least=1, at_most=MOST_ROWS)
    max_queue_depth: int | str | None = _setting(
        AUTO, "requests that may wait beyond the running ones: a number, or unbounded", at_least=0, at_most=MOST_WAITING
    )
    prefill_chunk_size: int = _setting(
        512, "most prompt tokens in one turn; 0 is a whole prompt", at_least=0, at_most=MOST_TOKENS
    )
    kv_cache_budget_bytes: int | str | None = _setting(
        AUTO, "memory for keys and values: bytes, 4GiB, auto, or unbounded", at_least=1, at_most=MOST_BYTES
    )
    prefix_cache_bytes: int | str = _setting(
        AUTO,
        "of that, most for prompts that ended and may come again: bytes, 1GiB, auto, or 0 for none",
        at_least=0,
        at_most=MOST_BYTES,
    )
    prefix_cache_ttl_s: float = _setting(
        3600.0, "how long a prompt that nobody asks again is kept", at_least=0, at_most=MOST_S
    )
    mlx_cache_bytes: int | str = _setting(
        AUTO,
        "memory that MLX may keep for its next step once it is free: bytes, 1GiB, or auto",
        at_least=0,
        at_most=MOST_BYTES,
    )
    temperature: float | None = _setting(
        None, "default temperature; the model's generation_config if unset", at_least=0, at_most=100
    )
    top_p: float | None = _setting(None, "default top_p", at_least=0, at_most=1)
    top_k: int | None = _setting(None, "default top_k", at_least=0, at_most=2**31 - 1)
    min_p: float | None = _setting(None, "default min_p", at_least=0, at_most=1)
    typical_p: float | None = _setting(None, "default typical_p", at_least=0, at_most=1)
    repetition_penalty: float | None = _setting(None, "default repetition_penalty", at_least=0.01, at_most=100)
    max_body_bytes: int = _setting(8 * 2**20, "largest request body", at_least=1, at_most=MOST_BYTES)
    strict: bool = _setting(False, "answer 400 to a field that nobody knows, instead of ignoring it")
    api_keys_file: str | None = _setting(
        None, "file of the keys that clients must send, one a line, for its owner's eyes only"
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "Host names answered to beside localhost and the bound address; * is any",
        pattern=HOST_NAME, wanted="host names without a port, or *",
    )  # fmt: skip
    cors_origins: tuple[str, ...] = _setting(
        (), "origins whose pages may ask, beside our own; * is any",
        pattern=ORIGIN, wanted="origins as browsers send them (https://example.org:8443, no path), or *",
    )  # fmt: skip
    request_read_timeout_s: float = _setting(60.0, "longest time for a request to arrive", at_least=0.1, at_most=MOST_S)
    request_timeout_s: float | None = _setting(
        None, "longest time from a request's head to its answer's end; no limit if unset", at_least=0.1, at_most=MOST_S
    )
    write_timeout_s: float = _setting(
        60.0, "how long a client may leave its answer unread", at_least=0.1, at_most=MOST_S
    )
    log_format: str = _setting("text", "form of the log: text or json", pattern="text|json", wanted="text or json")
    log_prompts: bool = _setting(False, "write the bodies of requests that generate into the log")
    drain_timeout_s: float = _setting(
        15.0, "how long running requests may finish after SIGTERM", at_least=0, at_most=MOST_S
    )
    step_timeout_s: float = _setting(
        120.0,
        "longest call of the model, the tokenizer or its template before the server gives up",
        at_least=0.1,
        at_most=MOST_S,
    )
    log_file: str | None = _setting(None, "the server's own log; stderr if unset")

    @property
    def batch_rows(self) -> int:
        """Sequences that run at once: 1 under no_batch."""
        return 1 if self.no_batch else self.max_batch_size

    @property
    def queue_depth(self) -> int | None:
        """How many may wait; None is unbounded."""
        if self.max_queue_depth == AUTO:
            return None if self.no_batch else DEFAULT_QUEUE_DEPTH
        assert not isinstance(self.max_queue_depth, str)
        return self.max_queue_depth
