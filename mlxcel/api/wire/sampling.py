"""How a client may have tokens picked: the fields that every endpoint which generates takes, and their ranges."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mlxcel.api.wire.body import Fields
from mlxcel.api.wire.ranges import Count, Share, TokenId

Temperature = Annotated[float, msgspec.Meta(ge=0, le=100)]
RepetitionPenalty = Annotated[float, msgspec.Meta(ge=0.01, le=100)]
AnswerPenalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
LogitBias = Annotated[float, msgspec.Meta(ge=-100, le=100)]
Breaker = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class SamplingFields(Fields, kw_only=True):
    """Named as OpenAI, llama.cpp and vLLM name them. `core.SamplingParams` says what each does."""

    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    min_p: Share | None = None
    typical_p: Share | None = None
    xtc_probability: Share | None = None
    xtc_threshold: Share | None = None
    repetition_penalty: RepetitionPenalty | None = None
    presence_penalty: AnswerPenalty | None = None
    frequency_penalty: AnswerPenalty | None = None
    dry_multiplier: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    dry_base: Annotated[float, msgspec.Meta(ge=1, le=100)] | None = None
    dry_allowed_length: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    dry_penalty_last_n: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    dry_sequence_breakers: Annotated[list[Breaker], msgspec.Meta(max_length=16)] | None = None
    logit_bias: dict[str, LogitBias] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    min_tokens: Count | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
