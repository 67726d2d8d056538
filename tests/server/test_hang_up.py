"""SIGHUP ends no server, with a log of its own or without, at any moment of its life."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.server.test_life import LONG, stream_frames
from tests.support.server_process import ServerProcess, serving

LOOK = """
import sys
known = {*sys.modules}

class Look:
    def find_spec(self, name, path=None, target=None):
        if name == "mlxcel.cli":
            new = sorted({*sys.modules} - known)
            import signal
            print(new, [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)], sep="\\n")
            sys.exit(0)

sys.meta_path.insert(0, Look())
sys.argv[1:] = ["serve"]
import mlxcel.__main__
"""


def test_nothing_is_imported_before_serve_heeds_signals() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=60, check=True)
    imported, handlers = done.stdout.splitlines()
    assert imported == "['mlxcel', 'mlxcel.__main__']"
    assert "Handlers.SIG_IGN" in handlers and "lambda" in handlers


@pytest.mark.parametrize("moment", ["import 'mlxcel.cli.exits'", "mlxcel: loading"])
def test_a_hang_up_while_the_server_starts_changes_nothing(tiny_model: Path, moment: str) -> None:
    verbose = ["-v"] if moment.startswith("import") else []
    server = ServerProcess([sys.executable, *verbose, "-m", "mlxcel", "serve", str(tiny_model), "--port", "0"])
    try:
        server.wait_for_line(re.compile(moment))
        server.process.send_signal(signal.SIGHUP)
        assert server.url
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_hang_up_without_a_log_file_takes_settings_over_and_ends_no_stream(tiny_model: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("drain_timeout_s = 50\n")
    with serving(tiny_model, "--config", str(config)) as server, ThreadPoolExecutor(1) as pool:
        started = threading.Barrier(2)
        stream = pool.submit(stream_frames, server.url, {**LONG, "max_tokens": 400}, started)
        started.wait(60)
        config.write_text("drain_timeout_s = 60\n")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_line(re.compile("SIGHUP: taken over: drain_timeout_s"))
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_line(re.compile("may finish for 60 s"))
        server.process.send_signal(signal.SIGHUP)
        assert stream.result()[-1] == "[DONE]"
        assert server.wait() == 0
