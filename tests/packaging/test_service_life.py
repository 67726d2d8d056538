"""The real server as a launchd job: it boots, restarts, drains, gives way and says why it cannot start."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from portfile.evaluation import evaluate
from portfile.project import PORTFILE
from tests.packaging.conftest import Command, Row
from tests.support.daemon import Daemon, patiently, until_ready
from tests.support.launchd import Launchd
from tests.support.service_prefix import ROOT, free_port, lay_out, set_program

LONG = {"prompt": "Once upon a time", "max_tokens": 250, "temperature": 0, "ignore_eos": True}
EXIT_TIME_OUT_S = 60


@pytest.fixture
def daemon(tmp_path: Path, tiny_model: Path, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon that is installed and not loaded; the clock's scale is the test's parameter."""
    port = free_port()
    layout = lay_out(tmp_path / "opt" / "local", f'model = "{tiny_model}"\nport = {port}\n')
    with Launchd(tmp_path, scale=getattr(request, "param", 1.0)) as launchd:
        yield Daemon(launchd, layout, port)


def stream(url: str, begun: Callable[[], object]) -> list[str]:
    frames = []
    with httpx.stream("POST", f"{url}/v1/completions", json={**LONG, "stream": True}, timeout=120) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: "):
                frames.append(line.removeprefix("data: "))
                if len(frames) == 1:
                    begun()
    return frames


@pytest.mark.parametrize("daemon", [20.0], indirect=True)
def test_the_daemon_boots_rotates_its_log_and_is_back_after_a_kill(daemon: Daemon, row: Row) -> None:
    daemon.launchd.launchctl("load", "-w", daemon.layout.plist)
    patiently(lambda: "mlxcel: loading" in daemon.start_log, "loading")
    started_s = time.monotonic()
    daemon.launchd.boot()
    assert daemon.launchd.wait_for("exit")[0].detail == 0
    row("stop while the model loads", "exit 0", time.monotonic() - started_s)
    row("boot, nobody logs in", "ready", daemon.until_ready())
    daemon.answers()
    old = daemon.layout.log_file.with_name("mlxcel.log.renamed")
    daemon.layout.log_file.rename(old)
    daemon.layout.config.write_text(daemon.layout.config.read_text() + "temperature = 0\nmax_batch_size = 3\n")
    assert daemon.launchd.launchctl("kill", "SIGHUP", daemon.layout.target).returncode == 0
    row("log renamed, SIGHUP", "new log", patiently(lambda: "after a restart" in daemon.log, "a new log"))
    assert "the log was opened anew" in daemon.log
    assert "taken over: temperature" in daemon.log
    assert "in force after a restart only: max_batch_size" in daemon.log
    assert daemon.text() == daemon.text() == daemon.text(temperature=0)
    daemon.layout.config.write_text("nonsense = 1\n" + daemon.layout.config.read_text())
    daemon.launchd.launchctl("kill", "SIGHUP", daemon.layout.target)
    patiently(lambda: "stay as they were: nonsense" in daemon.log, "a refusal")
    daemon.answers()
    daemon.layout.config.write_text(daemon.layout.config.read_text().replace("nonsense = 1\n", ""))
    pid = int(daemon.layout.pid_file.read_text())
    started_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    starts = daemon.launchd.wait_for("start", 3)
    daemon.until_ready()
    row("kill -9", "serving again", time.monotonic() - started_s)
    daemon.answers()
    assert int(daemon.layout.pid_file.read_text()) == starts[-1].detail != pid
    assert [event.detail for event in daemon.launchd.wait_for("exit", 2)] == [0, -signal.SIGKILL]
    row("stop", "exit 0", daemon.boot_out())
    assert daemon.launchd.wait_for("exit", 3)[-1].detail == 0
    assert daemon.start_log.count("mlxcel: serving") >= 2
    assert "Traceback" not in daemon.start_log + daemon.log
    modes = [path.stat().st_mode & 0o777 for path in (daemon.layout.log_file, daemon.layout.start_log)]
    assert modes[0] == 0o600


def test_a_stop_lets_eight_streams_finish_and_exits_0_inside_exit_time_out(daemon: Daemon, row: Row) -> None:
    daemon.load()
    begun = threading.Barrier(9)
    with ThreadPoolExecutor(8) as pool:
        streams = [pool.submit(stream, daemon.url, lambda: begun.wait(60)) for _ in range(8)]
        begun.wait(60)
        took_s = daemon.boot_out()
        ended = [stream.result() for stream in streams]
    row("stop while 8 streams run", "8 finished, exit 0", took_s)
    for frames in ended:
        assert frames[-1] == "[DONE]"
        assert json.loads(frames[-2])["choices"][0]["finish_reason"] == "length"
    assert daemon.launchd.wait_for("exit")[0].detail == 0
    assert not [event for event in daemon.launchd.events if event.what == "SIGKILL"]
    assert took_s < EXIT_TIME_OUT_S


@pytest.mark.parametrize("daemon", [10.0], indirect=True)
def test_a_bad_config_is_tried_every_thirty_seconds_with_one_clear_line_each(
    daemon: Daemon, row: Row, mlxcel: Command
) -> None:
    def service(command: str) -> subprocess.CompletedProcess[str]:
        prefix = str(daemon.layout.bin.parent)
        return mlxcel("service", command, "--system", "--prefix", prefix, PATH=daemon.launchd.path)

    daemon.layout.config.write_text("max_batch_sise = 7\n")
    daemon.launchd.launchctl("load", "-w", daemon.layout.plist)
    exits = daemon.launchd.wait_for("exit", 3)
    starts = daemon.launchd.wait_for("start", 3)
    assert "last exit  78 (a setting or model cannot be used)" in service("status").stdout
    n_before = len(daemon.launchd.events)
    assert service("restart").returncode == 0
    patiently(lambda: 78 in [e.detail for e in daemon.launchd.events[n_before:] if e.what == "exit"], "78 again")
    assert service("stop").returncode == 0
    assert daemon.launchd.launchctl("print", daemon.layout.target).returncode == 113
    assert [event.detail for event in exits] == [78, 78, 78]
    gaps = [later.at_s - sooner.at_s for sooner, later in itertools.pairwise(starts)]
    assert all(gap >= 30 for gap in gaps)
    row("bad config, 3 starts", f"exit 78, {gaps[0]:.0f} s and {gaps[1]:.0f} s apart (scaled)", starts[-1].at_s)
    lines = daemon.start_log.splitlines()[:3]
    assert len(set(lines)) == 1
    assert "max_batch_sise" in lines[0]
    assert "Did you mean max_batch_size?" in lines[0]


@pytest.mark.long
@pytest.mark.parametrize("daemon", [30.0], indirect=True)
def test_a_port_in_use_is_75_and_the_daemon_comes_up_once_it_is_free(daemon: Daemon, row: Row) -> None:
    with socket.create_server(("127.0.0.1", httpx.URL(daemon.url).port or 0)):
        daemon.launchd.launchctl("load", "-w", daemon.layout.plist)
        (end,) = daemon.launchd.wait_for("exit")
    assert end.detail == 75
    assert "is in use by another process" in daemon.start_log
    row("port in use", "exit 75, then ready", daemon.until_ready())


@pytest.mark.long
def test_an_upgrade_under_load_ends_every_accepted_request_and_a_rollback_waits_for_load(
    daemon: Daemon, row: Row
) -> None:
    def served() -> str:
        return str(httpx.get(f"{daemon.url}/v1/models", timeout=30).json()["data"][0]["id"])

    def swap(version: str) -> None:
        """What `port upgrade` and `port activate` do between two versions' files."""
        evaluate(
            ROOT / PORTFILE, run=["pre-deactivate"], prefix=daemon.layout.bin.parent,
            environ={**os.environ, "PATH": daemon.launchd.path},
        )  # fmt: skip
        assert daemon.launchd.launchctl("print", daemon.layout.target).returncode == 113
        set_program(daemon.layout, "--alias", version)

    set_program(daemon.layout, "--alias", "v1")
    daemon.load()
    outcomes: list[tuple[float, str]] = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            outcomes.append((time.monotonic(), outcome_of(daemon.url)))

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(ask) for _ in range(4)]
        patiently(lambda: sum(what == "answer" for _, what in outcomes) >= 4, "answering")
        started_s = time.monotonic()
        swap("v2")
        assert daemon.launchd.launchctl("load", "-w", daemon.layout.plist).returncode == 0
        daemon.until_ready()
        row("upgrade under load", "serving the new version", time.monotonic() - started_s)
        n_before = len(outcomes)
        patiently(lambda: "answer" in [what for _, what in outcomes[n_before:]], "answering again")
        is_over.set()
        for client in clients:
            client.result()
    assert served() == "v2"
    kinds = {what for _, what in outcomes}
    assert kinds <= {"answer", "error frame", "503", "closed port"}, kinds
    answers_s = sorted(at_s for at_s, what in outcomes if what == "answer")
    gap_s = max(later - sooner for sooner, later in itertools.pairwise(answers_s))
    counts = ", ".join(f"{sum(what == kind for _, what in outcomes)} {kind}" for kind in sorted(kinds))
    row("upgrade: longest gap", counts, gap_s)
    swap("v1")
    daemon.launchd.boot()
    assert daemon.launchd.launchctl("print", daemon.layout.target).returncode == 113, "it started without port load"
    assert daemon.launchd.launchctl("load", "-w", daemon.layout.plist).returncode == 0
    patiently(lambda: "mlxcel: loading v1" in daemon.start_log.splitlines()[-1], "loading the old version")


def outcome_of(url: str) -> str:
    """How one streamed request ended; a stream that breaks off is none of the good ends."""
    has_begun = False
    last = ""
    try:
        body = {**LONG, "max_tokens": 20, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
            if answer.status_code == 503:
                return "503"
            has_begun = True
            for line in answer.iter_lines():
                last = line or last
    except httpx.TransportError:
        if not has_begun:
            threading.Event().wait(0.05)
            return "closed port"
    if last == "data: [DONE]":
        return "answer"
    return "error frame" if '"error"' in last else f"broke off after {last!r}"


def test_the_agent_is_installed_seen_restarted_stopped_and_gone_without_a_trace(
    mlxcel: Command, home: Path, tiny_model: Path, tmp_path: Path, row: Row
) -> None:
    port = free_port()
    config = home / ".config" / "mlxcel"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'model = "{tiny_model}"\nport = {port}\n')
    (config / "environment").write_text(f"PYTHONPATH='{ROOT}'\nHF_HUB_OFFLINE=1\n")
    before = {path for path in home.rglob("*") if path.is_file()}
    with Launchd(tmp_path, tells_progress=True) as launchd:

        def service(*arguments: str) -> str:
            done = mlxcel("service", *arguments, PATH=launchd.path)
            assert done.returncode == 0, done.stderr
            return done.stdout

        target = f"gui/{os.getuid()}/io.mlxcel.agent"
        assert service("install") == f"installed {target}\n"
        row("service install", "ready", until_ready(f"http://127.0.0.1:{port}"))
        first = launchd.wait_for("start")[0].detail
        status = service("status")
        assert f"process  {first}" in status
        assert "state    running" in status
        assert "mlxcel: serving" in service("logs")
        told = mlxcel("doctor", PATH=launchd.path).stdout
        assert f"{target} runs as process {first}" in told
        assert "daemon         not installed" in told
        assert service("start") == f"nothing to do for {target}\n"
        started_s = time.monotonic()
        assert service("restart") == f"restarted {target}\n"
        row("service restart", "started again", time.monotonic() - started_s)
        assert launchd.wait_for("start", 2)[1].detail != first
        assert service("stop") == f"stopped {target}\n"
        assert [event.detail for event in launchd.wait_for("exit", 2)] == [0, 0]
        stopped = mlxcel("service", "status", PATH=launchd.path)
        assert (stopped.returncode, "not started" in stopped.stdout) == (3, True)
        assert service("uninstall") == f"removed {target}\n"
        assert launchd.launchctl("print", target).returncode == 113
    assert {path for path in home.rglob("*") if path.is_file()} == before
    assert not (home / "Library" / "Logs" / "mlxcel").exists()
    assert not (home / "Library" / "Application Support" / "mlxcel").exists()
