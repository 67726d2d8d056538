"""From a request's bytes to checked fields, within the limits; and the header that says what was ignored."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from starlette.requests import Request

from mlxcel.api.access_log import note
from mlxcel.api.service import Service
from mlxcel.api.statuses import body_too_large
from mlxcel.api.wire.body import Fields, decode_body, field_names, parse_fields
from mlxcel.api.wire.fields import IGNORED, NOT_SERVED, refuse_not_served
from mlxcel.config.settings import ServeSettings
from mlxcel.core import Priority
from mlxcel.errors import InputError, SlowRequest

MOST_LOGGED_BYTES = 2**14

PRIORITY_HEADER = "X-Priority"

F = TypeVar("F", bound=Fields)


class Intake:
    """Reads bodies for every endpoint that takes one."""

    def __init__(self, service: Service, settings: ServeSettings) -> None:
        self._service = service
        self._settings = settings

    async def fields(self, request: Request, shape: type[F]) -> tuple[F, dict[str, str]]:
        """The request's fields, checked, and headers for its answer.

        Errors: NotReady; InputError for the body or a field; UnknownModel; BodyTooLarge.
        """
        self._service.check_serving()
        body = await self.body(request)
        if self._settings.log_prompts:
            note(body=_logged(body))
        sent = decode_body(body)
        refuse_not_served(sent, field_names(shape))
        parsed = parse_fields(sent, shape, other_fields=IGNORED | NOT_SERVED)
        parsed.value.check()
        self._service.check_model(parsed.value.model)
        if parsed.unknown and self._settings.strict:
            raise InputError(
                f"the field {parsed.unknown[0]!r} is unknown, and this server is strict; nothing was done",
                param=parsed.unknown[0],
                code="unknown_field",
            )
        if not parsed.unknown:
            return parsed.value, {}
        ignored = _header_list(parsed.unknown)
        note(ignored=ignored)
        return parsed.value, {"x-ignored-fields": ignored}

    async def body(self, request: Request) -> bytes:
        """The whole body.

        Errors: BodyTooLarge as soon as it is over the limit, at once where its head says so; SlowRequest;
        RequestTimedOut.
        """
        limit, timeout_s = self._settings.max_body_bytes, self._settings.request_read_timeout_s
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise body_too_large(limit)
        try:
            return await self._service.in_time(asyncio.wait_for(_read(request, limit), timeout_s))
        except asyncio.TimeoutError:
            raise SlowRequest(f"the body did not arrive in {timeout_s:g} s; nothing was done") from None


async def _read(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise body_too_large(limit)
    return bytes(body)


def _logged(body: bytes) -> str:
    """A body as the log may show it: its first part, and how long it is where that is not all."""
    text = body[:MOST_LOGGED_BYTES].decode(errors="backslashreplace")
    return text if len(body) <= MOST_LOGGED_BYTES else f"{text}... ({len(body)} bytes)"


def priority_of(request: Request) -> Priority:
    """The lane that the client wants to wait in.

    Errors: InputError for a word that names none.
    """
    sent = request.headers.get(PRIORITY_HEADER, Priority.NORMAL.value)
    try:
        return Priority(sent)
    except ValueError:
        raise InputError(
            f"{PRIORITY_HEADER} = {sent[:60]!r} is none of {', '.join(lane.value for lane in Priority)}; nothing was "
            "done",
            param=PRIORITY_HEADER,
        ) from None


def _header_list(names: tuple[str, ...]) -> str:
    """Field names as a header may carry them: visible ASCII, a bounded length."""
    text = ", ".join(name.encode("ascii", "backslashreplace").decode() for name in names)
    return "".join(char if " " <= char <= "~" else "?" for char in text)[:1000]
