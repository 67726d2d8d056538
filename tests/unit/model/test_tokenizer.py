from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlxcel.errors import InputError, ModelError
from mlxcel.model.checkpoint import read_checkpoint
from mlxcel.model.tokenizer import Tokenizer, load_tokenizer
from tests.support.tiny_llama import make_tiny_llama
from tests.support.tiny_tokenizer import BOS, SPECIAL_TOKENS, TURN_END

BOS_ID = SPECIAL_TOKENS.index(BOS)
USER = [{"role": "user", "content": "Hello"}]


def tokenizer_of(folder: Path, **options: Any) -> Tokenizer:
    return load_tokenizer(read_checkpoint(make_tiny_llama(folder, **options)))


@pytest.fixture(scope="module")
def plain(tiny_model: Path) -> Tokenizer:
    return load_tokenizer(read_checkpoint(tiny_model))


def test_end_tokens_are_those_of_the_configs_and_of_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, eos_token_ids=[9, 11])
    assert tokenizer.eos_ids == {9, 11, SPECIAL_TOKENS.index(TURN_END)}


@pytest.mark.parametrize(("adds_bos", "templates_bos"), [(True, True), (True, False), (False, True), (False, False)])
def test_bos_comes_once_at_most(tmp_path: Path, adds_bos: bool, templates_bos: bool) -> None:
    tokenizer = tokenizer_of(tmp_path, adds_bos=adds_bos, templates_bos=templates_bos)
    assert tokenizer.encode("Hello").count(BOS_ID) == adds_bos
    assert tokenizer.encode(BOS + "Hello").count(BOS_ID) == 1
    assert tokenizer.encode(BOS + "Hello")[0] == BOS_ID
    assert tokenizer.encode("").count(BOS_ID) == adds_bos
    assert tokenizer.encode_chat(USER, {}).count(BOS_ID) == templates_bos


def test_a_text_is_encoded_as_the_tokenizer_on_disk_does(plain: Tokenizer, tiny_model: Path) -> None:
    from tokenizers import Tokenizer as OnDisk

    on_disk = OnDisk.from_file(str(tiny_model / "tokenizer.json"))
    for text in ("Hello", "", " two  spaces\n", "été 日本語", "x" * 5000):
        assert plain.encode(text) == on_disk.encode(text).ids


def test_tokens_come_back_as_their_text(plain: Tokenizer) -> None:
    text = "What is the capital of été?"
    detokenizer, other = plain.detokenizer(), plain.detokenizer()
    for token in plain.encode(text):
        detokenizer.add_token(token)
    detokenizer.finalize()
    assert detokenizer.last_segment == text and other.last_segment == ""


def test_a_chat_ends_where_the_answer_begins(plain: Tokenizer) -> None:
    expected = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert plain.encode_chat(USER, {}) == plain.encode(expected)


def test_chat_template_kwargs_are_variables_of_the_template(tmp_path: Path) -> None:
    folder = make_tiny_llama(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = "{{ messages[0]['content'] }}{% if be_brief %} briefly{% endif %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(read_checkpoint(folder))
    assert tokenizer.encode_chat(USER, {}) == tokenizer.encode("Hello")
    assert tokenizer.encode_chat(USER, {"be_brief": True, "nobody_reads": [1]}) == tokenizer.encode("Hello briefly")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chat_template", "{{ 1 }}"),
        ("tokenize", False),
        ("add_generation_prompt", False),
        ("continue_final_message", True),
        ("return_dict", True),
        ("return_tensors", "np"),
        ("truncation", True),
        ("max_length", 1),
        ("padding", "max_length"),
        ("tokenizer_kwargs", {"truncation": True, "max_length": 1}),
        ("tools", []),
        ("conversation", []),
        ("messages", []),
        ("self", 1),
    ],
)
def test_options_of_rendering_are_no_template_variables(plain: Tokenizer, name: str, value: Any) -> None:
    with pytest.raises(InputError) as refusal:
        plain.encode_chat(USER, {name: value})
    assert refusal.value.param == f"chat_template_kwargs.{name}"


def test_a_model_without_a_template_refuses_a_chat_and_says_what_to_use(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, has_chat_template=False)
    assert not tokenizer.has_chat_template
    with pytest.raises(InputError, match="/v1/completions") as refusal:
        tokenizer.encode_chat(USER, {})
    assert refusal.value.code == "no_chat_template"


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no system role') }}", "{{ messages[0]['content'] + 1 }}", "{{ missing.attribute.x }}"],
)
def test_what_a_template_refuses_is_the_callers_error(tmp_path: Path, template: str) -> None:
    folder = make_tiny_llama(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
    with pytest.raises(InputError) as refusal:
        load_tokenizer(read_checkpoint(folder)).encode_chat(USER, {})
    assert (refusal.value.param, refusal.value.code) == ("messages", "template_refused")


@pytest.mark.parametrize("content", [None, b"{", b"{}"])
@pytest.mark.parametrize("has_config", [True, False])
def test_a_folder_without_a_usable_tokenizer_is_refused_by_name(
    tmp_path: Path, content: bytes | None, has_config: bool
) -> None:
    folder = make_tiny_llama(tmp_path)
    (folder / "tokenizer.json").unlink()
    if content is not None:
        (folder / "tokenizer.json").write_bytes(content)
    if not has_config:
        (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError) as refusal:
        load_tokenizer(read_checkpoint(folder))
    assert str(folder) in refusal.value.message and "tokenizer.json" in refusal.value.message
