"""The engine's own loop without HTTP, text or JSON: what the server could deliver at most."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from mlxcel.cli.compose import Loaded, checkpoint_of, make_engine
from mlxcel.config.settings import ServeSettings
from mlxcel.core import Event, FinishReason, Request, SamplingParams
from mlxcel.engine.loop import Engine
from mlxcel.load.prompts import Prompts
from mlxcel.model.tokenizer import Tokenizer

READY_S, RUN_S = 120.0, 300.0


class BareEngine:
    """Drives an engine as `n_clients` closed-loop clients would. One run at a time."""

    def __init__(self) -> None:
        self.tokenizer: Tokenizer | None = None
        self._engine: Engine | None = None
        self._ids = count()
        self._waiting: list[list[Request]] = []
        self._client_of: dict[str, int] = {}
        self._n_tokens = 0
        self._error: Exception | None = None
        self._ended = threading.Event()

    def start(self, model: Path) -> None:
        settings = ServeSettings(model=str(model))
        self._engine = make_engine(settings, checkpoint_of(settings), post=self._take, on_loaded=self._note_loaded)
        self._engine.start()
        if not self._engine.ready.wait(READY_S) or self._engine.error is not None:
            raise RuntimeError(f"the bare engine did not start: {self._engine.error}")

    def stop(self) -> None:
        if self._engine is not None and not self._engine.stop(timeout_s=30):
            raise RuntimeError("the bare engine did not stop")

    def tokens_per_s(self, prompts: Sequence[Sequence[str]], *, max_tokens: int) -> float:
        """Each client's prompts one after another; the tokens of all over the time of all."""
        assert self._engine is not None and self.tokenizer is not None
        self._waiting = [
            [self._request(self.tokenizer.encode(prompt), max_tokens) for prompt in reversed(of_client)]
            for of_client in prompts
        ]
        self._n_tokens, self._error = 0, None
        self._ended.clear()
        started_s = time.perf_counter()
        for client in range(len(prompts)):
            self._submit_next(client)
        if not self._ended.wait(RUN_S):
            raise RuntimeError(f"the bare engine did not answer within {RUN_S:g} s")
        if self._error is not None:
            raise self._error
        return self._n_tokens / (time.perf_counter() - started_s)

    def _request(self, prompt: list[int], max_tokens: int) -> Request:
        greedy = SamplingParams(seed=0, temperature=0.0)
        return Request(id=f"bare-{next(self._ids)}", prompt=prompt, max_tokens=max_tokens, sampling=greedy)

    def _submit_next(self, client: int) -> None:
        assert self._engine is not None
        request = self._waiting[client].pop()
        self._client_of[request.id] = client
        self._engine.submit(request)

    def _note_loaded(self, loaded: Loaded) -> None:
        self.tokenizer = loaded.tokenizer

    def _take(self, events: list[Event]) -> None:
        """Called on the engine's thread with a step's events."""
        for event in events:
            self._n_tokens += event.token is not None
            if event.finish is None:
                continue
            client = self._client_of.pop(event.request_id)
            if event.finish is not FinishReason.LENGTH:
                self._error = RuntimeError(f"a bare request ended with {event.finish.value}: {event.error}")
            if self._waiting[client] and self._error is None:
                self._submit_next(client)
            elif not self._client_of or self._error is not None:
                self._ended.set()


@contextmanager
def bare_engine(model: Path) -> Iterator[BareEngine]:
    engine = BareEngine()
    try:
        engine.start(model)
        yield engine
    finally:
        engine.stop()


def prompts_of(*, n_clients: int, n_requests: int, n_words: int, seed: int) -> list[list[str]]:
    """The prompts that the load client would send with this seed, client by client."""
    prompts = Prompts(seed=seed)
    return [
        [prompts.draw(turn * n_clients + client, n_words=n_words) for turn in range(n_requests)]
        for client in range(n_clients)
    ]
