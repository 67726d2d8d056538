"""Far more clients than places: what the refused are told, and what the accepted still get."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, NamedTuple

from bench.soak.client import Client

PATH = "/v1/completions"


class Served(NamedTuple):
    """Answers by status; `faults` are those that no client should ever see."""

    by_status: Counter[int]
    faults: list[str]
    tokens_per_s: float


async def served(url: str, body: dict[str, Any], *, n_clients: int, run_s: float) -> Served:
    """Each client asks again and again; the refused wait for as long as they are told.

    Only what was answered in the second half counts for the rate: by then the queue is as full as it gets.
    """
    by_status: Counter[int] = Counter()
    faults: list[str] = []
    n_tokens = 0
    counts_from_s = time.monotonic() + run_s / 2
    ends_s = time.monotonic() + run_s

    async def ask_on() -> None:
        nonlocal n_tokens
        client = Client(url)
        while time.monotonic() < ends_s:
            try:
                reply = await client.post(PATH, body)
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                faults.append(repr(error))
                continue
            by_status[reply.status] += 1
            if reply.status == 200:
                n_tokens += reply.json["usage"]["completion_tokens"] if counts_from_s < time.monotonic() < ends_s else 0
            elif reply.status != 503 or not reply.headers.get("retry-after", "").isdecimal():
                faults.append(f"{reply.status} {reply.headers} {reply.body[:200]!r}")
            else:
                rest_s = ends_s - time.monotonic()
                await asyncio.sleep(min(int(reply.headers["retry-after"]), max(rest_s, 0)))
        client.close()

    await asyncio.gather(*(ask_on() for _ in range(n_clients)))
    return Served(by_status, faults, n_tokens / (run_s / 2))
