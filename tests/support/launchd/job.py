"""One job of the stand-in: a property list, the process that runs it, and when the next may start."""

from __future__ import annotations

import contextlib
import os
import plistlib
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.launchd.clock import Clock

THROTTLE_S = 10
EXIT_TIME_OUT_S = 5
"""What is seen where ExitTimeOut is unset; the manual says 20."""
N_FILES = 256
BARE_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


class Event(NamedTuple):
    """Something that happened to a job, at a scaled time. `detail` is the pid, the exit code or the signal."""

    at_s: float
    label: str
    what: str
    detail: int


class Job:
    """Starts, restarts and ends one program, on a thread of its own.

    Changes: `on_gone` is called once the job was removed and its process is no more.
    """

    def __init__(
        self, plist: Path, clock: Clock, record: Callable[[Event], None], on_gone: Callable[[Job], None]
    ) -> None:
        self.plist = plist
        self.definition: dict[str, Any] = plistlib.loads(plist.read_bytes(), fmt=plistlib.FMT_XML)
        self.label: str = self.definition["Label"]
        self.last_exit: int | None = None
        self.n_runs = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._clock = clock
        self._record = record
        self._on_gone = on_gone
        self._changed = threading.Condition()
        self._is_wanted = bool(self.definition.get("RunAtLoad")) or bool(self.definition.get("KeepAlive"))
        self._is_removed = False
        self._started_s: float | None = None
        self._thread = threading.Thread(target=self._supervise, name=self.label)

    def load(self) -> None:
        self._thread.start()

    def kickstart(self, *, kill: bool) -> None:
        with self._changed:
            self._is_wanted = True
            if kill:
                self._end()
            self._changed.notify_all()

    def kill(self, signal_number: int) -> None:
        with self._changed:
            if self.process is not None:
                self.process.send_signal(signal_number)

    def remove(self) -> None:
        """Ask it to end for good; returns at once."""
        with self._changed:
            self._is_removed = True
            self._end()
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _end(self) -> None:
        """SIGTERM now, SIGKILL to the whole group after ExitTimeOut. The lock is held."""
        process = self.process
        if process is None:
            return
        self._tell("SIGTERM", process.pid)
        process.terminate()
        patience_s = self._clock.wall_s(self.definition.get("ExitTimeOut", EXIT_TIME_OUT_S))

        def lose_patience() -> None:
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._tell("SIGKILL", process.pid)
                _kill_group(process.pid)

        threading.Thread(target=lose_patience, daemon=True).start()

    def _supervise(self) -> None:
        while self._await_start():
            with self._changed:
                if self._is_removed:
                    break
                self._is_wanted = False
                self._started_s = self._clock.now_s()
                self.n_runs += 1
                process = self.process = self._spawn()
                self._record(Event(self._started_s, self.label, "start", process.pid))
            code = process.wait()
            _kill_group(process.pid)
            with self._changed:
                self.process = None
                self.last_exit = code
                self._tell("exit", code)
                self._is_wanted = self._is_wanted or self._is_kept_alive(code)
        self._on_gone(self)

    def _await_start(self) -> bool:
        """Until a start is wanted and the throttle allows it; False once the job was removed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_wanted or self._is_removed)
            if self._started_s is not None:
                next_s = self._started_s + self.definition.get("ThrottleInterval", THROTTLE_S)
                wall_s = self._clock.wall_s(next_s - self._clock.now_s())
                self._changed.wait_for(lambda: self._is_removed, wall_s)
            return not self._is_removed

    def _is_kept_alive(self, code: int) -> bool:
        wish = self.definition.get("KeepAlive", False)
        if not isinstance(wish, dict):
            return bool(wish)
        is_success, is_crash = code == 0, code < 0
        return (wish.get("SuccessfulExit", not is_success) is is_success) or (
            wish.get("Crashed", not is_crash) is is_crash
        )

    def _spawn(self) -> subprocess.Popen[bytes]:
        told = self.definition
        n_files = told.get("SoftResourceLimits", {}).get("NumberOfFiles", N_FILES)
        with contextlib.ExitStack() as files:
            out, error = (
                files.enter_context(Path(told.get(key, os.devnull)).open("ab"))
                for key in ("StandardOutPath", "StandardErrorPath")
            )
            return subprocess.Popen(
                # The shell lowers its own limit and becomes the program, as launchd's helper does.
                ["/bin/sh", "-c", f'ulimit -S -n {n_files} && exec "$@"', self.label, *told["ProgramArguments"]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=error,
                cwd=told.get("WorkingDirectory", "/"),
                env={"PATH": BARE_PATH, "XPC_SERVICE_NAME": self.label, **told.get("EnvironmentVariables", {})},
                umask=told.get("Umask", 0o022),
                start_new_session=True,
            )

    def _tell(self, what: str, detail: int) -> None:
        self._record(Event(self._clock.now_s(), self.label, what, detail))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
