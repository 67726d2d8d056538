"""Servers on a free local port that a test scripts: a starlette app under uvicorn, or answers byte by byte.

with serve_app(app) as url: ...
with serve_bytes(answer) as server: ...     # answer(request_number) -> bytes, None = no byte and close
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


@contextmanager
def serve_app(app: ASGIApp) -> Iterator[str]:
    """Run the app in a thread; its URL. The port listens before this returns, so no one has to wait."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, ws="none", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="scripted app")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
    assert not thread.is_alive()


class ByteServer:
    """Takes one connection after another and answers each request on it with the script's next bytes."""

    def __init__(self, answer: Callable[[int], bytes | None], *, answers_per_connection: int) -> None:
        self.n_connections = 0
        self.requests: list[bytes] = []
        self._answer = answer
        self._answers_per_connection = answers_per_connection
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="scripted bytes")
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._thread.join(timeout=10)
        self._listener.close()
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.n_connections += 1
            with connection:
                connection.settimeout(10)
                self._answer_requests(connection)

    def _answer_requests(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        for _ in range(self._answers_per_connection):
            request = _read_request(stream.readline, stream.read)
            if not request:
                return
            self.requests.append(request)
            answer = self._answer(len(self.requests) - 1)
            if answer is None:
                return
            connection.sendall(answer)


@contextmanager
def serve_bytes(answer: Callable[[int], bytes | None], *, answers_per_connection: int = 1) -> Iterator[ByteServer]:
    server = ByteServer(answer, answers_per_connection=answers_per_connection)
    try:
        yield server
    finally:
        server.close()


def _read_request(read_line: Callable[[], bytes], read: Callable[[int], bytes]) -> bytes:
    head, n_body = b"", 0
    while (line := read_line()) not in (b"", b"\r\n"):
        head += line
        if line.lower().startswith(b"content-length:"):
            n_body = int(line.split(b":")[1])
    return head and head + b"\r\n" + read(n_body)
