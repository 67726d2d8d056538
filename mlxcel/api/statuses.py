"""The one table that turns errors into statuses, and answers in the envelope of the path's API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from mlxcel.api.wire import message_answers, responses
from mlxcel.errors import (
    BodyTooLarge,
    BugError,
    InputError,
    MlxcelError,
    NotReady,
    StateError,
    UnknownModel,
    UnknownResponse,
)

CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that left; it is only counted, nobody reads it."""

STATUSES: tuple[tuple[type[MlxcelError], int], ...] = (
    (UnknownModel, 404),
    (UnknownResponse, 404),
    (BodyTooLarge, 413),
    (InputError, 400),
    (StateError, 503),
    (BugError, 500),
)


def status_of(error: MlxcelError) -> int:
    """The HTTP status of an error's kind."""
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def json_response(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(
        msgspec.json.encode(body), status_code=status, headers=dict(headers or {}), media_type="application/json"
    )


def error_body(request: Request, error: MlxcelError) -> dict[str, Any]:
    """The error in the envelope that the path's clients know."""
    if request.url.path.startswith("/v1/messages"):
        return message_answers.error_body(error)
    return responses.error_body(error)


def as_bug(error: Exception) -> BugError:
    """What a client hears of an error that nobody planned for."""
    return BugError(f"the server failed on this request ({type(error).__name__}); others go on. Report it")


async def _mlxcel_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MlxcelError)
    headers = {}
    if isinstance(error, StateError):
        headers["retry-after"] = str(error.retry_after_s or 1)
    if isinstance(error, (NotReady, BodyTooLarge)):
        headers["connection"] = "close"
    return json_response(error_body(request, error), status=status_of(error), headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 from the router."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    where = f"{request.method} {request.url.path}"
    body = error_body(request, InputError(f"{where}: {error.detail}; nothing was done", code=code))
    return json_response(body, status=error.status_code, headers=error.headers)


async def _client_left(_: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return json_response(error_body(request, as_bug(error)), status=500)


EXCEPTION_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    MlxcelError: _mlxcel_error,
    HTTPException: _http_error,
    ClientDisconnect: _client_left,
    Exception: _unexpected_error,
}
