from __future__ import annotations

import shutil
from pathlib import Path

from mlxcel.config.settings import ServeSettings
from mlxcel.doctor.finding import State
from mlxcel.doctor.model import look_at_model
from tests.support.broken_model import write_into
from tests.support.tiny_llama import make_tiny_llama

MEMORY = 2**30


def test_a_whole_model_is_told_by_folder_and_by_name(tiny_model: Path) -> None:
    for name in (str(tiny_model), tiny_model.name):
        settings = ServeSettings(model=name, models_dir=str(tiny_model.parent))
        (found,), told = look_at_model(settings, memory_bytes=MEMORY)
        assert found.state is State.OK and "is whole" in found.told
        assert told is not None and told.folder == tiny_model


def test_a_model_that_is_missing_or_cut_off_is_a_problem(tiny_model: Path, tmp_path: Path) -> None:
    (found,), told = look_at_model(ServeSettings(model="nowhere", models_dir=str(tmp_path)), memory_bytes=MEMORY)
    assert found.state is State.PROBLEM and told is None and "nowhere" in found.told
    cut = tmp_path / "cut"
    shutil.copytree(tiny_model, cut)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (found,), told = look_at_model(ServeSettings(model=str(cut), models_dir=str(tmp_path)), memory_bytes=MEMORY)
    assert found.state is State.PROBLEM and told is None and "not whole" in found.told


def test_no_model_is_a_warning_that_says_how_to_set_one() -> None:
    (found,), told = look_at_model(ServeSettings(), memory_bytes=MEMORY)
    assert found.state is State.WARNING and told is None and "config file" in found.next_step


def test_a_whole_folder_that_does_not_load_is_a_problem_and_a_broken_template_a_warning(
    tmp_path: Path,
) -> None:
    broken = make_tiny_llama(tmp_path / "broken")
    write_into(broken / "config.json", hidden_size=128)
    (found,), told = look_at_model(ServeSettings(model=str(broken)), memory_bytes=MEMORY)
    assert found.state is State.PROBLEM and told is None and "shape" in found.told
    chatless = make_tiny_llama(tmp_path / "chatless", chat_template="{% if %}")
    (found,), told = look_at_model(ServeSettings(model=str(chatless)), memory_bytes=MEMORY)
    assert found.state is State.WARNING and told is not None and "chat template" in found.told
