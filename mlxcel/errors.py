"""What can go wrong, in three kinds: the caller's input, our state, a bug.

An error says what happened, what is unchanged, and what to do next. It carries a stable `code`; which HTTP
status or exit code a kind becomes is decided in one table at the edge (`api.app`, `cli.exits`), not here.
"""

from __future__ import annotations


class MlxcelError(Exception):
    """Every error that mlxcel raises on purpose. `code` is stable: scripts may match on it."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


def reason_of(error: BaseException | str) -> str:
    """Another library's error, or its words, as one line of bounded length, for a message of ours."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


class InputError(MlxcelError):
    """The caller's input. `param` names the field, flag or key that is wrong, where there is one."""

    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param


class StateError(MlxcelError):
    """Our state: the input was fine, and the same call may succeed later. `retry_after_s` says when."""

    code = "unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class BugError(MlxcelError):
    """Our own rules were broken. Nothing a caller can do but report it."""

    code = "internal_error"


class ConfigError(InputError):
    """A setting that cannot be used; `param` is the key, and the message names where it was set."""

    code = "bad_config"


class ModelError(InputError):
    """A model folder or model file that cannot be used as it is."""

    code = "bad_model"


class FileExistsAlready(InputError):
    """The target of a write exists and was left as it is."""

    code = "exists"


class UnknownModel(InputError):
    """A request names a model that is not the served one."""

    code = "model_not_found"


class UnknownResponse(InputError):
    """No response is kept under this id."""

    code = "response_not_found"


class MalformedRequest(InputError):
    """Bytes that are no HTTP request, or a body that is not as long as its head says."""

    code = "malformed_request"


class HeadTooLarge(InputError):
    """A request line and headers that are too large."""

    code = "head_too_large"


class SlowRequest(InputError):
    """A request that did not arrive within --request-read-timeout."""

    code = "slow_request"


class Unauthorized(InputError):
    """No key, or none that this server knows."""

    code = "invalid_api_key"


class ForeignHost(InputError):
    """A Host that is not this server's: a page elsewhere may have had its own name point here."""

    code = "foreign_host"


class ForeignOrigin(InputError):
    """A page that is neither this server's nor of a named origin sends a request through somebody's browser."""

    code = "foreign_origin"


class UnsupportedCoding(InputError):
    """A body that is packed in a way that is not read here."""

    code = "unsupported_coding"


class BodyTooLarge(InputError):
    """A request body over --max-body-bytes."""

    code = "body_too_large"


class ContextLengthExceeded(InputError):
    """A request that can never fit the model's context. The message holds both sizes."""

    code = "context_length_exceeded"


class ServerBusy(StateError):
    """No room for another request now."""

    code = "server_busy"


def all_places_taken(n_places: int, *, retry_after_s: int | None = None) -> ServerBusy:
    """The refusal of a request for which there is neither a place to run nor one to wait."""
    return ServerBusy(
        f"all {n_places} places (running and waiting) are taken; nothing was started. "
        "Try again shortly, or start the server with a larger --max-queue-depth",
        retry_after_s=retry_after_s,
    )


class NotReady(StateError):
    """The model is loading, or the server is draining."""

    code = "not_ready"


class RequestTimedOut(StateError):
    """A request that took longer than --request-timeout."""

    code = "request_timed_out"


def request_timed_out(limit_s: float) -> RequestTimedOut:
    """The end of a request that is not done when its time is over."""
    return RequestTimedOut(
        f"the request took longer than --request-timeout ({limit_s:g} s) and was ended; ask for fewer tokens, or start "
        "the server with a larger one"
    )


class PortInUse(StateError):
    """The address that we were told to listen on is taken."""

    code = "port_in_use"


class GenerationError(BugError):
    """A sequence ended because its own step failed; the others went on."""

    code = "generation_failed"


class EngineDead(BugError):
    """The engine's or the tokenizer's thread is gone or hangs; the process is about to exit."""

    code = "engine_dead"
