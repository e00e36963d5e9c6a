"""Subscribers hear of a term in order, one call at a time, and harm nobody."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tenure.coordinator.hooks import Seat
from tenure.coordinator.lead import Lead
from tenure.election.holding import Holding
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.leases import numbered

CLOCK = SimulatedClock()


def lead_of(epoch: int) -> Lead:
    return Lead(
        namespace="default",
        worker_id="ada",
        epoch=epoch,
        grant_id=f"g{epoch}",
        holding=Holding(CLOCK.read(), 14.85, 10.0),
        clock=CLOCK,
        store=MemoryStore(),
        draw_id=numbered("w"),
    )


class Notes:
    """A plugin that writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on_become_coordinator(self, lead: Lead) -> None:
        self.calls.append(f"become {lead.epoch}")

    async def on_stop_being_coordinator(self) -> None:
        self.calls.append("stop")


def seat_for(subscriber: Any) -> Seat:
    return Seat(subscriber, asyncio.get_running_loop())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def finished(done: Future[None]) -> None:
    await asyncio.wait_for(asyncio.wrap_future(done), 10)


@pytest.mark.req("CP-1")
async def test_a_term_is_a_become_and_a_stop() -> None:
    notes = Notes()
    seat, lead = seat_for(notes), lead_of(1)
    seat.begin(lead)
    await settle()
    assert notes.calls == ["become 1"]
    lead.end("asked")
    await finished(seat.finish(lead))
    assert notes.calls == ["become 1", "stop"]


async def test_plain_functions_will_do() -> None:
    calls: list[str] = []

    class Plain:
        def on_become_coordinator(self, lead: Lead) -> None:
            calls.append(f"become {lead.epoch}")

        def on_stop_being_coordinator(self) -> None:
            calls.append("stop")

    seat, lead = seat_for(Plain()), lead_of(1)
    seat.begin(lead)
    await finished(seat.finish(lead))
    assert calls == ["become 1", "stop"]


async def test_hooks_are_called_with_as_many_arguments_as_they_take() -> None:
    """WA-4: hooks without arguments, as in the first design, and both with the lead."""
    calls: list[str] = []

    class WithoutArguments:
        def on_become_coordinator(self) -> None:
            calls.append("become")

        def on_stop_being_coordinator(self) -> None:
            calls.append("stop")

    class WithTheLead:
        async def on_become_coordinator(self, lead: Lead) -> None:
            calls.append(f"become {lead.epoch}")

        async def on_stop_being_coordinator(self, lead: Lead) -> None:
            calls.append(f"stop {lead.epoch}")

    class WithOptions:
        def on_become_coordinator(self, lead: Lead | None = None) -> None:
            calls.append(f"become {lead and lead.epoch}")

        def on_stop_being_coordinator(self, reason: str = "none") -> None:
            calls.append(f"stop {reason}")

    for subscriber in (WithoutArguments(), WithTheLead(), WithOptions()):
        seat, lead = seat_for(subscriber), lead_of(3)
        seat.begin(lead)
        await settle()
        await finished(seat.finish(lead))
    assert calls == ["become", "stop", "become 3", "stop 3", "become 3", "stop none"]


async def test_there_is_no_stop_without_a_become_that_was_called(caplog: pytest.LogCaptureFixture) -> None:
    """WA-4: a hook that was replaced since by one that cannot be called has not begun."""

    class Changed(Notes):
        def __init__(self) -> None:
            super().__init__()
            self.on_become_coordinator = lambda lead, more: None  # type: ignore[assignment,misc]

    notes = Changed()
    seat, lead = seat_for(notes), lead_of(1)
    seat.begin(lead)
    await settle()
    await finished(seat.finish(lead))
    assert notes.calls == []
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "it must take the Lead, or nothing" in caplog.text


async def test_there_is_no_stop_without_its_become() -> None:
    notes = Notes()
    seat, lead = seat_for(notes), lead_of(1)
    await finished(seat.finish(lead))
    seat.begin(lead)
    lead.end("lost before it was told")
    await settle()
    await finished(seat.finish(lead))
    assert notes.calls == []


async def test_a_stop_comes_once() -> None:
    notes = Notes()
    seat, lead = seat_for(notes), lead_of(1)
    seat.begin(lead)
    await settle()
    await finished(seat.finish(lead))
    await finished(seat.finish(lead))
    assert notes.calls == ["become 1", "stop"]


async def test_the_end_of_another_term_is_not_the_end_of_this_one() -> None:
    notes = Notes()
    seat, lead = seat_for(notes), lead_of(2)
    seat.begin(lead)
    await settle()
    await finished(seat.finish(lead_of(1)))
    assert notes.calls == ["become 2"]


class Slow(Notes):
    """Works for as long as the term lasts, and takes its time to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.may_stop = asyncio.Event()
        self.running = 0
        self.most_at_once = 0

    async def on_become_coordinator(self, lead: Lead) -> None:
        self._enter(f"become {lead.epoch}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.calls.append("cancelled")
            raise
        finally:
            self.running -= 1

    async def on_stop_being_coordinator(self) -> None:
        self._enter("stopping")
        await self.may_stop.wait()
        self.calls.append("stopped")
        self.running -= 1

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)


@pytest.mark.req("CP-7")
async def test_work_is_cancelled_before_stop_is_called() -> None:
    slow = Slow()
    seat, lead = seat_for(slow), lead_of(1)
    seat.begin(lead)
    await settle()
    lead.end("asked")
    done = seat.finish(lead)
    await settle()
    assert slow.calls == ["become 1", "cancelled", "stopping"]
    assert not done.done()  # the lease must not go yet
    slow.may_stop.set()
    await finished(done)
    assert slow.calls[-1] == "stopped"
    assert slow.most_at_once == 1


@pytest.mark.req("CP-7")
async def test_work_that_does_not_heed_cancellation_is_waited_for() -> None:
    release = asyncio.Event()
    notes = Notes()

    async def stubborn(lead: Lead) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                notes.calls.append("ignored")

    notes.on_become_coordinator = stubborn  # type: ignore[method-assign]
    seat, lead = seat_for(notes), lead_of(1)
    seat.begin(lead)
    await settle()
    done = seat.finish(lead)
    await settle()
    assert not done.done()
    assert notes.calls == ["ignored"]
    release.set()
    await finished(done)
    assert notes.calls == ["ignored", "stop"]


@pytest.mark.req("CP-7")
async def test_the_next_term_waits_until_the_last_has_stopped() -> None:
    slow = Slow()
    seat, first, second = seat_for(slow), lead_of(1), lead_of(2)
    seat.begin(first)
    await settle()
    first.end("lost")
    seat.finish(first)
    seat.begin(second)
    await settle()
    assert slow.calls == ["become 1", "cancelled", "stopping"]
    slow.may_stop.set()
    await settle()
    assert slow.calls == ["become 1", "cancelled", "stopping", "stopped", "become 2"]
    assert slow.most_at_once == 1
    await finished(seat.finish(second))


@pytest.mark.req("CP-7")
async def test_a_term_that_ended_while_it_waited_is_not_begun() -> None:
    slow = Slow()
    seat, first, second = seat_for(slow), lead_of(1), lead_of(2)
    seat.begin(first)
    await settle()
    first.end("lost")
    seat.finish(first)
    seat.begin(second)
    await settle()
    second.end("lost as well")
    slow.may_stop.set()
    await settle()
    assert slow.calls == ["become 1", "cancelled", "stopping", "stopped"]


@pytest.mark.req("CP-7")
async def test_the_end_of_a_term_waits_for_the_work_of_the_one_before() -> None:
    """The lease must not go over the head of what still runs."""
    slow = Slow()
    seat, first, second = seat_for(slow), lead_of(1), lead_of(2)
    seat.begin(first)
    await settle()
    first.end("lost")
    seat.finish(first)
    seat.begin(second)
    await settle()
    second.end("asked")
    done = seat.finish(second)
    await settle()
    assert not done.done()
    slow.may_stop.set()
    await finished(done)
    assert slow.calls == ["become 1", "cancelled", "stopping", "stopped"]


async def test_taking_leave_twice_waits_for_the_same_end() -> None:
    """Unsubscribed while the term ends: neither is done before the stop has returned."""
    slow = Slow()
    seat, lead = seat_for(slow), lead_of(1)
    seat.begin(lead)
    await settle()
    first, second = seat.finish(lead), seat.finish(lead)
    await settle()
    assert not first.done()
    assert not second.done()
    slow.may_stop.set()
    await finished(first)
    await finished(second)


# What they raise


def failing(where: str, how: Callable[[], Any]) -> Notes:
    notes = Notes()

    def fail(*_: object) -> Any:
        notes.calls.append(where)
        return how()

    setattr(notes, where, fail)
    return notes


def at_once() -> None:
    raise ValueError("a defect of the user's")


def when_awaited() -> Awaitable[None]:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("a defect of the user's")

    return fail()


@pytest.mark.req("CP-2")
@pytest.mark.parametrize("how", [at_once, when_awaited])
async def test_what_become_raises_is_logged_and_stop_is_called_all_the_same(
    how: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    notes = failing("on_become_coordinator", how)
    seat, lead = seat_for(notes), lead_of(1)
    with caplog.at_level(logging.ERROR, "tenure.coordinator"):
        seat.begin(lead)
        await settle()
        await finished(seat.finish(lead))
    assert notes.calls == ["on_become_coordinator", "stop"]
    assert "on_become_coordinator of Notes failed" in caplog.text
    assert "a defect of the user's" in caplog.text


@pytest.mark.req("CP-2")
@pytest.mark.parametrize("how", [at_once, when_awaited])
async def test_what_stop_raises_is_logged_and_the_next_term_begins(
    how: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    notes = failing("on_stop_being_coordinator", how)
    seat = seat_for(notes)
    for epoch in (1, 2):
        lead = lead_of(epoch)
        seat.begin(lead)
        await settle()
        await finished(seat.finish(lead))
    assert notes.calls == ["become 1", "on_stop_being_coordinator", "become 2", "on_stop_being_coordinator"]
    assert "on_stop_being_coordinator of Notes failed" in caplog.text


async def test_a_subscriber_that_cancels_itself_is_no_trouble() -> None:
    notes = Notes()

    async def cancelled(lead: Lead) -> None:
        raise asyncio.CancelledError

    notes.on_become_coordinator = cancelled  # type: ignore[method-assign]
    seat, lead = seat_for(notes), lead_of(1)
    seat.begin(lead)
    await settle()
    await finished(seat.finish(lead))
    assert notes.calls == ["stop"]


# Loops


async def test_calls_come_on_the_loop_of_the_subscriber() -> None:
    """The coordinator may have a thread of its own."""
    threads: list[str] = []

    class Where(Notes):
        async def on_become_coordinator(self, lead: Lead) -> None:
            threads.append(threading.current_thread().name)

        async def on_stop_being_coordinator(self) -> None:
            threads.append(threading.current_thread().name)

    seat, lead = seat_for(Where()), lead_of(1)

    def coordinate() -> None:
        seat.begin(lead)
        seat.finish(lead).result(10)

    await asyncio.to_thread(coordinate)
    assert threads == [threading.current_thread().name] * 2


def test_a_loop_that_is_closed_keeps_nobody_waiting() -> None:
    loop = asyncio.new_event_loop()
    seat, lead = Seat(Notes(), loop), lead_of(1)
    loop.close()
    seat.begin(lead)
    assert seat.finish(lead).done()
