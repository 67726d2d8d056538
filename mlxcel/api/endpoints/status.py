"""GET /health and /metrics: what the process says of itself, never through the engine thread."""

from __future__ import annotations

from prometheus_client import exposition
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mlxcel import __version__
from mlxcel.api.service import Phase, Service
from mlxcel.api.statuses import json_response


def routes(service: Service) -> list[Route]:
    async def health(_: Request) -> Response:
        phase = service.phase
        body = {"status": "ok" if phase is Phase.READY else phase.value, "version": __version__}
        return json_response(body, status=200 if phase is Phase.READY else 503)

    async def metrics(request: Request) -> Response:
        encode, media_type = exposition.choose_encoder(request.headers.get("accept", ""))
        return Response(encode(service.metrics.registry), headers={"content-type": media_type})

    return [Route("/health", health), Route("/metrics", metrics)]
