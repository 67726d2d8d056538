"""What fails alone, what ends the process, and that nobody waits for ever."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.server_process import ServerProcess, metric, serving, wait_for_metric

PROMPT = {"prompt": "Once upon a time", "max_tokens": 50, "temperature": 0, "ignore_eos": True}
STEP_TIMEOUT_S = 2.0


@contextmanager
def faulty(model: Path, fault: str, *arguments: str) -> Iterator[ServerProcess]:
    with serving(model, *arguments, program=("-m", "tests.support.faulty_server", fault)) as server:
        yield server


def test_a_failed_step_ends_its_rows_with_500_and_the_next_request_is_served(tiny_model: Path) -> None:
    with faulty(tiny_model, "decode=10") as server, server.client() as client:
        failed = client.post("/v1/completions", json=PROMPT)
        assert failed.status_code == 500
        assert failed.json()["error"]["code"] == "generation_failed"
        served = client.post("/v1/completions", json=PROMPT)
        assert served.status_code == 200
        assert served.json()["usage"]["completion_tokens"] == 50
        assert metric(client, "mlxcel_failed_steps_total") == 1
        wait_for_metric(client, "mlxcel_slots_used", 0)
        assert client.get("/health").status_code == 200
        assert server.stop() == 0


def test_want_of_memory_ends_its_rows_and_lets_prefixes_go_and_the_next_request_is_served(tiny_model: Path) -> None:
    long = {**PROMPT, "prompt": "Once upon a time " * 30, "max_tokens": 4}
    with faulty(tiny_model, "memory=10") as server, server.client() as client:
        expected = client.post("/v1/completions", json=long).json()["choices"]
        assert metric(client, "mlxcel_prefixes") == 1
        failed = client.post("/v1/completions", json=PROMPT)
        assert (failed.status_code, failed.json()["error"]["code"]) == (500, "generation_failed")
        wait_for_metric(client, "mlxcel_slots_used", 0)
        assert metric(client, "mlxcel_prefixes") == metric(client, "mlxcel_prefix_bytes") == 0
        again = client.post("/v1/completions", json=long).json()
        assert again["choices"] == expected and again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert server.stop() == 0


def test_steps_that_go_on_failing_end_every_ticket_and_the_process(tiny_model: Path) -> None:
    with faulty(tiny_model, "broken=10") as server, server.client() as client, ThreadPoolExecutor(8) as pool:

        def ask(_: int) -> str:
            try:
                return str(client.post("/v1/completions", json=PROMPT).json()["error"]["code"])
            except httpx.TransportError:
                return "gone"

        codes = list(pool.map(ask, range(200)))
        assert server.wait() == 70, server.text
    assert codes[0] == "generation_failed"
    # The last ones come to a server that ended its tickets, or is no longer there.
    assert set(codes) <= {"generation_failed", "engine_dead", "gone"}
    assert "10 turns in a row" in server.text


def test_a_failed_step_ends_a_stream_with_an_error_frame(tiny_model: Path) -> None:
    with faulty(tiny_model, "decode=10") as server, server.client() as client:
        frames = client.post("/v1/completions", json={**PROMPT, "stream": True}).text.split("\n\n")
    assert json.loads(frames[-2].removeprefix("data: "))["error"]["code"] == "generation_failed"
    assert frames[-1] == ""
    assert all("[DONE]" not in frame for frame in frames)


def test_a_failed_chunk_ends_one_request_and_leaves_running_streams_their_text(tiny_model: Path) -> None:
    with serving(tiny_model) as sound, sound.client() as client:
        expected = client.post("/v1/completions", json={**PROMPT, "max_tokens": 800}).json()["choices"]
    with faulty(tiny_model, "prefill=2") as server, server.client() as client:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                httpx.post, f"{server.url}/v1/completions", json={**PROMPT, "max_tokens": 800}, timeout=60
            )
            wait_for_metric(client, "mlxcel_decoding", 1)
            assert client.post("/v1/completions", json=PROMPT).status_code == 500
            assert running.result().json()["choices"] == expected
        wait_for_metric(client, "mlxcel_slots_used", 0)
        assert metric(client, "mlxcel_kv_booked_bytes") == 0


def test_a_hung_step_ends_every_ticket_and_the_process_within_the_step_timeout_and_2_s(tiny_model: Path) -> None:
    arguments = ("--step-timeout", str(STEP_TIMEOUT_S))
    with faulty(tiny_model, "hang=10", *arguments) as server, server.client() as client:
        started_s = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            stream = pool.submit(client.post, "/v1/completions", json={**PROMPT, "stream": True})
            whole = pool.submit(httpx.post, f"{server.url}/v1/completions", json=PROMPT, timeout=60)
            code = server.wait()
            took_s = time.monotonic() - started_s
            assert "engine_dead" in stream.result().text
            assert whole.result().status_code == 500
    assert code == 70, server.text
    assert took_s < STEP_TIMEOUT_S + 2
    assert "--step-timeout" in server.text


def test_a_device_that_is_gone_ends_every_ticket_and_the_process(tiny_model: Path) -> None:
    with faulty(tiny_model, "dead=10") as server, server.client() as client:
        failed = client.post("/v1/completions", json=PROMPT)
        assert failed.status_code == 500
        assert server.wait() == 70, server.text


def test_after_an_abort_in_native_code_the_port_is_closed_and_the_next_start_serves(tiny_model: Path) -> None:
    with faulty(tiny_model, "abort=10") as server:
        url = httpx.URL(server.url)
        with server.client() as client, ThreadPoolExecutor(1) as pool:
            lost = pool.submit(client.post, "/v1/completions", json=PROMPT)
            assert server.wait() == -6
            assert isinstance(lost.exception(), httpx.HTTPError)
    with serving(tiny_model, "--port", str(url.port)) as again, again.client() as client:
        assert client.post("/v1/completions", json=PROMPT).status_code == 200


def test_health_metrics_slots_and_version_answer_while_a_step_hangs(tiny_model: Path) -> None:
    arguments = ("--step-timeout", "60")
    with (
        faulty(tiny_model, "hang=3", *arguments) as server,
        server.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        hanging = pool.submit(httpx.post, f"{server.url}/v1/completions", json=PROMPT, timeout=60)
        wait_for_metric(client, "mlxcel_decode_steps_total", 2)
        assert client.get("/health").status_code == 200
        assert metric(client, "mlxcel_decoding") == 1
        assert [slot["state"] for slot in client.get("/slots").json()["slots"]] == ["decoding"]
        assert client.get("/version").status_code == 200
        server.kill()
        assert hanging.exception() is not None
