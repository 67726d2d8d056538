"""The nouns: what a client asked (Request), how far it is (Sequence), and what happened to it (Event).

Pure values, known to every room. A Request crosses from the event loop to the engine thread and is never
changed; a Sequence belongs to the engine thread; an Event crosses back.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mlxcel.errors import MlxcelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FinishReason(str, Enum):
    """How a sequence ended. Cancelled is an ending like the others, not an error.

    TOOL_CALLS is a STOP whose text calls functions; the engine, which sees no text, never says it.
    """

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    ERROR = "error"


class State(Enum):
    """Where a sequence is. QUEUED may come again after DECODING: a row that outgrew its booking waits."""

    QUEUED = "queued"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    FINISHED = "finished"


class Priority(str, Enum):
    """The lane in which a request waits for its prefill."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True)
class SamplingParams:
    """How one row picks its tokens, and which of them end it. The defaults leave the model's distribution as it is.

    `sampling/` documents what each does and in which order. `temperature` 0 is greedy; `top_k` 0, `top_p` 1,
    `min_p` 0, `typical_p` 1 and `xtc_probability` 0 filter nothing; `repetition_penalty` 1, the other penalties
    and `dry_multiplier` 0 change nothing. The same `seed` gives the same text, alone and in any batch; it is
    always set, by the caller or at random.

    Units: `dry_penalty_last_n` tokens, None is all of them; `n_logprobs` alternatives reported with each token
    (0 to 20), None reports nothing.
    """

    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    xtc_exempt_ids: frozenset[int] = frozenset()
    """Tokens that XTC never removes, beside the end tokens: line ends, say."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[tuple[int, ...], ...] = ()
    """Each a sequence of token ids across which no repetition is counted."""
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    min_tokens: int = 0
    """No end token is picked before so many were generated."""
    stop_token_ids: frozenset[int] = frozenset()
    """End tokens beside the model's own; they end a row even if it ignores those."""
    n_logprobs: int | None = None


class Constraint(Protocol):
    """What a row's next token may be, token by token: a grammar, say. Whatever it raises ends that row alone.

    Owner: the engine thread, once its request is submitted. Each request needs its own.
    """

    def mask(self) -> NDArray[np.uint32] | None:
        """The tokens allowed next; None allows all.

        Shapes: [ceil(V / 32)], token `t` at bit `t % 32` of word `t // 32`; tokens beyond its end are forbidden.
        Never called once the row ended.
        """

    def advance(self, token: int) -> None:
        """Take the row's next token. Never called with a token that ends the row (end of sequence, stop ids)."""

    @property
    def is_complete(self) -> bool:
        """Nothing may follow: the row ends with STOP, its last token part of the text."""


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
    priority: Priority = Priority.NORMAL
    constraint: Constraint | None = None
    n_prompt_logprobs: int | None = None
    """Alternatives reported with each prompt token but the first (0 to 20); None reports nothing."""


@dataclass(eq=False)
class Sequence:
    """A request inside the engine. Owner: the engine thread.

    `tokens` holds the prompt and what was generated; `n_prefilled` counts those whose keys and values are
    cached. The last token is never prefilled: it is the first input of the decode step. `n_launched` counts
    decode steps sent to the device, of which the newest may not be read yet. `end_ids` are the tokens that end it.
    `group` holds the sequences that were submitted with it to answer the same prompt, itself among them, until they
    end; a lone sequence has none. `prompt_logprobs` gathers what is reported with its first token. `n_computed` counts
    tokens that were prefilled for it, none of which it took over; `n_from_prefix` those of its prompt that a prefix
    had; `started_s` is when it first left the queue, in the monotonic seconds of the scheduler's turns.
    """

    request: Request
    state: State = State.QUEUED
    tokens: list[int] = field(default_factory=list)
    n_prefilled: int = 0
    n_launched: int = 0
    n_generated: int = 0
    n_computed: int = 0
    n_from_prefix: int = 0
    started_s: float | None = None
    end_ids: frozenset[int] = frozenset()
    group: list[Sequence] = field(default_factory=list, repr=False)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def n_to_prefill(self) -> int:
        """Tokens still to prefill: all but the last."""
        return len(self.tokens) - 1 - self.n_prefilled

    @property
    def n_cached(self) -> int:
        """Tokens whose keys and values are cached, or will be when the step under way is done."""
        if self.state is State.DECODING:
            return len(self.tokens) - 1 + self.n_launched - self.n_generated
        return self.n_prefilled

    @property
    def measures_prompt(self) -> bool:
        """Its prefill makes log-probabilities that were asked for and are not reported yet."""
        return self.request.n_prompt_logprobs is not None and self.n_generated == 0

    def requeue(self) -> None:
        """Forget the cache and start over from the tokens so far, as if they were the prompt."""
        self.state = State.QUEUED
        self.n_prefilled = 0
        self.n_launched = self.n_generated
        if self.n_generated == 0:
            self.n_from_prefix = 0
        self.prompt_logprobs.clear()


class TokenLogprobs(NamedTuple):
    """Natural logarithms of probabilities in the model's own distribution, each at most 0.

    `top` has the most likely tokens as (id, logprob), most likely first; the chosen one need not be among them.
    """

    chosen: float
    top: tuple[tuple[int, float], ...]


class Sampled(NamedTuple):
    """What one step made of one row. `is_last`: its constraint is complete with this token."""

    token: int
    logprobs: TokenLogprobs | None = None
    is_last: bool = False


class Start(NamedTuple):
    """How a sequence came to its first token: when it left the queue (monotonic), and how many of its prompt's tokens
    were computed, or taken over from a prefix.
    """

    left_queue_s: float
    n_computed: int
    n_from_prefix: int = 0


class Event(NamedTuple):
    """What one step did to one sequence: a token, or its end, or both. The end comes exactly once.

    A token that comes with STOP is an end token, which has no text. A row whose constraint is complete gets its
    last token in an event of its own, and then the end without a token.
    """

    request_id: str
    token: int | None
    finish: FinishReason | None = None
    error: MlxcelError | None = None
    logprobs: TokenLogprobs | None = None
    """With every token, if the request asked for them."""
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """With the first token, if the request asked for them: one for each prompt token but the first."""
    start: Start | None = None
    """With the first token."""
