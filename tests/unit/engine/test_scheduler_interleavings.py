"""Any interleaving of what clients and the device may do, against a model whose every token is known."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mlxcel.core import FinishReason, Priority, Request, SamplingParams
from mlxcel.engine.scheduler import BatchScheduler, Plan, SchedulerLimits
from mlxcel.errors import ContextLengthExceeded, InputError, ServerBusy
from mlxcel.kv.prefixes import PrefixLimits
from mlxcel.kv.size import BLOCK_TOKENS, KVSize
from tests.support.constraints import CompleteAfter
from tests.support.runners import PretendRunner, pretend_alone
from tests.support.turns import Turns, request

EOS_IDS = frozenset({0, 49})


class Interleavings(RuleBasedStateMachine):
    @initialize(
        max_batch_size=st.sampled_from([1, 2, 3, 4]),
        max_queue_depth=st.sampled_from([None, None, 0, 1, 4]),
        prefill_chunk_tokens=st.sampled_from([0, 1, 3, 16, 512]),
        budget_blocks=st.sampled_from([None, 1, 2, 3, 4, 5, 6]),
        open_ended_booking_tokens=st.sampled_from([1, 300]),
        window_tokens=st.sampled_from([None, None, 300]),
        fixed_bytes=st.sampled_from([0, 100]),
        can_go_back=st.booleans(),
        prefix_blocks=st.sampled_from([0, 1, 3, None]),
        prefix_ttl_s=st.sampled_from([5.0, float("inf")]),
    )
    def open(
        self,
        max_batch_size: int,
        max_queue_depth: int | None,
        prefill_chunk_tokens: int,
        budget_blocks: int | None,
        open_ended_booking_tokens: int,
        window_tokens: int | None,
        fixed_bytes: int,
        can_go_back: bool,
        prefix_blocks: int | None,
        prefix_ttl_s: float,
    ) -> None:
        def bytes_of(n_blocks: int | None) -> int | None:
            return None if n_blocks is None else n_blocks * (BLOCK_TOKENS + fixed_bytes)

        limits = SchedulerLimits(
            max_batch_size=max_batch_size,
            max_queue_depth=max_queue_depth,
            prefill_chunk_tokens=prefill_chunk_tokens,
            kv_budget_bytes=bytes_of(budget_blocks),
            open_ended_booking_tokens=open_ended_booking_tokens,
            prefixes=PrefixLimits(budget_bytes=bytes_of(prefix_blocks), ttl_s=prefix_ttl_s),
        )
        self.kv_size = KVSize(bytes_per_token=1, fixed_bytes=fixed_bytes, window_tokens=window_tokens)
        self.scheduler = BatchScheduler(limits, kv_size=self.kv_size, eos_ids=EOS_IDS)
        self.runner = PretendRunner(can_go_back=can_go_back)
        self.turns = Turns(self.scheduler, self.runner)
        self.accepted: dict[str, Request] = {}
        self.complete_after: dict[str, int | None] = {}
        self.started: set[str] = set()
        self.n_empty_turns = 0

    @property
    def live(self) -> list[str]:
        return [name for name in self.accepted if name not in self.turns.ends]

    @rule(
        n_prompt=st.sampled_from([1, 2, 40, 240, 250, 255, 256, 257, 500]),
        max_tokens=st.sampled_from([1, 2, 5, 30, 300]),
        ignore_eos=st.sampled_from([True, True, False]),
        is_open_ended=st.sampled_from([True, True, False]),
        n_answers=st.sampled_from([1, 1, 1, 2, 3, 5]),
        priority=st.sampled_from(Priority),
        complete_after=st.sampled_from([None, None, 1, 4, 200]),
        stop_token_ids=st.sampled_from([frozenset[int](), frozenset({7, 8, 9})]),
        n_prompt_logprobs=st.sampled_from([None, None, 0]),
        goes_on_from=st.integers(0, 7),
    )
    def submit(
        self,
        n_prompt: int,
        max_tokens: int,
        ignore_eos: bool,
        is_open_ended: bool,
        n_answers: int,
        priority: Priority,
        complete_after: int | None,
        stop_token_ids: frozenset[int],
        n_prompt_logprobs: int | None,
        goes_on_from: int,
    ) -> None:
        n_before = len(self.accepted)
        prompt = [n_before, *range(n_prompt - 1)]
        if (earlier := self.accepted.get(f"r{goes_on_from}")) is not None:  # the next turn of a conversation
            prompt = [*earlier.prompt, *self.turns.tokens.get(earlier.id, []), *prompt][:600]
        asked = [
            request(
                f"r{n_before + index}",
                prompt,
                max_tokens,
                sampling=SamplingParams(seed=index, temperature=0, stop_token_ids=stop_token_ids),
                ignore_eos=ignore_eos,
                is_open_ended=is_open_ended,
                priority=priority,
                constraint=None if complete_after is None else CompleteAfter(complete_after),
                n_prompt_logprobs=n_prompt_logprobs if index % 2 == 0 else None,
            )
            for index in range(n_answers)
        ]
        before = (len(self.scheduler.pool), len(self.scheduler.queue), self.scheduler.pool.booked_bytes)
        capacity = self.scheduler.pool.capacity
        try:
            self.scheduler.submit(*asked)
        except ServerBusy:
            assert capacity is not None and len(self.live) + n_answers > capacity
        except ContextLengthExceeded:
            assert self.scheduler.pool.budget_bytes is not None
        except InputError as error:
            assert error.param == "n" and capacity is not None and n_answers > capacity
        else:
            self.accepted |= {one.id: one for one in asked}
            self.complete_after |= {one.id: complete_after for one in asked}
            return
        assert before == (len(self.scheduler.pool), len(self.scheduler.queue), self.scheduler.pool.booked_bytes)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.accepted)))
        event = self.scheduler.cancel(name)
        assert (event is None) == (name in self.turns.ends)
        if event is not None:
            self.turns.record([event])
            assert event.finish is FinishReason.CANCELLED and name not in self.scheduler.pool

    @rule(n_turns=st.sampled_from([1, 2, 7, 20, 60, 300]), took_s=st.sampled_from([0.001, 0.2, 3.0]))
    def go_on(self, n_turns: int, took_s: float) -> None:
        for _ in range(n_turns):
            if self.scheduler.is_idle:
                return
            self.turns.now_s += 0.1
            self.check(self.turns.turn())
            self.scheduler.chunk_size.observe(self.scheduler.chunk_size.n_tokens, took_s)

    @precondition(lambda self: self.live)
    @rule()
    def step_fails(self) -> None:
        ended = set(self.turns.ends)
        plan = self.turns.turn(decode_fails=True)
        self.check(plan)
        failed = set(self.turns.ends) - ended
        assert {row.id for row in plan.decode} <= failed
        assert all(self.turns.ends[name].finish is FinishReason.ERROR for name in failed)

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 3))
    def chunk_fails(self, index: int) -> None:
        plan = self.turns.turn(failing_chunk=index)
        self.check(plan)
        if index < len(plan.chunks):
            assert self.turns.ends[plan.chunks[index].sequence.id].finish is FinishReason.ERROR

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 2))
    def fork_fails(self, index: int) -> None:
        plan = self.turns.turn(failing_fork=index)
        self.check(plan)
        if index < len(plan.forks):
            assert self.turns.ends[plan.forks[index].sequence.id].finish is FinishReason.ERROR

    def check(self, plan: Plan) -> None:
        scheduler, pool = self.scheduler, self.scheduler.pool
        pool.check()
        forked = [fork.sequence.id for fork in plan.forks]
        assert sum(self.kv_size.bytes_for(n) for n in self.runner.n_kept.values()) <= pool.kept_bytes
        limit = scheduler.limits.prefixes.budget_bytes
        assert limit is None or pool.kept_bytes <= limit
        planned = Counter([*forked, *(row.id for row in plan.decode), *(chunk.sequence.id for chunk in plan.chunks)])
        assert all(n == 1 for n in planned.values()), "a sequence was planned twice"
        assert len(plan.decode) <= scheduler.limits.max_batch_size >= scheduler.n_running
        n_chunk_tokens = sum(chunk.end - chunk.start for chunk in plan.chunks)
        assert n_chunk_tokens <= scheduler.chunk_size.n_tokens
        assert len(scheduler.queue) + scheduler.n_running == len(pool) == len(self.live)
        running = {row.id for row in [*scheduler.prefilling, *scheduler.decoding]} - self.started
        # Sequences that were cancelled while they waited never start, so the rest of a lane must start in order.
        for lane in Priority:
            started = [self.number(name) for name in running if self.accepted[name].priority is lane]
            waiting = [self.number(n) for n in self.waiting(running) if self.accepted[n].priority is lane]
            assert not started or not waiting or max(started) < min(waiting)
        self.started |= running
        # A turn that plans and starts nothing may still read the last step of its rows; a second one would spin.
        self.n_empty_turns = 0 if planned or self.turns.n_keeps or plan.ended or running else self.n_empty_turns + 1
        assert self.n_empty_turns <= 1 or scheduler.is_idle
        cached = {name: n for name, n in self.runner.n_cached.items() if name in pool}
        assert sum(map(self.kv_size.bytes_for, cached.values())) <= pool.booked_bytes
        for name, tokens in self.turns.tokens.items():
            assert len(tokens) <= self.accepted[name].max_tokens

    def waiting(self, running: set[str]) -> list[str]:
        return [name for name in self.live if name not in running | self.started]

    @staticmethod
    def number(name: str) -> int:
        return int(name[1:])

    def teardown(self) -> None:
        if not hasattr(self, "turns"):
            return
        self.turns.until_idle(at_most=self.turns.n_turns + 40_000)
        assert self.turns.ends.keys() == self.accepted.keys()
        assert (len(self.scheduler.pool), self.scheduler.pool.booked_bytes) == (0, 0)
        assert self.runner.n_cached == {} and len(self.runner.n_kept) == len(self.scheduler.prefixes)
        self.scheduler.prefixes.clear()
        self.runner.forget(self.scheduler.prefixes.take_dropped())
        assert (self.scheduler.pool.kept_bytes, self.runner.n_kept) == (0, {})
        for name, asked in self.accepted.items():
            complete_after = self.complete_after[name]
            alone = pretend_alone(asked, eos_ids=EOS_IDS, complete_after=complete_after)
            tokens, end = self.turns.tokens[name], self.turns.ends[name]
            assert tokens == alone[: len(tokens)]
            ends = asked.sampling.stop_token_ids | (frozenset() if asked.ignore_eos else EOS_IDS)
            if end.finish in (FinishReason.STOP, FinishReason.LENGTH):
                assert tokens == alone
                is_stopped = alone[-1] in ends or len(alone) == complete_after
                assert end.finish is (FinishReason.STOP if is_stopped else FinishReason.LENGTH)
                # An end token has no text; the token that completes a constraint has, and comes before the end.
                assert (end.token is None) == (alone[-1] not in ends and len(alone) == complete_after)
            if asked.n_prompt_logprobs is None or not tokens:
                assert name not in self.turns.prompt_logprobs
            else:
                assert [-one.chosen for one in self.turns.prompt_logprobs[name]] == asked.prompt[1:]
            if isinstance(asked.constraint, CompleteAfter):
                assert asked.constraint.tokens == [token for token in tokens if token not in ends]


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@settings(max_examples=60, deadline=None)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from([250, 254, 255, 256, 300, 510]), st.sampled_from([3, 20, 290])),
        min_size=2,
        max_size=5,
    ),
    budget_blocks=st.integers(2, 5),
    turns_before_each=st.lists(st.sampled_from([0, 1, 2, 30]), min_size=5, max_size=5),
    cancelled=st.dictionaries(st.integers(1, 300), st.integers(0, 4), max_size=2),
)
def test_rows_that_outgrow_a_full_budget_together_all_end_as_if_alone(
    asked: list[tuple[int, int]],
    budget_blocks: int,
    turns_before_each: list[int],
    cancelled: dict[int, int],
) -> None:
    limits = SchedulerLimits(
        max_batch_size=4,
        max_queue_depth=None,
        prefill_chunk_tokens=512,
        kv_budget_bytes=budget_blocks * BLOCK_TOKENS,
        open_ended_booking_tokens=1,
    )
    scheduler = BatchScheduler(limits, kv_size=KVSize(bytes_per_token=1), eos_ids=frozenset())
    runner = PretendRunner()
    turns = Turns(scheduler, runner)
    requests = {}

    def turn() -> None:
        name = f"r{cancelled.get(turns.n_turns)}"
        if (event := scheduler.cancel(name)) is not None:
            turns.record([event])
        turns.turn()
        scheduler.pool.check()
        cached = {name: n for name, n in runner.n_cached.items() if name in scheduler.pool}
        assert sum(map(KVSize(bytes_per_token=1).bytes_for, cached.values())) <= scheduler.pool.booked_bytes
        scheduler.chunk_size.observe(512, 0.001)

    for index, (n_prompt, max_tokens) in enumerate(asked):
        one = request(f"r{index}", [index] * n_prompt, max_tokens, is_open_ended=True)
        for _ in range(turns_before_each[index]):
            turn()
        if scheduler.pool.fits_ever(-(-(n_prompt + 1) // BLOCK_TOKENS) * BLOCK_TOKENS):
            scheduler.submit(one)
            requests[one.id] = one
    while not scheduler.is_idle:
        assert turns.n_turns < 5000, "requests starve"
        turn()
    for name, one in requests.items():
        alone, end = pretend_alone(one), turns.ends[name]
        if end.finish is FinishReason.LENGTH:
            assert turns.tokens[name] == alone
        elif end.finish is FinishReason.ERROR:
            assert budget_blocks * BLOCK_TOKENS < len(one.prompt) + one.max_tokens
            assert len(one.prompt) + len(turns.tokens[name]) == budget_blocks * BLOCK_TOKENS + 1
        else:
            assert end.finish is FinishReason.CANCELLED and turns.tokens[name] == alone[: len(turns.tokens[name])]
