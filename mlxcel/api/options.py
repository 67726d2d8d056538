"""OPTIONS: which methods a path has."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send


class Options:
    """Answers OPTIONS with Allow; a path that nobody serves, and every other method, is the application's."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS" and (methods := self._methods(scope)):
            headers = {"allow": ", ".join(sorted({"OPTIONS", *methods}))}
            await Response(status_code=204, headers=headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _methods(self, scope: Scope) -> set[str]:
        matching = (route for route in self._routes if route.matches(scope)[0] is not Match.NONE)
        return {method for route in matching if isinstance(route, Route) for method in route.methods or ()}
