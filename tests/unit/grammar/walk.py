"""A row that picks any token its constraint allows: what the most careless model would say."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from mlxcel.core import Constraint


def allowed_ids(constraint: Constraint) -> list[int]:
    mask = constraint.mask()
    assert mask is not None
    assert mask.dtype == np.uint32
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits)]


def walk(
    constraint: Constraint, *, eos_ids: Iterable[int], seed: int, most_tokens: int = 2000
) -> tuple[list[int], bool]:
    """The tokens of one random answer, and whether it came to an end before `most_tokens`."""
    draw = random.Random(seed)
    ends = set(eos_ids)
    tokens: list[int] = []
    while len(tokens) < most_tokens:
        if constraint.is_complete:
            return tokens, True
        token = draw.choice(allowed_ids(constraint))
        if token in ends:
            return tokens, True
        tokens.append(token)
        constraint.advance(token)
    return tokens, constraint.is_complete
