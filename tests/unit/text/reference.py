"""What the text of a stream must be: the definitions, without regard to cost."""

from collections.abc import Callable, Sequence
from typing import Any

from mlxcel.text import Detokenizer


class Vocabulary:
    """A tokenizer and its detokenizer, by the words a test needs."""

    def __init__(self, tokenizer: Any, make: Callable[[], Detokenizer]) -> None:
        self.size = len(tokenizer.get_vocab())
        self.detokenizer = make
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def cut(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """What the whole text must become."""
    found = [(text.find(stop), index) for index, stop in enumerate(stops) if stop in text]
    if not found:
        return text, None
    start, index = min(found)
    return text[:start], stops[index]


def whole_text(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """What mlx_lm.stream_generate would yield for these tokens, joined."""
    return whole_text_of(vocabulary.detokenizer(), tokens)


def whole_text_of(detokenizer: Detokenizer, tokens: Sequence[int]) -> str:
    """All segments, joined."""
    detokenizer.reset()
    text = ""
    for token in tokens:
        detokenizer.add_token(token)
        text += detokenizer.last_segment
    detokenizer.finalize()
    return text + detokenizer.last_segment
