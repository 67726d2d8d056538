"""The ASGI application: every endpoint's routes over one service, the error table, and who may ask."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from mlxcel.api.admission import Hosts, Keys, Origins
from mlxcel.api.edge import Edge
from mlxcel.api.endpoints import chat, completions, embeddings, messages, models, openapi, responses, status, tokens
from mlxcel.api.intake import Intake
from mlxcel.api.options import Options, Preflights
from mlxcel.api.service import Service
from mlxcel.api.statuses import EXCEPTION_HANDLERS
from mlxcel.config.settings import ServeSettings

READABLE_HEADERS = ("x-request-id", "x-ignored-fields", "retry-after")


def make_app(service: Service, settings: ServeSettings, keys: Sequence[str] = ()) -> ASGIApp:
    """The application over a service; clients need one of the `keys`, where there are any."""
    routes = all_routes(service, settings, asks_for_keys=bool(keys))
    app = Starlette(
        routes=routes,
        exception_handlers=dict(EXCEPTION_HANDLERS),
        middleware=[*_cors(settings.cors_origins, routes), *_keys(keys), Middleware(Options, routes=routes)],
    )
    # A path is served or it is not: no redirects to one without a slash.
    app.router.redirect_slashes = False
    hosts = Hosts((settings.host, *settings.allowed_hosts))
    return Edge(app, hosts, Origins(settings.cors_origins), service.metrics.responses)


def all_routes(service: Service, settings: ServeSettings, *, asks_for_keys: bool = False) -> list[BaseRoute]:
    """What is served: the routes of every endpoint."""
    intake = Intake(service, settings)
    return [
        *completions.routes(service, intake),
        *chat.routes(service, intake),
        *messages.routes(service, intake),
        *responses.routes(service, intake),
        *tokens.routes(service, intake),
        *embeddings.routes(intake),
        *models.routes(service),
        *status.routes(service),
        *openapi.routes(asks_for_keys=asks_for_keys),
    ]


def _cors(origins: Sequence[str], routes: Sequence[BaseRoute]) -> list[Middleware]:
    if not origins:
        return []
    methods, headers = ["GET", "POST", "DELETE"], ["*"]
    return [
        Middleware(Preflights, routes=routes),
        Middleware(
            CORSMiddleware,
            allow_origins=origins, allow_methods=methods, allow_headers=headers, expose_headers=READABLE_HEADERS,
        ),
    ]  # fmt: skip


def _keys(keys: Sequence[str]) -> list[Middleware]:
    return [Middleware(Keys, keys=keys)] if keys else []
