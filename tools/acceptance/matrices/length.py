"""length: greedy text is mlx_lm's at each prompt length, cold and warm, as a completion and as a chat.

Prompts are of exactly that many tokens, the template included, and share no beginning. Cold is the first time
a prompt is sent, whole; warm is the second time, streamed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..server import Launch
from ..verdict import DoesNotApply, require_text
from .matrix import Bench, Case, Check, Inputs, Matrix


def length_case(n_tokens: int, launch: Launch) -> Case:
    return Case(f"{n_tokens} token{'s' * (n_tokens > 1)}", launch, _check_of(n_tokens))


def _check_of(n_tokens: int) -> Check:
    async def check(bench: Bench) -> str:
        kinds = [False, True] if bench.reference.facts().has_chat_template else [False]
        prompts = [bench.reference.prompt(n_tokens, is_chat=is_chat) for is_chat in kinds]
        found = [prompt for prompt in prompts if prompt]
        if not found:
            raise DoesNotApply(f"no text of this model's tokenizer is {n_tokens} tokens long")
        max_tokens = bench.settings.n_tokens
        expected = [bench.reference.generate(prompt, max_tokens) for prompt in found]
        for prompt, text in zip(found, expected, strict=True):
            for name, stream in (("cold", False), ("warm, streamed", True)):
                answer = await bench.client.ask(prompt, max_tokens, stream=stream)
                require_text(text, answer.text, answer.finish, what=f"{prompt.kind}, {name}")
        return f"{' and '.join(prompt.kind for prompt in found)}, cold and warm"

    return check


def _cases(inputs: Inputs) -> Iterable[Case]:
    return [length_case(n_tokens, inputs.base) for n_tokens in inputs.settings.lengths]


MATRIX = Matrix(
    name="length",
    shows="greedy text is mlx_lm's at each prompt length, cold and warm, completions and chat",
    needs="nothing",
    cases=_cases,
)
