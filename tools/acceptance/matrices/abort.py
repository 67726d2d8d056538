"""abort: a client that leaves frees its place, and no other client notices.

In several rounds clients leave at the same point, while another's stream is running. That stream's text must be
the reference's, and soon after every place must be free again. A server need not say how full it is: it is
filled to capacity again, and must answer all of it about as fast as it did before anyone had left. Where it
publishes how many requests it is working on (/metrics, /slots), that must be none.

What is found so: a place that is never given back (refusals, or no answer), and work that goes on for nobody
(the answers come late). The clients that leave ask for so many tokens that their work, gone on with, would take
longer than the wait; where the model is too fast for that, the row says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ..client import Ongoing
from ..expected import Prompt
from ..verdict import Differs, DoesNotApply, Refused, require_text
from .busy import requests_in_progress
from .matrix import Bench, Case, Check, Inputs, Matrix
from .pace import Pace, context_of, fill, measure_pace
from .prompts import short_prompt

N_RUNNING, N_WAITING = 4, 2
MOST_PLACES = N_RUNNING + N_WAITING
N_ROUNDS = 3
BYSTANDER_S = 1.5
LONGEST_BYSTANDER_TOKENS = 300
MOST_ABANDONED_TOKENS = 2000
FILL_S = 0.2
MOST_FILL_TOKENS = 128
SETTLE_S = 2.0
POLL_S = 0.05


class Moment(Enum):
    """When a client leaves."""

    SENT = "before the first token"
    PREFILL = "in prefill"
    DECODE = "in decode"
    WAITING = "while it waits"


class _Plan(NamedTuple):
    """What one row does, worked out from the server's pace and from how many of MOST_PLACES requests it takes at
    once. limit_s: until every place must be free."""

    pace: Pace
    n_places: int
    n_leaving: int
    prompt_tokens: int
    max_tokens: int
    fill_tokens: int
    limit_s: float


def _check_of(moment: Moment, *, stream: bool) -> Check:
    async def check(bench: Bench) -> str:
        plan = await _plan(bench, moment)
        bystander = short_prompt(bench.reference, seed=910)
        n_own = plan.pace.tokens_in(BYSTANDER_S, least=16, most=LONGEST_BYSTANDER_TOKENS)
        expected = bench.reference.generate(bystander, n_own)
        leavers = _prompts(bench, N_ROUNDS * plan.n_leaving, plan.prompt_tokens, seed=1000)
        holders = _prompts(bench, N_RUNNING - 1, 8, seed=1100) if moment is Moment.WAITING else []
        n_seen = 0
        for round_ in range(N_ROUNDS):
            other = bench.client.begin(bystander, n_own, stream=True)
            await other.reach(other.begun, limit_s=bench.settings.request_s)
            holding = [bench.client.begin(prompt, plan.max_tokens, stream=True) for prompt in holders]
            for held in holding:
                await held.reach(held.begun, limit_s=bench.settings.request_s)
            mine = leavers[round_ * plan.n_leaving : (round_ + 1) * plan.n_leaving]
            leaving = [bench.client.begin(prompt, plan.max_tokens, stream=stream) for prompt in mine]
            await _until(moment, leaving, plan.pace, stream=stream, limit_s=bench.settings.request_s)
            n_seen += not other.task.done()
            await asyncio.gather(*(ongoing.leave() for ongoing in [*leaving, *holding]))
            answer = await other.task
            require_text(expected, answer.text, answer.finish, what="the stream of a client that stayed")
            await _require_capacity(bench, plan, after=(round_ + 1) * plan.n_leaving)
        return _said(plan, n_seen)

    return check


async def _plan(bench: Bench, moment: Moment) -> _Plan:
    pace = await measure_pace(bench)
    start_s = time.monotonic()
    fill_tokens = pace.tokens_in(FILL_S, least=1, most=MOST_FILL_TOKENS)
    start_s = time.monotonic()
    failed = await fill(bench, MOST_PLACES, n_tokens=fill_tokens, seed=920)
    fill_s = time.monotonic() - start_s
    n_places = MOST_PLACES - sum(isinstance(error, Refused) for error in failed)
    lost = [error for error in failed if not isinstance(error, Refused)]
    if lost or n_places < 2:
        said = f"before anyone had left, {len(failed)} of {MOST_PLACES} requests at once failed"
        raise Differs(f"{said}: {(lost or failed)[0]}")
    n_others = N_RUNNING if moment is Moment.WAITING else 1
    if n_places <= n_others:
        raise DoesNotApply(f"the server takes {n_places} requests at once, so none has to wait")
    prompt_tokens = pace.n_prefill_tokens if moment is Moment.PREFILL else 8
    return _Plan(
        pace=pace,
        n_places=n_places,
        n_leaving=min(N_WAITING if moment is Moment.WAITING else N_RUNNING - 1, n_places - n_others),
        prompt_tokens=prompt_tokens,
        max_tokens=max(16, min(MOST_ABANDONED_TOKENS, context_of(bench) - prompt_tokens - 8)),
        fill_tokens=fill_tokens,
        limit_s=min(SETTLE_S + 4 * fill_s, bench.settings.request_s),
    )


def _prompts(bench: Bench, n_prompts: int, n_tokens: int, *, seed: int) -> list[Prompt]:
    return [short_prompt(bench.reference, seed=seed + index, n_tokens=n_tokens) for index in range(n_prompts)]


async def _until(moment: Moment, leaving: list[Ongoing], pace: Pace, *, stream: bool, limit_s: float) -> None:
    """Wait for the moment; a request that has failed by then is an error of the row."""
    for ongoing in leaving:
        await ongoing.reach(ongoing.sent, limit_s=limit_s)
    if moment is Moment.PREFILL:
        await asyncio.sleep(pace.prefill_s / 2)
    elif moment is Moment.WAITING:
        await asyncio.sleep(pace.first_s)
    elif moment is Moment.DECODE:
        if stream:
            await _first_begun(leaving, limit_s=limit_s)
        await asyncio.sleep(2 * pace.first_s + 5 * pace.token_s)
    for ongoing in leaving:
        if ongoing.task.done():
            ongoing.task.result()


async def _first_begun(leaving: list[Ongoing], *, limit_s: float) -> None:
    """Wait for one of them: a server may run fewer at once than there are."""
    reaching = [asyncio.ensure_future(ongoing.reach(ongoing.begun, limit_s=limit_s)) for ongoing in leaving]
    done, waiting = await asyncio.wait(reaching, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for task in done:
        task.result()


async def _require_capacity(bench: Bench, plan: _Plan, *, after: int) -> None:
    """Errors: Differs where not every place is free again within the plan's limit."""
    deadline_s = time.monotonic() + plan.limit_s
    said = f"after {after} clients had left"
    refused: list[BaseException] = []
    while time.monotonic() < deadline_s:
        filling = fill(bench, plan.n_places, n_tokens=plan.fill_tokens, seed=2000)
        try:
            failed = await asyncio.wait_for(filling, max(deadline_s - time.monotonic(), 0.01))
        except asyncio.TimeoutError:
            break
        if not failed:
            return await _require_idle(bench, deadline_s, said)
        lost = [error for error in failed if not isinstance(error, Refused)]
        if lost:
            raise lost[0]
        refused = failed
        await asyncio.sleep(POLL_S)
    if refused:
        taken = f"{len(refused)} of {plan.n_places} places were still taken {plan.limit_s:.1f} s later"
        raise Differs(f"{said}, {taken}: {refused[0]}")
    raise Differs(f"{said}, {plan.n_places} short requests were not answered within {plan.limit_s:.1f} s")


async def _require_idle(bench: Bench, deadline_s: float, said: str) -> None:
    """What the server itself publishes. Errors: Differs where it still says that it is working."""
    while busy := await requests_in_progress(bench.client):
        if time.monotonic() >= deadline_s:
            raise Differs(f"{said} and nobody is asking, the server says: {busy}")
        await asyncio.sleep(POLL_S)


def _said(plan: _Plan, n_seen: int) -> str:
    n_left = N_ROUNDS * plan.n_leaving
    said = f"{n_left} clients left; {plan.n_places} places free again within {plan.limit_s:.1f} s each time"
    if n_seen < N_ROUNDS:
        said += f"; in {N_ROUNDS - n_seen} of {N_ROUNDS} rounds the other stream had ended before"
    work_s = plan.n_leaving * plan.max_tokens * plan.pace.token_s / N_RUNNING
    if work_s < plan.limit_s:
        said += "; so fast a model shows only places that are never given back"
    return said


def _cases(inputs: Inputs) -> Iterable[Case]:
    flags = [("max_batch", N_RUNNING), ("queue_depth", N_WAITING)]
    launch = inputs.with_flags(*((name, n) for name, n in flags if name in inputs.flags))
    for moment in Moment:
        is_known = moment is not Moment.WAITING or "max_batch" in inputs.flags
        why_not = "" if is_known else "without a flag for max_batch nobody knows from when on a request waits"
        for stream in (True, False):
            name = f"{moment.value}, {'streamed' if stream else 'whole'}"
            yield Case(name, launch, _check_of(moment, stream=stream), why_not)


MATRIX = Matrix(
    name="abort",
    shows="a client that leaves frees its place; the others' text is unchanged; capacity returns",
    needs="nothing; sharper with --flag max_batch='... {n}' and queue_depth='... {n}'",
    cases=_cases,
    keeps_state=True,
)
