"""Who may ask: the Host that a request names, the Origin of the page that sends it, and the key that it carries."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from mlxcel.api.statuses import error_response
from mlxcel.errors import ForeignHost, ForeignOrigin, MalformedRequest, Unauthorized

ANY = "*"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
OPEN_PATHS = ("/health",)
"""Answered without a key: whether the server lives."""

_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


class Hosts:
    """The names that this server answers to, so that no page elsewhere reaches it by a name of its own.

    Beside `named` these are this machine's own for itself, and the address that a connection came in on.
    """

    def __init__(self, named: Iterable[str]) -> None:
        self._names = {_plain(name) for name in (*LOCAL_HOSTS, *named)}

    def check(self, scope: Scope) -> None:
        """Errors: MalformedRequest for a Host that is missing, doubled or no name; ForeignHost."""
        sent = Headers(scope=scope).getlist("host")
        if not sent and scope["http_version"] == "1.0":
            return
        match = _HOST.fullmatch(sent[0]) if len(sent) == 1 else None
        if match is None:
            raise MalformedRequest("the request needs one Host header with a host and a port; nothing was done")
        name = _plain(match[1])
        if ANY not in self._names and name not in self._names and name != _own_address(scope):
            raise ForeignHost(
                f"this server does not answer to the host {name!r}; nothing was done. Start it with --allowed-hosts "
                f"{name} if it should"
            )


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _own_address(scope: Scope) -> str | None:
    """Where the connection came in, as a Host header has it."""
    if scope["server"] is None:
        return None
    address = str(scope["server"][0])
    return f"[{address}]" if ":" in address else address


class Origins:
    """The pages whose requests are taken: those that this server's own Host serves, and the `named`.

    A browser sends some requests for any page without asking first, and only keeps the answer from it.
    """

    def __init__(self, named: Iterable[str]) -> None:
        self._named = frozenset(named)

    def check(self, scope: Scope) -> None:
        """A request without an Origin is no page's. The Host must have been checked.

        Errors: ForeignOrigin.
        """
        headers = Headers(scope=scope)
        own = headers.get("host", "").lower()
        for origin in headers.getlist("origin"):
            if not (ANY in self._named or origin in self._named or (own and _authority(origin) == own)):
                raise ForeignOrigin(
                    f"this server takes no requests from pages of {origin[:200]!r}; nothing was done. Start it with "
                    "--cors-origins and that origin if it should"
                )


def _authority(origin: str) -> str:
    """The host and port of a page's origin; a default port is left out, as browsers do."""
    return origin.lower().partition("://")[2]


class Keys:
    """Asks for one of the `keys`, in constant time; OPTIONS and the open paths need none.

    They come as `Authorization: Bearer` or, as Anthropic's clients send them, as `x-api-key`.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS" or scope["path"] in OPEN_PATHS or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = Unauthorized(
            "this server asks for a key, and the request has none that it knows; nothing was done. Send one as "
            "'Authorization: Bearer KEY' or as 'x-api-key: KEY'"
        )
        await error_response(scope, error)(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        offered = [headers.get("x-api-key", ""), token.strip() if scheme.lower() == "bearer" else ""]
        # Every key is compared with every offer, so that the time tells nothing of either.
        return sum(hmac.compare_digest(_digest(offer), known) for offer in offered for known in self._digests) > 0


def _digest(key: str) -> bytes:
    return sha256(key.encode("latin-1")).digest()
