"""A generation becomes a response, whole or streamed, and is counted once."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from mlxcel.api.generation import Generation
from mlxcel.api.statuses import CLIENT_CLOSED_REQUEST, as_bug, json_response
from mlxcel.api.stream import EventStream, cancelling_on_disconnect
from mlxcel.api.wire.answers import KEEP_ALIVE, AnswerShape, End
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.core import FinishReason
from mlxcel.errors import GenerationError, MlxcelError
from mlxcel.metrics import ServerMetrics

log = logging.getLogger("mlxcel.api")

KEEP_ALIVE_S = 15.0
"""A stream that has nothing to say for this long sends a comment, so that nobody takes it for dead."""


class Record:
    """Counts one request when it ends. Units: times are monotonic seconds."""

    def __init__(self, metrics: ServerMetrics, generation: Generation, route: str, arrived_s: float) -> None:
        self._metrics = metrics
        self._generation = generation
        self._route = route
        self._arrived_s = arrived_s

    def end(self, outcome: str) -> None:
        """Into the metrics and the log."""
        generation, metrics = self._generation, self._metrics
        total_s = time.monotonic() - self._arrived_s
        ttft_s = None if generation.first_token_s is None else generation.first_token_s - self._arrived_s
        metrics.requests.labels(route=self._route, outcome=outcome).inc()
        metrics.request_duration.observe(total_s)
        if ttft_s is not None:
            metrics.time_to_first_token.observe(ttft_s)
        log.info(
            "%s %s %s prompt_tokens=%d completion_tokens=%d ttft_ms=%s total_ms=%.0f",
            generation.id,
            self._route,
            outcome,
            generation.n_prompt_tokens,
            generation.n_tokens,
            "-" if ttft_s is None else f"{ttft_s * 1000:.0f}",
            total_s * 1000,
        )


async def answer(
    request: Request,
    generation: Generation,
    shape: AnswerShape,
    fields: GenerationFields,
    record: Record,
    headers: Mapping[str, str],
) -> Response:
    """The response to a request whose generation has begun.

    Errors: what ended the generation, where nothing was sent yet.
    """
    if fields.stream:
        frames = _frames(generation, shape, record.end)
        return EventStream(frames, generation.cancel, headers)
    try:
        async with cancelling_on_disconnect(request.receive, generation.cancel):
            message = await generation.whole()
    except MlxcelError as error:
        record.end(error.code)
        raise
    finally:
        # Whatever ended the answer, nothing goes on generating for it.
        generation.cancel()
    assert generation.finish is not None
    record.end(generation.finish.value)
    if generation.finish is FinishReason.CANCELLED:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return json_response(shape.whole(message, _end(generation)), headers=headers)


async def _frames(generation: Generation, shape: AnswerShape, end: Callable[[str], None]) -> AsyncIterator[bytes]:
    """The frames of a streamed answer; an error is the last of them."""
    if opening := shape.opening(generation.n_prompt_tokens):
        yield opening
    try:
        async for piece in generation.pieces(idle_s=KEEP_ALIVE_S):
            yield KEEP_ALIVE if piece is None else shape.chunk(piece.deltas, piece.finish)
    except MlxcelError as error:
        end(error.code)
        yield shape.failure(error)
        return
    except Exception as error:  # the edge: the stream has begun, so the client must hear it here
        log.exception("a stream failed")
        end(GenerationError.code)
        yield shape.failure(as_bug(error))
        return
    end(generation.finish.value if generation.finish else "unfinished")
    if generation.finish is not None:
        yield shape.closing(_end(generation))


def _end(generation: Generation) -> End:
    assert generation.finish is not None
    return End(generation.finish, generation.n_prompt_tokens, generation.n_tokens, stopped_by=generation.stopped_by)
