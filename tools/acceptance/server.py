"""A server under judgement: a command that is started with a port, a model and flags, or a URL that is there.

Every start and stop is bounded. A command runs in a session of its own, all of which is ended with it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from command.errors import usage

from .verdict import NotStarted

POLL_S = 0.05
_TAIL_LINES = 3
FLAGS = {
    "no_batch": "one sequence at a time",
    "max_batch": "N sequences run at once",
    "queue_depth": "N requests may wait",
    "queue_unbounded": "any number of requests may wait",
}
NUMBERED_FLAGS = frozenset({"max_batch", "queue_depth"})
"""Flags with a place {n} for their number."""


class Launch(NamedTuple):
    """What a row needs of the server: a model folder, and flags by name, each with its number or None."""

    model: Path
    flags: tuple[tuple[str, int | None], ...] = ()


class Target(NamedTuple):
    """How a side is started. subject: as it was given. words: the command, or None for a URL that is there."""

    subject: str
    words: tuple[str, ...] | None
    flags: Mapping[str, str]

    def argv(self, launch: Launch, port: int) -> list[str]:
        assert self.words is not None
        made: list[str] = []
        for word in self.words:
            if word == "{args}":
                for name, n in launch.flags:
                    made += shlex.split(self.flags[name].replace("{n}", str(n)))
            else:
                made.append(word.replace("{port}", str(port)).replace("{model}", str(launch.model)))
        return made

    def why_not(self, launch: Launch, model: Path) -> str:
        """Why this side cannot be launched so; "" where it can."""
        missing = [name for name, _ in launch.flags if name not in self.flags]
        if missing:
            return f"the server has no flag for {missing[0]} ({FLAGS[missing[0]]})"
        if self.words is None and launch.flags:
            return "the server is a URL, so it cannot be started with other flags"
        if launch.model != model and (self.words is None or not any("{model}" in word for word in self.words)):
            return "the server cannot be started with another model folder"
        return ""


def parse_target(text: str, flags: Mapping[str, str]) -> Target:
    """A command line with {port}, {model} and {args}, or a URL.

    Errors: usage where the command has no {port}, or flags but no {args} to put them.
    """
    if text.startswith(("http://", "https://")):
        return Target(text.rstrip("/"), None, flags)
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise usage(f"{text!r} is no command line: {error}") from error
    if not any("{port}" in word for word in words):
        raise usage(f"the command {text!r} has no {{port}}", "'CMD --port {port} --model {model} {args}'")
    if flags and "{args}" not in words:
        raise usage(f"the command {text!r} has no word {{args}}, so --flag has no place", "put {args} at its end")
    return Target(text, words, flags)


class Server:
    """A server that answers. `notes` gather what a reader must know of how it ended."""

    def __init__(self, url: str, process: subprocess.Popen[bytes] | None, log: Path, notes: list[str]) -> None:
        self.url = url
        self.log = log
        self._process = process
        self._notes = notes

    @property
    def has_died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def last_words(self) -> str:
        """How it ended and the end of its log."""
        assert self._process is not None and self._process.returncode is not None
        code = self._process.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return f"the server died: {how}{_tail(self.log)}"

    def stop(self, limit_s: float) -> None:
        """SIGTERM, then SIGKILL for whatever of its session is left after `limit_s`."""
        if self._process is None:
            return
        if not self.has_died:
            self._process.terminate()
            try:
                self._process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self._notes.append(f"killed, since it had not ended {limit_s:g} s after SIGTERM")
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)


@asynccontextmanager
async def running(
    target: Target, launch: Launch, log: Path, *, start_s: float, stop_s: float, notes: list[str]
) -> AsyncIterator[Server]:
    """The server, ready to answer; stopped when the block is left.

    Errors: NotStarted where it ends, or does not answer within `start_s`.
    """
    if target.words is None:
        server = Server(target.subject, None, log, notes)
        await _wait_until_ready(server, start_s)
        yield server
        return
    port = _free_port()
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                target.argv(launch, port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise NotStarted(f"the command cannot be run: {error}") from error
    server = Server(f"http://127.0.0.1:{port}", process, log, notes)
    try:
        await _wait_until_ready(server, start_s)
        yield server
    finally:
        server.stop(stop_s)


async def _wait_until_ready(server: Server, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    async with httpx.AsyncClient(base_url=server.url, timeout=5, trust_env=False) as http:
        while time.monotonic() < deadline:
            if server.has_died:
                raise NotStarted(server.last_words())
            with suppress(httpx.TransportError):
                answer = await http.get("/health")
                if answer.status_code in (404, 405, 501):
                    answer = await http.get("/v1/models")
                if answer.status_code == 200:
                    return
            await asyncio.sleep(POLL_S)
    raise NotStarted(f"the server was not ready within {limit_s:g} s{_tail(server.log)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    said = [line.strip() for line in lines if line.strip()][-_TAIL_LINES:]
    return f"; its log ends: {' / '.join(said)[-400:]}" if said else ""
