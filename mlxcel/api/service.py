"""The server's parts as the routes see them, and the phase it is in.

Owner: the event loop's thread. It turns a parsed request into a Generation: defaults, limits, token ids,
submission; it knows no HTTP.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from mlxcel import __version__
from mlxcel.api.generation import Generation
from mlxcel.api.wire.requests import GenerationFields
from mlxcel.core import Constraint, Request, SamplingParams
from mlxcel.engine.loop import Engine
from mlxcel.engine.tickets import Tickets
from mlxcel.errors import ContextLengthExceeded, EngineDead, InputError, NotReady, UnknownModel, all_places_taken
from mlxcel.grammar.compiler import Grammars, NoGrammars
from mlxcel.metrics import ServerMetrics
from mlxcel.model.tokenizer import Tokenizer
from mlxcel.text.reader import Reader
from mlxcel.text.stream import TextStream

T = TypeVar("T")


class Phase(str, Enum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    BROKEN = "broken"


@dataclass(frozen=True)
class SamplingDefaults:
    """What a request that says nothing gets: flags, then the model's generation_config, then these."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True)
class ServedModel:
    """What is being served. Units: `context_tokens` bounds prompt and answer together."""

    id: str
    context_tokens: int
    created: int
    sampling: SamplingDefaults


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

    def __init__(self, model: ServedModel, engine: Engine, *, n_places: int | None) -> None:
        self.model = model
        self._n_places = n_places
        self._n_tokenizing = 0
        self.engine = engine
        self.metrics = ServerMetrics(
            lambda: engine.stats, lambda: self._n_tokenizing, version=__version__, model_id=model.id
        )
        self.tickets = Tickets(engine.submit, engine.cancel, self.metrics)
        self.is_draining = False
        self.tokenizer: Tokenizer | None = None
        self.grammars: Grammars = NoGrammars("the model is still loading")
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
        """Errors: ServerBusy when every place is taken."""
        if self._n_places is not None and len(self.tickets) + self._n_tokenizing >= self._n_places:
            raise all_places_taken(self._n_places)

    async def tokenize(self, call: Callable[[Tokenizer], T], *, text: str = "") -> T:
        """Run a call of the tokenizer or the grammars on the tokenizer's thread; `text` is what it tokenises.

        Cancelled before its turn, it never runs.

        Errors: ContextLengthExceeded for a text that is hopelessly long, ServerBusy when every place is taken.
        """
        tokenizer = self._loaded_tokenizer
        if (fewest := tokenizer.fewest_tokens(text)) > self.model.context_tokens:
            raise ContextLengthExceeded(
                f"the prompt has at least {fewest} tokens, but the model's context holds {self.model.context_tokens} "
                "in all; nothing was generated. Shorten the prompt",
                param="prompt",
            )
        self.check_room()
        self._n_tokenizing += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._tokenizing, call, tokenizer)
        finally:
            self._n_tokenizing -= 1

    async def generate(
        self,
        prompt: list[int],
        fields: GenerationFields,
        limit: int | None,
        *,
        default_tokens: int | None = None,
        constraint: Constraint | None = None,
        reader: Reader | None = None,
    ) -> Generation:
        """Submit a prompt; returns once the engine has taken it.

        `limit` is what the client asked for: more than the context has room for is refused. Without one, at most
        `default_tokens` are generated where the context has room for them, and without that all the room there is.
        `constraint` is this request's own; `reader` tells what the text means.

        Errors: InputError for an empty prompt, ContextLengthExceeded, ServerBusy.
        """
        self.check_serving()
        request = replace(self._request(prompt, fields, limit, default_tokens), constraint=constraint)
        ticket = self.tickets.open(request)
        await ticket.accepted()
        self.metrics.prompt_tokens.inc(len(prompt))
        return Generation(ticket, TextStream(self._loaded_tokenizer.detokenizer(), fields.stops), reader)

    @property
    def _loaded_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise NotReady("the model is still loading; try again shortly", retry_after_s=2)
        return self.tokenizer

    def _request(
        self, prompt: list[int], fields: GenerationFields, limit: int | None, default_tokens: int | None
    ) -> Request:
        context = self.model.context_tokens
        room = context - len(prompt)
        if not prompt:
            raise InputError(
                "the prompt is empty and this model's tokenizer adds no token to it; nothing was generated",
                param="prompt",
            )
        if room < (limit or 1):
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt)} tokens"
                + (f" and max_tokens is {limit}" if limit else "")
                + f", but the model's context holds {context} in all; nothing was generated. Shorten the "
                "prompt or ask for fewer tokens",
                param="max_tokens" if limit and room > 0 else "prompt",
            )
        defaults = self.model.sampling
        return Request(
            id=secrets.token_hex(12),
            prompt=prompt,
            max_tokens=limit or min(default_tokens or room, room),
            is_open_ended=limit is None and default_tokens is None,
            ignore_eos=bool(fields.ignore_eos),
            sampling=SamplingParams(
                seed=_or(fields.seed, secrets.randbits(63)),
                temperature=_or(fields.temperature, defaults.temperature),
                top_p=_or(fields.top_p, defaults.top_p),
                top_k=_or(fields.top_k, defaults.top_k),
                min_p=_or(fields.min_p, defaults.min_p),
            ),
        )

    def close(self) -> None:
        self._tokenizing.shutdown(wait=False, cancel_futures=True)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def now_s() -> int:
    """Wall-clock seconds, as `created` fields want them."""
    return int(time.time())
