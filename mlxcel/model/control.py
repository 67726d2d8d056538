"""Control tokens of a chat: those that the template wrote, and never those that a client spelled out.

A control token is one that the tokenizer declares special, or another marker of its own that the chat template writes.
Where a client's text spells one, the conversation is rendered twice: as it is, and with that text broken up by a
private character. Whatever is then still whole was written by the template. If the two renderings differ in more than
the breaks, the template read the text that was broken, and the two cannot be kept apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from functools import cached_property
from typing import Any

from mlxcel.errors import InputError

Message = dict[str, Any]
"""A chat message as templates take it: role and content at least."""

Render = Callable[[SequenceOf[Message], Mapping[str, Any]], str]

FIRST_PRIVATE = "\U000f0000"
"""Planes 15 and 16 are for private use: no text that means something to a model has their characters."""
BREAK = "\U0010fffd"

_MARKER = re.compile(r"[^\w\s]\S*\w\S*[^\w\s]")
_BETWEEN = re.compile(r"(?<=\S)(?=\S)")


class ControlTokens:
    """The control tokens of one tokenizer; `template` is its chat template's source, None where it has no source.

    `markup` are those that mark thinking and calls: in an assistant's message a template may read them.
    Owner: the tokenizer's thread.
    """

    def __init__(self, backend: Any, template: str | None, *, markup: Iterable[str | None] = ()) -> None:
        self._backend = backend
        added = sorted(backend.get_added_tokens_decoder().items()) if backend is not None else []
        self._ids = {token.content: token_id for token_id, token in added}
        special = {token.content for _, token in added if token.special}
        markers = {text for text in self._ids if _MARKER.fullmatch(text) and (template is None or text in template)}
        self._markup = _any_of((markers - special) | (self._ids.keys() & set(markup)))
        self._control = _any_of(special | markers)
        # A tokenizer looks for such tokens in normalised text, so that other text may spell them too.
        is_normalized = any(token.normalized for _, token in added if token.content in special | markers)
        self._normalizer = backend.normalizer if is_normalized else None
        self._private = {text: chr(ord(FIRST_PRIVATE) + index) for index, text in enumerate(special | markers)}

    def warm_up(self) -> None:
        """Make the second tokenizer, which holds the interpreter for a while."""
        if self._backend is not None:
            self._apart  # noqa: B018 - made when it is read

    def first_spelled(self, values: SequenceOf[Any]) -> int | None:
        """Which of some JSON values is the first that spells a control token."""
        return next((index for index, value in enumerate(values) if self._is_spelled(value)), None)

    def encode_text(self, text: str) -> list[int] | None:
        """Token ids of a text in which every control token is data; None where that cannot be had."""
        return self._encode(text) if self._backend is not None and not _has_private(text) else None

    def encode_chat(
        self, messages: SequenceOf[Message], variables: Mapping[str, Any], render: Render
    ) -> list[int] | None:
        """Token ids of a conversation in which what the messages and variables spell is data; None as above.

        Errors: the InputError that `render` raises for the conversation as it is.
        """
        plain = render(messages, variables)
        if self._backend is None or _has_private(plain):
            return None
        for keeps_markup in (False, True):
            try:
                broken = [self._broken_message(message, keeps_markup=keeps_markup) for message in messages]
                marked = render(broken, {name: self._broken(value) for name, value in variables.items()})
            except (InputError, RecursionError):
                continue
            if marked.replace(BREAK, "") == plain:
                return self._encode(self._control.sub(lambda found: self._private[found[0]], marked).replace(BREAK, ""))
        return None

    def _encode(self, text: str) -> list[int] | None:
        """Token ids of a text that has private characters where a control token is meant."""
        backend, own_ids, spelled = self._apart
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return None if spelled.intersection(ids) else [own_ids.get(token, token) for token in ids]

    @cached_property
    def _apart(self) -> tuple[Any, dict[int, int], frozenset[int]]:
        """A tokenizer that knows control tokens by private characters alone; its ids of added tokens, and ours; and
        the ids by which its vocabulary would still have a control token's own text."""
        description = json.loads(self._backend.to_str())
        description.update(padding=None, truncation=None)
        for token in description["added_tokens"]:
            token["content"] = self._private.get(token["content"], token["content"])
        backend = type(self._backend).from_str(json.dumps(description))
        own_ids = {backend.token_to_id(self._private.get(text, text)): own_id for text, own_id in self._ids.items()}
        spelled = (backend.token_to_id(text) for text in self._private)
        return backend, own_ids, frozenset(token for token in spelled if token is not None)

    def _is_spelled(self, value: Any) -> bool:
        return any(map(self._spells, _texts(value)))

    def _spells(self, text: str) -> bool:
        if self._control.search(text):
            return True
        return self._normalizer is not None and bool(self._control.search(self._normalizer.normalize_str(text)))

    def _broken_message(self, message: Message, *, keeps_markup: bool) -> Message:
        """In the assistant's own turns, markup may be left for the template to read."""
        keeps_markup = keeps_markup and message.get("role") == "assistant"
        return {name: self._broken(value, keeps_markup=keeps_markup) for name, value in message.items()}

    def _broken(self, value: Any, *, keeps_markup: bool = False) -> Any:
        if isinstance(value, str):
            return self._broken_text(value, keeps_markup=keeps_markup) if self._spells(value) else value
        if isinstance(value, dict):
            return {self._broken(key): self._broken(item, keeps_markup=keeps_markup) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._broken(item, keeps_markup=keeps_markup) for item in value]
        return value

    def _broken_text(self, text: str, *, keeps_markup: bool) -> str:
        # All of it, not only what is whole: a template that cuts a part out could join the rest.
        if not keeps_markup:
            text = self._control.sub(lambda found: found[0][0] + BREAK + found[0][1:], text)
            return _BETWEEN.sub(BREAK, text)
        kept = [found[0] for found in self._markup.finditer(text)]
        parts = [self._broken_text(part, keeps_markup=False) for part in self._markup.split(text)]
        return "".join(part + markup for part, markup in zip(parts, [*kept, ""], strict=True))


def _any_of(texts: set[str]) -> re.Pattern[str]:
    """The longest of some texts at a place, as tokenizers match them; of none, what never matches."""
    longest_first = sorted((text for text in texts if len(text) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _texts(value: Any) -> Iterator[str]:
    """Every string of a JSON value, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += one.keys()
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one


def _has_private(text: str) -> bool:
    return any(char >= FIRST_PRIVATE for char in text)
