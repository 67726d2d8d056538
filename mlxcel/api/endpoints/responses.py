"""POST /v1/responses, and GET, DELETE, cancel and the input by id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.answer import answer
from mlxcel.api.archive import KeptResponse, ResponseArchive
from mlxcel.api.chat import converse
from mlxcel.api.intake import Intake, priority_of
from mlxcel.api.service import Service, now_s
from mlxcel.api.statuses import json_response
from mlxcel.api.wire.input_items import input_items, items_page
from mlxcel.api.wire.response_objects import ResponseShape, template_message
from mlxcel.api.wire.response_requests import ResponseFields
from mlxcel.errors import InputError
from mlxcel.text.deltas import Message


def routes(service: Service, intake: Intake) -> list[Route]:
    archive = ResponseArchive()
    # Weak, so that a stream which ends in whatever way is gone from here too.
    running: WeakValueDictionary[str, ResponseShape] = WeakValueDictionary()
    cancels: WeakKeyDictionary[ResponseShape, Callable[[], None]] = WeakKeyDictionary()

    async def create(request: Request) -> Response:
        fields, headers = await intake.fields(request, ResponseFields)
        previous = fields.previous_response_id
        before = archive.get(previous, "previous_response_id").messages if previous is not None else []
        messages = fields.messages(before)
        choices = await converse(request.receive, service, fields.conversation(messages), fields, priority_of(request))

        def keep(body: dict[str, Any], message: Message) -> None:
            running.pop(body["id"], None)
            if fields.is_kept:
                items = input_items(body["id"], fields.input)
                archive.keep(KeptResponse(body, [*messages, template_message(message)], items))

        shape = ResponseShape(choices.id, now_s(), service.model.id, fields, keep)
        running[shape.id], cancels[shape] = shape, choices.cancel
        return await answer(request, service.metrics, choices, shape, fields, headers)

    async def by_id(request: Request) -> Response:
        return delete(request) if request.method == "DELETE" else retrieve(request)

    def retrieve(request: Request) -> Response:
        if request.query_params.get("stream", "false") != "false":
            raise InputError(
                "a response that is kept is not streamed again; nothing was done. Leave the parameter out",
                param="stream",
                code="unsupported_value",
            )
        response_id = request.path_params["response_id"]
        shape = running.get(response_id)
        if shape is not None:
            return json_response(shape.body("in_progress"))
        return json_response(archive.get(response_id, "response_id").body)

    def delete(request: Request) -> Response:
        response_id = request.path_params["response_id"]
        archive.delete(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def list_input_items(request: Request) -> Response:
        kept = archive.get(request.path_params["response_id"], "response_id")
        return json_response(items_page(kept.input_items, request.query_params))

    async def cancel(request: Request) -> Response:
        response_id = request.path_params["response_id"]
        shape = running.get(response_id)
        if shape is None:
            body = archive.get(response_id, "response_id").body
            raise InputError(
                f"the response has ended ({body['status']}), so it cannot be cancelled; nothing was done",
                param="response_id",
                code="response_ended",
            )
        cancels[shape]()
        return json_response(shape.body("cancelled"))

    return [
        Route("/v1/responses", create, methods=["POST"]),
        # One route, so that Allow names both methods.
        Route("/v1/responses/{response_id}", by_id, methods=["GET", "DELETE"]),
        Route("/v1/responses/{response_id}/input_items", list_input_items, methods=["GET"]),
        Route("/v1/responses/{response_id}/cancel", cancel, methods=["POST"]),
    ]
