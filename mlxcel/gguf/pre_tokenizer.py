"""How text is split before byte-pair merging, by the name in `tokenizer.ggml.pre`, as tokenizer.json says it.

Source: the pre-tokenizers of the models' own tokenizer.json files, and llama.cpp's `llama-vocab.cpp` for the
names and for 'default'. A name that is not here is refused, for a wrong split gives wrong ids without any error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlxcel.gguf.refusal import USE_MLX_VERSION, refusal

Json = dict[str, Any]

BYTE_LEVEL: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_GPT4_TAIL}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_GPT4_TAIL}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """`ignores_merges`: a piece that is a token as a whole is taken without merging. `adds_bos`: unless the
    file says otherwise."""

    splits: tuple[Json, ...]
    ignores_merges: bool = False
    adds_bos: bool = False
    normalizer: Json | None = None

    def as_json(self) -> Json:
        return {"type": "Sequence", "pretokenizers": [*self.splits, BYTE_LEVEL]}


def _split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_DIGITS: Json = {"type": "Digits", "individual_digits": True}
_PLAIN = PreTokenizer((_split(_GPT2),))
_DIGIT_BY_DIGIT = PreTokenizer((_DIGITS, _split(_GPT2)))
_LLAMA3_MERGING = PreTokenizer((_split(_LLAMA3),))
_LLAMA3_WHOLE = PreTokenizer((_split(_LLAMA3),), ignores_merges=True, adds_bos=True)
_QWEN = PreTokenizer((_split(_QWEN2),), normalizer={"type": "NFC"})

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer(
        (_split(r"[\p{P}\$\+<=>\^~\|]+"), _split(_GPT2), _split(r"\p{N}+"), _split("[0-9][0-9][0-9]"))
    ),
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "phi-2"), _PLAIN),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGIT_BY_DIGIT
    ),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3"), _LLAMA3_WHOLE),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _LLAMA3_MERGING),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN),
    "tekken": PreTokenizer((_split(_TEKKEN),), ignores_merges=True, adds_bos=True),
    "deepseek-coder": PreTokenizer(
        (
            _split("[\r\n]"),
            _split(r"\s?\p{L}+"),
            _split(r"\s?\p{P}+"),
            _split("[一-龥ࠀ-一가-퟿]+"),
            _DIGITS,
        )
    ),
}


def pre_tokenizer(name: str) -> PreTokenizer:
    if name not in PRE_TOKENIZERS:
        raise refusal(
            f"has the unknown pre-tokenizer {name!r} ('tokenizer.ggml.pre'); known are "
            f"{', '.join(sorted(PRE_TOKENIZERS))}",
            USE_MLX_VERSION,
        )
    return PRE_TOKENIZERS[name]
