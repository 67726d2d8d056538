"""Prompts that matrices share: distinct ones of unequal length."""

from __future__ import annotations

from ..expected import Prompt
from ..reference import Reference
from ..verdict import DoesNotApply

SHORTEST_TOKENS, STEP_TOKENS = 5, 7


def short_prompt(reference: Reference, *, seed: int, n_tokens: int = 8) -> Prompt:
    """Errors: DoesNotApply where the tokenizer has no text of that length, or one token more."""
    found = reference.prompt(n_tokens, seed=seed) or reference.prompt(n_tokens + 1, seed=seed)
    if found is None:
        raise DoesNotApply(f"no text of this model's tokenizer is {n_tokens} tokens long")
    return found


def distinct_prompts(reference: Reference, n_prompts: int, *, seed: int) -> list[Prompt]:
    """Prompts of unequal lengths, each with a beginning of its own."""
    return [
        short_prompt(reference, seed=seed + index, n_tokens=SHORTEST_TOKENS + STEP_TOKENS * index)
        for index in range(n_prompts)
    ]


def as_chat(reference: Reference, prompt: Prompt) -> Prompt:
    """The same text as the user's message."""
    chat = Prompt(text=prompt.text, n_tokens=0, is_chat=True)
    return Prompt(text=prompt.text, n_tokens=len(reference.ids(chat)), is_chat=True)
