"""POST /v1/completions."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.answer import Record, answer
from mlxcel.api.intake import Intake
from mlxcel.api.service import Service, now_s
from mlxcel.api.stream import unless_client_leaves
from mlxcel.api.wire.requests import CompletionFields
from mlxcel.api.wire.responses import CompletionShape

DEFAULT_COMPLETION_TOKENS = 16


def routes(service: Service, intake: Intake) -> list[Route]:
    async def completions(request: Request) -> Response:
        arrived_s = time.monotonic()
        fields, headers = await intake.fields(request, CompletionFields)
        tokenizing = service.tokenize(lambda tokenizer: tokenizer.encode(fields.prompt), text=fields.prompt)
        prompt = await unless_client_leaves(request.receive, tokenizing)
        generation = await service.generate(prompt, fields, fields.max_tokens, default_tokens=DEFAULT_COMPLETION_TOKENS)
        shape = CompletionShape(generation.id, now_s(), service.model.id, wants_usage=fields.wants_usage_chunk)
        record = Record(service.metrics, generation, request.url.path, arrived_s)
        return await answer(request, generation, shape, fields, record, headers)

    return [Route("/v1/completions", completions, methods=["POST"])]
