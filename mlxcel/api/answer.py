"""The choices of a request become its response, whole or streamed, and are counted once."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping

from starlette.requests import Request
from starlette.responses import Response

from mlxcel.api.access_log import note, spent_s
from mlxcel.api.choices import Choices
from mlxcel.api.statuses import CLIENT_CLOSED_REQUEST, as_bug, json_response
from mlxcel.api.stream import EventStream, cancelling_on_disconnect
from mlxcel.api.wire.answers import KEEP_ALIVE, AnswerShape
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.core import FinishReason
from mlxcel.errors import GenerationError, MlxcelError
from mlxcel.metrics import ServerMetrics

log = logging.getLogger("mlxcel.api")

KEEP_ALIVE_S = 15.0
"""A stream that has nothing to say for this long sends a comment, so that nobody takes it for dead."""


class Record:
    """Counts one request, from its head to its end, when that comes. Units: times are monotonic seconds."""

    def __init__(self, metrics: ServerMetrics, choices: Choices, route: str) -> None:
        self._metrics = metrics
        self._choices = choices
        self._route = route
        self._arrived_s = time.monotonic() - spent_s()
        self._ttft_s: float | None = None

    def begin(self) -> None:
        """The first token is there, if it is: into the metrics. Safe to repeat."""
        if self._ttft_s is None and (first_token_s := self._choices.first_token_s) is not None:
            self._ttft_s = first_token_s - self._arrived_s
            self._metrics.time_to_first_token.observe(self._ttft_s)

    def end(self, outcome: str) -> None:
        """Into the metrics and the request's line of the log."""
        self.begin()
        metrics, ttft_s = self._metrics, self._ttft_s
        total_s = time.monotonic() - self._arrived_s
        metrics.requests.labels(route=self._route, outcome=outcome).inc()
        metrics.request_duration.observe(total_s)
        usage = self._choices.usage
        note(
            outcome=outcome,
            prompt_tokens=usage.n_prompt_tokens,
            completion_tokens=usage.n_tokens,
            cached_tokens=usage.n_cached_tokens,
            ttft_ms=None if ttft_s is None else round(ttft_s * 1000, 1),
            tokens_per_s=None if ttft_s is None else _rate(usage.n_tokens - 1, total_s - ttft_s),
        )


async def answer(
    request: Request,
    metrics: ServerMetrics,
    choices: Choices,
    shape: AnswerShape,
    fields: GenerationFields,
    headers: Mapping[str, str],
) -> Response:
    """The response to a request whose choices have begun.

    Errors: what ended one of them, where nothing was sent yet.
    """
    record = Record(metrics, choices, request.url.path)
    if fields.stream:
        frames = _frames(choices, shape, record)
        return EventStream(frames, choices.cancel, headers)
    try:
        async with cancelling_on_disconnect(request.receive, choices.cancel):
            wholes = await choices.whole()
    except MlxcelError as error:
        record.end(error.code)
        raise
    finally:
        # Whatever ended the answer, nothing goes on generating for it.
        choices.cancel()
    assert choices.finish is not None
    record.end(choices.finish.value)
    if choices.finish is FinishReason.CANCELLED:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return json_response(shape.whole(wholes, choices.usage), headers=headers)


async def _frames(choices: Choices, shape: AnswerShape, record: Record) -> AsyncIterator[bytes]:
    """The frames of a streamed answer; an error is the last of them."""
    if opening := shape.opening(choices.usage.n_prompt_tokens):
        yield opening
    try:
        async for arrived in choices.pieces(idle_s=KEEP_ALIVE_S):
            record.begin()
            yield KEEP_ALIVE if arrived is None else shape.chunk(*arrived)
    except MlxcelError as error:
        record.end(error.code)
        yield shape.failure(error)
        return
    except Exception as error:  # the edge: the stream has begun, so the client must hear it here
        log.exception("a stream failed")
        record.end(GenerationError.code)
        yield shape.failure(as_bug(error))
        return
    record.end(choices.finish.value if choices.finish else "unfinished")
    if choices.ends:
        yield shape.closing(choices.ends, choices.usage)


def _rate(n_tokens: int, span_s: float) -> float | None:
    """Tokens a second after the first; None where that says nothing."""
    return round(n_tokens / span_s, 1) if n_tokens > 0 and span_s > 0 else None
