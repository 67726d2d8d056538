"""Tickets: the client's handle on its sequence, on the event loop's side.

Owner: the event loop's thread. Events of one step arrive in one `deliver`; a ticket's reader takes all that
came since it last looked. Every ticket sees exactly one end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from mlxcel.core import Event, FinishReason, Request
from mlxcel.engine.pace import Journey, Pace
from mlxcel.engine.returns import Returns
from mlxcel.errors import BugError, MlxcelError, ServerBusy, request_timed_out
from mlxcel.metrics.traffic import Traffic


class Ticket:
    """One request's stream of events."""

    def __init__(self, request: Request, cancel: Callable[[str], None]) -> None:
        self.request = request
        self.journey = Journey(len(request.prompt), time.monotonic())
        self._cancel = cancel
        self._events: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None
        self.is_ended = False

    async def accepted(self) -> None:
        """Wait until the engine took the request.

        Errors: what the engine refused it with (ServerBusy, ContextLengthExceeded, ...).
        """
        await self._arrival()
        first = self._events[0]
        if first.error is not None:
            raise first.error
        if first.token is None and first.finish is None:
            del self._events[0]

    async def events(self, *, timeout_s: float | None = None) -> list[Event]:
        """Everything that arrived since the last call; waits for at least one event, or `timeout_s`."""
        await self._arrival(timeout_s)
        events, self._events = self._events, []
        return events

    def cancel(self) -> None:
        """The client is gone or has enough. Safe to repeat."""
        if not self.is_ended:
            self._cancel(self.request.id)

    def push(self, event: Event) -> None:
        if self.is_ended:
            raise BugError(f"ticket {self.request.id} got an event after its end")
        self._events.append(event)
        self.is_ended = event.finish is not None
        self._wake()

    async def _arrival(self, timeout_s: float | None = None) -> None:
        if self._events:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        alarm = None if timeout_s is None else loop.call_later(timeout_s, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Submit(Protocol):
    """Hands requests to the engine: several at once are a group."""

    def __call__(self, *requests: Request) -> None: ...


class Tickets:
    """Every ticket that has not ended; its request may take `limit_s` in all, where there is a limit.

    How their tokens come is measured into `traffic`; `returns` says when whoever finds no place may come back.
    """

    def __init__(
        self,
        submit: Submit,
        cancel: Callable[[str], None],
        traffic: Traffic | None = None,
        *,
        limit_s: float | None = None,
    ) -> None:
        self._submit = submit
        self._cancel = cancel
        self._limit_s = limit_s
        self.returns = Returns()
        self._pace = Pace(traffic or Traffic())
        self._open: dict[str, Ticket] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, request: Request) -> Ticket:
        (ticket,) = self.open_group([request])
        return ticket

    def open_group(self, requests: Iterable[Request], *, spent_s: float = 0.0) -> list[Ticket]:
        """A ticket for each of several answers to one prompt; the engine accepts all or none.

        `spent_s` is the part of the limit that went before.
        """
        tickets = [Ticket(request, self._cancel) for request in requests]
        for ticket in tickets:
            self._open[ticket.request.id] = ticket
            self._emptied.clear()
            if self._limit_s is not None:
                alarm = asyncio.get_running_loop().call_later(self._limit_s - spent_s, self._time_out, ticket)
                self._alarms[ticket.request.id] = alarm
        self._submit(*(ticket.request for ticket in tickets))
        return tickets

    def deliver(self, events: list[Event]) -> None:
        """Hand one step's events to their tickets."""
        now_s = time.monotonic()
        step: list[tuple[Journey, Event]] = []
        for event in events:
            ticket = self._open.get(event.request_id)
            if ticket is None:
                continue
            ticket.push(event)
            step.append((ticket.journey, event))
            if event.finish is not None:
                self._close(event.request_id)
                if isinstance(event.error, ServerBusy):
                    event.error.retry_after_s = self.returns.after_s(now_s)
                else:
                    self.returns.place_freed(now_s)
        self._pace.measure(step, now_s)

    def fail_all(self, error: MlxcelError) -> None:
        """End every open ticket, when the engine no longer will."""
        self.deliver([Event(request_id, None, FinishReason.ERROR, error) for request_id in list(self._open)])

    async def all_ended(self) -> None:
        await self._emptied.wait()

    def _time_out(self, ticket: Ticket) -> None:
        assert self._limit_s is not None
        ticket.cancel()
        error = request_timed_out(self._limit_s)
        self.deliver([Event(ticket.request.id, None, FinishReason.ERROR, error)])

    def _close(self, request_id: str) -> None:
        del self._open[request_id]
        if (alarm := self._alarms.pop(request_id, None)) is not None:
            alarm.cancel()
        if not self._open:
            self._emptied.set()
