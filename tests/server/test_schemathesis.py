"""The running server keeps to its OpenAPI document, whatever is sent to it.

`make fuzz-api` is the longer form: every phase, many more requests, a seed of its own each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mlxcel.api.openapi.examples import EXAMPLES
from tests.support.server_process import ServerProcess, serving, wait_for_metric
from tests.support.tiny_llama import make_tiny_llama
from tests.support.tiny_tokenizer import CALLING, THINKING, TOOLS_TEMPLATE

N_EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES")
"""Requests to each operation, for the longer form."""
RUN_S = 240
KEY = "sesame"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("models") / "tools"
    # A small context bounds every answer, so that no request needs a limit of its own.
    make_tiny_llama(folder, context_tokens=192, chat_template=TOOLS_TEMPLATE, markers=(*THINKING, *CALLING))
    keys = folder / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o600)
    with serving(folder, "--alias", "tiny", "--api-keys-file", str(keys)) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        client.headers["authorization"] = f"Bearer {KEY}"
        yield client


def test_every_example_is_served(client: httpx.Client) -> None:
    for path, examples in EXAMPLES.items():
        for name, body in examples.items():
            answer = client.post(path, json=body)
            assert answer.status_code == (400 if path == "/v1/embeddings" else 200), (path, name, answer.text)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="schemathesis needs Python 3.11")
@pytest.mark.timeout(0 if N_EXAMPLES else RUN_S)
def test_every_answer_is_documented_and_none_is_a_fault(
    server: ServerProcess, client: httpx.Client, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    command += ["-H", f"Authorization: Bearer {KEY}", "--request-timeout", "60", "--continue-on-failure"]
    # A body that fits its schema may still be refused: what it asks for together cannot always be had.
    command += ["--exclude-checks", "positive_data_acceptance", "--generation-database", "none"]
    if N_EXAMPLES:
        command += ["--max-examples", N_EXAMPLES]
    else:
        command += ["--phases", "examples,fuzzing", "--max-examples", "5", "--seed", "1", "--no-shrink"]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=None if N_EXAMPLES else RUN_S,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    paths = client.get("/openapi.json").json()["paths"]
    # All but the document itself: that was asked for already.
    n_operations = sum(len(operations) for operations in paths.values()) - 1
    assert f"Selected: {n_operations}/{n_operations}\n  Tested: {n_operations}\n" in run.stdout
    for name in ("slots_used", "tokenizing", "kv_booked_bytes"):
        wait_for_metric(client, f"mlxcel_{name}", 0)
    assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
    # Requests without the key, and with a wrong one, were among them.
    assert server.text.count("invalid_api_key") >= 2
    assert "Traceback" not in server.text
