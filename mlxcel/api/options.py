"""OPTIONS: which methods a path has, and what a page of another origin may ask."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

ASKED_METHOD = "access-control-request-method"
WHOLE_SERVER = "*"


class Options:
    """Answers OPTIONS with Allow; a path that nobody serves, and every other method, is the application's."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS" and (methods := methods_of(self._routes, scope)):
            headers = {"allow": ", ".join(sorted({"OPTIONS", *methods}))}
            await Response(status_code=204, headers=headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class Preflights:
    """Stands before CORS, which refuses in words of its own and permits what no path has.

    Such a preflight becomes an OPTIONS like any other: its answer permits nothing.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Headers(scope=scope).get(ASKED_METHOD)
        if scope["method"] == "OPTIONS" and asked is not None and asked not in methods_of(self._routes, scope):
            headers = [(name, value) for name, value in scope["headers"] if name != ASKED_METHOD.encode()]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


def methods_of(routes: Sequence[BaseRoute], scope: Scope) -> set[str]:
    """The methods that a request's path has, or all that any has where it is the whole server that is asked."""
    matching = (route for route in routes if scope["path"] == WHOLE_SERVER or route.matches(scope)[0] is not Match.NONE)
    return {method for route in matching if isinstance(route, Route) for method in route.methods or ()}
