from __future__ import annotations

import pytest

from mlxcel.errors import ModelError
from mlxcel.store.hub import HubFile, Snapshot
from mlxcel.store.selection import model_files

ENOUGH = ("config.json", "model.safetensors", "tokenizer.json")


def snapshot(*names: str) -> Snapshot:
    return Snapshot("acme/tiny", "0" * 40, tuple(HubFile(name, len(name), "sha256:0") for name in names))


def chosen(*names: str) -> set[str]:
    return {file.name for file in model_files(snapshot(*ENOUGH, *names))} - {*ENOUGH}


def test_what_a_model_needs_is_chosen() -> None:
    needed = {
        "model-00001-of-00002.safetensors", "model.safetensors.index.json", "generation_config.json",
        "tokenizer_config.json", "tokenizer.model", "qwen.tiktoken", "vocab.json", "merges.txt", "chat_template.jinja",
    }  # fmt: skip
    assert chosen(*needed) == needed


def test_nothing_that_runs_or_lies_elsewhere_is_chosen() -> None:
    assert not chosen(
        "modeling.py", "pytorch_model.bin", "model.pt", "model.ckpt", "weights.npz", "tokenizer.pkl", "README.md",
        "consolidated.safetensors", "adapters.safetensors", "model.gguf", "onnx/model.json", "a/model.safetensors",
        "../config.json", "/config.json", "..\\config.json", ".hidden.json", "Config.JSON", "config.json.py",
    )  # fmt: skip


@pytest.mark.parametrize("lack", ENOUGH)
def test_a_repository_that_is_no_whole_model_is_refused(lack: str) -> None:
    with pytest.raises(ModelError, match="nothing was fetched"):
        model_files(snapshot(*{*ENOUGH} - {lack}))


@pytest.mark.parametrize("file", [HubFile("x.json", -1, "sha256:0"), HubFile("x.json", 1, "")])
def test_a_file_whose_damage_could_not_be_told_is_refused(file: HubFile) -> None:
    known = snapshot(*ENOUGH)
    with pytest.raises(ModelError, match=r"x\.json"):
        model_files(Snapshot(known.repo, known.commit, (*known.files, file)))
