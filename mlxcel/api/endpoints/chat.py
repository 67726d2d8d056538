"""POST /v1/chat/completions."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.answer import Record, answer
from mlxcel.api.chat import converse
from mlxcel.api.intake import Intake
from mlxcel.api.service import Service, now_s
from mlxcel.api.wire.chat import ChatFields
from mlxcel.api.wire.responses import ChatShape


def routes(service: Service, intake: Intake) -> list[Route]:
    async def chat_completions(request: Request) -> Response:
        arrived_s = time.monotonic()
        fields, headers = await intake.fields(request, ChatFields)
        generation = await converse(request.receive, service, fields.conversation(), fields, fields.limit)
        shape = ChatShape(generation.id, now_s(), service.model.id, wants_usage=fields.wants_usage_chunk)
        record = Record(service.metrics, generation, request.url.path, arrived_s)
        return await answer(request, generation, shape, fields, record, headers)

    return [Route("/v1/chat/completions", chat_completions, methods=["POST"])]
