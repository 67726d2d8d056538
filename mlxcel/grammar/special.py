"""A tokenizer for grammars, whose special tokens no text spells. Knows no grammar library: JSON in, JSON out.

llguidance splits text that a grammar forces with the tokenizer itself, which would find the special tokens that the
text spells; and those do not fit the grammar, whose text is data.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any


class SpecialTokens:
    """The special tokens of a tokenizer, end tokens among them, and a copy of it that hides them.

    `tokenizer_json` is the text of a Hugging Face tokenizer.json. `hidden_json` is that of a copy in which each of
    them has a name that nobody can guess, and everything else is as it was. `n_declared` is one more than the largest
    token id.
    """

    def __init__(self, tokenizer_json: str, eos_ids: frozenset[int]) -> None:
        declared = json.loads(tokenizer_json)
        added = declared.get("added_tokens", [])
        vocabulary = declared.get("model", {}).get("vocab", {})
        n_base = len(vocabulary) if isinstance(vocabulary, list) else max(vocabulary.values(), default=-1) + 1
        self.n_declared = int(max([n_base, *(token["id"] + 1 for token in added)]))
        special = [token for token in added if token["special"] or token["id"] in eos_ids]
        self._ids: dict[str, int] = {token["content"]: token["id"] for token in special}
        self._any = re.compile("|".join(map(re.escape, sorted(self._ids, key=len, reverse=True))) or r"(?!)")
        secret = secrets.token_hex(16)
        names = {text: f"{secret}-{token}" for text, token in self._ids.items()}
        for token in special:
            token.update(content=names[token["content"]], special=True)
        _rename(declared.get("model", {}), names)
        self.hidden_json = json.dumps(declared)

    def literal(self, text: str) -> str:
        """A Lark expression for this text, its special tokens as tokens."""
        parts: list[str] = []
        at = 0
        for found in self._any.finditer(text):
            parts += [json.dumps(text[at : found.start()]), f"<[{self._ids[found[0]]}]>"]
            at = found.end()
        return " ".join(part for part in [*parts, json.dumps(text[at:])] if part != '""')


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """Rename tokens where the model itself has them too."""
    vocabulary = model.get("vocab", {})
    if isinstance(vocabulary, list):
        model["vocab"] = [[names.get(text, text), score] for text, score in vocabulary]
    else:
        model["vocab"] = {names.get(text, text): token for text, token in vocabulary.items()}
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
