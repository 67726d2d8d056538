from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from mlxcel.doctor.finding import State
from mlxcel.doctor.machine import (
    look_at_device,
    look_at_disk,
    look_at_memory,
    look_at_open_files,
    physical_memory_bytes,
)
from mlxcel.open_files import MOST, attainable_open_files
from mlxcel.store.inspection import Inspection, inspect_model


@pytest.mark.parametrize(
    ("program", "state", "part"),
    [
        ("import os; os.abort()", State.PROBLEM, "signal 6"),
        ("import no_such_mlx", State.PROBLEM, "No module named 'no_such_mlx'"),
        ('print(\'{"kind": "cpu", "name": "X", "memory_bytes": null}\')', State.WARNING, "on the CPU (X)"),
        ('print(\'{"kind": "metal", "name": "Apple M9", "memory_bytes": 7}\')', State.OK, "Metal (Apple M9)"),
        ('print(\'{"kind": "cuda", "name": "", "memory_bytes": null}\')', State.OK, "on CUDA"),
    ],
)
def test_a_device_is_what_a_child_finds(program: str, state: State, part: str) -> None:
    found, device = look_at_device([sys.executable, "-c", program])
    assert (found.about, found.state) == ("device", state) and part in found.told
    assert (device is None) is (state is State.PROBLEM)


def inspected(model: Path, memory_bytes: int) -> Inspection:
    return inspect_model(model, memory_bytes=memory_bytes, lengths=(1024,))


def test_memory_that_holds_the_weights_and_a_sequence_is_enough(tiny_model: Path) -> None:
    found = look_at_memory(2**30, inspected(tiny_model, 2**30))
    assert found.state is State.OK and "1024 tokens" in found.told


@pytest.mark.parametrize("memory_bytes", [1000, 600_000])
def test_memory_too_small_for_the_model_is_a_problem(tiny_model: Path, memory_bytes: int) -> None:
    found = look_at_memory(memory_bytes, inspected(tiny_model, memory_bytes))
    assert found.state is State.PROBLEM and "smaller model" in found.next_step


def test_without_a_model_memory_is_just_told() -> None:
    found = look_at_memory(physical_memory_bytes(), None)
    assert found.state is State.OK and " GB" in found.told


def test_few_open_files_are_a_warning() -> None:
    assert look_at_open_files(least=1).state is State.OK
    found = look_at_open_files(least=2**40)
    assert found.state is State.WARNING and "ulimit -n" in found.next_step


def test_what_may_be_raised_counts_as_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 100), hard))
    try:
        assert attainable_open_files() == (MOST[1] if hard == resource.RLIM_INFINITY else min(hard, MOST[0]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_disk_is_that_of_the_folder_or_where_it_will_be(tmp_path: Path) -> None:
    assert str(tmp_path) in look_at_disk(tmp_path / "not" / "yet", least_bytes=1, room_bytes=1).told
    assert look_at_disk(tmp_path, least_bytes=1, room_bytes=1).state is State.OK
    assert look_at_disk(tmp_path, least_bytes=1, room_bytes=2**80).state is State.WARNING
    assert look_at_disk(tmp_path, least_bytes=2**80).state is State.PROBLEM
