"""The load client against servers that answer well, badly and not at all."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from rich.console import Console
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mlxcel.load import LoadReport, LoadSettings, run_load
from mlxcel.load.table import render
from tests.support.scripted_server import serve_app, serve_bytes

DONE = b"data: [DONE]\n\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def event(frame: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(frame).encode() + b"\n\n"


def token(text: str, *, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}]})


def usage(n_prompt: int, n_completion: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": n_prompt, "completion_tokens": n_completion}})


WHOLE = token("a") + token("b") + token("", finish_reason="length") + usage(5, 3) + DONE


def in_chunks(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def run(url: str, **settings: Any) -> LoadReport:
    defaults: dict[str, Any] = {"n_clients": 1, "n_requests": 1, "request_timeout_s": 10.0}
    return run_load(LoadSettings(url=url, **(defaults | settings)))


def failure_kinds(report: LoadReport) -> dict[str, int]:
    return {failures.kind: failures.count for failures in report.failures}


def completions(answer: Callable[[dict[str, Any]], Response]) -> Starlette:
    async def complete(request: Request) -> Response:
        return answer(await request.json())

    return Starlette(
        routes=[Route(path, complete, methods=["POST"]) for path in ("/v1/completions", "/v1/chat/completions")]
    )


def stream(frames: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(frames, media_type="text/event-stream")


def test_tokens_are_the_servers_own_count_and_times_run_from_the_sending() -> None:
    async def frames() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.05)
        yield token("")
        yield token("a")
        await asyncio.sleep(0.02)
        yield token("b") + token("", finish_reason="length")
        yield usage(17, 9) + DONE

    with serve_app(completions(lambda _: stream(frames()))) as url:
        report = run(url, n_clients=3, n_requests=2)
    assert report.is_clean
    assert (report.n_answered, report.completion_tokens, report.tokens_from) == (6, 54, "usage")
    assert (report.prompt_tokens_mean, report.finish_reasons) == (17, {"length": 6})
    assert report.ttft_ms is not None and report.inter_token_ms is not None and report.end_to_end_ms is not None
    assert 50 <= report.ttft_ms.p50 <= report.ttft_ms.p95 <= report.ttft_ms.p99
    assert report.inter_token_ms.p50 >= 20
    assert report.end_to_end_ms.p50 >= report.ttft_ms.p50
    assert report.output_tokens_per_s == pytest.approx(54 / report.wall_s)


def test_requests_are_distinct_repeatable_and_ask_for_usage() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> Response:
        bodies.append(body)
        return Response(WHOLE, media_type="text/event-stream")

    with serve_app(completions(answer)) as url:
        for endpoint in ("completions", "completions", "chat"):
            report = run(url, n_clients=2, n_requests=2, endpoint=endpoint, model="m", extra={"top_k": 3})
            assert report.is_clean
    prompts = [body["prompt"] for body in bodies[:8]]
    assert len(set(prompts[:4])) == 4
    assert sorted(prompts[:4]) == sorted(prompts[4:])
    assert [body["messages"] for body in bodies[8:]] != []
    for body in bodies:
        assert (
            body
            | {
                "model": "m",
                "max_tokens": 128,
                "temperature": 0.0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "top_k": 3,
            }
            == body
        )


def test_without_usage_chunks_with_text_are_counted_and_the_report_says_so() -> None:
    deltas = [{"role": "assistant"}, {"content": "a"}, {"reasoning_content": "b"}, {"content": ""}]
    body = b"".join(event({"choices": [{"delta": delta}]}) for delta in deltas) + DONE
    with serve_app(completions(lambda _: Response(body, media_type="text/event-stream"))) as url:
        report = run(url, endpoint="chat")
    assert (report.is_clean, report.completion_tokens, report.tokens_from) == (True, 2, "chunks")
    assert report.prompt_tokens_mean is None


def test_a_prompt_length_in_tokens_is_found_by_asking() -> None:
    def answer(body: dict[str, Any]) -> Response:
        n_prompt = 7 + 2 * len(body["prompt"].split())
        return Response(token("a") + usage(n_prompt, 1) + DONE, media_type="text/event-stream")

    with serve_app(completions(answer)) as url:
        report = run(url, prompt_tokens=107)
    assert (report.prompt_words, report.prompt_tokens_mean, report.notes) == (50, 107, ())


def test_a_prompt_length_in_tokens_becomes_words_where_the_server_counts_none() -> None:
    body = token("a") + DONE
    with serve_app(completions(lambda _: Response(body, media_type="text/event-stream"))) as url:
        report = run(url, prompt_tokens=40)
    assert (report.is_clean, report.prompt_words) == (True, 40)
    assert "reports no usage" in report.notes[0]


@pytest.mark.parametrize("size", [1, 2, 7, 4096])
def test_chunk_borders_may_lie_anywhere(size: int) -> None:
    with serve_bytes(lambda _: in_chunks(WHOLE, size)) as server:
        report = run(server.url)
    assert (report.is_clean, report.completion_tokens) == (True, 3)


def test_a_connection_is_kept_for_the_next_request() -> None:
    with serve_bytes(lambda _: in_chunks(WHOLE, 50), answers_per_connection=4) as server:
        report = run(server.url, n_requests=4)
    assert (report.is_clean, report.n_answered, server.n_connections) == (True, 4, 1)


def test_a_kept_connection_that_the_server_closed_is_no_failure() -> None:
    with serve_bytes(lambda number: None if number == 1 else in_chunks(WHOLE, 50), answers_per_connection=3) as server:
        report = run(server.url, n_requests=3)
    assert (report.is_clean, report.n_answered, server.n_connections) == (True, 3, 2)
    assert len(server.requests) == 4


def test_an_answer_that_ends_with_the_connection_is_whole() -> None:
    with serve_bytes(lambda _: UNTIL_CLOSED + WHOLE) as server:
        report = run(server.url, n_requests=2)
    assert (report.is_clean, report.n_answered, server.n_connections) == (True, 2, 2)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, "closed"),
        (CHUNKED, "closed"),
        (in_chunks(token("a"), 50), "closed"),
        (UNTIL_CLOSED + token("a"), "closed"),
        (b"\x00\xff rubbish \r\n\r\n" * 10, "not HTTP"),
        (in_chunks(WHOLE, 50).replace(b"\r\n", b"\r\nZZ", 4), "not HTTP"),
        (in_chunks(b"data: {nonsense\n\n" + DONE, 50), "bad frame"),
        (in_chunks(b"data: [1]\n\n" + DONE, 50), "bad frame"),
        (in_chunks(b'data: {"choices": 3}\n\n' + DONE, 50), "bad frame"),
        (in_chunks(b'data: {"error": "\xff"}\n\n' + DONE, 50), "bad frame"),
        (in_chunks(b"data: " + b"[" * 100_000 + b"\n\n" + DONE, 5000), "bad frame"),
        (in_chunks(b"data: " + b"x" * (1 << 21), 1 << 20), "bad frame"),
        (in_chunks(token("a") + event({"error": {"message": "lost"}}) + DONE, 50), "error frame"),
        (in_chunks(token("a") * 3000 + DONE, 1 << 20), "too many chunks"),
        (b"HTTP/1.0 503 Busy\r\n\r\nlater", "HTTP 503"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\ncut", "HTTP 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/x\r\n\r\n{}", "not an event stream"),
    ],
)  # fmt: skip
def test_a_bad_answer_is_a_counted_failure(answer: bytes | None, kind: str) -> None:
    with serve_bytes(lambda _: answer) as server:
        report = run(server.url, n_requests=2, max_tokens=4)
    assert failure_kinds(report) == {kind: 2}
    assert (report.n_answered, report.completion_tokens, report.ttft_ms) == (0, 0, None)


def test_refusals_are_counted_by_status_with_the_servers_words() -> None:
    refusals = iter(
        [
            JSONResponse({"error": {"message": "queue full", "type": "server_busy"}}, 503),
            PlainTextResponse("boom", 500),
            JSONResponse({"error": {"message": "queue still full"}}, 503),
            Response(WHOLE, media_type="text/event-stream"),
        ]
    )
    with serve_app(completions(lambda _: next(refusals))) as url:
        report = run(url, n_requests=4)
    assert [(f.kind, f.count, f.example) for f in report.failures] == [
        ("HTTP 503", 2, "queue full"),
        ("HTTP 500", 1, "boom"),
    ]
    assert (report.n_answered, report.n_failed, report.completion_tokens) == (1, 3, 3)


def test_a_server_that_breaks_off_is_a_counted_failure() -> None:
    async def frames() -> AsyncIterator[bytes]:
        yield token("a")
        raise ConnectionResetError("scripted")

    with serve_app(completions(lambda _: stream(frames()))) as url:
        report = run(url, n_requests=2)
    assert failure_kinds(report) == {"closed": 2}


def test_without_a_server_every_request_is_a_counted_failure() -> None:
    with serve_bytes(lambda _: None) as server:
        pass
    report = run(server.url, n_clients=4, n_requests=2, prompt_tokens=9)
    assert failure_kinds(report) == {"no connection": 8}
    assert len(report.notes) == 1


def test_a_silent_server_costs_no_more_than_the_timeouts() -> None:
    async def frames() -> AsyncIterator[bytes]:
        yield token("a")
        await asyncio.Event().wait()

    with serve_app(completions(lambda _: stream(frames()))) as url:
        report = run(url, n_clients=2, n_requests=4, request_timeout_s=0.2, total_timeout_s=0.5)
    kinds = failure_kinds(report)
    assert set(kinds) == {"timeout", "not sent"}
    assert sum(kinds.values()) == 8
    assert report.wall_s < 5


def test_clients_start_spread_over_the_ramp() -> None:
    with serve_app(completions(lambda _: Response(WHOLE, media_type="text/event-stream"))) as url:
        report = run(url, n_clients=4, ramp_s=0.4)
    assert report.is_clean
    assert report.wall_s >= 0.3


def test_progress_is_told_after_each_request() -> None:
    seen: list[tuple[int, int]] = []
    with serve_bytes(lambda _: in_chunks(WHOLE, 50)) as server:
        run_load(
            LoadSettings(url=server.url, n_clients=1, n_requests=3),
            on_answer=lambda n_ended, n_requests: seen.append((n_ended, n_requests)),
        )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_report_reads_as_a_table_and_as_json() -> None:
    with serve_bytes(lambda number: None if number else in_chunks(WHOLE, 50)) as server:
        report = run(server.url, n_requests=2, api_key="s3cret")
    assert server.requests[0].count(b"Authorization: Bearer s3cret\r\n") == 1
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as shown:
        console.print(render(report))
    text = shown.get()
    assert "1 of 2 requests answered" in text and "1 x closed" in text and "between tokens" in text
    value = msgspec.json.decode(msgspec.json.encode(report))
    assert value["failures"][0]["kind"] == "closed"
    assert value["ttft_ms"]["p50"] > 0
    assert "s3cret" not in json.dumps(value) + text
