from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load

from tests.support.tiny_llama import make_tiny_llama

PROMPTS = (
    "Hello",
    "Hello!",
    "What is the capital of France?",
    "été 日本語 \U0001f600",
    " ".join(map(str, range(90))),
)


def greedy(folder: Path, prompt: str, n_tokens: int = 32) -> tuple[list[int], float]:
    """Token ids, and the smallest lead of a winning logit over the next one in standard deviations."""
    model, tokenizer = load(str(folder))
    cache, tokens, lead = make_prompt_cache(model), tokenizer.encode(prompt), float("inf")
    output: list[int] = []
    for _ in range(n_tokens):
        logits = np.array(model(mx.array([tokens]), cache=cache)[0, -1])
        first, second = np.sort(logits)[[-1, -2]]
        lead = min(lead, float((first - second) / logits.std()))
        tokens = [int(logits.argmax())]
        output += tokens
    return output, lead


@pytest.mark.parametrize("is_tied", [False, True])
def test_greedy_text_is_diverse_depends_on_the_prompt_and_is_never_a_near_tie(tmp_path: Path, is_tied: bool) -> None:
    folder = make_tiny_llama(tmp_path, is_tied=is_tied)
    runs = [greedy(folder, prompt) for prompt in PROMPTS]
    assert len({tuple(tokens) for tokens, _ in runs}) == len(PROMPTS)
    assert all(len(set(tokens)) >= 20 for tokens, _ in runs)
    assert all(lead > 1e-4 for _, lead in runs)


def test_equal_arguments_give_equal_files(tmp_path: Path, tiny_model: Path) -> None:
    again = make_tiny_llama(tmp_path)
    assert sorted(path.name for path in again.iterdir()) == sorted(path.name for path in tiny_model.iterdir())
    for path in again.iterdir():
        assert path.read_bytes() == (tiny_model / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    "text", ["plain words", "  two  spaces\n\ttab\r\n", "été 日本語 \U0001f469‍\U0001f680 \x00\x7f", ""]
)
def test_every_text_survives_the_tokenizer(tiny_model: Path, text: str) -> None:
    _, tokenizer = load(str(tiny_model))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bos_comes_from_the_tokenizer_or_the_template_as_asked(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path, adds_bos=True, templates_bos=True, eos_token_ids=[7, 9])
    _, tokenizer = load(str(folder))
    assert tokenizer.encode("Hello")[0] == tokenizer.bos_token_id == 3
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "Hello"}], add_generation_prompt=True)
    assert rendered[:2] == [3, 1]
    assert {7, 9} <= set(tokenizer.eos_token_ids)
