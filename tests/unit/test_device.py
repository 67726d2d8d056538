"""The probe for a device: a child that dies tells that there is none."""

from __future__ import annotations

import sys

import pytest

from mlxcel.device import Device, probe_device
from mlxcel.errors import StateError

METAL = 'print(\'{"kind": "metal", "name": "M9", "memory_bytes": 5}\')'


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("import os; os.abort()", "was ended by signal 6"),
        ("raise SystemExit('no mlx here')", "ended with 1: no mlx here"),
        ("pass", "failed: "),
        ("print('{}')", "failed: "),
    ],
)
def test_a_child_that_dies_or_says_nothing_is_no_device(text: str, how: str) -> None:
    with pytest.raises(StateError, match="no Metal device") as refusal:
        probe_device(program(text))
    assert f"(the probe {how}" in refusal.value.message and refusal.value.code == "no_device"


def test_a_child_that_hangs_is_given_up() -> None:
    with pytest.raises(StateError, match=r"did not answer within 0\.2 s"):
        probe_device(program("import threading; threading.Event().wait()"), timeout_s=0.2)


def test_what_the_child_says_is_the_device() -> None:
    assert probe_device(program(METAL)) == Device("metal", "M9", 5)


def test_the_probe_itself_runs_where_mlx_does() -> None:
    assert probe_device().kind in ("metal", "cuda", "cpu")
