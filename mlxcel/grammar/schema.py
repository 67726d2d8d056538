"""A JSON schema as a caller sends it, and the Lark grammars that are made of schemas.

Knows no tokenizer: text in, text out. Source: llguidance's docs/syntax.md and docs/json_schema.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from mlxcel.errors import InputError

LARGEST_SCHEMA_BYTES = 64 * 1024
LARGEST_GRAMMAR_BYTES = 512 * 1024
"""Of all the schemas that one answer may follow."""
MOST_CALLS = 16
"""In one answer whose calls are forced and may be several: a model that loops must come to an end."""

ANY_OBJECT: dict[str, Any] = {"type": "object"}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

# No whitespace between tokens: a model that may write any amount of it can go on for ever.
_COMPACT = {"whitespace_flexible": False}


class CallWords(NamedTuple):
    """The text around and between the calls of one answer, as Lark expressions."""

    opening: str
    between: str
    closing: str


def schema_text(schema: Any, param: str) -> str:
    """A schema as one line of JSON, with our whitespace and none of the caller's options.

    Errors: InputError naming `param` for a schema that is no schema, that nothing fits, or that is too large.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise InputError(
            f"{param} is not a JSON schema that something fits: it must be an object; nothing was done",
            param=param,
        )
    try:
        text = msgspec.json.encode({**schema, "x-guidance": _COMPACT}).decode()
    except RecursionError as error:
        raise InputError(f"{param} is nested too deep; nothing was done", param=param) from error
    if len(text) > LARGEST_SCHEMA_BYTES:
        raise InputError(
            f"{param} is {len(text)} bytes of JSON, and at most {LARGEST_SCHEMA_BYTES} are taken; nothing was "
            "done. Send a smaller schema",
            param=param,
        )
    return text


def json_grammar(schema: str) -> str:
    """One JSON value that fits the schema."""
    return f"start: %json {schema}\n"


def calls_grammar(tools: Sequence[tuple[str, str]], words: CallWords, *, is_parallel: bool) -> str:
    """Calls of functions, each `{"name":"...","arguments":{...}}`.

    `tools` holds each function's name and the text of its parameters' schema.
    """
    more = f"({words.between} call){{0,{MOST_CALLS - 1}}}" if is_parallel else ""
    lines = [f"start: {words.opening} call {more} {words.closing}".rstrip()]
    heads = [json.dumps(f'{{"name":{json.dumps(name)},"arguments":') for name, _ in tools]
    lines.append("call: " + " | ".join(f'{head} arguments_{index} "}}"' for index, head in enumerate(heads)))
    lines.extend(f"arguments_{index}: %json {schema}" for index, (_, schema) in enumerate(tools))
    return "\n".join(lines) + "\n"
