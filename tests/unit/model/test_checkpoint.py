from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlxcel.errors import ModelError
from mlxcel.model.checkpoint import read_checkpoint


def folder_of(
    path: Path, *, config: Any = None, generation_config: Any = None, weights: str = "model.safetensors"
) -> Path:
    """A folder with these declarations; its weights are never read here."""
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    if generation_config is not None:
        (path / "generation_config.json").write_text(json.dumps(generation_config))
    if weights:
        (path / weights).touch()
    return path


@pytest.mark.parametrize(
    ("config", "generation_config", "expected"),
    [
        ({}, None, set()),
        ({"eos_token_id": 2}, None, {2}),
        ({"eos_token_id": None}, {"eos_token_id": 7}, {7}),
        ({"eos_token_id": 128009}, {"eos_token_id": [128009, 128001, 128008]}, {128001, 128008, 128009}),
        ({"eos_token_id": [1, 2]}, {"eos_token_id": 3}, {1, 2, 3}),
        ({"eos_token_id": 1, "text_config": {"eos_token_id": [4, 5]}}, {"eos_token_id": []}, {1, 4, 5}),
        ({"llm_config": {"eos_token_id": 6}, "text_config": None}, {}, {6}),
    ],
)
def test_end_tokens_are_the_union_of_what_the_configs_declare(
    tmp_path: Path, config: Any, generation_config: Any, expected: set[int]
) -> None:
    folder = folder_of(tmp_path, config=config, generation_config=generation_config)
    assert read_checkpoint(folder).eos_ids == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"max_position_embeddings": 2048}, 2048),
        ({"n_positions": 1024}, 1024),
        ({"max_sequence_length": 512, "max_position_embeddings": 2048}, 512),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"max_position_embeddings": None}, None),
        ({"max_position_embeddings": None, "seq_length": 77}, 77),
    ],
)
def test_the_context_is_the_smallest_that_the_config_names(tmp_path: Path, config: Any, expected: int | None) -> None:
    assert read_checkpoint(folder_of(tmp_path, config=config)).context_tokens == expected


@pytest.mark.parametrize("weights", ["model.safetensors", "model-00001-of-00002.safetensors"])
def test_a_folder_is_read_and_left_as_it_was(tmp_path: Path, weights: str) -> None:
    folder = folder_of(tmp_path, config={"a": 1}, generation_config={"temperature": 0.6}, weights=weights)
    before = sorted(path.name for path in folder.iterdir())
    checkpoint = read_checkpoint(folder)
    assert (checkpoint.folder, checkpoint.config, checkpoint.generation_config) == (
        folder,
        {"a": 1},
        {"temperature": 0.6},
    )
    assert sorted(path.name for path in folder.iterdir()) == before


def refusal_of(folder: Path) -> str:
    with pytest.raises(ModelError) as refusal:
        read_checkpoint(folder)
    assert refusal.value.param == "model" and str(folder) in refusal.value.message
    what_happened, _, what_to_do = refusal.value.message.partition("loaded. ")
    assert what_happened and what_to_do
    return refusal.value.message


def test_a_folder_that_is_no_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    assert "mlxcel import" in refusal_of(tmp_path / "missing")
    (tmp_path / "a file").touch()
    assert "is not a folder" in refusal_of(tmp_path / "a file")
    assert "config.json" in refusal_of(tmp_path)
    assert "safetensors" in refusal_of(folder_of(tmp_path, config={}, weights=""))
    assert "safetensors" in refusal_of(folder_of(tmp_path, weights="adapters.safetensors"))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"3", b""])
def test_a_config_that_is_no_json_object_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    folder = folder_of(tmp_path, config={})
    (folder / name).write_bytes(content)
    assert name in refusal_of(folder)


@pytest.mark.parametrize("declared", ["2", [1, "2"], {"id": 2}, 2.5, [None]])
def test_an_end_token_that_is_no_id_is_refused(tmp_path: Path, declared: Any) -> None:
    folder = folder_of(tmp_path, config={"eos_token_id": declared})
    with pytest.raises(ModelError, match="eos_token_id"):
        read_checkpoint(folder)


@pytest.mark.parametrize("declared", ["512", 512.0, [512], {}, 1, 0, -1, True])
@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions"])
def test_a_context_that_is_no_count_of_tokens_is_refused(tmp_path: Path, key: str, declared: Any) -> None:
    folder = folder_of(tmp_path, config={"max_sequence_length": 512, "text_config": {key: declared}})
    with pytest.raises(ModelError, match=key):
        read_checkpoint(folder)


def test_code_in_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, config={"model_file": "model.py", "model_type": "llama"})
    (folder / "model.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "model.py" in refusal_of(folder)
    assert not (tmp_path / "ran").exists()
