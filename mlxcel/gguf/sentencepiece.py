"""'llama' vocabularies: SentencePiece's byte-pair encoding, whose scores say what is merged first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlxcel.gguf.metadata import Metadata
from mlxcel.gguf.refusal import refusal
from mlxcel.gguf.vocabulary import BYTE, Vocabulary, read_vocabulary

Json = dict[str, Any]

SPACE = "▁"


def read_sentencepiece(metadata: Metadata) -> tuple[Vocabulary, Json, bool]:
    """The vocabulary, the parts of tokenizer.json, and whether BOS is added unless the file says otherwise.

    Errors: ModelError if the scores are missing or say nothing.
    """
    vocabulary = read_vocabulary(metadata, bos=1, eos=2, unknown=0)
    scores = metadata.numbers("tokenizer.ggml.scores")
    if len(scores) != len(vocabulary.tokens):
        raise refusal(f"has {len(vocabulary.tokens)} tokens, but {len(scores)} scores")
    if np.all(scores == scores[0]):
        raise refusal("gives all tokens the same score, so nothing says which pieces are merged first")
    has_prefix = metadata.flag("tokenizer.ggml.add_space_prefix", default=True)
    prefix: Json = {"type": "Prepend", "prepend": SPACE}
    spaces: Json = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    strip: Json = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders: list[Json] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    parts: Json = {
        "normalizer": {"type": "Sequence", "normalizers": [prefix, spaces] if has_prefix else [spaces]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [*decoders, strip] if has_prefix else decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": vocabulary.text(vocabulary.unknown_id),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": BYTE in vocabulary.types,
            "ignore_merges": False,
            "vocab": vocabulary.ids,
            "merges": list(_merges(vocabulary, scores.tolist())),
        },
    }
    return vocabulary, parts, True


def _merges(vocabulary: Vocabulary, scores: list[float]) -> Iterator[tuple[str, str]]:
    """Every pair of tokens that makes a token, highest score first; longer left parts first among equals."""
    ids = vocabulary.ids
    pairs = [
        (-scores[id], -cut, token[:cut], token[cut:])
        for token, id in ids.items()
        if id not in vocabulary.atomic_ids
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    for _, _, left, right in sorted(pairs, key=lambda pair: pair[:2]):
        yield left, right
