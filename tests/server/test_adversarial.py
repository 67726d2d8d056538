"""Everything that a hostile or broken client can send, against one process that must live with true books to the end.

On both of uvicorn's parsers: httptools, and h11 where that is missing.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.raw_http import RawAnswer, ask, ask_in_a_row, connected, head, post, read_answer, send_and_end
from tests.support.server_process import ServerProcess, metric, serving, wait_for_metric

READ_TIMEOUT_S = 2
MAX_BODY = 2**20
COMPLETIONS, CHAT, MESSAGES, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"
GOOD = b'{"prompt": "a", "max_tokens": 1}'
LONG = b'{"prompt": "a", "max_tokens": 2000, "ignore_eos": true}'


@pytest.fixture(scope="module", params=["mlxcel", "tests.support.h11_server"], ids=["httptools", "h11"])
def server(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[ServerProcess]:
    limits = ["--max-body-bytes", str(MAX_BODY), "--request-read-timeout", str(READ_TIMEOUT_S)]
    with serving(tiny_model, *limits, program=("-m", request.param)) as server, server.client() as client:
        yield server
        # Whatever was sent: the process lives, serves, and holds nothing.
        assert client.post(COMPLETIONS, content=GOOD).status_code == 200
        for name in ("slots_used", "queue_depth", "prefilling", "decoding", "tokenizing", "kv_booked_bytes"):
            wait_for_metric(client, f"mlxcel_{name}", 0)
        assert metric(client, "mlxcel_failed_steps_total") == 0
        assert metric(client, "mlxcel_generated_tokens_total") < 2000
        assert server.stop() == 0
        assert "Traceback" not in server.text
        made_ids = re.findall(r"mlxcel\.request: request id=([0-9a-f]{24}) ", server.text)
        assert len(made_ids) == len(set(made_ids)) > 150


def assert_refused(answer: RawAnswer, status: int, code: str) -> None:
    assert (answer.status, answer.error["code"]) == (status, code), answer
    assert answer.headers["content-type"] == "application/json"
    assert re.search("nothing was (done|generated)|not served here", answer.error["message"])
    assert re.fullmatch("[0-9a-f]{24}", answer.headers["x-request-id"])


NUMBERS: dict[str, str] = {"temperature": COMPLETIONS, "top_p": COMPLETIONS, "min_p": CHAT}
WHOLE_NUMBERS = {
    "top_k": COMPLETIONS, "seed": CHAT, "max_tokens": COMPLETIONS,
    "max_completion_tokens": CHAT, "max_output_tokens": RESPONSES,
}  # fmt: skip
FLAGS = {"stream": COMPLETIONS, "ignore_eos": CHAT}
OBJECTS = {"stream_options": COMPLETIONS, "response_format": CHAT, "chat_template_kwargs": CHAT, "thinking": MESSAGES}
LISTS = {"messages": CHAT, "tools": CHAT}
TEXTS = {"model": COMPLETIONS, "system": MESSAGES, "instructions": RESPONSES}
VALUES = {
    "true": "true", "text": '"x"', "list": "[7]", "object": '{"x": 7}', "fraction": "1.5", "huge": "1" + "0" * 400,
    "below": "-1", "NaN": "NaN", "Infinity": "-Infinity", "surrogate": r'"\ud800"',
}  # fmt: skip
FITTING = [
    (NUMBERS, {"fraction"}),
    (WHOLE_NUMBERS, set[str]()),
    (FLAGS, {"true"}),
    (OBJECTS, {"object"}),
    (LISTS, set[str]()),
    (TEXTS, {"text"}),
]
WRONG_FIELDS = [
    pytest.param(path, field, text, id=f"{field}-{kind}")
    for fields, fitting in FITTING
    for field, path in fields.items()
    for kind, text in VALUES.items()
    if kind not in fitting
]
LEAST_BODY: dict[str, dict[str, str]] = {
    COMPLETIONS: {"prompt": '"a"'},
    CHAT: {"messages": '[{"role": "user", "content": "a"}]'},
    MESSAGES: {"messages": '[{"role": "user", "content": "a"}]', "max_tokens": "4"},
    RESPONSES: {"input": '"a"'},
}


@pytest.mark.parametrize(("path", "field", "text"), WRONG_FIELDS)
def test_a_field_of_a_wrong_kind_is_400_and_named(server: ServerProcess, path: str, field: str, text: str) -> None:
    fields = {**LEAST_BODY[path], field: text}
    body = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    answer = ask(server.url, post(path, body.encode()))
    assert answer.status == 400, answer
    assert answer.error["param"].partition("[")[0].partition(".")[0] in (field, "body"), answer
    if text != VALUES["surrogate"]:
        assert answer.error["param"] != "body", answer


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"}", b"null", b"7", b'"x"', b"[]", b"[{}]", b"{}{}", b"{'prompt': 'a'}", b"\x00",
        b'{"prompt": "a",}', b'{"prompt": "a"} x', b"\xef\xbb\xbf{}", b'{"prompt": "\xff"}', b'{"prompt": "\xc3("}',
        b'{"prompt": "\xed\xa0\x80"}', rb'{"prompt": "\ud800"}', rb'{"prompt": "\udc00\ud800"}', rb'{"prompt": "\u12"}',
        b'{"prompt": "a\nb"}', b'{"prompt": 01}', b'{"x": ' * 1000 + b"7" + b"}" * 1000, b"[" * 500_000,
        b'{"prompt": ' + b"[" * 500_000, b"{" * 100_000, b"\x1f\x8b\x08\x00", b"prompt=a&max_tokens=1",
    ],
    ids=lambda body: repr(body[:24]),
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_400(server: ServerProcess, body: bytes) -> None:
    for path in (COMPLETIONS, MESSAGES):
        answer = ask(server.url, post(path, body))
        assert_refused(answer, 400, "invalid_body" if answer.error["code"] == "invalid_body" else "invalid_value")


class Sent(NamedTuple):
    """Bytes, and what they are answered with; no `code` where the answer is no error of ours."""

    what: str
    sent: bytes
    status: int
    code: str | None = None
    method: str = "GET"
    ends: bool = False


HEALTH = "GET /health HTTP/1.1"
CREATE = f"POST {COMPLETIONS} HTTP/1.1"
CHUNKED = head(CREATE, "Transfer-Encoding: chunked")
MALFORMED = (400, "malformed_request")
HEADS = [
    Sent("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, *MALFORMED),
    Sent("garbage", b"garbage\r\n\r\n", *MALFORMED),
    Sent("zeros", bytes(5000), *MALFORMED),
    Sent("no target", b"GET\r\n\r\n", *MALFORMED),
    Sent("HTTP/0.9", b"GET /health\r\n\r\n", *MALFORMED),
    Sent("no version number", b"GET /health HTTP/x\r\nHost: localhost\r\n\r\n", *MALFORMED),
    Sent("HTTP/1.9", head("GET /health HTTP/1.9"), *MALFORMED),
    Sent("HTTP/2.0 in HTTP/1.1's words", head("GET /health HTTP/2.0"), *MALFORMED),
    Sent("two keys", head(HEALTH, "Authorization: Bearer a", "Authorization: Bearer a"), *MALFORMED),
    Sent("two keys of Anthropic's", head(HEALTH, "x-api-key: a", "X-Api-Key: b"), *MALFORMED),
    Sent("a page elsewhere", head(HEALTH, "Origin: https://evil.example"), 403, "foreign_origin"),
    Sent("a page of nowhere", head(HEALTH, "Origin: null"), 403, "foreign_origin"),
    Sent("our own page", head(HEALTH, "Origin: http://localhost"), 200),
    Sent("a target with a space", head("GET /a b HTTP/1.1"), *MALFORMED),
    Sent("a target that is not ASCII", head("GET /\xff HTTP/1.1"), *MALFORMED),
    Sent("a header without a colon", head(HEALTH, "nonsense"), *MALFORMED),
    Sent("a header name with a space", head(HEALTH, "a b: c"), *MALFORMED),
    Sent("a header without a name", head(HEALTH, ": c"), *MALFORMED),
    Sent("a NUL in a header", head(HEALTH, "a: b\x00c"), *MALFORMED),
    Sent("a carriage return in a header", head(HEALTH, "a: b\rc"), *MALFORMED),
    Sent("no Host", b"GET /health HTTP/1.1\r\n\r\n", *MALFORMED),
    Sent("an empty Host", head(HEALTH, host=""), *MALFORMED),
    Sent("two Hosts", head(HEALTH, "Host: localhost"), *MALFORMED),
    Sent("a Host with a user", head(HEALTH, host="localhost@evil.example"), *MALFORMED),
    Sent("a Host with a path", head(HEALTH, host="localhost/x"), *MALFORMED),
    Sent("a Host with a huge port", head(HEALTH, host="localhost:99999999"), *MALFORMED),
    Sent("a foreign Host", head(HEALTH, host="evil.example"), 421, "foreign_host"),
    Sent("a foreign Host that begins like ours", head(HEALTH, host="localhost.evil.example"), 421, "foreign_host"),
    Sent("a foreign Host that is an address", head(HEALTH, host="192.0.2.7:80"), 421, "foreign_host"),
    Sent(
        "a foreign Host that a proxy vouches for",
        head(HEALTH, "X-Forwarded-Host: localhost", "Forwarded: host=localhost", host="evil.example"),
        421,
        "foreign_host",
    ),
    Sent("our name in capitals", head(HEALTH, host="LOCALHOST:80"), 200),
    Sent("our address", head(HEALTH, host="127.0.0.1:8080"), 200),
    Sent("our address of IPv6", head(HEALTH, host="[::1]:8080"), 200),
    Sent("HTTP/1.0 without a Host", b"GET /health HTTP/1.0\r\n\r\n", 200),
    Sent("a head of 60 KiB", head(HEALTH, *(f"x-{i}: {'y' * 990}" for i in range(60))), 200),
    Sent("a head of 70 KiB", head(HEALTH, *(f"x-{i}: {'y' * 990}" for i in range(70))), 431, "head_too_large"),
    Sent("a header of 1 MB", head(HEALTH, "x: " + "y" * 1_000_000), 431, "head_too_large"),
    Sent("headers of 1 MB", head(HEALTH, *(f"x-{i}: y" * 10 for i in range(20_000))), 431, "head_too_large"),
    Sent("a target of 100 KB", head(f"GET /{'x' * 100_000} HTTP/1.1"), 431, "head_too_large"),
    Sent("a head that ends early", b"GET /health HTTP/1.1\r\nHost: local", *MALFORMED, ends=True),
    Sent("a method unknown to HTTP", head("BREW /health HTTP/1.1"), 400, "unknown_method"),
    Sent("a method in small letters", head("get /health HTTP/1.1"), 400, "unknown_method"),
    Sent("HTTP/2 at once", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "unknown_method"),
    Sent("CONNECT", b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "unknown_method"),
    Sent("a websocket", head(HEALTH, "Connection: Upgrade", "Upgrade: websocket"), 200),
    Sent("an upgrade to HTTP/2", head(HEALTH, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"), 200),
    Sent("HEAD of a page", head("HEAD /health HTTP/1.1"), 200, method="HEAD"),
    Sent("HEAD of what is only posted to", head(f"HEAD {COMPLETIONS} HTTP/1.1"), 405, method="HEAD"),
    Sent("GET of what is only posted to", head(f"GET {COMPLETIONS} HTTP/1.1"), 405, "method_not_allowed"),
    Sent("PUT", head(f"PUT {COMPLETIONS} HTTP/1.1", "Content-Length: 0"), 405, "method_not_allowed"),
    Sent("DELETE", head(f"DELETE {CHAT} HTTP/1.1"), 405, "method_not_allowed"),
    Sent("PATCH", head("PATCH /v1/models HTTP/1.1"), 405, "method_not_allowed"),
    Sent("TRACE", head("TRACE /health HTTP/1.1"), 405, "method_not_allowed"),
    Sent("OPTIONS", head(f"OPTIONS {COMPLETIONS} HTTP/1.1"), 204),
    Sent("OPTIONS of nothing", head("OPTIONS /nothing HTTP/1.1"), 404, "not_found"),
    Sent("OPTIONS of the server", head("OPTIONS * HTTP/1.1"), 204),
    Sent("an unknown path", head("GET /v1/nothing HTTP/1.1"), 404, "not_found"),
    Sent("a path with dots", head("GET /v1/../health HTTP/1.1"), 404, "not_found"),
    Sent("a path with hidden dots", head("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1"), 404, "not_found"),
    Sent("a path with two slashes", head("GET //health HTTP/1.1"), 404, "not_found"),
    Sent("a path that is not UTF-8", head("GET /%ff%fe HTTP/1.1"), 404, "not_found"),
    Sent("a path with a newline", head("GET /a%0d%0aset-cookie:%20x HTTP/1.1"), 404, "not_found"),
    Sent("a query that is not UTF-8", head("GET /health?%ff=%00 HTTP/1.1"), 200),
    Sent("a model that is a path", head("GET /v1/models/..%2f..%2fetc%2fpasswd HTTP/1.1"), 404, "model_not_found"),
]
ASKS_H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
ASKS_WEBSOCKET = ("Connection: keep-alive, Upgrade", "Upgrade: WebSocket")
LARGE = b"a" * 2_000_000
BODIES = [
    Sent("a body and an upgrade to HTTP/2", post(COMPLETIONS, GOOD, *ASKS_H2C), 200),
    Sent("a body and a websocket", post(COMPLETIONS, GOOD, *ASKS_WEBSOCKET), 200),
    Sent("chunks and an upgrade", head(CREATE, "Transfer-Encoding: chunked", *ASKS_H2C) + b"20\r\n" + GOOD
         + b"\r\n0\r\n\r\n", 200),
    Sent("a trailer of 2 MB", CHUNKED + b"20\r\n" + GOOD + b"\r\n0\r\nX: " + LARGE, 431, "head_too_large"),
    Sent("trailers of 2 MB", CHUNKED + b"20\r\n" + GOOD + b"\r\n0\r\n" + b"x: y\r\n" * 333_333, 431, "head_too_large"),
    Sent("a trailer of 20 KB", CHUNKED + b"20\r\n" + GOOD + b"\r\n0\r\nX: " + LARGE[:20_000] + b"\r\n\r\n", 200),
    Sent("a chunk's extension of 2 MB", CHUNKED + b"20;x=" + LARGE, 431, "head_too_large"),
    Sent("a Host after the body", CHUNKED + b"20\r\n" + GOOD + b"\r\n0\r\nHost: evil.example\r\n\r\n", 200),
    Sent("a body in gzip", post(COMPLETIONS, GOOD, "Content-Encoding: gzip"), 415, "unsupported_coding"),
    Sent("a body in two codings", post(COMPLETIONS, GOOD, "Content-Encoding: identity, br"), 415, "unsupported_coding"),
    Sent("a body in no coding", post(COMPLETIONS, GOOD, "Content-Encoding: identity"), 200),
    Sent("a coding and chunks", head(CREATE, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", *MALFORMED),
    Sent("a page elsewhere that needs no leave", post(COMPLETIONS, GOOD, "Content-Type: text/plain",
         "Origin: http://evil.example"), 403, "foreign_origin"),
    Sent("a length below 0", head(CREATE, "Content-Length: -1") + GOOD, *MALFORMED),
    Sent("a length that is no number", head(CREATE, "Content-Length: x") + GOOD, *MALFORMED),
    Sent("a length with a sign", head(CREATE, "Content-Length: +32") + GOOD, *MALFORMED),
    Sent("a length beyond 64 bits", head(CREATE, f"Content-Length: {10**30}") + GOOD, *MALFORMED),
    Sent("two lengths", head(CREATE, "Content-Length: 32", "Content-Length: 31") + GOOD, *MALFORMED),
    Sent("a length and chunks", head(CREATE, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
         *MALFORMED),
    Sent("a coding that is not chunked", head(CREATE, "Transfer-Encoding: gzip") + GOOD, *MALFORMED),
    Sent("a body shorter than its length", head(CREATE, "Content-Length: 99") + GOOD, *MALFORMED, ends=True),
    Sent("no body where one is due", head(CREATE, "Content-Length: 99"), *MALFORMED, ends=True),
    Sent("no body and no length", head(CREATE), 400, "invalid_body"),
    Sent("a body longer than its length", head(CREATE, "Content-Length: 31") + GOOD, 400, "invalid_body"),
    Sent("chunks", CHUNKED + b"8\r\n" + GOOD[:8] + b"\r\n18\r\n" + GOOD[8:] + b"\r\n0\r\n\r\n", 200),
    Sent("chunks with a trailer", CHUNKED + b"20;x=y\r\n" + GOOD + b"\r\n0\r\nAuthorization: x\r\n\r\n", 200),
    Sent("a chunk without a size", CHUNKED + b"\r\n" + GOOD, *MALFORMED),
    Sent("a chunk's size that is no number", CHUNKED + b"zz\r\n" + GOOD, *MALFORMED),
    Sent("a chunk's size below 0", CHUNKED + b"-8\r\n" + GOOD, *MALFORMED),
    Sent("a chunk's size beyond 64 bits", CHUNKED + b"f" * 30 + b"\r\n" + GOOD, *MALFORMED),
    Sent("a chunk longer than its size", CHUNKED + b"4\r\n" + GOOD + b"\r\n0\r\n\r\n", *MALFORMED),
    Sent("chunks that end early", CHUNKED + b"20\r\n" + GOOD[:9], *MALFORMED, ends=True),
    Sent("chunks without an end", CHUNKED + b"20\r\n" + GOOD + b"\r\n", *MALFORMED, ends=True),
    Sent("a length over the limit", head(CREATE, f"Content-Length: {MAX_BODY + 1}"), 413, "body_too_large"),
    Sent(
        "a length over the limit that waits to be asked",
        head(CREATE, f"Content-Length: {MAX_BODY + 1}", "Expect: 100-continue"), 413, "body_too_large",
    ),
    Sent("chunks over the limit", CHUNKED + b"100001\r\n" + b" " * (MAX_BODY + 1), 413, "body_too_large"),
    Sent("a body of 60 MB", post(COMPLETIONS, bytes(60_000_000)), 413, "body_too_large"),
    Sent("a body of 60 MB to a path that reads none", post("/v1/nothing", bytes(60_000_000)), 404, "not_found"),
    Sent("a body of 60 MB in an unknown method", b"BREW" + post("/", bytes(60_000_000)), 400, "unknown_method"),
    Sent("a body as large as the limit", post(COMPLETIONS, GOOD + b" " * (MAX_BODY - len(GOOD))), 200),
    Sent("a body for GET", head(HEALTH, "Content-Length: 5") + b"hello", 200),
]  # fmt: skip


@pytest.mark.parametrize("case", [*HEADS, *BODIES], ids=lambda case: case.what)
def test_what_is_sent_is_answered(server: ServerProcess, case: Sent) -> None:
    answer = ask(server.url, case.sent, method=case.method, ends=case.ends)
    if case.code is not None:
        assert_refused(answer, case.status, case.code)
    assert answer.status == case.status, answer


def test_a_huge_trailer_holds_nobody_up(server: ServerProcess) -> None:
    with connected(server.url) as hostile, connected(server.url) as other:
        hostile.sendall(CHUNKED + b"20\r\n" + GOOD + b"\r\n0\r\nX: ")
        for _ in range(30):
            hostile.sendall(LARGE)
            other.sendall(head(HEALTH))
            assert read_answer(other).status == 200
        assert_refused(read_answer(hostile), 431, "head_too_large")


def test_long_extensions_of_many_chunks_are_refused_by_what_they_are(server: ServerProcess) -> None:
    chunk = b"1;" + b"x" * 15_000 + b"\r\n \r\n"
    answer = ask(server.url, CHUNKED + chunk * 1000)
    assert_refused(answer, 413, "body_too_large")
    assert "--max-body-bytes" not in answer.error["message"]
    assert "their extensions too long" in answer.error["message"]


def test_a_request_to_upgrade_is_served_and_so_are_those_after_it_however_it_comes(server: ServerProcess) -> None:
    asking = post(COMPLETIONS, GOOD, *ASKS_H2C)
    with connected(server.url) as client:
        for size in (1, 7, len(asking)):
            for start in range(0, len(asking), size):
                client.sendall(asking[start : start + size])
            assert read_answer(client).status == 200
    last = head("GET /nothing HTTP/1.1", "Connection: close")
    received = ask_in_a_row(server.url, head(HEALTH, *ASKS_WEBSOCKET) + asking + head(HEALTH, *ASKS_H2C) + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200", b"200", b"404"]


def test_the_whole_server_has_every_method(server: ServerProcess) -> None:
    answer = ask(server.url, head("OPTIONS * HTTP/1.1"), method="OPTIONS")
    assert (answer.status, answer.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, POST")


def test_a_request_that_does_not_arrive_in_time_is_408_and_a_connection_without_one_is_closed(
    server: ServerProcess,
) -> None:
    in_body = head(CREATE, "Content-Length: 32") + GOOD[:5]
    begun = [
        b"G",
        HEALTH.encode()[:9],
        head(HEALTH)[:-2],
        head(CREATE, "Content-Length: 32"),
        in_body,
        CHUNKED + b"9\r\n{",
    ]
    with ExitStack() as stack:
        idle = stack.enter_context(connected(server.url))
        clients = [stack.enter_context(connected(server.url)) for _ in begun]
        for client, sent in zip(clients, begun, strict=True):
            client.sendall(sent)
        for client in clients:
            answer = read_answer(client)
            assert_refused(answer, 408, "slow_request")
            assert answer.headers["connection"] == "close"
        assert idle.recv(100) == b""


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(server: ServerProcess) -> None:
    with connected(server.url) as client:
        client.sendall(head(CREATE, "Content-Length: 32", "Expect: 100-continue"))
        assert client.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n")
        client.sendall(GOOD)
        assert read_answer(client).status == 200


def test_requests_in_a_row_are_answered_in_their_order(server: ServerProcess) -> None:
    last = head("GET /nothing HTTP/1.1", "Connection: close")
    received = ask_in_a_row(server.url, head(HEALTH) + post(COMPLETIONS, GOOD) + head("HEAD /health HTTP/1.1") + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200", b"200", b"404"]


def test_garbage_after_a_request_is_refused_after_its_answer(server: ServerProcess) -> None:
    received = ask_in_a_row(server.url, post(COMPLETIONS, GOOD) + b"\x00\x01\x02 garbage\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"400"]
    assert received.count(b'"text_completion"') == 1


@pytest.mark.parametrize("is_streaming", [False, True])
def test_a_client_that_closes_only_its_sending_half_is_answered(server: ServerProcess, is_streaming: bool) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 40, "ignore_eos": True, "stream": is_streaming}).encode()
    with connected(server.url) as client:
        send_and_end(client, post(COMPLETIONS, body))
        answer = read_answer(client)
        assert answer.status == 200
        assert answer.body.endswith(b"data: [DONE]\n\n") if is_streaming else b'"completion_tokens":40' in answer.body
        assert client.recv(100) == b""


def test_a_connection_serves_again_after_a_refusal(server: ServerProcess) -> None:
    with connected(server.url) as client:
        for body, status in [(b"{", 400), (GOOD, 200), (b'{"prompt": 7}', 400), (GOOD, 200)]:
            client.sendall(post(COMPLETIONS, body))
            assert read_answer(client).status == status


def test_an_answer_before_the_whole_body_was_read_closes_the_connection(server: ServerProcess) -> None:
    answer = ask(server.url, post("/v1/nothing", b"x" * 9))
    assert answer.headers["connection"] == "close"
    assert "connection" not in ask(server.url, head("GET /v1/nothing HTTP/1.1")).headers


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"PO",
        head(CREATE)[:-2],
        head(CREATE, "Content-Length: 99") + GOOD,
        post(COMPLETIONS, GOOD),
        post(COMPLETIONS, LONG) + head(HEALTH),
    ],
    ids=["at once", "in the line", "in the headers", "in the body", "after it", "after another"],
)
def test_clients_that_leave_early_cost_nothing(server: ServerProcess, begun: bytes) -> None:
    for _ in range(5):
        with connected(server.url) as client:
            client.sendall(begun)
    with connected(server.url) as client:
        # A reset instead of an end.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.sendall(begun)


def test_two_hundred_connect_at_once_and_each_is_answered(server: ServerProcess) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(server.url)) for _ in range(200)]
        for client in clients:
            client.sendall(head(HEALTH))
        assert [read_answer(client).status for client in clients] == [200] * 200


@pytest.mark.parametrize("sent", ["abc-123", "~" * 128, '!"#$%&'])
def test_a_sane_request_id_is_echoed(server: ServerProcess, sent: str) -> None:
    for path in ("/v1/models", "/nothing", COMPLETIONS):
        assert ask(server.url, head(f"GET {path} HTTP/1.1", f"X-Request-Id: {sent}")).headers["x-request-id"] == sent


@pytest.mark.parametrize("sent", ["", "a b", "~" * 129, "\xe9", "a\tb"])
def test_another_request_id_is_replaced(server: ServerProcess, sent: str) -> None:
    answer = ask(server.url, head("GET /v1/models HTTP/1.1", f"X-Request-Id: {sent}"))
    assert re.fullmatch("[0-9a-f]{24}", answer.headers["x-request-id"])


def test_no_path_or_header_forges_a_line_of_the_log(server: ServerProcess) -> None:
    lines = "%0a2026-01-01T00:00:00.000Z INFO mlxcel: forged id=1".replace(" ", "%20")
    assert ask(server.url, head(f"GET /{lines}%1b[31m%c2%85 HTTP/1.1")).status == 404
    body: dict[str, Any] = {"prompt": "a", "max_tokens": 1, "\n2026 INFO mlxcel: forged": 1, "\u2028\x1b": 2}
    assert ask(server.url, post(COMPLETIONS, json.dumps(body).encode())).status == 200
    server.wait_for_line(re.compile("ignored="))
    assert not re.search(r"^\S+ INFO mlxcel: forged", server.text, re.MULTILINE)
    assert "\x1b" not in server.text
