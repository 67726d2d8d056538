"""Answers that depend on a client that may leave: a disconnect cancels the ticket, streaming or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")

EVENT_STREAM = "text/event-stream; charset=utf-8"


@asynccontextmanager
async def cancelling_on_disconnect(receive: Receive, cancel: Callable[[], None]) -> AsyncIterator[None]:
    """Call `cancel` if the client goes away inside the block. The body must have been read."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()


async def unless_client_leaves(receive: Receive, work: Awaitable[T]) -> T:
    """The work's result; if the client goes away first the work is cancelled. The body must have been read.

    Errors: ClientDisconnect once it went away, and whatever the work raises.
    """
    task = asyncio.ensure_future(work)
    has_left = False

    def leave() -> None:
        nonlocal has_left
        has_left = True
        task.cancel()

    try:
        async with cancelling_on_disconnect(receive, leave):
            return await task
    except asyncio.CancelledError:
        task.cancel()
        if has_left:
            raise ClientDisconnect from None
        raise


class EventStream(Response):
    """A server-sent event stream.

    `frames` must not raise: once the first byte is out, an error is a frame.
    """

    def __init__(self, frames: AsyncIterator[bytes], cancel: Callable[[], None], headers: Mapping[str, str]) -> None:
        super().__init__(headers={"cache-control": "no-cache", **headers}, media_type=EVENT_STREAM)
        # Response set a length of 0 for a body that is yet to come.
        self.raw_headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        self._frames = frames
        self._cancel = cancel

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        try:
            async with cancelling_on_disconnect(receive, self._cancel):
                await send(start)
                async for chunk in self._frames:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        finally:
            # Whatever ended the response, nothing goes on generating for it.
            self._cancel()
