"""Whether a client that sends no more is still there: it may have closed its sending half alone, or have left.

Both look the same until it is written to, when the system of one that left answers with a reset. So an interim answer
is written, which every client of HTTP/1.1 must be able to skip.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from mlxcel.api.linger import LingeringTransport

PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"
FIRST_LOOK_S = 0.01
LOOK_EVERY_S = 0.5


class Presence:
    """Looks after a client until its answer is done; one that left loses its connection.

    `may_probe` says whether an interim answer may be written now. Owner: the event loop's thread.
    """

    def __init__(self, outlet: LingeringTransport, may_probe: Callable[[], bool]) -> None:
        self._outlet = outlet
        self._may_probe = may_probe
        self._alarm: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Write, and look for a reset soon after, and then again and again."""
        self._probe(FIRST_LOOK_S)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def _probe(self, look_after_s: float) -> None:
        if self._may_probe():
            self._outlet.write(PROBE)
        self._alarm = asyncio.get_running_loop().call_later(look_after_s, self._look)

    def _look(self) -> None:
        if self._outlet.is_closing():
            return
        if self._outlet.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._outlet.abort()
        else:
            self._probe(LOOK_EVERY_S)
