"""POST /tokenize, /detokenize and /apply-template: text, token ids and prompts, of which nothing is generated."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.chat import encode, render
from mlxcel.api.intake import Intake
from mlxcel.api.service import Service
from mlxcel.api.statuses import json_response
from mlxcel.api.stream import unless_client_leaves
from mlxcel.api.wire.tokens import DetokenizeFields, TemplateFields, TokenizeFields, pieces
from mlxcel.model.tokenizer import Tokenizer


def routes(service: Service, intake: Intake) -> list[Route]:
    async def tokenize(request: Request) -> Response:
        fields, headers = await intake.fields(request, TokenizeFields)
        conversation = fields.conversation()

        def tokens(tokenizer: Tokenizer) -> dict[str, Any]:
            if conversation is not None:
                ids = encode(conversation, tokenizer)
            else:
                ids = tokenizer.encode(
                    fields.text, adds_special=fields.adds_special, parses_control=fields.parse_special is not False
                )
            shown = pieces(ids, map(tokenizer.vocabulary.bytes_of, ids)) if fields.with_pieces else ids
            return {"tokens": shown, "count": len(ids), "max_model_len": service.model.context_tokens}

        body = await unless_client_leaves(request.receive, service.tokenize(tokens))
        return json_response(body, headers=headers)

    async def detokenize(request: Request) -> Response:
        fields, headers = await intake.fields(request, DetokenizeFields)
        text = await unless_client_leaves(
            request.receive, service.tokenize(lambda tokenizer: tokenizer.decode(fields.tokens))
        )
        return json_response({"content": text, "prompt": text}, headers=headers)

    async def apply_template(request: Request) -> Response:
        fields, headers = await intake.fields(request, TemplateFields)
        conversation = fields.conversation()
        rendering = service.tokenize(lambda tokenizer: render(conversation, tokenizer))
        return json_response({"prompt": await unless_client_leaves(request.receive, rendering)}, headers=headers)

    return [
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
        Route("/apply-template", apply_template, methods=["POST"]),
    ]
