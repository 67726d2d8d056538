"""A real server in a process of its own, on a free port, with bounded waits."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

START_S = 60.0
STOP_S = 30.0
_SERVING = re.compile(r"serving .* on (http://\S+)")


class ServerProcess:
    """`mlxcel serve` (or another program that prints the same line), its address and its log."""

    def __init__(self, command: Sequence[str]) -> None:
        self.log: list[str] = []
        self._has_line = threading.Condition()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._has_line:
                self.log.append(line)
                self._has_line.notify_all()
        with self._has_line:
            self.log.append("")
            self._has_line.notify_all()

    def wait_for_line(self, pattern: re.Pattern[str], timeout_s: float = START_S) -> re.Match[str]:
        """The first log line that matches, now or within `timeout_s`."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.log if (match := pattern.search(line))), None)

        with self._has_line:
            self._has_line.wait_for(lambda: found() or (self.log and self.log[-1] == ""), timeout_s)
            match = found()
        assert match is not None, f"no line like {pattern.pattern!r} in:\n{self.text}"
        return match

    @property
    def text(self) -> str:
        return "".join(self.log)

    @property
    def url(self) -> str:
        return self.wait_for_line(_SERVING)[1]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(signal_number)
        return self.wait()

    def wait(self, timeout_s: float = STOP_S) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join(5)
        return code

    def kill(self) -> None:
        """End it if it still runs, and let go of its log."""
        self.process.kill()
        self.process.wait(5)
        self._reader.join(5)
        if self.process.stderr is not None:
            self.process.stderr.close()


@contextmanager
def serving(model: Path, *arguments: str, program: Sequence[str] = ("-m", "mlxcel")) -> Iterator[ServerProcess]:
    """A server of `model`, ready to answer; killed at the end if it still runs."""
    server = ServerProcess([sys.executable, *program, "serve", str(model), "--port", "0", *arguments])
    try:
        assert server.url
        yield server
    finally:
        server.kill()


def metric(client: httpx.Client, name: str) -> float:
    """One sample of /metrics."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(f"/metrics has no {name}")


def wait_for_metric(client: httpx.Client, name: str, value: float, *, polls: int = 400) -> None:
    """Read /metrics until `name` is `value`; each reading is a round trip, and their number is bounded."""
    seen = None
    for _ in range(polls):
        seen = metric(client, name)
        if seen == value:
            return
    raise AssertionError(f"{name} is {seen}, not {value}, after {polls} readings")
