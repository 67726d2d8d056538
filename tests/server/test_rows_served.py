"""A family whose batched path is wrong in mlx_lm is served one row at a time, and the server says so."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import gemma2

from tests.support.server_process import serving
from tests.support.tiny_llama import make_tiny_llama

SAID = "served one row at a time: its batched path does not give the same text"


def make_tiny_gemma2(folder: Path) -> Path:
    """The tiny model's tokenizer, and random weights of a family that mlx_lm's batch caches get wrong."""
    make_tiny_llama(folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "query_pre_attn_scalar": 16}
    (folder / "config.json").write_text(json.dumps(config))
    model = gemma2.Model(gemma2.ModelArgs.from_dict(config))
    keys = iter(mx.random.split(mx.random.key(1), 64))
    weights = {
        name: mx.random.normal(array.shape, key=next(keys)) * 1.5 / array.shape[-1] ** 0.5 if array.ndim > 1 else array
        for name, array in tree_flatten(model.parameters())
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def test_it_is_said_at_start_and_in_slots_and_every_request_is_answered_as_alone(tmp_path: Path) -> None:
    bodies = [{"prompt": "Once upon" + " a" * n, "max_tokens": 20, "temperature": 0} for n in range(4)]
    with serving(make_tiny_gemma2(tmp_path)) as server, server.client() as client:
        server.wait_for_line(re.compile(re.escape(f"this model is {SAID}")))
        slots = client.get("/slots").json()
        assert (slots["served"], slots["n_rows"], slots["is_batching_exact"]) == (SAID, 1, False)

        def text_of(body: dict[str, Any]) -> str:
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            text: str = answer.json()["choices"][0]["text"]
            return text

        alone = [text_of(body) for body in bodies]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(text_of, bodies)) == alone
        assert len(set(alone)) > 1
