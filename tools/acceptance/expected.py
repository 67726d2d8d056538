"""What the reference says of a prompt, and where a server's text leaves it. Pure."""

from __future__ import annotations

from .report import Difference, Value

CONTEXT_CHARACTERS = 40


class Prompt(Value, frozen=True, kw_only=True):
    """A prompt of a known length: a plain text, or a conversation with one message of the user.

    Units: n_tokens counts what the model sees, the template included.
    """

    text: str
    n_tokens: int
    is_chat: bool = False

    @property
    def kind(self) -> str:
        return "chat" if self.is_chat else "completions"


class Expected(Value, frozen=True, kw_only=True):
    """The reference's answer. `pieces[i]` is the text that token i added; the token that stops adds none."""

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    finish: str
    n_prompt_tokens: int
    tool: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def first_difference(expected: Expected, got: str) -> Difference | None:
    """Where `got` leaves the expected text; None where they are equal."""
    text = expected.text
    if got == text:
        return None
    shared = next((at for at, (a, b) in enumerate(zip(text, got, strict=False)) if a != b), min(len(text), len(got)))
    return Difference(
        token=_token_at(expected.pieces, shared),
        character=shared,
        context=text[max(0, shared - CONTEXT_CHARACTERS) : shared],
        expected=text[shared : shared + CONTEXT_CHARACTERS],
        got=got[shared : shared + CONTEXT_CHARACTERS],
    )


def _token_at(pieces: tuple[str, ...], character: int) -> int | None:
    """The token whose text covers the character; None past the end."""
    end = 0
    for index, piece in enumerate(pieces):
        end += len(piece)
        if character < end:
            return index
    return None
