"""A thread that writes the log, so that a log that nobody reads (a stuck pipe, Ctrl-S) stops no request."""

from __future__ import annotations

import logging
import queue
import threading
from logging.handlers import QueueHandler

MOST_WAITING = 10_000
"""Records; those beyond are dropped and counted."""
FLUSH_S = 2.0


class LogThread(QueueHandler):
    """Hands records to `handler` on a thread of its own. Safe to use from any thread; it never waits."""

    def __init__(self, handler: logging.Handler) -> None:
        self._waiting: queue.Queue[logging.LogRecord] = queue.Queue(MOST_WAITING)
        super().__init__(self._waiting)
        self._handler = handler
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
            if self._n_dropped and self._waiting.empty():
                n_dropped, self._n_dropped = self._n_dropped, 0
                self._handler.handle(_dropped(n_dropped))
            self._waiting.task_done()


def _dropped(n_records: int) -> logging.LogRecord:
    message = "%d lines are missing before this one: the log was not read fast enough"
    return logging.LogRecord("mlxcel", logging.WARNING, __file__, 0, message, (n_records,), None)
