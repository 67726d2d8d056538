"""'gpt2' vocabularies: byte-level byte-pair encoding, with its merges in the file."""

from __future__ import annotations

from typing import Any

from mlxcel.gguf.metadata import Metadata
from mlxcel.gguf.pre_tokenizer import BYTE_LEVEL, pre_tokenizer
from mlxcel.gguf.refusal import refusal
from mlxcel.gguf.vocabulary import Vocabulary, read_vocabulary


def read_byte_level(metadata: Metadata) -> tuple[Vocabulary, dict[str, Any], bool]:
    """The vocabulary, the parts of tokenizer.json, and whether BOS is added unless the file says otherwise.

    Errors: ModelError for an unknown pre-tokenizer and for merges of tokens that do not exist.
    """
    pre = pre_tokenizer(metadata.text("tokenizer.ggml.pre") if "tokenizer.ggml.pre" in metadata else "default")
    vocabulary = read_vocabulary(metadata, bos=None, eos=None, unknown=None)
    ids = vocabulary.ids
    merges = [line.split(" ") for line in metadata.texts("tokenizer.ggml.merges")]
    for merge in merges:
        if len(merge) != 2 or merge[0] not in ids or merge[1] not in ids or "".join(merge) not in ids:
            raise refusal(f"merges {' '.join(merge)!r}, which is not two tokens that make a third")
    parts: dict[str, Any] = {
        "normalizer": pre.normalizer,
        "pre_tokenizer": pre.as_json(),
        "post_processor": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre.ignores_merges,
            "vocab": ids,
            "merges": merges,
        },
    }
    return vocabulary, parts, pre.adds_bos and vocabulary.bos_id is not None
