"""Prompts of an exact length in tokens, distinct by seed."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.tokenizer import Tokenizer, load_tokenizer

_WORDS = "the of and to in is that for it with as was on be at by this had not are but from or have an".split()


@lru_cache
def tokenizer_of(model: Path) -> Tokenizer:
    return load_tokenizer(read_checkpoint(model))


def prompt_of(model: Path, n_tokens: int, *, seed: int = 0) -> str:
    """A text that the model's tokenizer turns into exactly `n_tokens` ids."""
    tokenizer = tokenizer_of(model)
    draw = random.Random(seed * 10_007 + n_tokens)
    text = draw.choice(_WORDS)
    while len(tokenizer.encode(text)) < n_tokens:
        text += " " + draw.choice(_WORDS)
    while len(tokenizer.encode(text)) > n_tokens:
        text = text[:-1]
    while len(tokenizer.encode(text)) < n_tokens:
        text += draw.choice("!?;")
    assert len(tokenizer.encode(text)) == n_tokens, "no prompt of that length: choose another seed"
    return text
