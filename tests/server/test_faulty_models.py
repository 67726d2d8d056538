"""`config check` and `serve` agree on which models can be served."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broken_model import break_model
from tests.support.server_process import serving
from tests.support.tiny_llama import make_tiny_llama


def mlxcel(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlxcel", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environ},
    )  # fmt: skip


@pytest.mark.parametrize("breakage", ["another width", "layers without end", "code of its own for the tokenizer"])
def test_config_check_and_serve_refuse_the_same_model_with_78_and_the_same_words(tmp_path: Path, breakage: str) -> None:
    told = break_model(tmp_path / "model", breakage)
    checked = mlxcel("config", "check", MLXCEL_MODEL=str(tmp_path / "model"))
    served = mlxcel("serve", str(tmp_path / "model"), "--port", "0")
    assert (checked.returncode, served.returncode) == (78, 78), served.stderr
    assert told in checked.stderr and checked.stderr.splitlines()[-1] == served.stderr.splitlines()[-1]


def test_a_chat_template_that_cannot_be_read_is_told_at_the_start_and_stops_chats_only(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path / "model", chat_template="{% if %}")
    checked = mlxcel("config", "check", MLXCEL_MODEL=str(folder))
    assert checked.returncode == 0 and "chat template" in checked.stderr
    with serving(folder) as server, server.client() as client:
        server.wait_for_line(re.compile("WARNING mlxcel: the chat template"))
        messages = [{"role": "user", "content": "a"}]
        refused = client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 2})
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (503, "chat_template_faulty"), error
        assert "the model's folder" in error["message"]
        assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
