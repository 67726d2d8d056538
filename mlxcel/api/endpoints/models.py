"""GET /v1/models and /v1/models/{id}: the one served model."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel.api.service import Service
from mlxcel.api.statuses import json_response
from mlxcel.api.wire.responses import model_body, models_body


def routes(service: Service) -> list[Route]:
    served = service.model

    async def models(_: Request) -> Response:
        return json_response(models_body(served.id, served.created))

    async def model(request: Request) -> Response:
        service.check_model(request.path_params["model_id"])
        return json_response(model_body(served.id, served.created))

    return [Route("/v1/models", models), Route("/v1/models/{model_id:path}", model)]
