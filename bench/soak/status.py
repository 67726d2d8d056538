"""How long /health and /metrics take while many streams run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bench.soak.client import Client

PATH = "/v1/completions"
ENDLESS_BYTES = 2**40


async def status_times_s(
    url: str, body: dict[str, Any], *, n_streams: int, n_readings: int, pause_s: float = 0.02
) -> dict[str, list[float]]:
    """Seconds for each reading, by path, all of them taken while every stream runs."""
    streams = [asyncio.ensure_future(_stream_on(url, {**body, "stream": True})) for _ in range(n_streams)]
    client = Client(url)
    times: dict[str, list[float]] = {"/health": [], "/metrics": []}
    try:
        while not await _run_all(client, n_streams):
            await asyncio.sleep(pause_s)
        for _ in range(n_readings):
            for path, taken in times.items():
                started_s = time.perf_counter()
                reply = await client.get(path)
                taken.append(time.perf_counter() - started_s)
                assert reply.status == 200
                await asyncio.sleep(pause_s)
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        client.close()
    return times


async def _run_all(client: Client, n_streams: int) -> bool:
    page = (await client.get("/metrics")).body.decode()
    return f"\nmlxcel_decoding {float(n_streams)}\n" in page


async def _stream_on(url: str, body: dict[str, Any]) -> None:
    client = Client(url)
    try:
        while True:
            await client.leave(PATH, body, after_bytes=ENDLESS_BYTES)
    finally:
        client.close()


def median_and_worst_ms(times_s: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(times_s)
    return ordered[len(ordered) // 2] * 1000, ordered[-1] * 1000
