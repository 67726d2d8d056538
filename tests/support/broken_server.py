"""A small OpenAI-like server over the numpy Llama, sound or broken on purpose: the judge's own test.

`python -m tests.support.broken_server MODEL --port N [--fault NAME]... [--no-batch] [--max-batch-size N]
[--max-queue-depth N|unbounded]`. Without a fault every acceptance matrix passes; with one, the matrix that is
there for it must fail. Each fault is the mistake that real servers make, not a scripted answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.numpy_llama import NumpyLlama, NumpySequence

LONG_PROMPT_TOKENS = 128
TILE_TOKENS = 256
UNBOUNDED = 2**64 - 1


class Fault(str, Enum):
    WRONG_EOS = "wrong-eos"
    """Knows one list only: the generation config's, as a config that overrides another."""
    DOUBLED_BOS = "doubled-bos"
    """Encodes a rendered template as if it were a text, so that the tokenizer adds BOS again."""
    BATCH_TEXT = "batch-text"
    """Positions count the padding of a rectangular batch, so they are wrong beside a longer row."""
    LEAKED_SLOTS = "leaked-slots"
    """A slot is given back at the end of an answer, and an answer whose client left never ends so."""
    DEAF = "deaf"
    """Never looks whether a client that waits for a whole answer is still there."""
    FORGETFUL_QUEUE = "forgetful-queue"
    """Every second request that has to wait is never woken."""
    BARE_REFUSAL = "bare-refusal"
    """A full queue is a plain 500."""
    HANG = "hang"
    """A long prompt blocks the whole process, its signals included."""
    CRASH = "crash"
    """A long prompt aborts the process."""
    ZERO_CAPACITY = "zero-capacity"
    """Running + unbounded queue is computed in 64 bits and wraps to 0; an unbounded queue is --no-batch's own."""
    WRONG_TILE = "wrong-tile"
    """Loses the last token before a tile's edge once a prompt is longer than the tile."""


class Full(Exception):
    """No place is free."""


class Slots:
    """Places to run and places to wait. capacity None: no bound."""

    def __init__(self, n_running: int, depth: int | None, faults: Collection[Fault], *, is_batched: bool) -> None:
        self.capacity = None if depth is None else n_running + depth
        if Fault.ZERO_CAPACITY in faults and depth is None and not is_batched:
            self.capacity = (n_running + UNBOUNDED) % 2**64
        self._running = asyncio.Semaphore(n_running)
        self._faults = faults
        self._n_taken = 0
        self._n_waited = 0
        self.n_active = 0

    async def __aenter__(self) -> None:
        if self.capacity is not None and self._n_taken >= self.capacity:
            raise Full(f"CachePool: max capacity ({self.capacity}) reached")
        self._n_taken += 1
        has_run = False
        try:
            if self._running.locked():
                self._n_waited += 1
                if Fault.FORGETFUL_QUEUE in self._faults and self._n_waited % 2 == 0:
                    await asyncio.Event().wait()
            await self._running.acquire()
            has_run = True
        finally:
            self._n_taken -= not has_run
        self.n_active += 1

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.n_active -= 1
        if kind is not None and Fault.LEAKED_SLOTS in self._faults:
            return
        self._n_taken -= 1
        self._running.release()


class BrokenServer:
    """The app's state: a model, its slots, its fault."""

    def __init__(self, model: NumpyLlama, slots: Slots, faults: Collection[Fault]) -> None:
        self.model = model
        self.slots = slots
        self.faults = faults
        lists = model.eos_lists()
        if Fault.WRONG_EOS in faults:
            lists = {"generation_config": lists["generation_config"]}
        self.eos_ids = {token for ids in lists.values() for token in ids}

    def ids(self, fields: dict[str, Any]) -> list[int]:
        if "messages" not in fields:
            return self.model.encode(fields["prompt"])
        return self.model.encode_chat(fields["messages"], adds_special_tokens=Fault.DOUBLED_BOS in self.faults)

    async def tokens(self, prompt: list[int], max_tokens: int) -> AsyncIterator[int]:
        """The answer, a token at a time; others have their turn in between."""
        if len(prompt) > LONG_PROMPT_TOKENS and Fault.CRASH in self.faults:
            os.abort()
        while len(prompt) > LONG_PROMPT_TOKENS and Fault.HANG in self.faults:
            time.sleep(1)
        if len(prompt) > TILE_TOKENS and Fault.WRONG_TILE in self.faults:
            prompt = [*prompt[: TILE_TOKENS - 1], *prompt[TILE_TOKENS:]]
        sequence = NumpySequence(self.model)
        token = sequence.step(prompt)
        for _ in range(max_tokens):
            yield token
            if token in self.eos_ids:
                break
            await asyncio.sleep(0)
            shift = self.slots.n_active - 1 if Fault.BATCH_TEXT in self.faults else 0
            token = sequence.step([token], shift=shift)

    async def answer(self, request: Request) -> Response:
        fields = json.loads(await request.body())
        prompt = self.ids(fields)
        if fields.get("stream"):
            # The first piece is awaited here, so that a refusal is a status and not a frame.
            pieces = self.pieces(prompt, fields["max_tokens"], is_chat="messages" in fields)
            try:
                first = await anext(pieces)
            except Full as error:
                return self.refusal(error)
            return StreamingResponse(_frames(first, pieces), media_type="text/event-stream")
        try:
            made = await self.whole(request, prompt, fields["max_tokens"])
        except Full as error:
            return self.refusal(error)
        return JSONResponse(_body(self.model, made, prompt, self.eos_ids, is_chat="messages" in fields))

    async def whole(self, request: Request, prompt: list[int], max_tokens: int) -> list[int]:
        async def run() -> list[int]:
            async with self.slots:
                return [token async for token in self.tokens(prompt, max_tokens)]

        running = asyncio.create_task(run())
        if Fault.DEAF in self.faults:
            return await asyncio.shield(running)
        leaving = asyncio.ensure_future(request.receive())
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            return await running
        return []

    async def pieces(self, prompt: list[int], max_tokens: int, *, is_chat: bool) -> AsyncIterator[dict[str, Any]]:
        """Bodies of frames: text as it comes, the end, the counts."""
        made: list[int] = []
        shown = ""
        async with self.slots:
            async for token in self.tokens(prompt, max_tokens):
                made.append(token)
                text = self.model.decode([token for token in made if token not in self.eos_ids])
                yield _chunk(text[len(shown) :], None, is_chat=is_chat)
                shown = text
            body = _body(self.model, made, prompt, self.eos_ids, is_chat=is_chat)
            yield _chunk("", body["choices"][0]["finish_reason"], is_chat=is_chat)
            yield {"choices": [], "usage": body["usage"]}

    def refusal(self, error: Full) -> Response:
        if Fault.BARE_REFUSAL in self.faults:
            return PlainTextResponse("Internal Server Error", 500)
        body = {"error": {"message": str(error), "type": "server_error", "param": None, "code": "server_busy"}}
        return JSONResponse(body, 503, {"retry-after": "1"})


async def _frames(first: dict[str, Any], rest: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    yield _frame(first)
    async for body in rest:
        yield _frame(body)
    yield b"data: [DONE]\n\n"


def _frame(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _chunk(text: str, finish: str | None, *, is_chat: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"delta": {"content": text}} if is_chat else {"text": text}
    return {"choices": [{"index": 0, "finish_reason": finish, **shown}]}


def _body(model: NumpyLlama, made: list[int], prompt: list[int], eos_ids: set[int], *, is_chat: bool) -> dict[str, Any]:
    text = model.decode([token for token in made if token not in eos_ids])
    shown: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    finish = "stop" if made and made[-1] in eos_ids else "length"
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(made), "total_tokens": len(prompt) + len(made)}
    return {"choices": [{"index": 0, "finish_reason": finish, **shown}], "usage": usage}


def main(
    model: Path,
    port: Annotated[int, typer.Option()],
    fault: Annotated[Optional[list[Fault]], typer.Option()] = None,
    no_batch: Annotated[bool, typer.Option("--no-batch")] = False,
    max_batch_size: Annotated[int, typer.Option()] = 8,
    max_queue_depth: Annotated[Optional[str], typer.Option()] = None,
) -> None:
    """Serve until a signal comes."""
    default = None if no_batch else 64
    depth = default if max_queue_depth is None else int(max_queue_depth) if max_queue_depth.isdigit() else None
    faults = fault or []
    said = f"broken: {', '.join(one.value for one in faults)}" if faults else "sound"
    llama = NumpyLlama(model)

    async def serve() -> None:
        slots = Slots(1 if no_batch else max_batch_size, depth, faults, is_batched=not no_batch)
        server = BrokenServer(llama, slots, faults)
        routes = [
            Route("/v1/completions", server.answer, methods=["POST"]),
            Route("/v1/chat/completions", server.answer, methods=["POST"]),
            Route("/health", lambda _: JSONResponse({"status": "ok", "version": said})),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=port, log_level="warning", lifespan="off", ws="none")
        await uvicorn.Server(config).serve()

    asyncio.run(serve())


if __name__ == "__main__":
    typer.run(main)
