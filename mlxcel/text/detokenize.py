"""What a stream needs from a detokenizer. Knows no tokenizer: the model room hands one in."""

from typing import Protocol


class Detokenizer(Protocol):
    """Turns the tokens of one sequence into text as they come; one object per sequence.

    mlx_lm's streaming detokenizers (SPM, BPE and naive) have this shape. Text that a later token may
    still change (an incomplete character, a space that may be trimmed) is left out of `last_segment`
    until it is settled or `finalize` is called.

    Source: mlx_lm/tokenizer_utils.py, StreamingDetokenizer.
    """

    def reset(self) -> None:
        """Forget all tokens; what was derived from the vocabulary stays."""

    def add_token(self, token: int) -> None:
        """Take the next token."""

    def finalize(self) -> None:
        """Settle whatever was still open: no token follows."""

    @property
    def last_segment(self) -> str:
        """The text settled since this property was read last; reading it moves the mark."""
