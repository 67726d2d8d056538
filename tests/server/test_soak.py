"""Small twins of `make soak`: the same clients for a moment, and no bar on any time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.soak.churn import books, churn, jobs_of, texts_alone
from bench.soak.overload import served
from bench.soak.status import status_times_s
from tests.support.server_process import serving

ANSWER = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def test_whoever_stays_while_others_leave_gets_the_text_it_has_alone_and_the_books_are_empty(tiny_model: Path) -> None:
    jobs = jobs_of(20, seed=5)
    with serving(tiny_model, "--prefix-cache-bytes", "2MiB") as server:
        expected = asyncio.run(texts_alone(server.url, jobs))
        assert len(set(expected)) > 15
        done = asyncio.run(churn(server.url, jobs, expected, n_requests=80, n_at_once=16, seed=6))
        assert done.wrong == [] and done.n_answered > 60 and done.n_left > 0
        assert set(asyncio.run(books(server.url)).values()) == {0}
        assert server.stop() == 0


def test_too_many_clients_see_200_and_503_with_retry_after_alone(tiny_model: Path) -> None:
    with serving(tiny_model, "--max-batch-size", "2", "--max-queue-depth", "3") as server:
        seen = asyncio.run(served(server.url, ANSWER, n_clients=30, run_s=2))
        assert seen.faults == [] and set(seen.by_status) == {200, 503}
        assert set(asyncio.run(books(server.url)).values()) == {0}
        assert server.stop() == 0


def test_health_and_metrics_answer_while_streams_run(tiny_model: Path) -> None:
    body = {**ANSWER, "max_tokens": 1500}
    with serving(tiny_model) as server:
        times = asyncio.run(status_times_s(server.url, body, n_streams=8, n_readings=5))
        assert [len(taken) for taken in times.values()] == [5, 5]
        assert server.stop() == 0
