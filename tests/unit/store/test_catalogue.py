from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mlxcel.errors import InputError, ModelError, StateError
from mlxcel.folder import folder_in_use, new_folder
from mlxcel.store.catalogue import check_name, find_model, list_models, remove_model


@pytest.fixture
def models(tiny_model: Path, tmp_path: Path) -> Path:
    """`alone`, `acme/one` and `acme/two`."""
    for name in ("alone", "acme/one", "acme/two"):
        shutil.copytree(tiny_model, tmp_path / "models" / name)
    return tmp_path / "models"


def test_a_name_finds_its_folder_and_a_path_comes_first(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_model("alone", models) == models / "alone"
    assert find_model("acme/one", models) == models / "acme/one"
    assert find_model(str(models / "alone"), Path("/nowhere")) == models / "alone"
    here = models.parent / "here"
    (here / "alone").mkdir(parents=True)
    monkeypatch.chdir(here)
    assert find_model("alone", models) == Path("alone")


@pytest.mark.parametrize("name", ["nothing", "acme/three", "one", "../models/alone", "acme/../alone", "/alone", ""])
def test_another_name_finds_nothing(models: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir("/")
    if name:
        with pytest.raises(ModelError, match="nothing was loaded"):
            find_model(name, models)
    with pytest.raises(ModelError, match="Did you mean acme/one"):
        find_model("acme/ones", models)


@pytest.mark.parametrize("name", ["a", "acme/tiny-4bit", "A_1/b.c", "x" * 96])
def test_a_name_is_one_or_two_plain_words(name: str) -> None:
    assert check_name(name, param="name") == name


@pytest.mark.parametrize(
    "name",
    ["", "/", "a/", "/a", "a/b/c", "..", "a/..", ".a", "-a", "a-", "a b", "a..b", "a\n", "ä", "x" * 97, "~", "a\\b"],
)
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no name of a model"):
        check_name(name, param="name")


def test_the_list_has_whole_damaged_and_unfinished_models_and_what_is_in_use(models: Path) -> None:
    (models / "acme/two/model.safetensors").write_bytes(b"cut")
    with pytest.raises(OSError), new_folder(models / "acme/three", resume_key="abc") as draft:
        (draft / "half").write_bytes(b"12345")
        raise OSError
    with folder_in_use(models / "alone"):
        entries = {entry.name: entry for entry in list_models(models)}
    assert list(entries) == ["acme/one", "acme/two", "alone", "acme/three"]
    assert [entries[name].fault is None for name in entries] == [True, False, True, False]
    assert [entries[name].is_in_use for name in entries] == [False, False, True, False]
    assert (entries["acme/three"].n_bytes, entries["acme/three"].is_finished) == (5, False)
    assert list_models(models / "nowhere") == []


def test_a_removed_model_is_gone_and_its_neighbours_are_not(models: Path) -> None:
    with folder_in_use(models / "acme/two"), pytest.raises(StateError, match="in use"):
        remove_model("acme/two", models)
    remove_model("acme/one", models)
    assert sorted(entry.name for entry in list_models(models)) == ["acme/two", "alone"]
    remove_model("acme/two", models)
    assert [path.name for path in models.iterdir()] == ["alone"]


def test_what_a_pull_left_is_removed_under_its_name(models: Path) -> None:
    with pytest.raises(OSError), new_folder(models / "acme/three", resume_key="abc"):
        raise OSError
    remove_model("acme/three", models)
    assert sorted(path.name for path in (models / "acme").iterdir()) == ["one", "two"]


def test_of_a_link_only_the_link_is_removed(models: Path, tmp_path: Path) -> None:
    shutil.move(models / "alone", tmp_path / "kept")
    (models / "alone").symlink_to(tmp_path / "kept")
    assert [entry.fault for entry in list_models(models) if entry.name == "alone"] == [None]
    remove_model("alone", models)
    assert not (models / "alone").is_symlink()
    assert (tmp_path / "kept/config.json").exists()
