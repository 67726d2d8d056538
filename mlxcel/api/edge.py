"""What every request passes first and every answer last: its id, its head, its Host and Origin, its line in the log.

It also sees to what a connection needs to know: an answer given before the whole body was read ends it.
"""

from __future__ import annotations

import asyncio

from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlxcel.api.access_log import REQUEST_ID, RequestLine
from mlxcel.api.admission import Hosts, Origins
from mlxcel.api.connection import broken_body
from mlxcel.api.heads import check_head
from mlxcel.api.statuses import error_response
from mlxcel.errors import MlxcelError, NotReady

CLOSE = (b"connection", b"close")


class Edge:
    """The outermost application; `responses` counts its answers by status."""

    def __init__(self, app: ASGIApp, hosts: Hosts, origins: Origins, responses: Counter) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._responses = responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, receive, send)
        try:
            await self._serve(scope, exchange)
        finally:
            exchange.line.write()
            if exchange.line.status and not exchange.line.is_routine:
                self._responses.labels(status=str(exchange.line.status)).inc()

    async def _serve(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            check_head(scope)
            self._hosts.check(scope)
            self._origins.check(scope)
            await self._app(scope, exchange.receive, exchange.send)
        except MlxcelError as error:
            await error_response(scope, error)(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            # The server gives up on whoever is still here when it ends.
            if exchange.line.status:
                raise
            given_up = NotReady("the server is stopping and this request did not end in time; send it again")
            await error_response(scope, given_up)(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request and its answer, on their way through."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.line = RequestLine.of(scope)
        self._scope = scope
        self._receive = receive
        self._send = send
        headers = dict(scope["headers"])
        self._owes_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers

    async def receive(self) -> Message:
        """Errors: MalformedRequest when the rest of the body cannot be read."""
        message = await self._receive()
        if (error := broken_body(self._scope)) is not None:
            raise error
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._owes_body = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.line.status = message["status"]
            headers = [*message["headers"], (REQUEST_ID.encode(), self.line.id.encode())]
            if self._owes_body and CLOSE not in headers:
                headers.append(CLOSE)
            message = {**message, "headers": headers}
        await self._send(message)
