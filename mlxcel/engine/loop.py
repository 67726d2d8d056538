"""The engine thread: a mailbox in, events out, and a turn that drains, plans, runs, commits and emits.

It owns the model, the scheduler and the pool; nobody else touches them. Idle, it blocks on the mailbox. All
events of a step leave in one call of `post`, which must be cheap and safe to call from this thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from mlxcel.core import Event, FinishReason, Request, Sequence
from mlxcel.engine.chunk import Chunk, Fork
from mlxcel.engine.runner import Runner
from mlxcel.engine.scheduler import BatchScheduler
from mlxcel.errors import EngineDead, GenerationError, MlxcelError, NotReady
from mlxcel.metrics import EngineStats

log = logging.getLogger("mlxcel.engine")

FAILED_TURNS_IN_A_ROW = 10
"""So many end the engine: whatever it is asked next would fail too. Clients send one request that fails three times."""


@dataclass(frozen=True)
class EngineParts:
    """What the engine runs, built on its own thread."""

    runner: Runner
    scheduler: BatchScheduler


@dataclass(frozen=True)
class _Cancel:
    request_id: str


class _Stop:
    """Ends the thread; what still runs gets an error event."""


class Engine:
    """A thread that serves requests until it is stopped or broken.

    `build` runs on the thread; `on_change` is called from it when the engine is ready and when it has ended.
    `error` is set once the thread ended for a reason other than `stop()`. `step_started_s` is when the model
    call under way began (monotonic clock), None between calls: a watchdog reads it. `sequences` are those that had a
    slot after the last turn; like `stats` they are read without a lock, so a reading may be one step old.
    """

    def __init__(
        self,
        build: Callable[[], EngineParts],
        post: Callable[[list[Event]], None],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._build = build
        self._post = post
        self._on_change = on_change
        self._mailbox: SimpleQueue[tuple[Request, ...] | _Cancel | _Stop] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="mlxcel-engine", daemon=True)
        self._is_stopping = False
        self.ready = threading.Event()
        self.ended = threading.Event()
        self.error: MlxcelError | None = None
        self.stats = EngineStats()
        self.sequences: tuple[Sequence, ...] = ()
        self.step_started_s: float | None = None
        self._has_failed_step = False
        self._n_failed_turns = 0

    # Called from any thread

    def start(self) -> None:
        self._thread.start()

    def submit(self, *requests: Request) -> None:
        """Hand requests over; the first event of each says that it was accepted, or why not.

        Several at once are a group: they have the same prompt, which is prefilled once, and are accepted all or none.

        Errors: none; what comes after the end gets its error events from the caller's thread.
        """
        self._mailbox.put(requests)
        if self.ended.is_set():
            self._refuse_mail()

    def cancel(self, request_id: str) -> None:
        """Free a sequence within one step; it gets its end event unless it ended before."""
        self._mailbox.put(_Cancel(request_id))

    def stop(self, *, timeout_s: float) -> bool:
        """End the thread and free the model; False if a model call still hangs after `timeout_s`."""
        self._mailbox.put(_Stop())
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # The engine thread

    def _run(self) -> None:
        parts: EngineParts | None = None
        try:
            parts = self._build()
            self._publish(parts)
            self.ready.set()
            self._on_change()
            while not self._is_stopping:
                self._turn(parts)
        except MlxcelError as error:
            self.error = error
        except Exception as error:  # the edge of the thread: whatever it is, every ticket must hear of it
            log.exception("the engine thread failed")
            self.error = EngineDead(f"the engine failed: {error!r}; the server is stopping. Start it again")
        finally:
            self._close(parts)

    def _turn(self, parts: EngineParts) -> None:
        scheduler, runner = parts.scheduler, parts.runner
        n_generated_before = self.stats.n_generated_tokens
        self._drain(parts)
        self._keep(parts)
        plan = scheduler.plan(time.monotonic())
        n_running = scheduler.n_running
        runner.forget(plan.freed)
        self._emit(plan.ended)
        self._fork(parts, plan.forks)
        self._decode(parts, plan.decode)
        self._prefill(parts, plan.chunks)
        n_steps = bool(plan.decode) + len(plan.chunks)
        self.stats.n_steps += n_steps
        self.stats.n_step_slots += n_steps * n_running
        self.stats.n_decode_steps += bool(plan.decode)
        runner.forget(scheduler.prefixes.take_dropped())
        self._count_turn(gave_a_token=self.stats.n_generated_tokens > n_generated_before)
        self._publish(parts)

    def _keep(self, parts: EngineParts) -> None:
        for keep in parts.scheduler.keeps():
            try:
                with self._step():
                    can_be_cut = parts.runner.keep(keep)
            except Exception as error:  # noqa: BLE001 - the engine turn: a prefix that cannot be kept is not missed
                self._fail_step(parts, error, [])
            else:
                parts.scheduler.commit_keep(keep, can_be_cut=can_be_cut)

    def _fork(self, parts: EngineParts, forks: SequenceOf[Fork]) -> None:
        """What was planned to be a fork's source goes only after it."""
        for fork in forks:
            try:
                with self._step():
                    is_done = parts.runner.fork(fork)
            except Exception as error:  # noqa: BLE001 - the engine turn: a failed step ends its sequences alone
                self._fail_step(parts, error, [fork.sequence])
            else:
                parts.scheduler.commit_fork(fork, is_done=is_done)
        parts.runner.forget(parts.scheduler.prefixes.take_dropped())

    def _decode(self, parts: EngineParts, rows: SequenceOf[Sequence]) -> None:
        try:
            with self._step():
                results = parts.runner.decode(rows)
        except Exception as error:  # noqa: BLE001 - the engine turn: a failed step ends its rows alone
            parts.runner.reset()
            self._fail_step(parts, error, parts.scheduler.under_way)
        else:
            self._emit(parts.scheduler.commit_decode(results))

    def _prefill(self, parts: EngineParts, chunks: SequenceOf[Chunk]) -> None:
        started_s = time.monotonic()
        for chunk in chunks:
            try:
                with self._step():
                    prompt_logprobs = parts.runner.prefill(chunk)
            except Exception as error:  # noqa: BLE001 - likewise
                self._fail_step(parts, error, [chunk.sequence])
            else:
                chunk.sequence.prompt_logprobs += prompt_logprobs
                parts.scheduler.commit_prefill([chunk])
        if chunks:
            n_tokens = sum(chunk.end - chunk.start for chunk in chunks)
            parts.scheduler.chunk_size.observe(n_tokens, time.monotonic() - started_s)
            self.stats.n_prefilled_tokens += n_tokens

    @contextmanager
    def _step(self) -> Iterator[None]:
        self.step_started_s = time.monotonic()
        try:
            yield
        finally:
            self.step_started_s = None

    def _drain(self, parts: EngineParts) -> None:
        """Take every message; with nothing to do, read what is still under way and wait for one.

        A wait ends early when a prefix expires.
        """
        scheduler = parts.scheduler
        try:
            if scheduler.is_idle:
                self._decode(parts, ())
                scheduler.pool.check()
                self._take(self._mailbox.get(timeout=_until(scheduler.prefixes.expires_s)), scheduler)
            while True:
                self._take(self._mailbox.get_nowait(), scheduler)
        except Empty:
            pass

    def _take(self, message: tuple[Request, ...] | _Cancel | _Stop, scheduler: BatchScheduler) -> None:
        if isinstance(message, tuple):
            try:
                scheduler.submit(*message)
            except MlxcelError as error:
                self._emit(Event(request.id, None, FinishReason.ERROR, error) for request in message)
            else:
                self._emit(Event(request.id, None) for request in message)
        elif isinstance(message, _Cancel):
            event = scheduler.cancel(message.request_id)
            if event is not None:
                self._emit([event])
        else:
            self._is_stopping = True

    def _fail_step(self, parts: EngineParts, error: Exception, sequences: Iterable[Sequence]) -> None:
        """End a failed step's sequences, then make sure that the device still computes."""
        log.error("a model step failed: %r", error)
        reason = GenerationError(
            f"the model step of this request failed: {error}; requests outside that step went on. Try again"
        )
        sequences = list(sequences)
        scheduler, runner = parts.scheduler, parts.runner
        self._emit(scheduler.fail(sequences, reason))
        runner.forget(sequence.id for sequence in sequences)
        # What a broken step touched may be a prefix by now, and after one for want of memory prefixes are in the way.
        scheduler.drop_prefixes()
        runner.forget(scheduler.prefixes.take_dropped())
        self.stats.n_failed_steps += 1
        self._has_failed_step = True
        with self._step():
            runner.probe()

    def _count_turn(self, *, gave_a_token: bool) -> None:
        """Turns that fail one after the other are a broken engine, though it still passes its probes.

        Errors: EngineDead, which ends the thread.
        """
        if gave_a_token:
            self._n_failed_turns = 0
        elif self._has_failed_step:
            self._n_failed_turns += 1
        self._has_failed_step = False
        if self._n_failed_turns == FAILED_TURNS_IN_A_ROW:
            raise EngineDead(
                f"{FAILED_TURNS_IN_A_ROW} turns in a row had a model step that failed; every running request was ended "
                "and the server is stopping. Start it again"
            )

    def _emit(self, events: Iterable[Event]) -> None:
        events = list(events)
        if events:
            self.stats.n_generated_tokens += sum(event.token is not None for event in events)
            self._post(events)

    def _publish(self, parts: EngineParts) -> None:
        scheduler, stats = parts.scheduler, self.stats
        self.sequences = scheduler.sequences
        stats.n_queued = len(scheduler.queue)
        stats.n_prefilling = len(scheduler.prefilling)
        stats.n_decoding = len(scheduler.decoding)
        stats.n_requeued = scheduler.n_requeued
        stats.n_slots_used = len(scheduler.pool)
        stats.n_slots = scheduler.pool.capacity
        stats.kv_booked_bytes = scheduler.pool.booked_bytes
        stats.kv_held_bytes = scheduler.pool.held_bytes
        stats.kv_budget_bytes = scheduler.pool.budget_bytes
        stats.prefix_bytes = scheduler.pool.kept_bytes
        stats.n_prefixes = len(scheduler.prefixes)
        stats.n_prefix_hits = scheduler.prefixes.n_hits
        stats.n_prefix_misses = scheduler.prefixes.n_misses
        stats.n_prefix_tokens = scheduler.prefixes.n_hit_tokens
        stats.n_prefix_asked_tokens = scheduler.prefixes.n_asked_tokens

    def _close(self, parts: EngineParts | None) -> None:
        """Tell every ticket, those in the mailbox too, and let go of the model."""
        try:
            if parts is not None:
                self._emit(parts.scheduler.fail_all(self._end_reason))
                self._publish(parts)
                parts.runner.close()
        except Exception as error:  # the edge of the thread: a dead engine must never look alive
            log.exception("the engine's end failed")
            self.error = self.error or EngineDead(f"the engine's end failed: {error!r}; start the server again")
        self._build = _unbuildable
        self.ended.set()
        self.ready.set()
        self._refuse_mail()
        self._on_change()

    def _refuse_mail(self) -> None:
        """Answer the requests that nobody will take any more. Each is answered once, whoever calls."""
        try:
            while True:
                message = self._mailbox.get_nowait()
                if isinstance(message, tuple):
                    self._emit(Event(request.id, None, FinishReason.ERROR, self._end_reason) for request in message)
        except Empty:
            pass

    @property
    def _end_reason(self) -> MlxcelError:
        return self.error or NotReady("the server stopped before this request ended; send it again")


def _until(time_s: float | None) -> float | None:
    """Seconds from now, for a wait; None waits for ever."""
    return None if time_s is None else max(0.0, min(time_s - time.monotonic(), threading.TIMEOUT_MAX))


def _unbuildable() -> EngineParts:
    raise NotReady("the engine has ended; it is not started twice")
