"""One client: requests one after another over a connection it keeps. Knows no other client."""

import asyncio
import ssl
from typing import Any

import msgspec

from mlxcel.load.answer import Answer
from mlxcel.load.connection import Connection, now_s
from mlxcel.load.settings import Address, LoadSettings


class Client:
    """Every request ends in an Answer, with a `failure` in it where it went wrong; nothing is raised."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._address = settings.address()
        self._head = _head(self._address, settings.api_key)
        self._connection = Connection()

    async def ask(self, prompt: str, *, max_tokens: int, timeout_s: float) -> Answer:
        body = msgspec.json.encode(self._body(prompt, max_tokens))
        request = self._head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        answer = Answer(sent_s=now_s())
        try:
            await asyncio.wait_for(self._exchange(request, answer, max_tokens), timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            answer.fail("timeout", f"no end after {timeout_s:.1f} s")
        except OSError as error:
            answer.fail("no connection", str(error))
        answer.ended_s = answer.ended_s or now_s()
        return answer

    def close(self) -> None:
        self._connection.close()

    async def _exchange(self, request: bytes, answer: Answer, max_tokens: int) -> None:
        if self._connection.is_open:
            has_begun = await self._connection.exchange(request, answer, max_tokens=max_tokens)
            if has_begun or answer.failure is None:
                return
            # A server may close an idle connection just when the next request is on its way.
            answer.failure = None
        self._connection = await self._connect()
        await self._connection.exchange(request, answer, max_tokens=max_tokens)

    async def _connect(self) -> Connection:
        context = ssl.create_default_context() if self._address.is_tls else None
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection, self._address.host, self._address.port, ssl=context
        )
        return connection

    def _body(self, prompt: str, max_tokens: int) -> dict[str, Any]:
        settings = self._settings
        body: dict[str, Any] = {"model": settings.model} if settings.model is not None else {}
        if settings.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        return body | {
            "max_tokens": max_tokens,
            "temperature": settings.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            **settings.extra,
        }


def _head(address: Address, api_key: str | None) -> bytes:
    """The request's head but for its length."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [
        f"POST {address.path} HTTP/1.1",
        f"Host: {host}:{address.port}",
        "User-Agent: mlxcel-bench",
        "Accept: text/event-stream",
        "Content-Type: application/json",
    ]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")
