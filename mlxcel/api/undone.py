"""Refusals of endpoints that never generate anything, in their words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from mlxcel.errors import MlxcelError

Endpoint = Callable[[Request], Awaitable[Response]]


def generates_nothing(endpoint: Endpoint) -> Endpoint:
    """The endpoint, whose refusals say that nothing was done: they share their words with those that generate."""

    @wraps(endpoint)
    async def told(request: Request) -> Response:
        try:
            return await endpoint(request)
        except MlxcelError as error:
            error.message = error.message.replace("nothing was generated", "nothing was done")
            raise

    return told
