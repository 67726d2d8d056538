"""Tools for a model whose chat template knows none: their description, calls and results become plain text.

A template drops what it does not know without a word, so that a model would be asked to fill in arguments of
functions it never saw. What it says instead is what a grammar then makes it write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

INTRODUCTION = (
    "You can call functions. To call one or more of them, answer with nothing but a JSON array of calls, each of the "
    'form {"name": "...", "arguments": {...}}. The functions, each with the JSON schema of its arguments:'
)

Message = dict[str, Any]


def without_tools(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """Messages that say in words what the template cannot show. `tools` are in OpenAI's form."""
    plain = list(_plain(messages))
    if not tools:
        return plain
    words = "\n".join([INTRODUCTION, *(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)])
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{words}"}, *plain[1:]]
    return [{"role": "system", "content": words}, *plain]


def _plain(messages: Iterable[Message]) -> Iterable[Message]:
    for message in messages:
        if message["role"] == "tool":
            yield {"role": "user", "content": f"The function's result:\n{message['content']}"}
        elif calls := message.get("tool_calls"):
            text = json.dumps([_call(call["function"]) for call in calls], ensure_ascii=False, separators=(",", ":"))
            content = f"{message['content']}\n{text}" if message["content"] else text
            yield {"role": message["role"], "content": content}
        else:
            yield message


def _call(function: dict[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "arguments": function["arguments"]}
