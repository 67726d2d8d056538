"""What becomes of those who are there, and of those who come, while a loaded server stops."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.raw_http import ask, connected, head, post, read_answer
from tests.support.server_process import ServerProcess, serving, wait_for_metric

N_STREAMS, N_QUEUED = 16, 10
SLOW = ("-m", "tests.support.faulty_server", "slow=20")
"""A step takes 20 ms longer, so that a stream lasts as long as its tokens say."""


def completion(url: str, max_tokens: int, *, is_streaming: bool) -> httpx.Response:
    body = {"prompt": "Once", "max_tokens": max_tokens, "ignore_eos": True, "stream": is_streaming}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=120)


@contextmanager
def loaded(
    tiny_model: Path, max_tokens: int, drain_timeout: str
) -> Iterator[tuple[ServerProcess, list[Future[httpx.Response]]]]:
    """A server with 16 streams that run and 10 requests that wait, half of them streams, which was told to stop."""
    flags = ["--max-batch-size", str(N_STREAMS), "--max-queue-depth", str(N_QUEUED), "--drain-timeout", drain_timeout]
    with (
        serving(tiny_model, *flags, program=SLOW) as server,
        ThreadPoolExecutor(N_STREAMS + N_QUEUED) as pool,
        server.client() as client,
    ):
        asked = [pool.submit(completion, server.url, max_tokens, is_streaming=True) for _ in range(N_STREAMS)]
        wait_for_metric(client, "mlxcel_decoding", N_STREAMS, polls=3000)
        asked += [pool.submit(completion, server.url, max_tokens, is_streaming=i % 2 == 0) for i in range(N_QUEUED)]
        wait_for_metric(client, "mlxcel_slots_used", N_STREAMS + N_QUEUED, polls=3000)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_line(re.compile(f"stopping: {N_STREAMS + N_QUEUED} requests may finish"))
        yield server, asked


def last_event(answer: httpx.Response) -> str:
    return answer.text.split("\n\n")[-2].removeprefix("data: ")


def test_everyone_who_was_accepted_is_answered_and_everyone_who_comes_is_sent_away(tiny_model: Path) -> None:
    with loaded(tiny_model, max_tokens=60, drain_timeout="60") as (server, asked):
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages"):
            refused = httpx.post(f"{server.url}{path}", json={}, timeout=60)
            assert (refused.status_code, refused.headers["connection"]) == (503, "close")
            assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{server.url}/health").json()["status"] == "draining"
        for answer in (future.result() for future in asked):
            assert answer.status_code == 200
            if answer.headers["content-type"].startswith("text/event-stream"):
                assert last_event(answer) == "[DONE]"
            else:
                assert answer.json()["choices"][0]["finish_reason"] == "length"
        assert server.wait() == 0
    assert "Traceback" not in server.text


def test_past_the_deadline_everyone_hears_that_the_server_stops(tiny_model: Path) -> None:
    with loaded(tiny_model, max_tokens=1500, drain_timeout="0.5") as (server, asked):
        n_told = 0
        for answer in (future.result() for future in asked):
            error: dict[str, Any]
            if answer.status_code == 503:
                error = answer.json()["error"]
                assert "retry-after" in answer.headers
            else:
                error = json.loads(last_event(answer))["error"]
            assert error["code"] == "not_ready"
            n_told += 1
        assert n_told == N_STREAMS + N_QUEUED
        assert server.wait() == 0
    assert "Traceback" not in server.text


def test_a_body_that_never_comes_is_answered_in_our_envelope_at_the_deadline(tiny_model: Path) -> None:
    with serving(tiny_model, "--drain-timeout", "0.3") as server, connected(server.url) as stalled:
        stalled.sendall(head("POST /v1/messages HTTP/1.1", "Content-Length: 99") + b"{")
        assert ask(server.url, head("GET /health HTTP/1.1")).status == 200
        server.process.send_signal(signal.SIGTERM)
        answer = read_answer(stalled)
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert (answer.error["type"], answer.error["code"]) == ("overloaded_error", "not_ready")
        assert server.wait() == 0
    assert "Traceback" not in server.text


def test_connections_on_which_nothing_is_owed_do_not_hold_up_an_exit(tiny_model: Path) -> None:
    with (
        serving(tiny_model, "--drain-timeout", "60") as server,
        connected(server.url),
        connected(server.url) as begun,
        connected(server.url) as kept,
    ):
        begun.sendall(b"GET /he")
        kept.sendall(post("/v1/completions", b'{"prompt": "a", "max_tokens": 1}'))
        assert read_answer(kept).status == 200
        assert server.stop() == 0
