"""What a model writes around its thinking and its calls is found in its own files."""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx_lm.tool_parsers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.tokenizer import Tokenizer, load_tokenizer
from mlxcel.text.calls import CallForm, ParsedCall
from mlxcel.text.segments import Markers
from tests.support.tiny_llama import make_tiny_llama
from tests.support.tiny_tokenizer import CALLING, CHATML_TEMPLATE, THINKING, TOOLS_TEMPLATE

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def tokenizer_of(folder: Path, **options: Any) -> Tokenizer:
    return load_tokenizer(read_checkpoint(make_tiny_llama(folder, **options)))


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("models") / "tools"
    return tokenizer_of(folder, chat_template=TOOLS_TEMPLATE, markers=(*THINKING, *CALLING))


def test_markers_come_from_the_vocabulary_and_the_template(knowing: Tokenizer) -> None:
    dialect = knowing.dialect
    assert dialect.markers == Markers(*THINKING, *CALLING)
    assert (dialect.knows_tools, dialect.thinks) == (True, True)
    assert [len(ids) for ids in (dialect.think_start_ids, dialect.think_end_ids)] == [1, 1]
    assert dialect.call_form == CallForm("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>")


def test_a_plain_model_neither_thinks_nor_calls(tiny_model: Path) -> None:
    dialect = load_tokenizer(read_checkpoint(tiny_model)).dialect
    assert dialect.markers == Markers()
    assert (dialect.knows_tools, dialect.thinks, dialect.call_form) == (False, False, CallForm())
    assert dialect.parser([])("anything") is None


@pytest.mark.parametrize("mention", ["{# tools #}", "tools are not {{ 'tools' }}"])
def test_a_template_that_only_speaks_of_tools_knows_none(tmp_path: Path, mention: str) -> None:
    assert not tokenizer_of(tmp_path / "m", chat_template=mention + CHATML_TEMPLATE).dialect.knows_tools


def test_a_call_is_read_by_mlx_lms_parser_and_what_is_no_call_is_none(knowing: Tokenizer) -> None:
    parse = knowing.dialect.parser([TOOL])
    assert parse('\n{"name": "f", "arguments": {"a": 1}}\n') == [ParsedCall("f", {"a": 1})]
    for text in ("", "{", "[1]", "3", '{"arguments": {}}', '{"name": 5}', "[" * 5000):
        assert parse(text) is None


def parsers() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(mlx_lm.tool_parsers.__path__))


PIECES = (
    *'[]{}":,()=f1 é\\\n',
    *("name", "arguments", '{"name": "f", "arguments": {}}', "call:f", "functions.f:0", '<|"|>', "[ARGS]"),
    *("<function=f>", "</function>", "<parameter=a>", "</parameter>", "<|tool_call_argument_begin|>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)


@pytest.mark.parametrize("name", parsers())
def test_no_text_makes_any_of_mlx_lms_parsers_fail(knowing: Tokenizer, name: str) -> None:
    module = importlib.import_module(f"mlx_lm.tool_parsers.{name}")
    parse = replace(knowing.dialect, parse_call=module.parse_tool_call).parser([TOOL])

    @settings(max_examples=150, deadline=None)
    @given(text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
    def check(text: str) -> None:
        for call in parse(text) or []:
            assert isinstance(call.name, str)
            json.dumps(call.arguments)

    check()


def test_a_prompt_is_known_to_begin_or_end_thinking_by_its_last_words_alone(knowing: Tokenizer) -> None:
    start, end = THINKING
    for text, opens, closes in (
        ("a<think>\n", True, False),
        ("<think>a", False, False),
        ("<think>\n\n</think>\n\n", False, True),
        ("", False, False),
    ):
        prompt = knowing.encode(text)
        assert (knowing.ends_with(prompt, start), knowing.ends_with(prompt, end)) == (opens, closes)
    assert not knowing.ends_with(knowing.encode("x"), None)


def test_tools_are_shown_to_the_model(knowing: Tokenizer) -> None:
    messages = [{"role": "user", "content": "x"}]
    assert len(knowing.encode_chat(messages, {}, [TOOL])) > len(knowing.encode_chat(messages, {})) + 10
