"""A row may think before it must follow its grammar."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from mlxcel.grammar.compiler import GrammarCompiler
from mlxcel.grammar.thinking import AfterThinking
from tests.unit.grammar.conftest import EOS_IDS
from tests.unit.grammar.walk import allowed_ids

START, END = 1, (3, 7)


def make(compiler: GrammarCompiler, *, is_open: bool) -> AfterThinking:
    return AfterThinking(
        compiler.constraint('start: "[" "]"\n', param="response_format"),
        start_ids=[START],
        end_ids=END,
        eos_ids=EOS_IDS,
        n_vocabulary=compiler.n_vocabulary,
        is_open=is_open,
    )


@pytest.fixture
def brackets(tiny_tokenizer: Tokenizer) -> tuple[int, int]:
    vocabulary = tiny_tokenizer.get_vocab()
    return vocabulary["["], vocabulary["]"]


def test_while_it_thinks_every_token_but_an_end_token_may_come(compiler: GrammarCompiler) -> None:
    allowed = set(allowed_ids(make(compiler, is_open=True)))
    assert allowed == set(range(compiler.n_vocabulary)) - EOS_IDS


def test_the_grammar_begins_after_the_whole_end_marker(compiler: GrammarCompiler, brackets: tuple[int, int]) -> None:
    constraint = make(compiler, is_open=True)
    for token in (END[0], 9, END[1], END[0], END[0]):
        constraint.advance(token)
        assert not constraint.is_complete
        assert 9 in allowed_ids(constraint)
    constraint.advance(END[1])
    for token in brackets:
        assert token in allowed_ids(constraint)
        assert 9 not in allowed_ids(constraint)
        constraint.advance(token)
    assert constraint.is_complete


def test_a_row_may_begin_to_think_with_its_first_token_alone(
    compiler: GrammarCompiler, brackets: tuple[int, int]
) -> None:
    constraint = make(compiler, is_open=False)
    assert {START, brackets[0]} <= set(allowed_ids(constraint))
    constraint.advance(START)
    assert 9 in allowed_ids(constraint)

    constraint = make(compiler, is_open=False)
    constraint.advance(brackets[0])
    assert START not in allowed_ids(constraint)
