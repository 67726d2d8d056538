"""POST /v1/messages and /v1/messages/count_tokens, as Anthropic's clients know them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.answer import answer
from mlxcel.api.chat import converse, encode
from mlxcel.api.intake import Intake, priority_of
from mlxcel.api.service import Service
from mlxcel.api.statuses import json_response
from mlxcel.api.stream import unless_client_leaves
from mlxcel.api.wire.message_answers import MessageShape
from mlxcel.api.wire.messages import CountTokensFields, MessagesFields


def routes(service: Service, intake: Intake) -> list[Route]:
    async def messages(request: Request) -> Response:
        fields, headers = await intake.fields(request, MessagesFields)
        choices = await converse(request.receive, service, fields.conversation(), fields, priority_of(request))
        shape = MessageShape(choices.id, service.model.id)
        return await answer(request, service.metrics, choices, shape, fields, headers)

    async def count_tokens(request: Request) -> Response:
        fields, headers = await intake.fields(request, CountTokensFields)
        conversation = fields.conversation()
        encoding = service.tokenize(lambda tokenizer: encode(conversation, tokenizer))
        prompt = await unless_client_leaves(request.receive, encoding)
        return json_response({"input_tokens": len(prompt)}, headers=headers)

    return [
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    ]
