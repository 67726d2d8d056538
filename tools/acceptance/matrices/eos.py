"""eos: a declared end token ends the text, wherever in the snapshot it is declared.

For each place a copy of the snapshot declares, beside its own, a token that the reference emits at step k of a
known prompt, and one likewise for the same prompt as a chat. The text must be the k tokens before it and the
finish reason `stop`, each time. What is expected is mlx_lm told of the token, so it holds even where mlx_lm
itself does not look at that place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..expected import Expected, Prompt
from ..reference import Reference
from ..server import Launch
from ..snapshot import PLACES, copy_snapshot, declare_eos
from ..verdict import Differs, DoesNotApply, require_text
from .matrix import Bench, Case, Check, Inputs, Matrix
from .prompts import as_chat, short_prompt

EARLIEST_STEP = 3
N_SEEDS = 8
TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
)
TOOL_QUESTION = "What is the weather in Paris? Use the tool."


def end_step(tokens: Sequence[int], others: Sequence[int]) -> int | None:
    """The first step, not too early, whose token comes neither earlier nor among `others`."""
    return next(
        (k for k in range(EARLIEST_STEP, len(tokens)) if tokens[k] not in tokens[:k] and tokens[k] not in others), None
    )


def _pick(inputs: Inputs) -> tuple[list[Prompt], list[int]] | None:
    """A prompt, the same as a chat where there is a template, and the token for each to end at."""
    reference, n_tokens = inputs.reference, inputs.settings.n_tokens
    for seed in range(700, 700 + N_SEEDS):
        plain = short_prompt(reference, seed=seed)
        prompts = [plain, as_chat(reference, plain)] if reference.facts().has_chat_template else [plain]
        texts = [_before_end(reference.generate(prompt, n_tokens)) for prompt in prompts]
        steps = [end_step(text, [t for other in texts if other is not text for t in other]) for text in texts]
        if all(step is not None for step in steps):
            return prompts, [text[step] for text, step in zip(texts, steps, strict=True) if step is not None]
    return None


def _before_end(answer: Expected) -> tuple[int, ...]:
    return answer.tokens[:-1] if answer.finish == "stop" else answer.tokens


def _check_of(prompts: Sequence[Prompt], ids: Sequence[int]) -> Check:
    async def check(bench: Bench) -> str:
        max_tokens, n_runs = bench.settings.n_tokens, bench.settings.n_runs
        expected = [bench.reference.generate(prompt, max_tokens, eos_ids=ids) for prompt in prompts]
        for run in range(n_runs):
            for prompt, text in zip(prompts, expected, strict=True):
                what = f"{prompt.kind}, run {run + 1} of {n_runs}"
                answer = await bench.client.ask(prompt, max_tokens, stream=run % 2 == 1)
                require_text(text, answer.text, answer.finish, what=what)
                n_before_end = len(text.tokens) - 1
                if answer.n_completion_tokens not in (None, n_before_end, n_before_end + 1):
                    raise Differs(f"{what}: usage says {answer.n_completion_tokens} tokens, not {n_before_end + 1}")
        ends = ", ".join(
            f"{prompt.kind} at step {len(text.tokens) - 1}"
            for prompt, text in zip(prompts, expected, strict=True)
            if text.finish == "stop"
        )
        return f"{n_runs} of {n_runs} runs end there: {ends}"

    return check


async def _tool_calls(bench: Bench) -> str:
    n_runs, max_tokens = bench.settings.n_runs, max(128, bench.settings.n_tokens)
    prompt = Prompt(text=TOOL_QUESTION, n_tokens=0, is_chat=True)
    expected = bench.reference.generate(prompt, max_tokens, tools=TOOLS)
    if expected.tool is None:
        raise DoesNotApply(f"the reference calls no tool: {expected.text[:80]!r}")
    for run in range(n_runs):
        answer = await bench.client.ask(prompt, max_tokens, stream=run % 2 == 1, tools=TOOLS)
        if (answer.finish, answer.tool) != ("tool_calls", expected.tool):
            said = f"finish {answer.finish!r} and the tool {answer.tool!r}"
            raise Differs(f"run {run + 1} of {n_runs}: {said}, not 'tool_calls' and {expected.tool!r}")
    return f"{n_runs} of {n_runs} runs call {expected.tool} and finish with tool_calls"


def _copy_case(inputs: Inputs, place: str, prompts: Sequence[Prompt], ids: Sequence[int]) -> Case:
    reference: Reference = inputs.reference
    folder = copy_snapshot(inputs.settings.model, inputs.scratch / f"eos-{place.replace(' ', '-')}")
    declared = list(ids) if place != "tokenizer" else list(ids[:1])
    declare_eos(folder, place, declared, reference.token_names(declared))
    tried = prompts if place != "tokenizer" else prompts[:1]
    return Case(f"declared in {place}", Launch(folder), _check_of(tried, declared))


def _cases(inputs: Inputs) -> Iterable[Case]:
    picked = _pick(inputs)
    for place in PLACES:
        if picked:
            yield _copy_case(inputs, place, *picked)
        else:
            why_not = "the reference emits no token that could be declared: its texts end or repeat too early"
            yield Case(f"declared in {place}", inputs.base, _check_of((), ()), why_not)
    has_tools = inputs.reference.facts().has_tools
    why_not = "" if has_tools else "the model's template has no tools that mlx_lm can read"
    yield Case("tool calls", inputs.base, _tool_calls, why_not)


MATRIX = Matrix(
    name="eos",
    shows="a declared end token ends the text, wherever it is declared; finish reasons stop and tool_calls",
    needs="a command with {model}: it is started with copies of the snapshot",
    cases=_cases,
)
