"""What a load without weights finds, and that it is what a load finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlxcel.config.settings import ServeSettings
from mlxcel.errors import ModelError, StateError
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.load import load_model
from mlxcel.model.rehearsal import rehearse
from mlxcel.model.tokenizer import load_tokenizer
from mlxcel.store.readiness import readiness_of
from tests.support.broken_model import BREAKAGES, break_model, write_into
from tests.support.tiny_llama import make_tiny_llama


def faults_of(folder: Path) -> list[str]:
    """As `config check` looks for them: a rehearsal only where the files are in order."""
    ready = readiness_of(ServeSettings(model=str(folder)))
    return [fault.message for fault in ready.faults] or rehearse(read_checkpoint(folder))["faults"]


def test_a_model_that_loads_has_neither_faults_nor_warnings(tiny_model: Path) -> None:
    assert faults_of(tiny_model) == []
    assert rehearse(read_checkpoint(tiny_model)) == {"faults": [], "warnings": []}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_what_nobody_can_serve_is_one_fault_by_name_before_any_weight_is_read(tmp_path: Path, breakage: str) -> None:
    told = break_model(tmp_path / "model", breakage)
    (fault,) = faults_of(tmp_path / "model")
    assert told in fault


@pytest.mark.parametrize("breakage", ["another width", "a layer more", "an unknown model type"])
def test_a_load_refuses_with_the_words_of_its_rehearsal(tmp_path: Path, breakage: str) -> None:
    break_model(tmp_path, breakage)
    checkpoint = read_checkpoint(tmp_path)
    with pytest.raises(ModelError) as refusal:
        load_model(checkpoint)
    assert [refusal.value.message] == rehearse(checkpoint)["faults"]


@pytest.mark.parametrize("template", ["{% if %}", "{{ a", "{% endfor %}", "{{ 'a' | no_such_filter }}"])
def test_a_template_that_cannot_be_read_is_our_fault_and_is_told_before_a_chat(tmp_path: Path, template: str) -> None:
    checkpoint = read_checkpoint(make_tiny_llama(tmp_path, chat_template=template))
    told = rehearse(checkpoint)
    assert told["faults"] == [] and "chat template" in told["warnings"][0]
    with pytest.raises(StateError, match="chat template of the model") as refusal:
        load_tokenizer(checkpoint).encode_chat([{"role": "user", "content": "a"}], {})
    assert refusal.value.code == "chat_template_faulty"


def test_end_ids_that_no_token_has_are_left_out_by_name(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path)
    write_into(folder / "generation_config.json", eos_token_id=[2, *range(5000, 2_005_000)])
    checkpoint = read_checkpoint(folder)
    tokenizer = load_tokenizer(checkpoint)
    (warning,) = tokenizer.keep_eos_ids(1024)
    assert warning.startswith("2000000 of the checkpoint's eos_token_id, 5000 among them, ")
    assert 2 in tokenizer.eos_ids and max(tokenizer.eos_ids) < 1024
    assert rehearse(checkpoint)["warnings"] == [warning]


def test_every_fault_of_a_generation_config_is_named(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path)
    write_into(folder / "generation_config.json", temperature="hot", top_p=-5, eos_token_id="x")
    told = "\n".join(faults_of(folder))
    for part in ("eos_token_id = 'x'", "temperature = 'hot'", "top_p = -5"):
        assert part in told
