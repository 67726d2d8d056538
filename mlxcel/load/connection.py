"""One kept-alive HTTP/1.1 connection that streams answers. Knows no prompts and counts nothing.

A protocol on the event loop with llhttp as its parser: of the clients measured (httpx, h11 and httptools
over asyncio streams, and this) it costs least per frame, 15 µs against httpx's 100, and the load client
shares a machine's cores with the server it measures.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import cast

import httptools
import msgspec

from mlxcel.load.answer import Answer
from mlxcel.load.events import EventStream

MAX_REFUSAL_BYTES = 64 << 10
# A server may send several frames for a token, but not without end.
MAX_CHUNKS_PER_TOKEN = 64

now_s: Callable[[], float] = time.perf_counter


class Connection(asyncio.Protocol):
    """Sends one request at a time. After `exchange` has returned, `is_open` says whether it takes another."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reply: _Reply | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, answer: Answer, *, max_tokens: int) -> bool:
        """Send a whole request and fill the answer until it ends or fails. Whether any byte came back."""
        reply = self._reply = _Reply(answer, max_chunks=max_tokens * MAX_CHUNKS_PER_TOKEN)
        if self._transport is None:
            reply.close(None)
        else:
            self._transport.write(request)
        try:
            await reply.ended
        finally:
            self._reply = None
            if not reply.leaves_connection_usable:
                self.close()
        return reply.has_begun

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            self.close()  # nothing was asked
        else:
            self._reply.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._reply is not None:
            self._reply.close(exc)


class _Reply:
    """The parser's callbacks for one response. `ended` gets its result exactly once."""

    def __init__(self, answer: Answer, *, max_chunks: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.has_begun = False
        self.leaves_connection_usable = False
        self._answer = answer
        self._max_chunks = max_chunks
        self._parser = httptools.HttpResponseParser(self)
        self._events: EventStream | None = None
        self._status = 0
        self._content_type = b""
        self._refusal = b""
        self._now_s = 0.0

    def feed(self, data: bytes) -> None:
        if self.ended.done():
            return
        self.has_begun = True
        self._now_s = now_s()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._answer.fail("not HTTP", f"{error}: {data[:200]!r}")
        if self._answer.failure is not None or self._answer.n_chunks > self._max_chunks:
            self._answer.fail("too many chunks", f"more than {self._max_chunks} chunks")
            self._end()
        elif self._answer.is_done and not self._parser.should_keep_alive():
            self._end()

    def close(self, error: Exception | None) -> None:
        if self._status and self._events is None:
            self._refuse()
        elif not self._answer.is_done:
            self._answer.fail("closed", f"the connection was closed before [DONE]{f': {error}' if error else ''}")
        self._end()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._content_type = value

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status == 200 and self._content_type.lower().startswith(b"text/event-stream"):
            self._events = EventStream()

    def on_body(self, body: bytes) -> None:
        if self._events is None:
            self._refusal += body[: MAX_REFUSAL_BYTES - len(self._refusal)]
            return
        try:
            payloads = self._events.feed(body)
        except ValueError as error:
            self._answer.fail("bad frame", str(error))
            return
        for payload in payloads:
            self._answer.take(payload, self._now_s)

    def on_message_complete(self) -> None:
        if 100 <= self._status < 200:
            return
        if self._events is None:
            self._refuse()
        elif not self._answer.is_done:
            self._answer.fail("closed", "the stream ended before [DONE]")
        self.leaves_connection_usable = self._parser.should_keep_alive()
        self._end()

    def _refuse(self) -> None:
        text = self._refusal[:400].decode("utf-8", "replace")
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            text = msgspec.json.decode(self._refusal, type=_Refusal).error.message
        kind = f"HTTP {self._status}" if self._status != 200 else "not an event stream"
        self._answer.fail(kind, text)

    def _end(self) -> None:
        if not self.ended.done():
            self._answer.ended_s = now_s()
            self.ended.set_result(None)


class _Message(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Message
