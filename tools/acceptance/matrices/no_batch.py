"""no-batch: the same with one sequence at a time, and four requests at once wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..verdict import require_text
from .length import length_case
from .matrix import Bench, Case, Inputs, Matrix
from .prompts import distinct_prompts

N_AT_ONCE = 4


async def _four_at_once(bench: Bench) -> str:
    max_tokens = bench.settings.n_tokens
    prompts = distinct_prompts(bench.reference, N_AT_ONCE, seed=100)
    expected = [bench.reference.generate(prompt, max_tokens) for prompt in prompts]
    asked = [bench.client.begin(prompt, max_tokens, stream=False) for prompt in prompts]
    answers = await asyncio.gather(*(ongoing.task for ongoing in asked), return_exceptions=True)
    for index, (text, answer) in enumerate(zip(expected, answers, strict=True)):
        if isinstance(answer, BaseException):
            raise answer
        require_text(text, answer.text, answer.finish, what=f"request {index + 1} of {N_AT_ONCE}")
    return f"{N_AT_ONCE} texts, each the reference's"


def _cases(inputs: Inputs) -> Iterable[Case]:
    launch = inputs.with_flags(("no_batch", None))
    lengths = [length_case(n_tokens, launch) for n_tokens in inputs.settings.no_batch_lengths]
    return [*lengths, Case(f"{N_AT_ONCE} at once", launch, _four_at_once)]


MATRIX = Matrix(
    name="no-batch",
    shows="the same with one sequence at a time, and four requests at once",
    needs="--flag no_batch=...",
    cases=_cases,
)
