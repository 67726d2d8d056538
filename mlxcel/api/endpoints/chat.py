"""POST /v1/chat/completions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.answer import answer
from mlxcel.api.chat import converse
from mlxcel.api.intake import Intake, priority_of
from mlxcel.api.service import Service, now_s
from mlxcel.api.wire.chat import ChatFields
from mlxcel.api.wire.responses import ChatShape


def routes(service: Service, intake: Intake) -> list[Route]:
    async def chat_completions(request: Request) -> Response:
        fields, headers = await intake.fields(request, ChatFields)
        choices = await converse(request.receive, service, fields.conversation(), fields, priority_of(request))
        shape = ChatShape(
            choices.id,
            now_s(),
            service.model.id,
            wants_usage=fields.wants_usage_chunk,
            n_choices=fields.n_choices,
        )
        return await answer(request, service.metrics, choices, shape, fields, headers)

    return [Route("/v1/chat/completions", chat_completions, methods=["POST"])]
