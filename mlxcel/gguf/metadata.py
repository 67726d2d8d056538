"""The key-value part of a GGUF header by key and kind; a missing key or a wrong kind is refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlxcel.errors import ModelError
from mlxcel.gguf.refusal import refusal

Numbers = npt.NDArray[Any]
Value = bool | int | float | str | list[str] | Numbers


class Metadata:
    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, key: str) -> Value:
        if key not in self._values:
            raise refusal(f"has no {key!r} in its metadata")
        return self._values[key]

    def text(self, key: str) -> str:
        value = self[key]
        if not isinstance(value, str):
            raise _wrong_kind(key, "text", value)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise _wrong_kind(key, "true or false", value)
        return value

    def integer(self, key: str) -> int:
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_kind(key, "a whole number", value)
        return value

    def count(self, key: str) -> int:
        """A whole number of at least 1 and below 2^31."""
        value = self.integer(key)
        if not 0 < value < 2**31:
            raise refusal(f"has {key!r} {value}, which is not a positive count")
        return value

    def number(self, key: str) -> float:
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _wrong_kind(key, "a number", value)
        if not np.isfinite(value) or value <= 0:
            raise refusal(f"has {key!r} {value}, which is not a positive number")
        return float(value)

    def texts(self, key: str) -> list[str]:
        value = self[key]
        if not isinstance(value, list):
            raise _wrong_kind(key, "a list of texts", value)
        return value

    def numbers(self, key: str) -> Numbers:
        value = self[key]
        if not isinstance(value, np.ndarray):
            raise _wrong_kind(key, "a list of numbers", value)
        return value


def _wrong_kind(key: str, wanted: str, value: Value) -> ModelError:
    kind = {list: "a list of texts", np.ndarray: "a list of numbers"}.get(type(value), repr(value)[:40])
    return refusal(f"has {key!r} as {kind}, where {wanted} should be")
