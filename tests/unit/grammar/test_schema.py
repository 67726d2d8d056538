"""Schemas become constraints that only fitting text can follow, or refusals that name the field."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from tokenizers import Tokenizer

from mlxcel.errors import InputError
from mlxcel.grammar.compiler import GrammarCompiler
from mlxcel.grammar.schema import (
    LARGEST_SCHEMA_BYTES,
    NO_ARGUMENTS,
    CallWords,
    calls_grammar,
    json_grammar,
    schema_text,
)
from tests.unit.grammar.conftest import EOS_IDS
from tests.unit.grammar.walk import allowed_ids, walk

PARAM = "response_format"
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": -5, "maximum": 12}, "label": {"type": "string", "maxLength": 6}},
    "required": ["x", "label"],
    "additionalProperties": False,
}
LLGUIDANCES_OWN = (
    "non-verbose",
    "applying",
    "NoExtensionBias",
    "%json",
    "SearchRegex",
    "coerce_one_of",
    "x-guidance",
    "start:",
)


def texts_of(compiler: GrammarCompiler, tokenizer: Tokenizer, grammar: str, n: int = 12) -> list[str]:
    texts = []
    for seed in range(n):
        tokens, is_ended = walk(compiler.constraint(grammar, param=PARAM), eos_ids=EOS_IDS, seed=seed)
        assert is_ended
        texts.append(tokenizer.decode(tokens, skip_special_tokens=False))
    return texts


def test_every_text_fits_its_schema_has_no_spaces_between_tokens_and_comes_to_an_end(
    compiler: GrammarCompiler, tiny_tokenizer: Tokenizer
) -> None:
    texts = texts_of(compiler, tiny_tokenizer, json_grammar(schema_text(POINT, PARAM)))
    assert len(set(texts)) > 4
    for text in texts:
        value = json.loads(text)
        jsonschema.validate(value, POINT)
        assert text.startswith('{"x":')
        assert f',"label":{text[text.index("label") + 7]}' in text


def test_an_end_token_is_allowed_exactly_where_the_value_may_end(
    compiler: GrammarCompiler, tiny_tokenizer: Tokenizer
) -> None:
    constraint = compiler.constraint(json_grammar('{"type":"integer"}'), param=PARAM)
    assert not EOS_IDS & set(allowed_ids(constraint))
    constraint.advance(tiny_tokenizer.get_vocab()["3"])
    assert not constraint.is_complete
    assert set(allowed_ids(constraint)) >= EOS_IDS


def test_no_token_beyond_the_vocabulary_is_allowed(compiler: GrammarCompiler, tiny_tokenizer: Tokenizer) -> None:
    constraint = compiler.constraint(json_grammar('{"type":"string"}'), param=PARAM)
    constraint.advance(next(iter(allowed_ids(constraint))))
    mask = constraint.mask()
    assert mask.shape == (1088 // 32,)
    assert max(allowed_ids(constraint)) < tiny_tokenizer.get_vocab_size()


def test_equal_grammars_give_constraints_that_do_not_share_a_place(compiler: GrammarCompiler) -> None:
    grammar = json_grammar(schema_text(POINT, PARAM))
    one, other = compiler.constraint(grammar, param=PARAM), compiler.constraint(grammar, param=PARAM)
    first = allowed_ids(other)
    one.advance(allowed_ids(one)[0])
    assert allowed_ids(other) == first


def test_a_token_that_does_not_fit_raises_and_names_the_field(compiler: GrammarCompiler) -> None:
    constraint = compiler.constraint(json_grammar(schema_text(POINT, PARAM)), param=PARAM)
    with pytest.raises(InputError) as refused:
        constraint.advance(2)
    assert refused.value.param == PARAM
    assert "a token came that does not fit it" in refused.value.message


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strin"}, "Invalid type: strin"),
        ({"type": "string", "pattern": "(a"}, "regex parse error"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {}, "x-guidance": {"lenient": True}}, "not"),
        ({"type": "integer", "minimum": 3, "maximum": 1}, "Unsatisfiable"),
        ({"enum": []}, "Unsatisfiable"),
        ({"$ref": "https://example.com/schema"}, "not present"),
        ({"$ref": "#"}, "nothing that can be written fits the schema"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "it only refers to itself"),
        ({"type": "number", "multipleOf": 0.1, "minimum": 0.25, "maximum": 0.35}, "its bounds leave no value"),
        ({"type": "string", "pattern": "^a$", "minLength": 3}, "no text fits its pattern, format and lengths"),
        ({"allOf": [{"pattern": ".*a.{50}b.*"}, {"pattern": ".*b.{60}c.*"}]}, "more than can be worked out"),
        ({"type": "NoExtension"}, "Invalid type: NoExt"),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, "use anyOf"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_with_its_reason(
    compiler: GrammarCompiler, schema: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        compiler.constraint(json_grammar(schema_text(schema, PARAM)), param=PARAM)
    assert (refused.value.param, refused.value.code) == (PARAM, "invalid_schema")
    assert len(refused.value.message) < 500
    assert not [word for word in LLGUIDANCES_OWN if word in refused.value.message]


@pytest.mark.parametrize("schema", [False, None, 3, "object", [], {"enum": ["x" * LARGEST_SCHEMA_BYTES]}])
def test_what_is_no_schema_or_too_large_is_refused_before_it_is_compiled(schema: Any) -> None:
    with pytest.raises(InputError) as refused:
        schema_text(schema, PARAM)
    assert refused.value.param == PARAM


def test_a_schema_nested_too_deep_is_refused(compiler: GrammarCompiler) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    with pytest.raises(InputError, match="it is nested too deep"):
        compiler.constraint(json_grammar(schema_text(schema, PARAM)), param=PARAM)


def test_calls_name_a_function_and_fit_its_schema_whose_references_stay_its_own(
    compiler: GrammarCompiler, tiny_tokenizer: Tokenizer
) -> None:
    colour = {
        "$defs": {"colour": {"enum": ["red", "green"]}},
        "type": "object",
        "properties": {"colour": {"$ref": "#/$defs/colour"}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    schemas = {"paint": colour, "look-up": POINT, "stop_now": NO_ARGUMENTS}
    tools = [(name, schema_text(schema, PARAM)) for name, schema in schemas.items()]
    words = CallWords('"["', '","', '"]"')
    seen: list[str] = []
    for text in texts_of(compiler, tiny_tokenizer, calls_grammar(tools, words, is_parallel=True)):
        calls = json.loads(text)
        assert 1 <= len(calls) <= 16
        for call in calls:
            assert list(call) == ["name", "arguments"]
            jsonschema.validate(call["arguments"], schemas[call["name"]])
        seen += [call["name"] for call in calls]
    assert set(seen) == set(schemas)
    for text in texts_of(compiler, tiny_tokenizer, calls_grammar(tools, words, is_parallel=False)):
        assert len(json.loads(text)) == 1


def test_schemas_that_are_too_large_together_are_refused(compiler: GrammarCompiler) -> None:
    tools = [(f"f{index}", schema_text({"enum": ["x" * 60_000]}, PARAM)) for index in range(10)]
    with pytest.raises(InputError, match="in all") as refused:
        compiler.constraint(calls_grammar(tools, CallWords('"["', '","', '"]"'), is_parallel=True), param="tools")
    assert refused.value.param == "tools"


def test_a_literal_has_special_tokens_as_tokens_and_the_rest_as_text(compiler: GrammarCompiler) -> None:
    assert compiler.literal('<|im_start|>\n"x') == '<[1]> "\\n\\"x"'
    assert compiler.literal("[") == '"["'
    assert compiler.literal("<|im_start|><|im_end|>") == "<[1]> <[2]>"
