"""The probe for a Metal device: a child that dies tells that there is none."""

from __future__ import annotations

import sys

import pytest

from mlxcel.errors import StateError
from mlxcel.service.metal import PROBE, check_metal


def test_a_child_that_aborts_is_no_device_and_one_that_ends_well_is_one() -> None:
    with pytest.raises(StateError, match="no Metal device"):
        check_metal([sys.executable, "-c", "import os; os.abort()"])
    check_metal([sys.executable, "-c", ""])


def test_the_probe_itself_runs_where_mlx_does() -> None:
    check_metal(PROBE)
