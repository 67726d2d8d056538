"""A model whose template knows no tools is told in words, and nothing of the conversation is lost."""

from __future__ import annotations

from mlxcel.api.wire.toolless import INTRODUCTION, without_tools

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
WORDS = f'{INTRODUCTION}\n{{"name": "f", "parameters": {{"type": "object"}}}}'
USER = {"role": "user", "content": "hi"}


def test_tools_are_told_in_the_system_message_the_clients_own_first() -> None:
    assert without_tools([USER], [TOOL]) == [{"role": "system", "content": WORDS}, USER]
    system = {"role": "system", "content": "Be brief."}
    assert without_tools([system, USER], [TOOL]) == [{"role": "system", "content": f"Be brief.\n\n{WORDS}"}, USER]
    assert system == {"role": "system", "content": "Be brief."}


def test_calls_and_results_become_what_they_say() -> None:
    call = {"type": "function", "id": "1", "function": {"name": "f", "arguments": {"a": "é"}}}
    told = without_tools(
        [
            {"role": "assistant", "content": "", "tool_calls": [call, call]},
            {"role": "assistant", "content": "Well:", "tool_calls": [call]},
            {"role": "tool", "content": "7", "tool_call_id": "1"},
        ],
        [],
    )
    text = '{"name":"f","arguments":{"a":"é"}}'
    assert told == [
        {"role": "assistant", "content": f"[{text},{text}]"},
        {"role": "assistant", "content": f"Well:\n[{text}]"},
        {"role": "user", "content": "The function's result:\n7"},
    ]


def test_a_conversation_without_tools_is_left_as_it_is() -> None:
    assert without_tools([USER], []) == [USER]
