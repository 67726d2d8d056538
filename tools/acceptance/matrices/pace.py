"""How fast this server is on this machine, so that a check's times mean the same on a phone and on a rack."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from ..expected import Prompt
from .matrix import Bench
from .prompts import short_prompt

N_TIMED_TOKENS = 16
SHORTEST_PREFILL_TOKENS, LONGEST_PREFILL_TOKENS = 33, 600
PREFILL_S = 1.5
DEFAULT_CONTEXT_TOKENS = 2048


class Pace(NamedTuple):
    """Units: seconds to the first token of a short prompt, seconds a token, and seconds to prefill
    `n_prefill_tokens`, a prompt long enough to be left in the middle of."""

    first_s: float
    token_s: float
    n_prefill_tokens: int
    prefill_s: float

    def tokens_in(self, duration_s: float, *, least: int, most: int) -> int:
        """How many tokens take about so long: `least`, doubled, so that the reference is asked for few sizes."""
        return doubled(duration_s / self.token_s, least=least, most=most)


def doubled(wanted: float, *, least: int, most: int) -> int:
    """The largest of least, 2 least, 4 least, ... that neither `wanted` nor `most` is below; `least` at least."""
    found = least
    while 2 * found <= min(wanted, most):
        found *= 2
    return found


def context_of(bench: Bench) -> int:
    return bench.reference.facts().context_tokens or DEFAULT_CONTEXT_TOKENS


async def measure_pace(bench: Bench) -> Pace:
    """Ask an idle server a few times."""
    short = short_prompt(bench.reference, seed=900)
    await bench.client.ask(short, 2)
    start_s = time.monotonic()
    answer = await bench.client.ask(short_prompt(bench.reference, seed=901), N_TIMED_TOKENS, stream=True)
    first_s = (answer.first_s or answer.end_s) - start_s
    token_s = max(answer.end_s - (answer.first_s or start_s), 1e-4) / (N_TIMED_TOKENS - 1)
    probe = short_prompt(bench.reference, seed=902, n_tokens=SHORTEST_PREFILL_TOKENS)
    probe_s = await _timed(bench, probe)
    most = min(LONGEST_PREFILL_TOKENS, context_of(bench) // 2)
    wanted = SHORTEST_PREFILL_TOKENS * PREFILL_S / probe_s
    n_prefill = doubled(wanted, least=SHORTEST_PREFILL_TOKENS, most=most)
    prefill_s = await _timed(bench, short_prompt(bench.reference, seed=903, n_tokens=n_prefill))
    return Pace(first_s, token_s, n_prefill, prefill_s)


async def _timed(bench: Bench, prompt: Prompt) -> float:
    start_s = time.monotonic()
    await bench.client.ask(prompt, 1)
    return max(time.monotonic() - start_s, 1e-4)


async def fill(bench: Bench, n_requests: int, *, n_tokens: int, seed: int) -> list[BaseException]:
    """Ask for short answers, so many at once; the failures. n_tokens: enough that they are there together."""
    prompts = [short_prompt(bench.reference, seed=seed + index) for index in range(n_requests)]
    asked = [bench.client.begin(prompt, n_tokens, stream=False) for prompt in prompts]
    answers = await asyncio.gather(*(ongoing.task for ongoing in asked), return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, BaseException)]
