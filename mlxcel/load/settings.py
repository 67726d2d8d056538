"""What one load run does. Knows no socket; refuses what cannot be run before anything is sent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from mlxcel.errors import InputError

# Every gap between two chunks is kept, 8 bytes each, so that percentiles are exact.
MAX_TOKENS_IN_ALL = 50_000_000


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """`n_clients` clients send `n_requests` requests each, one after another.

    The prompt has `prompt_words` words; with `prompt_tokens` the number of words is found by asking the
    server for the length of two trial prompts. `ramp_s` spreads the clients' starts. `extra` is merged into
    each request's body. No time is unbounded: a request that takes longer than `request_timeout_s`, or is
    not done when `total_timeout_s` is over, is a failure.

    Errors: InputError, with the setting's name as `param`.
    """

    url: str
    n_clients: int = 8
    n_requests: int = 3
    prompt_words: int = 200
    prompt_tokens: int | None = None
    max_tokens: int = 128
    endpoint: Literal["completions", "chat"] = "completions"
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float = 0.0
    seed: int = 0
    ramp_s: float = 0.0
    request_timeout_s: float = 600.0
    total_timeout_s: float = 3600.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("n_clients", "n_requests", "prompt_words", "max_tokens", "prompt_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1", param=name)
        for name, least in (("ramp_s", 0.0), ("request_timeout_s", 0.001), ("total_timeout_s", 0.001)):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= least):
                raise InputError(f"{name} must be a finite number of at least {least:g}", param=name)
        if self.endpoint not in ("completions", "chat"):
            raise InputError(f"endpoint is {self.endpoint!r}; use completions or chat", param="endpoint")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InputError("api_key holds characters that no HTTP header can carry", param="api_key")
        n_tokens = self.n_clients * self.n_requests * self.max_tokens
        if n_tokens > MAX_TOKENS_IN_ALL:
            raise InputError(
                f"n_clients x n_requests x max_tokens is {n_tokens}; one run measures at most "
                f"{MAX_TOKENS_IN_ALL} tokens, so ask for fewer requests",
                param="n_requests",
            )
        self.address()

    def address(self) -> "Address":
        """Where the requests go. The url may end in /v1 or not."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError(f"url {self.url!r}: {error}", param="url") from error
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise InputError(f"url {self.url!r}: give http://host:port or https://host:port", param="url")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        path = f"{prefix}/v1/{'chat/completions' if self.endpoint == 'chat' else 'completions'}"
        if not (path.isascii() and path.isprintable() and " " not in path and host.isascii()):
            raise InputError(f"url {self.url!r} holds characters that must be escaped", param="url")
        is_tls = parts.scheme == "https"
        return Address(host=host, port=port or (443 if is_tls else 80), path=path, is_tls=is_tls)


@dataclass(frozen=True, kw_only=True)
class Address:
    """A server and the path of its endpoint."""

    host: str
    port: int
    path: str
    is_tls: bool
