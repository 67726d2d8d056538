from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from mlxcel.sampling.logprobs import measure_logprobs

V = 97


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_logprobs_are_the_log_softmax_sorted_and_never_positive(dtype: mx.Dtype) -> None:
    draw = np.random.default_rng(3)
    logits = mx.array(draw.standard_normal((4, V)).astype(np.float32) * 6).astype(dtype)
    chosen = mx.array([5, 6, 7, 8])
    read = measure_logprobs(logits, chosen, [(0, 20), (2, 3), (3, 0)]).read()
    assert set(read) == {0, 2, 3}
    exact = np.array(logits.astype(mx.float32), np.float64)
    exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
    for row, n_top in ((0, 20), (2, 3), (3, 0)):
        assert read[row].chosen == pytest.approx(exact[row, 5 + row], abs=1e-4)
        expected = sorted(((i, value) for i, value in enumerate(exact[row])), key=lambda pair: (-pair[1], pair[0]))
        assert [token for token, _ in read[row].top] == [token for token, _ in expected[:n_top]]
        values = [value for _, value in read[row].top]
        assert values == pytest.approx([value for _, value in expected[:n_top]], abs=1e-4)
        assert values == sorted(values, reverse=True) and all(value <= 0 for value in [*values, read[row].chosen])


def test_a_certain_token_has_logprob_zero_and_a_small_vocabulary_is_reported_whole() -> None:
    logits = mx.array([[0.0, 1e4, 0.0, 0.0, 0.0]])
    read = measure_logprobs(logits, mx.array([1]), [(0, 20)]).read()[0]
    assert read.chosen == 0 and [token for token, _ in read.top] == [1, 0, 2, 3, 4]
