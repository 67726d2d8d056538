"""One load run: all clients beside each other on one event loop. Knows no HTTP and no table."""

import asyncio
from collections.abc import Callable

import uvloop

from mlxcel.load.answer import Answer
from mlxcel.load.client import Client
from mlxcel.load.connection import now_s
from mlxcel.load.prompts import Prompts
from mlxcel.load.report import LoadReport, summarise
from mlxcel.load.settings import LoadSettings

OnAnswer = Callable[[int, int], None]


def run_load(settings: LoadSettings, *, on_answer: OnAnswer | None = None) -> LoadReport:
    """Run it to its end, at most `total_timeout_s`. Needs a thread without a running event loop.

    `on_answer(n_ended, n_requests)` is called after each request. A server that refuses, dies or talks
    rubbish makes failures in the report, never an exception.
    """
    return uvloop.run(_Run(settings, on_answer).drive())


class _Run:
    def __init__(self, settings: LoadSettings, on_answer: OnAnswer | None) -> None:
        self._settings = settings
        self._on_answer = on_answer
        self._prompts = Prompts(seed=settings.seed)
        self._prompt_words = settings.prompt_words
        self._answers: list[Answer] = []
        self._notes: list[str] = []
        self._n_requests = settings.n_clients * settings.n_requests
        self._deadline_s = now_s() + settings.total_timeout_s

    async def drive(self) -> LoadReport:
        if self._settings.prompt_tokens is not None:
            await self._find_prompt_words(self._settings.prompt_tokens)
        started_s = now_s()
        await asyncio.gather(*(self._drive_client(number) for number in range(self._settings.n_clients)))
        wall_s = max(answer.ended_s for answer in self._answers) - started_s
        return summarise(
            self._settings,
            self._answers,
            wall_s=wall_s,
            prompt_words=self._prompt_words,
            notes=self._notes,
        )

    async def _drive_client(self, number: int) -> None:
        settings = self._settings
        client = Client(settings)
        await asyncio.sleep(min(settings.ramp_s * number / settings.n_clients, self._left_s()))
        for turn in range(settings.n_requests):
            prompt = self._prompts.draw(turn * settings.n_clients + number, n_words=self._prompt_words)
            self._note(await self._ask(client, prompt, max_tokens=settings.max_tokens))
        client.close()

    async def _ask(self, client: Client, prompt: str, *, max_tokens: int) -> Answer:
        left_s = self._left_s()
        if left_s > 0:
            timeout_s = min(self._settings.request_timeout_s, left_s)
            return await client.ask(prompt, max_tokens=max_tokens, timeout_s=timeout_s)
        answer = Answer(sent_s=now_s(), ended_s=now_s())
        answer.fail("not sent", f"the run's {self._settings.total_timeout_s:g} s were over")
        return answer

    async def _find_prompt_words(self, prompt_tokens: int) -> None:
        """Two trial prompts give the tokens that a word takes and those that every prompt takes."""
        client = Client(self._settings)
        points = []
        for trial, n_words in enumerate((max(1, prompt_tokens // 4), max(2, prompt_tokens // 2))):
            prompt = self._prompts.draw(self._n_requests + trial, n_words=n_words)
            answer = await self._ask(client, prompt, max_tokens=1)
            if answer.failure is not None or answer.usage is None:
                why = answer.failure.message if answer.failure else "the server reports no usage"
                self._notes.append(f"prompt_tokens were taken as words, since a trial prompt failed: {why}")
                self._prompt_words = prompt_tokens
                break
            points.append((n_words, answer.usage.prompt_tokens))
        else:
            (few, few_tokens), (many, many_tokens) = points
            tokens_per_word = max(1e-3, (many_tokens - few_tokens) / (many - few))
            self._prompt_words = max(1, round(few + (prompt_tokens - few_tokens) / tokens_per_word))
        client.close()

    def _note(self, answer: Answer) -> None:
        self._answers.append(answer)
        if self._on_answer is not None:
            self._on_answer(len(self._answers), self._n_requests)

    def _left_s(self) -> float:
        return max(0.0, self._deadline_s - now_s())
