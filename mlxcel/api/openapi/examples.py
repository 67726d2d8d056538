"""Bodies that are served by any model with a chat template, by path: to try out, and to begin tests from."""

from __future__ import annotations

from typing import Any

_ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "What is 6 times 7?"}], "max_tokens": 16}
_TOOL = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}}}
_TEXTS = [{"type": "text", "text": "What is "}, {"type": "text", "text": "it?"}]
_SCHEMA = {"type": "object", "properties": {"is_so": {"type": "boolean"}}, "required": ["is_so"]}

EXAMPLES: dict[str, dict[str, dict[str, Any]]] = {
    "/v1/completions": {
        "whole": {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0.7, "seed": 1, "stop": ["."]},
        "in events": {
            "prompt": "Once", "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True},
        },
    },
    "/v1/chat/completions": {
        "whole": {**_ASKED, "temperature": 0, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 1},
        "in events": {**_ASKED, "stream": True, "stream_options": {"include_usage": True}},
        "a forced call": {
            **_ASKED, "tools": [{"type": "function", "function": _TOOL}],
            "tool_choice": {"type": "function", "function": {"name": "add"}},
        },
        "JSON": {
            **_ASKED, "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": _SCHEMA}},
        },
        "a longer conversation": {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": _TEXTS},
                {"role": "assistant", "content": "It is 42.", "reasoning_content": "6 times 7."},
                {"role": "user", "content": "Why?"},
            ],
            "max_completion_tokens": 8,
        },
    },
    "/v1/messages": {
        "whole": {**_ASKED, "system": "Be brief.", "stop_sequences": ["."]},
        "in events": {**_ASKED, "stream": True},
        "a forced call": {
            **_ASKED, "tools": [{"name": "add", "input_schema": _TOOL["parameters"]}], "tool_choice": {"type": "any"},
        },
    },
    "/v1/messages/count_tokens": {"a question": {"messages": _ASKED["messages"]}},
    "/v1/responses": {
        "whole": {"input": "What is 6 times 7?", "instructions": "Be brief.", "max_output_tokens": 16},
        "in events": {"input": [{"role": "user", "content": "What is it?"}], "max_output_tokens": 8, "stream": True},
        "a forced call": {
            "input": "What is 6 times 7?", "max_output_tokens": 16, "tools": [{"type": "function", **_TOOL}],
            "tool_choice": "required",
        },
    },
    "/v1/embeddings": {"a text": {"input": "What is 6 times 7?"}},
    "/tokenize": {
        "as llama.cpp": {"content": "Hello"},
        "as vLLM": {"prompt": "Hello"},
        "a conversation": {"messages": _ASKED["messages"]},
    },
    "/detokenize": {"tokens": {"tokens": [1, 2, 3]}},
    "/apply-template": {"a question": {"messages": _ASKED["messages"]}},
}  # fmt: skip
