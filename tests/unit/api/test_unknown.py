"""Fields that nobody knows are named wherever they stand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mlxcel.api.wire.body import parse_fields
from mlxcel.api.wire.chat import ChatFields
from mlxcel.api.wire.completions import CompletionFields
from mlxcel.api.wire.fields import IGNORED, NOT_SERVED
from mlxcel.api.wire.messages import MessagesFields
from mlxcel.api.wire.response_requests import ResponseFields

USER = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("shape", "fields", "unknown"),
    [
        (CompletionFields, {"prompt": "a", "z": 1, "user": "me", "b": 2}, ("z", "b")),
        (
            CompletionFields,
            {"prompt": "a", "stream": True, "stream_options": {"include_usage": True, "colour": 1}},
            ("stream_options.colour",),
        ),
        (
            ChatFields,
            {"messages": [USER, {**USER, "mood": "x", "content": [{"type": "text", "text": "a", "font": "b"}]}]},
            ("messages[1].content[0].font", "messages[1].mood"),
        ),
        (ChatFields, {"messages": [{**USER, "mood": None, "name": "me"}], "top": {"x": 1}}, ("top",)),
        (
            ChatFields,
            {
                "messages": [{"role": "assistant", "content": "a", "refusal": "no", "annotations": []}],
                "tools": [
                    {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"a": 1}, "b": 1}}
                ],
                "response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": {"x": {"y": 1}}}},
                "chat_template_kwargs": {"anything": {"goes": 1}},
            },
            ("tools[0].function.b",),
        ),
        (
            MessagesFields,
            {
                "max_tokens": 1,
                "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}, "x": 1}]}],
                "system": [{"type": "text", "text": "b", "y": 1}],
            },
            ("messages[0].content[0].x", "system[0].y"),
        ),
        (
            ResponseFields,
            {"input": [{"role": "user", "content": "a", "id": "1", "x": 1}], "reasoning": {"summary": "auto", "x": 1}},
            ("input[0].x", "reasoning.x"),
        ),
    ],
)
def test_unknown_fields_are_named_by_their_path(
    shape: type[msgspec.Struct], fields: dict[str, Any], unknown: tuple[str, ...]
) -> None:
    assert parse_fields(fields, shape, other_fields=IGNORED | NOT_SERVED).unknown == unknown
