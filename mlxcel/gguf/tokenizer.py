"""A GGUF file's tokenizer as tokenizer.json and tokenizer_config.json, the files of Hugging Face's tokenizers.

The llama family has two kinds, 'gpt2' (byte_level.py) and 'llama' (sentencepiece.py); others are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlxcel.gguf.byte_level import read_byte_level
from mlxcel.gguf.metadata import Metadata
from mlxcel.gguf.refusal import USE_MLX_VERSION, refusal
from mlxcel.gguf.sentencepiece import read_sentencepiece
from mlxcel.gguf.vocabulary import Vocabulary

Json = dict[str, Any]

_KINDS = {"gpt2": read_byte_level, "llama": read_sentencepiece}


@dataclass(frozen=True)
class TokenizerFiles:
    """The contents of the two files, and the vocabulary for what other files say of it."""

    tokenizer: Json
    config: Json
    vocabulary: Vocabulary


def read_tokenizer(metadata: Metadata) -> TokenizerFiles:
    """Errors: ModelError for an unknown kind, and for anything that is missing or contradicts itself."""
    kind = metadata.text("tokenizer.ggml.model")
    if kind not in _KINDS:
        raise refusal(
            f"has a tokenizer of the kind {kind!r} ('tokenizer.ggml.model'); only {', '.join(map(repr, _KINDS))} "
            "can be imported",
            USE_MLX_VERSION,
        )
    vocabulary, parts, adds_bos = _KINDS[kind](metadata)
    bos = _framing_id(metadata, "bos", vocabulary.bos_id, default=adds_bos)
    eos = _framing_id(metadata, "eos", vocabulary.eos_id, default=False)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added_tokens(),
        **parts,
        "post_processor": _post_processor(vocabulary, bos, eos, parts["post_processor"]),
    }
    config: Json = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": vocabulary.text(vocabulary.bos_id),
        "eos_token": vocabulary.text(vocabulary.eos_id),
        "unk_token": vocabulary.text(vocabulary.unknown_id),
        "pad_token": vocabulary.text(vocabulary.padding_id),
        "add_bos_token": bos is not None,
        "add_eos_token": eos is not None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata.count("llama.context_length"),
    }
    if template := _chat_template(metadata):
        config["chat_template"] = template
    return TokenizerFiles(tokenizer, config, vocabulary)


def _framing_id(metadata: Metadata, name: str, id: int | None, *, default: bool) -> int | None:
    key = f"tokenizer.ggml.add_{name}_token"
    if not metadata.flag(key, default=default):
        return None
    if id is None:
        raise refusal(f"has {key!r}, but no 'tokenizer.ggml.{name}_token_id'")
    return id


def _post_processor(vocabulary: Vocabulary, bos: int | None, eos: int | None, plain: Json | None) -> Json | None:
    """`plain`, followed by what puts `bos` before and `eos` after each text."""
    if bos is None and eos is None:
        return plain

    def special(id: int | None, type_id: int) -> list[Json]:
        return [] if id is None else [{"SpecialToken": {"id": vocabulary.tokens[id], "type_id": type_id}}]

    def framed(sequence: str, type_id: int) -> list[Json]:
        middle = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*special(bos, type_id), middle, *special(eos, type_id)]

    template = {
        "type": "TemplateProcessing",
        "single": framed("A", 0),
        "pair": [*framed("A", 0), *framed("B", 1)],
        "special_tokens": {
            vocabulary.tokens[id]: {"id": vocabulary.tokens[id], "ids": [id], "tokens": [vocabulary.tokens[id]]}
            for id in (bos, eos)
            if id is not None
        },
    }
    return {"type": "Sequence", "processors": [plain, template]} if plain else template


def _chat_template(metadata: Metadata) -> str | list[Json] | None:
    """One template, or several by name, as tokenizer_config.json has them."""
    prefix = "tokenizer.chat_template"
    named = {key.removeprefix(f"{prefix}."): metadata.text(key) for key in metadata if key.startswith(f"{prefix}.")}
    default = metadata.text(prefix) if prefix in metadata else None
    if not named:
        return default
    if default is not None:
        named = {"default": default} | named
    return [{"name": name, "template": template} for name, template in named.items()]
