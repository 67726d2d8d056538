"""The judge's own HTTP client: asks any OpenAI-compatible server, whole or streamed, and can leave in the middle.

Every request has a limit on its whole duration, since a server may send keep-alives forever. Whatever goes
wrong is raised as a RequestFailed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from .expected import Prompt
from .report import Value
from .verdict import Malformed, Refused, Unanswered

PAGE_S = 10.0


class Answer(Value, frozen=True, kw_only=True):
    """A whole answer. Units: times are of the monotonic clock; `first_s` None where it was not streamed."""

    text: str
    finish: str | None
    n_prompt_tokens: int | None
    n_completion_tokens: int | None
    tool: str | None
    first_s: float | None
    end_s: float


class Ongoing:
    """A request under way in a task of its own.

    sent: the body has left. begun: the first text has come (streams only).
    """

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.begun = asyncio.Event()
        self.task: asyncio.Task[Answer]

    async def reach(self, event: asyncio.Event, *, limit_s: float) -> None:
        """Wait for the event. Errors: the request's own, where it ends before; Unanswered after `limit_s`."""
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting, self.task}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self.task.done():
            self.task.result()
        elif not event.is_set():
            raise Unanswered(f"no first token within {limit_s:g} s")

    async def leave(self) -> None:
        """Close the connection, as a client that goes away does; an answer or error that came before is dropped."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Client:
    """Units: `limit_s` bounds each request as a whole. model: the id to send; None sends none."""

    def __init__(self, http: httpx.AsyncClient, *, limit_s: float, model: str | None) -> None:
        self._http = http
        self._limit_s = limit_s
        self._model = model
        self._asked: list[Ongoing] = []

    def begin(self, prompt: Prompt, max_tokens: int, *, stream: bool, tools: Sequence[dict[str, Any]] = ()) -> Ongoing:
        """Send a request and go on."""
        body: dict[str, Any] = {"max_tokens": max_tokens, "temperature": 0}
        if prompt.is_chat:
            body["messages"] = [{"role": "user", "content": prompt.text}]
        else:
            body["prompt"] = prompt.text
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = list(tools)
        if self._model is not None:
            body["model"] = self._model
        path = "/v1/chat/completions" if prompt.is_chat else "/v1/completions"
        ongoing = Ongoing()
        ongoing.task = asyncio.create_task(self._limited(path, body, ongoing))
        self._asked.append(ongoing)
        return ongoing

    async def leave_all(self) -> None:
        """Leave every request that is still under way."""
        asked, self._asked = self._asked, []
        await asyncio.gather(*(ongoing.leave() for ongoing in asked))

    async def ask(
        self, prompt: Prompt, max_tokens: int, *, stream: bool = False, tools: Sequence[dict[str, Any]] = ()
    ) -> Answer:
        """Send a request and wait for the whole answer."""
        ongoing = self.begin(prompt, max_tokens, stream=stream, tools=tools)
        try:
            return await ongoing.task
        except asyncio.CancelledError:
            await ongoing.leave()
            raise

    async def get_text(self, path: str) -> str | None:
        """A page of the server; None where it has none, or does not answer."""
        return await self._page("GET", path)

    async def get_json(self, path: str) -> Any:
        """What a page holds; None where there is none, or it is no JSON."""
        return _json_or_none(await self._page("GET", path))

    async def post_json(self, path: str, body: dict[str, Any]) -> Any:
        return _json_or_none(await self._page("POST", path, json=body))

    async def _page(self, method: str, path: str, **options: Any) -> str | None:
        try:
            answer = await asyncio.wait_for(self._http.request(method, path, **options), min(PAGE_S, self._limit_s))
        except (httpx.TransportError, asyncio.TimeoutError):
            return None
        return answer.text if answer.status_code == 200 else None

    async def _limited(self, path: str, body: dict[str, Any], ongoing: Ongoing) -> Answer:
        try:
            return await asyncio.wait_for(self._send(path, body, ongoing), self._limit_s)
        except asyncio.TimeoutError:
            raise Unanswered(f"no whole answer within {self._limit_s:g} s") from None
        except httpx.TransportError as error:
            raise Unanswered(f"the connection broke: {type(error).__name__} {error}".rstrip()) from error

    async def _send(self, path: str, body: dict[str, Any], ongoing: Ongoing) -> Answer:
        async def trace(event: str, _: dict[str, Any]) -> None:
            if event.endswith("send_request_body.complete"):
                ongoing.sent.set()

        async with self._http.stream("POST", path, json=body, extensions={"trace": trace}) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode(errors="replace")
                raise Refused(response.status_code, dict(response.headers), text)
            if "stream" not in body:
                return _read_whole(await response.aread())
            return await _read_stream(response, ongoing)


@asynccontextmanager
async def connect(url: str, *, limit_s: float, model: str | None) -> AsyncIterator[Client]:
    """A client whose requests share no connection, so that one that leaves closes its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False) as http:
        yield Client(http, limit_s=limit_s, model=model)


def _read_whole(body: bytes) -> Answer:
    fields = _object(body)
    choice = _choice(fields)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return _answer(text or "", choice.get("finish_reason"), fields.get("usage"), _tool(message), first_s=None)


async def _read_stream(response: httpx.Response, ongoing: Ongoing) -> Answer:
    text, finish, usage, tool, first_s, is_done = "", None, None, None, None, False
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            is_done = True
            break
        fields = _object(data)
        if "error" in fields:
            raise Malformed(f"the stream ended with an error after {text!r}: {json.dumps(fields['error'])[:300]}")
        usage = fields.get("usage") or usage
        if not fields.get("choices"):
            continue
        choice = _choice(fields)
        delta = choice.get("delta")
        piece = (delta.get("content") if isinstance(delta, dict) else choice.get("text")) or ""
        if piece and first_s is None:
            first_s = time.monotonic()
            ongoing.begun.set()
        text += piece
        tool = tool or _tool(delta)
        finish = choice.get("finish_reason") or finish
    if finish is None or not is_done:
        missing = "a finish_reason" if finish is None else "data: [DONE]"
        raise Malformed(f"the stream ended without {missing} after {text!r}")
    return _answer(text, finish, usage, tool, first_s=first_s)


def _answer(text: str, finish: str | None, usage: Any, tool: str | None, *, first_s: float | None) -> Answer:
    counts = usage if isinstance(usage, dict) else {}
    return Answer(
        text=text,
        finish=finish,
        n_prompt_tokens=counts.get("prompt_tokens"),
        n_completion_tokens=counts.get("completion_tokens"),
        tool=tool,
        first_s=first_s,
        end_s=time.monotonic(),
    )


def _object(body: bytes | str) -> dict[str, Any]:
    with suppress(ValueError):
        fields = json.loads(body)
        if isinstance(fields, dict):
            return fields
    raise Malformed(f"no JSON object: {body[:200]!r}")


def _json_or_none(text: str | None) -> Any:
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return None


def _choice(fields: dict[str, Any]) -> dict[str, Any]:
    choices = fields.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    raise Malformed(f"no choices: {json.dumps(fields)[:200]}")


def _tool(message: Any) -> str | None:
    """The first tool called in a message or a delta."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    with suppress(KeyError, TypeError, IndexError):
        return str(calls[0]["function"]["name"]) if calls else None
    return None
