"""queue: exactly as many requests wait as the depth says; more are refused as promised, and none is forgotten.

All running places are held by long streams. Then depth + 2 short requests come at once: exactly two must be
refused, at once, with 503 or 429, OpenAI's error envelope and Retry-After. Everybody else gets the reference's
text, those who held the places included.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from typing import Any

from ..client import Answer, Ongoing
from ..expected import Expected, Prompt
from ..server import Launch
from ..verdict import Differs, DoesNotApply, Refused, require_text
from .matrix import Bench, Case, Check, Inputs, Matrix
from .pace import context_of, measure_pace
from .prompts import short_prompt

N_RUNNING = 2
N_TOO_MANY = 2
N_UNBOUNDED = 24
HOLD_S = 1.0
MOST_HELD_TOKENS = 1024
N_WAITING_TOKENS = 4


def _check_of(depth: int | None, n_running: int) -> Check:
    """depth: how many may wait; None: any number."""

    async def check(bench: Bench) -> str:
        pace = await measure_pace(bench)
        # A holder must outlast the beginning of the others, each of which may take as long as all together alone.
        hold_s = 2 * (HOLD_S + 3 * n_running * pace.first_s)
        most = min(MOST_HELD_TOKENS, context_of(bench) - 64)
        n_held = pace.tokens_in(hold_s, least=16, most=most)
        for n_tokens in dict.fromkeys((n_held, min(4 * n_held, most))):
            said = await _overfill(bench, depth, n_running, n_tokens, refusal_s=1 + 5 * pace.first_s)
            if said:
                return said
            await bench.client.leave_all()
        raise DoesNotApply(f"so fast a server ends {n_held} tokens before it could be seen to refuse anybody")

    return check


async def _overfill(bench: Bench, depth: int | None, n_running: int, n_held: int, *, refusal_s: float) -> str:
    """Hold every running place, ask for too many, and require what was promised; "" where a holder ended too early.

    refusal_s: a refusal must come within so long.
    """
    n_waiting = N_UNBOUNDED if depth is None else depth + N_TOO_MANY
    held = [short_prompt(bench.reference, seed=3000 + index) for index in range(n_running)]
    waiting = [short_prompt(bench.reference, seed=3100 + index) for index in range(n_waiting)]
    expected_held = [bench.reference.generate(prompt, n_held) for prompt in held]
    expected = [bench.reference.generate(prompt, N_WAITING_TOKENS) for prompt in waiting]
    holders = [bench.client.begin(prompt, n_held, stream=True) for prompt in held]
    for ongoing in holders:
        await ongoing.reach(ongoing.begun, limit_s=bench.settings.request_s)
    asked = [bench.client.begin(prompt, N_WAITING_TOKENS, stream=False) for prompt in waiting]
    refusals = await _refusals(asked, 0 if depth is None else N_TOO_MANY, holders, refusal_s)
    if any(ongoing.task.done() for ongoing in holders) and len(refusals) < N_TOO_MANY:
        return ""
    _require_texts(expected_held, held, await _all(holders), what="a running request")
    answers = await _all(asked)
    _require_count(refusals, answers, depth)
    _require_texts(expected, waiting, answers, what="a waiting request")
    return _said(depth, n_running, n_waiting - len(refusals), len(refusals))


async def _refusals(asked: list[Ongoing], n_wanted: int, holders: list[Ongoing], limit_s: float) -> list[Refused]:
    """Those that come within the limit and while every running place is held."""
    tasks = {ongoing.task for ongoing in asked}
    holding = {ongoing.task for ongoing in holders}
    deadline_s = time.monotonic() + limit_s
    while not any(task.done() for task in holding) and (left_s := deadline_s - time.monotonic()) > 0:
        if sum(task.done() for task in tasks) >= n_wanted:
            break
        open_ = {task for task in tasks if not task.done()}
        await asyncio.wait(open_ | holding, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    found = []
    for task in tasks:
        error = task.exception() if task.done() and not task.cancelled() else None
        if isinstance(error, Refused):
            _require_shape(error)
            found.append(error)
    return found


def _require_shape(refusal: Refused) -> None:
    """Errors: Differs where a client could not tell that it should try again, and when."""
    if refusal.status not in (503, 429):
        raise Differs(f"refused with {refusal.status}, not with 503 or 429: {refusal.body[:200]}")
    try:
        error: Any = json.loads(refusal.body)["error"]
        is_envelope = isinstance(error["message"], str) and bool(error["message"]) and isinstance(error["type"], str)
    except (ValueError, KeyError, TypeError):
        is_envelope = False
    if not is_envelope:
        raise Differs(f"a refusal without OpenAI's envelope (error.message, error.type): {refusal.body[:200]}")
    if not refusal.headers.get("retry-after", "").isdigit():
        raise Differs(f"a refusal without Retry-After in seconds: {refusal.headers.get('retry-after')!r}")


async def _all(asked: list[Ongoing]) -> list[Answer | BaseException]:
    return await asyncio.gather(*(ongoing.task for ongoing in asked), return_exceptions=True)


def _require_count(early: list[Refused], answers: list[Answer | BaseException], depth: int | None) -> None:
    n_refused = sum(isinstance(answer, Refused) for answer in answers)
    n_wanted = 0 if depth is None else N_TOO_MANY
    if n_refused != n_wanted:
        may = "any number" if depth is None else str(depth)
        raise Differs(f"{n_refused} of {len(answers)} waiting requests were refused, not {n_wanted}: {may} may wait")
    if len(early) != n_wanted:
        raise Differs(f"only {len(early)} of {n_wanted} refusals came while the running places were held")


def _require_texts(
    expected: list[Expected], prompts: list[Prompt], answers: list[Answer | BaseException], *, what: str
) -> None:
    for index, (text, answer) in enumerate(zip(expected, answers, strict=True)):
        if isinstance(answer, Refused) and what == "a waiting request":
            continue
        which = f"{what}, {index + 1} of {len(prompts)}"
        if isinstance(answer, Differs):
            raise Differs(f"{which}, was accepted and then lost: {answer}")
        if isinstance(answer, BaseException):
            raise answer
        require_text(text, answer.text, answer.finish, what=which)


def _said(depth: int | None, n_running: int, n_accepted: int, n_refused: int) -> str:
    if depth is None:
        return f"{n_running} running, {n_accepted} waiting, none refused, all answered"
    return f"{n_running} running, {n_accepted} waiting, {n_refused} refused as promised, all others answered"


def _idle_check(n_requests: int) -> Check:
    async def check(bench: Bench) -> str:
        prompts = [short_prompt(bench.reference, seed=3200 + index) for index in range(n_requests)]
        expected = [bench.reference.generate(prompt, N_WAITING_TOKENS) for prompt in prompts]
        start_s = time.monotonic()
        for prompt, text in zip(prompts, expected, strict=True):
            answer = await bench.client.ask(prompt, N_WAITING_TOKENS)
            require_text(text, answer.text, answer.finish, what="one request at a time")
        return f"{n_requests} one after another in {time.monotonic() - start_s:.1f} s"

    return check


def _cases(inputs: Inputs) -> Iterable[Case]:
    running: tuple[str, int | None] | None = None
    if "max_batch" in inputs.flags:
        running = ("max_batch", N_RUNNING)
    elif "no_batch" in inputs.flags:
        running = ("no_batch", None)
    n_running = N_RUNNING if running and running[0] == "max_batch" else 1
    unknown = "" if running else "without a flag for max_batch or no_batch nobody knows from when on a request waits"

    def launch(*flag: tuple[str, int | None]) -> Launch:
        return inputs.with_flags(*([running] if running else []), *flag)

    yield Case("depth 0, idle", launch(("queue_depth", 0)), _idle_check(3))
    for depth in dict.fromkeys((0, 1, inputs.settings.n_queue)):
        yield Case(f"depth {depth}", launch(("queue_depth", depth)), _check_of(depth, n_running), unknown)
    yield Case("unbounded", launch(("queue_unbounded", None)), _check_of(None, n_running), unknown)


MATRIX = Matrix(
    name="queue",
    shows="depth 0, 1, N and unbounded hold exactly that many; refusals have the promised shape; none is forgotten",
    needs="--flag queue_depth='... {n}' beside max_batch='... {n}' or no_batch=..., queue_unbounded=...",
    cases=_cases,
    keeps_state=True,
)
