"""One client's connection: uvicorn's protocol with bounds, and with refusals in our own envelope.

It knows what no application sees: bytes that are no HTTP, a head that is too large or never ends, a body whose end
does not come, a client that never reads. Either of uvicorn's parsers stands behind it. Owner: the event loop's
thread.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import Scope

from mlxcel.api.access_log import REQUEST_ID, RequestLine
from mlxcel.api.linger import LingeringTransport
from mlxcel.api.presence import Presence
from mlxcel.api.statuses import status_of
from mlxcel.api.wire.responses import error_body
from mlxcel.errors import BodyTooLarge, HeadTooLarge, InputError, MalformedRequest, SlowRequest

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as HTTPProtocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as HTTPProtocol

MAX_HEAD_BYTES = 2**16
LONGEST_PARSED_HEAD_BYTES = 2**20
"""What the parser may hold: more than one read beyond the limit, so that the limit is ours to enforce."""
MOST_FRAMING = 8
"""Bytes on the wire for each byte of a body: a chunk of one byte takes 6."""
READ_BYTES = 2**14
"""What the parser gets at once, so that little of what is too long reaches it."""
METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"})
_BROKEN_BODY = "mlxcel.broken_body"


def broken_body(scope: Scope) -> InputError | None:
    """Why the rest of this request's body cannot be read, if it cannot."""
    error: InputError | None = scope.get(_BROKEN_BODY)
    return error


def head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request line and headers take more than {MAX_HEAD_BYTES} bytes; nothing was done")


def _trailer_too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"a chunk's extensions or the trailers after the body take more than {MAX_HEAD_BYTES} bytes; nothing was done"
    )


def _chunks_too_small(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body takes more than {limit} bytes as it was sent, {MOST_FRAMING} for each that it may have: its chunks "
        "are too small, or their extensions too long; nothing was done. Send larger chunks"
    )


def _unknown_method(data: bytes) -> str | None:
    """The method that a first request opens with, if it is none of ours."""
    method, space, _ = data.partition(b" ")
    return method[:32].decode() if space and method.isalpha() and method not in METHODS else None


class Connection(HTTPProtocol):
    """`read_timeout_s` bounds a head's arrival, `write_timeout_s` how long an answer may wait to be read."""

    cycle: Any
    """The newest request and its answer: None until a first head was read, which uvicorn's type does not say."""

    def __init__(
        self, *args: Any, max_body_bytes: int, read_timeout_s: float, write_timeout_s: float, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._max_framed_bytes = max_body_bytes * MOST_FRAMING + MAX_HEAD_BYTES
        self._read_timeout_s = read_timeout_s
        self._write_timeout_s = write_timeout_s
        self._head_alarm: asyncio.TimerHandle | None = None
        self._write_alarm: asyncio.TimerHandle | None = None
        self._n_head_bytes = 0
        self._n_body_bytes = 0
        self._n_frame_bytes = 0
        """Of a body under way: what came since its last byte, which is framing."""
        if hasattr(self, "parser"):
            self._use_plain_parser()
        self._running: Any = None
        self._is_broken = False
        self._has_eof = False
        self._last_word: InputError | None = None
        """A refusal that waits for the answers before it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._outlet = LingeringTransport(transport, is_owed=self._is_owed)
        self._presence = Presence(self._outlet, may_probe=self._may_interim)
        super().connection_made(self._outlet)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._outlet.lost()
        self._presence.stop()
        self._stop(self._head_alarm)
        self._stop(self._write_alarm)
        super().connection_lost(exc)
        if self._running is not None and self._running is not self.cycle:
            # uvicorn tells only the newest of requests in a row that the client has left.
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), READ_BYTES):
            self._read(data[start : start + READ_BYTES])

    def _read(self, data: bytes) -> None:
        if self._is_broken or self._outlet.is_closing():
            self._outlet.discard(len(data))
            return
        before = self.cycle
        is_in_body = self._is_in_body
        if is_in_body:
            self._n_body_bytes += len(data)
            if self._n_body_bytes > self._max_framed_bytes:
                self._fail(_chunks_too_small(self._max_framed_bytes))
                return
        else:
            if not self._n_head_bytes:
                self._await_head()
                if self.cycle is None and (name := _unknown_method(data)):
                    reason = f"{name} is no method that this server knows; nothing was done"
                    self._fail(MalformedRequest(reason, code="unknown_method"))
                    return
            end = data.find(b"\r\n\r\n")
            self._n_head_bytes += len(data) if end < 0 else end
        n_body = len(self.cycle.body) if is_in_body else 0
        super().data_received(data)
        self._look_for_head(before)
        if is_in_body and self.cycle is before:
            self._look_for_body(len(data), n_more=len(self.cycle.body) - n_body)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more.

        It is told of a request that is not whole, and answered one that is if it is still there; else it has left.
        """
        self._has_eof = True
        if self._may_interim() and not self._n_head_bytes:
            self._presence.watch()
            return True
        if self._is_broken or self._outlet.is_closing() or not (self._is_in_body or self._n_head_bytes):
            return False
        if self._is_answering and not self._is_in_body:
            return False
        self._fail(MalformedRequest("the request ended before it was whole; nothing was done"))
        return True

    def _use_plain_parser(self) -> None:
        """Where httptools reads, which has a way of its own with upgrades."""
        from mlxcel.api.upgrades import PlainParser

        self.parser: Any = PlainParser(self)
        # As uvicorn has it: a refused first request of several is answered.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_headers_complete(self) -> None:
        """Of httptools."""
        if not self.parser.drops_body:
            super().on_headers_complete()  # type: ignore[misc]
            # A trailer is no header: it must not reach the list that the application has.
            self.headers = []

    def on_message_complete(self) -> None:
        """Of httptools."""
        if not self.parser.drops_body:
            super().on_message_complete()  # type: ignore[misc]

    def _should_upgrade(self) -> bool:
        return False

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to warn of: a client may ask, and is served as it is."""

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Of the parser that reads ahead: begin the next of requests in a row."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)  # type: ignore[misc]

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        if self._n_head_bytes > MAX_HEAD_BYTES and not self._is_in_body:
            self._fail(head_too_large())
            return
        self._fail(
            MalformedRequest("this is no request of HTTP/1.1, or its body is not what its head says; nothing was done")
        )

    def on_response_complete(self) -> None:
        before, is_last = self.cycle, not getattr(self, "pipeline", None)
        super().on_response_complete()
        if self._last_word is not None and is_last:
            self._refuse(self._last_word)
            return
        if self._has_eof and not self._is_answering:
            self._outlet.close()
            return
        self._look_for_head(before)
        if self._n_head_bytes:
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_alarm = self.loop.call_later(self._write_timeout_s, self._outlet.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop(self._write_alarm)

    @property
    def _is_in_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _may_interim(self) -> bool:
        """One whole request waits for its answer, of which nothing was written."""
        if not self._is_answering or self._is_in_body or self._is_broken or getattr(self, "pipeline", None):
            return False
        return not self.cycle.response_started and self.cycle.scope["http_version"] == "1.1"

    def _is_owed(self) -> bool:
        return not self._has_eof and (self._is_broken or self._is_in_body or bool(self._n_head_bytes))

    def _await_head(self) -> None:
        self._stop(self._head_alarm)
        self._head_alarm = self.loop.call_later(self._read_timeout_s, self._on_slow_head)

    def _look_for_head(self, before: object) -> None:
        """After the parser has read: was a head among it?"""
        if self.cycle is not before:
            self._n_head_bytes = self._n_body_bytes = self._n_frame_bytes = 0
            self._stop(self._head_alarm)
        elif self._n_head_bytes > MAX_HEAD_BYTES and not self.flow.read_paused and not self._is_broken:
            self._fail(head_too_large())

    def _look_for_body(self, n_bytes: int, *, n_more: int) -> None:
        """After the parser has read bytes of a body: how much of it was only framing?"""
        self._n_frame_bytes = 0 if n_more else self._n_frame_bytes + n_bytes
        if self._n_frame_bytes > MAX_HEAD_BYTES and self._is_in_body and not self._is_broken:
            self._fail(_trailer_too_large())

    def _on_slow_head(self) -> None:
        if self._is_answering or self._outlet.is_closing():
            return
        if self._n_head_bytes:
            limit_s = self._read_timeout_s
            self._fail(SlowRequest(f"the request's head did not arrive in {limit_s:g} s; nothing was done"))
        else:
            self._outlet.close()

    def _fail(self, error: InputError) -> None:
        """Nothing that comes from now on can be read."""
        self._is_broken = True
        if not self._is_answering:
            self._refuse(error)
        elif self._is_in_body:
            self.cycle.scope[_BROKEN_BODY] = error
            self.cycle.message_event.set()
        else:
            self._last_word = error

    def _refuse(self, error: InputError) -> None:
        """An answer without an application: nobody knows what was asked."""
        line = RequestLine(client=self.client)
        line.status = status_of(error)
        line.note(outcome=error.code)
        body = msgspec.json.encode(error_body(error))
        head = (
            f"HTTP/1.1 {line.status} {HTTPStatus(line.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n{REQUEST_ID}: {line.id}\r\n\r\n"
        )
        self._outlet.write(head.encode() + body)
        self._outlet.close()
        line.write()

    @staticmethod
    def _stop(alarm: asyncio.TimerHandle | None) -> None:
        if alarm is not None:
            alarm.cancel()
