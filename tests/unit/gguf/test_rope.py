from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.rope_utils import Llama3RoPE

from mlxcel.errors import ModelError
from mlxcel.gguf.metadata import Metadata, Value
from mlxcel.gguf.rope import llama3_divisors, rope_config

PUBLISHED = [  # Llama 3.1 8B and 3.2 1B
    (128, 8.0),
    (64, 32.0),
]


def scaling(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def divisors(head_size: int, factor: float) -> np.ndarray[Any, Any]:
    return llama3_divisors(scaling(factor), 500000.0, head_size).astype(np.float32)


@pytest.mark.parametrize(("head_size", "factor"), PUBLISHED)
def test_llama3_scaling_is_found_again_from_its_tensor(head_size: int, factor: float) -> None:
    config = rope_config(Metadata({"llama.rope.freq_base": 500000.0}), divisors(head_size, factor))
    assert config["rope_scaling"] == scaling(factor)
    assert config["rope_theta"] == 500000.0


@pytest.mark.parametrize(("head_size", "factor"), PUBLISHED)
def test_the_divisors_are_those_that_mlx_lm_computes(head_size: int, factor: float) -> None:
    rope = Llama3RoPE(head_size, base=500000.0, scaling_config=scaling(factor))
    plain = 500000.0 ** (np.arange(0, head_size, 2) / head_size)
    assert np.allclose(np.array(rope._freqs.astype(mx.float32)), plain * divisors(head_size, factor), rtol=1e-4)


def test_divisors_of_one_are_no_scaling() -> None:
    assert "rope_scaling" not in rope_config(Metadata({}), np.ones(32, np.float32))


def test_linear_scaling_is_kept_and_none_is_none() -> None:
    linear: dict[str, Value] = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert rope_config(Metadata(linear), None)["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert rope_config(Metadata({"llama.rope.scale_linear": 2.0}), None)["rope_scaling"]["factor"] == 2.0
    off: dict[str, Value] = {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}
    assert "rope_scaling" not in rope_config(Metadata(off), None)


@pytest.mark.parametrize(
    ("metadata", "tensor", "reason"),
    [
        ({"llama.rope.scaling.type": "yarn"}, None, "'yarn'"),
        ({"llama.rope.scaling.factor": 2.0}, divisors(128, 8.0), "both rope_freqs.weight and a linear"),
        ({}, np.linspace(1, 3, 64, dtype=np.float32), "no Llama 3 scaling with known parameters"),
        ({}, np.zeros(64, np.float32), "not all positive"),
    ],
)
def test_what_config_json_cannot_represent_is_refused(metadata: Any, tensor: Any, reason: str) -> None:
    base = {"llama.rope.freq_base": 500000.0}
    with pytest.raises(ModelError) as refused:
        rope_config(Metadata(base | metadata), tensor)
    assert reason in refused.value.message
