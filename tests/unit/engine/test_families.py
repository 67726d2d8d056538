"""Families of mlx_lm beside Llama, tiny and random: sliding windows, state-space layers, and one that cannot batch."""

from __future__ import annotations

import importlib
import random
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten, tree_unflatten

from mlxcel.core import Request, SamplingParams
from mlxcel.engine.runner import ModelRunner, batching_is_exact
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.kv.size import KVSize
from mlxcel.model.load import LoadedModel
from tests.support.turns import Turns, request

V = 300
COMMON = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma2": {"num_hidden_layers": 2, "query_pre_attn_scalar": 16},
    "gemma3_text": {
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": 16,
        "sliding_window": 16,
        "sliding_window_pattern": 2,
    },
    "nemotron_h": {
        "num_hidden_layers": 3,
        "hybrid_override_pattern": ["M", "*", "-"],
        "max_position_embeddings": 512,
        "attention_bias": False,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "mamba_proj_bias": False,
        "ssm_state_size": 16,
        "conv_kernel": 4,
        "n_groups": 1,
        "time_step_limit": (0.001, 100.0),
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-5,
        "use_bias": False,
        "use_conv_bias": True,
    },
}


def model_of(family: str) -> LoadedModel:
    module = importlib.import_module(f"mlx_lm.models.{family}")
    config = {"model_type": family, **COMMON, **FAMILIES[family]}
    model = module.Model(module.ModelArgs.from_dict(config))
    key = mx.random.key(1)
    weights = []
    for index, (name, array) in enumerate(tree_flatten(model.parameters())):
        if array.ndim > 1:
            scale = 1.5 / array.shape[-1] ** 0.5
            array = mx.random.normal(array.shape, key=mx.random.split(key, index + 1)[index]) * scale
        weights.append((name, array))
    model.update(tree_unflatten(weights))
    return LoadedModel(model=model, n_vocabulary=V, weights_bytes=0, kv_size=KVSize(bytes_per_token=1))


def turns_of(model: LoadedModel, *, rows: int, chunk: int) -> Turns:
    limits = SchedulerLimits(
        max_batch_size=rows, max_queue_depth=None, prefill_chunk_tokens=chunk, kv_budget_bytes=None
    )
    scheduler = BatchScheduler(limits, kv_size=model.kv_size, eos_ids=frozenset())
    scheduler.chunk_size.n_tokens = chunk
    return Turns(scheduler, ModelRunner(model))


def some_requests() -> list[Request]:
    draw = random.Random(0)
    return [
        request(f"r{index}", [draw.randrange(4, V) for _ in range(n_prompt)], 20)
        for index, n_prompt in enumerate([1, 2, 15, 16, 17, 40])
    ]


def tokens_of(turns: Turns, asked: list[Request], *, turns_between: int = 0) -> dict[str, list[int]]:
    for one in asked:
        turns.scheduler.submit(one)
        for _ in range(turns_between):
            turns.turn()
    turns.until_idle()
    return dict(turns.tokens)


@pytest.mark.parametrize("family", ["gemma3_text", "nemotron_h"])
def test_windows_and_state_layers_give_in_a_batch_what_they_give_alone(family: str) -> None:
    model = model_of(family)
    assert batching_is_exact(model)
    asked = some_requests()
    alone = tokens_of(turns_of(model, rows=1, chunk=512), asked)
    assert len({tuple(tokens) for tokens in alone.values()}) == len(asked)
    for rows, chunk in ((1, 7), (4, 512), (4, 9)):
        assert tokens_of(turns_of(model, rows=rows, chunk=chunk), asked, turns_between=3) == alone, (rows, chunk)


@pytest.mark.parametrize("n_prompt", [9, 40])
@pytest.mark.parametrize("family", ["gemma3_text", "nemotron_h"])
def test_answers_of_a_group_are_those_of_lone_requests_though_some_caches_cannot_go_back(
    family: str, n_prompt: int
) -> None:
    model = model_of(family)
    prompt = [random.Random(n_prompt).randrange(4, V) for _ in range(n_prompt)]
    asked = [request(f"a{seed}", prompt, 4 + seed, sampling=SamplingParams(seed=seed)) for seed in range(5)]
    alone = tokens_of(turns_of(model, rows=1, chunk=512), asked)
    for rows, chunk in ((2, 512), (5, 512), (3, 7)):
        turns = turns_of(model, rows=rows, chunk=chunk)
        turns.scheduler.submit(*asked)
        turns.until_idle()
        assert turns.tokens == alone, (rows, chunk)


def test_a_family_whose_batched_path_is_wrong_is_found_out_and_served_alone() -> None:
    model = model_of("gemma2")
    assert not batching_is_exact(model)
    asked = some_requests()
    whole = tokens_of(turns_of(model, rows=1, chunk=512), asked)
    assert tokens_of(turns_of(model, rows=1, chunk=7), asked) == whole
