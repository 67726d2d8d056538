"""The service of a prefix under a stand-in for launchd, as a person and MacPorts drive it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import httpx

from mlxcel.service.layout import Layout
from tests.support.launchd import Launchd

PATIENCE_S = 90.0


def patiently(holds: Callable[[], bool], what: str) -> float:
    """Until it holds; the seconds it took."""
    started_s = time.monotonic()
    pause = threading.Event()
    while not holds():
        assert time.monotonic() - started_s < PATIENCE_S, f"not {what} after {PATIENCE_S:g} s"
        pause.wait(0.02)
    return time.monotonic() - started_s


def until_ready(url: str) -> float:
    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/health", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    return patiently(is_ready, "ready")


class Daemon:
    """The daemon of one prefix under one launchd."""

    def __init__(self, launchd: Launchd, layout: Layout, port: int) -> None:
        self.launchd = launchd
        self.layout = layout
        self.url = f"http://127.0.0.1:{port}"
        (launchd.daemons / layout.plist.name).symlink_to(layout.plist)

    def load(self) -> float:
        """As `port load` does; the seconds until it is ready."""
        assert self.launchd.launchctl("load", "-w", self.layout.plist).returncode == 0
        return self.until_ready()

    def until_ready(self) -> float:
        return until_ready(self.url)

    def text(self, **fields: float) -> str:
        """A completion, sampled as the server does by itself where nothing is said."""
        body = {"prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True, **fields}
        return str(httpx.post(f"{self.url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"])

    def answers(self) -> None:
        answer = httpx.post(
            f"{self.url}/v1/completions", json={"prompt": "Once", "max_tokens": 3, "ignore_eos": True}, timeout=60
        )
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 3

    @property
    def start_log(self) -> str:
        return self.layout.start_log.read_text() if self.layout.start_log.exists() else ""

    @property
    def log(self) -> str:
        return self.layout.log_file.read_text() if self.layout.log_file.exists() else ""

    def boot_out(self) -> float:
        started_s = time.monotonic()
        assert self.launchd.launchctl("bootout", self.layout.target).returncode == 0
        self.launchd.wait_until_gone()
        return time.monotonic() - started_s
