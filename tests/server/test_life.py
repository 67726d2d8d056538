"""How the process ends, and what becomes of the requests it had."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.server_process import ServerProcess, metric, serving, wait_for_metric

LONG = {"prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0, "ignore_eos": True}


def stream_frames(url: str, body: dict[str, object], started: threading.Barrier | None = None) -> list[str]:
    """The data lines of a streamed completion, to its end."""
    frames = []
    with httpx.stream("POST", f"{url}/v1/completions", json={**body, "stream": True}, timeout=120) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: "):
                frames.append(line.removeprefix("data: "))
                if started is not None:
                    started.wait(60)
                    started = None
    return frames


def stop_while_streaming(server: ServerProcess, n_streams: int, body: dict[str, object]) -> tuple[int, list[list[str]]]:
    """SIGTERM once every stream has its first frame; the exit code and each stream's frames."""
    started = threading.Barrier(n_streams + 1)
    with ThreadPoolExecutor(n_streams) as pool:
        streams = [pool.submit(stream_frames, server.url, body, started) for _ in range(n_streams)]
        started.wait(60)
        code = server.stop()
        return code, [stream.result() for stream in streams]


def test_sigterm_lets_eight_streams_finish_and_exits_0(tiny_model: Path) -> None:
    with serving(tiny_model, "--drain-timeout", "60") as server:
        code, streams = stop_while_streaming(server, 8, {**LONG, "max_tokens": 200})
    assert code == 0, server.text
    for frames in streams:
        assert frames[-1] == "[DONE]"
        assert json.loads(frames[-2])["choices"][0]["finish_reason"] == "length"
    texts = {"".join(json.loads(frame)["choices"][0]["text"] for frame in frames[:-1]) for frames in streams}
    assert len(texts) == 1


def test_past_the_drain_timeout_a_stream_ends_with_an_error_frame_and_the_exit_is_0(tiny_model: Path) -> None:
    with serving(tiny_model, "--drain-timeout", "0.05") as server:
        code, streams = stop_while_streaming(server, 2, LONG)
    assert code == 0, server.text
    for frames in streams:
        error = json.loads(frames[-1])["error"]
        assert error["code"] == "not_ready"
        assert "send it again" in error["message"]


def test_new_requests_get_503_with_retry_after_while_the_server_drains(tiny_model: Path) -> None:
    with serving(tiny_model) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        started = threading.Barrier(2)
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(stream_frames, server.url, LONG, started)
            started.wait(60)
            server.process.send_signal(signal.SIGTERM)
            # The signal and the requests race; /health says when the signal has arrived.
            for _ in range(1000):
                health = client.get("/health")
                if health.status_code == 503:
                    break
            assert health.json()["status"] == "draining"
            refused = client.post("/v1/completions", json=LONG)
            assert stream.result()[-1] == "[DONE]"
        assert server.wait() == 0
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["connection"] == "close"
    assert refused.json()["error"]["code"] == "not_ready"


def test_ctrl_c_ends_the_server_with_0(tiny_model: Path) -> None:
    with serving(tiny_model) as server:
        assert server.stop(signal.SIGINT) == 0
    assert "stopped" in server.text


def test_a_second_signal_leaves_at_once(tiny_model: Path) -> None:
    with serving(tiny_model, "--drain-timeout", "600") as server:
        started = threading.Barrier(2)
        body = {**LONG, "max_tokens": 2000}
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(stream_frames, server.url, body, started)
            started.wait(60)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_line(re.compile("may finish"))
            assert server.stop() == 0
            with pytest.raises(httpx.HTTPError):
                stream.result()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["import 'mlxcel.cli.exits'", "import 'transformers.utils", "mlxcel: loading"])
def test_a_signal_while_the_server_starts_exits_0(tiny_model: Path, moment: str, signal_number: int) -> None:
    # Python says which module it imports; transformers comes early and takes long.
    verbose = ["-v"] if moment.startswith("import") else []
    server = ServerProcess([sys.executable, *verbose, "-m", "mlxcel", "serve", str(tiny_model), "--port", "0"])
    server.wait_for_line(re.compile(moment))
    assert server.stop(signal_number) == 0, server.text[-2000:]
    assert "Traceback" not in server.text
    server.kill()


def test_a_port_in_use_is_refused_with_75_before_the_model_loads(tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "mlxcel", "serve", str(tiny_model), "--port", port],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 75
    assert f"127.0.0.1:{port} is in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("where", ["/dev/full", "&-"])
def test_a_server_whose_log_cannot_be_written_serves_and_exits_0(tiny_model: Path, where: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = f'exec "{sys.executable}" -m mlxcel serve "{tiny_model}" --port {port} 2>{where} <&-'
    with subprocess.Popen(["bash", "-c", command]) as process:
        try:
            for _ in range(3000):
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                        break
                except httpx.HTTPError:
                    assert process.poll() is None
                    threading.Event().wait(0.01)
            assert httpx.post(f"http://127.0.0.1:{port}/v1/completions", json={"prompt": "a"}).status_code == 200
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", {"hidden_size": "64"}),
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"max_position_embeddings": 1}),
        ("config.json", {"max_position_embeddings": "512"}),
        ("config.json", {"eos_token_id": "x"}),
        ("tokenizer_config.json", [1]),
        ("tokenizer_config.json", {"tokenizer_class": 5}),
    ],
)
def test_a_hostile_config_exits_78_with_one_line(tiny_model: Path, tmp_path: Path, file: str, content: object) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    if isinstance(content, dict):
        content = {**json.loads((folder / file).read_text()), **content}
    (folder / file).write_text(json.dumps(content))
    done = subprocess.run(
        [sys.executable, "-m", "mlxcel", "serve", str(folder), "--port", "0"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 78, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("damage", ["missing", "no weights", "weights cut", "no tokenizer"])
def test_a_model_that_cannot_be_served_exits_78_and_says_why(tiny_model: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    if damage != "missing":
        folder.mkdir()
        for file in tiny_model.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    weights = folder / "model.safetensors"
    if damage == "no weights":
        weights.unlink()
    elif damage == "weights cut":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif damage == "no tokenizer":
        for file in folder.glob("tokenizer*"):
            file.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "mlxcel", "serve", str(folder), "--port", "0"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 78, done.stderr
    assert str(folder) in done.stderr.splitlines()[-1]
    assert "serving" not in done.stderr.replace("being served", "")


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_client_that_leaves_frees_its_slot_long_before_its_answer_would_end(
    tiny_model: Path, is_streaming: bool
) -> None:
    with serving(tiny_model) as server, server.client() as client:
        address = httpx.URL(server.url)
        body = json.dumps({**LONG, "max_tokens": 2000, "stream": is_streaming}).encode()
        with socket.create_connection((address.host, address.port or 80), timeout=30) as leaving:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            leaving.sendall(head.encode() + body)
            if is_streaming:
                assert leaving.recv(4096).startswith(b"HTTP/1.1 200")
            wait_for_metric(client, "mlxcel_decoding", 1)
        wait_for_metric(client, "mlxcel_slots_used", 0)
        assert metric(client, "mlxcel_generated_tokens_total") < 2000
        assert metric(client, "mlxcel_kv_booked_bytes") == 0


def test_after_200_clients_that_connect_and_drop_the_next_is_served_and_the_books_are_true(tiny_model: Path) -> None:
    with serving(tiny_model, "--max-batch-size", "4", "--max-queue-depth", "250") as server, server.client() as client:
        expected = client.post("/v1/completions", json={**LONG, "max_tokens": 8}).json()["choices"]
        address = httpx.URL(server.url)
        body = json.dumps({**LONG, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for i in range(200):
            with socket.create_connection((address.host, address.port or 80), timeout=30) as dropping:
                # A third leave with nothing sent, a third in mid-request, a third right after it.
                dropping.sendall((b"", (head + body)[: len(head) + 5], head + body)[i % 3])
        assert client.post("/v1/completions", json={**LONG, "max_tokens": 8}).json()["choices"] == expected
        wait_for_metric(client, "mlxcel_slots_used", 0)
        for name in ("queue_depth", "prefilling", "decoding", "kv_booked_bytes", "kv_held_bytes", "failed_steps_total"):
            wait_for_metric(client, f"mlxcel_{name}", 0)
        assert server.stop() == 0
    assert "Traceback" not in server.text


def test_a_hopelessly_long_prompt_is_refused_at_once_and_those_who_left_hold_nobody_up(tiny_model: Path) -> None:
    with serving(tiny_model, "--max-batch-size", "2", "--max-queue-depth", "2") as server, server.client() as client:
        address = httpx.URL(server.url)
        for prompt in ("a" * 4_000_000, "a " * 24_000):
            body = json.dumps({"prompt": prompt}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            for _ in range(10):
                with socket.create_connection((address.host, address.port or 80), timeout=30) as leaving:
                    leaving.sendall(head.encode() + body)
        wait_for_metric(client, "mlxcel_tokenizing", 0, polls=5000)
        assert client.post("/v1/completions", json={"prompt": "hi", "max_tokens": 2}).status_code == 200
        refused = client.post("/v1/completions", json={"prompt": "a" * 4_000_000})
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert "at least" in refused.json()["error"]["message"]
        assert server.stop() == 0


def test_a_full_queue_answers_503_with_retry_after_and_depth_0_still_serves(tiny_model: Path) -> None:
    with serving(tiny_model, "--max-batch-size", "1", "--max-queue-depth", "0") as server, server.client() as client:
        started = threading.Barrier(2)
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(stream_frames, server.url, {**LONG, "max_tokens": 1000}, started)
            started.wait(60)
            refused = client.post("/v1/completions", json=LONG)
            assert stream.result()[-1] == "[DONE]"
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "server_busy"
        wait_for_metric(client, "mlxcel_slots_used", 0)
        assert client.post("/v1/completions", json={**LONG, "max_tokens": 2}).status_code == 200


def test_no_batch_keeps_an_unbounded_queue_and_serves_all_of_forty_at_once(tiny_model: Path) -> None:
    with serving(tiny_model, "--no-batch") as server, server.client() as client:
        assert "mlxcel_slots " not in client.get("/metrics").text
        with ThreadPoolExecutor(40) as pool:
            answers = list(
                pool.map(
                    lambda _: httpx.post(f"{server.url}/v1/completions", json={**LONG, "max_tokens": 3}, timeout=60),
                    range(40),
                )
            )
        assert [answer.status_code for answer in answers] == [200] * 40


def test_no_batch_obeys_a_queue_depth_that_is_given(tiny_model: Path) -> None:
    with serving(tiny_model, "--no-batch", "--max-queue-depth", "8") as server, server.client() as client:
        assert metric(client, "mlxcel_slots") == 9
