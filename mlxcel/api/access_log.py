"""One line in the log for each request: who asked what, how it ended, and what it cost.

The line travels with the request's task, so whoever knows a part of it notes that part.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from contextvars import ContextVar
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

log = logging.getLogger("mlxcel.request")

REQUEST_ID = "x-request-id"
FIELDS = "fields"
"""The attribute of a log record that holds what its formatter shows name by name."""

POLLED = ("/health", "/metrics")
"""Paths that are asked for every few seconds: a line of theirs that went well is for debugging only."""

_SANE_ID = re.compile(r"[!-~]{1,128}")
_current: ContextVar[RequestLine | None] = ContextVar("request_line", default=None)


class RequestLine:
    """What the log will say of one request. Owner: the event loop's thread.

    `id` is the client's where it is visible ASCII of at most 128 characters, else a new one; `arrived_s` is
    monotonic.
    """

    def __init__(
        self, *, method: str = "-", path: str = "-", client: tuple[str, int] | None = None, asked_id: str = ""
    ) -> None:
        self.id = asked_id if _SANE_ID.fullmatch(asked_id) else secrets.token_hex(12)
        self.arrived_s = time.monotonic()
        self.status = 0
        self._is_polled = path in POLLED
        self._asked = {"method": method, "path": path, "client": "-" if client is None else f"{client[0]}:{client[1]}"}
        self._noted: dict[str, Any] = {}

    @classmethod
    def of(cls, scope: Scope) -> RequestLine:
        """The line of a request whose head was read; it is its task's from here on."""
        asked_id = Headers(scope=scope).get(REQUEST_ID, "")
        line = cls(method=scope["method"], path=scope["path"], client=scope["client"], asked_id=asked_id)
        _current.set(line)
        return line

    def note(self, **parts: Any) -> None:
        self._noted.update(parts)

    @property
    def is_routine(self) -> bool:
        """Asked for every few seconds, and it went well."""
        return self._is_polled and self.status < 400

    def write(self) -> None:
        """Into the log; called once, when the request has ended."""
        level = logging.DEBUG if self.is_routine else logging.INFO
        total_ms = round((time.monotonic() - self.arrived_s) * 1000, 1)
        fields = {"id": self.id, **self._asked, "status": self.status, **self._noted, "total_ms": total_ms}
        log.log(level, "request", extra={FIELDS: fields})


def note(**parts: Any) -> None:
    """Add to the line of the request that this task serves; nothing outside of one."""
    if (line := _current.get()) is not None:
        line.note(**parts)


def spent_s() -> float:
    """Seconds since the head of the request that this task serves was read; 0 outside of one."""
    line = _current.get()
    return 0.0 if line is None else time.monotonic() - line.arrived_s


def request_id() -> str | None:
    """The id of the request that this task serves."""
    line = _current.get()
    return None if line is None else line.id
