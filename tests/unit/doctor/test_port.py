from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mlxcel.doctor.finding import State
from mlxcel.doctor.port import look_at_port
from tests.support.scripted_server import serve_app

HERE = "127.0.0.1"


@contextmanager
def health_server(body: dict[str, str], status: int = 200) -> Iterator[int]:
    async def health(_: Request) -> Response:
        return JSONResponse(body, status)

    with serve_app(Starlette(routes=[Route("/health", health)])) as url:
        yield int(url.rpartition(":")[2])


def test_a_free_port_is_found_free_and_left_free() -> None:
    with socket.create_server((HERE, 0)) as held:
        port = held.getsockname()[1]
    assert look_at_port(HERE, port).state is look_at_port(HERE, port).state is State.OK
    assert look_at_port(HERE, 0).told == "any free one"


def test_a_port_that_another_process_holds_is_a_problem_that_names_it() -> None:
    with socket.create_server((HERE, 0)) as held:
        held.settimeout(0)
        port = held.getsockname()[1]
        found = look_at_port(HERE, port)
    assert found.state is State.PROBLEM and f"{HERE}:{port} is in use by " in found.told
    if shutil.which("lsof"):
        assert f"(process {os.getpid()})" in found.told


@pytest.mark.parametrize(
    ("body", "status", "state", "part"),
    [
        ({"status": "ok", "version": "0.1.0"}, 200, State.OK, "is ready"),
        ({"status": "loading", "version": "0.1.0"}, 503, State.WARNING, "is loading"),
        ({"status": "ok"}, 200, State.PROBLEM, "in use"),
        ({}, 404, State.PROBLEM, "in use"),
    ],
)
@pytest.mark.parametrize("host", [HERE, "0.0.0.0"])
def test_a_server_of_ours_is_known_by_its_health(
    body: dict[str, str], status: int, state: State, part: str, host: str
) -> None:
    with health_server(body, status) as port:
        found = look_at_port(host, port)
    assert found.state is state and part in found.told


def test_an_address_that_is_not_this_machines_is_a_problem() -> None:
    found = look_at_port("192.0.2.1", 8080)
    assert found.state is State.PROBLEM and "192.0.2.1" in found.told and "--host" in found.next_step
