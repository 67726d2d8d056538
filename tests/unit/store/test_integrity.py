from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlxcel.store.integrity import INDEX, fault_in, read_tensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of two files and an index."""
    (tmp_path / "config.json").write_text("{}")
    for name in ("a", "b"):
        save_file({name: np.zeros(3, np.float32)}, tmp_path / f"model-{name}.safetensors")
    write_index(tmp_path, {"a": "model-a.safetensors", "b": "model-b.safetensors"})
    return tmp_path


def write_index(folder: Path, weight_map: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_a_whole_folder_has_no_fault_with_an_index_and_without(folder: Path) -> None:
    assert fault_in(folder) is None
    (folder / INDEX).unlink()
    assert fault_in(folder) is None
    assert list(read_tensors(folder)) == ["model-a.safetensors", "model-b.safetensors"]


def test_each_lack_is_named(folder: Path) -> None:
    def fault() -> str:
        return fault_in(folder) or "none"

    shard = folder / "model-b.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    assert "model-b.safetensors" in fault()
    shard.unlink()
    assert "model-b.safetensors is missing" in fault()
    shard.write_bytes(content)
    write_index(folder, {"c": "model-a.safetensors"})
    assert "lacks the tensor c" in fault()
    for weight_map in (None, ["a"], {"a": 1}):
        write_index(folder, weight_map)
        assert "has no weight_map" in fault()
    (folder / INDEX).write_text("[]")
    assert "no JSON object" in fault()
    (folder / INDEX).unlink()
    (folder / "config.json").write_text("{")
    assert "config.json cannot be read" in fault()
    (folder / "config.json").unlink()
    assert "config.json is missing" in fault()
    (folder / "config.json").write_text("{}")
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert "no model*.safetensors" in fault()


@pytest.mark.parametrize("name", ["config.json", INDEX, "model.safetensors", "tokenizer.json"])
def test_a_pipe_among_the_files_is_a_fault_and_is_not_waited_for(tiny_model: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert fault_in(folder) == f"{name} is no regular file"
