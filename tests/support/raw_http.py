"""HTTP as a hostile client speaks it: any bytes on a socket, and whatever comes back."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any, NamedTuple

import httpx

ANSWER_S = 30.0
HOLD_BACK: int = getattr(socket, "TCP_CORK" if sys.platform == "linux" else "TCP_NOPUSH")
"""Keeps a packet that is not full until there is more to send, or no more at all."""


class RawAnswer(NamedTuple):
    """One response, read to its end. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    """A connection to a server, with a bound on every wait."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 80), timeout=ANSWER_S) as client:
        yield client


def read_answer(client: socket.socket, *, method: str = "GET") -> RawAnswer:
    """The next response on a connection, when no other follows it in the same packet."""
    response = HTTPResponse(client, method=method)
    try:
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return RawAnswer(response.status, headers, response.read())
    finally:
        response.close()


def ask(url: str, sent: bytes, *, method: str = "GET", ends: bool = False) -> RawAnswer:
    """Send bytes on a connection of their own and read one response; `ends` closes the sending half first."""
    with connected(url) as client:
        if ends:
            send_and_end(client, sent)
        else:
            client.sendall(sent)
        return read_answer(client, method=method)


def send_and_end(client: socket.socket, sent: bytes) -> None:
    """Send a few bytes and close the sending half in one packet, so that no answer begins between the two."""
    client.setsockopt(socket.IPPROTO_TCP, HOLD_BACK, 1)
    client.sendall(sent)
    client.shutdown(socket.SHUT_WR)


def ask_in_a_row(url: str, sent: bytes) -> bytes:
    """Send bytes and read all that comes until the server closes the connection."""
    received = b""
    with connected(url) as client:
        client.sendall(sent)
        while chunk := client.recv(2**16):
            received += chunk
    return received


def head(line: str, *headers: str, host: str = "localhost") -> bytes:
    """A request's head."""
    return "\r\n".join([line, f"Host: {host}", *headers, "", ""]).encode("latin-1")


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A request with a body."""
    return head(f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}", *headers) + body
