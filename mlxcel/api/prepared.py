"""What the tokenizer's thread makes of a request, ready for the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlxcel.core import Constraint, SamplingParams
from mlxcel.model.tokenizer import Tokenizer
from mlxcel.text.logprobs import LogprobStream
from mlxcel.text.reader import PlainReader, Reader


@dataclass(frozen=True)
class Prepared:
    """One answer to make: its prompt's token ids, how it is picked, and what reads it.

    `constraint`, `reader` and `logprobs` belong to this answer alone. `echoes`: the prompt is shown before it. `path`
    names the prompt in errors, where the request has several.
    """

    prompt: list[int]
    sampling: SamplingParams
    constraint: Constraint | None = None
    reader: Reader = field(default_factory=PlainReader)
    logprobs: LogprobStream | None = None
    echoes: bool = False
    path: str | None = None


def new_logprobs(sampling: SamplingParams, tokenizer: Tokenizer, echoed: str = "") -> LogprobStream | None:
    """What reports an answer's tokens, if it is asked for. Owner: the tokenizer's thread."""
    return None if sampling.n_logprobs is None else LogprobStream(tokenizer.vocabulary.bytes_of, echoed)
