"""The `mlxcel` command as a person types it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.reference import reference_texts
from tests.support.server_process import serving


def mlxcel(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlxcel", *arguments],
        input=stdin, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environ},
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [["--help"], ["serve", "--help"], ["config", "show"], ["config", "check"], ["list"], ["version"]]
)
def test_a_command_that_runs_no_model_imports_neither_mlx_nor_transformers(arguments: list[str]) -> None:
    program = (
        "import sys; from mlxcel.cli.commands import app\n"
        "try: app()\n"
        "finally: print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    loaded = done.stderr.splitlines()[-1]
    assert "'mlxcel'" in loaded
    for heavy in ("'mlx'", "'mlx_lm'", "'transformers'", "'numpy'", "'starlette'", "'rich'"):
        assert heavy not in loaded


def test_version_names_mlx_and_mlx_lm() -> None:
    versions = json.loads(mlxcel("version", "--json").stdout)
    assert set(versions) == {"mlxcel", "mlx", "mlx-lm"}
    lines = mlxcel("version").stdout.splitlines()
    assert lines == [f"{name} {version}" for name, version in versions.items()]


def test_config_show_names_each_origin(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("max_batch_size = 7\nport = 1\n")
    shown = json.loads(mlxcel("config", "show", "--json", "--config", str(config), MLXCEL_PORT="2").stdout)
    assert shown["max_batch_size"] == {"value": 7, "origin": str(config)}
    assert shown["port"] == {"value": 2, "origin": "MLXCEL_PORT"}
    assert shown["host"] == {"value": "127.0.0.1", "origin": "default"}


def test_a_bad_config_exits_78_with_one_line_and_leaves_the_file_alone(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("max_batch_sise = 7\n")
    done = mlxcel("serve", "x", "--config", str(config))
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "max_batch_sise" in done.stderr
    assert "max_batch_size" in done.stderr
    assert config.read_text() == "max_batch_sise = 7\n"


def test_no_model_exits_78_and_says_how_to_name_one() -> None:
    done = mlxcel("serve")
    assert done.returncode == 78
    assert "mlxcel import" in done.stderr


def test_generate_prints_the_reference_text(tiny_model: Path) -> None:
    done = mlxcel(
        "generate", str(tiny_model), "--prompt", "Once upon a time", "--max-tokens", "20", "--temperature", "0"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == reference_texts(tiny_model, ["Once upon a time"], 20)[0] + "\n"


def test_generate_reads_stdin_and_a_seed_repeats(tiny_model: Path) -> None:
    arguments = ("generate", str(tiny_model), "--max-tokens", "12", "--seed", "5", "--temperature", "1")
    first, second = (mlxcel(*arguments, stdin="Once upon") for _ in range(2))
    assert first.returncode == 0
    assert first.stdout == second.stdout
    assert mlxcel(*arguments[:-4], "--seed", "6", "--temperature", "1", stdin="Once upon").stdout != first.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["generate", "{model}", "--prompt", ""], 64),
        (["generate", "{model}", "--prompt", "x", "--max-tokens", "5000"], 64),
        (["generate", "/nowhere", "--prompt", "x"], 78),
        (["generate", "{model}", "--max-tokens", "0"], 2),
        (["nonsense"], 2),
    ],
)
def test_a_command_that_cannot_run_exits_with_its_kind_and_no_traceback(
    tiny_model: Path, arguments: list[str], code: int
) -> None:
    done = mlxcel(*(argument.format(model=tiny_model) for argument in arguments))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def shell(line: str, model: Path) -> subprocess.CompletedProcess[bytes]:
    """A line of bash, where `mlxcel` is the command and $MODEL the tiny model."""
    return subprocess.run(
        ["bash", "-c", f'mlxcel() {{ "{sys.executable}" -m mlxcel "$@"; }}; {line}'],
        capture_output=True, timeout=120, check=False, env={**os.environ, "MODEL": str(model)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("mlxcel generate $MODEL -p Once --max-tokens 400 | head -c 5; exit ${PIPESTATUS[0]}", 1),
        ("mlxcel generate $MODEL -p Once --max-tokens 3 > /dev/full", 74),
        ("mlxcel generate $MODEL -p Once --max-tokens 3 >&-", 0),
        ("mlxcel generate $MODEL <&-", 64),
        ("printf 'a\\xff' | mlxcel generate $MODEL", 64),
        ("mlxcel generate $MODEL -p $'a\\xff'", 64),
        ("mlxcel version > /dev/full", 74),
        ("mlxcel config show >&-", 0),
        ("mlxcel run $MODEL <&-", 0),
    ],
)
def test_closed_full_and_broken_files_end_a_command_in_order(tiny_model: Path, line: str, code: int) -> None:
    done = shell(line, tiny_model)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"terminate called" not in done.stderr


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-m", "mlxcel", *arguments])
        self.shown = ""

    def wait_for(self, pattern: str, timeout_s: float = 60) -> None:
        """Read until what was shown since the last wait matches."""
        deadline = time.monotonic() + timeout_s
        while not (match := re.search(pattern, self.shown)):
            readable, _, _ = select.select([self._file], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"no {pattern!r} in {self.shown!r}"
            self.shown += os.read(self._file, 4096).decode(errors="replace")
        self.shown = self.shown[match.end() :]

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def wait(self) -> int:
        """The exit code, once everything was read."""
        try:
            while os.read(self._file, 4096):
                pass
        except OSError:
            pass  # Linux reports the end of a terminal as an error
        os.close(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_run_answers_ctrl_c_stops_the_answer_and_ctrl_d_ends_the_program(tiny_model: Path) -> None:
    terminal = Terminal("run", str(tiny_model), "--temperature", "0")
    terminal.wait_for("> ")
    terminal.type("Hello\n")
    terminal.wait_for(r"Hello\r\n\w+")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.wait_for("\n> ")
    # Python's input() may miss an interrupt that comes just before it blocks; the line end shows it then.
    terminal.type("\x03")
    terminal.type("\n")
    terminal.wait_for("\n> ")
    terminal.type("Again\n")
    terminal.wait_for(r"Again\r\n\w+")
    terminal.type("\x03")
    terminal.wait_for("\n> ")
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_bench_measures_a_real_server_and_counts_its_tokens(tiny_model: Path) -> None:
    with serving(tiny_model) as server:
        done = mlxcel(
            "bench", server.url, "--clients", "2", "--requests", "2", "--prompt-tokens", "40", "--max-tokens", "20",
            "--ignore-eos", "--json",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["n_answered"] == 4
    assert report["completion_tokens"] == 80
    assert report["output_tokens_per_s"] > 0


def test_bench_of_a_server_that_is_not_there_fails_and_says_so() -> None:
    done = mlxcel("bench", "http://127.0.0.1:9", "--clients", "1", "--requests", "1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["1.2.3.4", "a b", f"{'a' * 70}.example"])
def test_a_host_that_cannot_be_listened_on_is_a_setting_that_check_and_serve_refuse(
    tiny_model: Path, tmp_path: Path, host: str
) -> None:
    checked = mlxcel("config", "check", MLXCEL_HOST=host, HOME=str(tmp_path))
    served = mlxcel("serve", str(tiny_model), "--host", host, "--port", "0", HOME=str(tmp_path))
    for done in (checked, served):
        assert done.returncode == 78 and "Traceback" not in done.stderr
        assert f"cannot listen on {host}:" in done.stderr
