"""Every operation that is served, with all that it may answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from mlxcel.api.openapi import answers
from mlxcel.api.wire.chat import ChatFields
from mlxcel.api.wire.completions import CompletionFields
from mlxcel.api.wire.embeddings import EmbeddingFields
from mlxcel.api.wire.input_items import MOST_ITEMS
from mlxcel.api.wire.messages import CountTokensFields, MessagesFields
from mlxcel.api.wire.response_requests import ResponseFields
from mlxcel.api.wire.tokens import DetokenizeFields, TemplateFields, TokenizeFields
from mlxcel.core import Priority

WITH_BODY = (404, 413, 503)
"""Beside what every operation may answer: a model that is not served, a body too large, and no room or not ready."""


@dataclass(frozen=True)
class Operation:
    """One method of one path. `answer` is the shape of its 200, or the media types of one without; None: no 200.

    `streams`: it may answer with events instead. `statuses` are its own beside `EVERYWHERE`; `parameters` by name, with
    their schemas: in the path where it has them, in a header if named as one, else in the query.
    """

    method: str
    path: str
    summary: str
    answer: type[Struct] | tuple[str, ...] | None
    body: type[Struct] | None = None
    streams: bool = False
    statuses: tuple[int, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    """Fields of the body that must be set, beside those that its shape says."""
    is_open: bool = False
    """Answered without a key."""

    @property
    def id(self) -> str:
        words = re.sub(r"[{}]", "", self.path).translate(str.maketrans("-.", "__"))
        return "_".join([self.method, *filter(None, words.split("/"))])


_BY_ID: Mapping[str, Any] = {"response_id": {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}}
_PAGE: Mapping[str, Any] = {
    "order": {"type": "string", "enum": ["asc", "desc"]},
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ITEMS},
    "after": {"type": "string"},
}
_FLAG: Mapping[str, Any] = {"type": "string", "enum": ["0", "1", "false", "true"]}
_PRIORITY: Mapping[str, Any] = {"X-Priority": {"type": "string", "enum": [lane.value for lane in Priority]}}


def _generating(
    path: str, summary: str, answer: type[Struct], body: type[Struct], requires: tuple[str, ...] = ()
) -> Operation:
    return Operation(
        "post", path, summary, answer, body,
        streams=True, statuses=(*WITH_BODY, 504), parameters=_PRIORITY, requires=requires,
    )  # fmt: skip


OPERATIONS = (
    _generating("/v1/completions", "Go on from a text", answers.Completion, CompletionFields),
    _generating("/v1/chat/completions", "Answer a conversation", answers.ChatCompletion, ChatFields),
    _generating(
        "/v1/messages", "Answer a conversation, as Anthropic's API", answers.MessageAnswer, MessagesFields,
        requires=("max_tokens",),
    ),
    Operation(
        "post", "/v1/messages/count_tokens", "Count a conversation's tokens", answers.CountedTokens,
        CountTokensFields, statuses=WITH_BODY,
    ),
    _generating("/v1/responses", "Answer a conversation that is kept", answers.ResponseObject, ResponseFields),
    Operation(
        "get", "/v1/responses/{response_id}", "A kept response, or one under way", answers.ResponseObject,
        statuses=(404,), parameters={**_BY_ID, "stream": {"type": "string", "enum": ["false"]}},
    ),
    Operation(
        "delete", "/v1/responses/{response_id}", "Keep a response no longer", answers.DeletedResponse,
        statuses=(404,), parameters=_BY_ID,
    ),
    Operation(
        "get", "/v1/responses/{response_id}/input_items", "What a kept response was asked", answers.InputItems,
        statuses=(404,), parameters={**_BY_ID, **_PAGE},
    ),
    Operation(
        "post", "/v1/responses/{response_id}/cancel", "Cancel a response under way", answers.ResponseObject,
        statuses=(404,), parameters=_BY_ID,
    ),
    Operation(
        "post", "/v1/embeddings", "Refused: a model that continues text is no embedder", None, EmbeddingFields,
        statuses=WITH_BODY,
    ),
    Operation("post", "/tokenize", "Text to token ids", answers.Tokens, TokenizeFields, statuses=WITH_BODY),
    Operation("post", "/detokenize", "Token ids to text", answers.Text, DetokenizeFields, statuses=WITH_BODY),
    Operation("post", "/apply-template", "A conversation's prompt", answers.Prompt, TemplateFields, statuses=WITH_BODY),
    Operation("get", "/v1/models", "The served model, in a list", answers.Models),
    Operation(
        "get", "/v1/models/{model_id}", "The served model", answers.Model, statuses=(404,),
        parameters={"model_id": {"type": "string", "minLength": 1}},
    ),
    Operation("get", "/health", "Whether requests are served", answers.Health, statuses=(503,), is_open=True),
    Operation("get", "/metrics", "Prometheus metrics", ("text/plain", "application/openmetrics-text")),
    Operation(
        "get", "/slots", "Who runs and who waits", answers.Slots, statuses=(503,),
        parameters={"fail_on_no_slot": _FLAG},
    ),
    Operation("get", "/version", "Versions", answers.Version),
    Operation("get", "/openapi.json", "This document", ("application/json",)),
)  # fmt: skip
