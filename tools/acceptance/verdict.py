"""How a check says that a row did not pass. Whatever the server did is one of these, never an error of the tool."""

from __future__ import annotations

from .expected import Expected, first_difference
from .report import Difference


class DoesNotApply(Exception):
    """The row cannot be tried with this server or this model; the message says why."""


class Differs(Exception):
    """The server did something else than it should."""

    def __init__(self, message: str, difference: Difference | None = None) -> None:
        super().__init__(message)
        self.difference = difference


class RequestFailed(Differs):
    """A request that should have been answered was not."""


class Refused(RequestFailed):
    """An answer with an error status. `headers` have lower-case names."""

    def __init__(self, status: int, headers: dict[str, str], body: str) -> None:
        super().__init__(f"refused with {status}: {body[:300]}")
        self.status = status
        self.headers = headers
        self.body = body


class Malformed(RequestFailed):
    """An answer that no OpenAI client can read, or that ends early."""


class Unanswered(RequestFailed):
    """No answer in time, or a connection that broke: the server may have died or hang."""


class NotStarted(Differs):
    """The server did not begin to answer."""


def require_text(expected: Expected, got: str, finish: str | None, *, what: str) -> None:
    """Errors: Differs at the first differing token, or where only the finish reason is another."""
    difference = first_difference(expected, got)
    if difference and difference.token is None:
        raise Differs(f"{what}: the text goes on after token {len(expected.tokens)}, where it should end", difference)
    if difference:
        raise Differs(f"{what}: another text from token {difference.token} on", difference)
    if finish != expected.finish:
        raise Differs(f"{what}: the text is right, but finish_reason is {finish!r}, not {expected.finish!r}")
