"""Fields that are known by name but are not parsed: those that change nothing here, and those not served.

A field that is not served is refused unless its value asks for nothing.
"""

from __future__ import annotations

from typing import Any

from mlxcel.errors import InputError

IGNORED = frozenset(
    {
        "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "verbosity", "cache_prompt", "cache_control",
    }
)  # fmt: skip
"""They change nothing here; listed in docs/http-api.md."""

IGNORED_BELOW = IGNORED | {
    "strict", "description", "annotations", "audio", "signature", "citations", "effort", "id", "status",
    "index", "logprobs", "encrypted_content", "summary", "include_obfuscation",
}  # fmt: skip
"""Likewise inside of messages, items, tools and formats: clients send back what answers of other servers had."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "chat_template": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "return_token_strs": (False,),
}
"""Each field that some endpoint does not serve, and the values that ask for nothing."""

NOT_SERVED = frozenset(_NEUTRAL)


def refuse_not_served(fields: dict[str, Any], served: frozenset[str]) -> None:
    """Errors: InputError for a field that asks for something this endpoint does not do; it parses those `served`."""
    for name, neutral in _NEUTRAL.items():
        if name not in fields or name in served:
            continue
        value = fields[name]
        if not any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in neutral):
            raise InputError(
                f"{name} = {_shown(value)} is not served here; nothing was done. Leave the field out",
                param=name,
                code="unsupported_value",
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
