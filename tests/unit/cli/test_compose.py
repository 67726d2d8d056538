from __future__ import annotations

import dataclasses
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from mlxcel.cli.compose import Loaded, MemoryBounds, checkpoint_of, make_engine, served_model
from mlxcel.config.settings import ServeSettings
from mlxcel.core import Event, SamplingParams
from mlxcel.errors import ConfigError, ModelError
from mlxcel.model.checkpoint import Checkpoint, read_checkpoint
from mlxcel.model.memory import memory_bytes
from tests.support.turns import request


@pytest.fixture
def checkpoint(tiny_model: Path) -> Checkpoint:
    return read_checkpoint(tiny_model)


def defaults_of(checkpoint: Checkpoint, declared: dict[str, Any], **settings: Any) -> SamplingParams:
    changed = dataclasses.replace(checkpoint, generation_config=declared)
    return served_model(ServeSettings(**settings), changed).sampling


def test_the_model_id_is_the_alias_or_the_folders_name(checkpoint: Checkpoint) -> None:
    assert served_model(ServeSettings(), checkpoint).id == "tiny-llama"
    assert served_model(ServeSettings(alias="mine"), checkpoint).id == "mine"
    assert served_model(ServeSettings(), checkpoint).context_tokens == 2048


def test_sampling_defaults_are_settings_then_the_checkpoints_then_ours(checkpoint: Checkpoint) -> None:
    declared = {"temperature": 0.6, "top_k": 20, "top_p": None}
    penalised = {"repetition_penalty": 1.05, "typical_p": 0.9}
    assert defaults_of(checkpoint, {}) == SamplingParams(0)
    assert defaults_of(checkpoint, declared) == SamplingParams(0, 0.6, 1.0, 20)
    assert defaults_of(checkpoint, declared, temperature=0.0, min_p=0.1) == SamplingParams(0, 0.0, 1.0, 20, 0.1)
    assert defaults_of(checkpoint, penalised) == SamplingParams(0, repetition_penalty=1.05, typical_p=0.9)
    assert defaults_of(checkpoint, penalised, repetition_penalty=1.0) == SamplingParams(0, typical_p=0.9)


def test_a_greedy_checkpoint_leaves_the_settings_in_force(checkpoint: Checkpoint) -> None:
    declared = {"do_sample": False, "temperature": 0.6}
    assert defaults_of(checkpoint, declared) == SamplingParams(0, temperature=0.0)
    assert defaults_of(checkpoint, declared, top_p=0.9, top_k=5) == SamplingParams(0, 0.0, 0.9, 5)
    assert defaults_of(checkpoint, declared, temperature=0.7) == SamplingParams(0, 0.7)


@pytest.mark.parametrize(
    "declared", [{"top_k": -1}, {"temperature": "warm"}, {"top_p": 3}, {"min_p": True}, {"typical_p": -1}]
)
def test_a_checkpoints_default_that_no_request_could_send_is_refused(
    checkpoint: Checkpoint, declared: dict[str, Any]
) -> None:
    (name,) = declared
    with pytest.raises(ConfigError) as refusal:
        defaults_of(checkpoint, declared)
    assert refusal.value.param == name and "generation_config.json" in refusal.value.message
    chosen: dict[str, Any] = {name: 0}
    assert defaults_of(checkpoint, declared, **chosen) == SamplingParams(0, **chosen)


def test_a_missing_model_is_refused_with_what_to_do() -> None:
    with pytest.raises(ModelError, match="mlxcel serve MODEL"):
        checkpoint_of(ServeSettings())


@pytest.mark.parametrize(
    ("settings", "rows", "capacity"),
    [
        ({}, 32, 288),
        ({"no_batch": True}, 1, None),
        ({"no_batch": True, "max_queue_depth": 8}, 1, 9),
        ({"max_batch_size": 4, "max_queue_depth": 0}, 4, 4),
        ({"max_queue_depth": None}, 32, None),
    ],
)
def test_the_pool_of_the_engine_that_serves_follows_the_settings(
    checkpoint: Checkpoint, settings: dict[str, Any], rows: int, capacity: int | None
) -> None:
    events: SimpleQueue[list[Event]] = SimpleQueue()
    loaded: list[Loaded] = []
    engine = make_engine(ServeSettings(**settings), checkpoint, post=events.put, on_loaded=loaded.append)
    engine.start()
    assert engine.ready.wait(60) and engine.error is None
    assert engine.stats.n_slots == capacity and (loaded[0].n_rows, loaded[0].is_batching_exact) == (rows, True)
    engine.submit(request("a", [5, 6, 7], 2))
    ends: list[Event] = []
    while not ends:
        ends = [event for event in events.get(timeout=60) if event.finish is not None]
    assert ends[0].error is None and engine.stop(timeout_s=60)


@pytest.mark.parametrize(
    ("settings", "kv_bytes", "prefix_bytes"),
    [
        ({"kv_cache_budget_bytes": 4096}, 4096, 1024),
        ({"kv_cache_budget_bytes": 4096, "prefix_cache_bytes": 0}, 4096, 0),
        ({"kv_cache_budget_bytes": 4096, "prefix_cache_bytes": 2**30}, 4096, 2**30),
        ({"kv_cache_budget_bytes": None, "prefix_cache_bytes": 77}, None, 77),
    ],
)
def test_memory_is_bounded_as_the_settings_say(
    checkpoint: Checkpoint, settings: dict[str, Any], kv_bytes: int | None, prefix_bytes: int
) -> None:
    loaded: list[Loaded] = []
    asked = ServeSettings(mlx_cache_bytes=2**26, **settings)
    engine = make_engine(asked, checkpoint, post=lambda _: None, on_loaded=loaded.append)
    engine.start()
    assert engine.ready.wait(60) and engine.error is None and engine.stop(timeout_s=60)
    assert loaded[0].memory == MemoryBounds(kv_bytes, prefix_bytes, 2**26)
    assert engine.stats.kv_budget_bytes == kv_bytes


def test_an_unbounded_budget_still_bounds_what_prefixes_may_take_by_itself(checkpoint: Checkpoint) -> None:
    loaded: list[Loaded] = []
    engine = make_engine(
        ServeSettings(kv_cache_budget_bytes=None), checkpoint, post=lambda _: None, on_loaded=loaded.append
    )
    engine.start()
    assert engine.ready.wait(60) and engine.error is None and engine.stop(timeout_s=60)
    assert loaded[0].memory.kv_bytes is None and 0 < loaded[0].memory.prefix_bytes < memory_bytes() / 4
