"""batch: distinct prompts at once give what each gives alone.

At once comes first, so that it is cold; alone is the same server later. A server that is wrong in both is found
by the length matrix. Texts that do not depend on their prompts would show nothing, and fail the row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from ..client import Answer
from ..expected import Expected, Prompt
from ..verdict import Differs, DoesNotApply, require_text
from .matrix import Bench, Case, Check, Inputs, Matrix
from .prompts import as_chat, distinct_prompts


def _check_of(
    n_prompts: int, *, seed: int, stream: bool = False, is_chat: bool = False, is_uneven: bool = False
) -> Check:
    """is_uneven: answers of unequal length, so that rows leave the batch while others stay and join."""

    async def check(bench: Bench) -> str:
        if is_chat and not bench.reference.facts().has_chat_template:
            raise DoesNotApply("the model has no chat template")
        prompts = distinct_prompts(bench.reference, n_prompts, seed=seed)
        if is_chat:
            prompts = [as_chat(bench.reference, prompt) for prompt in prompts]
        limits = [bench.settings.n_tokens] * n_prompts
        if is_uneven:
            limits = [max(1, limit * (1 + index % 3) // 3) for index, limit in enumerate(limits)]
        together = await _ask_together(bench, prompts, limits, stream=stream, in_waves=is_uneven)
        alone = [await bench.client.ask(p, limit, stream=stream) for p, limit in zip(prompts, limits, strict=True)]
        if len({answer.text for answer in alone}) < 2:
            raise Differs(f"alone, all {n_prompts} prompts give the same text, so equality would show nothing")
        for index, (own, other) in enumerate(zip(alone, together, strict=True)):
            expected = _as_expected(bench, prompts[index], limits[index], own)
            what = f"prompt {index + 1} of {n_prompts} ({prompts[index].n_tokens} tokens), at once against alone"
            require_text(expected, other.text, other.finish, what=what)
        return f"{n_prompts} texts, each as alone" + (
            f"; {_most_at_once(together)} in progress at once" if stream else ""
        )

    return check


async def _ask_together(
    bench: Bench, prompts: Sequence[Prompt], limits: Sequence[int], *, stream: bool, in_waves: bool
) -> list[Answer]:
    asked = []
    for index, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        asked.append(bench.client.begin(prompt, limit, stream=stream))
        if in_waves and index % 3 == 2:
            await asked[-1].reach(asked[-1].begun, limit_s=bench.settings.request_s)
    answers = await asyncio.gather(*(ongoing.task for ongoing in asked), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, Answer)]


def _as_expected(bench: Bench, prompt: Prompt, limit: int, own: Answer) -> Expected:
    """What the prompt gave alone; with the reference's tokens where it is the reference's text."""
    reference = bench.reference.generate(prompt, limit)
    if reference.text == own.text and reference.finish == own.finish:
        return reference
    return Expected(tokens=(), pieces=(own.text,), finish=own.finish or "", n_prompt_tokens=prompt.n_tokens)


def _most_at_once(answers: Sequence[Answer]) -> int:
    """The largest number of streams that had begun and not ended at one time."""
    begun = [(answer.first_s or answer.end_s, answer.end_s) for answer in answers]
    return max(sum(first <= at < end for first, end in begun) for at, _ in begun)


def _cases(inputs: Inputs) -> Iterable[Case]:
    n = inputs.settings.n_batch
    return [
        Case("2 at once", inputs.base, _check_of(2, seed=200)),
        Case(f"{n} at once", inputs.base, _check_of(n, seed=300)),
        Case(f"{n} at once, streamed", inputs.base, _check_of(n, seed=400, stream=True)),
        Case(f"{n} chats at once", inputs.base, _check_of(n, seed=500, is_chat=True)),
        Case(f"{n} joining and leaving", inputs.base, _check_of(n, seed=600, stream=True, is_uneven=True)),
    ]


MATRIX = Matrix(
    name="batch",
    shows="distinct prompts at once give what each gives alone",
    needs="nothing",
    cases=_cases,
)
