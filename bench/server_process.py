"""A server under measurement: its own process on a free port, ready when /health says so, gone at the end."""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_server

READY_S, END_S = 120.0, 20.0


@contextmanager
def serve(command: Sequence[str], *, log: Path) -> Iterator[str]:
    """Start `command` with `--port N` added; its URL. Its output goes to `log`.

    Errors: RuntimeError with the log's end if it exits or is not ready within READY_S.
    """
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=output, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, url, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with (
            suppress(urllib.error.URLError, ConnectionError),
            urllib.request.urlopen(f"{url}/health", timeout=5),
        ):
            return
        time.sleep(0.1)
    end = log.read_text("utf-8", "replace")[-2000:]
    raise RuntimeError(f"{process.args!r} was not ready (exit status {process.poll()}):\n{end}")
