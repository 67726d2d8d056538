"""Sampling defaults: of the settings, then of the checkpoint, then our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlxcel.config.settings import ServeSettings
from mlxcel.config.sources import all_of, converted
from mlxcel.core import SamplingParams
from mlxcel.errors import ConfigError

SAMPLING_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty")
"""Named alike by settings, generation_config.json and requests."""


def sampling_defaults(settings: ServeSettings, declared: Mapping[str, Any], *, origin: str) -> SamplingParams:
    """What a request gets that names nothing. `declared` is a checkpoint's generation_config, read from `origin`.

    Errors: ConfigError naming each value of the checkpoint's that no request could send, one a line.
    """
    # A checkpoint says "greedy" with do_sample, and then often carries a temperature that it never uses.
    if declared.get("do_sample") is False:
        declared = {**declared, "temperature": 0}
    chosen: dict[str, Any] = {}
    faults: list[ConfigError] = []
    for name in SAMPLING_SETTINGS:
        if (value := getattr(settings, name)) is not None:
            chosen[name] = value
        elif (value := declared.get(name)) is not None:
            try:
                chosen[name] = converted(name, value, origin, is_typed=True)
            except ConfigError as error:
                faults.append(error)
    if faults:
        raise all_of(faults)
    return SamplingParams(seed=0, **chosen)
