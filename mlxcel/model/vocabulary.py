"""What each token stands for, in bytes: a token may be part of a character, so that only bytes tell it exactly."""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from mlxcel.model.door import BPEStreamingDetokenizer, SPMStreamingDetokenizer

MOST_KEPT_BREAKERS = 256
LONGEST_TAIL_TOKENS = 20


class Vocabulary:
    """The bytes of every token id; `encode` turns text to ids without special tokens.

    Owner: made and searched on the tokenizer's thread; `bytes_of` is for any.
    """

    def __init__(self, tokens: Sequence[bytes], encode: Callable[[str], list[int]]) -> None:
        self._tokens = tokens
        self._encode = encode
        self.breakers = lru_cache(MOST_KEPT_BREAKERS)(self._breakers)

    def bytes_of(self, token: int) -> bytes:
        """Nothing for an id that the tokenizer has no token for: vocabularies are padded."""
        return self._tokens[token] if token < len(self._tokens) else b""

    def text_of(self, tokens: Sequence[int]) -> str:
        """Their text, without the beginning of a character that they end with."""
        data = b"".join(map(self.bytes_of, tokens))
        return codecs.getincrementaldecoder("utf-8")("replace").decode(data)

    @cached_property
    def line_ends(self) -> frozenset[int]:
        """Tokens that are line ends and nothing else."""
        return frozenset(token for token, data in enumerate(self._tokens) if data and not data.strip(b"\r\n"))

    def _breakers(self, text: str) -> tuple[tuple[int, ...], ...]:
        """Every sequence of tokens that may write `text`, with whatever stands before it in the first of them and
        after it in the last.

        Source: llama.cpp's get_overlapping_token_sequences, with its bound on the tokens after the first.
        """
        wanted = text.encode()
        holding = {token for token, data in enumerate(self._tokens) if wanted in data}
        found: set[tuple[int, ...]] = {(token,) for token in holding}
        for n_shared in range(1, len(wanted)):
            if tail := self._tail(wanted[n_shared:]):
                found |= {(token, *tail) for token in self._ending_in(wanted[:n_shared]) if token not in holding}
        return tuple(sorted(found))

    @cached_property
    def _backwards(self) -> list[tuple[bytes, int]]:
        """Each token's bytes from their end, in order: those of one ending stand together."""
        return sorted((data[::-1], token) for token, data in enumerate(self._tokens) if data)

    def _ending_in(self, ending: bytes) -> Iterator[int]:
        backwards = ending[::-1]
        for index in range(bisect_left(self._backwards, (backwards, -1)), len(self._backwards)):
            data, token = self._backwards[index]
            if not data.startswith(backwards):
                return
            yield token

    def _tail(self, data: bytes) -> list[int]:
        """The ids of what follows; none where that begins inside a character."""
        try:
            return self._encode(data.decode())[:LONGEST_TAIL_TOKENS]
        except UnicodeDecodeError:
            return []


def read_vocabulary(tokenizer: Any, detokenizer: type[Any]) -> Vocabulary:
    """The vocabulary of a Hugging Face tokenizer; how its tokens are written follows from mlx_lm's detokenizer."""
    names: list[str | None] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    if issubclass(detokenizer, BPEStreamingDetokenizer):
        byte_of = _byte_level_alphabet()
        tokens = [b"".join(byte_of.get(char) or char.encode() for char in name or "") for name in names]
    elif issubclass(detokenizer, SPMStreamingDetokenizer):
        tokens = [_sentencepiece_bytes(name or "") for name in names]
    else:
        tokens = [str(tokenizer.decode([token])).encode() for token in range(len(names))]
    for token, content in tokenizer.added_tokens_decoder.items():
        tokens[token] = str(content).encode()
    return Vocabulary(tokens, lambda text: list(tokenizer.encode(text, add_special_tokens=False)))


def _sentencepiece_bytes(name: str) -> bytes:
    """Source: sentencepiece: a byte token is its value in hex, U+2581 is a space."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes.fromhex(name[3:5])
    return name.replace("\u2581", " ").encode()


def _byte_level_alphabet() -> dict[str, bytes]:
    """The characters that write bytes in a byte-level vocabulary. Source: GPT-2's bytes_to_unicode."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    alphabet = {chr(byte): bytes([byte]) for byte in plain}
    return alphabet | {chr(256 + index): bytes([byte]) for index, byte in enumerate(others)}
