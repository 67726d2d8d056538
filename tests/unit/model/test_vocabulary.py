from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer
from mlx_lm.tokenizer_utils import load as load_tokenizer

from mlxcel.model.vocabulary import Vocabulary, read_vocabulary
from tests.support.prompts import tokenizer_of
from tests.support.sentence_piece import write_sentence_piece

TEXT = "The licence\n\tfür 漢字 🙂 e\u0301 \x00\x7f"
BREAKER = "wor"


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> Any:
    return load_tokenizer(tiny_model)


def test_the_bytes_of_a_texts_tokens_joined_are_the_text(tiny_model: Path) -> None:
    tokenizer = tokenizer_of(tiny_model)
    ids = tokenizer.encode(TEXT)
    vocabulary = tokenizer.vocabulary
    assert b"".join(map(vocabulary.bytes_of, ids)) == TEXT.encode()
    assert vocabulary.text_of(ids) == TEXT
    assert len(ids) > len(TEXT), "no character was split, so equality shows little"


def test_special_tokens_are_their_names_and_ids_beyond_the_tokenizer_are_nothing(tiny_model: Path) -> None:
    bytes_of = tokenizer_of(tiny_model).vocabulary.bytes_of
    assert [bytes_of(token) for token in (0, 2, 1024)] == [b"<|endoftext|>", b"<|im_end|>", b""]


def test_a_text_ends_before_the_character_that_its_tokens_cut(tiny_model: Path) -> None:
    tokenizer = tokenizer_of(tiny_model)
    ids = tokenizer.encode("a🙂")
    assert [tokenizer.vocabulary.text_of(ids[:n]) for n in (1, 2, len(ids))] == ["a", "a", "a🙂"]


def test_sentencepiece_bytes_and_spaces_are_what_they_stand_for(tmp_path: Path) -> None:
    write_sentence_piece(tmp_path)
    wrapper = load_tokenizer(tmp_path)
    vocabulary = read_vocabulary(wrapper._tokenizer, type(wrapper.detokenizer))
    ids = wrapper.encode("he é漢", add_special_tokens=False)
    assert b"".join(map(vocabulary.bytes_of, ids)) == " he é漢".encode()


def test_a_tokenizer_that_only_decodes_gives_what_each_token_decodes_to(tiny: Any) -> None:
    vocabulary = read_vocabulary(tiny._tokenizer, NaiveStreamingDetokenizer)
    ids = tiny.encode("The licence grants")
    assert b"".join(map(vocabulary.bytes_of, ids)) == b"The licence grants"


def test_line_ends_are_the_tokens_that_are_nothing_else(tiny_model: Path) -> None:
    vocabulary = tokenizer_of(tiny_model).vocabulary
    ends = {vocabulary.bytes_of(token) for token in vocabulary.line_ends}
    assert b"\n" in ends and {end.strip(b"\r\n") for end in ends} == {b""}
    assert tokenizer_of(tiny_model).encode("\n")[0] in vocabulary.line_ends


def test_a_breaker_is_every_way_to_write_its_text_whatever_stands_around_it() -> None:
    tokens = [b"word", b" w", b"o", b"r", b"or", b"wo", b"x", b"rk", b"swor"]
    by_text = {token.decode(): index for index, token in enumerate(tokens)}
    vocabulary = Vocabulary(tokens, lambda text: [by_text[text]])
    w_or, wo_r = (by_text[" w"], by_text["or"]), (by_text["wo"], by_text["r"])
    assert set(vocabulary.breakers(BREAKER)) == {(by_text["word"],), (by_text["swor"],), w_or, wo_r}


def test_a_breaker_of_one_character_is_the_tokens_that_hold_it(tiny_model: Path) -> None:
    vocabulary = tokenizer_of(tiny_model).vocabulary
    breakers = vocabulary.breakers(":")
    assert len(breakers) >= 1 and {len(one) for one in breakers} == {1}
    assert {token for (token,) in breakers} == {token for token in range(1024) if b":" in vocabulary.bytes_of(token)}


def test_a_breaker_that_begins_inside_a_character_is_left_out(tiny_model: Path) -> None:
    vocabulary = tokenizer_of(tiny_model).vocabulary
    texts = {b"".join(map(vocabulary.bytes_of, breaker)) for breaker in vocabulary.breakers("é")}
    assert all("é".encode() in text for text in texts)
