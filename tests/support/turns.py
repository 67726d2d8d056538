"""The engine's turns without its thread: a scheduler and a runner, driven one turn at a time."""

from __future__ import annotations

from collections import defaultdict

from mlxcel.core import Constraint, Event, FinishReason, Priority, Request, SamplingParams, TokenLogprobs
from mlxcel.engine.runner import Runner
from mlxcel.engine.scheduler import BatchScheduler, Plan
from mlxcel.errors import GenerationError


class Turns:
    """Drives both and records what every request was told.

    What it records is by request id; an id in `ends` never gets another event, which is checked. `now_s` is the time
    that the scheduler is told, `n_keeps` counts what the last turn kept.
    """

    def __init__(self, scheduler: BatchScheduler, runner: Runner) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.logprobs: dict[str, list[TokenLogprobs | None]] = defaultdict(list)
        self.prompt_logprobs: dict[str, tuple[TokenLogprobs, ...]] = {}
        self.n_from_prefix: dict[str, int] = {}
        self.ends: dict[str, Event] = {}
        self.n_turns = 0
        self.n_keeps = 0
        self.now_s = 0.0

    def turn(
        self, *, decode_fails: bool = False, failing_chunk: int | None = None, failing_fork: int | None = None
    ) -> Plan:
        """One turn as the loop does it; optionally its decode step, or one of its chunks or forks, fails."""
        keeps = self.scheduler.keeps()
        for keep in keeps:
            self.scheduler.commit_keep(keep, can_be_cut=self.runner.keep(keep))
        self.n_keeps = len(keeps)
        plan = self.scheduler.plan(self.now_s)
        self.runner.forget(plan.freed)
        self.record(plan.ended)
        for index, fork in enumerate(plan.forks):
            if index == failing_fork:
                self.record(self.scheduler.fail([fork.sequence], GenerationError("on cue")))
            else:
                self.scheduler.commit_fork(fork, is_done=self.runner.fork(fork))
        self.runner.forget(self.scheduler.prefixes.take_dropped())
        if decode_fails:
            self.runner.reset()
            self.record(self.scheduler.fail(self.scheduler.under_way, GenerationError("on cue")))
        else:
            self.record(self.scheduler.commit_decode(self.runner.decode(plan.decode)))
        for index, chunk in enumerate(plan.chunks):
            if index == failing_chunk:
                self.record(self.scheduler.fail([chunk.sequence], GenerationError("on cue")))
            else:
                chunk.sequence.prompt_logprobs += self.runner.prefill(chunk)
                self.scheduler.commit_prefill([chunk])
        self.runner.forget(self.scheduler.prefixes.take_dropped())
        self.n_turns += 1
        return plan

    def until_idle(self, *, at_most: int = 100_000) -> None:
        while not self.scheduler.is_idle:
            assert self.n_turns < at_most, "requests starve"
            self.turn()
        self.runner.decode(())
        self.runner.forget(self.scheduler.plan(self.now_s).freed)
        self.runner.forget(self.scheduler.prefixes.take_dropped())

    def record(self, events: list[Event] | tuple[Event, ...]) -> None:
        for event in events:
            assert event.request_id not in self.ends, f"{event} came after the end"
            if event.prompt_logprobs is not None:
                assert event.request_id not in self.tokens
                self.prompt_logprobs[event.request_id] = event.prompt_logprobs
            if event.token is not None:
                if event.start is not None:
                    self.n_from_prefix[event.request_id] = event.start.n_from_prefix
                self.tokens[event.request_id].append(event.token)
                self.logprobs[event.request_id].append(event.logprobs)
            if event.finish is not None:
                assert (event.error is not None) == (event.finish is FinishReason.ERROR)
                self.ends[event.request_id] = event


def request(
    request_id: str,
    prompt: list[int],
    max_tokens: int,
    *,
    sampling: SamplingParams | None = None,
    ignore_eos: bool = False,
    is_open_ended: bool = False,
    priority: Priority = Priority.NORMAL,
    constraint: Constraint | None = None,
    n_prompt_logprobs: int | None = None,
) -> Request:
    """A request, greedy unless told otherwise."""
    return Request(
        id=request_id,
        prompt=prompt,
        max_tokens=max_tokens,
        sampling=sampling or SamplingParams(seed=0, temperature=0),
        ignore_eos=ignore_eos,
        is_open_ended=is_open_ended,
        priority=priority,
        constraint=constraint,
        n_prompt_logprobs=n_prompt_logprobs,
    )
