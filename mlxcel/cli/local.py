"""`mlxcel generate` and `mlxcel run`: the same engine as the server's, without HTTP."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mlxcel.cli.compose import Loaded, checkpoint_of, make_engine, served_model
from mlxcel.cli.exits import say
from mlxcel.config.settings import ServeSettings
from mlxcel.core import Event, FinishReason, Request, SamplingParams
from mlxcel.errors import BugError, ContextLengthExceeded, InputError
from mlxcel.folder import folder_in_use
from mlxcel.model.tokenizer import Message
from mlxcel.text.stream import TextStream

if TYPE_CHECKING:
    from types import FrameType

NEW_CONVERSATION = "/new"


@dataclass(frozen=True)
class Sampling:
    """What the flags say; None takes the model's default."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None

    def params(self, defaults: SamplingParams) -> SamplingParams:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(defaults, **{"seed": secrets.randbits(63), **given})


class LocalModel:
    """A model in this process, one sequence at a time."""

    def __init__(self, settings: ServeSettings) -> None:
        checkpoint = checkpoint_of(settings)
        self._use = ExitStack()  # ends with the process
        self._use.enter_context(folder_in_use(checkpoint.folder))
        self.served = served_model(settings, checkpoint)
        self._events: SimpleQueue[list[Event]] = SimpleQueue()
        self._loaded: Loaded | None = None
        self._engine = make_engine(settings, checkpoint, post=self._events.put, on_loaded=self._set_loaded)
        self._engine.start()
        self._engine.ready.wait()
        if self._engine.error is not None:
            raise self._engine.error

    def _set_loaded(self, loaded: Loaded) -> None:
        self._loaded = loaded
        for warning in loaded.warnings:
            say(warning)

    @property
    def loaded(self) -> Loaded:
        if self._loaded is None:
            raise BugError("the model is ready but was never handed over")
        return self._loaded

    def pieces(self, prompt: list[int], *, max_tokens: int | None, sampling: SamplingParams) -> Iterator[str]:
        """Text as it comes; Ctrl-C while it runs ends it early.

        Errors: ContextLengthExceeded for a prompt that leaves no room, and what ended the sequence.
        """
        room = self.served.context_tokens - len(prompt)
        if not prompt:
            raise InputError("the prompt is empty; nothing was done", param="prompt")
        if room < (max_tokens or 1):
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt)} tokens and the context holds {self.served.context_tokens}; "
                "nothing was done. Shorten it, or ask for fewer tokens",
                param="prompt",
            )
        request = Request(
            id=secrets.token_hex(8),
            prompt=prompt,
            max_tokens=max_tokens or room,
            sampling=sampling,
            is_open_ended=max_tokens is None,
        )
        text = TextStream(self.loaded.tokenizer.detokenizer())
        self._engine.submit(request)
        with _on_interrupt(lambda: self._engine.cancel(request.id)):
            while True:
                for event in self._events.get():
                    if event.token is not None and event.finish is not FinishReason.STOP:
                        yield text.add(event.token)
                    if event.error is not None:
                        raise event.error
                    if event.finish is not None:
                        yield text.finish()
                        return


def generate(settings: ServeSettings, prompt: str, *, max_tokens: int | None, sampling: Sampling, is_chat: bool) -> int:
    """Print a continuation of `prompt`; returns the exit code."""
    model = LocalModel(settings)
    tokenizer = model.loaded.tokenizer
    ids = tokenizer.encode_chat([{"role": "user", "content": prompt}], {}) if is_chat else tokenizer.encode(prompt)
    params = sampling.params(model.served.sampling)
    _show(model.pieces(ids, max_tokens=max_tokens, sampling=params))
    return 0


def chat(settings: ServeSettings, *, system: str | None, max_tokens: int | None, sampling: Sampling) -> int:
    """A conversation on the terminal; returns the exit code."""
    sys.stderr.write("loading ...\n")
    model = LocalModel(settings)
    sys.stderr.write(f"{model.served.id} is ready. Ctrl-C stops an answer, /new starts afresh, Ctrl-D ends.\n")
    opening: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    messages = opening
    while (line := _ask()) is not None:
        if not line.strip():
            continue
        if line.strip() == NEW_CONVERSATION:
            messages = opening
            continue
        asked = [*messages, {"role": "user", "content": line}]
        try:
            ids = model.loaded.tokenizer.encode_chat(asked, {})
            params = sampling.params(model.served.sampling)
            answer = _show(model.pieces(ids, max_tokens=max_tokens, sampling=params))
        except InputError as error:
            sys.stderr.write(f"{error.message}. {NEW_CONVERSATION} starts a conversation afresh\n")
            continue
        messages = [*asked, {"role": "assistant", "content": answer}]
    return 0


def _ask() -> str | None:
    """A line from the person; None at the end of input."""
    while True:
        try:
            return input("> ")
        except EOFError:
            sys.stdout.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")


def _show(pieces: Iterator[str]) -> str:
    shown = []
    for piece in pieces:
        shown.append(piece)
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return "".join(shown)


@contextmanager
def _on_interrupt(cancel: Callable[[], None]) -> Iterator[None]:
    """Make Ctrl-C call `cancel` instead of ending the program."""

    def handle(_signal: int, _frame: FrameType | None) -> None:
        cancel()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
