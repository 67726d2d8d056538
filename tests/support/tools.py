"""A tool, and what a model says that thinks, speaks and calls it twice."""

from __future__ import annotations

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
SAID_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'
SAID = f"<think>\nI should look.\n</think>\nOne moment.{SAID_CALL}{SAID_CALL}"
