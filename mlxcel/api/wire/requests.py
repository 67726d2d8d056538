"""What a client may send to any endpoint that generates."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from mlxcel.api.wire.ranges import Limit, Stop, Stops
from mlxcel.api.wire.sampling import SamplingFields
from mlxcel.errors import InputError


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None


class GenerationFields(SamplingFields, kw_only=True):
    """Fields that all generating endpoints share, and what the engine asks of each endpoint's own.

    `default_tokens` is how much is generated at most if the client sets no limit; None is the rest of the context.
    `prompt_field` is the field that has what is gone on from.
    """

    default_tokens: ClassVar[int | None] = None
    prompt_field: ClassVar[str] = "messages"

    max_tokens: Limit | None = None
    stop: Stop | Stops | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    def check(self) -> None:
        """Errors: InputError naming the first field that does not go together with the others."""
        if self.stream_options is not None and not self.stream:
            raise InputError("stream_options is only for stream: true; nothing was done", param="stream_options")
        most = self.default_tokens if self.limit is None else self.limit
        if self.min_tokens and most is not None and self.min_tokens > most:
            raise InputError(
                f"min_tokens = {self.min_tokens} is more than the {most} tokens that the answer may have; "
                "nothing was done",
                param="min_tokens",
            )

    @property
    def limit(self) -> int | None:
        """The most tokens that the client wants, by whatever name; None is no wish."""
        return self.max_tokens

    @property
    def n_choices(self) -> int:
        """Answers to each prompt."""
        return 1

    @property
    def n_logprobs(self) -> int | None:
        """Alternatives to report with each token of an answer; None reports nothing."""
        return None

    @property
    def n_prompt_logprobs(self) -> int | None:
        """The same for each token of the prompt."""
        return None

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)
