"""BatchScheduler: decides what the next turn computes, and keeps the books of what it did.

Pure: sequences, counts and the time in, a Plan out; it never sees a tensor, a clock or a thread. One turn is
`plan()`, the runner's work, and a commit of each part of it. A decode step is launched before the
step before it is read, so a row that ends has one more step under way, whose token is dropped.

Sequences of a group answer one prompt: the first to run prefills it, the others fork its keys and values, for as
long as one that has them runs. Each has its own slot, booking and end. What a sequence has cached when it ends is
kept as a prefix, and a later prompt that begins alike forks that.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from mlxcel.core import Event, FinishReason, Request, Sampled, Sequence, Start, State, TokenLogprobs
from mlxcel.engine.chunk import Chunk, ChunkSize, Fork, Keep
from mlxcel.engine.queue import PrefillQueue
from mlxcel.errors import BugError, ContextLengthExceeded, InputError, MlxcelError
from mlxcel.kv.pool import CachePool, pool_capacity
from mlxcel.kv.prefix import Prefix
from mlxcel.kv.prefixes import PrefixCache, PrefixLimits
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
    prefixes: PrefixLimits = field(default_factory=PrefixLimits)


@dataclass(frozen=True)
class Plan:
    """One turn: caches to fork, rows to decode one token each, then chunks to prefill.

    Forks come first: a row that is not decoded any more may still be the source of one.
    """

    forks: tuple[Fork, ...]
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
        self.prefixes = PrefixCache(limits.prefixes, self.pool)
        self.queue = PrefillQueue()
        self.chunk_size = ChunkSize(limits.prefill_chunk_tokens)
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self.n_requeued = 0
        self._now_s = 0.0
        self._kv_size = kv_size
        self._eos_ids = eos_ids
        self._sequences: dict[str, Sequence] = {}
        self._ended_rows: list[tuple[Sequence, int]] = []
        self._freed: list[str] = []
        self._ended: list[Event] = []

    @property
    def is_idle(self) -> bool:
        return not self._sequences and not self._ended_rows

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """Every sequence that has a slot, in the order in which they came."""
        return tuple(self._sequences.values())

    @property
    def n_running(self) -> int:
        return len(self.prefilling) + len(self.decoding)

    @property
    def under_way(self) -> list[Sequence]:
        """Rows of decode steps that are not read yet: those that are lost when such a step fails."""
        return [sequence for sequence in self.decoding if sequence.n_launched > sequence.n_generated]

    # Requests come and go

    def submit(self, *requests: Request) -> None:
        """Accept requests into the queue, all or none; several are a group and have the same prompt.

        Errors: ServerBusy when there are not enough slots; ContextLengthExceeded when the KV memory of one can
        never fit; InputError when the group can never fit. Nothing changes in any case.
        """
        sequences = [self._sequence_of(request) for request in requests]
        if self.pool.capacity is not None and len(requests) > self.pool.capacity:
            raise InputError(
                f"{len(requests)} answers at once were asked for, but this server holds {self.pool.capacity} sequences "
                "(running and waiting); nothing was started. Ask for fewer, or raise --max-queue-depth",
                param="n",
            )
        if any(list(request.prompt) != list(requests[0].prompt) for request in requests[1:]):
            raise BugError("BatchScheduler: the requests of a group have different prompts")
        self.pool.reserve(*(request.id for request in requests))
        for sequence in sequences:
            if len(sequences) > 1:
                sequence.group = sequences
            self._sequences[sequence.id] = sequence
            self.queue.append(sequence)

    def _sequence_of(self, request: Request) -> Sequence:
        own_ends = request.sampling.stop_token_ids
        sequence = Sequence(request, end_ids=own_ends if request.ignore_eos else self._eos_ids | own_ends)
        n_bytes = self._kv_size.bytes_for(self._booking_tokens(sequence))
        if not self.pool.fits_ever(n_bytes):
            raise ContextLengthExceeded(
                f"the request needs {n_bytes} bytes of KV memory ({len(request.prompt)} prompt tokens and up "
                f"to {request.max_tokens} new ones), more than the whole budget of "
                f"{self.pool.budget_bytes} bytes; nothing was started. Ask for fewer max_tokens, shorten the "
                "prompt, or raise --kv-cache-budget",
                param="max_tokens",
            )
        return sequence

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

    def keeps(self) -> list[Keep]:
        """What outlives its sequence: of rows that ended, and of those whose last step is under way.

        It comes before the turn's plan, since both leave the batch with that.
        """
        ended, self._ended_rows = self._ended_rows, []
        for sequence in self.decoding:
            if sequence.n_launched == sequence.request.max_tokens:
                self.pool.unbook(sequence.id)
                ended.append((sequence, sequence.n_cached))
        keeps = []
        for sequence, n_cached in ended:
            prefix = self.prefixes.reserve(sequence.tokens[:n_cached], self._kv_size.bytes_for(n_cached))
            if prefix is not None:
                keeps.append(Keep(sequence, prefix))
        return keeps

    def drop_prefixes(self) -> None:
        """Let all of them go, and those that were about to be."""
        self._ended_rows.clear()
        self.prefixes.clear()

    def plan(self, now_s: float = 0.0) -> Plan:
        """What this turn computes. An empty `decode` still reads the step that is under way."""
        self._now_s = now_s
        self.prefixes.expire(now_s)
        decode = tuple(self._rows_to_decode())
        forks, chunks = self._plan_prefill()
        freed, self._freed = tuple(self._freed), []
        ended, self._ended = tuple(self._ended), []
        return Plan(tuple(forks), decode, tuple(chunks), freed, ended)

    def commit_keep(self, keep: Keep, *, can_be_cut: bool) -> None:
        """A prefix's keys and values are there, from now on for others to begin with."""
        self.prefixes.add(keep.prefix, can_be_cut=can_be_cut)

    def commit_decode(self, results: SequenceOf[tuple[Sequence, Sampled | MlxcelError]]) -> list[Event]:
        """Book the tokens (or errors) of the step that was read; rows that ended meanwhile are passed over."""
        events: list[Event] = []
        for sequence, result in results:
            if sequence.state is not State.DECODING:
                continue
            if isinstance(result, MlxcelError):
                events.append(self._finish(sequence, FinishReason.ERROR, error=result))
            else:
                is_first, measures_prompt = sequence.n_generated == 0, sequence.measures_prompt
                first, *end = self._commit_token(sequence, result)
                if is_first and sequence.started_s is not None:
                    # The prompt's last token was this step's input.
                    start = Start(sequence.started_s, sequence.n_computed + 1, sequence.n_from_prefix)
                    first = first._replace(start=start)
                if measures_prompt:
                    first = first._replace(prompt_logprobs=tuple(sequence.prompt_logprobs))
                    sequence.prompt_logprobs.clear()
                events += first, *end
        return events

    def commit_fork(self, fork: Fork, *, is_done: bool) -> None:
        """Book a fork; one that could not be done leaves its sequence to look elsewhere, or prefill for itself."""
        sequence, source = fork.sequence, fork.source
        if not is_done and isinstance(source, Prefix):
            self.prefixes.drop(source)
        elif not is_done:
            self._leave_group(sequence)
        elif sequence.state is State.PREFILLING:
            if isinstance(source, Prefix):
                self._count_hit(sequence, fork.n_tokens)
            self._commit_cached(sequence, fork.n_tokens)

    def commit_prefill(self, chunks: Iterable[Chunk]) -> None:
        """Book chunks whose keys and values are now cached."""
        for chunk in chunks:
            if chunk.sequence.state is State.PREFILLING:
                chunk.sequence.n_computed += chunk.end - chunk.start
                self._commit_cached(chunk.sequence, chunk.end)

    # Inside a turn

    def _rows_to_decode(self) -> Iterable[Sequence]:
        for sequence in list(self.decoding):
            n_left = sequence.request.max_tokens - sequence.n_generated
            n_under_way = sequence.n_launched - sequence.n_generated
            if n_under_way >= n_left:
                continue
            n_cached = len(sequence.tokens) + n_under_way
            n_bytes = self._kv_size.bytes_for(n_cached)
            if n_cached % BLOCK_TOKENS != 1 or self._book(sequence, n_bytes):
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
        self.n_requeued += 1
        self.decoding.remove(sequence)
        self.pool.unbook(sequence.id)
        sequence.requeue()
        self.queue.put_back(sequence)
        self._freed.append(sequence.id)

    def _plan_prefill(self) -> tuple[list[Fork], list[Chunk]]:
        forks: list[Fork] = []
        chunks: list[Chunk] = []
        n_left = self.chunk_size.n_tokens
        for sequence in self._admitted():
            if sequence.n_to_prefill == 0:
                self._start_decoding(sequence)
                continue
            if sequence.n_prefilled == 0 and not sequence.measures_prompt:
                begun = [*(fork.sequence for fork in forks), *(chunk.sequence for chunk in chunks)]
                if any(other in sequence.group for other in begun) and not self._sibling_of(sequence):
                    continue  # it forks what is being prefilled
                if (fork := self._fork_for(sequence)) is not None:
                    forks.append(fork)
                    continue
                self.prefixes.count(len(sequence.tokens), 0)
            n_tokens = min(n_left, sequence.n_to_prefill)
            chunks.append(Chunk(sequence, sequence.n_prefilled, sequence.n_prefilled + n_tokens))
            n_left -= n_tokens
            if n_left == 0:
                break
        return forks, chunks

    def _fork_for(self, sequence: Sequence) -> Fork | None:
        """From the longest beginning that it shares with a row of its group, or with a prefix."""
        source = self._sibling_of(sequence)
        if source is not None:
            return Fork(sequence, source, len(sequence.request.prompt) - 1)
        found = self.prefixes.find(sequence.tokens[:-1])
        return None if found is None else Fork(sequence, *found)

    @staticmethod
    def _sibling_of(sequence: Sequence) -> Sequence | None:
        """A row whose prompt is the sequence's own, if that has more than the one token that is never prefilled."""
        if len(sequence.request.prompt) < 2:
            return None
        return next((other for other in sequence.group if other.state is State.DECODING), None)

    def _admitted(self) -> Iterable[Sequence]:
        yield from list(self.prefilling)
        while (sequence := self.queue.first) is not None and self.n_running < self.limits.max_batch_size:
            n_bytes = self._kv_size.bytes_for(self._booking_tokens(sequence))
            if self.pool.budget_bytes is not None:
                n_bytes = min(n_bytes, self.pool.budget_bytes)
            if not self._book(sequence, n_bytes):
                return
            self.queue.take()
            sequence.state = State.PREFILLING
            if sequence.started_s is None:
                sequence.started_s = self._now_s
            self.prefilling.append(sequence)
            yield sequence

    def _book(self, sequence: Sequence, n_bytes: int) -> bool:
        """Prefixes give way to sequences."""
        return self.prefixes.make_room(self.pool.growth_of(sequence.id, n_bytes)) and self.pool.book(
            sequence.id, n_bytes
        )

    def _booking_tokens(self, sequence: Sequence) -> int:
        n_new = sequence.request.max_tokens - sequence.n_generated
        if sequence.request.is_open_ended:
            n_new = min(n_new, self.limits.open_ended_booking_tokens)
        return len(sequence.tokens) + n_new

    def _count_hit(self, sequence: Sequence, n_tokens: int) -> None:
        self.prefixes.count(len(sequence.tokens), n_tokens)
        if sequence.n_generated == 0:
            sequence.n_from_prefix = n_tokens

    def _commit_cached(self, sequence: Sequence, n_tokens: int) -> None:
        sequence.n_prefilled = n_tokens
        self.pool.hold(sequence.id, self._kv_size.bytes_for(n_tokens))
        if sequence.n_to_prefill == 0:
            self._start_decoding(sequence)

    def _start_decoding(self, sequence: Sequence) -> None:
        self.prefilling.remove(sequence)
        sequence.state = State.DECODING
        self.decoding.append(sequence)

    def _commit_token(self, sequence: Sequence, sampled: Sampled) -> list[Event]:
        # The input of the step that made this token is cached now; with its last token a row has left the batch.
        n_cached = len(sequence.tokens)
        if n_cached % BLOCK_TOKENS == 1 and sequence.n_generated + 1 < sequence.request.max_tokens:
            self.pool.hold(sequence.id, self._kv_size.bytes_for(n_cached))
        token, logprobs, is_last = sampled
        sequence.tokens.append(token)
        sequence.n_generated += 1
        if token in sequence.end_ids:
            return [self._finish(sequence, FinishReason.STOP, token=token, logprobs=logprobs)]
        if is_last:
            return [Event(sequence.id, token, logprobs=logprobs), self._finish(sequence, FinishReason.STOP)]
        if sequence.n_generated >= sequence.request.max_tokens:
            return [self._finish(sequence, FinishReason.LENGTH, token=token, logprobs=logprobs)]
        return [Event(sequence.id, token, logprobs=logprobs)]

    def _leave_group(self, sequence: Sequence) -> None:
        if sequence.group:
            sequence.group.remove(sequence)
            sequence.group = []

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        *,
        token: int | None = None,
        error: MlxcelError | None = None,
        logprobs: TokenLogprobs | None = None,
    ) -> Event:
        n_cached = sequence.n_cached
        if sequence.state is State.QUEUED:
            self.queue.remove(sequence)
        elif sequence.state is State.PREFILLING:
            self.prefilling.remove(sequence)
        else:
            self.decoding.remove(sequence)
        sequence.state = State.FINISHED
        self._leave_group(sequence)
        self.pool.release(sequence.id)
        del self._sequences[sequence.id]
        self._freed.append(sequence.id)
        is_in_the_batch = sequence.n_generated < sequence.request.max_tokens
        if self.prefixes.is_on and is_in_the_batch and reason is not FinishReason.ERROR:
            self._ended_rows.append((sequence, n_cached))
        return Event(sequence.id, token, reason, error, logprobs)
