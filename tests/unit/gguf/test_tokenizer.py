from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.utils import load_tokenizer
from tokenizers import Tokenizer

from mlxcel.errors import ModelError
from mlxcel.gguf.conversion import import_gguf
from mlxcel.gguf.header import read_header
from mlxcel.gguf.tokenizer import TokenizerFiles, read_tokenizer
from tests.support.gguf_llama import tokenizer_metadata, write_llama_gguf
from tests.support.gguf_writer import write_gguf
from tests.support.tiny_llama import make_tiny_llama
from tests.support.tiny_tokenizer import BOS

Write = Callable[..., Path]
FilesOf = Callable[[dict[str, Any]], TokenizerFiles]

TEXTS = (
    "You may reproduce and distribute copies of the Work",
    "  leading, trailing  and   inner spaces  ",
    "tabs\t\tand\r\nlines\n\n\n",
    "it's we'll THEY'RE 2024 3.14159",
    "été 日本語 \U0001f469‍\U0001f680 \x00\x7f ﬁ Å",
    "before<|im_end|>after<|im_start|>user\n",
    "",
)


@pytest.fixture
def files_of(tmp_path: Path) -> Callable[[dict[str, Any]], TokenizerFiles]:
    """Write metadata to a GGUF file and read its tokenizer."""

    def files(metadata: dict[str, Any]) -> TokenizerFiles:
        entries = {key: value for key, value in metadata.items() if value is not None}
        path = write_gguf(tmp_path / "tokenizer.gguf", {"llama.context_length": 2048} | entries, [])
        with path.open("rb") as file:
            return read_tokenizer(read_header(file).metadata)

    return files


def tokenizer_of(files: TokenizerFiles) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(files.tokenizer))


@pytest.mark.parametrize("adds_bos", [False, True])
def test_text_becomes_the_ids_of_the_original_tokenizer_and_back(tmp_path: Path, adds_bos: bool) -> None:
    folder = make_tiny_llama(tmp_path / "original", adds_bos=adds_bos, templates_bos=not adds_bos)
    import_gguf(write_llama_gguf(tmp_path / "model.gguf", folder), tmp_path / "imported")
    original, imported = load_tokenizer(folder), load_tokenizer(tmp_path / "imported")
    messages = [{"role": "user", "content": TEXTS[0]}]
    for text in TEXTS:
        assert imported.encode(text) == original.encode(text), text
        assert imported.decode(imported.encode(text)) == original.decode(original.encode(text))
    assert imported.decode(imported.encode(TEXTS[4], add_special_tokens=False)) == TEXTS[4]
    rendered = imported.apply_chat_template(messages, add_generation_prompt=True)
    assert rendered == original.apply_chat_template(messages, add_generation_prompt=True)
    assert imported.bos_token == original.bos_token == BOS
    assert imported.eos_token == original.eos_token
    assert imported.detokenizer.__class__ is original.detokenizer.__class__


def test_special_tokens_are_atomic_and_the_users_own_are_no_special_ones(files_of: FilesOf, tiny_model: Path) -> None:
    metadata: Any = tokenizer_metadata(tiny_model)
    own = metadata["tokenizer.ggml.tokens"].index("License")
    metadata["tokenizer.ggml.token_type"][own] = 4
    tokenizer = tokenizer_of(files_of(metadata))
    assert tokenizer.encode("xLicensex<|im_end|>").ids[1::2] == [own, 2]
    assert tokenizer.decode([own, 2], skip_special_tokens=True) == "License"


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_each_pre_tokenizer_splits_digits_and_spaces_in_its_own_way(
    files_of: FilesOf, tiny_model: Path, pre: str
) -> None:
    tokenizer = tokenizer_of(files_of(tokenizer_metadata(tiny_model) | {"tokenizer.ggml.pre": pre}))
    text = "I'll pay 12345 x   go\n\nEND"
    pieces = [text[start:end] for _, (start, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    digits = {"gpt-2": [" 12345"], "llama-bpe": [" ", "123", "45"]}.get(pre, [" ", *"12345"])
    lines = ["\n", "\n"] if pre in ("gpt-2", "smollm") else ["\n\n"]
    assert pieces == ["I", "'ll", " pay", *digits, " x", "  ", " go", *lines, "END"]
    assert "".join(pieces) == text


@pytest.mark.parametrize(("pre", "is_whole"), [("llama-bpe", True), ("gpt-2", False)])
def test_only_some_kinds_take_a_whole_token_without_merging(
    files_of: FilesOf, tiny_model: Path, pre: str, is_whole: bool
) -> None:
    metadata: Any = tokenizer_metadata(tiny_model) | {"tokenizer.ggml.pre": pre}
    id = metadata["tokenizer.ggml.tokens"].index("License")
    merges = [merge for merge in metadata["tokenizer.ggml.merges"] if merge.replace(" ", "") != "License"]
    tokenizer = tokenizer_of(files_of(metadata | {"tokenizer.ggml.merges": merges}))
    assert (tokenizer.encode("License").ids == [id]) is is_whole


def test_qwen2_composes_characters_first(files_of: FilesOf, tiny_model: Path) -> None:
    tokenizer = tokenizer_of(files_of(tokenizer_metadata(tiny_model) | {"tokenizer.ggml.pre": "qwen2"}))
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("é").ids


@pytest.mark.parametrize(
    ("pre", "flag", "expected"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("smollm", None, False), ("smollm", True, True)],
)
def test_bos_is_added_as_the_file_says_or_as_its_kind_does(
    files_of: FilesOf, tiny_model: Path, pre: str, flag: bool | None, expected: bool
) -> None:
    metadata: Any = tokenizer_metadata(tiny_model) | {
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.ggml.add_bos_token": flag,
    }
    assert (tokenizer_of(files_of(metadata)).encode("Hello").ids[0] == 3) is expected


def test_every_token_that_ends_a_turn_is_an_end_of_sequence_token(files_of: FilesOf, tiny_model: Path) -> None:
    metadata: Any = tokenizer_metadata(tiny_model) | {
        "tokenizer.ggml.eot_token_id": 7,
        "tokenizer.ggml.padding_token_id": 2**32 - 1,
    }
    files = files_of(metadata)
    assert files.vocabulary.end_ids == [2, 7, 0]
    assert files.config["pad_token"] is None


def test_named_chat_templates_are_all_kept(tmp_path: Path, gguf: Write) -> None:
    import_gguf(gguf(metadata={"tokenizer.chat_template.tool_use": "tools"}), tmp_path / "imported")
    tokenizer = load_tokenizer(tmp_path / "imported")
    assert set(tokenizer.chat_template) == {"default", "tool_use"}
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert rendered == "<|im_start|>user\nx<|im_end|>\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tokenizer.ggml.merges": ["a b c"]}, "merges 'a b c'"),
        ({"tokenizer.ggml.merges": ["Ġ nonsense"]}, "merges 'Ġ nonsense'"),
        ({"tokenizer.ggml.merges": None}, "no 'tokenizer.ggml.merges'"),
        ({"tokenizer.ggml.token_type": [1]}, "1024 tokens, but 1 token types"),
        ({"tokenizer.ggml.token_type": [9] * 1024}, "unknown type 9"),
        ({"tokenizer.ggml.eos_token_id": 1024}, "'tokenizer.ggml.eos_token_id' 1024, but 1024 tokens"),
        ({"tokenizer.ggml.add_bos_token": True}, "no 'tokenizer.ggml.bos_token_id'"),
        ({"tokenizer.ggml.tokens": ["a"] * 1024}, "the ids 0 and 1 the same token 'a'"),
        ({"tokenizer.ggml.model": "llama"}, "no 'tokenizer.ggml.scores'"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0] * 1024}, "all tokens the same score"),
    ],
)
def test_a_vocabulary_that_contradicts_itself_is_refused(
    tmp_path: Path, gguf: Write, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError) as refused:
        import_gguf(gguf(metadata=change), tmp_path / "imported")
    assert reason in refused.value.message
