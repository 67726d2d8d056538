from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.gguf.blocks import BITS, GROUP_SIZE, pack
from mlxcel.gguf.dequantize import FORMULAS, dequantize
from mlxcel.gguf.plan import unpermute
from tests.support.gguf_blocks import BLOCK, decode, random_blocks
from tests.support.gguf_llama import permute


@pytest.mark.parametrize("type", BITS, ids=lambda type: type.name)
def test_packed_blocks_are_the_same_numbers_bit_for_bit(type: object) -> None:
    chosen = next(known for known in BITS if known is type)
    data = random_blocks(chosen.name, n_blocks=5 * 6)
    packed = pack(np.frombuffer(data, np.uint8).reshape(5, -1), chosen)
    assert packed.scales.dtype == packed.biases.dtype == np.float16
    values = mx.dequantize(
        mx.array(packed.weight),
        mx.array(packed.scales.astype(np.float32)),
        mx.array(packed.biases.astype(np.float32)),
        group_size=GROUP_SIZE,
        bits=BITS[chosen],
    )
    assert np.array_equal(np.array(values), decode(data, chosen.name).reshape(5, -1))


@pytest.mark.parametrize("type", FORMULAS, ids=lambda type: type.name)
def test_dequantized_blocks_are_the_numbers_of_the_format(type: object) -> None:
    chosen = next(known for known in FORMULAS if known is type)
    n_elements, _ = BLOCK[chosen.name]
    if chosen.name == "BF16":
        data = np.arange(0x3F00, 0x4100, dtype="<u2").tobytes()
    else:
        data = random_blocks(chosen.name, n_blocks=4 * 3)
    values = dequantize(np.frombuffer(data, np.uint8).reshape(4, -1), chosen)
    assert values.shape[1] % n_elements == 0
    assert np.array_equal(values, decode(data, chosen.name).reshape(4, -1))


@pytest.mark.parametrize(("n_heads", "head_size"), [(1, 2), (3, 4), (2, 64)])
def test_unpermuting_undoes_the_permutation_of_every_row(n_heads: int, head_size: int) -> None:
    rows = np.arange(n_heads * head_size * 3, dtype=np.float32).reshape(-1, 3)
    assert np.array_equal(unpermute(permute(rows, n_heads), head_size), rows)
    if head_size > 2:
        assert not np.array_equal(permute(rows, n_heads), rows)
