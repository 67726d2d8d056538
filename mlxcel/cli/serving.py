"""`mlxcel serve`: from settings to a process that serves until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from mlxcel.api.app import make_app
from mlxcel.api.listener import bind
from mlxcel.api.server import Server
from mlxcel.api.service import RowsServed, Service
from mlxcel.cli.columns import sized
from mlxcel.cli.compose import Loaded, MemoryBounds, checkpoint_of, make_engine, served_model
from mlxcel.cli.exits import say
from mlxcel.cli.logs import set_up_logs
from mlxcel.cli.reloading import Reload
from mlxcel.config.settings import ServeSettings
from mlxcel.core import Event
from mlxcel.engine.runner import ModelRunner, Runner
from mlxcel.folder import folder_in_use
from mlxcel.grammar.compiler import NoGrammars, make_grammars
from mlxcel.kv.pool import pool_capacity
from mlxcel.model.checkpoint import Checkpoint
from mlxcel.model.load import LoadedModel
from mlxcel.open_files import raise_open_file_limit
from mlxcel.service.logfile import LogFile

log = logging.getLogger("mlxcel")

SWITCH_S = 0.0005
"""How long a thread may keep the interpreter from another. Python's own 5 ms, each time that the engine comes back from
MLX while the event loop refuses requests, are as long as a step of a small model."""


def serve(
    settings: ServeSettings,
    runner_of: Callable[[LoadedModel], Runner] = ModelRunner,
    read_settings: Callable[[], ServeSettings] | None = None,
    *,
    keys: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or SIGINT. `read_settings` reads their sources again, on SIGHUP.

    Clients need one of the `keys`, where there are any.

    Errors: ModelError, PortInUse and the like before anything is served; EngineDead when the engine broke.
    """
    log_file = LogFile(Path(settings.log_file)) if settings.log_file else None
    logs = set_up_logs(log_file or logging.StreamHandler(sys.stderr), settings.log_format)
    # Until there is a loop to answer one, and once there is none any more, a hang-up changes nothing.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise_open_file_limit()
    reload = Reload(settings, log_file, read=read_settings or (lambda: settings))
    sys.setswitchinterval(SWITCH_S)
    try:
        _run(_serve(settings, runner_of, reload, keys))
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        logs.flush()


def _run(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(
    settings: ServeSettings,
    runner_of: Callable[[LoadedModel], Runner],
    reload: Reload,
    keys: Sequence[str],
) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    checkpoint = checkpoint_of(settings)
    with folder_in_use(checkpoint.folder):
        await _serve_checkpoint(settings, checkpoint, runner_of, reload, keys)


async def _serve_checkpoint(
    settings: ServeSettings,
    checkpoint: Checkpoint,
    runner_of: Callable[[LoadedModel], Runner],
    reload: Reload,
    keys: Sequence[str],
) -> None:
    # A log of JSON has no lines between its own.
    tell = log.info if settings.log_format == "json" else say
    started_s = time.monotonic()
    listener = bind(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    if not keys and not ip_address(host).is_loopback:
        log.warning("%s is no loopback address and no keys are set: whoever reaches it may use this server", host)
    model = served_model(settings, checkpoint)
    loop = asyncio.get_running_loop()
    tell(f"loading {model.id} from {checkpoint.folder}")

    def post(events: list[Event]) -> None:
        loop.call_soon_threadsafe(service.tickets.deliver, events)

    def on_loaded(loaded: Loaded) -> None:
        service.tokenizer = loaded.tokenizer
        service.n_vocabulary = loaded.model.n_vocabulary
        service.grammars = make_grammars(
            loaded.tokenizer.to_json, n_vocabulary=loaded.model.n_vocabulary, eos_ids=loaded.tokenizer.eos_ids
        )
        if isinstance(service.grammars, NoGrammars):
            tell(f"response_format and forced tool calls are refused: {service.grammars.reason}")
        for warning in loaded.warnings:
            log.warning("%s", warning)
        tell(_memory_line(loaded.memory))
        service.rows = RowsServed(loaded.n_rows, is_exact=loaded.is_batching_exact)
        if not loaded.is_batching_exact:
            tell(f"this model is {service.rows}")

    def on_change() -> None:
        loop.call_soon_threadsafe(server.engine_changed)

    def on_ready() -> None:
        tell(f"serving {model.id} on http://{host}:{port} (loaded in {time.monotonic() - started_s:.1f} s)")

    engine = make_engine(settings, checkpoint, post=post, on_loaded=on_loaded, on_change=on_change, runner_of=runner_of)
    service = Service(
        model,
        engine,
        n_places=pool_capacity(settings.batch_rows, settings.queue_depth),
        request_timeout_s=settings.request_timeout_s,
    )
    server = Server(service, make_app(service, settings, keys), settings, listener, on_ready)

    def use(changed: ServeSettings) -> None:
        service.model = replace(service.model, sampling=served_model(changed, checkpoint).sampling)
        server.use(changed)

    reload.use = use
    try:
        await server.run()
    finally:
        service.close()
    tell("stopped")


def _memory_line(memory: MemoryBounds) -> str:
    kv = "without a bound" if memory.kv_bytes is None else f"up to {sized(memory.kv_bytes)}"
    return (
        f"memory for keys and values {kv}, of which {sized(memory.prefix_bytes)} for prompts that may come again; "
        f"MLX keeps up to {sized(memory.buffer_bytes)} of freed memory"
    )
