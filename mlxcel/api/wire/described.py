"""What the OpenAPI document says of a field beside its type, where more than its type decides whether it is served."""

from __future__ import annotations

from typing import Any

import msgspec


def described(**schema: Any) -> msgspec.Meta:
    """Keywords of JSON schema that are only described: whoever reads the field checks them, in words of its own."""
    return msgspec.Meta(extra_json_schema=schema)


def one_of(*values: str) -> msgspec.Meta:
    return described(enum=list(values))
