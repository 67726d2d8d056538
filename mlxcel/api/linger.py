"""A transport that closes in a way that lets a client which still sends read what it was told.

Closing a socket with unread bytes resets it, and the reset overtakes the answer. So the sending half is closed
first, what still comes is thrown away, for a bounded time and amount, and then the socket is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_S = 30.0
LINGER_BYTES = 2**28
"""A client that sends more than this after its answer is not about to read it."""


class LingeringTransport(asyncio.Transport):
    """Wraps the socket's transport; `is_owed` says whether the client may still be sending.

    Owner: the event loop's thread.
    """

    def __init__(self, transport: asyncio.Transport, is_owed: Callable[[], bool]) -> None:
        super().__init__()
        self._transport = transport
        self._is_owed = is_owed
        self._is_closing = False
        self._is_paused = False
        self._n_discarded_bytes = 0
        self._alarm: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Flush, and close once the client has read or had its time. A second call closes now."""
        if self._is_closing:
            self._transport.close()
            return
        self._is_closing = True
        # Also for a client that never reads what is left to write.
        self._alarm = asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)
        if self._is_owed() and not self._transport.is_closing():
            self._transport.write_eof()
            self.resume_reading()
        else:
            self._transport.close()

    def discard(self, n_bytes: int) -> None:
        """Count bytes that nobody will read."""
        self._n_discarded_bytes += n_bytes
        if self._n_discarded_bytes > LINGER_BYTES:
            self._transport.abort()

    def lost(self) -> None:
        """The socket is closed."""
        self._is_closing = True
        if self._alarm is not None:
            self._alarm.cancel()

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def pause_reading(self) -> None:
        if not (self._is_closing or self._is_paused):
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
