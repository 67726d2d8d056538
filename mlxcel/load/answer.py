"""One request's answer as its frames arrive: when, how many tokens, how it ended. Knows no socket."""

from array import array
from dataclasses import dataclass, field

import msgspec

DONE = b"[DONE]"


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    def has_content(self) -> bool:
        delta = self.delta
        if delta is None:
            return bool(self.text)
        return bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)


class Usage(msgspec.Struct):
    """The server's own count."""

    prompt_tokens: int
    completion_tokens: int


class _ServerError(msgspec.Struct):
    message: str | None = None


class _Frame(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: _ServerError | str | None = None


_decoder = msgspec.json.Decoder(_Frame)


@dataclass(frozen=True)
class Failure:
    """Why a request did not get its whole answer. `kind` is what failures are counted by."""

    kind: str
    message: str


@dataclass(slots=True)
class Answer:
    """Times are seconds on one monotonic clock. A chunk is a frame with text in it; chunks that one read
    brings have the same time. `gaps_s` are the times between one chunk and the next."""

    sent_s: float
    first_chunk_s: float | None = None
    last_chunk_s: float = 0.0
    ended_s: float = 0.0
    n_chunks: int = 0
    gaps_s: "array[float]" = field(default_factory=lambda: array("d"))
    usage: Usage | None = None
    finish_reason: str | None = None
    is_done: bool = False
    failure: Failure | None = None

    def fail(self, kind: str, message: str) -> None:
        """The first failure is the one that counts."""
        if self.failure is None:
            self.failure = Failure(kind, message)

    def take(self, payload: bytes, now_s: float) -> None:
        """One event's payload."""
        if payload == DONE:
            self.is_done = True
            return
        try:
            frame = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.fail("bad frame", f"{error}: {payload[:200]!r}")
            return
        if frame.error is not None:
            message = frame.error if isinstance(frame.error, str) else frame.error.message
            self.fail("error frame", message or "no message")
        for choice in frame.choices:
            if choice.finish_reason is not None:
                self.finish_reason = choice.finish_reason
            if choice.has_content():
                self._note_chunk(now_s)
        if frame.usage is not None:
            self.usage = frame.usage

    def _note_chunk(self, now_s: float) -> None:
        if self.first_chunk_s is None:
            self.first_chunk_s = now_s
        else:
            self.gaps_s.append(now_s - self.last_chunk_s)
        self.last_chunk_s = now_s
        self.n_chunks += 1
