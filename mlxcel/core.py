"""The nouns: what a client asked (Request), how far it is (Sequence), and what happened to it (Event).

Pure values, known to every room. A Request crosses from the event loop to the engine thread and is never
changed; a Sequence belongs to the engine thread; an Event crosses back.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from mlxcel.errors import MlxcelError


class FinishReason(str, Enum):
    """How a sequence ended. Cancelled is an ending like the others, not an error."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class State(Enum):
    """Where a sequence is. QUEUED may come again after DECODING: a row that outgrew its booking waits."""

    QUEUED = "queued"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    FINISHED = "finished"


@dataclass(frozen=True)
class SamplingParams:
    """How one row picks its tokens. The defaults leave the model's distribution as it is.

    `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 and `min_p` 0 filter nothing. The same `seed` gives
    the same text, alone and in any batch; it is always set, by the caller or at random.
    """

    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True)
class Request:
    """One sequence to generate: `prompt` token ids, at most `max_tokens` new ones."""

    id: str
    prompt: SequenceOf[int]
    max_tokens: int
    sampling: SamplingParams
    ignore_eos: bool = False
    is_open_ended: bool = False
    """The client gave no limit: `max_tokens` is the rest of the context, more than will likely be used."""


@dataclass(eq=False)
class Sequence:
    """A request inside the engine. Owner: the engine thread.

    `tokens` holds the prompt and what was generated; `n_prefilled` counts those whose keys and values are
    cached. The last token is never prefilled: it is the first input of the decode step. `n_launched` counts
    decode steps sent to the device, of which the newest may not be read yet.
    """

    request: Request
    state: State = State.QUEUED
    tokens: list[int] = field(default_factory=list)
    n_prefilled: int = 0
    n_launched: int = 0
    n_generated: int = 0

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def n_to_prefill(self) -> int:
        """Tokens still to prefill: all but the last."""
        return len(self.tokens) - 1 - self.n_prefilled

    def requeue(self) -> None:
        """Forget the cache and start over from the tokens so far, as if they were the prompt."""
        self.state = State.QUEUED
        self.n_prefilled = 0
        self.n_launched = self.n_generated


class Event(NamedTuple):
    """What one step did to one sequence: a token, or its end, or both. The end comes exactly once."""

    request_id: str
    token: int | None
    finish: FinishReason | None = None
    error: MlxcelError | None = None
