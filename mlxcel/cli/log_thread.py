"""A thread that writes the log, so that a log that nobody reads (a stuck pipe, Ctrl-S) stops no request."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from logging.handlers import QueueHandler

from mlxcel.cli.exits import say
from mlxcel.errors import reason_of

MOST_WAITING = 10_000
"""Records; those beyond are dropped and counted."""
FLUSH_S = 2.0
SAY_AGAIN_S = 60.0
"""How often a log that cannot be written is told of."""


class LogThread(QueueHandler):
    """Hands records to `handler` on a thread of its own. Safe to use from any thread; it never waits."""

    def __init__(self, handler: logging.Handler) -> None:
        self._waiting: queue.Queue[logging.LogRecord] = queue.Queue(MOST_WAITING)
        super().__init__(self._waiting)
        self._handler = handler
        # logging's own way is a traceback on stderr for each record.
        handler.handleError = self._cannot_write  # type: ignore[method-assign]
        self._n_lost = self._n_lost_before = 0
        self._is_told = False
        self._say_again_s = 0.0
        self._n_dropped = 0
        threading.Thread(target=self._write, name="mlxcel-log", daemon=True).start()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """As it is: the handler formats it, in this process."""
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._n_dropped += 1

    def flush(self) -> None:
        """Wait until all is written, for a bounded time."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, FLUSH_S)

    def _write(self) -> None:
        while True:
            record = self._waiting.get()
            self._handler.handle(record)
            self._tell_of_recovery()
            if self._n_dropped and self._waiting.empty():
                n_dropped, self._n_dropped = self._n_dropped, 0
                self._handler.handle(_dropped(n_dropped))
            self._waiting.task_done()

    def _cannot_write(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - logging gives it
        """Called by the handler, in its except block, on the log's thread."""
        self._n_lost += 1
        if time.monotonic() >= self._say_again_s:
            self._say_again_s = time.monotonic() + SAY_AGAIN_S
            self._is_told = True
            reason = reason_of(sys.exc_info()[1] or "it says not why")
            say(f"the log cannot be written: {reason}; the server goes on without it. Make room for the log")

    def _tell_of_recovery(self) -> None:
        if self._n_lost and self._n_lost == self._n_lost_before:
            if self._is_told:
                say(f"the log is written again; up to {self._n_lost} lines of it are missing")
            self._n_lost, self._is_told = 0, False
        self._n_lost_before = self._n_lost


def _dropped(n_records: int) -> logging.LogRecord:
    message = "%d lines are missing before this one: the log was not read fast enough"
    return logging.LogRecord("mlxcel", logging.WARNING, __file__, 0, message, (n_records,), None)
