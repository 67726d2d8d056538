"""A schema's text may spell special tokens: it is data, and made of ordinary tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from mlxcel.grammar.compiler import GrammarCompiler
from mlxcel.grammar.schema import CallWords, calls_grammar, json_grammar, schema_text
from tests.unit.grammar.conftest import EOS_IDS
from tests.unit.grammar.walk import allowed_ids, walk

PARAM = "response_format"
SPECIAL = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")


def one_property(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"const": 1}}, "required": [name], "additionalProperties": False}


SCHEMAS: list[tuple[dict[str, Any], set[str]]] = [
    *(({"const": text}, {text}) for text in SPECIAL),
    ({"const": "a<|im_start|>b"}, {"a<|im_start|>b"}),
    ({"const": "<|im_end|><|im_end|>"}, {"<|im_end|><|im_end|>"}),
    ({"enum": ["<|im_end|>x", "<|im_end|>y"]}, {"<|im_end|>x", "<|im_end|>y"}),
    ({"type": "string", "pattern": r"^<\|im_end\|>$"}, {"<|im_end|>"}),
]


def check_every_text(compiler: GrammarCompiler, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
    special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
    for schema, values in SCHEMAS:
        for seed in range(4):
            constraint = compiler.constraint(json_grammar(schema_text(schema, PARAM)), param=PARAM)
            tokens, is_ended = walk(constraint, eos_ids=eos_ids, seed=seed)
            assert is_ended
            assert not special & set(tokens)
            assert json.loads(tokenizer.decode(tokens, skip_special_tokens=False)) in values
    constraint = compiler.constraint(json_grammar(schema_text(one_property("<|im_end|>"), PARAM)), param=PARAM)
    tokens, is_ended = walk(constraint, eos_ids=eos_ids, seed=0)
    assert is_ended
    assert tokenizer.decode(tokens, skip_special_tokens=False) == '{"<|im_end|>":1}'


def test_text_that_spells_a_special_token_is_made_of_ordinary_tokens(
    compiler: GrammarCompiler, tiny_tokenizer: Tokenizer
) -> None:
    check_every_text(compiler, tiny_tokenizer, EOS_IDS)


@pytest.mark.real_model
def test_a_real_models_tokenizer_spells_special_tokens_too(real_model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(real_model / "tokenizer.json"))
    n_vocabulary, eos_ids = tokenizer.get_vocab_size(), frozenset({tokenizer.get_vocab()["<|im_end|>"]})
    compiler = GrammarCompiler(tokenizer.to_str(), n_vocabulary=n_vocabulary, eos_ids=eos_ids)
    check_every_text(compiler, tokenizer, eos_ids)


def test_an_end_token_still_ends_text_that_spells_it_where_it_may_end(
    compiler: GrammarCompiler, tiny_tokenizer: Tokenizer
) -> None:
    constraint = compiler.constraint('start: "<|im_end|>" "x"?\n', param=PARAM)
    for token in tiny_tokenizer.encode("<|im_").ids + tiny_tokenizer.encode("end|>").ids:
        assert not EOS_IDS & set(allowed_ids(constraint))
        constraint.advance(token)
    assert set(allowed_ids(constraint)) >= EOS_IDS | {tiny_tokenizer.token_to_id("x")}


def test_forced_calls_have_the_templates_tokens_around_and_ordinary_ones_inside(
    compiler: GrammarCompiler, tiny_tokenizer: Tokenizer
) -> None:
    schema = {"type": "object", "properties": {"m": {"enum": ["<|im_start|>"]}}, "required": ["m"]}
    tools = [("f", schema_text({**schema, "additionalProperties": False}, PARAM))]
    words = CallWords(compiler.literal("<|im_start|>["), compiler.literal(","), compiler.literal("]"))
    constraint = compiler.constraint(calls_grammar(tools, words, is_parallel=False), param=PARAM)
    tokens, is_ended = walk(constraint, eos_ids=EOS_IDS, seed=0)
    assert is_ended
    assert (tokens[0], tokens.count(1)) == (1, 1)
    text = tiny_tokenizer.decode(tokens[1:], skip_special_tokens=False)
    assert json.loads(text) == [{"name": "f", "arguments": {"m": "<|im_start|>"}}]


@pytest.mark.parametrize("is_declared_special", [False, True])
@pytest.mark.parametrize("has_scores", [False, True])
def test_an_end_token_is_one_however_its_tokenizer_declares_it(*, is_declared_special: bool, has_scores: bool) -> None:
    names = ["<unk>", "</s>", *'"</s>']
    if has_scores:
        tokenizer = Tokenizer(models.Unigram([(name, -1.0) for name in names], unk_id=0))
    else:
        vocabulary = {name: token for token, name in enumerate(names)}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken("<unk>", special=True)])
    tokenizer.add_tokens([AddedToken("</s>", special=is_declared_special)])
    compiler = GrammarCompiler(tokenizer.to_str(), n_vocabulary=len(names), eos_ids=frozenset({1}))
    constraint = compiler.constraint(json_grammar(schema_text({"const": "</s>"}, PARAM)), param=PARAM)
    tokens, is_ended = walk(constraint, eos_ids={1}, seed=0)
    assert is_ended
    assert tokenizer.decode(tokens, skip_special_tokens=False) == '"</s>"'
