"""The ranges that fields of several shapes share: a value outside is refused where it is parsed."""

from __future__ import annotations

from typing import Annotated

import msgspec

LARGEST_COUNT = 2**31 - 1

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
"""Also less than the vocabulary's size, which only the loaded model knows."""

MOST_STOPS = 64
Stop = Annotated[str, msgspec.Meta(min_length=1)]
Stops = Annotated[list[Stop], msgspec.Meta(max_length=MOST_STOPS)]

MOST_CHOICES = 128
NChoices = Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)]

NTopLogprobs = Annotated[int, msgspec.Meta(ge=0, le=20)]
