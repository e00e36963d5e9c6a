"""Leadership as a scope: its body runs only while this process leads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.coordinator.lead import Lead
from tenure.coordinator.scope import LeadershipScope, OnLoss
from tenure.election.holding import Holding
from tenure.errors import CoordinationError, LeadershipLost
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.leases import numbered


class Stopped(CoordinationError):
    """This coordinator will never lead again."""


class Coordinator:
    """The part of one that a scope sees."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.subscribers: list[Any] = []
        self.left: list[str] = []
        self.over = asyncio.Event()
        self.endings: list[asyncio.Task[None]] = []

    def subscribe(self, plugin: Any) -> None:
        self.subscribers.append(plugin)

    def unsubscribe(self, plugin: Any) -> None:
        self.subscribers.remove(plugin)

    async def leave(self, reason: str) -> None:
        self.left.append(reason)

    async def must_go_on(self) -> None:
        await self.over.wait()
        raise Stopped("it has stopped")

    def elect(self, epoch: int = 1, *, tell: bool = True) -> Lead:
        lead = Lead(
            namespace="default",
            worker_id="ada",
            epoch=epoch,
            grant_id=f"g{epoch}",
            holding=Holding(self.clock.read(), 14.85, 10.0),
            clock=self.clock,
            store=MemoryStore(),
            draw_id=numbered("w"),
        )
        if tell:
            self.tell(lead)
        return lead

    def tell(self, lead: Lead) -> None:
        for plugin in list(self.subscribers):
            plugin.on_become_coordinator(lead)

    def depose(self, lead: Lead, reason: str = "taken") -> None:
        lead.end(reason)
        loop = asyncio.get_running_loop()
        self.endings += [loop.create_task(plugin.on_stop_being_coordinator()) for plugin in self.subscribers]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Body:
    """A task that enters a scope, and stays in it until it is told to go on."""

    def __init__(
        self, coordinator: Coordinator, on_loss: OnLoss = OnLoss.RAISE, error: Exception | None = None
    ) -> None:
        self.entered: Lead | None = None
        self.seen: list[str] = []
        self.go_on = asyncio.Event()
        self._error = error
        self._scope = LeadershipScope(coordinator, on_loss)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> str:
        async with self._scope as lead:
            self.entered = lead
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.seen.append("cancelled")
                if self._error is not None:
                    raise self._error from None
                raise
            if self._error is not None:
                raise self._error
            self.seen.append("finished")
        self.seen.append("after")
        return "done"


# Entering


async def test_it_waits_until_this_process_leads() -> None:
    coordinator = Coordinator()
    body = Body(coordinator)
    await settle()
    assert body.entered is None
    lead = coordinator.elect()
    await settle()
    assert body.entered is lead
    body.go_on.set()
    assert await body.task == "done"


async def test_a_term_that_ended_before_it_entered_is_not_entered() -> None:
    coordinator = Coordinator()
    body = Body(coordinator)
    await settle()
    first = coordinator.elect(1, tell=False)
    first.end("lost at once")
    coordinator.tell(first)
    coordinator.depose(first)
    await settle()
    assert body.entered is None
    second = coordinator.elect(2)
    await settle()
    assert body.entered is second
    body.go_on.set()
    await body.task


async def test_a_coordinator_that_stops_ends_the_wait() -> None:
    coordinator = Coordinator()
    body = Body(coordinator)
    await settle()
    coordinator.over.set()
    with pytest.raises(Stopped):
        await body.task
    assert coordinator.subscribers == []
    assert coordinator.left == []  # there was nothing to give back


async def test_a_wait_can_be_cancelled() -> None:
    coordinator = Coordinator()
    body = Body(coordinator)
    await settle()
    body.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await body.task
    assert coordinator.subscribers == []


async def test_a_wait_can_be_limited() -> None:
    coordinator = Coordinator()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), LeadershipScope(coordinator):
            raise AssertionError("nobody leads")
    assert coordinator.subscribers == []


# Leaving


async def test_leaving_the_body_gives_leadership_back() -> None:
    coordinator = Coordinator()
    body = Body(coordinator)
    await settle()
    coordinator.elect()
    body.go_on.set()
    await body.task
    assert coordinator.left == ["scope-ended"]
    assert coordinator.subscribers == []
    assert body.seen == ["finished", "after"]


async def test_an_error_of_the_body_is_its_own() -> None:
    coordinator = Coordinator()
    body = Body(coordinator, error=ValueError("a defect"))
    await settle()
    coordinator.elect()
    body.go_on.set()
    with pytest.raises(ValueError, match="a defect"):
        await body.task
    assert coordinator.left == ["scope-ended"]


# Losing


@pytest.mark.req("CP-7")
async def test_the_body_is_cancelled_when_the_term_ends() -> None:
    coordinator = Coordinator()
    body = Body(coordinator)
    await settle()
    lead = coordinator.elect(8)
    await settle()
    assert body.entered is lead
    coordinator.depose(lead, "renew-deadline")
    with pytest.raises(LeadershipLost, match=r"epoch 8.*renew-deadline"):
        await body.task
    assert body.seen == ["cancelled"]
    assert coordinator.left == []  # there is nothing left to give back


@pytest.mark.req("CP-7")
async def test_the_end_of_the_term_waits_for_the_body() -> None:
    """The lease is not released before it has ended."""
    coordinator = Coordinator()
    ended = asyncio.Event()

    async def slow_to_end() -> None:
        async with LeadershipScope(coordinator, OnLoss.SUPPRESS):
            try:
                await asyncio.Event().wait()
            finally:
                await ended.wait()

    task = asyncio.create_task(slow_to_end())
    await settle()
    lead = coordinator.elect()
    await settle()
    coordinator.depose(lead)
    await settle()
    assert not coordinator.endings[0].done()
    ended.set()
    await task
    await settle()
    assert coordinator.endings[0].done()


async def test_a_loss_can_be_passed_over() -> None:
    coordinator = Coordinator()
    body = Body(coordinator, OnLoss.SUPPRESS)
    await settle()
    lead = coordinator.elect()
    await settle()
    coordinator.depose(lead)
    assert await body.task == "done"
    assert body.seen == ["cancelled", "after"]
    assert body.task.cancelling() == 0  # nothing is left of it


async def test_an_error_in_the_cleanup_of_a_cancelled_body_is_its_own() -> None:
    coordinator = Coordinator()
    body = Body(coordinator, error=ValueError("in cleaning up"))
    await settle()
    lead = coordinator.elect()
    await settle()
    coordinator.depose(lead)
    with pytest.raises(ValueError, match="cleaning up"):
        await body.task


@pytest.mark.parametrize("on_loss", OnLoss)
async def test_somebody_elses_cancellation_is_never_swallowed(on_loss: OnLoss) -> None:
    coordinator = Coordinator()
    body = Body(coordinator, on_loss)
    await settle()
    lead = coordinator.elect()
    await settle()
    coordinator.depose(lead)
    await asyncio.sleep(0)
    body.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await body.task
    assert coordinator.subscribers == []


async def test_a_cancelled_body_gives_leadership_back() -> None:
    coordinator = Coordinator()
    body = Body(coordinator)
    await settle()
    coordinator.elect()
    await settle()
    body.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await body.task
    assert coordinator.left == ["scope-ended"]


async def test_a_timeout_around_it_is_a_timeout() -> None:
    coordinator = Coordinator()
    asyncio.get_running_loop().call_later(0.01, coordinator.elect)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), LeadershipScope(coordinator):
            await asyncio.Event().wait()
    assert coordinator.left == ["scope-ended"]


async def test_a_term_lost_between_its_arrival_and_the_body_ends_the_body() -> None:
    """It was told in the same turn of the loop in which it woke."""
    coordinator = Coordinator()
    scope = LeadershipScope(coordinator, OnLoss.SUPPRESS)
    waiting = asyncio.create_task(scope.acquire())
    await settle()
    lead = coordinator.elect()
    assert await waiting is lead
    coordinator.depose(lead)
    await settle()
    reached = []

    async def body() -> bool:
        scope.enter()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reached.append("cancelled")
            return scope.leave_body(asyncio.CancelledError)
        return False

    assert await asyncio.wait_for(body(), 10)
    assert reached == ["cancelled"]
    await scope.close()
    await settle()
    assert all(ending.done() for ending in coordinator.endings)


async def test_closing_twice_is_closing_once() -> None:
    coordinator = Coordinator()
    scope = LeadershipScope(coordinator)
    asyncio.get_running_loop().call_soon(coordinator.elect)
    async with scope:
        pass
    await scope.close()
    assert coordinator.left == ["scope-ended"]


# The body of a lead from terms(): `async with lead:`


async def run_a_term(coordinator: Coordinator, work: Any) -> str:
    scope = LeadershipScope(coordinator, OnLoss.SUPPRESS)
    lead = await scope.acquire()
    lead.scopes[asyncio.current_task()] = scope
    try:
        async with lead:
            await work()
        return "after"
    finally:
        await scope.close()


async def test_the_body_of_a_lead_ends_quietly_with_its_term() -> None:
    coordinator = Coordinator()
    task = asyncio.create_task(run_a_term(coordinator, asyncio.Event().wait))
    await settle()
    lead = coordinator.elect()
    await settle()
    coordinator.depose(lead)
    assert await asyncio.wait_for(task, 5) == "after"


async def test_an_error_in_the_body_of_a_lead_is_its_own() -> None:
    coordinator = Coordinator()

    async def fail() -> None:
        raise ValueError("a defect")

    task = asyncio.create_task(run_a_term(coordinator, fail))
    await settle()
    coordinator.elect()
    with pytest.raises(ValueError, match="a defect"):
        await task


async def test_between_the_deadline_and_the_lapse_there_is_time_to_wind_up() -> None:
    coordinator = Coordinator()
    lead = coordinator.elect(tell=False)
    coordinator.clock.advance(12.0)
    assert (lead.is_current(), lead.holds()) == (False, True)
    assert lead.time_to_wind_up() == pytest.approx(2.85)
    coordinator.clock.advance(2.85)
    assert (lead.holds(), lead.time_to_wind_up()) == (False, 0.0)
