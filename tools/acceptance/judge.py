"""Runs matrices against one side: starts the server that a case needs, runs its check, makes a Result of it.

Each matrix begins with a fresh server. One that died or did not answer is started anew for the next case; after
two such cases in a row the rest of that launch is failed without being tried, so that nothing goes on forever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from .client import Client, connect
from .matrices.matrix import Bench, Case, Inputs, Matrix
from .report import Ending, Result
from .server import Launch, Server, Target, running
from .verdict import Differs, DoesNotApply, NotStarted, Unanswered

MOST_LOST = 2
DEATH_S = 1.0
POLL_S = 0.02

OnResult = Callable[[Matrix, Case, Result], None]


@dataclass
class Judge:
    """One side. `versions` and `notes` are what was learned of it on the way."""

    target: Target
    inputs: Inputs
    log: Path
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    async def judge(self, matrices: Iterable[Matrix], on_result: OnResult) -> None:
        for matrix in matrices:
            await self._judge_matrix(matrix, on_result)

    async def _judge_matrix(self, matrix: Matrix, on_result: OnResult) -> None:
        lost: dict[Launch, int] = {}
        async with _Running(self) as server:
            for case in matrix.cases(self.inputs):
                start_s = time.monotonic()
                settings = self.inputs.settings
                why_not = case.why_not or self.target.why_not(case.launch, settings.model)
                if settings.only not in case.name:
                    result = Result(ending=Ending.SKIPPED, detail=f"not asked for: --only {settings.only!r}")
                elif why_not:
                    result = Result(ending=Ending.DOES_NOT_APPLY, detail=why_not)
                elif lost.get(case.launch, 0) >= MOST_LOST:
                    said = f"not tried: the server died or did not answer in the {MOST_LOST} rows before"
                    result = Result(ending=Ending.FAILED, detail=said)
                else:
                    result, is_lost = await self._try(case, server)
                    lost[case.launch] = lost.get(case.launch, 0) + 1 if is_lost else 0
                    if is_lost or (matrix.keeps_state and result.ending is Ending.FAILED):
                        await server.stop()
                on_result(matrix, case, _timed(result, start_s))

    async def _try(self, case: Case, server: _Running) -> tuple[Result, bool]:
        """The result, and whether the server was lost."""
        try:
            client = await server.client(case.launch)
        except NotStarted as error:
            return Result(ending=Ending.FAILED, detail=str(error)), True
        try:
            detail = await case.check(Bench(client, self.inputs))
            return Result(ending=Ending.PASSED, detail=detail), False
        except DoesNotApply as reason:
            return Result(ending=Ending.DOES_NOT_APPLY, detail=str(reason)), False
        except Differs as error:
            last_words = await server.last_words(patience_s=DEATH_S if isinstance(error, Unanswered) else 0.0)
            said = f"{error}; {last_words}" if last_words else str(error)
            is_lost = bool(last_words) or isinstance(error, Unanswered)
            return Result(ending=Ending.FAILED, detail=said, difference=error.difference), is_lost
        finally:
            await client.leave_all()


class _Running:
    """The server that is up, if any, and a client of it."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._stack = AsyncExitStack()
        self._launch: Launch | None = None
        self._server: Server | None = None
        self._client: Client | None = None

    async def __aenter__(self) -> _Running:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def client(self, launch: Launch) -> Client:
        """A client of a living server launched so. Errors: NotStarted."""
        if self._client is None or self._launch != launch or (self._server and self._server.has_died):
            await self.stop()
            await self._start(launch)
        assert self._client is not None
        return self._client

    async def stop(self) -> None:
        self._launch = self._server = self._client = None
        await self._stack.aclose()

    async def last_words(self, *, patience_s: float) -> str:
        """How the server died; "" where it lives. A process that breaks a connection needs a moment to end."""
        deadline_s = time.monotonic() + patience_s
        while self._server and not self._server.has_died and time.monotonic() < deadline_s:
            await asyncio.sleep(POLL_S)
        return self._server.last_words() if self._server and self._server.has_died else ""

    async def _start(self, launch: Launch) -> None:
        judge, settings = self._judge, self._judge.inputs.settings
        self._server = await self._stack.enter_async_context(
            running(
                judge.target,
                launch,
                judge.log,
                start_s=settings.start_s,
                stop_s=settings.stop_s,
                notes=judge.notes,
            )
        )
        connecting = connect(self._server.url, limit_s=settings.request_s, model=settings.model_id)
        self._client = await self._stack.enter_async_context(connecting)
        self._launch = launch
        if not judge.versions:
            judge.versions.update(await _read_versions(self._client))


async def _read_versions(client: Client) -> dict[str, str]:
    """What the server says of itself at /version or /health."""
    for path in ("/version", "/health"):
        page = await client.get_json(path)
        said = {name: str(value) for name, value in page.items() if "version" in name} if isinstance(page, dict) else {}
        if said:
            return said
    return {"version": "the server does not say"}


def _timed(result: Result, start_s: float) -> Result:
    return Result(
        ending=result.ending,
        detail=result.detail,
        difference=result.difference,
        duration_s=round(time.monotonic() - start_s, 3),
    )
