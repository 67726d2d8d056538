"""The fields of a body, at any depth, that its shape does not have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect


def unknown_paths(
    fields: dict[str, Any], shape: type[msgspec.Struct], *, at_top: frozenset[str], below: frozenset[str]
) -> Iterator[str]:
    """Paths as `messages[0].colour`, in the body's order, of fields that are set.

    What the shape leaves open (a schema, template variables) is not looked into. The fields are valid for the shape;
    `at_top` and `below` are known by name though no shape has them.
    """
    known = _fields_of(shape)
    for name, value in fields.items():
        if name in known:
            yield from _paths(value, known[name], name, below)
        elif name not in at_top:
            yield name


@cache
def _fields_of(shape: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    kind = inspect.type_info(shape)
    assert isinstance(kind, inspect.StructType)
    return {field.encode_name: field.type for field in kind.fields}


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The types that a value may have, without what is said about them."""
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    else:
        yield kind


def _paths(value: Any, kind: inspect.Type, path: str, known: frozenset[str]) -> Iterator[str]:
    for one in _alternatives(kind):
        if isinstance(one, inspect.StructType) and isinstance(value, dict):
            fields = _fields_of(one.cls)
            for name, item in value.items():
                if name in fields:
                    yield from _paths(item, fields[name], f"{path}.{name}", known)
                elif name not in known and item is not None:
                    yield f"{path}.{name}"
        elif isinstance(one, inspect.ListType) and isinstance(value, list):
            for index, item in enumerate(value):
                yield from _paths(item, one.item_type, f"{path}[{index}]", known)
