"""The process's life: listen, load, serve, drain, and an exit that tells why.

SIGTERM or SIGINT: the listener stays open, running requests end, new ones get 503, the model is freed, the web
server is stopped last. A second signal leaves at once. A watchdog ends the process when the engine or the
tokenizer hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from mlxcel.api.connection import LONGEST_PARSED_HEAD_BYTES, Connection
from mlxcel.api.service import Service
from mlxcel.config.settings import ServeSettings
from mlxcel.errors import BugError, EngineDead, MlxcelError, NotReady

log = logging.getLogger("mlxcel.server")

IDLE_CONNECTION_S = 75
FLUSH_S = 2.0
"""How long responses may still be written once their tickets have ended."""
FLUSH_INTERVAL_S = 0.01
WATCH_INTERVAL_S = 0.5


class Server:
    """One service behind one listener. Owner: the event loop's thread."""

    def __init__(
        self,
        service: Service,
        app: ASGIApp,
        settings: ServeSettings,
        listener: socket.socket,
        on_ready: Callable[[], None],
    ) -> None:
        self._service = service
        self._settings = settings
        self._listener = listener
        self._on_ready = on_ready
        self._web = _Web(
            uvicorn.Config(
                app,
                http=_connections(settings),
                h11_max_incomplete_event_size=LONGEST_PARSED_HEAD_BYTES,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=IDLE_CONNECTION_S,
                timeout_graceful_shutdown=int(FLUSH_S),
            )
        )
        self._changed = asyncio.Event()
        self._stop_requested = False

    async def run(self) -> None:
        """Serve until a signal or a fault; returns after a clean stop.

        Errors: what ended the engine (a model that cannot be loaded, EngineDead).
        """
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self._on_signal)
        web = asyncio.create_task(self._web.serve(sockets=[self._listener]))
        self._service.engine.start()
        try:
            await self._until_stopped(web)
            await self._drain()
        except MlxcelError as error:
            self._service.tickets.fail_all(error)
            await self._flush()
            self._web.give_up()
            raise
        finally:
            self._web.should_exit = True
            await web
        if self._service.engine.error is not None:
            raise self._service.engine.error

    def use(self, settings: ServeSettings) -> None:
        """Go by other time limits from now on. Only the loop may call it."""
        self._settings = settings

    def engine_changed(self) -> None:
        """The engine became ready or ended. Safe to call on the loop only."""
        self._changed.set()

    def _on_signal(self) -> None:
        if self._stop_requested:
            log.warning("second signal: leaving at once")
            os._exit(0)
        self._stop_requested = True
        self._changed.set()

    async def _until_stopped(self, web: asyncio.Task[None]) -> None:
        was_ready = False
        while not (self._stop_requested or self._service.engine.ended.is_set()):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), WATCH_INTERVAL_S)
            self._changed.clear()
            if not was_ready and self._service.engine.ready.is_set() and self._service.engine.error is None:
                was_ready = True
                self._on_ready()
            self._watch_calls()
            if web.done():
                raise BugError("the web server ended by itself; the server is stopping. Start it again")

    def _watch_calls(self) -> None:
        """No thread can be ended by another: a call that does not return ends the process."""
        service, limit_s = self._service, self._settings.step_timeout_s
        for what, started_s in (
            ("a model call", service.engine.step_started_s),
            ("the tokenizer or the chat template", service.tokenizing_started_s),
        ):
            if started_s is not None and time.monotonic() - started_s > limit_s:
                raise EngineDead(
                    f"{what} took longer than --step-timeout ({limit_s:g} s); every running request was ended and the "
                    "server is stopping. Start it again"
                )

    async def _drain(self) -> None:
        service = self._service
        service.is_draining = True
        n_open = len(service.tickets)
        if n_open:
            log.info("stopping: %d requests may finish for %g s", n_open, self._settings.drain_timeout_s)
        try:
            await asyncio.wait_for(self._all_ended(), self._settings.drain_timeout_s)
        except asyncio.TimeoutError:
            service.tickets.fail_all(
                NotReady("the server is stopping and this request did not end in time; send it again")
            )
        await self._flush()
        self._web.give_up()
        await self._flush()
        if not await asyncio.to_thread(service.engine.stop, timeout_s=FLUSH_S):
            log.warning("a model call or the load still runs; leaving without waiting for it")

    async def _all_ended(self) -> None:
        """Until every ticket ended (a broken engine ends its tickets itself) and every request was answered."""
        ended = asyncio.create_task(self._service.tickets.all_ended())
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=WATCH_INTERVAL_S)
                self._watch_calls()
            await self._all_answered()
        finally:
            ended.cancel()

    async def _all_answered(self) -> None:
        while self._web.n_requests:
            await asyncio.sleep(FLUSH_INTERVAL_S)

    async def _flush(self) -> None:
        """Let the last frames reach their clients."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_answered(), FLUSH_S)


def _connections(settings: ServeSettings) -> type[asyncio.Protocol]:
    """What makes a connection; uvicorn only ever calls it."""
    make: Any = partial(
        Connection,
        max_body_bytes=settings.max_body_bytes,
        read_timeout_s=settings.request_read_timeout_s,
        write_timeout_s=settings.write_timeout_s,
    )
    return cast("type[asyncio.Protocol]", make)


class _Web(uvicorn.Server):
    """uvicorn without its signal handling: it would raise the signal again and spoil the exit code."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def n_requests(self) -> int:
        return len(self.server_state.tasks)

    def give_up(self) -> None:
        """End every request that is still here; whoever was not answered yet hears why."""
        for task in list(self.server_state.tasks):
            task.cancel()
