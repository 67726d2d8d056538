"""Bounds that hold whatever the clients do: open files, answers that nobody reads, answers that take too long."""

from __future__ import annotations

import re
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.raw_http import ask, connected, head, post, read_answer
from tests.support.server_process import ServerProcess, metric, serving, wait_for_metric
from tests.support.tiny_llama import make_tiny_llama

LONG = b'{"prompt": "Once", "max_tokens": 2000, "temperature": 0, "ignore_eos": true, "stream": true}'


def serving_with_files(tiny_model: Path, soft: int, hard: int) -> ServerProcess:
    """A server whose shell allows it this many open files."""
    command = f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"'
    server = [sys.executable, "-m", "mlxcel", "serve", str(tiny_model), "--port", "0"]
    return ServerProcess(["bash", "-c", command, "bash", *server])


def open_file_limit(server: ServerProcess) -> tuple[int, int]:
    return resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells another process's limits")
def test_the_open_file_limit_is_raised_and_importing_mlx_lm_does_not_lower_it(tiny_model: Path) -> None:
    server = serving_with_files(tiny_model, 256, 9000)
    try:
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert open_file_limit(server) == (9000, 9000)
        assert "may open" not in server.text
        assert server.stop() == 0
    finally:
        server.kill()


def test_with_few_open_files_a_server_warns_serves_and_outlives_more_clients_than_it_can_hold(tiny_model: Path) -> None:
    server = serving_with_files(tiny_model, 64, 64)
    try:
        address = httpx.URL(server.url)
        server.wait_for_line(re.compile("may open 64 files"))
        with ExitStack() as stack:
            crowd = [
                stack.enter_context(socket.create_connection((address.host, address.port or 80), timeout=30))
                for _ in range(100)
            ]
            # Those who got in are served while the others are turned away.
            crowd[0].sendall(head("GET /health HTTP/1.1"))
            assert read_answer(crowd[0]).status == 200
            for left in crowd[:60]:
                left.close()
            with httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(retries=5), timeout=30) as client:
                wait_for_answer(client)
        assert ask(server.url, post("/v1/completions", b'{"prompt": "a", "max_tokens": 1}')).status == 200
        assert server.stop() == 0
    finally:
        server.kill()


def wait_for_answer(client: httpx.Client) -> None:
    """Ask until the server has a file to spare; it looks again every second at the latest."""
    for _ in range(3000):
        try:
            assert client.get("/health").status_code == 200
            return
        except httpx.TransportError:
            continue
    raise AssertionError("the server answers nobody")


def test_an_answer_that_nobody_reads_is_given_up_and_frees_its_place(tiny_model: Path) -> None:
    with serving(tiny_model, "--write-timeout", "0.3") as server, server.client() as client:
        address = httpx.URL(server.url)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            deaf.settimeout(30)
            deaf.connect((address.host, address.port or 80))
            for _ in range(4):
                deaf.sendall(post("/v1/completions", LONG))
            server.wait_for_line(re.compile("outcome=cancelled"))
            wait_for_metric(client, "mlxcel_slots_used", 0)
        assert server.stop() == 0
    assert "Traceback" not in server.text


def test_a_log_that_nobody_reads_stops_no_request_and_no_exit(tiny_model: Path) -> None:
    command = [sys.executable, "-m", "mlxcel", "serve", str(tiny_model), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(match[1] for line in process.stderr if (match := re.search(r"serving .* on (http://\S+)", line)))
            # A pipe holds 64 KiB, and a line is longer than its path.
            path = f"/v1/{'x' * 4000}"
            with httpx.Client(base_url=url, timeout=60) as client:
                assert {client.get(path).status_code for _ in range(60)} == {404}
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("is_streaming", [False, True])
def test_an_answer_over_the_time_limit_ends_with_an_error_and_frees_its_place(
    tiny_model: Path, is_streaming: bool
) -> None:
    slow = ("-m", "tests.support.faulty_server", "slow=50")
    with serving(tiny_model, "--request-timeout", "0.4", program=slow) as server, server.client() as client:
        body = {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": is_streaming}
        answer = client.post("/v1/completions", json=body)
        if is_streaming:
            assert answer.status_code == 200
            last = answer.text.split("\n\n")[-2]
            assert '"code":"request_timed_out"' in last and "--request-timeout (0.4 s)" in last
        else:
            assert answer.status_code == 504
            assert answer.json()["error"]["code"] == "request_timed_out"
            assert "retry-after" in answer.headers
        wait_for_metric(client, "mlxcel_slots_used", 0)
        assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
        assert server.stop() == 0


def test_a_client_that_closes_its_sending_half_and_then_leaves_frees_its_place(tiny_model: Path) -> None:
    slow = ("-m", "tests.support.faulty_server", "slow=50")
    with serving(tiny_model, program=slow) as server, server.client() as watching:
        with connected(server.url) as client:
            client.sendall(post("/v1/completions", LONG.replace(b'"stream": true', b'"stream": false')))
            client.shutdown(socket.SHUT_WR)
            wait_for_metric(watching, "mlxcel_decoding", 1)
        wait_for_metric(watching, "mlxcel_slots_used", 0, polls=2000)
        assert metric(watching, "mlxcel_generated_tokens_total") < 2000
        assert server.stop() == 0


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
CALL_TIMEOUT_S = 4


def test_a_request_ends_in_time_wherever_it_is_and_a_template_that_never_ends_ends_the_process(tmp_path: Path) -> None:
    template = "{% if messages[0]['content'] == 'endless' %}" + ENDLESS + "{% endif %}{{ messages[0]['content'] }}"
    folder = make_tiny_llama(tmp_path / "endless", chat_template=template)
    limits = ("--request-timeout", "0.5", "--step-timeout", str(CALL_TIMEOUT_S))
    with serving(folder, *limits) as server, server.client() as client:
        in_body = ask(server.url, head("POST /v1/completions HTTP/1.1", "Content-Length: 99") + b"{")
        assert (in_body.status, in_body.error["code"]) == (504, "request_timed_out")
        in_template = client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "endless"}], "stream": True}
        )
        behind_it = client.post("/tokenize", json={"content": "a"})
        for answer in (in_template, behind_it):
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "request_timed_out")
            assert "--request-timeout (0.5 s)" in answer.json()["error"]["message"]
        assert client.get("/health").status_code == 200
        assert server.wait() == 70, server.text
    assert f"the chat template took longer than --step-timeout ({CALL_TIMEOUT_S} s)" in server.text


def test_who_waits_for_a_template_that_never_ends_is_told_that_the_server_stops(tmp_path: Path) -> None:
    folder = make_tiny_llama(
        tmp_path / "endless", chat_template="{% if messages[0]['content'] == 'endless' %}" + ENDLESS + "{% endif %}"
    )
    with serving(folder, "--step-timeout", "1") as server, server.client() as client:
        told = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "endless"}]})
        assert (told.status_code, told.json()["error"]["code"]) == (503, "not_ready")
        assert server.wait() == 70, server.text
