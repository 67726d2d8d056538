"""Responses that can be asked for again by their id, in memory and bounded: the oldest go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from mlxcel.errors import UnknownResponse

MOST_RESPONSES = 1024
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class KeptResponse:
    """A response as it was sent, the conversation up to its end as chat templates take it, and its own input."""

    body: dict[str, Any]
    messages: Sequence[dict[str, Any]]
    input_items: Sequence[dict[str, Any]] = ()


class ResponseArchive:
    """Keeps the newest responses. Owner: the event loop's thread."""

    def __init__(self, *, most: int = MOST_RESPONSES, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._n_bytes = 0
        self._kept: OrderedDict[str, tuple[KeptResponse, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, response: KeptResponse) -> None:
        """Keep a finished response, in place of the oldest where there is no room.

        One that is larger than all the room is not kept.
        """
        n_bytes = len(msgspec.json.encode([response.body, response.messages, response.input_items]))
        if n_bytes > self._most_bytes:
            return
        self._kept[response.body["id"]] = response, n_bytes
        self._n_bytes += n_bytes
        while len(self._kept) > self._most or self._n_bytes > self._most_bytes:
            _, (_, n_freed) = self._kept.popitem(last=False)
            self._n_bytes -= n_freed

    def get(self, response_id: str, param: str) -> KeptResponse:
        """Errors: UnknownResponse naming `param` for one that never was, was deleted, or gave way."""
        if response_id not in self._kept:
            raise UnknownResponse(
                f"no response {response_id!r} is kept here; nothing was done. The newest {self._most} are, until the "
                "server stops",
                param=param,
            )
        return self._kept[response_id][0]

    def delete(self, response_id: str) -> None:
        """Errors: UnknownResponse."""
        self.get(response_id, "response_id")
        _, n_bytes = self._kept.pop(response_id)
        self._n_bytes -= n_bytes
