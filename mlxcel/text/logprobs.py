"""The log-probabilities of an answer's tokens, told as their text is shown. Knows no model and no API's words."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mlxcel.core import TokenLogprobs

BytesOf = Callable[[int], bytes]
"""What a token stands for; it may be part of a character."""


class ReportedToken(NamedTuple):
    """A token and its logprob, None for a text's first; `top` are the most likely in its place, most likely first.

    `offset` is where its text begins, in characters; a character's later bytes begin where it does.
    """

    token: bytes
    offset: int
    logprob: float | None
    top: tuple[tuple[bytes, float], ...] = ()


class LogprobStream:
    """One answer's tokens in; out, each once some of its text is shown. So what a stop string hides stays hidden.

    `echoed` is the text before the answer, if its prompt is shown.
    """

    def __init__(self, bytes_of: BytesOf, echoed: str = "") -> None:
        self._bytes_of = bytes_of
        self._echoed = echoed
        self._offsets = _Offsets(len(echoed))
        self._waiting: deque[ReportedToken] = deque()
        self._n_shown = len(echoed)
        self._n_trimmed: int | None = None if not echoed else 0

    def prompt(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> list[ReportedToken]:
        """The tokens of the prompt; those that the tokenizer put before its text have no place in that."""
        text = b"".join(map(self._bytes_of, tokens)).decode(errors="replace")
        offsets = _Offsets(-max(0, text.find(self._echoed)))
        reported = [ReportedToken(self._bytes_of(tokens[0]), offsets.next(self._bytes_of(tokens[0])), None)]
        reported += [self._report(token, offsets, one) for token, one in zip(tokens[1:], logprobs, strict=True)]
        return [one._replace(offset=max(0, one.offset)) for one in reported]

    def add(self, token: int, logprobs: TokenLogprobs) -> None:
        """Take the next token of the answer, before the text that it settles is shown."""
        self._waiting.append(self._report(token, self._offsets, logprobs))

    def shown(self, text: str) -> list[ReportedToken]:
        """Take the next text that is shown; give the tokens that it shows."""
        if self._n_trimmed is None and text and self._waiting:
            # Detokenizers leave out the space that begins a text.
            self._n_trimmed = int(self._waiting[0].token.startswith(b" ") and not text.startswith(" "))
        self._n_shown += len(text)
        n_trimmed = self._n_trimmed or 0
        return self._take(sum(max(0, one.offset - n_trimmed) < self._n_shown for one in self._waiting))

    def finish(self) -> list[ReportedToken]:
        """No more text follows: the tokens that have none."""
        return self._take(len(self._waiting))

    def _take(self, n: int) -> list[ReportedToken]:
        taken = [self._waiting.popleft() for _ in range(n)]
        return [one._replace(offset=max(0, one.offset - (self._n_trimmed or 0))) for one in taken]

    def _report(self, token: int, offsets: _Offsets, logprobs: TokenLogprobs) -> ReportedToken:
        data = self._bytes_of(token)
        top = tuple((self._bytes_of(other), logprob) for other, logprob in logprobs.top)
        return ReportedToken(data, offsets.next(data), logprobs.chosen, top)


class _Offsets:
    """Where each of a text's tokens begins, in characters."""

    def __init__(self, start: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_chars = start

    def next(self, data: bytes) -> int:
        """Where a token of these bytes begins, after those before it."""
        # A character that these bytes do not go on with has its U+FFFD before them.
        start = self._n_chars + self._is_broken_by(data[:1])
        self._n_chars += len(self._decoder.decode(data))
        return start

    def _is_broken_by(self, first: bytes) -> bool:
        """Whether a character has begun that cannot go on with this byte."""
        begun, _ = self._decoder.getstate()
        try:
            codecs.getincrementaldecoder("utf-8")().decode(begun + first)
        except UnicodeDecodeError:
            return bool(begun)
        return False
