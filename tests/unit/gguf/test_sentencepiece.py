"""Against the sentencepiece library itself, with a vocabulary trained on the spot."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from mlx_lm.utils import load_tokenizer

from mlxcel.gguf.conversion import import_gguf
from tests.support.gguf_llama import write_llama_gguf
from tests.support.tiny_llama import make_tiny_llama

N_TOKENS = 600
TEXTS = (
    "You may reproduce and distribute copies of the Work",
    " a leading space and  two in the middle",
    "three   four    five     spaces",
    "aaaaaaa tttttt 2024",
    "bytes: \n\t été 日本語 \U0001f600",
    "x",
)


@pytest.fixture(scope="module")
def processor() -> Any:
    written = io.BytesIO()
    licence = Path(__file__).parents[3] / "LICENSE"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(licence.read_text("utf-8").splitlines()),
        model_writer=written,
        model_type="bpe",
        vocab_size=N_TOKENS,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def metadata_of(processor: Any) -> dict[str, Any]:
    """As llama.cpp's converter writes it."""

    def type_of(id: int) -> int:
        if processor.is_unknown(id):
            return 2
        return 3 if processor.is_control(id) else 6 if processor.is_byte(id) else 1

    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [processor.id_to_piece(id) for id in range(N_TOKENS)],
        "tokenizer.ggml.scores": [processor.get_score(id) for id in range(N_TOKENS)],
        "tokenizer.ggml.token_type": [type_of(id) for id in range(N_TOKENS)],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.eos_token_id": None,  # the defaults of the kind: 0 unknown, 1 BOS, 2 EOS
        "tokenizer.ggml.add_bos_token": None,
    }


def test_text_becomes_the_ids_that_sentencepiece_gives(tmp_path: Path, processor: Any) -> None:
    folder = make_tiny_llama(tmp_path / "original", n_vocabulary=N_TOKENS)
    source = write_llama_gguf(tmp_path / "model.gguf", folder, metadata=metadata_of(processor))
    import_gguf(source, tmp_path / "imported")
    imported = load_tokenizer(tmp_path / "imported")
    for text in TEXTS:
        assert imported.encode(text) == [1, *processor.encode(text)], text
        assert imported.decode(imported.encode(text, add_special_tokens=False)) == text
    assert imported.encode("a</s>b") == [1, *processor.encode("a"), 2, *processor.encode("b")]
    assert (imported.bos_token, imported.eos_token, imported.unk_token) == ("<s>", "</s>", "<unk>")
    assert json.loads((tmp_path / "imported" / "generation_config.json").read_text())["eos_token_id"] == [2]


def test_without_a_space_prefix_none_is_added(tmp_path: Path, processor: Any) -> None:
    folder = make_tiny_llama(tmp_path / "original", n_vocabulary=N_TOKENS)
    changes = metadata_of(processor) | {"tokenizer.ggml.add_space_prefix": False}
    import_gguf(write_llama_gguf(tmp_path / "model.gguf", folder, metadata=changes), tmp_path / "imported")
    imported = load_tokenizer(tmp_path / "imported")
    ids = imported.encode("The Work", add_special_tokens=False)
    assert not imported.convert_ids_to_tokens(ids)[0].startswith("▁")
    assert imported.decode(ids) == "The Work"
