"""A request's fields become the engine's sampling parameters, over the server's defaults."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from mlxcel.api.wire.requests import GenerationFields
from mlxcel.api.wire.sampling import SamplingFields
from mlxcel.core import SamplingParams
from mlxcel.errors import InputError
from mlxcel.model.tokenizer import Tokenizer

DRY_BREAKERS = ("\n", ":", '"', "*")
"""llama.cpp's."""

LARGEST_SEED = 2**63 - 1

_TAKEN_AS_SENT = frozenset(field.name for field in fields_of(SamplingParams)) & frozenset(
    SamplingFields.__struct_fields__
) - {"logit_bias", "dry_penalty_last_n", "dry_sequence_breakers", "stop_token_ids"}


def sampling_params(
    fields: GenerationFields, defaults: SamplingParams, tokenizer: Tokenizer, n_vocabulary: int
) -> SamplingParams:
    """How a request's tokens are picked; what it leaves unset is the server's, and its seed random.

    Owner: the tokenizer's thread.
    Errors: InputError for a token id that is not in the vocabulary, or where min_tokens leaves nothing to pick.
    """
    sent: dict[str, Any] = {name: getattr(fields, name) for name in _TAKEN_AS_SENT}
    if fields.logit_bias is not None:
        sent["logit_bias"] = _logit_bias(fields.logit_bias, n_vocabulary)
    if fields.stop_token_ids is not None:
        check_ids(fields.stop_token_ids, n_vocabulary, "stop_token_ids")
        sent["stop_token_ids"] = frozenset(fields.stop_token_ids)
    if fields.seed is None:
        sent["seed"] = secrets.randbits(63)
    params = replace(
        defaults,
        n_logprobs=fields.n_logprobs,
        dry_penalty_last_n=None if fields.dry_penalty_last_n == -1 else fields.dry_penalty_last_n,
        **{name: value for name, value in sent.items() if value is not None},
    )
    _check_ends(params, frozenset() if fields.ignore_eos else tokenizer.eos_ids, n_vocabulary)
    if params.xtc_probability:
        params = replace(params, xtc_exempt_ids=tokenizer.vocabulary.line_ends)
    if params.dry_multiplier:
        texts = DRY_BREAKERS if fields.dry_sequence_breakers is None else fields.dry_sequence_breakers
        breakers = tuple(breaker for text in texts for breaker in tokenizer.vocabulary.breakers(text))
        params = replace(params, dry_sequence_breakers=breakers)
    return params


def of_choice(params: SamplingParams, index: int) -> SamplingParams:
    """Those of one of several answers to a prompt: each draws for itself, the first as if it were alone."""
    return replace(params, seed=(params.seed + index) % (LARGEST_SEED + 1))


def check_ids(ids: Iterable[int], n_vocabulary: int, param: str, *, counts: bool = True) -> None:
    """Errors: InputError for the first id that no token has, naming it as an item of `param` where `counts`."""
    for index, token in enumerate(ids):
        if not 0 <= token < n_vocabulary:
            where = f"{param}[{index}]" if counts else param
            raise InputError(
                f"{where} names token {token}, and the vocabulary's are 0 to {n_vocabulary - 1}; nothing was done",
                param=where,
            )


def _check_ends(params: SamplingParams, eos_ids: frozenset[int], n_vocabulary: int) -> None:
    """Errors: InputError where every token ends the answer, which may not end yet."""
    # Both hold ids of the vocabulary alone.
    if params.min_tokens and len(params.stop_token_ids | eos_ids) == n_vocabulary:
        raise InputError(
            f"min_tokens = {params.min_tokens} leaves no token to pick: with stop_token_ids all {n_vocabulary} of the "
            "vocabulary end the answer; nothing was done. Send fewer stop_token_ids, or min_tokens 0",
            param="stop_token_ids",
        )


def _logit_bias(sent: dict[str, float], n_vocabulary: int) -> dict[int, float]:
    for key in sent:
        if not (key.isascii() and key.isdigit() and len(key) < 20):
            raise InputError(
                f"logit_bias has the key {key[:60]!r}, which is no token id; nothing was done", param="logit_bias"
            )
    biases = {int(key): bias for key, bias in sent.items()}
    check_ids(biases, n_vocabulary, "logit_bias", counts=False)
    return biases
