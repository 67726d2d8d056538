"""How OpenAI's endpoints word log-probabilities. Source: OpenAI's API reference, completions and chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlxcel.text.logprobs import ReportedToken

LOWEST = -9999.0
"""Stands for a probability of 0, since JSON has no infinity."""


def completion_logprobs(tokens: Sequence[ReportedToken]) -> dict[str, Any]:
    """Four lists, side by side. The chosen token is among its alternatives, however unlikely."""
    return {
        "tokens": [_text(one.token) for one in tokens],
        "token_logprobs": [None if one.logprob is None else _finite(one.logprob) for one in tokens],
        "top_logprobs": [_alternatives(one) for one in tokens],
        "text_offset": [one.offset for one in tokens],
    }


def chat_logprobs(tokens: Sequence[ReportedToken]) -> dict[str, Any]:
    return {"content": token_logprobs(tokens), "refusal": None}


def token_logprobs(tokens: Sequence[ReportedToken]) -> list[dict[str, Any]]:
    """Each token with its alternatives."""
    return [{**_token(one.token, one.logprob), "top_logprobs": [_token(*other) for other in one.top]} for one in tokens]


def _token(token: bytes, logprob: float | None) -> dict[str, Any]:
    return {"token": _text(token), "logprob": _finite(logprob or 0.0), "bytes": list(token)}


def _alternatives(one: ReportedToken) -> dict[str, float] | None:
    if one.logprob is None:
        return None
    alternatives: dict[str, float] = {}
    for token, logprob in (*one.top, (one.token, one.logprob)):
        alternatives.setdefault(_text(token), _finite(logprob))
    return alternatives


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)


def _text(token: bytes) -> str:
    """Its text; a part of a character is written byte by byte, so that no two of them look alike."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
