"""The OpenAPI 3.1 document, made of the table of operations and of the shapes that bodies are parsed with."""

from __future__ import annotations

from typing import Any

import msgspec

from mlxcel.api.openapi import answers
from mlxcel.api.openapi.examples import EXAMPLES
from mlxcel.api.openapi.operations import OPERATIONS, Operation

EVERYWHERE = (400, 403, 405, 408, 415, 421, 431, 500)

REASONS = {
    400: "A malformed request, or a field that cannot be honoured; `param` names it",
    401: "No key, or none that is known",
    403: "A page of an origin that this server takes no requests from",
    404: "No such path, model or response",
    405: "Another method",
    408: "The request did not arrive in time",
    413: "The body is larger than --max-body-bytes",
    415: "A body in a content coding, which is not read here",
    421: "A Host that this server does not answer to",
    431: "A line or header that is too long",
    500: "This request failed; others went on",
    503: "No room now, or not ready: loading, stopping or broken",
    504: "The request did not end in time",
}

_HEADERS = {
    401: {"WWW-Authenticate": "The scheme that a key is sent in"},
    405: {"Allow": "The methods of this path"},
    503: {"Retry-After": "Seconds after which to ask again"},
}
_ID_HEADER = {"X-Request-Id": "The request's own id, or the one that it was given; it stands in the log"}
_TEXT = {"type": "string"}
_EVENT = {
    "description": "Each of the events",
    "type": "object",
    "properties": {"event": _TEXT, "data": _TEXT},
    "required": ["data"],
}
_LINKS = {
    operation.method: {
        "operationId": operation.id,
        "parameters": {"response_id": "$response.body#/id"},
    }
    for operation in OPERATIONS
    if "response_id" in operation.parameters
}
"""From a response to what may be done with it."""


def openapi_document(version: str, *, asks_for_keys: bool = False) -> dict[str, Any]:
    """The document; with `asks_for_keys` it says how they are sent."""
    names, schemas = _components()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, names, asks_for_keys)
    components: dict[str, Any] = {"schemas": schemas}
    if asks_for_keys:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "mlxcel", "version": version, "summary": "An OpenAI-compatible server for MLX models"},
        "paths": paths,
        "components": components,
    }


def _components() -> tuple[dict[type, Any], dict[str, Any]]:
    """A reference for each shape of a body or an answer, and all the schemas that these need."""
    bodies = [operation.body for operation in OPERATIONS if operation.body is not None]
    shapes = [operation.answer for operation in OPERATIONS if isinstance(operation.answer, type)]
    types: list[type] = list(dict.fromkeys([*bodies, *shapes, answers.Error, answers.MessagesError]))
    references, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_shape = dict(zip(types, references, strict=True))
    for operation in OPERATIONS:
        if operation.body is not None and operation.requires:
            name = by_shape[operation.body]["$ref"].rpartition("/")[2]
            schemas[name]["required"] = sorted({*schemas[name].get("required", []), *operation.requires})
    return by_shape, schemas


def _operation(operation: Operation, references: dict[type, Any], asks_for_keys: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary}
    if operation.parameters:
        described["parameters"] = [_parameter(operation, name, schema) for name, schema in operation.parameters.items()]
    if operation.body is not None:
        content = _content({"application/json": references[operation.body]})
        examples = {name: {"value": body} for name, body in EXAMPLES[operation.path].items()}
        content["application/json"]["examples"] = examples
        described["requestBody"] = {"required": True, "content": content}
    needs_key = asks_for_keys and not operation.is_open
    responses = {} if operation.answer is None else {"200": _answer(operation, references)}
    for status in sorted({*EVERYWHERE, *operation.statuses, *([401] if needs_key else [])}):
        responses[str(status)] = _refusal(operation, status, references)
    described["responses"] = responses
    if needs_key:
        described["security"] = [{"bearer": []}, {"x-api-key": []}]
    return described


def _refusal(operation: Operation, status: int, references: dict[type, Any]) -> dict[str, Any]:
    if status == 503 and operation.answer is answers.Health:
        return _response(REASONS[status], {"application/json": references[answers.Health]}, {})
    shape = answers.MessagesError if operation.path.startswith("/v1/messages") else answers.Error
    return _response(REASONS[status], {"application/json": references[shape]}, _HEADERS.get(status, {}))


def _answer(operation: Operation, references: dict[type, Any]) -> dict[str, Any]:
    if isinstance(operation.answer, tuple):
        return _response("The answer", {name: _TEXT if "text" in name else {} for name in operation.answer}, {})
    assert operation.answer is not None
    content = {"application/json": references[operation.answer]}
    if operation.streams:
        content["text/event-stream"] = _EVENT
    headers = {"X-Ignored-Fields": "Fields of the body that nobody knows"} if operation.body is not None else {}
    response = _response("The answer, whole or in events" if operation.streams else "The answer", content, headers)
    if operation.answer is answers.ResponseObject:
        response["links"] = _LINKS
    return response


def _response(description: str, content: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    described = {name: {"description": text, "schema": _TEXT} for name, text in (_ID_HEADER | headers).items()}
    return {"description": description, "headers": described, "content": _content(content)}


def _content(schemas: dict[str, Any]) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}


def _parameter(operation: Operation, name: str, schema: Any) -> dict[str, Any]:
    place = "path" if f"{{{name}}}" in operation.path else "header" if name.startswith("X-") else "query"
    return {"name": name, "in": place, "required": place == "path", "schema": schema}
