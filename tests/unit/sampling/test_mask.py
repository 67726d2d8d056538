from __future__ import annotations

import numpy as np
import pytest

from mlxcel.core import SamplingParams
from mlxcel.sampling.mask import RowMasks, Words, packed
from tests.support.rows import row_of

FREE = SamplingParams(seed=0)
LONG = SamplingParams(seed=0, min_tokens=3)


@pytest.mark.parametrize("n_vocabulary", [1, 31, 32, 33, 64, 97])
def test_a_packed_mask_allows_the_tokens_that_were_packed(n_vocabulary: int) -> None:
    tokens = set(range(0, n_vocabulary, 3)) | {n_vocabulary - 1}
    masks = RowMasks([row_of(FREE), row_of(FREE)], n_vocabulary)
    allowed = masks([0, 0], [packed(tokens, n_vocabulary), None])
    assert allowed is not None and allowed.shape == (2, n_vocabulary)
    assert set(np.flatnonzero(np.array(allowed)[0]).tolist()) == tokens
    assert np.array(allowed)[1].all()


def test_nothing_is_masked_where_nothing_need_be() -> None:
    assert RowMasks([row_of(LONG, end_ids=[2])], 40)([3], [None]) is None
    assert RowMasks([row_of(FREE)], 40)([0], None) is None


def allowed_to(end_ids: list[int], mask: Words | None, *, position: int, n_vocabulary: int = 40) -> set[int]:
    allowed = RowMasks([row_of(LONG, end_ids=end_ids)], n_vocabulary)([position], [mask])
    assert allowed is not None
    return set(np.flatnonzero(np.array(allowed)[0]).tolist())


def test_end_tokens_wait_for_min_tokens_and_one_outside_the_vocabulary_is_no_matter() -> None:
    assert allowed_to([2, 39, 1000], None, position=2) == set(range(40)) - {2, 39}
    assert allowed_to([2, 39], packed({2, 5, 39}, 40), position=2) == {5}
    assert allowed_to([2, 39], packed({2, 5, 39}, 40), position=3) == {2, 5, 39}


def test_an_answer_that_its_constraint_ends_may_be_shorter_than_min_tokens() -> None:
    assert allowed_to([2, 39], packed({2}, 40), position=0) == {2}


def test_a_mask_may_be_shorter_or_longer_than_the_vocabulary() -> None:
    assert allowed_to([], packed({1, 2}, 10), position=5) == {1, 2}
    assert allowed_to([], np.full(9, 0xFFFFFFFF, np.uint32), position=5, n_vocabulary=33) == set(range(33))


def test_a_mask_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="allows no token"):
        allowed_to([], packed({100}, 128), position=0)
