"""The stand-in itself: it keeps the jobs and the database of disabled ones, and answers `launchctl` on a socket."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.launchd.clock import Clock
from tests.support.launchd.job import Event, Job

STOP_S = 90.0
BUSY, NO_SUCH_JOB, IS_DISABLED = 5, 113, 119


class Reply(NamedTuple):
    code: int
    out: str = ""
    error: str = ""


class Launchd:
    """A launchd whose `launchctl` lies in `bin`. As a context it ends every job that it started.

    `daemons` is the folder whose jobs are loaded at a boot. Some launchds tell with a code of their own that a job
    which is booted out still ends: `tells_progress`.
    """

    def __init__(self, folder: Path, *, scale: float = 1.0, tells_progress: bool = False) -> None:
        self._tells_progress = tells_progress
        self.bin = folder / "launchd-bin"
        self.daemons = folder / "LaunchDaemons"
        self.events: list[Event] = []
        self.clock = Clock(scale)
        self._jobs: dict[str, Job] = {}
        self._disabled: dict[str, bool] = {}
        self._changed = threading.Condition()
        for path in (self.bin, self.daemons):
            path.mkdir(parents=True)
        # A socket's path may not be long, and pytest's folders are.
        self._socket_folder = tempfile.TemporaryDirectory(prefix="launchd-")
        self._socket = Path(self._socket_folder.name) / "socket"
        program = self.bin / "launchctl"
        client = Path(__file__).with_name("launchctl.py")
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{client}" "{self._socket}" "$@"\n')
        program.chmod(0o755)
        self._server = _Server(str(self._socket), self._answer)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Launchd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        jobs = list(self._jobs.values())
        for job in jobs:
            job.remove()
            job.kill(signal.SIGKILL)
        for job in jobs:
            job.join(STOP_S)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._socket_folder.cleanup()

    @property
    def path(self) -> str:
        """A PATH whose launchctl is this one's."""
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def launchctl(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the program as a person or MacPorts does."""
        return subprocess.run(
            [self.bin / "launchctl", *map(str, arguments)], capture_output=True, text=True, timeout=STOP_S, check=False
        )

    def wait_for(self, what: str, n: int = 1, *, label: str = "", timeout_s: float = STOP_S) -> list[Event]:
        """The first `n` events of that kind, once there are so many."""

        def found() -> list[Event]:
            return [event for event in self.events if event.what == what and label in ("", event.label)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= n, timeout_s), f"no {n} of {what}: {self.events}"
            return found()[:n]

    def wait_until_gone(self, timeout_s: float = STOP_S) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._jobs, timeout_s), self._jobs

    def boot(self) -> None:
        """End everything, then start what a machine starts when it boots and nobody logs in."""
        for job in list(self._jobs.values()):
            job.remove()
        self.wait_until_gone()
        for plist in sorted(self.daemons.iterdir()):
            self._load("system", plist.resolve(), enable=False)

    def _record(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def _answer(self, arguments: Sequence[str]) -> Reply:
        verbs: dict[str, Callable[[list[str]], Reply]] = {
            "bootstrap": self._bootstrap,
            "bootout": self._bootout,
            "enable": lambda rest: self._set_disabled(rest[0], False),
            "disable": lambda rest: self._set_disabled(rest[0], True),
            "kickstart": self._kickstart,
            "kill": self._kill,
            "print": self._print,
            "list": self._list,
            "load": self._legacy_load,
            "unload": self._legacy_unload,
        }
        verb, *rest = arguments or [""]
        if verb not in verbs or not rest:
            return Reply(64, error=f"Unrecognized subcommand: {verb}\n")
        return verbs[verb](rest)

    def _load(self, domain: str, plist: Path, *, enable: bool) -> Reply:
        with self._changed:
            try:
                job = Job(plist, self.clock, self._record, self._gone)
            except (OSError, ValueError) as error:
                return Reply(BUSY, error=f"Bootstrap failed: 5: Input/output error ({error})\n")
            target = f"{domain}/{job.label}"
            if enable:
                self._disabled[target] = False
            if self._disabled.get(target, job.definition.get("Disabled", False)):
                return Reply(IS_DISABLED, error="Bootstrap failed: 119: Service is disabled\n")
            if target in self._jobs:
                return Reply(BUSY, error="Bootstrap failed: 5: Input/output error\n")
            self._jobs[target] = job
            job.load()
        return Reply(0)

    def _gone(self, gone: Job) -> None:
        with self._changed:
            self._jobs = {target: job for target, job in self._jobs.items() if job is not gone}
            self._changed.notify_all()

    def _bootstrap(self, rest: list[str]) -> Reply:
        return self._load(rest[0], Path(rest[1]), enable=False)

    def _bootout(self, rest: list[str]) -> Reply:
        job = self._jobs.get(rest[0])
        if job is None:
            return Reply(3, error="Boot-out failed: 3: No such process\n")
        job.remove()
        if self._tells_progress and job.process is not None:
            return Reply(36, error="Boot-out failed: 36: Operation now in progress\n")
        return Reply(0)

    def _legacy_load(self, rest: list[str]) -> Reply:
        reply = self._load("system", Path(rest[-1]), enable="-w" in rest)
        return Reply(reply.code, error=reply.error.replace("Bootstrap", "Load"))

    def _legacy_unload(self, rest: list[str]) -> Reply:
        found = [(target, job) for target, job in self._jobs.items() if job.plist == Path(rest[-1])]
        for target, job in found:
            if "-w" in rest:
                self._disabled[target] = True
            job.remove()
        return Reply(0) if found else Reply(BUSY, error="Unload failed: 5: Input/output error\n")

    def _set_disabled(self, target: str, is_disabled: bool) -> Reply:
        self._disabled[target] = is_disabled
        return Reply(0)

    def _kickstart(self, rest: list[str]) -> Reply:
        job = self._jobs.get(rest[-1])
        if job is None:
            return self._no_such(rest[-1])
        job.kickstart(kill="-k" in rest)
        return Reply(0)

    def _kill(self, rest: list[str]) -> Reply:
        job = self._jobs.get(rest[1])
        if job is None:
            return self._no_such(rest[1])
        job.kill(signal.Signals[rest[0]] if rest[0].startswith("SIG") else int(rest[0]))
        return Reply(0)

    def _print(self, rest: list[str]) -> Reply:
        job = self._jobs.get(rest[0])
        if job is None:
            return self._no_such(rest[0])
        process, last = job.process, job.last_exit
        lines = [
            f"path = {job.plist}",
            f"state = {'running' if process else 'not running'}",
            f"program = {job.definition['ProgramArguments'][0]}",
            f"runs = {job.n_runs}",
            *([f"pid = {process.pid}"] if process else []),
            "last exit code = (never exited)" if last is None else f"last exit code = {last}",
        ]
        return Reply(0, "".join([f"{rest[0]} = {{\n", *(f"\t{line}\n" for line in lines), "}\n"]))

    def _list(self, rest: list[str]) -> Reply:
        found = any(job.label == rest[0] for job in self._jobs.values())
        return Reply(0, "{\n};\n") if found else self._no_such(rest[0])

    @staticmethod
    def _no_such(target: str) -> Reply:
        return Reply(NO_SUCH_JOB, error=f'Could not find service "{target}"\n')


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, answer: Callable[[Sequence[str]], Reply]) -> None:
        self.answer = answer
        super().__init__(path, _Handler)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        reply = self.server.answer(json.loads(self.rfile.readline()))
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(json.dumps(reply).encode())
