"""The log: one line for each request, in either form, and nothing of what clients send unless asked for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.raw_http import ask, head
from tests.support.server_process import ServerProcess, serving

SECRET = "the prompt's own words"
BODY = {"prompt": SECRET, "max_tokens": 3, "temperature": 0, "ignore_eos": True}


def lines_of(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """The log of a server that ended, which is JSON throughout: requests by id."""
    records = [json.loads(line) for line in server.text.splitlines()]
    requests = [record for record in records if record["logger"] == "mlxcel.request"]
    assert len({record["id"] for record in requests}) == len(requests)
    return {record["id"]: record for record in requests}


def ask_for_everything(client: httpx.Client) -> None:
    """One request of each kind of end, under ids of their own."""

    def named(name: str) -> dict[str, str]:
        return {"x-request-id": name}

    client.post("/v1/completions", json={**BODY, "colour": 1}, headers=named("whole"))
    client.post("/v1/completions", json={**BODY, "stream": True}, headers=named("streamed"))
    client.post("/v1/completions", json={**BODY, "n": 2, "temperature": 1}, headers=named("two"))
    client.post("/v1/completions", json={**BODY, "top_k": -1}, headers=named("refused"))
    client.get("/v1/nothing%0a%1b", headers=named("lost"))
    client.get("/v1/models", headers=named("listed"))
    client.get("/health", headers=named("polled"))


def test_each_request_has_one_line_that_tells_how_it_ended_and_what_it_cost(tiny_model: Path) -> None:
    with serving(tiny_model, "--log-format", "json", "--log-prompts") as server, server.client() as client:
        ask_for_everything(client)
        malformed = ask(server.url, b"garbage\r\n\r\n").headers["x-request-id"]
        foreign = ask(server.url, head("GET /health HTTP/1.1", "x-request-id: foreign", host="evil.example"))
        assert foreign.status == 421
        assert server.stop() == 0
    lines = lines_of(server)
    assert set(lines) == {"whole", "streamed", "two", "refused", "lost", "listed", "foreign", malformed}
    for name in ("whole", "streamed"):
        line = lines[name]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert re.fullmatch(r"127\.0\.0\.1:\d+", line["client"])
        asked = {key: line[key] for key in ("level", "method", "path", "status", "outcome")}
        assert asked == {
            "level": "INFO", "method": "POST", "path": "/v1/completions", "status": 200, "outcome": "length",
        }  # fmt: skip
        assert line["prompt_tokens"] > 0 and (line["completion_tokens"], line["cached_tokens"]) == (3, 0)
        assert 0 < line["ttft_ms"] <= line["total_ms"] and line["tokens_per_s"] > 0
        assert SECRET in line["body"]
    assert lines["two"]["completion_tokens"] == 6
    assert lines["whole"]["ignored"] == "colour"
    assert "ignored" not in lines["streamed"]
    assert (lines["refused"]["status"], lines["refused"]["outcome"]) == (400, "invalid_value")
    assert (lines["lost"]["status"], lines["lost"]["outcome"]) == (404, "not_found")
    assert lines["lost"]["path"] == "/v1/nothing\n\x1b"
    assert lines["listed"]["status"] == 200
    assert (lines["foreign"]["status"], lines["foreign"]["outcome"]) == (421, "foreign_host")
    assert (lines[malformed]["method"], lines[malformed]["status"]) == ("-", 400)


def test_the_text_form_says_the_same_and_nothing_of_what_clients_send(tiny_model: Path) -> None:
    with serving(tiny_model) as server, server.client() as client:
        ask_for_everything(client)
        assert server.stop() == 0
    lines = [line for line in server.log if "mlxcel.request" in line]
    assert len(lines) == 6
    assert re.fullmatch(
        r"\S+Z INFO mlxcel\.request: request id=whole method=POST path=/v1/completions client=127\.0\.0\.1:\d+ "
        r"status=200 ignored=colour outcome=length prompt_tokens=\d+ completion_tokens=3 cached_tokens=0 "
        r"ttft_ms=[\d.]+ tokens_per_s=[\d.]+ total_ms=[\d.]+\n",
        lines[0],
    )
    assert r'path="/v1/nothing\n\u001b" ' in lines[4]
    assert SECRET not in server.text


def test_a_full_log_disk_is_told_once_and_the_server_goes_on(tiny_model: Path) -> None:
    with serving(tiny_model, "--log-file", "/dev/full") as server, server.client() as client:
        for _ in range(5):
            assert client.post("/v1/completions", json=BODY).status_code == 200
        assert server.stop() == 0
    assert "Traceback" not in server.text
    assert server.text.count("the log cannot be written: [Errno 28] No space left on device") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["{model}", "--port", "-1"], 78, "port = -1"),
        (["{model}", "--host", "1.2.3.4"], 78, "cannot listen on 1.2.3.4"),
        (["/nowhere"], 78, "/nowhere"),
    ],
)
def test_a_start_that_fails_under_a_json_log_says_so_in_json(
    tiny_model: Path, arguments: list[str], code: int, told: str
) -> None:
    given = [argument.format(model=tiny_model) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "mlxcel", "serve", *given, "--log-format", "json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines and lines[-1]["level"] == "ERROR" and told in lines[-1]["message"]
