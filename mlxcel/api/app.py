"""Routes, and the one table that turns errors into statuses.

A request is parsed (`wire`), its prompt tokenised on a worker thread, submitted (`service`), and answered
whole or in frames.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
from prometheus_client import exposition
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel import __version__
from mlxcel.api.generation import Generation
from mlxcel.api.service import Phase, Service, now_s
from mlxcel.api.stream import EventStream, cancelling_on_disconnect
from mlxcel.api.wire import responses
from mlxcel.api.wire.body import decode_body, parse_fields
from mlxcel.api.wire.fields import IGNORED, NOT_SERVED, refuse_not_served
from mlxcel.api.wire.requests import ChatFields, CompletionFields, GenerationFields
from mlxcel.config.settings import ServeSettings
from mlxcel.core import FinishReason
from mlxcel.errors import (
    BugError,
    GenerationError,
    InputError,
    MlxcelError,
    NotReady,
    StateError,
    UnknownModel,
)

log = logging.getLogger("mlxcel.api")

DEFAULT_COMPLETION_TOKENS = 16
KEEP_ALIVE_S = 15.0
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that left; it is only counted, nobody reads it."""

STATUSES: tuple[tuple[type[MlxcelError], int], ...] = (
    (UnknownModel, 404),
    (InputError, 400),
    (StateError, 503),
    (BugError, 500),
)


class BodyTooLarge(InputError):
    """The body is over --max-body-bytes."""

    code = "body_too_large"


def make_app(service: Service, settings: ServeSettings) -> Starlette:
    """The ASGI application over a service."""
    routes = _Routes(service, settings)
    return Starlette(
        routes=[
            Route("/v1/completions", routes.completions, methods=["POST"]),
            Route("/v1/chat/completions", routes.chat_completions, methods=["POST"]),
            Route("/v1/models", routes.models),
            Route("/v1/models/{model_id:path}", routes.model),
            Route("/health", routes.health),
            Route("/metrics", routes.metrics),
        ],
        exception_handlers={
            MlxcelError: _mlxcel_error,
            HTTPException: _http_error,
            ClientDisconnect: _client_left,
            Exception: _unexpected_error,
        },
    )


class _Routes:
    def __init__(self, service: Service, settings: ServeSettings) -> None:
        self._service = service
        self._settings = settings

    async def completions(self, request: Request) -> Response:
        arrived_s = time.monotonic()
        fields, headers = await self._parsed(request, CompletionFields)
        prompt = await self._service.tokenize(lambda tokenizer: tokenizer.encode(fields.prompt))
        generation = await self._service.generate(
            prompt, fields, fields.max_tokens, default_tokens=DEFAULT_COMPLETION_TOKENS
        )
        shape = responses.CompletionShape(generation.id, now_s(), self._service.model.id)
        return await self._answer(request, generation, shape, fields, headers, arrived_s)

    async def chat_completions(self, request: Request) -> Response:
        arrived_s = time.monotonic()
        fields, headers = await self._parsed(request, ChatFields)
        messages = fields.template_messages()
        template_kwargs = fields.chat_template_kwargs or {}
        prompt = await self._service.tokenize(lambda tokenizer: tokenizer.encode_chat(messages, template_kwargs))
        generation = await self._service.generate(prompt, fields, fields.limit)
        shape = responses.ChatShape(generation.id, now_s(), self._service.model.id)
        return await self._answer(request, generation, shape, fields, headers, arrived_s)

    async def models(self, _: Request) -> Response:
        model = self._service.model
        return _json(responses.models_body([model.id], model.created))

    async def model(self, request: Request) -> Response:
        self._service.check_model(request.path_params["model_id"])
        return _json(responses.model_body(self._service.model.id, self._service.model.created))

    async def health(self, _: Request) -> Response:
        phase = self._service.phase
        body = {"status": "ok" if phase is Phase.READY else phase.value, "version": __version__}
        return _json(body, status=200 if phase is Phase.READY else 503)

    async def metrics(self, request: Request) -> Response:
        body, media_type = exposition.choose_encoder(request.headers.get("accept", ""))
        return Response(body(self._service.metrics.registry), headers={"content-type": media_type})

    async def _parsed(self, request: Request, shape: type[Any]) -> tuple[Any, dict[str, str]]:
        """The request's fields, checked, and the headers that say what was ignored."""
        self._service.check_serving()
        sent = decode_body(await self._body(request))
        refuse_not_served(sent)
        parsed = parse_fields(sent, shape, other_fields=IGNORED | NOT_SERVED)
        fields: GenerationFields = parsed.value
        fields.check()
        self._service.check_model(fields.model)
        if parsed.unknown and self._settings.strict:
            raise InputError(
                f"the field {parsed.unknown[0]!r} is unknown, and this server is strict; nothing was generated",
                param=parsed.unknown[0],
                code="unknown_field",
            )
        headers = {"x-ignored-fields": _header_list(parsed.unknown)} if parsed.unknown else {}
        return fields, headers

    async def _body(self, request: Request) -> bytes:
        limit = self._settings.max_body_bytes
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise BodyTooLarge(
                    f"the body is larger than {limit} bytes; nothing was generated. Send less, or start the "
                    "server with a larger --max-body-bytes"
                )
        return bytes(body)

    async def _answer(
        self,
        request: Request,
        generation: Generation,
        shape: responses.AnswerShape,
        fields: GenerationFields,
        headers: Mapping[str, str],
        arrived_s: float,
    ) -> Response:
        route = request.url.path

        def count(outcome: str) -> None:
            self._count(generation, route, outcome, arrived_s)

        if fields.stream:
            frames = _frames(generation, shape, with_usage=fields.wants_usage_chunk, count=count)
            return EventStream(frames, generation.cancel, headers)
        try:
            async with cancelling_on_disconnect(request.receive, generation.cancel):
                text = await generation.whole()
        except MlxcelError as error:
            count(error.code)
            raise
        finally:
            # Whatever ended the answer, nothing goes on generating for it.
            generation.cancel()
        assert generation.finish is not None
        count(generation.finish.value)
        if generation.finish is FinishReason.CANCELLED:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        counts = responses.usage(generation.n_prompt_tokens, generation.n_tokens)
        return _json(shape.whole(text, generation.finish, counts), headers=headers)

    def _count(self, generation: Generation, route: str, outcome: str, arrived_s: float) -> None:
        metrics = self._service.metrics
        metrics.requests.labels(route=route, outcome=outcome).inc()
        metrics.request_duration.observe(time.monotonic() - arrived_s)
        ttft_s = None if generation.first_token_s is None else generation.first_token_s - arrived_s
        if ttft_s is not None:
            metrics.time_to_first_token.observe(ttft_s)
        log.info(
            "%s %s %s prompt_tokens=%d completion_tokens=%d ttft_ms=%s total_ms=%.0f",
            generation.id,
            route,
            outcome,
            generation.n_prompt_tokens,
            generation.n_tokens,
            "-" if ttft_s is None else f"{ttft_s * 1000:.0f}",
            (time.monotonic() - arrived_s) * 1000,
        )


async def _frames(
    generation: Generation,
    shape: responses.AnswerShape,
    *,
    with_usage: bool,
    count: Callable[[str], None],
) -> AsyncIterator[bytes]:
    """The frames of a streamed answer; an error is the last of them."""
    for opening in shape.opening():
        yield opening
    try:
        async for piece in generation.pieces(idle_s=KEEP_ALIVE_S):
            yield responses.KEEP_ALIVE if piece is None else shape.chunk(piece.text, piece.finish)
    except MlxcelError as error:
        count(error.code)
        yield responses.frame(responses.error_body(error))
        return
    except Exception as error:  # the edge: the stream has begun, so the client must hear it here
        log.exception("a stream failed")
        count(GenerationError.code)
        yield responses.frame(responses.error_body(_as_bug(error)))
        return
    count(generation.finish.value if generation.finish else "unfinished")
    if with_usage:
        yield shape.usage_chunk(responses.usage(generation.n_prompt_tokens, generation.n_tokens))
    yield responses.DONE


# Errors


def status_of(error: MlxcelError) -> int:
    """The HTTP status of an error's kind."""
    if isinstance(error, BodyTooLarge):
        return 413
    return next(status for kind, status in STATUSES if isinstance(error, kind))


async def _mlxcel_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, MlxcelError)
    headers = {}
    if isinstance(error, StateError):
        headers["retry-after"] = str(error.retry_after_s or 1)
    if isinstance(error, (NotReady, BodyTooLarge)):
        headers["connection"] = "close"
    return _json(responses.error_body(error), status=status_of(error), headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 from the router, in our envelope."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    where = f"{request.method} {request.url.path}"
    body = responses.error_body(InputError(f"{where}: {error.detail}; nothing was done", code=code))
    return _json(body, status=error.status_code, headers=error.headers)


async def _client_left(_: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _unexpected_error(_: Request, error: Exception) -> Response:
    return _json(responses.error_body(_as_bug(error)), status=500)


def _as_bug(error: Exception) -> BugError:
    return BugError(f"the server failed on this request ({type(error).__name__}); others go on. Report it")


def _json(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/json",
    )


def _header_list(names: tuple[str, ...]) -> str:
    """Field names as a header may carry them: visible ASCII, a bounded length."""
    text = ", ".join(name.encode("ascii", "backslashreplace").decode() for name in names)
    return "".join(char if " " <= char <= "~" else "?" for char in text)[:1000]
