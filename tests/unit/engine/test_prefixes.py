"""Prompts that begin as an earlier one did: the same tokens as cold, and only the rest is prefilled."""

from __future__ import annotations

import random
from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.core import FinishReason, Request, SamplingParams
from mlxcel.engine.runner import ModelRunner
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.kv.prefixes import PrefixLimits
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.load import LoadedModel, load_model
from tests.support.runners import FailingRunner
from tests.support.turns import Turns, request
from tests.unit.engine.test_families import model_of

EDGES = (31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> LoadedModel:
    return load_model(read_checkpoint(tiny_model))


class Warm(Turns):
    """Turns of a model with a prefix cache, or without one."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        rows: int = 4,
        chunk: int = 512,
        keeps: bool = True,
        kv_budget_bytes: int | None = None,
        open_ended_booking_tokens: int = 4096,
    ) -> None:
        limits = SchedulerLimits(
            max_batch_size=rows,
            max_queue_depth=None,
            prefill_chunk_tokens=chunk,
            kv_budget_bytes=kv_budget_bytes,
            open_ended_booking_tokens=open_ended_booking_tokens,
            prefixes=PrefixLimits(budget_bytes=None if keeps else 0),
        )
        scheduler = BatchScheduler(limits, kv_size=model.kv_size, eos_ids=frozenset())
        scheduler.chunk_size.n_tokens = chunk
        self.is_made_up = model.kv_size.bytes_per_token == 1
        """Its sizes, that is: those of a family without a folder."""
        self.model_runner = ModelRunner(model)
        self.counting = FailingRunner(self.model_runner)
        super().__init__(scheduler, self.counting)

    def run(self, *asked: Request) -> dict[str, list[int]]:
        for one in asked:
            self.scheduler.submit(one)
        self.until_idle()
        self.scheduler.pool.check()
        assert self.is_made_up or self.model_runner.kept_bytes <= self.scheduler.pool.kept_bytes
        return {one.id: self.tokens[one.id] for one in asked}


def ids(n_tokens: int, *, seed: int = 0) -> list[int]:
    draw = random.Random(1000 * seed + n_tokens)
    return [draw.randrange(4, 300) for _ in range(n_tokens)]


@pytest.mark.parametrize("chunk", [512, 7])
def test_a_prompt_asked_again_is_prefilled_only_once_and_answered_alike_at_every_edge(
    model: LoadedModel, chunk: int
) -> None:
    warm = Warm(model, rows=1, chunk=chunk)
    for n in EDGES:
        cold = warm.run(request(f"cold {n}", ids(n), 8))[f"cold {n}"]
        n_before = warm.counting.n_prefilled_tokens
        assert warm.run(request(f"warm {n}", ids(n), 8))[f"warm {n}"] == cold
        n_saved = n - 1 if n - 1 >= 32 else 0
        assert warm.counting.n_prefilled_tokens - n_before == n - 1 - n_saved
        assert warm.n_from_prefix[f"warm {n}"] == n_saved


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_any_shared_length_gives_the_tokens_of_a_cold_prompt(tiny_model: Path, dtype: str) -> None:
    model = load_model(read_checkpoint(tiny_model))
    model.model.set_dtype(getattr(mx, dtype))
    base = ids(540)
    for n_shared in (32, 33, 47, 256, 300, 511):
        prompt = [*base[:n_shared], 2, *ids(20, seed=n_shared)]
        cold = Warm(model, keeps=False).run(request("r", prompt, 8))
        warm = Warm(model)
        warm.run(request("base", base, 3))
        assert warm.run(request("r", prompt, 8)) == cold, n_shared
        assert warm.n_from_prefix["r"] == n_shared


@pytest.mark.parametrize("rows", [1, 3])
def test_each_turn_of_a_conversation_prefills_its_new_tokens_alone(model: LoadedModel, rows: int) -> None:
    warm = Warm(model, rows=rows)
    prompts = [ids(50 + 10 * index, seed=index) for index in range(3)]
    expected_prefilled = sum(len(prompt) - 1 for prompt in prompts)
    for turn in range(4):
        asked = [request(f"{index} {turn}", prompt, 9) for index, prompt in enumerate(prompts)]
        got = warm.run(*asked)
        assert got == Warm(model, rows=1, keeps=False).run(*asked)
        assert warm.counting.n_prefilled_tokens == expected_prefilled
        # The answer's last token was never a step's input, so its keys are not there yet.
        for index, prompt in enumerate(prompts):
            prompts[index] = [*prompt, *got[f"{index} {turn}"], *ids(5 + turn, seed=index)]
            expected_prefilled += len(prompts[index]) - 1 - (len(prompt) + 8)
    assert warm.scheduler.prefixes.n_hits == 9 and warm.scheduler.prefixes.n_misses == 3
    assert len(warm.scheduler.prefixes) == 3, "a turn that went on is in the next one's prefix"


def test_an_answer_cut_short_by_its_end_token_or_its_client_is_kept_too(model: LoadedModel) -> None:
    prompt = ids(60)
    whole = Warm(model, keeps=False).run(request("r", prompt, 20))["r"]
    warm = Warm(model)
    warm.run(request("stopped", prompt, 20, sampling=SamplingParams(0, 0, stop_token_ids=frozenset({whole[5]}))))
    assert warm.ends["stopped"].finish is FinishReason.STOP
    # The step after the end token was under way, so even that token's keys are there.
    assert warm.run(request("again", [*prompt, *whole[:7]], 13))["again"] == whole[7:]
    assert warm.n_from_prefix["again"] == 60 + 6


@pytest.mark.parametrize("n_turns", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("n_others", [0, 2])
def test_a_client_that_left_leaves_what_was_prefilled_for_whoever_asks_again(
    model: LoadedModel, n_turns: int, n_others: int
) -> None:
    warm = Warm(model, chunk=40)
    prompt = ids(150)
    expected = Warm(model, keeps=False).run(request("again", prompt, 10))
    for index in range(n_others):
        warm.scheduler.submit(request(f"other {index}", ids(35, seed=index), 30))
        warm.turn()
    warm.scheduler.submit(request("left", prompt, 30))
    for _ in range(n_turns):
        warm.turn()
    left = next(one for one in warm.scheduler._sequences.values() if one.id == "left")
    n_done = min(left.n_cached, 149)
    event = warm.scheduler.cancel("left")
    assert event is not None
    warm.record([event])
    assert warm.run(request("again", prompt, 10)) == expected
    assert warm.n_from_prefix["again"] == (n_done if n_done >= 32 else 0)


def test_answers_of_a_group_take_the_prefix_once_and_share_the_rest(model: LoadedModel) -> None:
    warm = Warm(model, rows=3, chunk=64)
    base = ids(200)
    warm.run(request("base", base, 2))
    n_before = warm.counting.n_prefilled_tokens
    asked = [request(f"a{i}", [*base, *ids(100)], 9, sampling=SamplingParams(seed=i)) for i in range(5)]
    cold = Warm(model, rows=1, keeps=False).run(*asked)
    warm.scheduler.submit(*asked)
    warm.until_idle()
    assert {one.id: warm.tokens[one.id] for one in asked} == cold
    assert warm.counting.n_prefilled_tokens - n_before == 99
    assert [warm.n_from_prefix[f"a{i}"] for i in range(5)] == [200, 0, 0, 0, 0]


def test_prefixes_give_way_to_sequences_and_a_row_that_gave_way_starts_from_one(model: LoadedModel) -> None:
    block = model.kv_size.bytes_for(1)
    warm = Warm(model, rows=2, kv_budget_bytes=3 * block, open_ended_booking_tokens=1)
    warm.run(request("old", ids(40, seed=7), 4), request("older", ids(40, seed=8), 4))
    assert warm.scheduler.pool.kept_bytes == 2 * block
    asked = [request(name, ids(250, seed=i), 30, is_open_ended=True) for i, name in enumerate("ab")]
    for one in asked:
        warm.scheduler.submit(one)
    n_waiting_again = 0
    while not warm.scheduler.is_idle:
        warm.turn()
        warm.scheduler.pool.check()
        n_waiting_again += bool(warm.scheduler.queue) and bool(warm.scheduler.decoding)
    assert n_waiting_again > 0
    assert {name: warm.tokens[name] for name in "ab"} == Warm(model, rows=1, keeps=False).run(*asked)


def test_logprobs_of_a_prompt_are_measured_over_all_of_it_however_warm(model: LoadedModel) -> None:
    warm = Warm(model)
    warm.run(request("first", ids(80), 3))
    warm.run(request("again", ids(80), 3, n_prompt_logprobs=0))
    assert len(warm.prompt_logprobs["again"]) == 79 and warm.n_from_prefix["again"] == 0


@pytest.mark.parametrize("n_prompt", [256, 257, 511, 513])
def test_a_prefix_takes_no_more_memory_than_the_books_say_whatever_the_chunks(
    model: LoadedModel, n_prompt: int
) -> None:
    for rows in (1, 2):
        warm = Warm(model, rows=rows, chunk=7)
        warm.run(request("a", ids(n_prompt), 2), request("b", ids(40), 40))
        assert 0 < warm.model_runner.kept_bytes <= warm.scheduler.pool.kept_bytes


def test_after_its_time_to_live_a_prefix_is_gone_with_its_arrays(model: LoadedModel) -> None:
    warm = Warm(model)
    warm.scheduler.prefixes._limits = PrefixLimits(None, ttl_s=60)
    warm.run(request("first", ids(80), 3))
    assert warm.model_runner.kept_bytes == warm.scheduler.pool.kept_bytes == model.kv_size.bytes_for(82)
    warm.now_s = 60.0
    warm.turn()
    assert warm.model_runner.kept_bytes == warm.scheduler.pool.kept_bytes == 0


@pytest.mark.parametrize("family", ["gemma3_text", "nemotron_h"])
def test_a_cache_that_cannot_go_back_serves_what_goes_on_from_all_of_it(family: str) -> None:
    model = model_of(family)
    for rows in (1, 3):
        warm = Warm(model, rows=rows)
        prompts = [ids(40 + 3 * index, seed=index) for index in range(3)]
        for turn in range(3):
            asked = [request(f"{index} {turn}", prompt, 7) for index, prompt in enumerate(prompts)]
            got = warm.run(*asked)
            assert got == Warm(model, rows=1, keeps=False).run(*asked), (rows, turn)
            for index, prompt in enumerate(prompts):
                assert warm.n_from_prefix[f"{index} {turn}"] == (0 if turn == 0 else len(prompt) - 5 - 1)
                prompts[index] = [*prompt, *got[f"{index} {turn}"], *ids(5, seed=index)]
        for n_alike, n_saved in ((45, 0), (50, 46)):
            asked = [request(f"{n_alike}", [*prompts[0][:n_alike], 2, 3], 7)]
            assert warm.run(*asked) == Warm(model, rows=1, keeps=False).run(*asked)
            assert warm.n_from_prefix[f"{n_alike}"] == n_saved
