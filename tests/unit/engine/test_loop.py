from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from mlxcel.core import Event, FinishReason, Request, Sequence
from mlxcel.engine.loop import Engine, EngineParts
from mlxcel.engine.runner import ModelRunner, Results, Runner
from mlxcel.engine.scheduler import BatchScheduler, SchedulerLimits
from mlxcel.errors import (
    ContextLengthExceeded,
    EngineDead,
    GenerationError,
    InputError,
    MlxcelError,
    ModelError,
    NotReady,
    ServerBusy,
)
from mlxcel.kv.prefixes import PrefixLimits
from mlxcel.kv.size import KVSize
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.load import load_model
from tests.support.runners import FailingRunner, HangingRunner, PretendRunner, pretend_alone
from tests.support.turns import request

PATIENCE_S = 30.0
"""How long an event may take before a test fails."""


class Heard:
    """Every event that the engine posts, by request; an event after an end fails the test."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.ends: dict[str, Event] = {}
        self.accepted: set[str] = set()
        self.queue: SimpleQueue[list[Event]] = SimpleQueue()

    def until(self, condition: Callable[[], bool]) -> None:
        """Take events until the condition holds."""
        while not condition():
            self.take(self.queue.get(timeout=PATIENCE_S))

    def until_ended(self, *names: str) -> None:
        self.until(lambda: self.ends.keys() >= set(names))

    def rest(self) -> None:
        """Take what is there already."""
        while not self.queue.empty():
            self.take(self.queue.get_nowait())

    def take(self, events: list[Event]) -> None:
        self.batches.append(events)
        for event in events:
            assert event.request_id not in self.ends, f"{event} came after the end"
            if event.token is not None:
                self.tokens[event.request_id].append(event.token)
            elif event.finish is None:
                assert event.request_id not in self.accepted
                self.accepted.add(event.request_id)
            if event.finish is not None:
                self.ends[event.request_id] = event


def scheduler_of(*, max_batch_size: int = 4, max_queue_depth: int | None = None, chunk: int = 16) -> BatchScheduler:
    limits = SchedulerLimits(
        max_batch_size=max_batch_size,
        max_queue_depth=max_queue_depth,
        prefill_chunk_tokens=chunk,
        kv_budget_bytes=None,
    )
    return BatchScheduler(limits, kv_size=KVSize(bytes_per_token=1), eos_ids=frozenset())


@contextmanager
def engine_of(runner: Runner, scheduler: BatchScheduler | None = None) -> Iterator[tuple[Engine, Heard]]:
    """An engine that is not started yet; it is stopped when the block ends."""
    heard = Heard()
    parts = EngineParts(runner, scheduler or scheduler_of())
    engine = Engine(lambda: parts, heard.queue.put)
    yield engine, heard
    assert engine.stop(timeout_s=PATIENCE_S)
    heard.rest()


def is_in_a_step(engine: Engine) -> bool:
    return engine.step_started_s is not None


def engine_thread() -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == "mlxcel-engine")


def test_requests_are_accepted_then_served_and_each_ends_once() -> None:
    asked = [request(f"r{i}", list(range(i + 1)), 1 + i % 5) for i in range(20)]
    with engine_of(PretendRunner()) as (engine, heard):
        engine.start()
        for one in asked:
            engine.submit(one)
        heard.until_ended(*(one.id for one in asked))
    assert heard.accepted == {one.id for one in asked}
    assert heard.tokens == {one.id: pretend_alone(one) for one in asked}
    assert all(end.finish is FinishReason.LENGTH for end in heard.ends.values())
    assert engine.error is None and engine.stats.n_generated_tokens == sum(map(len, heard.tokens.values()))
    assert (engine.stats.n_slots_used, engine.stats.n_decoding, engine.stats.n_failed_steps) == (0, 0, 0)


def test_all_events_of_a_step_leave_in_one_call() -> None:
    with engine_of(PretendRunner()) as (engine, heard):
        for name in ("a", "b", "c"):
            engine.submit(request(name, [1, 2], 10))
        engine.start()
        heard.until_ended("a", "b", "c")
    steps = [batch for batch in heard.batches if batch[0].token is not None]
    assert [[event.request_id for event in step] for step in steps] == [["a", "b", "c"]] * 10


def test_the_real_model_serves_through_the_thread(tiny_model: Path) -> None:
    heard = Heard()

    def build() -> EngineParts:
        model = load_model(read_checkpoint(tiny_model))
        limits = SchedulerLimits(max_batch_size=3, max_queue_depth=None, prefill_chunk_tokens=16, kv_budget_bytes=None)
        scheduler = BatchScheduler(limits, kv_size=model.kv_size, eos_ids=frozenset())
        return EngineParts(ModelRunner(model), scheduler)

    engine = Engine(build, heard.queue.put)
    engine.start()
    asked = [request(f"r{i}", [5 + i] * (3 + 10 * i), 8) for i in range(5)]
    for one in asked:
        engine.submit(one)
    heard.until_ended(*(one.id for one in asked))
    together = dict(heard.tokens)
    for one in asked:
        alone = request(f"alone {one.id}", list(one.prompt), 8)
        engine.submit(alone)
        heard.until_ended(alone.id)
        assert heard.tokens[alone.id] == together[one.id] and len(together[one.id]) == 8
    assert engine.stop(timeout_s=PATIENCE_S) and engine.error is None


def test_a_full_pool_refuses_and_the_running_go_on() -> None:
    with engine_of(PretendRunner(), scheduler_of(max_batch_size=1, max_queue_depth=1)) as (engine, heard):
        for name in ("a", "b", "c"):
            engine.submit(request(name, [1, 2], 5))
        engine.start()
        heard.until_ended("a", "b", "c")
    assert isinstance(heard.ends["c"].error, ServerBusy) and heard.accepted == {"a", "b"}
    assert heard.tokens == {name: pretend_alone(request(name, [1, 2], 5)) for name in "ab"}


def test_a_decode_step_that_raises_ends_its_rows_and_the_engine_goes_on() -> None:
    runner = FailingRunner(PretendRunner(), decode_calls={3})
    with engine_of(runner, scheduler_of(chunk=4)) as (engine, heard):
        for one in (request("a", [1, 2], 50), request("b", [3], 50), request("prefilling", [4] * 40, 3)):
            engine.submit(one)
        engine.start()
        heard.until_ended("a", "b", "prefilling")
        engine.submit(request("later", [5], 4))
        heard.until_ended("later")
    for name in ("a", "b"):
        end = heard.ends[name]
        assert isinstance(end.error, GenerationError) and "decode failed on cue" in end.error.message
        assert heard.tokens[name] == pretend_alone(request(name, [1, 2] if name == "a" else [3], 50))[:1]
    for one in (request("prefilling", [4] * 40, 3), request("later", [5], 4)):
        assert heard.tokens[one.id] == pretend_alone(one)
    assert engine.error is None and engine.stats.n_failed_steps == 1


def test_a_chunk_that_raises_ends_its_sequence_alone_and_its_cache_is_dropped() -> None:
    pretend = PretendRunner()
    runner = FailingRunner(pretend, prefill_calls={3})
    with engine_of(runner, scheduler_of(max_batch_size=2, chunk=4)) as (engine, heard):
        for one in (request("a", [1, 2], 12), request("b", [3] * 20, 3)):
            engine.submit(one)
        engine.start()
        heard.until_ended("a", "b")
        assert isinstance(heard.ends["b"].error, GenerationError) and not heard.tokens["b"]
        assert heard.tokens["a"] == pretend_alone(request("a", [1, 2], 12))
        engine.submit(request("c", [3] * 20, 3))
        heard.until_ended("c")
    assert heard.tokens["c"] == pretend_alone(request("c", [3] * 20, 3))
    assert engine.error is None and engine.stats.n_failed_steps == 1 and not pretend.n_cached


def test_the_cache_of_a_failed_prefill_is_dropped_at_once_and_not_with_the_next_request() -> None:
    class Probed(PretendRunner):
        def probe(self) -> None:
            assert not self.n_cached

    runner = FailingRunner(Probed(), prefill_calls={2})
    with engine_of(runner, scheduler_of(chunk=4)) as (engine, heard):
        engine.start()
        engine.submit(request("a", [1] * 7, 3))
        heard.until_ended("a")
    assert isinstance(heard.ends["a"].error, GenerationError) and engine.error is None


@pytest.mark.parametrize("fault", ["decode", "prefill"])
def test_a_device_that_no_longer_computes_ends_the_engine_and_every_ticket_hears_it(fault: str) -> None:
    calls = {2} if fault == "decode" else ()
    runner = FailingRunner(
        PretendRunner(), decode_calls=calls, prefill_calls={2} if fault == "prefill" else (), probe_fails=True
    )
    with engine_of(runner, scheduler_of(max_batch_size=2, chunk=4)) as (engine, heard):
        asked = [request("a", [1, 2], 50), request("b", [3] * 50, 5), request("queued", [4], 5)]
        for one in asked:
            engine.submit(one)
        engine.start()
        heard.until_ended("a", "b", "queued")
        assert engine.ended.wait(PATIENCE_S)
        engine.submit(request("late", [1], 1))
        heard.until_ended("late")
    assert isinstance(engine.error, EngineDead) and "probe failed on cue" in engine.error.message
    assert all(end.finish is FinishReason.ERROR for end in heard.ends.values())
    assert isinstance(heard.ends["queued"].error, EngineDead) and isinstance(heard.ends["late"].error, EngineDead)


def test_ten_turns_in_a_row_that_fail_end_the_engine_though_it_passes_its_probes() -> None:
    runner = FailingRunner(PretendRunner(), decode_calls={2, 3, *range(6, 16)})
    with engine_of(runner) as (engine, heard):
        engine.start()
        names = [f"r{index}" for index in range(16)]
        for name in names:
            engine.submit(request(name, [1], 2))
            heard.until_ended(name)
            if isinstance(heard.ends[name].error, EngineDead):
                break
        assert engine.ended.wait(PATIENCE_S)
    failed = {name for name, end in heard.ends.items() if isinstance(end.error, GenerationError)}
    assert failed == {*names[:2], *names[3:13]}, "one that was answered between them starts the count again"
    assert heard.ends["r2"].finish is FinishReason.LENGTH
    assert isinstance(engine.error, EngineDead) and "10 turns in a row" in engine.error.message


def test_prompts_that_still_prefill_do_not_keep_an_engine_alive_that_gives_no_token() -> None:
    with engine_of(FailingRunner(PretendRunner(), decode_calls=set(range(1, 100)))) as (engine, heard):
        engine.start()
        for name in (f"r{index}" for index in range(16)):
            engine.submit(request(name, [1, 2, 3], 2))
            heard.until_ended(name)
            if isinstance(heard.ends[name].error, EngineDead):
                break
        assert engine.ended.wait(PATIENCE_S)
    assert isinstance(engine.error, EngineDead) and "10 turns in a row" in engine.error.message


def test_a_failed_step_lets_every_prefix_go_and_the_engine_goes_on() -> None:
    pretend = PretendRunner()
    runner = FailingRunner(pretend, decode_calls={4})
    limits = SchedulerLimits(4, None, 64, None, prefixes=PrefixLimits(budget_bytes=None))
    with engine_of(runner, BatchScheduler(limits, kv_size=KVSize(1), eos_ids=frozenset())) as (engine, heard):
        engine.start()
        for name, n_prompt in (("kept", 40), ("fails", 60), ("cold", 40), ("warm", 40)):
            engine.submit(request(name, list(range(n_prompt)), 2))
            heard.until_ended(name)
    assert isinstance(heard.ends["fails"].error, GenerationError)
    assert engine.stats.n_prefix_hits == 2 and engine.stats.n_prefix_misses == 2
    assert heard.tokens["warm"] == heard.tokens["cold"] == pretend_alone(request("cold", list(range(40)), 2))
    assert engine.error is None


def test_a_prefix_goes_after_its_time_though_nobody_asks_anything() -> None:
    pretend = PretendRunner()
    limits = SchedulerLimits(4, None, 64, None, prefixes=PrefixLimits(budget_bytes=None, ttl_s=0.2))
    with engine_of(pretend, BatchScheduler(limits, kv_size=KVSize(1), eos_ids=frozenset())) as (engine, heard):
        engine.start()
        engine.submit(request("a", list(range(40)), 2))
        heard.until_ended("a")
        pause = threading.Event()
        for _ in range(int(PATIENCE_S / 0.01)):
            if engine.stats.n_prefix_misses and not engine.stats.n_prefixes and not pretend.n_kept:
                break
            pause.wait(0.01)
        assert engine.stats.prefix_bytes == 0 and pretend.n_kept == {}
    assert engine.error is None


def test_a_build_that_raises_ends_the_engine_with_its_error_and_answers_what_was_asked() -> None:
    heard, changes = Heard(), threading.Semaphore(0)
    error = ModelError("no such model")

    def build() -> EngineParts:
        raise error

    engine = Engine(build, heard.queue.put, changes.release)
    engine.submit(request("early", [1], 1))
    engine.start()
    assert engine.ready.wait(PATIENCE_S) and engine.ended.is_set() and engine.error is error
    heard.until_ended("early")
    assert heard.ends["early"].error is error and changes.acquire(timeout=PATIENCE_S)
    engine.submit(request("late", [1], 1))
    heard.until_ended("late")
    assert heard.ends["late"].error is error
    assert engine.stop(timeout_s=PATIENCE_S)


def test_a_fault_of_our_own_ends_the_engine_and_every_ticket_hears_it() -> None:
    class Broken(PretendRunner):
        def forget(self, sequence_ids: Iterable[str]) -> None:
            raise KeyError(f"a bug: {list(sequence_ids)}")

    with engine_of(Broken()) as (engine, heard):
        engine.submit(request("a", [1, 2], 50))
        engine.start()
        heard.until_ended("a")
        assert engine.ended.wait(PATIENCE_S)
    assert isinstance(engine.error, EngineDead) and "a bug" in engine.error.message
    assert heard.ends["a"].error is engine.error


def test_an_engine_whose_end_fails_is_known_to_have_ended() -> None:
    class CannotClose(PretendRunner):
        def close(self) -> None:
            raise RuntimeError("cannot let go")

    with engine_of(CannotClose()) as (engine, heard):
        engine.start()
        engine.submit(request("a", [1], 1))
        heard.until_ended("a")
        assert engine.stop(timeout_s=PATIENCE_S) and engine.ended.is_set()
        engine.submit(request("late", [1], 1))
        heard.until_ended("late")
    assert isinstance(engine.error, EngineDead) and "cannot let go" in engine.error.message
    assert heard.ends["late"].error is engine.error


def test_stop_while_busy_ends_every_ticket_and_is_not_an_error() -> None:
    runner = HangingRunner(PretendRunner(), decode_call=4)
    with engine_of(runner, scheduler_of(max_batch_size=1)) as (engine, heard):
        for name in ("running", "queued"):
            engine.submit(request(name, [1, 2], 10**6))
        engine.start()
        assert runner.is_hanging.wait(PATIENCE_S) and is_in_a_step(engine)
        assert not engine.stop(timeout_s=0.05), "a hanging model call cannot be stopped"
        engine.submit(request("in the mailbox", [1], 1))
        runner.release()
        heard.until_ended("running", "queued", "in the mailbox")
        assert engine.ended.wait(PATIENCE_S)
    assert engine.error is None and not is_in_a_step(engine)
    assert all(isinstance(end.error, NotReady) for end in heard.ends.values())
    assert engine.stats.n_slots_used == 0


def test_cancel_frees_a_sequence_within_a_step_wherever_it_is() -> None:
    runner = HangingRunner(PretendRunner(), decode_call=5)
    with engine_of(runner, scheduler_of(max_batch_size=2, chunk=4)) as (engine, heard):
        for one in (request("decoding", [1, 2], 10**6), request("prefilling", [3] * 400, 9), request("queued", [4], 9)):
            engine.submit(one)
        engine.start()
        assert runner.is_hanging.wait(PATIENCE_S)
        heard.rest()
        assert (engine.stats.n_decoding, engine.stats.n_prefilling, engine.stats.n_queued) == (1, 1, 1)
        n_before = len(heard.tokens["decoding"])
        for name in ("decoding", "prefilling", "queued", "nobody"):
            engine.cancel(name)
            engine.cancel(name)
        engine.submit(request("next", [5], 3))
        runner.release()
        heard.until_ended("decoding", "prefilling", "queued", "next")
    assert [heard.ends[name].finish for name in ("decoding", "prefilling", "queued")] == [FinishReason.CANCELLED] * 3
    assert len(heard.tokens["decoding"]) - n_before <= 1 and not heard.tokens["prefilling"]
    assert heard.tokens["next"] == pretend_alone(request("next", [5], 3))
    assert engine.stats.n_slots_used == 0 and engine.error is None


def test_a_request_that_races_with_the_end_gets_exactly_one_answer() -> None:
    with engine_of(PretendRunner()) as (engine, heard):
        engine.start()
        n_each = 300

        def submit(thread: int) -> None:
            for index in range(n_each):
                engine.submit(request(f"{thread}.{index}", [1], 1))

        threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        heard.until(lambda: len(heard.ends) > 50)
        assert engine.stop(timeout_s=PATIENCE_S)
        for thread in threads:
            thread.join(PATIENCE_S)
        heard.rest()
        assert len(heard.ends) == 4 * n_each
    assert {end.finish for end in heard.ends.values()} <= {FinishReason.LENGTH, FinishReason.ERROR}


def test_a_step_that_fails_after_its_last_row_ended_leaves_the_engine_alive() -> None:
    class FailsAtRest(PretendRunner):
        n_left = 1

        def decode(self, rows: SequenceOf[Sequence]) -> Results:
            if not rows and self._landing is not None and self.n_left:
                self.n_left -= 1
                raise RuntimeError("the step under way failed")
            return super().decode(rows)

    stopped = pretend_alone(request("a", [1, 2], 3))[1]
    limits = SchedulerLimits(max_batch_size=1, max_queue_depth=None, prefill_chunk_tokens=16, kv_budget_bytes=None)
    scheduler = BatchScheduler(limits, kv_size=KVSize(bytes_per_token=1), eos_ids=frozenset({stopped}))
    runner = FailsAtRest()
    with engine_of(runner, scheduler) as (engine, heard):
        engine.start()
        engine.submit(request("a", [1, 2], 50))
        heard.until_ended("a")
        engine.submit(request("b", [7, 7], 2, ignore_eos=True))
        heard.until_ended("b")
    assert heard.ends["a"].finish is FinishReason.STOP and runner.n_left == 0
    assert heard.tokens["b"] == pretend_alone(request("b", [7, 7], 2)) and engine.error is None


def test_a_group_is_accepted_whole_or_refused_whole_with_the_reason_for_each() -> None:
    def group(name: str, n: int) -> list[Request]:
        return [request(f"{name}{index}", [4] * 40, 5) for index in range(n)]

    with engine_of(PretendRunner(), scheduler_of(max_batch_size=2, max_queue_depth=2)) as (engine, heard):
        engine.submit(*group("a", 3))
        engine.submit(*group("b", 2))
        engine.submit(*group("c", 5))
        engine.submit(request("d", [1], 2))
        engine.start()
        names = ["a0", "a1", "a2", "b0", "b1", *(f"c{i}" for i in range(5)), "d"]
        heard.until_ended(*names)
    assert heard.accepted == {"a0", "a1", "a2", "d"}
    for one in [*group("a", 3), request("d", [1], 2)]:
        assert heard.tokens[one.id] == pretend_alone(one)
    assert all(isinstance(heard.ends[f"b{i}"].error, ServerBusy) for i in range(2))
    for i in range(5):
        error = heard.ends[f"c{i}"].error
        assert isinstance(error, InputError) and error.param == "n" and "4 sequences" in error.message


def test_a_fork_that_fails_ends_its_own_sequence_and_the_engine_goes_on() -> None:
    asked = [request(f"a{index}", [4] * 40, 5) for index in range(3)]
    runner = FailingRunner(PretendRunner(), fork_calls={1})
    with engine_of(runner) as (engine, heard):
        engine.start()
        engine.submit(*asked)
        heard.until_ended(*(one.id for one in asked))
        assert engine.stats.n_failed_steps == 1
    failed = [name for name, end in heard.ends.items() if end.finish is FinishReason.ERROR]
    assert len(failed) == 1 and isinstance(heard.ends[failed[0]].error, GenerationError)
    assert all(heard.tokens[one.id] == pretend_alone(one) for one in asked if one.id != failed[0])
    assert runner.n_fork_calls == 2 and engine.error is None


def test_a_group_that_comes_after_the_end_is_told_so_one_by_one() -> None:
    with engine_of(PretendRunner()) as (engine, heard):
        engine.start()
        assert engine.stop(timeout_s=PATIENCE_S)
        engine.submit(request("a", [1], 1), request("b", [1], 1))
        heard.until_ended("a", "b")
    assert all(isinstance(end.error, NotReady) for end in heard.ends.values())


def test_an_idle_engine_uses_no_processor_time() -> None:
    with engine_of(PretendRunner()) as (engine, heard):
        engine.start()
        engine.submit(request("a", [1, 2], 20))
        heard.until_ended("a")
        ident = engine_thread().ident
        assert ident is not None
        clock = time.pthread_getcpuclockid(ident)
        pause = threading.Event()
        pause.wait(0.1)  # the turn that ended the request is over by now
        before = time.clock_gettime(clock)
        pause.wait(0.3)
        assert time.clock_gettime(clock) - before < 0.001
        engine.submit(request("b", [3], 2))
        heard.until_ended("b")
    assert heard.tokens["b"] == pretend_alone(request("b", [3], 2))


def test_an_error_of_the_caller_is_not_an_error_of_the_engine() -> None:
    limits = SchedulerLimits(max_batch_size=1, max_queue_depth=None, prefill_chunk_tokens=16, kv_budget_bytes=256)
    scheduler = BatchScheduler(limits, kv_size=KVSize(bytes_per_token=1), eos_ids=frozenset())
    with engine_of(PretendRunner(), scheduler) as (engine, heard):
        engine.start()
        engine.submit(request("huge", [1], 257))
        engine.submit(request("small", [1], 2))
        heard.until_ended("huge", "small")
    error: MlxcelError | None = heard.ends["huge"].error
    assert isinstance(error, InputError) and "huge" not in heard.accepted
    assert heard.ends["small"].finish is FinishReason.LENGTH and engine.error is None


def test_a_row_that_outgrows_the_whole_budget_hears_of_it() -> None:
    limits = SchedulerLimits(
        max_batch_size=1,
        max_queue_depth=None,
        prefill_chunk_tokens=16,
        kv_budget_bytes=256,
        open_ended_booking_tokens=1,
    )
    scheduler = BatchScheduler(limits, kv_size=KVSize(bytes_per_token=1), eos_ids=frozenset())
    with engine_of(PretendRunner(), scheduler) as (engine, heard):
        engine.start()
        engine.submit(request("a", [1] * 250, 100, is_open_ended=True))
        heard.until_ended("a")
    assert isinstance(heard.ends["a"].error, ContextLengthExceeded) and len(heard.tokens["a"]) == 7
    assert engine.error is None


def test_an_ended_engine_is_not_built_again() -> None:
    with engine_of(PretendRunner()) as (engine, _):
        engine.start()
    assert engine.ended.is_set() and engine.ready.is_set()
    with pytest.raises(RuntimeError):
        engine.start()
    assert engine.error is None
