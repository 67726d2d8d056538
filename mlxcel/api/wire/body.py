"""From a request's bytes to a typed value, or an InputError that names the field.

Source for the shapes: OpenAI's API reference. `null` means unset, everywhere.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from mlxcel.api.wire.fields import IGNORED_BELOW
from mlxcel.api.wire.unknown import unknown_paths
from mlxcel.errors import InputError

T = TypeVar("T", bound=msgspec.Struct)


class Fields(msgspec.Struct, kw_only=True):
    """What every body has: the model that it is meant for."""

    model: str | None = None

    def check(self) -> None:
        """Errors: InputError naming the first field whose value cannot be honoured."""


WHOLE_BODY = "body"
"""`param` of an error that concerns the body and no field of it."""

LARGEST_WHOLE_NUMBER = 2**64

MOST_DIGITS = 40
"""Enough to tell that a number is beyond every bound."""

_PATH = re.compile(r" - at `\$\.?(.*?)(?:\[\.\.\.\].*)?`$")
"""Up to the first key of an object whose keys are the client's own."""
_MISSING = re.compile(r"missing required field `(.+?)`")


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """A body's value, and the paths of the fields that nobody knows."""

    value: T
    unknown: tuple[str, ...]


def parse_fields(fields: dict[str, Any], shape: type[T], *, other_fields: frozenset[str]) -> Parsed[T]:
    """Validate decoded fields as a `shape`.

    `other_fields` are known by name but are not part of `shape`.
    Errors: InputError with the field's path as `param`.
    """
    known = field_names(shape)
    for name in known & fields.keys():
        # msgspec 0.21 breaks on a whole number that is too large for the float it should become.
        if isinstance(fields[name], int) and abs(fields[name]) > LARGEST_WHOLE_NUMBER:
            raise _beyond_bounds(name)
    try:
        value = msgspec.convert({name: fields[name] for name in fields if name in known}, shape)
    except SystemError as error:  # the same, deeper in a field; msgspec 0.23 names its path
        raise _beyond_bounds(next(name for name in known & fields.keys() if _has_huge(fields[name]))) from error
    except msgspec.ValidationError as error:
        raise _field_error(str(error)) from error
    return Parsed(value, tuple(unknown_paths(fields, shape, at_top=other_fields, below=IGNORED_BELOW)))


def _beyond_bounds(name: str) -> InputError:
    return InputError(f"{name} is a number beyond every bound; nothing was done", param=name)


def _has_huge(value: object) -> bool:
    """Whether a whole number beyond every bound is anywhere in a decoded value."""
    if isinstance(value, dict):
        return any(map(_has_huge, value.values()))
    if isinstance(value, list):
        return any(map(_has_huge, value))
    return isinstance(value, int) and abs(value) > LARGEST_WHOLE_NUMBER


@cache
def field_names(shape: type[msgspec.Struct]) -> frozenset[str]:
    """The names of a shape's fields, as a body has them.

    Kept: msgspec reads the annotations anew for each answer, which takes longer than all else that a refusal needs.
    """
    return frozenset(field.encode_name for field in msgspec.structs.fields(shape))


def decode_body(body: bytes) -> dict[str, Any]:
    """The fields of a JSON object that are set.

    Errors: InputError; `param` is the field where one can be named, else "body".
    """
    try:
        fields = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise _body_error(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise _body_error("the body's JSON is nested too deep") from error
    except msgspec.DecodeError as error:
        if (fault := _faulty_field(body)) is not None:
            raise fault from error
        raise _body_error(f"the body is not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _body_error("the body is JSON, but not an object")
    return {name: value for name, value in fields.items() if value is not None}


def _body_error(message: str) -> InputError:
    return InputError(f"{message}; nothing was done", param=WHOLE_BODY, code="invalid_body")


def _field_error(message: str) -> InputError:
    missing = _MISSING.search(message)
    path = _PATH.search(message)
    where = path[1] if path else ""
    if missing:
        where = f"{where}.{missing[1]}" if where else missing[1]
    text = _PATH.sub("", message)
    return InputError(f"{where or WHOLE_BODY}: {text}; nothing was done", param=where or WHOLE_BODY)


def _faulty_field(body: bytes) -> InputError | None:
    """What is wrong with the first value that Python's more lenient parser reads and JSON does not have."""
    try:
        # Whole numbers may have more digits than Python reads in one go; the first ones tell enough.
        fields = json.loads(body, parse_int=lambda digits: int(digits[:MOST_DIGITS]))
        return next(_faults(fields, ""), None)
    except (ValueError, RecursionError):
        return None


def _faults(value: Any, path: str) -> Iterator[InputError]:
    where = path or WHOLE_BODY
    if isinstance(value, dict):
        for name, item in value.items():
            if _is_unicode(name):
                yield from _faults(item, f"{path}.{name}" if path else name)
            else:
                yield _no_unicode(f"a name in {where}", where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, f"{path}[{index}]")
    elif isinstance(value, str) and not _is_unicode(value):
        yield _no_unicode(where, where)
    elif isinstance(value, float) and not math.isfinite(value):
        yield InputError(
            f"{where} is not a finite number (NaN and Infinity are not JSON); nothing was done", param=where
        )
    elif _has_huge(value):
        yield _beyond_bounds(where)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_unicode(what: str, param: str) -> InputError:
    return InputError(
        f"{what} is no valid Unicode: it has one half of a surrogate pair without the other; nothing was done",
        param=param,
    )
