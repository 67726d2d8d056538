"""Detokenizing by a window: the text of whole lines, at a cost that does not grow with them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import load as load_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from mlxcel.text.window import WindowDetokenizer
from tests.support.sentence_piece import write_sentence_piece
from tests.unit.text.reference import whole_text_of
from tests.unit.text.test_text_stream import TEXTS


@pytest.fixture(scope="module", params=["byte level", "sentence piece", "metaspace"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Any:
    if request.param == "byte level":
        return load_tokenizer(tiny_model)
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "sentence piece":
        write_sentence_piece(folder)
    else:
        write_metaspace(folder)
    return load_tokenizer(folder)


def write_metaspace(folder: Path) -> None:
    """Words with a space mark, as T5 has them: decoding drops the first word's space, and only that one's."""
    words = ["<unk>", "\n", ".", *(f"▁{letter}" for letter in "abc"), *"abc", "▁"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "."}')
    (folder / "config.json").write_text('{"model_type": "t5"}')


def lines_of(decode: Callable[[Sequence[int]], str], tokens: Sequence[int]) -> str:
    """The text line by line: each line's tokens decoded together, as mlx_lm's naive detokenizer joins them."""
    text, line = "", list[int]()
    for token in tokens:
        line.append(token)
        if (decoded := decode(line)).endswith("\n"):
            text, line = text + decoded, []
    return text + (decode(line) if line else "")


@given(text=TEXTS)
def test_the_pieces_joined_are_the_lines_decoded(tokenizer: Any, text: str) -> None:
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert whole_text_of(WindowDetokenizer(tokenizer.decode), tokens) == lines_of(tokenizer.decode, tokens)


@given(data=st.data())
def test_any_tokens_give_the_lines_decoded(tokenizer: Any, data: st.DataObject) -> None:
    # One bad byte makes a sentence piece decoder spell its whole run of bytes as U+FFFD, also those shown before;
    # bytes that make characters are in the texts above.
    words = [token for word, token in sorted(tokenizer.get_vocab().items()) if not word.startswith("<0x")]
    tokens = data.draw(st.lists(st.sampled_from(words), max_size=20))
    assert whole_text_of(WindowDetokenizer(tokenizer.decode), tokens) == lines_of(tokenizer.decode, tokens)


@given(text=TEXTS)
def test_no_unfinished_character_is_shown(tokenizer: Any, text: str) -> None:
    detokenizer, pieces = WindowDetokenizer(tokenizer.decode), []
    for token in tokenizer.encode(text, add_special_tokens=False):
        detokenizer.add_token(token)
        pieces.append(detokenizer.last_segment)
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_token_costs_the_same_however_long_the_line_is(tokenizer: Any) -> None:
    n_decoded: list[int] = []

    def decode(tokens: Sequence[int]) -> str:
        n_decoded.append(len(tokens))
        return str(tokenizer.decode(tokens))

    detokenizer = WindowDetokenizer(decode)
    for token in tokenizer.encode("a b c a b c " * 100, add_special_tokens=False):
        detokenizer.add_token(token)
    assert max(n_decoded) <= 6


def test_a_reset_forgets_everything(tokenizer: Any) -> None:
    tokens = tokenizer.encode("a b", add_special_tokens=False)
    detokenizer = WindowDetokenizer(tokenizer.decode)
    detokenizer.add_token(tokens[0])
    assert whole_text_of(detokenizer, tokens) == tokenizer.decode(tokens)
