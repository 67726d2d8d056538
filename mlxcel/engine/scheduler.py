"""BatchScheduler: decides what the next turn computes, and keeps the books of what it did.

Pure: sequences and counts in, a Plan out; it never sees a tensor, a clock or a thread. One turn is
`plan()`, the runner's work, `commit_decode()` and `commit_prefill()`. A decode step is launched before the
step before it is read, so a row that ends has one more step under way, whose token is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from mlxcel.core import Event, FinishReason, Request, Sequence, State
from mlxcel.engine.chunk import Chunk, ChunkSize
from mlxcel.engine.queue import PrefillQueue
from mlxcel.errors import ContextLengthExceeded, MlxcelError
from mlxcel.kv.pool import CachePool, pool_capacity
from mlxcel.kv.size import BLOCK_TOKENS, KVSize

OPEN_ENDED_BOOKING_TOKENS = 4096


@dataclass(frozen=True)
class SchedulerLimits:
    """`max_queue_depth` counts those waiting beyond the running; None is unbounded, 0 is no waiting room.

    `open_ended_booking_tokens` is what a request without max_tokens books beyond its prompt; more is booked as
    it comes.
    """

    max_batch_size: int
    max_queue_depth: int | None
    prefill_chunk_tokens: int
    kv_budget_bytes: int | None
    open_ended_booking_tokens: int = OPEN_ENDED_BOOKING_TOKENS


@dataclass(frozen=True)
class Plan:
    """One turn: rows to decode one token each, then chunks to prefill."""

    decode: tuple[Sequence, ...]
    chunks: tuple[Chunk, ...]
    freed: tuple[str, ...]
    """Sequences that ended or wait again since the last plan: their arrays can go."""
    ended: tuple[Event, ...]


class BatchScheduler:
    """Continuous batching over a bounded pool. Owner: the engine thread."""

    def __init__(self, limits: SchedulerLimits, *, kv_size: KVSize, eos_ids: frozenset[int]) -> None:
        self.limits = limits
        self.pool = CachePool(
            capacity=pool_capacity(limits.max_batch_size, limits.max_queue_depth),
            budget_bytes=limits.kv_budget_bytes,
        )
        self.queue = PrefillQueue()
        self.chunk_size = ChunkSize(limits.prefill_chunk_tokens)
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self._kv_size = kv_size
        self._eos_ids = eos_ids
        self._sequences: dict[str, Sequence] = {}
        self._freed: list[str] = []
        self._ended: list[Event] = []

    @property
    def is_idle(self) -> bool:
        return not self._sequences

    @property
    def n_running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    @property
    def under_way(self) -> list[Sequence]:
        """Rows of decode steps that are not read yet: those that are lost when such a step fails."""
        return [sequence for sequence in self.decoding if sequence.n_launched > sequence.n_generated]

    # Requests come and go

    def submit(self, request: Request) -> None:
        """Accept a request into the queue.

        Errors: ServerBusy when every slot is taken; ContextLengthExceeded when its KV memory can never fit.
        Nothing changes in either case.
        """
        sequence = Sequence(request)
        n_bytes = self._kv_size.bytes_for(self._booking_tokens(sequence))
        if not self.pool.fits_ever(n_bytes):
            raise ContextLengthExceeded(
                f"the request needs {n_bytes} bytes of KV memory ({len(request.prompt)} prompt tokens and up "
                f"to {request.max_tokens} new ones), more than the whole budget of "
                f"{self.pool.budget_bytes} bytes; nothing was started. Ask for fewer max_tokens, shorten the "
                "prompt, or raise --kv-cache-budget",
                param="max_tokens",
            )
        self.pool.reserve(request.id)
        self._sequences[request.id] = sequence
        self.queue.append(sequence)

    def cancel(self, request_id: str) -> Event | None:
        """End a sequence wherever it is; None if it ended before."""
        sequence = self._sequences.get(request_id)
        return None if sequence is None else self._finish(sequence, FinishReason.CANCELLED)

    def fail(self, sequences: Iterable[Sequence], error: MlxcelError) -> list[Event]:
        """End these sequences with an error; the others are untouched."""
        return [
            self._finish(sequence, FinishReason.ERROR, error=error)
            for sequence in list(sequences)
            if sequence.state is not State.FINISHED
        ]

    def fail_all(self, error: MlxcelError) -> list[Event]:
        return self.fail(self._sequences.values(), error)

    # A turn

    def plan(self) -> Plan:
        """What this turn computes. An empty `decode` still reads the step that is under way."""
        decode = tuple(self._rows_to_decode())
        chunks = tuple(self._chunks_to_prefill())
        freed, self._freed = tuple(self._freed), []
        ended, self._ended = tuple(self._ended), []
        return Plan(decode=decode, chunks=chunks, freed=freed, ended=ended)

    def commit_decode(self, results: SequenceOf[tuple[Sequence, int | MlxcelError]]) -> list[Event]:
        """Book the tokens (or errors) of the step that was read; rows that ended meanwhile are passed over."""
        events = []
        for sequence, result in results:
            if sequence.state is not State.DECODING:
                continue
            if isinstance(result, MlxcelError):
                events.append(self._finish(sequence, FinishReason.ERROR, error=result))
            else:
                events.append(self._commit_token(sequence, result))
        return events

    def commit_prefill(self, chunks: Iterable[Chunk]) -> None:
        """Book chunks whose keys and values are now cached."""
        for chunk in chunks:
            sequence = chunk.sequence
            if sequence.state is not State.PREFILLING:
                continue
            sequence.n_prefilled = chunk.end
            self.pool.hold(sequence.id, self._kv_size.bytes_for(chunk.end))
            if chunk.is_last:
                self._start_decoding(sequence)

    # Inside a turn

    def _rows_to_decode(self) -> Iterable[Sequence]:
        for sequence in list(self.decoding):
            n_left = sequence.request.max_tokens - sequence.n_generated
            n_under_way = sequence.n_launched - sequence.n_generated
            if n_under_way >= n_left:
                continue
            n_cached = len(sequence.tokens) + n_under_way
            n_bytes = self._kv_size.bytes_for(n_cached)
            if n_cached % BLOCK_TOKENS != 1 or self.pool.book(sequence.id, n_bytes):
                sequence.n_launched += 1
                yield sequence
            elif self.pool.fits_ever(n_bytes):
                self._wait_again(sequence)
            elif n_under_way == 0:
                self._ended.append(self._outgrown(sequence, n_bytes))

    def _outgrown(self, sequence: Sequence, n_bytes: int) -> Event:
        error = ContextLengthExceeded(
            f"after {len(sequence.tokens)} tokens the sequence needs {n_bytes} bytes of KV memory, more than "
            f"the whole budget of {self.pool.budget_bytes} bytes; what was generated so far stands. Set "
            "max_tokens, or raise --kv-cache-budget",
            param="max_tokens",
        )
        return self._finish(sequence, FinishReason.ERROR, error=error)

    def _wait_again(self, sequence: Sequence) -> None:
        """The row outgrew its booking and the budget is full: it gives way, and starts over later.

        A token that is under way is dropped; the same one comes again, since a row's choice depends on its
        tokens, its seed and its length alone.
        """
        self.decoding.remove(sequence)
        self.pool.unbook(sequence.id)
        sequence.requeue()
        self.queue.put_back(sequence)
        self._freed.append(sequence.id)

    def _chunks_to_prefill(self) -> Iterable[Chunk]:
        n_left = self.chunk_size.n_tokens
        for sequence in self._admitted():
            if sequence.n_to_prefill == 0:
                self._start_decoding(sequence)
                continue
            n_tokens = min(n_left, sequence.n_to_prefill)
            yield Chunk(sequence, sequence.n_prefilled, sequence.n_prefilled + n_tokens)
            n_left -= n_tokens
            if n_left == 0:
                return

    def _admitted(self) -> Iterable[Sequence]:
        yield from list(self.prefilling)
        while (sequence := self.queue.first) is not None and self.n_running < self.limits.max_batch_size:
            n_bytes = self._kv_size.bytes_for(self._booking_tokens(sequence))
            if self.pool.budget_bytes is not None:
                n_bytes = min(n_bytes, self.pool.budget_bytes)
            if not self.pool.book(sequence.id, n_bytes):
                return
            self.queue.remove(sequence.id)
            sequence.state = State.PREFILLING
            self.prefilling.append(sequence)
            yield sequence

    def _booking_tokens(self, sequence: Sequence) -> int:
        n_new = sequence.request.max_tokens - sequence.n_generated
        if sequence.request.is_open_ended:
            n_new = min(n_new, self.limits.open_ended_booking_tokens)
        return len(sequence.tokens) + n_new

    def _start_decoding(self, sequence: Sequence) -> None:
        self.prefilling.remove(sequence)
        sequence.state = State.DECODING
        self.decoding.append(sequence)

    def _commit_token(self, sequence: Sequence, token: int) -> Event:
        # The input of the step that made this token is cached now.
        n_cached = len(sequence.tokens)
        if n_cached % BLOCK_TOKENS == 1:
            self.pool.hold(sequence.id, self._kv_size.bytes_for(n_cached))
        sequence.tokens.append(token)
        sequence.n_generated += 1
        if token in self._eos_ids and not sequence.request.ignore_eos:
            return self._finish(sequence, FinishReason.STOP, token=token)
        if sequence.n_generated >= sequence.request.max_tokens:
            return self._finish(sequence, FinishReason.LENGTH, token=token)
        return Event(sequence.id, token)

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        *,
        token: int | None = None,
        error: MlxcelError | None = None,
    ) -> Event:
        if sequence.state is State.QUEUED:
            self.queue.remove(sequence.id)
        elif sequence.state is State.PREFILLING:
            self.prefilling.remove(sequence)
        else:
            self.decoding.remove(sequence)
        sequence.state = State.FINISHED
        self.pool.release(sequence.id)
        del self._sequences[sequence.id]
        self._freed.append(sequence.id)
        return Event(sequence.id, token, reason, error)
