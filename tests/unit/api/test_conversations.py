"""Whatever JSON comes, every chat API makes a conversation of it or names the caller's error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxcel.api.chat import encode
from mlxcel.api.wire.body import decode_body, field_names, parse_fields
from mlxcel.api.wire.chat import ChatFields
from mlxcel.api.wire.conversation import Conversation
from mlxcel.api.wire.fields import IGNORED, NOT_SERVED, refuse_not_served
from mlxcel.api.wire.messages import CountTokensFields, MessagesFields
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.api.wire.response_requests import ResponseFields
from mlxcel.api.wire.toolless import without_tools
from mlxcel.errors import InputError
from mlxcel.model.tokenizer import Tokenizer
from tests.support.prompts import tokenizer_of
from tests.support.tiny_llama import make_tiny_llama

CONVERSATIONS: dict[type[GenerationFields], Callable[[Any], Conversation]] = {
    ChatFields: lambda fields: fields.conversation(),
    MessagesFields: lambda fields: fields.conversation(),
    CountTokensFields: lambda fields: fields.conversation(),
    ResponseFields: lambda fields: fields.conversation(fields.messages([])),
}
USER = {"role": "user", "content": "x"}
BASE: dict[type[GenerationFields], dict[str, Any]] = {
    ChatFields: {"messages": [USER]},
    MessagesFields: {"messages": [USER], "max_tokens": 5},
    CountTokensFields: {"messages": [USER]},
    ResponseFields: {"input": "x"},
}


def conversation_of(shape: type[GenerationFields], body: dict[str, Any]) -> Conversation:
    sent = decode_body(json.dumps(body).encode())
    refuse_not_served(sent, field_names(shape))
    fields = parse_fields(sent, shape, other_fields=IGNORED | NOT_SERVED).value
    fields.check()
    return CONVERSATIONS[shape](fields)


WORDS = st.sampled_from(
    "user assistant system tool function auto any required none text json_schema f tool_use tool_result thinking "
    "message function_call function_call_output reasoning {} {".split()
)
KEYS = st.sampled_from(
    "type role content text name function arguments parameters input_schema input output tool_calls tool_use_id "
    "call_id id format schema json_schema thinking is_error effort".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize("shape", list(CONVERSATIONS))
def test_any_json_is_a_conversation_or_the_callers_error(shape: type[GenerationFields]) -> None:
    names = st.sampled_from(sorted(field_names(shape)))

    @settings(max_examples=300, deadline=None)
    @given(fields=st.dictionaries(names, VALUES, max_size=4), is_whole=st.booleans())
    def check(fields: dict[str, Any], is_whole: bool) -> None:
        try:
            conversation = conversation_of(shape, (BASE[shape] if is_whole else {}) | fields)
        except InputError as refusal:
            assert refusal.param and refusal.message
        else:
            tools = [tool.template_form for tool in conversation.offered_tools]
            for message in [*conversation.messages, *without_tools(conversation.messages, tools)]:
                assert isinstance(message["role"], str) and isinstance(message["content"], str)

    check()


@pytest.mark.parametrize("shape", list(CONVERSATIONS))
def test_the_smallest_request_is_one_user_message(shape: type[GenerationFields]) -> None:
    assert conversation_of(shape, BASE[shape]).messages == [USER]


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 50_000, "1" * 5000])
def test_arguments_that_are_no_object_are_named(text: str) -> None:
    call = {"function": {"name": "f", "arguments": text}}
    with pytest.raises(InputError) as refusal:
        conversation_of(ChatFields, {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]})
    assert refusal.value.param == "messages[1].tool_calls[0].function.arguments"
    assert len(refusal.value.message) < 500


TOOL = {"type": "function", "function": {"name": "f", "description": "<|im_end|>"}}
SPELLED = {"role": "user", "content": "b<|im_end|>"}
READING = "{% for message in messages %}{{ message.content | length }}{{ message.content }}{% endfor %}"
"""A template that reads what it is given, so that special text cannot be kept apart."""


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of(make_tiny_llama(tmp_path_factory.mktemp("reading"), chat_template=READING))


@pytest.mark.parametrize(
    ("shape", "sent", "param"),
    [
        (ChatFields, {"messages": [USER, SPELLED]}, "messages[1]"),
        (ChatFields, {"messages": [{**SPELLED, "role": "system"}, USER]}, "messages[0]"),
        (MessagesFields, {"system": "s", "messages": [USER, {**USER, "role": "assistant"}, SPELLED]}, "messages[2]"),
        (MessagesFields, {"system": "s", "messages": [USER, SPELLED]}, "messages[1]"),
        (MessagesFields, {"system": [{"type": "text", "text": "<|im_end|>"}]}, "system"),
        (CountTokensFields, {"system": "s", "messages": [SPELLED]}, "messages[0]"),
        (ResponseFields, {"instructions": "i", "input": "<|im_end|>"}, "input"),
        (ResponseFields, {"instructions": "i", "input": [USER, SPELLED]}, "input[1]"),
        (ResponseFields, {"instructions": "<|im_end|>"}, "instructions"),
    ],
)  # fmt: skip
def test_special_text_that_cannot_be_kept_apart_is_named_by_its_path_in_the_body(
    reading: Tokenizer, shape: type[GenerationFields], sent: dict[str, Any], param: str
) -> None:
    with pytest.raises(InputError) as refusal:
        encode(conversation_of(shape, BASE[shape] | sent), reading)
    assert (refusal.value.param, refusal.value.code) == (param, "control_token")
    assert refusal.value.message.startswith(f"{param} spells a control token")


def test_special_text_of_an_earlier_response_is_named_by_what_is_gone_on_from(reading: Tokenizer) -> None:
    fields = ResponseFields(input="x", previous_response_id="resp_1")
    with pytest.raises(InputError) as refusal:
        encode(fields.conversation(fields.messages([SPELLED])), reading)
    assert (refusal.value.param, refusal.value.code) == ("previous_response_id", "control_token")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL], "tool_choice": "required"}, "tools[0]"),
        ({"chat_template_kwargs": {"style": "<|im_end|>"}}, "chat_template_kwargs"),
    ],
)
def test_special_text_beside_the_messages_is_named_too(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    counting = "{{ tools | string | length }}{{ style | length }}{{ style }}{{ tools }}"
    tokenizer = tokenizer_of(make_tiny_llama(tmp_path, chat_template=counting))
    conversation = conversation_of(ChatFields, BASE[ChatFields] | fields)
    with pytest.raises(InputError) as refusal:
        encode(conversation, tokenizer)
    assert (refusal.value.param, refusal.value.code) == (param, "control_token")
