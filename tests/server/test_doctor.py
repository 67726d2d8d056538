"""`mlxcel doctor` as a person types it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.server_process import serving

LOOKS = [
    "python", "mlx", "mlx-lm", "llguidance", "device", "metallib", "wired limit", "memory", "open files", "config",
    "keys", "models folder", "disk", "log", "model", "port", "service",
]  # fmt: skip


def doctor(
    *arguments: str, program: Sequence[str] = (sys.executable, "-m", "mlxcel")
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*program, "doctor", *arguments], capture_output=True, text=True, timeout=120, check=False, env=os.environ
    )
    assert "Traceback" not in done.stderr
    return done


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """By what they are about; the last where there are several."""
    return {finding["about"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_a_machine_that_can_serve_has_no_problem_and_every_look_is_told(tiny_model: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'model = "{tiny_model}"\nmodels_dir = "{tmp_path}"\nport = 0\n')
    config.chmod(0o600)
    done = doctor("--config", str(config), "--json")
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)
    assert told["is_well"] and [finding["about"] for finding in told["findings"]] == LOOKS
    for finding in told["findings"]:
        assert finding["told"] and finding["state"] in ("ok", "warning")
        assert bool(finding["next_step"]) is (finding["state"] == "warning")
    shown = doctor("--config", str(config)).stdout.splitlines()
    assert [line for line in shown if line.startswith("ok ")] and shown[-1].startswith("problems: 0, warnings: ")


def test_every_problem_is_told_at_once_with_what_to_do_and_the_exit_code_is_1(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('prot = 1\ntop_p = 9\nmodel = "nowhere"\nlog_file = "/nowhere/mlxcel.log"\n')
    config.chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        done = doctor("--config", str(config), "--port", port)
        as_json = doctor("--config", str(config), "--port", port, "--json")
    assert (done.returncode, as_json.returncode) == (1, 1)
    problems = [f["about"] for f in json.loads(as_json.stdout)["findings"] if f["state"] == "problem"]
    assert problems == ["config", "config", "log", "model", "port"]
    assert not json.loads(as_json.stdout)["is_well"]
    lines = done.stdout.splitlines()
    for index, line in enumerate(lines):
        if line.startswith(("problem ", "warning ")):
            assert lines[index + 1].strip().startswith("-> ")
    assert lines[-1].startswith("problems: 5, ")


def test_a_server_of_ours_on_the_port_is_no_problem(tiny_model: Path) -> None:
    with serving(tiny_model) as server:
        port = server.url.rpartition(":")[2]
        found = findings(doctor(str(tiny_model), "--port", port, "--json"))["port"]
    assert found["state"] == "ok" and "is ready" in found["told"]


def test_few_open_files_are_told_of() -> None:
    shell = ("bash", "-c", 'ulimit -n 200; exec "$0" -m mlxcel "$@"', sys.executable)
    found = findings(doctor("--port", "0", "--json", program=shell))["open files"]
    assert found["state"] == "warning" and "200" in found["told"]


def test_mlx_is_never_loaded_in_the_process_that_tells(tiny_model: Path) -> None:
    program = (
        "import sys; from mlxcel.cli.commands import app\n"
        "try: app()\n"
        "finally: print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = doctor(str(tiny_model), "--port", "0", program=(sys.executable, "-c", program))
    loaded = done.stderr.splitlines()[-1]
    assert done.returncode == 0 and "'mlxcel'" in loaded
    for heavy in ("'mlx'", "'mlx_lm'", "'transformers'", "'numpy'", "'starlette'", "'uvicorn'"):
        assert heavy not in loaded
