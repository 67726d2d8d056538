from __future__ import annotations

from pathlib import Path

import pytest

from mlxcel.config.sources import read_sources
from mlxcel.doctor.finding import Finding, State
from mlxcel.doctor.places import look_at_config, look_at_keys, look_at_log, look_at_models_folder


def config_of(tmp_path: Path, text: str, mode: int) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def looked_at(file: Path) -> list[Finding]:
    return look_at_config(file, read_sources({}, {"HOME": "/nonexistent"}, file if file.exists() else None)[1])


@pytest.mark.parametrize(
    ("mode", "state"),
    [(0o600, State.OK), (0o644, State.OK), (0o664, State.WARNING), (0o646, State.WARNING), (0o200, State.PROBLEM)],
)
def test_a_config_file_is_ours_to_read_and_no_one_elses_to_change(tmp_path: Path, mode: int, state: State) -> None:
    found = looked_at(config_of(tmp_path, "port = 1\n", mode))
    assert found[-1].state is state and (state is State.OK or f"(mode {mode:03o})" in found[-1].told)


def test_each_fault_of_the_settings_is_a_problem_of_its_own(tmp_path: Path) -> None:
    found = looked_at(config_of(tmp_path, "prot = 1\ntop_p = 7\n", 0o666))
    assert [finding.state for finding in found] == [State.PROBLEM, State.PROBLEM, State.WARNING]
    assert "prot" in found[0].told and "top_p" in found[1].told


def test_no_config_file_is_no_fault(tmp_path: Path) -> None:
    (found,) = looked_at(tmp_path / "config.toml")
    assert found.state is State.OK and "not there" in found.told


@pytest.mark.parametrize(
    ("mode", "state"),
    [
        (0o755, State.OK),
        (0o1777, State.OK),
        (0o777, State.WARNING),
        (0o555, State.WARNING),
        (0o355, State.PROBLEM),
        (0o600, State.PROBLEM),
    ],
)
def test_a_models_folder_is_ours_to_read_and_write(tmp_path: Path, mode: int, state: State) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    folder.chmod(mode)
    found = look_at_models_folder(folder)
    folder.chmod(0o700)
    assert found.state is state and bool(found.next_step) is (state is not State.OK)


def test_a_models_folder_that_is_not_there_is_made_where_that_can_be(tmp_path: Path) -> None:
    assert look_at_models_folder(tmp_path / "not" / "yet").state is State.OK
    tmp_path.chmod(0o555)
    found = look_at_models_folder(tmp_path / "not" / "yet")
    tmp_path.chmod(0o700)
    assert found.state is State.PROBLEM and f"{tmp_path} (mode 555)" in found.told


def test_a_file_in_place_of_the_models_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    assert "is no folder" in look_at_models_folder(tmp_path / "models").told
    found = look_at_models_folder(tmp_path / "models" / "deeper")
    assert found.state is State.PROBLEM


def test_a_log_needs_a_folder_that_may_be_written(tmp_path: Path) -> None:
    assert look_at_log(None).state is State.OK
    log = tmp_path / "logs" / "mlxcel.log"
    assert look_at_log(log).next_step == f"mkdir -p {log.parent}"
    log.parent.mkdir()
    assert look_at_log(log).state is State.OK
    log.parent.chmod(0o555)
    refused = look_at_log(log)
    log.parent.chmod(0o755)
    assert refused.state is State.PROBLEM and "may not be written" in refused.told
    log.write_text("")
    log.chmod(0o444)
    assert look_at_log(log).state is State.PROBLEM
    assert "cannot be a file" in look_at_log(tmp_path).told


def keys_file(tmp_path: Path, text: str, mode: int) -> str:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


@pytest.mark.parametrize(
    ("text", "mode", "state"),
    [
        ("s3cret\nother\n", 0o600, State.OK),
        ("s3cret\n", 0o640, State.PROBLEM),
        ("# s3cret\n", 0o600, State.PROBLEM),
        ("s3cret key\n", 0o600, State.PROBLEM),
    ],
)
def test_a_keys_file_is_ours_alone_and_holds_keys(tmp_path: Path, text: str, mode: int, state: State) -> None:
    found = look_at_keys(keys_file(tmp_path, text, mode), {}, host="0.0.0.0")
    assert found.state is state and "s3cret" not in found.told + found.next_step
    assert look_at_keys(str(tmp_path / "missing"), {}, host="127.0.0.1").state is State.PROBLEM


def test_without_keys_it_matters_who_can_ask() -> None:
    assert look_at_keys(None, {}, host="127.0.0.1").state is State.OK
    found = look_at_keys(None, {}, host="0.0.0.0")
    assert found.state is State.WARNING and "api_keys_file" in found.next_step
    assert look_at_keys(None, {"MLXCEL_API_KEYS": "a,b"}, host="0.0.0.0").told.startswith("2, ")
