"""SmolLM2-135M-Instruct as `make setup-model` imports it. It runs slowly on a CPU: one short answer is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlx_lm import generate
from mlx_lm.utils import load, load_tokenizer

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def tokenizer(real_model: Path) -> Any:
    return load_tokenizer(real_model)


def test_it_knows_the_capital_of_france(real_model: Path) -> None:
    model, tokenizer = load(str(real_model))
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True)
    assert generate(model, tokenizer, prompt=prompt, max_tokens=10) == "The capital of France is Paris."


# Ids that the model's own tokenizer gives: words, digits one by one, accents, runs of spaces, no BOS.
KNOWN = {
    "Hello, we can use": [19556, 28, 392, 416, 722],
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
}


@pytest.mark.parametrize("text", KNOWN)
def test_its_tokenizer_gives_the_ids_of_the_original(tokenizer: Any, text: str) -> None:
    assert tokenizer.encode(text) == KNOWN[text]


def test_special_tokens_are_atomic_and_text_round_trips(tokenizer: Any) -> None:
    assert tokenizer.encode("<|im_start|>user\n")[0] == 1
    assert tokenizer.encode("a<|im_end|>b")[1] == tokenizer.eos_token_id == 2
    for text in ("it's 12,345.6 км\r\n\t", "日本語 \U0001f469‍\U0001f680", "    def f(x):\n        return x ** 2\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
