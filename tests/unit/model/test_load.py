from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from mlxcel.errors import ModelError
from mlxcel.kv.size import BLOCK_TOKENS
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.load import load_model
from tests.support.tiny_llama import HEAD_SIZE, N_KV_HEADS, make_tiny_llama


def test_what_the_books_need_is_measured_on_the_model_itself(tiny_model: Path) -> None:
    model = load_model(read_checkpoint(tiny_model))
    n_layers, n_bytes = 2, 4
    assert model.n_vocabulary == 1024
    assert model.weights_bytes == pytest.approx((tiny_model / "model.safetensors").stat().st_size, rel=0.01)
    assert model.kv_size.bytes_per_token == 2 * n_layers * N_KV_HEADS * HEAD_SIZE * n_bytes
    assert (model.kv_size.fixed_bytes, model.kv_size.window_tokens) == (0, None)
    for n_tokens in (1, BLOCK_TOKENS, BLOCK_TOKENS + 1):
        caches = model.make_caches()
        logits = model(mx.array([[5] * n_tokens]), caches)
        mx.eval(logits)
        assert logits.shape == (1, 1024)
        assert sum(cache.nbytes for cache in caches) == model.kv_size.bytes_for(n_tokens)


def test_a_folder_that_mlx_lm_cannot_load_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for changed in ({"model_type": "no-such-model"}, {"hidden_size": 32}, {"num_hidden_layers": "two"}):
        (folder / "config.json").write_text(json.dumps(config | changed))
        with pytest.raises(ModelError) as refusal:
            load_model(read_checkpoint(folder))
        message = refusal.value.message
        assert str(folder) in message and "nothing is being served. Check" in message and "\n" not in message
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(ModelError):
        load_model(read_checkpoint(folder))
