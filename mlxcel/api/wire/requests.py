"""What a client may send to any endpoint that generates, and to completions; the limits of every field."""

from __future__ import annotations

import math

import msgspec

from mlxcel.api.wire.body import Fields
from mlxcel.errors import InputError

LARGEST_TEMPERATURE = 100.0
MOST_STOPS = 64


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None


class GenerationFields(Fields, kw_only=True):
    """Fields that both generating endpoints share."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None

    def check(self) -> None:
        """Errors: InputError naming the first field out of its range."""
        check_range("temperature", self.temperature, 0, LARGEST_TEMPERATURE)
        check_range("top_p", self.top_p, 0, 1)
        check_range("min_p", self.min_p, 0, 1)
        check_range("top_k", self.top_k, 0, 2**31 - 1)
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_range("max_tokens", self.max_tokens, 1, 2**31 - 1)
        if len(self.stops) > MOST_STOPS:
            raise InputError(f"stop holds more than {MOST_STOPS} strings; nothing was generated", param="stop")
        if "" in self.stops:
            raise InputError("stop holds an empty string; nothing was generated", param="stop")
        if self.stream_options is not None and not self.stream:
            raise InputError("stream_options is only for stream: true; nothing was generated", param="stream_options")

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class CompletionFields(GenerationFields, kw_only=True):
    """POST /v1/completions."""

    prompt: str


def check_range(name: str, value: float | None, lowest: float, highest: float) -> None:
    """Errors: InputError naming the field when its value is set and out of its range."""
    if value is not None and not (math.isfinite(value) and lowest <= value <= highest):
        raise InputError(f"{name} = {value} is not between {lowest} and {highest}; nothing was generated", param=name)
