"""The server's parts as the routes see them, and the phase it is in.

Owner: the event loop's thread. It turns what the tokenizer's thread prepared into Choices: defaults, limits,
submission; it knows no HTTP.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from mlxcel import __version__
from mlxcel.api.access_log import spent_s
from mlxcel.api.choices import Choices
from mlxcel.api.generation import Generation
from mlxcel.api.prepared import Prepared
from mlxcel.api.sampling import sampling_params
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.core import Priority, Request, SamplingParams
from mlxcel.engine.loop import Engine
from mlxcel.engine.tickets import Ticket, Tickets
from mlxcel.errors import (
    ContextLengthExceeded,
    EngineDead,
    InputError,
    NotReady,
    UnknownModel,
    all_places_taken,
    request_timed_out,
)
from mlxcel.grammar.compiler import Grammars, NoGrammars
from mlxcel.metrics import ServerMetrics
from mlxcel.model.tokenizer import Tokenizer
from mlxcel.text.stream import TextStream

T = TypeVar("T")

CONTEXT_OF_TEXT = 8
"""Tokens of a prompt that decide how the text after it begins: a space, the rest of a character."""


class Phase(str, Enum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    BROKEN = "broken"


@dataclass(frozen=True)
class ServedModel:
    """What is being served.

    `sampling` is what a request that says nothing gets; its seed is never used. Units: `context_tokens` bounds prompt
    and answer together.
    """

    id: str
    context_tokens: int
    created: int
    sampling: SamplingParams


@dataclass(frozen=True)
class RowsServed:
    """How many sequences are decoded together. `is_exact`: the model's batched path gives what rows give alone."""

    most: int
    is_exact: bool

    def __str__(self) -> str:
        if not self.is_exact:
            return "served one row at a time: its batched path does not give the same text"
        return "served one row at a time" if self.most == 1 else f"served up to {self.most} rows at a time"


class Service:
    """The engine with everything around it that a request needs."""

    def __init__(
        self, model: ServedModel, engine: Engine, *, n_places: int | None, request_timeout_s: float | None = None
    ) -> None:
        self.model = model
        self._n_places = n_places
        self._limit_s = request_timeout_s
        self._n_tokenizing = 0
        self.tokenizing_started_s: float | None = None
        """When the call began that the tokenizer's thread is in, in monotonic seconds; None between calls."""
        self.engine = engine
        self.metrics = ServerMetrics(
            lambda: engine.stats, lambda: self._n_tokenizing, version=__version__, model_id=model.id
        )
        self.tickets = Tickets(engine.submit, engine.cancel, self.metrics, limit_s=request_timeout_s)
        self.is_draining = False
        self.tokenizer: Tokenizer | None = None
        self.grammars: Grammars = NoGrammars("the model is still loading")
        self.n_vocabulary = 0
        self.rows: RowsServed | None = None
        """These are set by the engine's build before the engine is ready."""
        self._tokenizing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlxcel-tokenizer")

    @property
    def phase(self) -> Phase:
        if self.engine.ended.is_set():
            return Phase.BROKEN
        if self.is_draining:
            return Phase.DRAINING
        return Phase.READY if self.engine.ready.is_set() else Phase.LOADING

    def check_serving(self) -> None:
        """Errors: NotReady while loading or draining, EngineDead once the engine is gone."""
        if self.phase is Phase.LOADING:
            raise NotReady("the model is still loading; try again shortly", retry_after_s=2)
        if self.phase is Phase.DRAINING:
            raise NotReady("the server is stopping and takes no new requests", retry_after_s=5)
        if self.phase is Phase.BROKEN:
            raise EngineDead("the engine is gone; the server is about to exit and be started again")

    def check_model(self, model_id: str | None) -> None:
        """Errors: UnknownModel for any id but the served one."""
        if model_id is not None and model_id != self.model.id:
            raise UnknownModel(
                f"the model {model_id!r} is not served here; this server serves {self.model.id!r}",
                param="model",
            )

    def check_room(self) -> None:
        """Errors: ServerBusy when every place is taken, which says when to come back."""
        if self._n_places is not None and len(self.tickets) + self._n_tokenizing >= self._n_places:
            raise all_places_taken(self._n_places, retry_after_s=self.tickets.returns.after_s(time.monotonic()))

    async def tokenize(self, call: Callable[[Tokenizer], T], *, prompt: str = "", param: str | None = None) -> T:
        """Run a call of the tokenizer or the grammars on the tokenizer's thread.

        `prompt` is what it tokenises to generate from, and `param` the field that has it. Cancelled before its turn,
        the call never runs.

        Errors: ContextLengthExceeded for a prompt that is hopelessly long, ServerBusy when every place is taken,
        RequestTimedOut.
        """
        tokenizer = self._loaded_tokenizer
        if (fewest := tokenizer.fewest_tokens(prompt)) > self.model.context_tokens:
            raise ContextLengthExceeded(
                f"the prompt has at least {fewest} tokens, but the model's context holds {self.model.context_tokens} "
                "in all; nothing was done. Shorten the prompt",
                param=param,
            )
        self.check_room()
        self._n_tokenizing += 1
        try:
            loop = asyncio.get_running_loop()
            return await self.in_time(loop.run_in_executor(self._tokenizing, self._timed, call, tokenizer))
        finally:
            self._n_tokenizing -= 1

    def _timed(self, call: Callable[[Tokenizer], T], tokenizer: Tokenizer) -> T:
        """Owner: the tokenizer's thread."""
        self.tokenizing_started_s = time.monotonic()
        try:
            return call(tokenizer)
        finally:
            self.tokenizing_started_s = None

    async def in_time(self, work: Awaitable[T]) -> T:
        """The work's result, which is given up when the time is over that the whole request may take.

        Errors: RequestTimedOut, and whatever the work raises.
        """
        if self._limit_s is None:
            return await work
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait([task], timeout=max(0.0, self._limit_s - spent_s()))
        finally:
            task.cancel()
        if not done:
            raise request_timed_out(self._limit_s)
        return task.result()

    def sampling(self, fields: GenerationFields, tokenizer: Tokenizer) -> SamplingParams:
        """How the request's tokens are picked, over the server's defaults.

        Owner: the tokenizer's thread.
        Errors: InputError for a token id that is not in the vocabulary.
        """
        return sampling_params(fields, self.model.sampling, tokenizer, self.n_vocabulary)

    async def generate(
        self,
        groups: Sequence[Sequence[Prepared]],
        fields: GenerationFields,
        *,
        priority: Priority = Priority.NORMAL,
    ) -> Choices:
        """Submit answers to make, those to one prompt in a group; returns once the engine has taken all of them.

        More tokens than the context has room for are refused. Without a limit of the client's, at most
        `default_tokens` are generated where the context has room for them, and without that all the room there is.

        Errors: InputError for an empty prompt, or more choices than there are places; ContextLengthExceeded;
        ServerBusy. Nothing goes on then.
        """
        self.check_serving()
        requests = [[self._request(one, fields, priority) for one in group] for group in groups]
        n_choices = sum(map(len, groups))
        if self._n_places is not None and n_choices > self._n_places:
            raise InputError(
                f"{n_choices} answers at once were asked for, but this server has {self._n_places} places (running and "
                "waiting); nothing was done. Ask for fewer, or start it with a larger --max-queue-depth",
                param="n" if len(groups) == 1 else "prompt",
            )
        opened = [self.tickets.open_group(group, spent_s=spent_s()) for group in requests]
        tickets = [ticket for group in opened for ticket in group]
        try:
            for ticket in tickets:
                await ticket.accepted()
        except BaseException:
            for ticket in tickets:
                ticket.cancel()
            raise
        self.metrics.prompt_tokens.inc(sum(len(group[0].prompt) for group in groups))
        return Choices(
            [
                [self._generation(*one, fields) for one in zip(tickets, group, strict=True)]
                for tickets, group in zip(opened, groups, strict=True)
            ]
        )

    def _generation(self, ticket: Ticket, prepared: Prepared, fields: GenerationFields) -> Generation:
        after = prepared.prompt[-CONTEXT_OF_TEXT:] if prepared.echoes else []
        text = TextStream(self._loaded_tokenizer.detokenizer(), fields.stops, after)
        return Generation(ticket, text, prepared.reader, prepared.logprobs, is_prompt_only=fields.limit == 0)

    @property
    def _loaded_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise NotReady("the model is still loading; try again shortly", retry_after_s=2)
        return self.tokenizer

    def _request(self, prepared: Prepared, fields: GenerationFields, priority: Priority) -> Request:
        context, prompt, limit = self.model.context_tokens, prepared.prompt, fields.limit
        room = context - len(prompt)
        path = prepared.path or fields.prompt_field
        if not prompt:
            raise InputError(
                f"{path} is empty and this model's tokenizer adds no token to it; nothing was done",
                param=path,
            )
        if room < (limit or 1):
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt)} tokens"
                + (f" and max_tokens is {limit}" if limit else "")
                + f", but the model's context holds {context} in all; nothing was done. Shorten the "
                "prompt or ask for fewer tokens",
                param="max_tokens" if limit and room > 0 else path,
            )
        # A prompt is measured on the way to its first token, so that one is made even where none is wanted.
        wanted = min(fields.default_tokens or room, room) if limit is None else limit or 1
        return Request(
            id=secrets.token_hex(12),
            prompt=prompt,
            max_tokens=wanted,
            is_open_ended=limit is None and fields.default_tokens is None,
            ignore_eos=bool(fields.ignore_eos),
            sampling=prepared.sampling,
            priority=priority,
            constraint=prepared.constraint,
            n_prompt_logprobs=fields.n_prompt_logprobs,
        )

    def close(self) -> None:
        self._tokenizing.shutdown(wait=False, cancel_futures=True)


def now_s() -> int:
    """Wall-clock seconds, as `created` fields want them."""
    return int(time.time())
