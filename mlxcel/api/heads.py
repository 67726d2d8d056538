"""What a request's head must be, beyond what the parser sees to, before anything is done for it."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from mlxcel.api.connection import MAX_HEAD_BYTES, head_too_large
from mlxcel.errors import MalformedRequest, UnsupportedCoding

VERSIONS = ("1.0", "1.1")
SINGLE = ("authorization", "x-api-key")
"""Headers of which two would leave open which one counts."""


def check_head(scope: Scope) -> None:
    """Errors: HeadTooLarge; MalformedRequest; UnsupportedCoding for a body that would have to be unpacked."""
    headers = Headers(scope=scope)
    if sum(len(name) + len(value) for name, value in headers.raw) + len(scope["raw_path"]) > MAX_HEAD_BYTES:
        raise head_too_large()
    if scope["http_version"] not in VERSIONS:
        raise MalformedRequest(
            f"the request is of HTTP/{scope['http_version']}, but this server speaks HTTP/1.1; nothing was done"
        )
    for name in SINGLE:
        if len(headers.getlist(name)) > 1:
            raise MalformedRequest(f"the request has the header {name!r} twice; nothing was done. Send one")
    _check_codings(headers)


def _check_codings(headers: Headers) -> None:
    framing = headers.getlist("transfer-encoding")
    if framing and "content-length" in headers:
        raise MalformedRequest("the request has a length and a transfer coding, which differ; nothing was done")
    if framing and [coding.strip().lower() for coding in framing] != ["chunked"]:
        raise MalformedRequest("the only transfer coding that this server knows is 'chunked'; nothing was done")
    for coding in ",".join(headers.getlist("content-encoding")).split(","):
        if coding.strip().lower() not in ("", "identity"):
            raise UnsupportedCoding(
                f"a body in the content coding {coding.strip()[:60]!r} is not read here; nothing was done. Send it as "
                "it is"
            )
