"""GET /openapi.json: what this server serves, for programs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel import __version__
from mlxcel.api.openapi.document import openapi_document
from mlxcel.api.statuses import json_response


def routes(*, asks_for_keys: bool) -> list[Route]:
    document = openapi_document(__version__, asks_for_keys=asks_for_keys)

    async def openapi(_: Request) -> Response:
        return json_response(document)

    return [Route("/openapi.json", openapi)]
