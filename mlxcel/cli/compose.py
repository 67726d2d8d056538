"""The composition root: settings become an engine, a service and an app, wired to each other.

Tests start the same server with another runner through `runner_of`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxcel.api.service import ServedModel
from mlxcel.config.settings import AUTO, ServeSettings
from mlxcel.config.sources import converted
from mlxcel.core import Event, SamplingParams
from mlxcel.engine.loop import Engine, EngineParts
from mlxcel.engine.runner import ModelRunner, Runner, batching_is_exact
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.errors import ModelError
from mlxcel.kv.size import SHARE_OF_MEMORY
from mlxcel.model.checkpoint import Checkpoint, read_checkpoint
from mlxcel.model.load import DEFAULT_CONTEXT_TOKENS, LoadedModel, load_model
from mlxcel.model.tokenizer import Tokenizer, load_tokenizer
from mlxcel.store.catalogue import find_model

SAMPLING_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty")
"""Named alike by settings, generation_config.json and requests."""

FEWEST_KV_TOKENS = 1024
"""A server that cannot hold this many tokens is no use; it says so instead of starting."""


@dataclass(frozen=True)
class Loaded:
    """What the engine's build hands to those who wait for it."""

    tokenizer: Tokenizer
    model: LoadedModel
    n_rows: int
    is_batching_exact: bool


def served_model(settings: ServeSettings, checkpoint: Checkpoint) -> ServedModel:
    """What the checkpoint and the settings say before anything is loaded."""
    return ServedModel(
        id=settings.alias or checkpoint.folder.resolve().name,
        context_tokens=checkpoint.context_tokens or DEFAULT_CONTEXT_TOKENS,
        created=int(checkpoint.folder.stat().st_mtime),
        sampling=_sampling_defaults(settings, checkpoint),
    )


def make_engine(
    settings: ServeSettings,
    checkpoint: Checkpoint,
    *,
    post: Callable[[list[Event]], None],
    on_loaded: Callable[[Loaded], None],
    on_change: Callable[[], None] = lambda: None,
    runner_of: Callable[[LoadedModel], Runner] = ModelRunner,
) -> Engine:
    """An engine that loads `checkpoint` on its own thread once started."""

    def build() -> EngineParts:
        tokenizer = load_tokenizer(checkpoint)
        tokenizer.warm_up()
        model = load_model(checkpoint)
        is_exact = batching_is_exact(model)
        n_rows = settings.batch_rows if is_exact else 1
        on_loaded(Loaded(tokenizer, model, n_rows=n_rows, is_batching_exact=is_exact))
        limits = SchedulerLimits(
            max_batch_size=n_rows,
            max_queue_depth=settings.queue_depth,
            prefill_chunk_tokens=settings.prefill_chunk_size,
            kv_budget_bytes=_kv_budget_bytes(settings, model),
        )
        scheduler = BatchScheduler(limits, kv_size=model.kv_size, eos_ids=tokenizer.eos_ids)
        return EngineParts(runner_of(model), scheduler)

    return Engine(build, post, on_change)


def checkpoint_of(settings: ServeSettings) -> Checkpoint:
    """Read the model that the settings name, a folder or one of the models folder.

    Errors: ModelError when they name none, or no usable one.
    """
    if not settings.model:
        raise ModelError(
            "no model was named; nothing was started. Give a name of 'mlxcel list' or a folder: 'mlxcel serve MODEL', "
            "MLXCEL_MODEL, or model = ... in config.toml. 'mlxcel pull OWNER/NAME' fetches one ('sudo mlxcel pull "
            "OWNER/NAME --system' for the service), 'mlxcel import' makes one",
            param="model",
        )
    return read_checkpoint(find_model(settings.model, Path(settings.models_dir)))


def _sampling_defaults(settings: ServeSettings, checkpoint: Checkpoint) -> SamplingParams:
    """Settings, then the checkpoint's generation_config, then our own defaults.

    Errors: ConfigError for a value of the checkpoint's that no request could send.
    """
    declared = checkpoint.generation_config
    # A checkpoint says "greedy" with do_sample, and then often carries a temperature that it never uses.
    if declared.get("do_sample") is False:
        declared = {**declared, "temperature": 0}
    chosen: dict[str, Any] = {}
    for name in SAMPLING_SETTINGS:
        if (value := getattr(settings, name)) is not None:
            chosen[name] = value
        elif (value := declared.get(name)) is not None:
            chosen[name] = converted(name, value, str(checkpoint.folder / "generation_config.json"))
    return SamplingParams(seed=0, **chosen)


def _kv_budget_bytes(settings: ServeSettings, model: LoadedModel) -> int | None:
    if settings.kv_cache_budget_bytes != AUTO:
        assert not isinstance(settings.kv_cache_budget_bytes, str)
        return settings.kv_cache_budget_bytes
    budget = int(_memory_bytes() * SHARE_OF_MEMORY) - model.weights_bytes
    needed = model.kv_size.bytes_for(FEWEST_KV_TOKENS)
    if budget < needed:
        raise ModelError(
            f"the weights take {model.weights_bytes} bytes, which leaves {budget} bytes of this machine's "
            f"memory for keys and values, and {FEWEST_KV_TOKENS} tokens need {needed}; nothing is being served. "
            "Choose a smaller model, or set --kv-cache-budget",
            param="kv_cache_budget_bytes",
        )
    return budget


def _memory_bytes() -> int:
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
