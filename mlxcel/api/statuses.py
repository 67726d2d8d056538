"""The one table that turns errors into statuses, and answers in the envelope of the path's API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from mlxcel.api.access_log import note, request_id
from mlxcel.api.wire import message_answers, responses
from mlxcel.errors import (
    BodyTooLarge,
    BugError,
    ForeignHost,
    ForeignOrigin,
    HeadTooLarge,
    InputError,
    MlxcelError,
    NotReady,
    RequestTimedOut,
    SlowRequest,
    StateError,
    Unauthorized,
    UnknownModel,
    UnknownResponse,
    UnsupportedCoding,
)

CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that left; it is only counted, nobody reads it."""

STATUSES: tuple[tuple[type[MlxcelError], int], ...] = (
    (UnknownModel, 404),
    (UnknownResponse, 404),
    (Unauthorized, 401),
    (ForeignOrigin, 403),
    (SlowRequest, 408),
    (BodyTooLarge, 413),
    (UnsupportedCoding, 415),
    (ForeignHost, 421),
    (HeadTooLarge, 431),
    (InputError, 400),
    (RequestTimedOut, 504),
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


def error_body(scope: Scope, error: MlxcelError) -> dict[str, Any]:
    """The error in the envelope that the path's clients know."""
    if scope["path"].startswith("/v1/messages"):
        return {**message_answers.error_body(error), "request_id": request_id()}
    return responses.error_body(error)


def body_too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {limit} bytes; nothing was done. Send less, or start the "
        "server with a larger --max-body-bytes"
    )


def as_bug(error: Exception) -> BugError:
    """What a client hears of an error that nobody planned for."""
    return BugError(f"the server failed on this request ({type(error).__name__}); others go on. Report it")


def error_response(scope: Scope, error: MlxcelError) -> Response:
    """The answer to a request that ended in an error, which is noted in its line of the log."""
    note(outcome=error.code)
    headers = {}
    if isinstance(error, StateError):
        headers["retry-after"] = str(error.retry_after_s or 1)
    if isinstance(error, (NotReady, BodyTooLarge)):
        headers["connection"] = "close"
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = 'Bearer realm="mlxcel"'
    return json_response(error_body(scope, error), status=status_of(error), headers=headers)


async def _mlxcel_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MlxcelError)
    return error_response(request.scope, error)


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 from the router."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    where = f"{request.method} {request.url.path}"
    note(outcome=code)
    body = error_body(request.scope, InputError(f"{where}: {error.detail}; nothing was done", code=code))
    return json_response(body, status=error.status_code, headers=error.headers)


async def _client_left(_: Request, _error: Exception) -> Response:
    note(outcome="client_left")
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return error_response(request.scope, as_bug(error))


EXCEPTION_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    MlxcelError: _mlxcel_error,
    HTTPException: _http_error,
    ClientDisconnect: _client_left,
    Exception: _unexpected_error,
}
