"""1,000 requests at 64 at once of which a tenth leave; ten times the queue in clients; /health under 32 streams.

    make soak        or        python -m bench.soak [churn|overload|status]... [--model DIR]

Each starts a server of its own and prints what it saw beside its bar. Without --model it is a tiny random Llama. Exit
status 1 if a bar is missed.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Optional

import typer

from bench.soak.churn import books, churn, jobs_of, resident_bytes, texts_alone
from bench.soak.overload import served
from bench.soak.status import median_and_worst_ms, status_times_s
from mlxcel.cli.exits import leave
from tests.support.server_process import serving
from tests.support.tiny_llama import make_tiny_llama

N_REQUESTS, N_AT_ONCE, N_JOBS = 1000, 64, 100
N_ROWS, QUEUE_DEPTH, OVERLOAD_S = 8, 16, 60.0
N_STREAMS, N_READINGS = 32, 200
MOST_GROWTH, LEAST_SHARE, MOST_MEDIAN_MS, MOST_WORST_MS = 1.05, 0.9, 50, 250
ANSWER = {"prompt": "Once upon a time", "max_tokens": 64, "temperature": 0, "ignore_eos": True}

Bars = Iterator[tuple[str, bool]]
"""What was seen, and whether it is good enough."""


def soak_churn(model: Path) -> Bars:
    jobs = jobs_of(N_JOBS, seed=1)
    # A prefix cache that is full before the first reading, so that the readings compare.
    with serving(model, "--prefix-cache-bytes", "4MiB") as server:
        url, pid = server.url, server.process.pid
        expected = asyncio.run(texts_alone(url, jobs))
        asyncio.run(churn(url, jobs, expected, n_requests=N_REQUESTS, n_at_once=N_AT_ONCE, seed=2))
        before = asyncio.run(books(url))
        bytes_before = resident_bytes(pid)
        done = asyncio.run(churn(url, jobs, expected, n_requests=N_REQUESTS, n_at_once=N_AT_ONCE, seed=3))
        after = asyncio.run(books(url))
        bytes_after = resident_bytes(pid)
        code = server.stop()
    yield f"{done.n_answered} answered at {N_AT_ONCE} at once while {done.n_left} left", True
    yield f"{len(done.wrong)} texts differ from the same request's alone {done.wrong[:3] or ''}", not done.wrong
    yield f"books before {before} and after {after}", not any([*before.values(), *after.values()])
    growth = bytes_after / bytes_before
    yield (
        f"memory {bytes_before / 2**20:.1f} MiB before, {bytes_after / 2**20:.1f} after: {growth:.3f}",
        growth <= MOST_GROWTH,
    )
    yield f"exit status {code}", code == 0


def soak_overload(model: Path) -> Bars:
    n_clients = 10 * QUEUE_DEPTH
    with serving(model, "--max-batch-size", str(N_ROWS), "--max-queue-depth", str(QUEUE_DEPTH)) as server:

        def rate_unloaded(run_s: float) -> float:
            return asyncio.run(served(server.url, ANSWER, n_clients=N_ROWS + QUEUE_DEPTH, run_s=run_s)).tokens_per_s

        rate_unloaded(5)
        # Before and after, since a machine is seldom the same for minutes.
        rates = [rate_unloaded(OVERLOAD_S / 2)]
        loaded = asyncio.run(served(server.url, ANSWER, n_clients=n_clients, run_s=OVERLOAD_S))
        rates.append(rate_unloaded(OVERLOAD_S / 2))
        after = asyncio.run(books(server.url))
        code = server.stop()
    places = f"{N_ROWS} running and {QUEUE_DEPTH} waiting"
    yield f"{n_clients} clients for {OVERLOAD_S:g} s, {places}: {dict(loaded.by_status)}", True
    yield f"{len(loaded.faults)} other answers or resets {loaded.faults[:3] or ''}", not loaded.faults
    share = loaded.tokens_per_s / (sum(rates) / 2)
    before, after_it = rates
    seen = (
        f"{loaded.tokens_per_s:.0f} tokens/s to the accepted; where nobody is refused {before:.0f} and {after_it:.0f}"
    )
    yield f"{seen}: {share:.2f}", share >= LEAST_SHARE
    yield f"books after {after}, exit status {code}", not any(after.values()) and code == 0


def soak_status(model: Path) -> Bars:
    body = {**ANSWER, "max_tokens": 1500}
    with serving(model) as server:
        times = asyncio.run(status_times_s(server.url, body, n_streams=N_STREAMS, n_readings=N_READINGS))
        code = server.stop()
    for path, taken in times.items():
        median, worst = median_and_worst_ms(taken)
        yield (
            f"{path} under {N_STREAMS} streams: median {median:.1f} ms, worst {worst:.1f} ms of {len(taken)}",
            median < MOST_MEDIAN_MS and worst < MOST_WORST_MS,
        )
    yield f"exit status {code}", code == 0


SOAKS: dict[str, Callable[[Path], Bars]] = {"churn": soak_churn, "overload": soak_overload, "status": soak_status}


def main(
    names: Annotated[Optional[list[str]], typer.Argument(help=f"Some of {', '.join(SOAKS)}.")] = None,
    model: Annotated[Optional[Path], typer.Option(help="Model folder; a tiny random Llama if unset.")] = None,
) -> None:
    """Run each and print what was seen."""
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        served_model = model or make_tiny_llama(Path(folder) / "tiny-llama")
        for name in names or SOAKS:
            for seen, is_kept in SOAKS[name](served_model):
                print(f"{name:9} {'kept  ' if is_kept else 'MISSED'} {seen}", flush=True)
                is_good = is_good and is_kept
    leave(0 if is_good else 1)


if __name__ == "__main__":
    typer.run(main)
