"""The real runner on the tiny model: whatever the batch, the chunks or the neighbours, a row's tokens are its own."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import ConcatenateKVCache

from mlxcel.core import FinishReason, Request, Sampled, SamplingParams, Sequence, TokenLogprobs
from mlxcel.engine.chunk import Chunk, Fork
from mlxcel.engine.runner import ModelRunner, Runner, batching_is_exact
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.errors import GenerationError
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.load import LoadedModel, load_model
from mlxcel.sampling.sampler import RowsSampler, Samples
from tests.support.constraints import CompleteAfter, FailsIn, ThirdOfVocabulary
from tests.support.rows import any_params
from tests.support.runners import FailingRunner
from tests.support.turns import Turns, request

V = 1024
GREEDY = SamplingParams(seed=0, temperature=0)
EDGE_LENGTHS = (1, 2, 3, 31, 32, 33, 200, 255, 256, 257, 300, 511, 512, 513)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> LoadedModel:
    return load_model(read_checkpoint(tiny_model))


def prompt_ids(n_tokens: int, *, seed: int = 0) -> list[int]:
    draw = random.Random(1000 * seed + n_tokens)
    return [draw.randrange(4, 1024) for _ in range(n_tokens)]


def scheduler_of(model: LoadedModel, *, rows: int = 32, chunk: int = 512) -> BatchScheduler:
    limits = SchedulerLimits(
        max_batch_size=rows, max_queue_depth=None, prefill_chunk_tokens=chunk, kv_budget_bytes=None
    )
    scheduler = BatchScheduler(limits, kv_size=model.kv_size, eos_ids=frozenset())
    scheduler.chunk_size.n_tokens = chunk
    return scheduler


def turns_of(model: LoadedModel, *, rows: int = 32, chunk: int = 512, runner: Runner | None = None) -> Turns:
    return Turns(scheduler_of(model, rows=rows, chunk=chunk), runner or ModelRunner(model))


def tokens_together(turns: Turns, asked: SequenceOf[Request]) -> dict[str, list[int]]:
    for one in asked:
        turns.scheduler.submit(one)
    turns.until_idle()
    return dict(turns.tokens)


def tokens_alone(model: LoadedModel, asked: Iterable[Request]) -> dict[str, list[int]]:
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
    """Rows of every kind."""
    asked = []
    for index in range(n_requests):
        prompt = prompt_ids(draw.choice([1, 2, 5, 30, 64, 255, 270]), seed=draw.randrange(100))
        is_plain = draw.random() < 0.3
        sampling = GREEDY if is_plain else any_params(draw, n_vocabulary=V)
        if not is_plain and draw.random() < 0.3:
            sampling = dataclasses.replace(sampling, stop_token_ids=frozenset(draw.sample(range(V), 50)))
        constraint = None
        if not is_plain and draw.random() < 0.4:
            constraint = ThirdOfVocabulary(n_vocabulary=V, n_tokens=draw.choice([1, 6, 30]))
        n_tokens = draw.choice([1, 2, 9, 20])
        asked.append(request(f"r{index}", prompt, n_tokens, sampling=sampling, constraint=constraint))
    return asked


def again(one: Request) -> Request:
    """The same request with a constraint that has heard nothing yet."""
    constraint = one.constraint
    return one if constraint is None else dataclasses.replace(one, constraint=constraint.renewed())  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_every_kind_that_join_and_leave_in_any_order_get_what_they_get_alone(
    model: LoadedModel, seed: int
) -> None:
    draw = random.Random(seed)
    asked = some_requests(draw, 14)
    alone = Turns(scheduler_of(model, rows=1), ModelRunner(model))
    for one in asked:
        tokens_together(alone, [again(one)])
    turns = turns_of(model, rows=8, chunk=50)
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
    for one in asked:
        got, expected = turns.tokens[one.id], alone.tokens[one.id]
        assert got == (expected[: len(got)] if one.id in cancelled else expected), one.id
        if one.id not in cancelled:
            assert turns.ends[one.id].finish is alone.ends[one.id].finish
        check_logprobs(one, turns.logprobs[one.id], alone.logprobs[one.id])
    assert isinstance(turns.runner, ModelRunner) and turns.runner.kv_bytes == 0


def check_logprobs(
    one: Request, got: SequenceOf[TokenLogprobs | None], alone: SequenceOf[TokenLogprobs | None]
) -> None:
    """Logprobs come with every token or with none, and are those of the row alone up to the kernels' rounding."""
    n_top = one.sampling.n_logprobs
    for ours, theirs in zip(got, alone, strict=False):
        assert (n_top is None) == (ours is None) == (theirs is None)
        if n_top is None or ours is None or theirs is None:
            continue
        assert len(ours.top) == n_top and all(value <= 0 for _, value in ours.top) and ours.chosen <= 0
        assert ours.chosen == pytest.approx(theirs.chosen, abs=1e-3)
        assert [value for _, value in ours.top] == pytest.approx([value for _, value in theirs.top], abs=1e-3)


def test_a_row_that_gave_way_goes_on_with_the_same_tokens(model: LoadedModel) -> None:
    asked = [
        request(
            name,
            prompt_ids(250, seed=index),
            30,
            sampling=SamplingParams(
                seed=index,
                top_k=50,
                repetition_penalty=1.2,
                frequency_penalty=0.5,
                dry_multiplier=0.8,
                dry_allowed_length=1,
                min_tokens=20,
                stop_token_ids=frozenset(range(0, V, 2)),
            ),
            is_open_ended=True,
            constraint=ThirdOfVocabulary(n_vocabulary=V, n_tokens=29),
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
    turns.scheduler.chunk_size.n_tokens = 512
    for one in asked:
        turns.scheduler.submit(one)
    n_waiting_again = 0
    while not turns.scheduler.is_idle:
        turns.turn()
        n_waiting_again += bool(turns.scheduler.queue) and bool(turns.scheduler.decoding)
        turns.scheduler.pool.check()
    assert n_waiting_again > 0
    assert turns.tokens == tokens_alone(model, map(again, asked))
    assert all(20 < len(tokens) < 29 for tokens in turns.tokens.values()), "an even token ends it after 20"


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


@pytest.mark.parametrize("method", ["mask", "advance", "is_complete"])
def test_a_row_whose_constraint_fails_ends_alone(model: LoadedModel, method: str) -> None:
    fine = [
        request("plain", prompt_ids(10, seed=1), 8),
        request("constrained", prompt_ids(10, seed=2), 8, constraint=ThirdOfVocabulary(n_vocabulary=V, n_tokens=6)),
    ]
    failing = request("failing", prompt_ids(10, seed=3), 8, constraint=FailsIn(method, n_tokens=3))
    expected = tokens_alone(model, [*map(again, fine), request("failing", prompt_ids(10, seed=3), 8)])
    turns = turns_of(model)
    got = tokens_together(turns, [fine[0], failing, fine[1]])
    assert {one.id: got[one.id] for one in fine} == {one.id: expected[one.id] for one in fine}
    assert turns.ends["plain"].finish is FinishReason.LENGTH and turns.ends["constrained"].finish is FinishReason.STOP
    error = turns.ends["failing"].error
    assert isinstance(error, GenerationError) and f"{method} failed on cue" in error.message
    # A constraint that fails as it takes a token has not allowed it.
    assert got["failing"] == expected["failing"][: {"mask": 3, "advance": 3, "is_complete": 2}[method]]


def test_a_row_whose_constraint_allows_nothing_ends_alone(model: LoadedModel) -> None:
    class Nothing(CompleteAfter):
        def mask(self) -> Any:
            return np.zeros(V // 32, np.uint32)

    turns = turns_of(model)
    asked = [
        request("plain", prompt_ids(10), 5),
        request("stuck", prompt_ids(10), 5, constraint=Nothing(9)),
        request("dry", prompt_ids(10), 5, sampling=dataclasses.replace(GREEDY, dry_multiplier=1, n_logprobs=2)),
    ]
    got = tokens_together(turns, asked)
    error = turns.ends["stuck"].error
    assert isinstance(error, GenerationError) and "allows no token" in error.message
    expected = tokens_alone(model, [asked[0], asked[2]])
    assert {name: got[name] for name in expected} == expected
    assert all(one is not None and len(one.top) == 2 for one in turns.logprobs["dry"])


def test_a_row_ends_with_its_own_stop_tokens_and_not_before_min_tokens(model: LoadedModel) -> None:
    whole = tokens_alone(model, [request("r", prompt_ids(20), 12)])["r"]
    stop = whole[4]
    for min_tokens in (0, 1, 4):
        sampling = dataclasses.replace(GREEDY, stop_token_ids=frozenset({stop, 10**6}), min_tokens=min_tokens)
        turns = turns_of(model)
        tokens_together(turns, [request("r", prompt_ids(20), 12, sampling=sampling, ignore_eos=True)])
        assert turns.tokens["r"] == whole[:5] and turns.ends["r"].token == stop
        assert turns.ends["r"].finish is FinishReason.STOP
    sampling = dataclasses.replace(GREEDY, stop_token_ids=frozenset({stop}), min_tokens=5)
    got = tokens_alone(model, [request("r", prompt_ids(20), 12, sampling=sampling)])["r"]
    assert got[:4] == whole[:4] and stop not in got[:5]


def test_logprobs_are_the_models_own_whatever_chose_the_token(model: LoadedModel) -> None:
    sampling = SamplingParams(
        seed=5, temperature=1.5, repetition_penalty=2, logit_bias={9: -50.0}, min_tokens=3, n_logprobs=20
    )
    asked = request("r", prompt_ids(40), 10, sampling=sampling)
    turns = turns_of(model)
    tokens_together(turns, [asked, request("other", prompt_ids(3), 10)])
    tokens = [*asked.prompt, *turns.tokens["r"]]
    logits = model.model(mx.array([tokens]))[0].astype(mx.float32)
    exact = np.array(logits, np.float64)
    exact -= np.log(np.exp(exact - exact.max(-1, keepdims=True)).sum(-1, keepdims=True)) + exact.max(-1, keepdims=True)
    for n, (token, reported) in enumerate(zip(turns.tokens["r"], turns.logprobs["r"], strict=True)):
        expected = exact[len(asked.prompt) - 1 + n]
        assert reported is not None and reported.chosen == pytest.approx(expected[token], abs=2e-3)
        values = [value for _, value in reported.top]
        assert values == pytest.approx(sorted(expected, reverse=True)[:20], abs=2e-3)
        assert values == sorted(values, reverse=True)
        assert [expected[one] for one, _ in reported.top] == pytest.approx(values, abs=2e-3)
    assert turns.logprobs["other"] == [None] * 10


@pytest.mark.parametrize("chunk", [1000, 7])
def test_logprobs_of_a_prompt_come_with_the_first_token_and_are_the_models_own(model: LoadedModel, chunk: int) -> None:
    prompt = prompt_ids(100)
    turns = turns_of(model, rows=4, chunk=chunk)
    asked = [request(f"r{n}", prompt, 3, n_prompt_logprobs=n) for n in (4, 0, None)]
    turns.scheduler.submit(*asked)
    turns.scheduler.submit(request("one token", [5], 3, n_prompt_logprobs=1))
    turns.until_idle()
    assert turns.tokens["r4"] == turns.tokens["r0"] == turns.tokens["rNone"]
    assert turns.prompt_logprobs.keys() == {"r4", "r0", "one token"} and turns.prompt_logprobs["one token"] == ()
    exact = np.array(model.model(mx.array([prompt]))[0].astype(mx.float32), np.float64)
    exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
    for name, n_top in (("r4", 4), ("r0", 0)):
        for n, reported in enumerate(turns.prompt_logprobs[name]):
            assert reported.chosen == pytest.approx(exact[n, prompt[n + 1]], abs=2e-3)
            assert [token for token, _ in reported.top] == np.argsort(-exact[n])[:n_top].tolist()
        assert len(turns.prompt_logprobs[name]) == 99


def group_of(n_answers: int, prompt: list[int], max_tokens: int = 15) -> list[Request]:
    return [request(f"a{index}", prompt, max_tokens, sampling=SamplingParams(seed=index)) for index in range(n_answers)]


@pytest.mark.parametrize("n_prompt", [1, 2, 40, 300])
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_answers_of_a_group_share_one_prefill_and_are_those_of_lone_requests(
    model: LoadedModel, rows: int, n_prompt: int
) -> None:
    asked = group_of(5, prompt_ids(n_prompt))
    runner = FailingRunner(ModelRunner(model))
    turns = turns_of(model, rows=rows, chunk=100, runner=runner)
    for _ in range(3):
        turns.scheduler.submit(request(f"before {_}", prompt_ids(9, seed=_), 3 + 5 * _))
    turns.scheduler.submit(*asked)
    turns.until_idle()
    expected = tokens_alone(model, asked)
    assert {one.id: turns.tokens[one.id] for one in asked} == expected
    assert len({tuple(tokens) for tokens in expected.values()}) == 5
    if rows > 1:
        # Later ones fork from whichever still runs, so the prompt is prefilled once however few rows there are.
        assert runner.n_prefilled_tokens == 3 * 8 + n_prompt - 1
        assert runner.n_fork_calls == (4 if n_prompt > 1 else 0)


def test_a_fork_from_a_source_that_was_prefilled_beyond_the_prompt_has_the_prompt_alone(model: LoadedModel) -> None:
    asked = [request(name, prompt_ids(30), 8) for name in ("source", "fork")]
    source, fork = Sequence(asked[0]), Sequence(asked[1])
    source.tokens += [5, 6, 7]  # it gave way, and its answer so far was prefilled with its prompt
    runner = ModelRunner(model)
    runner.prefill(Chunk(source, 0, 32))
    source.n_prefilled = 32
    assert runner.fork(Fork(fork, source, 29))
    got = []
    for n in range(8):
        fork.n_launched = n + 1
        got += [result for _, result in runner.decode([fork])]
    got += [result for _, result in runner.decode([])]
    assert [one.token for one in got if isinstance(one, Sampled)] == tokens_alone(model, asked)["fork"]


@pytest.mark.parametrize("n_turns", [0, 1, 2, 3, 4, 6, 12])
def test_cancelling_any_answer_of_a_group_at_any_time_leaves_the_others(model: LoadedModel, n_turns: int) -> None:
    asked = group_of(4, prompt_ids(150))
    expected = tokens_alone(model, asked)
    for victim in ("a0", "a2"):
        turns = turns_of(model, rows=3, chunk=64)
        turns.scheduler.submit(*asked)
        for _ in range(n_turns):
            turns.turn()
        event = turns.scheduler.cancel(victim)
        assert event is not None
        turns.record([event])
        turns.scheduler.pool.check()
        turns.until_idle()
        assert len(turns.scheduler.pool) == 0 and turns.ends.keys() == expected.keys()
        for name, tokens in expected.items():
            got = turns.tokens[name]
            assert got == (tokens[: len(got)] if name == victim else tokens), name


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
