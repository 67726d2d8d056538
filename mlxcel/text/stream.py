"""The text of one sequence as its tokens come, cut at the first stop string. Knows no request or frame.

The pieces joined are what mlx_lm.stream_generate yields joined for the same tokens, cut at the match.
U+FFFD stands only for bytes that no later token can complete: an unfinished character stays back until
it is whole or the sequence ends.
"""

from collections.abc import Sequence

from mlxcel.text.detokenize import Detokenizer
from mlxcel.text.stop import StopMatcher


class TextStream:
    """Tokens in, text that may be shown out. Give it no end-of-sequence token: that one has no text.

    `after` are tokens whose text is shown before this one: without them a space that begins it is left out.

    Owner: the thread that owns the detokenizer, which nothing else may use.
    Changes: `stopped_by` names the stop string once one is found, by `add` or by `finish`; from then on
        every piece is empty.
    Errors: InputError for an empty stop string; whatever the detokenizer raises for a token that its
        vocabulary lacks.
    """

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str] = (), after: Sequence[int] = ()) -> None:
        self.stopped_by: str | None = None
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops) if stops else None
        detokenizer.reset()
        for token in after:
            detokenizer.add_token(token)
        _ = detokenizer.last_segment

    def add(self, token: int) -> str:
        """Take the next token; give the text that it settles, often one word, often nothing."""
        if self.stopped_by is not None:
            return ""
        self._detokenizer.add_token(token)
        text = self._detokenizer.last_segment
        return text if self._matcher is None else self._match(self._matcher, text)

    def finish(self) -> str:
        """No token follows: give the text that was still held back. Again: nothing."""
        if self.stopped_by is not None:
            return ""
        self._detokenizer.finalize()
        text = self._detokenizer.last_segment
        if self._matcher is None:
            return text
        text = self._match(self._matcher, text) + self._matcher.flush()
        self.stopped_by = self._matcher.matched
        return text

    def _match(self, matcher: StopMatcher, text: str) -> str:
        shown = matcher.feed(text)
        self.stopped_by = matcher.matched
        return shown
