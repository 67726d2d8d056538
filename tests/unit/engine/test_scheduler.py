from __future__ import annotations

import pytest

from mlxcel.core import Event, FinishReason, Sampled, Start, State
from mlxcel.engine.scheduler import OPEN_ENDED_BOOKING_TOKENS, BatchScheduler, SchedulerLimits
from mlxcel.errors import ContextLengthExceeded, GenerationError, ServerBusy
from mlxcel.kv.size import BLOCK_TOKENS, KVSize
from tests.support.runners import PretendRunner, pretend_alone
from tests.support.turns import Turns, request

BLOCK = BLOCK_TOKENS
"""At one byte a token, the bytes of a block."""


def scheduler_of(
    *,
    max_batch_size: int = 4,
    max_queue_depth: int | None = None,
    prefill_chunk_tokens: int = 512,
    budget_blocks: int | None = None,
    open_ended_booking_tokens: int = OPEN_ENDED_BOOKING_TOKENS,
    eos_ids: frozenset[int] = frozenset(),
) -> BatchScheduler:
    limits = SchedulerLimits(
        max_batch_size=max_batch_size,
        max_queue_depth=max_queue_depth,
        prefill_chunk_tokens=prefill_chunk_tokens,
        kv_budget_bytes=None if budget_blocks is None else budget_blocks * BLOCK,
        open_ended_booking_tokens=open_ended_booking_tokens,
    )
    return BatchScheduler(limits, kv_size=KVSize(bytes_per_token=1), eos_ids=eos_ids)


def test_an_unbounded_queue_under_one_running_row_keeps_the_pool_unbounded() -> None:
    scheduler = scheduler_of(max_batch_size=1, max_queue_depth=None)
    assert scheduler.pool.capacity is None
    for index in range(10_000):
        scheduler.submit(request(f"r{index}", [1, 2], 1))
    assert len(scheduler.queue) == len(scheduler.pool) == 10_000
    turns = Turns(scheduler, PretendRunner())
    turns.until_idle()
    assert len(turns.ends) == 10_000 and all(end.finish is FinishReason.LENGTH for end in turns.ends.values())
    scheduler.pool.check()


def test_one_running_and_eight_waiting_hold_exactly_nine() -> None:
    scheduler = scheduler_of(max_batch_size=1, max_queue_depth=8)
    for index in range(9):
        scheduler.submit(request(f"r{index}", [1, 2], 3))
    with pytest.raises(ServerBusy):
        scheduler.submit(request("r9", [1, 2], 3))
    assert len(scheduler.pool) == len(scheduler.queue) == 9
    turns = Turns(scheduler, PretendRunner())
    turns.turn()
    assert (scheduler.n_running, len(scheduler.queue)) == (1, 8)
    with pytest.raises(ServerBusy):
        scheduler.submit(request("r9", [1, 2], 3))
    turns.until_idle()
    assert sorted(turns.ends) == [f"r{index}" for index in range(9)]


def test_without_waiting_room_an_idle_server_still_serves() -> None:
    scheduler = scheduler_of(max_batch_size=1, max_queue_depth=0)
    turns = Turns(scheduler, PretendRunner())
    for name in ("a", "b"):
        scheduler.submit(request(name, [1, 2], 3))
        with pytest.raises(ServerBusy):
            scheduler.submit(request("other", [1, 2], 3))
        turns.until_idle()
    assert {name: len(tokens) for name, tokens in turns.tokens.items()} == {"a": 3, "b": 3}


def test_rows_are_admitted_in_the_order_in_which_they_came() -> None:
    scheduler = scheduler_of(max_batch_size=2, prefill_chunk_tokens=4)
    turns = Turns(scheduler, PretendRunner())
    for index in range(12):
        scheduler.submit(request(f"r{index:02}", list(range(1 + index % 7)), 1 + index % 3))
    admitted: set[str] = set()
    while not scheduler.is_idle:
        turns.turn()
        admitted |= {row.id for row in [*scheduler.prefilling, *scheduler.decoding]} | set(turns.ends)
        assert admitted == {f"r{index:02}" for index in range(len(admitted))}
    assert len(admitted) == 12


def test_a_long_prompt_is_prefilled_in_chunks_while_others_decode() -> None:
    scheduler = scheduler_of(prefill_chunk_tokens=8)
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(request("running", [1, 2], 40))
    turns.turn()
    scheduler.submit(request("long", list(range(101)), 5))
    chunks: list[tuple[int, int]] = []
    while len(chunks) < 13:
        before = len(turns.tokens["running"])
        plan = turns.turn()
        chunks += [(chunk.start, chunk.end) for chunk in plan.chunks]
        assert [row.id for row in plan.decode] == ["running"]
        assert len(turns.tokens["running"]) - before == (1 if turns.n_turns > 2 else 0)
    assert chunks == [(start, min(start + 8, 100)) for start in range(0, 100, 8)]
    turns.until_idle()
    for asked in (request("running", [1, 2], 40), request("long", list(range(101)), 5)):
        assert turns.tokens[asked.id] == pretend_alone(asked)


def test_one_turn_shares_its_chunk_among_short_prompts() -> None:
    scheduler = scheduler_of(prefill_chunk_tokens=10)
    for name in ("a", "b", "c"):
        scheduler.submit(request(name, list(range(6)), 1))
    plan = scheduler.plan()
    assert [(chunk.sequence.id, chunk.start, chunk.end) for chunk in plan.chunks] == [("a", 0, 5), ("b", 0, 5)]


@pytest.mark.parametrize("prompt_length", [1, 2, 3, 17, BLOCK, BLOCK + 1, BLOCK + 2])
@pytest.mark.parametrize("max_tokens", [1, 2, 3, BLOCK, BLOCK + 1])
def test_a_row_gets_exactly_max_tokens(prompt_length: int, max_tokens: int) -> None:
    asked = request("r", list(range(prompt_length)), max_tokens)
    scheduler = scheduler_of()
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(asked)
    n_steps = 0
    while not scheduler.is_idle:
        n_steps += len(turns.turn().decode)
    assert turns.tokens["r"] == pretend_alone(asked) and len(turns.tokens["r"]) == max_tokens == n_steps
    assert turns.ends["r"].finish is FinishReason.LENGTH
    assert (len(scheduler.pool), scheduler.pool.booked_bytes, scheduler.pool.held_bytes) == (0, 0, 0)


def test_an_end_token_stops_a_row_and_is_delivered_unless_it_is_to_be_ignored() -> None:
    unstopped = pretend_alone(request("r", [5, 6], 30))
    eos = unstopped[7]
    n_until_eos = unstopped.index(eos) + 1
    for ignore_eos, expected, finish in (
        (False, unstopped[:n_until_eos], FinishReason.STOP),
        (True, unstopped, FinishReason.LENGTH),
    ):
        scheduler = scheduler_of(eos_ids=frozenset({eos, 99}))
        turns = Turns(scheduler, PretendRunner())
        scheduler.submit(request("r", [5, 6], 30, ignore_eos=ignore_eos))
        turns.until_idle()
        assert turns.tokens["r"] == expected
        assert (turns.ends["r"].finish, turns.ends["r"].token) == (finish, expected[-1])


def test_an_end_token_on_the_last_allowed_place_is_a_stop() -> None:
    eos = pretend_alone(request("r", [5, 6], 3))[-1]
    scheduler = scheduler_of(eos_ids=frozenset({eos}))
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(request("r", [5, 6], 3))
    turns.until_idle()
    assert turns.ends["r"].finish is FinishReason.STOP


def test_a_request_that_never_fits_is_refused_at_once_with_both_sizes() -> None:
    scheduler = scheduler_of(budget_blocks=2)
    scheduler.submit(request("fits", [1] * BLOCK, BLOCK))
    with pytest.raises(ContextLengthExceeded) as refusal:
        scheduler.submit(request("huge", [1] * BLOCK, BLOCK + 1))
    assert str(3 * BLOCK) in refusal.value.message and str(2 * BLOCK) in refusal.value.message
    assert refusal.value.param == "max_tokens"
    assert len(scheduler.pool) == len(scheduler.queue) == 1
    scheduler.pool.check()


def test_a_row_that_does_not_fit_now_waits_and_nobody_overtakes_it() -> None:
    scheduler = scheduler_of(budget_blocks=3)
    turns = Turns(scheduler, PretendRunner())
    for name, n_blocks in (("a", 2), ("b", 2), ("c", 1)):
        scheduler.submit(request(name, [1] * 10, n_blocks * BLOCK - 10))
    turns.turn()
    assert (scheduler.n_running, len(scheduler.queue)) == (1, 2)
    assert scheduler.pool.booked_bytes == 2 * BLOCK
    while "a" not in turns.ends:
        assert "b" not in turns.tokens and "c" not in turns.tokens
        turns.turn()
    turns.until_idle()
    for name, n_blocks in (("a", 2), ("b", 2), ("c", 1)):
        assert turns.tokens[name] == pretend_alone(request(name, [1] * 10, n_blocks * BLOCK - 10))


def test_an_open_ended_row_books_a_part_of_what_it_may_use_and_more_as_it_comes() -> None:
    n_tokens = OPEN_ENDED_BOOKING_TOKENS + 3 * BLOCK
    asked = request("r", [1, 2], n_tokens, is_open_ended=True)
    scheduler = scheduler_of(budget_blocks=40)
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(asked)
    turns.turn()
    at_first = scheduler.pool.booked_bytes
    assert at_first == OPEN_ENDED_BOOKING_TOKENS + BLOCK
    most = 0
    while not scheduler.is_idle:
        turns.turn()
        scheduler.pool.check()
        most = max(most, scheduler.pool.booked_bytes)
    assert most == at_first + 3 * BLOCK
    assert turns.tokens["r"] == pretend_alone(asked)


def test_rows_that_outgrow_the_budget_together_give_way_and_end_with_the_same_tokens() -> None:
    asked = [
        request(name, [index + 1] * 3, OPEN_ENDED_BOOKING_TOKENS + 900, is_open_ended=True)
        for index, name in enumerate("abc")
    ]
    scheduler = scheduler_of(max_batch_size=3, budget_blocks=35)
    turns = Turns(scheduler, PretendRunner())
    for one in asked:
        scheduler.submit(one)
    n_gave_way = 0
    running: set[str] = set()
    while not scheduler.is_idle:
        turns.turn()
        scheduler.pool.check()
        now = {sequence.id for sequence in [*scheduler.prefilling, *scheduler.decoding]}
        n_gave_way += len(running - now - set(turns.ends))
        running = now
    assert n_gave_way >= 1
    assert {one.id: turns.tokens[one.id] for one in asked} == {one.id: pretend_alone(one) for one in asked}


def test_a_row_that_gave_way_is_the_first_to_go_on_even_where_it_needs_the_whole_budget() -> None:
    asked = {
        "grows": request("grows", [1] * 10, 1000, is_open_ended=True),
        "short": request("short", [2] * 10, 240),
        "queued": request("queued", [3] * 10, 240),
    }
    # "grows" books 2 blocks and later needs a third; waiting again, it would book 813 tokens, more than there is.
    scheduler = scheduler_of(max_batch_size=2, budget_blocks=3, open_ended_booking_tokens=300)
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(asked["grows"])
    while len(turns.tokens["grows"]) < 400:
        turns.turn()
    scheduler.submit(asked["short"])
    scheduler.submit(asked["queued"])
    while "grows" in {row.id for row in scheduler.decoding}:
        turns.turn()
    assert scheduler.queue.first is not None and scheduler.queue.first.id == "grows"
    while "grows" not in turns.ends:
        turns.turn()
        scheduler.pool.check()
        assert "queued" not in turns.tokens
    turns.until_idle()
    alone = {name: pretend_alone(one) for name, one in asked.items()}
    assert turns.tokens == {**alone, "grows": alone["grows"][: 3 * BLOCK + 1 - 10]}


def test_a_lone_row_that_outgrows_the_whole_budget_keeps_its_tokens_and_ends_with_an_error() -> None:
    asked = request("r", [1, 2], 2 * OPEN_ENDED_BOOKING_TOKENS, is_open_ended=True)
    scheduler = scheduler_of(budget_blocks=18)
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(asked)
    turns.until_idle()
    end = turns.ends["r"]
    assert end.finish is FinishReason.ERROR and isinstance(end.error, ContextLengthExceeded)
    assert str(18 * BLOCK) in end.error.message and str(19 * BLOCK) in end.error.message
    # The newest token is never cached, so one token more than the budget holds is generated.
    n_generated = 18 * BLOCK + 1 - 2
    assert turns.tokens["r"] == pretend_alone(asked)[:n_generated]
    assert len(scheduler.pool) == 0


def test_a_failed_step_ends_its_rows_alone() -> None:
    scheduler = scheduler_of(max_batch_size=4, prefill_chunk_tokens=4)
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(request("a", [1, 2], 20))
    scheduler.submit(request("b", [3, 4], 20))
    turns.turn()
    turns.turn()
    scheduler.submit(request("one token", [9], 4))
    scheduler.submit(request("prefilling", list(range(30)), 4))
    turns.turn(decode_fails=True)
    assert {name: end.finish for name, end in turns.ends.items()} == dict.fromkeys("ab", FinishReason.ERROR)
    scheduler.pool.check()
    turns.until_idle()
    for survivor in (request("one token", [9], 4), request("prefilling", list(range(30)), 4)):
        assert turns.tokens[survivor.id] == pretend_alone(survivor)


def test_a_failed_chunk_ends_its_sequence_alone() -> None:
    scheduler = scheduler_of(prefill_chunk_tokens=8)
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(request("a", [1, 2, 3], 5))
    scheduler.submit(request("b", [4, 5, 6], 5))
    turns.turn(failing_chunk=0)
    turns.until_idle()
    assert turns.ends["a"].finish is FinishReason.ERROR and "a" not in turns.tokens
    assert turns.tokens["b"] == pretend_alone(request("b", [4, 5, 6], 5))


def test_a_row_whose_token_is_an_error_ends_with_it_and_keeps_what_it_had() -> None:
    scheduler = scheduler_of()
    turns = Turns(scheduler, PretendRunner())
    scheduler.submit(request("a", [1, 2], 5))
    turns.turn()
    error = GenerationError("this row's sampler failed")
    row = scheduler.decoding[0]
    turns.record(scheduler.commit_decode([(row, error)]))
    assert turns.ends["a"].error is error and row.state is State.FINISHED
    assert scheduler.commit_decode([(row, Sampled(7))]) == []
    assert scheduler.is_idle and len(scheduler.pool) == 0


def test_cancel_frees_a_sequence_wherever_it_is_and_is_safe_to_repeat() -> None:
    scheduler = scheduler_of(max_batch_size=2, prefill_chunk_tokens=8)
    turns = Turns(scheduler, PretendRunner())
    for name, prompt in (("decoding", [1, 2]), ("prefilling", [3] * 50), ("queued", [4, 5])):
        scheduler.submit(request(name, prompt, 50))
    turns.turn()
    turns.turn()
    states = {"decoding": scheduler.decoding, "prefilling": scheduler.prefilling}
    assert {name: [row.id for row in rows] for name, rows in states.items()} == {name: [name] for name in states}
    for n_left, name in ((2, "decoding"), (1, "prefilling"), (0, "queued")):
        event = scheduler.cancel(name)
        assert event is not None and event.finish is FinishReason.CANCELLED
        assert scheduler.cancel(name) is None
        assert len(scheduler.pool) == n_left
        scheduler.pool.check()
    assert scheduler.cancel("never seen") is None
    assert scheduler.is_idle and set(scheduler.plan().freed) == {"decoding", "prefilling", "queued"}


def test_fail_all_ends_every_sequence_once() -> None:
    scheduler = scheduler_of(max_batch_size=2, prefill_chunk_tokens=8)
    turns = Turns(scheduler, PretendRunner())
    for name, prompt in (("decoding", [1, 2]), ("prefilling", [3] * 50), ("queued", [4, 5])):
        scheduler.submit(request(name, prompt, 50))
    turns.turn()
    turns.record(scheduler.fail_all(GenerationError("over")))
    assert len(turns.ends) == 3 and scheduler.fail_all(GenerationError("over")) == []
    assert scheduler.is_idle and len(scheduler.pool) == 0


class Starts(Turns):
    """Turns that remember how each sequence came to its first token."""

    def __init__(self, scheduler: BatchScheduler) -> None:
        super().__init__(scheduler, PretendRunner())
        self.starts: dict[str, list[Start]] = {}

    def record(self, events: list[Event] | tuple[Event, ...]) -> None:
        super().record(events)
        for event in events:
            if event.start is not None:
                self.starts.setdefault(event.request_id, []).append(event.start)


def test_the_first_token_alone_tells_how_many_tokens_of_the_prompt_were_computed() -> None:
    scheduler = scheduler_of(prefill_chunk_tokens=4)
    turns = Starts(scheduler)
    scheduler.submit(request("alone", list(range(11)), 5))
    scheduler.submit(request("first", list(range(20, 29)), 5), request("fork", list(range(20, 29)), 5))
    scheduler.submit(request("one token", [99], 5))
    turns.until_idle()
    computed = {name: [start.n_computed for start in starts] for name, starts in turns.starts.items()}
    assert computed == {"alone": [11], "first": [9], "fork": [1], "one token": [1]}


def test_a_sequence_that_gives_way_is_counted_and_started_when_it_first_left_the_queue() -> None:
    scheduler = scheduler_of(budget_blocks=3, open_ended_booking_tokens=1)
    turns = Starts(scheduler)
    asked = [request(name, [1, 2], 2 * BLOCK, is_open_ended=True) for name in ("a", "b")]
    for one in asked:
        scheduler.submit(one)
    turns.until_idle()
    assert scheduler.n_requeued > 0
    assert {name: len(starts) for name, starts in turns.starts.items()} == {"a": 1, "b": 1}
    assert turns.tokens == {one.id: pretend_alone(one) for one in asked}


def test_a_sequence_starts_in_the_turn_that_takes_it_out_of_the_queue() -> None:
    scheduler = scheduler_of(max_batch_size=1)
    for name in ("a", "b"):
        scheduler.submit(request(name, [1, 2], 1))
    scheduler.plan(5.0)
    scheduler.cancel("a")
    scheduler.plan(8.0)
    (running,) = [*scheduler.prefilling, *scheduler.decoding]
    assert (running.id, running.started_s) == ("b", 8.0)
