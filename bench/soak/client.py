"""A client over one kept-alive connection that costs little: it shares the machine with the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

REPLY_S = 120.0


class Reply(NamedTuple):
    """A whole answer. The headers' names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One request at a time.

    Errors: OSError and EOFError where the server resets or closes a connection, asyncio.TimeoutError after REPLY_S.
    """

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> Reply:
        return await asyncio.wait_for(self._exchange("GET", path, b""), REPLY_S)

    async def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        return await asyncio.wait_for(self._exchange("POST", path, json.dumps(body).encode()), REPLY_S)

    async def leave(self, path: str, body: Mapping[str, Any], *, after_bytes: int) -> None:
        """Ask, read so much of the answer at most, and hang up. The caller bounds the time.

        A wait_for in this loop could lose a cancel: before Python 3.12 it drops one that comes with its result.
        """
        self.close()
        reader, _ = await self._send("POST", path, json.dumps(body).encode(), "Connection: close\r\n")
        while after_bytes > 0 and (got := await reader.read(after_bytes)):
            after_bytes -= len(got)
        self.close()

    def close(self) -> None:
        """Hang up. Safe to repeat."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _send(
        self, method: str, path: str, body: bytes, more: str = ""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.hostname, self._address.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._address.netloc}\r\n{more}Content-Length: {len(body)}\r\n"
        self._streams[1].write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        return self._streams

    async def _exchange(self, method: str, path: str, body: bytes) -> Reply:
        try:
            reader, _ = await self._send(method, path, body)
            status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            reply = Reply(int(status.split()[1]), headers, await reader.readexactly(int(headers["content-length"])))
        except BaseException:
            self.close()
            raise
        if headers.get("connection") == "close":
            self.close()
        return reply
