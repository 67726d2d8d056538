"""Bodies become fields or an InputError that names the field; nothing else ever comes out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.api.wire.body import decode_body, field_names, parse_fields
from mlxcel.api.wire.chat import ChatFields
from mlxcel.api.wire.completions import CompletionFields
from mlxcel.api.wire.conversation import Conversation
from mlxcel.api.wire.fields import IGNORED, NOT_SERVED, refuse_not_served
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.errors import InputError

SHAPES = (CompletionFields, ChatFields)
BASE: dict[type[GenerationFields], dict[str, Any]] = {
    CompletionFields: {"prompt": "Hello"},
    ChatFields: {"messages": [{"role": "user", "content": "Hello"}]},
}


def parse(body: bytes, shape: type[GenerationFields]) -> tuple[Any, tuple[str, ...]]:
    """A body's fields, and the names of the unknown ones, as the routes take them."""
    sent = decode_body(body)
    refuse_not_served(sent, field_names(shape))
    parsed = parse_fields(sent, shape, other_fields=IGNORED | NOT_SERVED)
    parsed.value.check()
    if isinstance(parsed.value, ChatFields):
        parsed.value.conversation()
    return parsed.value, parsed.unknown


def parse_with(shape: type[GenerationFields], **fields: Any) -> tuple[Any, tuple[str, ...]]:
    return parse(json.dumps(BASE[shape] | fields).encode(), shape)


def refusal_of(shape: type[GenerationFields], **fields: Any) -> InputError:
    with pytest.raises(InputError) as refusal:
        parse_with(shape, **fields)
    assert "nothing was done" in refusal.value.message
    return refusal.value


COMMON_WRONG: dict[str, list[Any]] = {
    "model": [1, ["x"], {}],
    "temperature": [-0.001, 100.5, "1", True, [], {}, 10**400],
    "top_p": [-0.1, 1.0001, "x", False],
    "min_p": [-1, 1.5, "x"],
    "top_k": [-1, 2**31, 1.5, "5", True, 10**30],
    "typical_p": [-0.1, 1.1, True],
    "xtc_probability": [-0.1, 1.1, "x"],
    "xtc_threshold": [-0.1, 1.1, False],
    "repetition_penalty": [0, -1, 101, True],
    "presence_penalty": [-2.1, 2.1, "1", False],
    "frequency_penalty": [-2.1, 2.1, [], True],
    "dry_multiplier": [-1, 101, "x"],
    "dry_base": [0.5, 101, True],
    "dry_allowed_length": [0, 1.5, True],
    "dry_penalty_last_n": [-2, 2**31, "x"],
    "dry_sequence_breakers": ["x", [""], [5], ["x"] * 17, ["x" * 41], {}],
    "logit_bias": [[], "x", {"5": 101}, {"5": -100.5}, {"5": None}, {"5": "1"}, {"5": True}, {"5": 10**400}],
    "seed": [-1, 2**63, 0.5, "1", True, 10**30],
    "min_tokens": [-1, 1.5, True, 2**31],
    "stop_token_ids": [5, [-1], [True], ["5"], [1.5], [10**30]],
    "max_tokens": [-5, 2**31, 1.5, "9", True],
    "n": [0, -1, 129, 1.5, True, "1"],
    "stop": [5, [1], ["a", None], "", ["a", ""], ["x"] * 65, {}, [["x"]]],
    "stream": [1, "true", []],
    "stream_options": [1, "x", [], {"include_usage": 1}, {"include_usage": True}],
    "ignore_eos": [1, "yes"],
}
COMPLETION_WRONG: dict[str, list[Any]] = {
    "prompt": [1, [], ["a", 1], [1, [2]], ["a", [1]], [True], [-1], [1.5], [["a"]], [[True]], ["a"] * 129, {}, True],
    "max_tokens": [0],
    "best_of": [0, 2, 1.5, True],
    "echo": [1, "yes", []],
    "logprobs": [True, False, -1, 6, 1.5, "5"],
}
CHAT_WRONG: dict[str, list[Any]] = {
    "messages": ["x", {}, [], 5, [1], [None], ["x"]],
    "max_completion_tokens": [0, -1, "x", 1.5],
    "max_tokens": [0],
    "logprobs": [1, 0, "yes"],
    "top_logprobs": [3, -1, 21, 1.5, True],
    "chat_template_kwargs": [1, [], "x", {"chat_template": "x"}],
}
WRONG = [
    (shape, name, value)
    for shape, wrongs in (
        (CompletionFields, (COMMON_WRONG, COMPLETION_WRONG)),
        (ChatFields, (COMMON_WRONG, CHAT_WRONG)),
    )
    for wrong in wrongs
    for name, values in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("shape", "name", "value"), WRONG)
def test_a_field_of_a_wrong_type_or_range_is_named(shape: type[GenerationFields], name: str, value: Any) -> None:
    param = refusal_of(shape, **{name: value}).param
    assert param is not None and param.replace("[", ".").split(".")[0] == name


GOOD: dict[str, list[Any]] = {
    "temperature": [0, 100, 0.7],
    "top_p": [0, 1],
    "min_p": [0, 1],
    "top_k": [0, 2**31 - 1],
    "typical_p": [0, 1],
    "xtc_probability": [0, 1],
    "xtc_threshold": [0, 1],
    "repetition_penalty": [0.01, 1, 100],
    "presence_penalty": [-2, 2],
    "frequency_penalty": [-2, 2],
    "dry_multiplier": [0, 100],
    "dry_base": [1, 100],
    "dry_allowed_length": [1, 2**31 - 1],
    "dry_penalty_last_n": [-1, 0, 2**31 - 1],
    "dry_sequence_breakers": [[], ["x" * 40], ["x"] * 16],
    "logit_bias": [{}, {"5": -100, "6": 100}],
    "min_tokens": [0, 16],
    "stop_token_ids": [[], [0, 2**31 - 1]],
    "n": [1, 128],
    "seed": [0, 2**63 - 1],
    "max_tokens": [1, 2**31 - 1],
    "stop": ["x", [], ["x"] * 64],
    "stream": [True, False],
    "ignore_eos": [True],
    "model": ["any"],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_a_field_within_its_range_is_taken_as_sent(shape: type[GenerationFields], name: str, value: Any) -> None:
    fields, unknown = parse_with(shape, **{name: value})
    assert getattr(fields, name) == value and unknown == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_null_means_unset_everywhere(shape: type[GenerationFields]) -> None:
    names = [*GOOD, "stream_options", *sorted(IGNORED), *sorted(NOT_SERVED), "nobody_knows"]
    fields, unknown = parse_with(shape, **dict.fromkeys(names))
    assert fields == parse_with(shape)[0] and unknown == ()


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a"], ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1], [[1]]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_a_prompt_is_a_text_or_ids_or_several_of_either(prompt: Any, prompts: list[Any]) -> None:
    fields, _ = parse_with(CompletionFields, prompt=prompt)
    assert list(fields.prompts.values()) == prompts
    paths = [f"prompt[{index}]" for index in range(len(prompts))]
    assert list(fields.prompts) == (paths if isinstance(prompt, list) and prompt != prompts[0] else ["prompt"])


def test_an_empty_list_among_the_prompts_is_named() -> None:
    refusal = refusal_of(CompletionFields, prompt=[[5], []])
    assert refusal.param == "prompt[1]" and "a list without token ids" in refusal.message


def test_more_choices_than_a_request_may_have_are_refused_by_what_makes_them() -> None:
    assert len(parse_with(CompletionFields, prompt=["a"] * 64, n=2)[0].prompts) == 64
    assert refusal_of(CompletionFields, prompt=["a"] * 65, n=2).param == "prompt"


def test_best_of_is_taken_only_as_another_word_for_n() -> None:
    assert parse_with(CompletionFields, n=3, best_of=3)[0].n_choices == 3
    for fields in ({"n": 3, "best_of": 4}, {"n": 3, "best_of": 1}, {"best_of": 2}):
        assert refusal_of(CompletionFields, **fields).param == "best_of"


def test_no_token_may_be_wanted_only_of_an_echo() -> None:
    assert parse_with(CompletionFields, max_tokens=0, echo=True)[0].limit == 0
    assert refusal_of(CompletionFields, max_tokens=0).param == "max_tokens"


def test_no_more_tokens_can_be_required_than_are_allowed() -> None:
    assert refusal_of(CompletionFields, min_tokens=17).param == "min_tokens"
    assert refusal_of(ChatFields, min_tokens=6, max_completion_tokens=5).param == "min_tokens"
    assert parse_with(ChatFields, min_tokens=10_000)[0].limit is None


def test_alternatives_are_reported_only_with_log_probabilities() -> None:
    counts = [
        parse_with(shape, **fields)[0].n_logprobs
        for shape, fields in (
            (CompletionFields, {}),
            (CompletionFields, {"logprobs": 0}),
            (CompletionFields, {"logprobs": 5}),
            (ChatFields, {"logprobs": False}),
            (ChatFields, {"logprobs": True}),
            (ChatFields, {"logprobs": True, "top_logprobs": 20}),
        )
    ]
    assert counts == [None, 0, 5, None, 0, 20]
    assert parse_with(CompletionFields, logprobs=2, echo=True)[0].n_prompt_logprobs == 2
    assert parse_with(CompletionFields, logprobs=2)[0].n_prompt_logprobs is None


def test_a_missing_prompt_or_messages_is_named() -> None:
    for shape, name in ((CompletionFields, "prompt"), (ChatFields, "messages")):
        for body in (b"{}", json.dumps({name: None}).encode()):
            with pytest.raises(InputError) as refusal:
                parse(body, shape)
            assert refusal.value.param == name


def test_unknown_fields_are_named_and_those_that_change_nothing_are_not() -> None:
    _, unknown = parse_with(CompletionFields, user="me", metadata={"a": [1]}, foo=1, bar={"x": None}, messages=[])
    assert unknown == ("foo", "bar", "messages")


ASKS_FOR_SOMETHING: dict[str, list[Any]] = {
    "best_of": [2],
    "echo": [True, 0],
    "top_logprobs": [3, False],
    "suffix": ["x"],
    "tools": [[{"type": "function"}]],
    "tool_choice": ["required", {"type": "function"}],
    "response_format": [{"type": "json_object"}],
    "modalities": [["text", "audio"]],
    "chat_template": ["{{ x }}"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ASKS_FOR_SOMETHING.items() for value in values]
)
def test_a_field_that_is_not_served_is_refused_by_name(name: str, value: Any) -> None:
    for shape in SHAPES:
        if name not in field_names(shape):
            refusal = refusal_of(shape, **{name: value})
            assert refusal.param == name and refusal.code == "unsupported_value"


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "best_of": 1, "echo": False, "top_logprobs": 0, "logit_bias": {}, "stop_token_ids": []},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_tokens": 0},
        {"suffix": "", "add_generation_prompt": True, "functions": [], "function_call": "none"},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True, "response_format": {"type": "text"}},
    ],
)
def test_a_value_that_asks_for_nothing_is_no_error(fields: dict[str, Any]) -> None:
    for shape in SHAPES:
        assert parse_with(shape, **fields)[1] == ()


@pytest.mark.parametrize("name", sorted(IGNORED | NOT_SERVED))
def test_every_field_that_is_known_by_name_alone_is_in_the_documentation(name: str) -> None:
    assert re.search(rf"\b{name}\b", (Path(__file__).parents[3] / "docs" / "http-api.md").read_text())


def test_a_long_value_is_shown_in_part() -> None:
    assert len(refusal_of(CompletionFields, suffix="x" * 10_000).message) < 200


# Bodies


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"null", "body"),
        (b"[]", "body"),
        (b'"text"', "body"),
        (b"{", "body"),
        (b'{"prompt": "x"} x', "body"),
        (b"\xff\xfe", "body"),
        (b'{"prompt": "\xff"}', "body"),
        (b'{"prompt": "\\ud800"}', "prompt"),
        (b'{"prompt": ["x", "a\\udfffb"]}', "prompt[1]"),
        (b'{"prompt": {"\\ud800": 1}}', "prompt"),
        (b'{"\\ud800": 1}', "body"),
        (b'{"prompt": "\\ud83d\\ude42", "a": {"b": [' + b"9" * 5000 + b"]}}", "a.b[0]"),
        (b'{"prompt": "x", "max_tokens": ' + b"9" * 5000 + b"}", "max_tokens"),
        (b'{"prompt": "x", "max_tokens": -' + b"9" * 5000 + b"}", "max_tokens"),
        (b'{"prompt": "x", "temperature": NaN}', "temperature"),
        (b'{"prompt": "x", "top_p": -Infinity}', "top_p"),
        (b'{"prompt": "x", "temperature": 1e999}', "temperature"),
        (b'{"prompt": "x", "a": {"b": [0, {"c": Infinity}]}}', "a.b[1].c"),
        (b'{"prompt": "x", "a": NaN,', "body"),
        (b"[" * 100_000, "body"),
        (b'{"prompt": "x", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body"),
        (b'{"a":' * 100_000, "body"),
    ],
)
def test_a_body_that_is_no_object_of_finite_numbers_is_refused(body: bytes, param: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse(body, CompletionFields)
    assert refusal.value.param == param and "nothing was done" in refusal.value.message


@pytest.mark.parametrize("n_nested", [100, 900, 990, 2000, 9000, 50_000])
@pytest.mark.parametrize("inner", [b"1", b"NaN"])
@pytest.mark.parametrize("name", [b"suffix", b"chat_template_kwargs", b"messages", b"unknown", b"metadata"])
def test_deep_nesting_is_never_more_than_the_callers_error(n_nested: int, inner: bytes, name: bytes) -> None:
    nested = b"[" * n_nested + inner + b"]" * n_nested
    for shape in SHAPES:
        body = json.dumps(BASE[shape]).encode()[:-1] + b', "' + name + b'": ' + nested + b"}"
        try:
            parse(body, shape)
        except InputError as refusal:
            assert refusal.param


NAMES = st.sampled_from(sorted({*GOOD, *ASKS_FOR_SOMETHING, *IGNORED, "prompt", "messages", "role", "content", "type"}))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["user", "tool", "text", 2**63, 2**64, -(2**63), 10**30]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(fields=st.dictionaries(NAMES | st.text(max_size=4), VALUES, max_size=5), is_whole=st.booleans())
def test_any_json_is_fields_or_the_callers_error(fields: dict[str, Any], is_whole: bool) -> None:
    for shape in SHAPES:
        body = json.dumps((BASE[shape] if is_whole else {}) | fields).encode()
        try:
            parsed, unknown = parse(body, shape)
        except InputError as refusal:
            assert refusal.message and refusal.param
        else:
            assert isinstance(parsed, shape) and set(unknown) <= fields.keys()


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=60) | st.text(alphabet='{}[]":,0123456789eE+-.truefalsnINy\\ ', max_size=40))
def test_any_bytes_are_fields_or_the_callers_error(body: bytes | str) -> None:
    try:
        parse(body if isinstance(body, bytes) else body.encode(), CompletionFields)
    except InputError as refusal:
        assert refusal.param


# Messages


def messages_of(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    fields, _ = parse_with(ChatFields, messages=list(messages))
    return list(fields.conversation().messages)


def test_messages_reach_the_template_with_text_parts_joined_and_developer_as_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages_of(
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": parts, "name": "me"},
        {"role": "assistant", "content": ""},
    ) == [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "ab", "name": "me"},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": "x"}, "messages[1].role"),
        ({"role": None, "content": "x"}, "messages[1].role"),
        ({"role": "wizard", "content": "x"}, "messages[1].role"),
        ({"role": "", "content": "x"}, "messages[1].role"),
        ({"role": "tool", "tool_call_id": "1"}, "messages[1].content"),
        ({"role": "assistant", "content": None}, "messages[1].content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "messages[1].content"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[1].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[1].tool_calls[0].function.name"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}, "messages[1].tool_calls"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": [5]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[1].content[0]"),
        ({"role": "user", "content": "x", "name": 5}, "messages[1].name"),
    ],
)
def test_a_message_that_cannot_be_served_is_named_by_its_place(message: dict[str, Any], param: str) -> None:
    assert refusal_of(ChatFields, messages=[{"role": "user", "content": "x"}, message]).param == param


def test_an_assistants_refusal_is_its_content_and_a_result_may_lack_its_calls_id() -> None:
    assert messages_of(
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Never."}]},
        {"role": "tool", "content": "7"},
    ) == [
        {"role": "assistant", "content": "No."},
        {"role": "assistant", "content": "Never."},
        {"role": "tool", "content": "7"},
    ]
    assert refusal_of(ChatFields, messages=[{"role": "user", "refusal": "No."}]).param == "messages[0].content"


def test_calls_reach_the_template_with_their_arguments_as_an_object_and_results_with_their_id() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    bare = {"function": {"name": "g", "arguments": ""}}
    assert messages_of(
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call, bare], "reasoning_content": "hm"},
        {"role": "tool", "content": "7", "tool_call_id": "call_1"},
    )[1:] == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}},
                {"type": "function", "function": {"name": "g", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "7", "tool_call_id": "call_1"},
    ]


# Tools and formats

F: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
}
G: dict[str, Any] = {"type": "function", "function": {"name": "g"}}


def conversation_of(**fields: Any) -> Conversation:
    conversation: Conversation = parse_with(ChatFields, **fields)[0].conversation()
    return conversation


def test_tools_reach_the_template_in_openais_form_and_their_schemas_are_named() -> None:
    conversation = conversation_of(tools=[F, G])
    assert [tool.template_form for tool in conversation.tools] == [
        F,
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert [tool.path for tool in conversation.tools] == [f"tools[{i}].function.parameters" for i in range(2)]


@pytest.mark.parametrize(
    ("choice", "offered", "forced"),
    [
        (None, ["f", "g"], None),
        ("auto", ["f", "g"], None),
        ("none", [], None),
        ("required", ["f", "g"], ["f", "g"]),
        ({"type": "function", "function": {"name": "g"}}, ["f", "g"], ["g"]),
    ],
)
def test_a_choice_says_which_tools_are_offered_and_which_must_be_called(
    choice: Any, offered: list[str], forced: list[str] | None
) -> None:
    conversation = conversation_of(tools=[F, G], tool_choice=choice)
    assert [tool.name for tool in conversation.offered_tools] == offered
    assert conversation.forces_calls == (forced is not None)
    assert forced is None or [tool.name for tool in conversation.callable_tools] == forced


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [F, {"type": "custom", "custom": {"name": "x"}}]}, "tools[1].type"),
        ({"tools": [F, F]}, "tools[1]"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [F], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [F], "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"tools": [F], "tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_tools_and_formats_that_cannot_be_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert refusal_of(ChatFields, **fields).param == param


def test_the_format_is_a_schema_or_nothing() -> None:
    def schema_of(response_format: Any) -> Any:
        answer = conversation_of(response_format=response_format).answer
        return None if answer is None else (answer.schema, answer.path)

    assert schema_of(None) is None and schema_of({"type": "text"}) is None
    assert schema_of({"type": "json_object"}) == ({"type": "object"}, "response_format")
    for strict in (True, False, None):
        json_schema = {"name": "x", "schema": {"enum": [1]}, "strict": strict}
        assert schema_of({"type": "json_schema", "json_schema": json_schema}) == ({"enum": [1]}, "response_format")


def test_the_two_names_of_the_token_limit_may_not_differ() -> None:
    assert parse_with(ChatFields, max_tokens=5)[0].limit == 5
    assert parse_with(ChatFields, max_completion_tokens=6)[0].limit == 6
    assert parse_with(ChatFields, max_tokens=7, max_completion_tokens=7)[0].limit == 7
    assert parse_with(ChatFields)[0].limit is None
    assert refusal_of(ChatFields, max_tokens=7, max_completion_tokens=8).param == "max_completion_tokens"


def test_usage_is_streamed_only_where_it_was_asked_for() -> None:
    assert parse_with(ChatFields, stream=True, stream_options={"include_usage": True})[0].wants_usage_chunk
    for options in ({}, {"include_usage": False}, {"include_usage": None}):
        assert not parse_with(ChatFields, stream=True, stream_options=options)[0].wants_usage_chunk
