"""The tokens of a GGUF file with their types and special ids, checked; how they are merged is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlxcel.gguf.metadata import Metadata
from mlxcel.gguf.refusal import refusal

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

_NO_ID = (-1, 2**32 - 1)  # how converters write 'none', signed and unsigned

# Control tokens by which a model ends its turn, whatever the file declares as its one end-of-sequence token.
# Source: the same list in llama.cpp's `llama-vocab.cpp`.
_TURN_ENDS = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<|return|>",
    "<|call|>",
    "<EOT>",
    "[EOT]",
}


@dataclass(frozen=True)
class Vocabulary:
    """`tokens` in the order of their ids, `types` beside them. `end_ids` are all tokens that end a text."""

    tokens: list[str]
    types: list[int]
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    padding_id: int | None
    end_ids: list[int]

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.tokens)}

    @cached_property
    def atomic_ids(self) -> frozenset[int]:
        """Tokens that are never made by merging."""
        declared = {self.unknown_id, self.bos_id, self.eos_id}
        return frozenset(id for id, type in enumerate(self.types) if type in (CONTROL, USER_DEFINED) or id in declared)

    def added_tokens(self) -> list[dict[str, Any]]:
        """Tokens that are found in text before anything is split: special ones and those that users added."""
        return [
            {
                "id": id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": type != USER_DEFINED,
            }
            for id, (token, type) in enumerate(zip(self.tokens, self.types, strict=True))
            if id in self.atomic_ids
        ]

    def text(self, id: int | None) -> str | None:
        return None if id is None else self.tokens[id]


def read_vocabulary(metadata: Metadata, *, bos: int | None, eos: int | None, unknown: int | None) -> Vocabulary:
    """`bos`, `eos` and `unknown` are the ids where the file has none. Errors: ModelError, by key."""
    tokens = metadata.texts("tokenizer.ggml.tokens")
    if not tokens:
        raise refusal("has no tokens in 'tokenizer.ggml.tokens'")
    if "tokenizer.ggml.token_type" in metadata:
        types = [int(number) for number in metadata.numbers("tokenizer.ggml.token_type")]
    else:
        types = [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise refusal(f"has {len(tokens)} tokens, but {len(types)} token types")
    if unknown_types := sorted(set(types) - set(range(NORMAL, BYTE + 1))):
        raise refusal(f"has tokens of the unknown type {unknown_types[0]}")
    seen: dict[str, int] = {}
    for id, token in enumerate(tokens):
        if seen.setdefault(token, id) != id:
            raise refusal(
                f"gives the ids {seen[token]} and {id} the same token {token!r}, which tokenizer.json cannot represent"
            )

    def special(name: str, default: int | None) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        id = metadata.integer(key) if key in metadata else default
        if id in _NO_ID:
            return None
        if id is not None and not 0 <= id < len(tokens):
            raise refusal(f"has {key!r} {id}, but {len(tokens)} tokens")
        return id

    declared = [special("eos", eos), special("eot", None), special("eom", None)]
    known = (id for token, id in seen.items() if token in _TURN_ENDS and types[id] == CONTROL)
    return Vocabulary(
        tokens=tokens,
        types=types,
        bos_id=special("bos", bos),
        eos_id=declared[0],
        unknown_id=special("unknown", unknown),
        padding_id=special("padding", None),
        end_ids=list(dict.fromkeys(id for id in [*declared, *sorted(known)] if id is not None)),
    )
