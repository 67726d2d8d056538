"""POST /v1/embeddings: what a client may send. Source: OpenAI's API reference, embeddings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mlxcel.api.wire.body import Fields
from mlxcel.errors import InputError

Text = Annotated[str, msgspec.Meta(min_length=1)]
Dimensions = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class EmbeddingFields(Fields, kw_only=True):
    """Texts or token ids, one or several of them."""

    input: Text | Annotated[list[str | int | list[int]], msgspec.Meta(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None

    def check(self) -> None:
        if isinstance(self.input, list) and len({type(item) for item in self.input}) > 1:
            raise InputError(
                "input mixes texts, token ids and lists of them; nothing was computed. Send one kind", param="input"
            )
