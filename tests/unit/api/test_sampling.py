"""A request's fields become the engine's parameters: as sent, over the server's defaults, ids checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlxcel.api.sampling import DRY_BREAKERS, of_choice, sampling_params
from mlxcel.api.wire.completions import CompletionFields
from mlxcel.core import SamplingParams
from mlxcel.errors import InputError
from tests.support.prompts import tokenizer_of

N_VOCABULARY = 1024
DEFAULTS = SamplingParams(seed=0, temperature=0.3, repetition_penalty=1.1, typical_p=0.9)
AS_SENT: dict[str, Any] = {
    "seed": 5, "temperature": 0.0, "top_p": 0.5, "top_k": 9, "min_p": 0.1, "typical_p": 1.0, "xtc_threshold": 0.2,
    "repetition_penalty": 1.0, "presence_penalty": -1.0, "frequency_penalty": 2.0, "dry_base": 2.0,
    "dry_allowed_length": 3, "min_tokens": 4,
}  # fmt: skip


def params_of(model: Path, **fields: Any) -> SamplingParams:
    sent = CompletionFields(prompt="", **fields)
    return sampling_params(sent, DEFAULTS, tokenizer_of(model), N_VOCABULARY)


def test_what_is_sent_goes_before_the_defaults_and_zero_is_sent_too(tiny_model: Path) -> None:
    assert params_of(tiny_model, **AS_SENT) == SamplingParams(**AS_SENT)


def test_what_is_not_sent_is_the_servers_and_the_seed_another_each_time(tiny_model: Path) -> None:
    first, second = params_of(tiny_model), params_of(tiny_model)
    assert first == SamplingParams(seed=first.seed, temperature=0.3, repetition_penalty=1.1, typical_p=0.9)
    assert first.seed != second.seed and 0 <= first.seed < 2**63


def test_biases_and_stops_are_of_ids_that_exist(tiny_model: Path) -> None:
    params = params_of(tiny_model, logit_bias={"0": -100.0, "1023": 1.5}, stop_token_ids=[7, 1023, 7])
    assert params.logit_bias == {0: -100.0, 1023: 1.5} and params.stop_token_ids == {7, 1023}
    wrong: list[tuple[str, Any]] = [
        ("stop_token_ids", [5, 1024]),
        *[("logit_bias", {key: 1.0}) for key in ("1024", "-1", "1.0", "a", "", " 5", "٥", "9" * 5000)],
    ]
    for name, value in wrong:
        with pytest.raises(InputError, match="nothing was done") as refusal:
            params_of(tiny_model, **{name: value})
        path = "stop_token_ids[1]" if name == "stop_token_ids" else name
        assert refusal.value.param == path and len(refusal.value.message) < 200


def test_min_tokens_needs_a_token_that_ends_nothing(tiny_model: Path) -> None:
    everything, without_ends = (
        list(range(N_VOCABULARY)),
        [token for token in range(N_VOCABULARY) if token not in (0, 2)],
    )
    for ids in (everything, without_ends):
        with pytest.raises(InputError, match="leaves no token to pick") as refusal:
            params_of(tiny_model, min_tokens=1, stop_token_ids=ids)
        assert refusal.value.param == "stop_token_ids"
    with pytest.raises(InputError):
        params_of(tiny_model, min_tokens=1, stop_token_ids=everything, ignore_eos=True)
    assert params_of(tiny_model, min_tokens=1, stop_token_ids=without_ends, ignore_eos=True).min_tokens == 1
    assert params_of(tiny_model, min_tokens=1, stop_token_ids=without_ends[1:]).min_tokens == 1
    assert params_of(tiny_model, min_tokens=0, stop_token_ids=everything).min_tokens == 0


def test_xtc_spares_line_ends_and_dry_has_llama_cpps_breakers_unless_others_are_sent(tiny_model: Path) -> None:
    vocabulary = tokenizer_of(tiny_model).vocabulary
    assert params_of(tiny_model).xtc_exempt_ids == frozenset() and params_of(tiny_model).dry_sequence_breakers == ()
    assert params_of(tiny_model, xtc_probability=0.5).xtc_exempt_ids == vocabulary.line_ends
    usual = tuple(breaker for text in DRY_BREAKERS for breaker in vocabulary.breakers(text))
    assert params_of(tiny_model, dry_multiplier=1.0).dry_sequence_breakers == usual != ()
    own = params_of(tiny_model, dry_multiplier=1.0, dry_sequence_breakers=["the"]).dry_sequence_breakers
    assert own == vocabulary.breakers("the")
    assert params_of(tiny_model, dry_multiplier=1.0, dry_sequence_breakers=[]).dry_sequence_breakers == ()


def test_dry_looks_back_as_far_as_asked_and_minus_one_is_everything(tiny_model: Path) -> None:
    asked = [params_of(tiny_model, dry_penalty_last_n=n).dry_penalty_last_n for n in (None, -1, 0, 9)]
    assert asked == [None, None, 0, 9]


def test_each_choice_has_a_seed_of_its_own_within_the_seeds_there_are() -> None:
    params = SamplingParams(seed=2**63 - 2)
    assert [of_choice(params, index).seed for index in range(4)] == [2**63 - 2, 2**63 - 1, 0, 1]
