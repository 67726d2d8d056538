"""The text of /metrics, in the form that its reader accepts."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, exposition


def page_of(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The page and its media type: OpenMetrics or plain Prometheus text, as the Accept header prefers."""
    encode, media_type = exposition.choose_encoder(accept)
    if isinstance(encode, partial) and "escaping" in encode.keywords:
        # All our names are legal under every scheme of escaping, and prometheus_client's one for readers that ask for
        # none turns the colons of OpenMetrics samples into underscores (0.23 and later).
        encode = partial(encode, escaping="allow-utf-8")
    return encode(registry), media_type
