"""The service over an engine whose model is known: limits, defaults and phases, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mlxcel.api.choices import Choices
from mlxcel.api.prepared import Prepared
from mlxcel.api.service import Phase, RowsServed, ServedModel, Service
from mlxcel.api.wire.answers import Usage
from mlxcel.api.wire.chat import ChatFields
from mlxcel.api.wire.completions import CompletionFields
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.core import Event, Request, SamplingParams
from mlxcel.engine.loop import Engine, EngineParts
from mlxcel.engine.runner import Runner
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.errors import ContextLengthExceeded, EngineDead, InputError, MlxcelError, NotReady, ServerBusy, UnknownModel
from mlxcel.kv.size import KVSize
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.tokenizer import load_tokenizer
from mlxcel.text.deltas import Content, Message
from tests.support.runners import FailingRunner, HangingRunner, PretendRunner, pretend_alone
from tests.support.turns import request

CONTEXT = 64


class RecordingEngine(Engine):
    """An engine that keeps what it was asked."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.asked: list[Request] = []

    def submit(self, *requests: Request) -> None:
        self.asked += requests
        super().submit(*requests)


@asynccontextmanager
async def serving(folder: Path, runner: Runner, n_rows: int = 2) -> AsyncIterator[tuple[Service, RecordingEngine]]:
    loop = asyncio.get_running_loop()
    limits = SchedulerLimits(max_batch_size=n_rows, max_queue_depth=0, prefill_chunk_tokens=0, kv_budget_bytes=None)
    scheduler = BatchScheduler(limits, kv_size=KVSize(bytes_per_token=1), eos_ids=frozenset())

    def post(events: list[Event]) -> None:
        loop.call_soon_threadsafe(service.tickets.deliver, events)

    engine = RecordingEngine(lambda: EngineParts(runner, scheduler), post)
    model = ServedModel("tiny", CONTEXT, created=0, sampling=SamplingParams(seed=0, temperature=0.3, top_k=7))
    service = Service(model, engine, n_places=None)
    service.tokenizer = load_tokenizer(read_checkpoint(folder))
    service.n_vocabulary = 1024
    try:
        yield service, engine
    finally:
        if engine.ready.is_set():
            assert await asyncio.to_thread(engine.stop, timeout_s=10)
        service.close()


def run(
    folder: Path,
    test: Callable[[Service, RecordingEngine], Awaitable[None]],
    runner: Runner | None = None,
    *,
    n_rows: int = 2,
) -> None:
    async def main() -> None:
        async with serving(folder, runner or PretendRunner(), n_rows) as (service, engine):
            engine.start()
            await asyncio.to_thread(engine.ready.wait, 10)
            await test(service, engine)

    asyncio.run(asyncio.wait_for(main(), timeout=30))


def test_how_rows_are_served_is_said_in_words() -> None:
    assert str(RowsServed(32, is_exact=True)) == "served up to 32 rows at a time"
    assert str(RowsServed(1, is_exact=True)) == "served one row at a time"
    assert str(RowsServed(1, is_exact=False)) == (
        "served one row at a time: its batched path does not give the same text"
    )


def fields_of(**fields: Any) -> CompletionFields:
    return CompletionFields(prompt="", **fields)


async def generate(service: Service, prompt: list[int], fields: GenerationFields) -> Choices:
    """One answer to one prompt."""
    assert service.tokenizer is not None
    return await service.generate([[Prepared(prompt, service.sampling(fields, service.tokenizer))]], fields)


async def message_of(choices: Choices) -> Message:
    (whole,) = await choices.whole()
    return whole.message


@pytest.mark.parametrize(
    ("n_prompt", "limit", "default", "max_tokens", "is_open_ended"),
    [
        (10, 5, None, 5, False),
        (10, CONTEXT - 10, None, CONTEXT - 10, False),
        (10, 5, 16, 5, False),
        (10, None, 16, 16, False),
        (CONTEXT - 3, None, 16, 3, False),
        (CONTEXT - 1, None, 16, 1, False),
        (CONTEXT - 1, None, None, 1, True),
        (10, None, None, CONTEXT - 10, True),
    ],
)
def test_the_token_limit_is_the_clients_or_the_default_or_the_rest_of_the_context(
    tiny_model: Path, n_prompt: int, limit: int | None, default: int | None, max_tokens: int, is_open_ended: bool
) -> None:
    async def test(service: Service, engine: RecordingEngine) -> None:
        fields = ChatFields(messages=[], max_tokens=limit) if default is None else fields_of(max_tokens=limit)
        choices = await generate(service, [5] * n_prompt, fields)
        await choices.whole()
        (asked,) = engine.asked
        assert (asked.max_tokens, asked.is_open_ended) == (max_tokens, is_open_ended)
        assert choices.usage == Usage(n_prompt, max_tokens)

    run(tiny_model, test)


@pytest.mark.parametrize(
    ("n_prompt", "limit", "param"),
    [(10, CONTEXT - 9, "max_tokens"), (CONTEXT, 1, "prompt"), (CONTEXT, None, "prompt"), (CONTEXT + 1, None, "prompt")],
)
def test_what_the_context_cannot_hold_is_refused_with_both_sizes_and_never_cut(
    tiny_model: Path, n_prompt: int, limit: int | None, param: str
) -> None:
    async def test(service: Service, engine: RecordingEngine) -> None:
        with pytest.raises(ContextLengthExceeded) as refusal:
            await generate(service, [5] * n_prompt, fields_of(max_tokens=limit))
        assert refusal.value.param == param
        assert str(n_prompt) in refusal.value.message and str(CONTEXT) in refusal.value.message
        assert engine.asked == [] and len(service.tickets) == 0

    run(tiny_model, test)


def test_an_empty_prompt_and_another_model_are_refused(tiny_model: Path) -> None:
    async def test(service: Service, engine: RecordingEngine) -> None:
        with pytest.raises(InputError) as refusal:
            await generate(service, [], fields_of(max_tokens=5))
        assert refusal.value.param == "prompt" and engine.asked == []
        service.check_model(None)
        service.check_model("tiny")
        with pytest.raises(UnknownModel, match=r"'other'.*'tiny'"):
            service.check_model("other")

    run(tiny_model, test)


def test_sampling_is_the_requests_then_the_servers_and_a_seed_is_always_set(tiny_model: Path) -> None:
    async def test(service: Service, engine: RecordingEngine) -> None:
        for fields in (fields_of(), fields_of(), fields_of(temperature=0, top_k=0, seed=0, min_p=0.5, ignore_eos=True)):
            await (await generate(service, [5], fields)).whole()
        first, second, third = engine.asked
        assert (first.sampling.temperature, first.sampling.top_k, first.sampling.top_p) == (0.3, 7, 1.0)
        assert first.sampling.seed != second.sampling.seed and first.id != second.id and not first.ignore_eos
        assert (third.sampling.temperature, third.sampling.top_k, third.sampling.seed) == (0, 0, 0)
        assert third.sampling.min_p == 0.5 and third.ignore_eos

    run(tiny_model, test)


def test_a_full_server_refuses_and_takes_the_next_when_one_is_gone(tiny_model: Path) -> None:
    runner = HangingRunner(PretendRunner(), decode_call=1)

    async def test(service: Service, engine: RecordingEngine) -> None:
        asking = [asyncio.create_task(generate(service, [5], fields_of(max_tokens=9))) for _ in range(3)]
        try:
            while len(engine.asked) < 3:
                await asyncio.sleep(0)
            assert await asyncio.to_thread(runner.is_hanging.wait, 10)
        finally:
            runner.release()
        first, second, third = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(third, ServerBusy) and third.retry_after_s
        assert not isinstance(first, BaseException) and not isinstance(second, BaseException)
        assert await message_of(first) == await message_of(second) != Message()
        assert len(service.tickets) == 0
        assert (await message_of(await generate(service, [6], fields_of(max_tokens=9)))).text

    run(tiny_model, test, runner)


def test_text_is_that_of_the_tokens(tiny_model: Path) -> None:
    async def test(service: Service, _: RecordingEngine) -> None:
        choices = await generate(service, [5, 6], fields_of(max_tokens=20))
        tokens = pretend_alone(request("r", [5, 6], 20))
        assert service.tokenizer is not None
        detokenizer = service.tokenizer.detokenizer()
        for token in tokens:
            detokenizer.add_token(token)
        detokenizer.finalize()
        assert await message_of(choices) == Message([Content(detokenizer.last_segment)])

    run(tiny_model, test)


def test_phases_follow_the_engine_and_only_ready_serves(tiny_model: Path) -> None:
    async def main() -> None:
        async with serving(tiny_model, PretendRunner()) as (service, engine):
            phases = [service.phase]
            with pytest.raises(NotReady):
                await generate(service, [5], fields_of(max_tokens=1))
            engine.start()
            await asyncio.to_thread(engine.ready.wait, 10)
            phases.append(service.phase)
            service.check_serving()
            service.is_draining = True
            phases.append(service.phase)
            with pytest.raises(NotReady, match="takes no new requests"):
                service.check_serving()
            assert phases == [Phase.LOADING, Phase.READY, Phase.DRAINING] and engine.asked == []

    asyncio.run(asyncio.wait_for(main(), timeout=30))


def test_a_dead_engine_is_told_to_every_reader_and_nothing_is_taken_any_more(tiny_model: Path) -> None:
    async def test(service: Service, engine: RecordingEngine) -> None:
        choices = await generate(service, [5, 6], fields_of(max_tokens=20))
        with pytest.raises(MlxcelError):
            await choices.whole()
        assert await asyncio.to_thread(engine.ended.wait, 10)
        assert service.phase is Phase.BROKEN and isinstance(engine.error, EngineDead)
        with pytest.raises(EngineDead):
            await generate(service, [5], fields_of(max_tokens=1))

    run(tiny_model, test, FailingRunner(PretendRunner(), decode_calls={1}, probe_fails=True))


async def three(service: Service, *prompts: list[int]) -> Choices:
    """Two answers to the first prompt and one to each of the others."""
    assert service.tokenizer is not None
    fields = fields_of(max_tokens=9)
    sampling = service.sampling(fields, service.tokenizer)
    first, *others = prompts
    return await service.generate(
        [[Prepared(first, sampling) for _ in range(2)], *([Prepared(other, sampling)] for other in others)], fields
    )


def test_choices_are_read_side_by_side_and_counted_with_each_prompt_once(tiny_model: Path) -> None:
    async def test(service: Service, _: RecordingEngine) -> None:
        choices = await three(service, [5, 6], [7])
        seen: list[int] = []
        async for arrived in choices.pieces():
            assert arrived is not None
            seen.append(arrived[0])
        assert set(seen) == {0, 1, 2} and len(choices.ends) == 3
        assert choices.usage == Usage(n_prompt_tokens=3, n_tokens=27)
        first, second, third = await (await three(service, [5, 6], [7])).whole()
        assert first == second != third
        assert third.message == await message_of(await generate(service, [7], fields_of(max_tokens=9)))

    run(tiny_model, test, n_rows=3)


def test_choices_for_which_there_is_no_place_leave_none_behind(tiny_model: Path) -> None:
    runner = HangingRunner(PretendRunner(), decode_call=1)

    async def test(service: Service, _: RecordingEngine) -> None:
        try:
            running = await generate(service, [5], fields_of(max_tokens=9))
            assert await asyncio.to_thread(runner.is_hanging.wait, 10)
            asking = asyncio.create_task(three(service, [5, 6], [7]))
            while len(service.tickets) < 4:
                await asyncio.sleep(0)
        finally:
            runner.release()
        with pytest.raises(ServerBusy):
            await asking
        await running.whole()
        await service.tickets.all_ended()

    run(tiny_model, test, runner, n_rows=3)


def test_an_error_of_one_choice_is_the_requests(tiny_model: Path) -> None:
    async def test(service: Service, _: RecordingEngine) -> None:
        choices = await three(service, [5, 6], [7, 8])
        with pytest.raises(MlxcelError):
            await choices.whole()
        choices.cancel()
        await service.tickets.all_ended()

    run(tiny_model, test, FailingRunner(PretendRunner(), prefill_calls={2}), n_rows=3)
