"""The real runner on the tiny model: whatever the batch, the chunks or the neighbours, a row's tokens are its own."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import ConcatenateKVCache

from mlxcel.core import FinishReason, Request, SamplingParams, Sequence
from mlxcel.engine.runner import ModelRunner, batching_is_exact
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.errors import GenerationError
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.load import LoadedModel, load_model
from mlxcel.sampling.sampler import RowsSampler, Samples
from tests.support.turns import Turns, request

EDGE_LENGTHS = (1, 2, 3, 31, 32, 33, 200, 255, 256, 257, 300, 511, 512, 513)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> LoadedModel:
    return load_model(read_checkpoint(tiny_model))


def prompt_ids(n_tokens: int, *, seed: int = 0) -> list[int]:
    draw = random.Random(1000 * seed + n_tokens)
    return [draw.randrange(4, 1024) for _ in range(n_tokens)]


def turns_of(model: LoadedModel, *, rows: int = 32, chunk: int = 512, runner: ModelRunner | None = None) -> Turns:
    limits = SchedulerLimits(
        max_batch_size=rows, max_queue_depth=None, prefill_chunk_tokens=chunk, kv_budget_bytes=None
    )
    scheduler = BatchScheduler(limits, kv_size=model.kv_size, eos_ids=frozenset())
    scheduler.chunk_size.n_tokens = chunk
    return Turns(scheduler, runner or ModelRunner(model))


def tokens_together(turns: Turns, asked: SequenceOf[Request]) -> dict[str, list[int]]:
    for one in asked:
        turns.scheduler.submit(one)
    turns.until_idle()
    return dict(turns.tokens)


def tokens_alone(model: LoadedModel, asked: SequenceOf[Request]) -> dict[str, list[int]]:
    """Each request by itself, its prompt in one piece."""
    runner = ModelRunner(model)
    return {one.id: tokens_together(turns_of(model, rows=1, runner=runner), [one])[one.id] for one in asked}


@pytest.fixture(scope="module")
def reference(model: LoadedModel) -> dict[str, list[int]]:
    """mlx_lm's own greedy tokens for a prompt of each edge length."""
    return {
        str(n): [int(token) for token, _ in generate_step(mx.array(prompt_ids(n)), model.model, max_tokens=12)]
        for n in EDGE_LENGTHS
    }


@pytest.mark.parametrize(("rows", "chunk"), [(1, 1024), (1, 7), (1, 256), (14, 1024), (14, 32), (3, 100)])
def test_greedy_tokens_are_those_of_mlx_lm(
    model: LoadedModel, reference: dict[str, list[int]], rows: int, chunk: int
) -> None:
    asked = [request(str(n), prompt_ids(n), 12) for n in EDGE_LENGTHS]
    assert tokens_together(turns_of(model, rows=rows, chunk=chunk), asked) == reference


def some_requests(draw: random.Random, n_requests: int) -> list[Request]:
    return [
        request(
            f"r{index}",
            prompt_ids(draw.choice([1, 2, 5, 30, 64, 255, 270]), seed=draw.randrange(100)),
            draw.choice([1, 2, 9, 20]),
            sampling=SamplingParams(
                seed=draw.randrange(2**63),
                temperature=draw.choice([0.0, 0.0, 0.7, 1.0]),
                top_p=draw.choice([1.0, 0.9]),
                top_k=draw.choice([0, 40]),
                min_p=draw.choice([0.0, 0.05]),
            ),
        )
        for index in range(n_requests)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_join_and_leave_in_any_order_get_what_they_get_alone(model: LoadedModel, seed: int) -> None:
    draw = random.Random(seed)
    asked = some_requests(draw, 12)
    turns = turns_of(model, rows=4, chunk=50)
    cancelled = set()
    for one in asked:
        turns.scheduler.submit(one)
        for _ in range(draw.choice([0, 0, 1, 4])):
            turns.turn()
        if draw.random() < 0.25:
            name = draw.choice(asked).id
            if (event := turns.scheduler.cancel(name)) is not None:
                cancelled.add(name)
                turns.record([event])
    turns.until_idle()
    alone = tokens_alone(model, asked)
    for one in asked:
        got = turns.tokens[one.id]
        assert got == (alone[one.id][: len(got)] if one.id in cancelled else alone[one.id]), one.id
    assert isinstance(turns.runner, ModelRunner) and turns.runner.kv_bytes == 0


def test_a_row_that_gave_way_goes_on_with_the_same_tokens(model: LoadedModel) -> None:
    asked = [
        request(
            name, prompt_ids(250, seed=index), 30, sampling=SamplingParams(seed=index, top_k=50), is_open_ended=True
        )
        for index, name in enumerate("ab")
    ]
    limits = SchedulerLimits(
        max_batch_size=2,
        max_queue_depth=None,
        prefill_chunk_tokens=512,
        kv_budget_bytes=3 * model.kv_size.bytes_for(1),
        open_ended_booking_tokens=1,
    )
    turns = Turns(BatchScheduler(limits, kv_size=model.kv_size, eos_ids=frozenset()), ModelRunner(model))
    for one in asked:
        turns.scheduler.submit(one)
    n_waiting_again = 0
    while not turns.scheduler.is_idle:
        turns.turn()
        n_waiting_again += bool(turns.scheduler.queue) and bool(turns.scheduler.decoding)
        turns.scheduler.pool.check()
    assert n_waiting_again > 0
    assert turns.tokens == tokens_alone(model, asked)


class PickySampler(RowsSampler):
    """RowsSampler, but it fails for seed 666 when it is made, and for seed 667 at its third token."""

    def __init__(self, rows: SequenceOf[Sequence], previous: RowsSampler | None = None) -> None:
        if any(row.request.sampling.seed == 666 for row in rows):
            raise ValueError("no such seed")
        super().__init__(rows, previous)
        self._seeds = [row.request.sampling.seed for row in rows]

    def __call__(self, logits: mx.array, inputs: mx.array, positions: SequenceOf[int], masks: Any = None) -> Samples:
        if any(seed == 667 and n == 2 for seed, n in zip(self._seeds, positions, strict=True)):
            raise RuntimeError("no third token")
        return super().__call__(logits, inputs, positions, masks)


def test_a_row_whose_sampler_fails_ends_alone(model: LoadedModel) -> None:
    asked = [
        request(f"r{seed}", prompt_ids(10, seed=seed), 8, sampling=SamplingParams(seed=seed))
        for seed in (1, 666, 2, 667, 3)
    ]
    turns = turns_of(model, runner=ModelRunner(model, PickySampler))
    got = tokens_together(turns, asked)
    alone = tokens_alone(model, asked)
    for name in ("r1", "r2", "r3"):
        assert got[name] == alone[name] and turns.ends[name].finish is FinishReason.LENGTH
    for name, reason, n_tokens in (("r666", "no such seed", 0), ("r667", "no third token", 2)):
        error = turns.ends[name].error
        assert isinstance(error, GenerationError) and reason in error.message
        assert got.get(name, []) == alone[name][:n_tokens]


def test_a_reset_drops_the_rows_and_what_comes_next_is_unharmed(model: LoadedModel) -> None:
    turns = turns_of(model, rows=2, chunk=20)
    asked = [request(name, prompt_ids(15, seed=index), 10) for index, name in enumerate(["a", "b"])]
    for one in asked:
        turns.scheduler.submit(one)
    for _ in range(4):
        turns.turn()
    turns.turn(decode_fails=True)
    assert {end.finish for end in turns.ends.values()} == {FinishReason.ERROR} and len(turns.ends) == 2
    turns.runner.probe()
    again = [dataclasses.replace(one, id=f"{one.id} again") for one in asked]
    got = tokens_together(turns, again)
    alone = tokens_alone(model, again)
    assert {one.id: got[one.id] for one in again} == alone
    assert isinstance(turns.runner, ModelRunner) and turns.runner.kv_bytes == 0


def test_forgetting_a_sequence_in_prefill_frees_its_cache(model: LoadedModel) -> None:
    runner = ModelRunner(model)
    turns = turns_of(model, chunk=16, runner=runner)
    turns.scheduler.submit(request("a", prompt_ids(100), 5))
    turns.turn()
    assert runner.kv_bytes > 0
    turns.scheduler.cancel("a")
    turns.turn()
    assert runner.kv_bytes == 0
    runner.forget(["a", "never seen"])


def test_the_books_hold_what_a_lone_rows_caches_take(model: LoadedModel) -> None:
    runner = ModelRunner(model)
    turns = turns_of(model, rows=1, runner=runner)
    turns.scheduler.submit(request("a", prompt_ids(250), 20))
    sizes = set()
    while not turns.scheduler.is_idle:
        turns.turn()
        if not turns.scheduler.is_idle:
            assert runner.kv_bytes in (turns.scheduler.pool.held_bytes, turns.scheduler.pool.booked_bytes)
            sizes.add(runner.kv_bytes)
    assert sizes == {model.kv_size.bytes_for(1), model.kv_size.bytes_for(257)}


def test_batching_is_exact_for_a_plain_llama(model: LoadedModel) -> None:
    assert batching_is_exact(model)


class Variant:
    """The tiny model with something changed; everything else is the model's own."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model.model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        logits: mx.array = self._model(tokens, cache=cache)
        return logits


class ForgetsPadding(Variant):
    """Attends to the padding of shorter rows, as a model that makes its own mask would."""

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        for layer in cache:
            if hasattr(layer, "left_padding"):
                layer.left_padding = mx.zeros_like(layer.left_padding)
        return super().__call__(tokens, cache)


class RaisesInBatch(Variant):
    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        if tokens.shape[0] > 1:
            raise ValueError("shapes cannot be broadcast")
        return super().__call__(tokens, cache)


class CachesCannotMerge(Variant):
    def make_cache(self) -> list[Any]:
        return [ConcatenateKVCache() for _ in self._model.layers]


@pytest.mark.parametrize("variant", [ForgetsPadding, RaisesInBatch, CachesCannotMerge])
def test_a_model_whose_batched_path_is_wrong_is_found_out(model: LoadedModel, variant: type[Variant]) -> None:
    changed = dataclasses.replace(model, model=variant(model))
    assert not batching_is_exact(changed)
    got = tokens_together(turns_of(changed, rows=1), [request("a", prompt_ids(20), 5)])
    assert len(got["a"]) == 5, "it can still be served alone"
