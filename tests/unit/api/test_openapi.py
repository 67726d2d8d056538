"""The OpenAPI document and the application say the same."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest
from starlette.routing import Route

from mlxcel.api.app import all_routes
from mlxcel.api.openapi.document import openapi_document
from mlxcel.api.openapi.operations import OPERATIONS
from mlxcel.api.service import ServedModel, Service
from mlxcel.api.wire.body import field_names
from mlxcel.config.settings import ServeSettings
from mlxcel.core import SamplingParams
from mlxcel.engine.loop import Engine, EngineParts


def never() -> EngineParts:
    raise NotImplementedError


@pytest.fixture
def served() -> set[tuple[str, str]]:
    model = ServedModel("tiny", 64, created=0, sampling=SamplingParams(seed=0))
    service = Service(model, Engine(never, lambda events: None), n_places=None)
    routes = all_routes(service, ServeSettings())
    assert all(isinstance(route, Route) for route in routes)
    return {
        (method, route.path.replace(":path}", "}"))
        for route in routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }


def test_every_route_is_documented_and_every_documented_operation_is_routed(served: set[tuple[str, str]]) -> None:
    paths = openapi_document("1")["paths"]
    assert served == {(method.upper(), path) for path, operations in paths.items() for method in operations}
    assert len(served) == len(OPERATIONS)


def test_every_field_that_a_body_is_parsed_for_is_documented() -> None:
    document = openapi_document("1")
    for operation in OPERATIONS:
        if operation.body is not None:
            described = document["paths"][operation.path][operation.method]["requestBody"]["content"]
            schema = resolved(document, described["application/json"]["schema"])
            assert schema["properties"].keys() == field_names(operation.body)
            required = {field.encode_name for field in msgspec.structs.fields(operation.body) if field.required}
            assert set(schema.get("required", [])) == required | set(operation.requires)


@pytest.mark.parametrize("asks_for_keys", [False, True])
def test_refusals_have_their_headers_and_the_envelope_of_their_api(asks_for_keys: bool) -> None:
    document = openapi_document("1", asks_for_keys=asks_for_keys)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            envelope = "MessagesError" if path.startswith("/v1/messages") else "Error"
            for status, response in responses.items():
                if status[0] in "45" and (path, status) != ("/health", "503"):
                    reference = response["content"]["application/json"]["schema"]["$ref"]
                    assert reference == f"#/components/schemas/{envelope}", (path, status)
            assert responses["405"]["headers"].keys() == {"X-Request-Id", "Allow"}
            assert path == "/health" or "503" not in responses or "Retry-After" in responses["503"]["headers"]
            needs_key = asks_for_keys and path != "/health"
            assert ("401" in responses) == needs_key == ("security" in operation)
            assert not needs_key or "WWW-Authenticate" in responses["401"]["headers"]
    assert ("securitySchemes" in document["components"]) == asks_for_keys


def test_what_generates_may_answer_in_events() -> None:
    paths = openapi_document("1")["paths"]
    streaming = {
        path
        for path, operations in paths.items()
        if "text/event-stream" in str(operations.get("post", {}).get("responses"))
    }
    assert streaming == {"/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"}


def test_the_schemas_are_schemas_and_name_no_module_of_ours() -> None:
    document = openapi_document("1")
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert name.isidentifier(), "two structs share a name"
    references = {text for text in strings(document) if text.startswith("#/")}
    assert all(resolved(document, {"$ref": reference}) for reference in references)


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found: Any = document
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    assert isinstance(found, dict)
    return found


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []
