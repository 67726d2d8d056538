from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

import pytest

from mlxcel.core import Event, FinishReason, Request
from mlxcel.engine.tickets import Tickets
from mlxcel.errors import BugError, EngineDead, ServerBusy
from tests.support.turns import request


class Desk:
    """Tickets over an engine that only writes down what it was told."""

    def __init__(self) -> None:
        self.submitted: list[Request] = []
        self.cancelled: list[str] = []
        self.tickets = Tickets(self.submit, self.cancelled.append)

    def submit(self, *requests: Request) -> None:
        self.submitted += requests


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, timeout=10))


def test_a_ticket_hears_its_own_events_in_order_and_closes_with_its_end() -> None:
    async def main() -> None:
        desk = Desk()
        a, b = desk.tickets.open(request("a", [1], 3)), desk.tickets.open(request("b", [1], 3))
        assert [one.id for one in desk.submitted] == ["a", "b"] and len(desk.tickets) == 2
        desk.tickets.deliver([Event("a", None), Event("b", None), Event("a", 5)])
        await a.accepted()
        await b.accepted()
        assert await a.events() == [Event("a", 5)]
        desk.tickets.deliver([Event("b", 7), Event("a", 6), Event("a", 8, FinishReason.LENGTH)])
        assert await a.events() == [Event("a", 6), Event("a", 8, FinishReason.LENGTH)]
        assert await b.events() == [Event("b", 7)]
        assert a.is_ended and not b.is_ended and len(desk.tickets) == 1

    run(main())


def test_whoever_the_engine_has_no_place_for_is_told_to_come_back_behind_those_before() -> None:
    async def main() -> None:
        desk = Desk()
        refused = [desk.tickets.open(request(name, [1], 3)) for name in "abc"]
        desk.tickets.deliver([Event(name, None, FinishReason.ERROR, ServerBusy("full")) for name in "abc"])
        told = []
        for ticket in refused:
            with pytest.raises(ServerBusy) as refusal:
                await ticket.accepted()
            told.append(refusal.value.retry_after_s)
        assert told == [1, 2, 3]

    run(main())


def test_a_group_is_submitted_at_once_and_each_of_its_tickets_hears_its_own_events() -> None:
    class OneCall(Desk):
        calls: ClassVar[list[list[str]]] = []

        def submit(self, *requests: Request) -> None:
            self.calls.append([one.id for one in requests])

    async def main() -> None:
        desk = OneCall()
        a, b = desk.tickets.open_group([request("a", [1], 3), request("b", [1], 3)])
        assert desk.calls == [["a", "b"]] and len(desk.tickets) == 2
        desk.tickets.deliver([Event("a", None), Event("b", None), Event("b", 7)])
        await a.accepted()
        await b.accepted()
        assert await b.events() == [Event("b", 7)]
        desk.tickets.deliver([Event("a", None, FinishReason.CANCELLED)])
        assert a.is_ended and not b.is_ended

    run(main())


def test_a_reader_that_waits_wakes_with_everything_that_came() -> None:
    async def main() -> None:
        desk = Desk()
        ticket = desk.tickets.open(request("a", [1], 3))
        accepted = asyncio.create_task(ticket.accepted())
        await asyncio.sleep(0)
        assert not accepted.done()
        desk.tickets.deliver([Event("a", None)])
        await accepted
        reading = asyncio.create_task(ticket.events())
        await asyncio.sleep(0)
        desk.tickets.deliver([Event("a", 1), Event("a", 2)])
        desk.tickets.deliver([Event("a", 3)])
        assert [event.token for event in await reading] == [1, 2, 3]

    run(main())


def test_waiting_for_events_gives_up_after_its_time_and_loses_nothing() -> None:
    async def main() -> None:
        desk = Desk()
        ticket = desk.tickets.open(request("a", [1], 3))
        assert await ticket.events(timeout_s=0.01) == []
        desk.tickets.deliver([Event("a", None), Event("a", 4)])
        assert await ticket.events(timeout_s=0.01) == [Event("a", None), Event("a", 4)]

    run(main())


def test_a_reader_that_is_cancelled_leaves_the_ticket_readable() -> None:
    async def main() -> None:
        desk = Desk()
        ticket = desk.tickets.open(request("a", [1], 3))
        reading = asyncio.create_task(ticket.events())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        desk.tickets.deliver([Event("a", 4)])
        assert await ticket.events() == [Event("a", 4)]

    run(main())


def test_a_refusal_is_raised_where_acceptance_is_awaited() -> None:
    async def main() -> None:
        desk = Desk()
        ticket = desk.tickets.open(request("a", [1], 3))
        desk.tickets.deliver([Event("a", None, FinishReason.ERROR, ServerBusy("full"))])
        with pytest.raises(ServerBusy):
            await ticket.accepted()
        assert ticket.is_ended and len(desk.tickets) == 0

    run(main())


def test_every_ticket_ends_once_even_if_the_engine_speaks_after_its_end() -> None:
    async def main() -> None:
        desk = Desk()
        ticket = desk.tickets.open(request("a", [1], 3))
        error = EngineDead("gone")
        desk.tickets.fail_all(error)
        desk.tickets.fail_all(error)
        desk.tickets.deliver([Event("a", 3), Event("a", None, FinishReason.CANCELLED)])
        assert await ticket.events() == [Event("a", None, FinishReason.ERROR, error)]
        with pytest.raises(BugError):
            ticket.push(Event("a", 4))

    run(main())


def test_an_event_for_nobody_is_passed_over() -> None:
    async def main() -> None:
        desk = Desk()
        ticket = desk.tickets.open(request("a", [1], 3))
        desk.tickets.deliver([Event("nobody", 1), Event("a", 2)])
        assert await ticket.events() == [Event("a", 2)]

    run(main())


def test_cancel_reaches_the_engine_until_the_ticket_has_ended() -> None:
    async def main() -> None:
        desk = Desk()
        ticket = desk.tickets.open(request("a", [1], 3))
        ticket.cancel()
        assert desk.cancelled == ["a"] and not ticket.is_ended
        desk.tickets.deliver([Event("a", None, FinishReason.CANCELLED)])
        ticket.cancel()
        assert desk.cancelled == ["a"] and ticket.is_ended

    run(main())


def test_all_ended_waits_for_the_last_ticket_and_not_without_any() -> None:
    async def main() -> None:
        desk = Desk()
        await desk.tickets.all_ended()
        for name in ("a", "b"):
            desk.tickets.open(request(name, [1], 3))
        waiting = asyncio.create_task(desk.tickets.all_ended())
        desk.tickets.deliver([Event("a", 1, FinishReason.STOP)])
        await asyncio.sleep(0)
        assert not waiting.done()
        desk.tickets.deliver([Event("b", 1, FinishReason.STOP)])
        await waiting
        desk.tickets.open(request("c", [1], 3))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(desk.tickets.all_ended(), 0.01)

    run(main())
