"""The ASGI application: every endpoint's routes over one service, and the error table."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from mlxcel.api.endpoints import chat, completions, embeddings, messages, models, openapi, responses, status, tokens
from mlxcel.api.intake import Intake
from mlxcel.api.service import Service
from mlxcel.api.statuses import EXCEPTION_HANDLERS
from mlxcel.config.settings import ServeSettings


def make_app(service: Service, settings: ServeSettings) -> Starlette:
    """The application over a service."""
    app = Starlette(routes=all_routes(service, settings), exception_handlers=dict(EXCEPTION_HANDLERS))
    # A path is served or it is not: no redirects to one without a slash.
    app.router.redirect_slashes = False
    return app


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
