"""A detokenizer for tokenizers that can only decode whole lists. Knows of the tokenizer its `decode` alone.

mlx_lm has its naive detokenizer for them, which decodes the whole line again for every token: over a line of
1000 tokens some 20 times the cost, on the thread that serves every stream. This one decodes the newest tokens
and, for context, the piece before them. Deliberate differences from mlx_lm:

1. An unfinished character is held back even if it decodes to several U+FFFD (mlx_lm 0.31.3 shows all but the
   last of them, and then loses the character).
2. A space at the end is always held back, since decoding may drop it once the next token is known. Joined,
   the pieces are the same.
"""

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"


class WindowDetokenizer:
    """A `Detokenizer` over `decode`, which turns token ids to text. A line end ends the context, as in mlx_lm.

    Source: the prefix and read offsets of Hugging Face's text-generation-inference.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self.reset()

    def reset(self) -> None:
        self._window: list[int] = []
        self._n_settled = 0  # tokens at the window's start whose text was given away
        self._settled = ""  # what they decode to
        self._segment = ""

    def add_token(self, token: int) -> None:
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith((UNFINISHED, " ")):
            return
        self._segment += text[len(self._settled) :]
        if text.endswith("\n"):
            self._window, self._settled = [], ""
        elif piece := self._decode(self._window[self._n_settled :]):
            # The piece alone is context enough for the next, as long as it has any text.
            self._window, self._settled = self._window[self._n_settled :], piece
        else:
            self._settled = text
        self._n_settled = len(self._window)

    def finalize(self) -> None:
        if self._window:
            self._segment += self._decode(self._window)[len(self._settled) :]
        self._window, self._n_settled, self._settled = [], 0, ""

    @property
    def last_segment(self) -> str:
        segment, self._segment = self._segment, ""
        return segment
