"""Greedy text over HTTP is mlx_lm.generate's, whatever the length, the batch and the mode."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.prompts import prompt_of
from tests.support.reference import reference_texts
from tests.support.server_process import ServerProcess, serving

SWEEP = (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 267, 511, 513)
MAX_TOKENS = 24


@pytest.fixture(scope="module")
def batched(tiny_model: Path) -> Iterator[ServerProcess]:
    with serving(tiny_model) as server:
        yield server


def complete(url: str, prompt: str, *, max_tokens: int = MAX_TOKENS, **fields: Any) -> str:
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **fields}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


def test_every_length_of_the_sweep_gives_the_reference_text(batched: ServerProcess, tiny_model: Path) -> None:
    prompts = [prompt_of(tiny_model, n) for n in SWEEP]
    expected = reference_texts(tiny_model, prompts, MAX_TOKENS)
    served = [complete(batched.url, prompt) for prompt in prompts]
    differing = [n for n, ours, theirs in zip(SWEEP, served, expected, strict=True) if ours != theirs]
    assert differing == []
    assert len(set(served)) == len(SWEEP), "the texts do not depend on the prompts, so equality shows nothing"


@pytest.mark.parametrize("chunk", ["0", "7", "64"])
def test_chunked_prefill_gives_the_reference_text(tiny_model: Path, chunk: str) -> None:
    prompts = [prompt_of(tiny_model, n, seed=3) for n in (33, 267)]
    with serving(tiny_model, "--prefill-chunk-size", chunk) as server:
        served = [complete(server.url, prompt) for prompt in prompts]
    assert served == reference_texts(tiny_model, prompts, MAX_TOKENS)


def test_no_batch_answers_33_200_and_267_with_the_reference_text_and_four_at_once(tiny_model: Path) -> None:
    prompts = [prompt_of(tiny_model, n) for n in (33, 200, 267, 64)]
    with serving(tiny_model, "--no-batch") as server:
        alone = [complete(server.url, prompt) for prompt in prompts]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda prompt: complete(server.url, prompt), prompts))
    assert alone == reference_texts(tiny_model, prompts, MAX_TOKENS)
    assert together == alone


def test_sixteen_distinct_prompts_at_once_give_what_each_gives_alone(batched: ServerProcess, tiny_model: Path) -> None:
    prompts = [prompt_of(tiny_model, 5 + 17 * i, seed=i) for i in range(16)]
    alone = [complete(batched.url, prompt) for prompt in prompts]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda prompt: complete(batched.url, prompt), prompts))
    assert together == alone
    assert len(set(alone)) == 16


def test_a_seed_gives_the_same_text_alone_and_among_other_rows(batched: ServerProcess, tiny_model: Path) -> None:
    prompt = prompt_of(tiny_model, 40)
    fields: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "seed": 1234}
    alone = complete(batched.url, prompt, **fields)
    with ThreadPoolExecutor(8) as pool:
        others = [
            pool.submit(complete, batched.url, prompt_of(tiny_model, 30 + i), temperature=0.8, seed=i, top_k=i)
            for i in range(7)
        ]
        among = pool.submit(complete, batched.url, prompt, **fields).result()
        for other in others:
            other.result()
    assert among == alone
    assert complete(batched.url, prompt, **{**fields, "seed": 1235}) != alone


def test_a_chat_is_the_completion_of_its_template(batched: ServerProcess, tiny_model: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}]
    templated = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    templated += "<|im_start|>assistant\n"
    body = {"messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0}
    answer = httpx.post(f"{batched.url}/v1/chat/completions", json=body, timeout=60).json()
    expected = reference_texts(tiny_model, [templated], MAX_TOKENS)
    assert [answer["choices"][0]["message"]["content"]] == expected
