"""Events reach those who listen: in order, on their own loop or thread, and nobody can harm anybody else."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import logging
import threading
import time
from collections.abc import Awaitable, Iterator
from typing import Any

import msgspec
import pytest

from tenure.coordinator.events import (
    EVENT_NAMES,
    CircuitBreakerOpen,
    ContentionDetected,
    CoordinatorDemoted,
    CoordinatorElected,
    CoordinatorPromoted,
    EpochRenewed,
    EventBus,
    EventsLost,
    LeaderChanged,
    WorkerHeartbeat,
    WorkersUpdated,
)
from tenure.errors import ConfigError
from tests.support.waiting import eventually

LONG = 20.0  # far more than any of this takes; only a failure waits so long


@pytest.fixture
def bus() -> Iterator[EventBus]:
    bus = EventBus()
    yield bus
    bus.close()


def change(epoch: int) -> LeaderChanged:
    return LeaderChanged(namespace="default", previous_leader=None, new_leader="a", epoch=epoch)


def epochs(events: list[Any]) -> list[int]:
    return [event.epoch for event in events if isinstance(event, LeaderChanged)]


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Named(msgspec.Struct, frozen=True):
    name: str


@pytest.mark.req("EL-10")
def test_the_payloads_have_the_agreed_names_and_fields() -> None:
    agreed: dict[Any, tuple[str, str]] = {
        LeaderChanged: ("leader:changed", "namespace previous_leader new_leader epoch"),
        WorkersUpdated: ("workers:updated", "namespace workers"),
        ContentionDetected: ("contention:detected", "namespace duration expected ratio threshold timestamp"),
        CircuitBreakerOpen: ("circuitBreaker:open", "namespace failure_count"),
        WorkerHeartbeat: ("coord:worker-heartbeat", "worker_id timestamp"),
        CoordinatorElected: ("coord:coordinator-elected", "worker_id epoch active_workers"),
        CoordinatorPromoted: ("coord:coordinator-promoted", "worker_id epoch timestamp"),
        CoordinatorDemoted: ("coord:coordinator-demoted", "worker_id epoch reason"),
        EpochRenewed: ("coord:coordinator-epoch-renewed", "worker_id epoch mandate_ends_at"),
    }
    for kind, (name, fields) in agreed.items():
        assert kind.name == name
        assert kind.__struct_fields__ == tuple(fields.split())
        assert name in EVENT_NAMES
    assert len(EVENT_NAMES) == 18


@pytest.mark.req("EL-10")
async def test_a_handler_gets_the_events_of_its_name_in_order(bus: EventBus) -> None:
    seen: list[Any] = []
    bus.on("leader:changed", seen.append)
    bus.emit(change(1))
    bus.emit(WorkersUpdated("default", ("a",)))
    bus.emit(change(2))
    await eventually(lambda: len(seen) == 2)
    await turns()
    assert seen == [change(1), change(2)]


async def test_a_star_gets_everything(bus: EventBus) -> None:
    seen: list[Any] = []
    bus.on("*", seen.append)
    bus.emit(change(1))
    bus.emit(Named("plg:ttl:cleanup-started"))
    await eventually(lambda: len(seen) == 2)


async def test_plugins_make_up_names_of_their_own(bus: EventBus) -> None:
    seen: list[Any] = []
    bus.on("plg:ttl:cleanup-started", seen.append)
    bus.emit(Named("plg:ttl:cleanup-started"))
    await eventually(lambda: len(seen) == 1)


@pytest.mark.parametrize("name", ["leader:change", "", "leader", "LEADER:CHANGED"])
async def test_unknown_names_are_refused_and_the_known_ones_named(bus: EventBus, name: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no event .*leader:changed.*workers:updated"):
        bus.on(name, print)
    with pytest.raises(ConfigError, match="there is no event"):
        bus.events("leader:changed", name)


async def test_more_names_can_be_made_known() -> None:
    bus = EventBus(more_names=["coord:other"])
    seen: list[Any] = []
    bus.on("coord:other", seen.append)
    bus.emit(Named("coord:other"))
    await eventually(lambda: len(seen) == 1)


async def test_what_cannot_be_called_is_refused(bus: EventBus) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        bus.on("leader:changed", None)  # type: ignore[arg-type]


@pytest.mark.req("EL-10")
async def test_a_handler_that_raises_is_logged_and_breaks_nothing_else(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    calls: list[Any] = []

    def broken(event: LeaderChanged) -> None:
        calls.append(event)
        raise ValueError("mine")

    async def broken_later(event: LeaderChanged) -> None:
        calls.append(event)
        await asyncio.sleep(0)
        raise ValueError("mine too")

    bus.on("leader:changed", broken)
    bus.on("leader:changed", broken_later)
    bus.on("leader:changed", seen.append)
    with caplog.at_level(logging.ERROR, "tenure.coordinator"):
        bus.emit(change(1))
        bus.emit(change(2))
        await eventually(lambda: len(seen) == 2 and len(calls) == 4 and len(caplog.records) == 4)
    assert all(record.name == "tenure.coordinator" and record.exc_info for record in caplog.records)
    assert "broken" in caplog.text
    assert "leader:changed" in caplog.text


async def test_something_cancelled_inside_a_handler_does_not_end_it(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    async def waits_in_vain(event: LeaderChanged) -> None:
        calls.append(event)
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    bus.on("leader:changed", waits_in_vain)
    bus.emit(change(1))
    bus.emit(change(2))
    await eventually(lambda: len(calls) == 2)
    assert "waits_in_vain" in caplog.text


async def test_emit_never_runs_a_handler_itself(bus: EventBus) -> None:
    seen: list[Any] = []
    bus.on("leader:changed", seen.append)
    bus.emit(change(1))
    assert seen == []
    await eventually(lambda: seen == [change(1)])


async def test_an_async_handler_is_awaited_before_its_next_event(bus: EventBus) -> None:
    log: list[str] = []

    async def slow(event: LeaderChanged) -> None:
        log.append(f"begin {event.epoch}")
        await asyncio.sleep(0.005)
        log.append(f"end {event.epoch}")

    bus.on("leader:changed", slow)
    bus.emit(change(1))
    bus.emit(change(2))
    await eventually(lambda: len(log) == 4)
    assert log == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_a_slow_handler_delays_nobody_else(bus: EventBus) -> None:
    gate = asyncio.Event()
    seen: list[Any] = []

    async def stuck(_: LeaderChanged) -> None:
        await gate.wait()

    bus.on("leader:changed", stuck)
    bus.on("leader:changed", seen.append)
    bus.emit(change(1))
    bus.emit(change(2))
    await eventually(lambda: len(seen) == 2)
    gate.set()


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def __call__(self, event: Any) -> None:
        self.seen.append(event)


async def note(seen: list[Any], event: Any) -> None:
    seen.append(event)


async def test_anything_that_returns_an_awaitable_is_awaited(bus: EventBus) -> None:
    recorder = Recorder()
    seen: list[Any] = []

    def lambda_like(event: Any) -> Awaitable[None]:
        return note(seen, event)

    for handler in (recorder, functools.partial(note, seen), lambda_like):
        bus.on("leader:changed", handler)
    bus.emit(change(1))
    await eventually(lambda: len(seen) == 2 and len(recorder.seen) == 1)


async def test_events_from_another_thread_run_on_the_loop_of_the_handler(bus: EventBus) -> None:
    threads: list[int] = []
    bus.on("leader:changed", lambda _: threads.append(threading.get_ident()))

    def emit_many() -> None:
        for epoch in range(50):
            bus.emit(change(epoch))

    await asyncio.to_thread(emit_many)
    await eventually(lambda: len(threads) == 50)
    assert set(threads) == {threading.get_ident()}


async def test_many_threads_at_once_lose_nothing_within_the_bound() -> None:
    bus = EventBus(buffer_size=1000)
    seen: list[Any] = []
    bus.on("leader:changed", seen.append)
    stream = bus.events("leader:changed")

    def emit_many(start: int) -> None:
        for epoch in range(start, start + 100):
            bus.emit(change(epoch))

    await asyncio.gather(*(asyncio.to_thread(emit_many, 1000 * number) for number in range(4)))
    await eventually(lambda: len(seen) == 400)
    bus.close()
    streamed = [event async for event in stream]
    for events in (seen, streamed):
        assert len(events) == 400
        for number in range(4):
            mine = [epoch for epoch in epochs(events) if epoch // 1000 == number]
            assert mine == sorted(mine)


async def test_a_handler_runs_in_the_context_of_its_registration(bus: EventBus) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    seen: list[str] = []
    tenant.set("registering")
    bus.on("leader:changed", lambda _: seen.append(tenant.get()))
    tenant.set("emitting")
    bus.emit(change(1))
    await eventually(lambda: bool(seen))
    assert seen == ["registering"]


def test_without_a_loop_a_plain_handler_runs_on_a_thread_of_the_bus(bus: EventBus) -> None:
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def handle(event: LeaderChanged) -> None:
        seen.append((event.epoch, threading.get_ident()))
        if event.epoch == 9:
            done.set()

    bus.on("leader:changed", handle)
    for epoch in range(10):
        bus.emit(change(epoch))
    assert done.wait(LONG)
    assert [epoch for epoch, _ in seen] == list(range(10))
    threads = {thread for _, thread in seen}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


@pytest.mark.req("EL-10")
def test_on_that_thread_too_a_handler_that_raises_breaks_nothing_else(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def leaves(_: Any) -> None:
        raise SystemExit

    def gives_a_coroutine(event: Any) -> Awaitable[None]:
        return note([], event)

    bus.on("leader:changed", leaves)
    bus.on("leader:changed", gives_a_coroutine)
    bus.on("leader:changed", lambda _: done.set())
    bus.emit(change(1))
    assert done.wait(LONG)
    assert "leaves" in caplog.text
    assert "returned an awaitable" in caplog.text


@pytest.mark.parametrize("handler", [Recorder(), functools.partial(note, []), Recorder().__call__])
def test_without_a_loop_an_async_handler_is_refused(bus: EventBus, handler: Any) -> None:
    with pytest.raises(ConfigError, match="is async, and no event loop is running"):
        bus.on("leader:changed", handler)


async def test_off_ends_it_also_for_what_is_pending(bus: EventBus) -> None:
    seen: list[Any] = []
    bus.on("leader:changed", seen.append)
    bus.on("workers:updated", seen.append)
    bus.emit(change(1))
    assert bus.off("leader:changed", seen.append)
    assert not bus.off("leader:changed", seen.append)
    bus.emit(change(2))
    bus.emit(WorkersUpdated("default", ()))
    await eventually(lambda: bool(seen))
    await turns()
    assert seen == [WorkersUpdated("default", ())]


async def test_a_subscription_can_be_cancelled_and_used_in_a_with_block(bus: EventBus) -> None:
    seen: list[Any] = []
    subscription = bus.on("leader:changed", seen.append)
    subscription.cancel()
    with bus.on("leader:changed", seen.append):
        bus.emit(change(1))
        await eventually(lambda: bool(seen))
    bus.emit(change(2))
    await turns()
    assert seen == [change(1)]


async def test_a_handler_may_cancel_itself(bus: EventBus) -> None:
    seen: list[Any] = []

    def once(event: LeaderChanged) -> None:
        seen.append(event)
        bus.off("leader:changed", once)

    bus.on("leader:changed", once)
    bus.emit(change(1))
    bus.emit(change(2))
    await turns()
    assert seen == [change(1)]


async def test_a_slow_handler_loses_the_oldest_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus(buffer_size=3)
    seen: list[Any] = []
    reports: list[Any] = []
    gate = asyncio.Event()

    async def slow(event: LeaderChanged) -> None:
        await gate.wait()
        seen.append(event)

    bus.on("leader:changed", slow)
    bus.on("events:lost", reports.append)
    bus.emit(change(0))
    await turns()  # the handler holds event 0
    with caplog.at_level(logging.WARNING, "tenure.coordinator"):
        for epoch in range(1, 11):
            bus.emit(change(epoch))
            await turns()
        assert reports, "a handler that hangs is reported while it hangs"
        gate.set()
        await eventually(lambda: len(seen) == 4)
        await turns()
    assert epochs(seen) == [0, 8, 9, 10]
    assert sum(report.count for report in reports) == 7
    assert all("slow" in report.consumer for report in reports)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len(reports) == 3  # at 1, 2 more and 4 more: not one for each


async def test_slow_listeners_do_not_feed_each_other_with_complaints() -> None:
    bus = EventBus(buffer_size=1)
    seen: list[list[Any]] = [[], [], []]
    for each in seen:
        bus.on("*", functools.partial(note, each))
    for epoch in range(100):
        bus.emit(change(epoch))
    await turns(300)
    counts = [len(each) for each in seen]
    await turns(300)
    assert [len(each) for each in seen] == counts
    assert max(counts) < 20


async def test_a_notice_of_loss_pushes_out_no_event() -> None:
    bus = EventBus(buffer_size=2)
    stream = bus.events("*")
    bus.emit(change(1))
    bus.emit(change(2))
    bus.emit(EventsLost("somebody", 7))
    assert [await anext(stream), await anext(stream)] == [change(1), change(2)]


async def test_a_loop_that_was_closed_drops_its_handlers_silently(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()

    async def register() -> None:
        bus.on("leader:changed", print)

    await asyncio.to_thread(loop.run_until_complete, register())
    bus.emit(change(0))  # scheduled on a loop that is closed before it runs again
    loop.close()
    seen: list[Any] = []
    bus.on("leader:changed", seen.append)
    for epoch in range(1000):
        bus.emit(change(epoch))
        if epoch % 100 == 0:
            await turns(300)
    await eventually(lambda: len(seen) == 1000)
    assert caplog.records == []
    assert len(bus._listeners) == 1


async def test_a_loop_that_ends_in_the_middle_of_a_handler(bus: EventBus, caplog: pytest.LogCaptureFixture) -> None:
    cancelled = threading.Event()

    async def long(_: Any) -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            cancelled.set()

    def elsewhere() -> None:
        async def register() -> None:
            bus.on("leader:changed", long)
            bus.emit(change(0))
            bus.emit(change(1))
            await turns()

        asyncio.run(register())

    await asyncio.to_thread(elsewhere)
    assert cancelled.is_set()
    bus.emit(change(2))
    assert bus._listeners == ()
    assert caplog.records == []


async def test_emit_never_raises(bus: EventBus, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    bus.on("leader:changed", seen.append)
    bus.emit(object())  # type: ignore[arg-type]
    bus.emit(change(1))
    await eventually(lambda: bool(seen))
    assert "did not reach" in caplog.text


async def test_an_iterator_gets_what_is_emitted_after_it_was_made(bus: EventBus) -> None:
    bus.emit(change(0))
    stream = bus.events("leader:changed", "workers:updated")
    bus.emit(change(1))
    bus.emit(CircuitBreakerOpen("default", 5))
    bus.emit(WorkersUpdated("default", ("a",)))
    assert await anext(stream) == change(1)
    assert await anext(stream) == WorkersUpdated("default", ("a",))
    waiting = asyncio.create_task(anext(stream))
    await turns()
    await asyncio.to_thread(bus.emit, change(2))
    async with asyncio.timeout(LONG):
        assert await waiting == change(2)


async def test_an_iterator_without_names_gets_everything(bus: EventBus) -> None:
    stream = bus.events()
    bus.emit(change(1))
    bus.emit(CircuitBreakerOpen("default", 5))
    assert [await anext(stream), await anext(stream)] == [change(1), CircuitBreakerOpen("default", 5)]


async def test_a_slow_iterator_is_told_of_its_loss_before_the_next_event() -> None:
    bus = EventBus(buffer_size=2)
    stream = bus.events("leader:changed")
    for epoch in range(5):
        bus.emit(change(epoch))
    lost = await anext(stream)
    assert isinstance(lost, EventsLost)
    assert lost.count == 3
    assert await anext(stream) == change(3)
    assert await anext(stream) == change(4)
    bus.emit(change(5))
    assert await anext(stream) == change(5)


async def test_closing_the_bus_ends_iterators_after_what_they_have() -> None:
    bus = EventBus()
    full, waiting = bus.events("leader:changed"), bus.events("workers:updated")
    reader = asyncio.create_task(anext(waiting, None))
    await turns()
    bus.emit(change(1))
    bus.close()
    bus.emit(change(2))
    async with asyncio.timeout(LONG):
        assert [event async for event in full] == [change(1)]
        assert await reader is None
        assert [event async for event in bus.events("leader:changed")] == []


async def test_closing_the_bus_still_delivers_what_was_emitted() -> None:
    bus = EventBus()
    seen: list[Any] = []
    bus.on("leader:changed", seen.append)
    bus.emit(change(1))
    bus.emit(change(2))
    bus.close()
    bus.emit(change(3))
    await turns()
    assert seen == [change(1), change(2)]
    with pytest.raises(ConfigError, match="have ended"):
        bus.on("leader:changed", print)


def test_closing_the_bus_ends_its_thread_after_what_was_emitted() -> None:
    bus = EventBus()
    seen: list[Any] = []
    threads: set[threading.Thread] = set()

    def handle(event: Any) -> None:
        seen.append(event)
        threads.add(threading.current_thread())

    bus.on("leader:changed", handle)
    for epoch in range(5):
        bus.emit(change(epoch))
    bus.close()
    deadline = time.monotonic() + LONG
    while len(seen) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    (thread,) = threads
    thread.join(LONG)
    assert not thread.is_alive()
    assert epochs(seen) == list(range(5))


async def test_aclose_ends_an_iterator_and_whoever_waits_for_it(bus: EventBus) -> None:
    stream = bus.events("leader:changed")
    reader = asyncio.create_task(anext(stream, None))
    await turns()
    await stream.aclose()
    async with asyncio.timeout(LONG):
        assert await reader is None
    assert bus._listeners == ()
    async with bus.events("leader:changed") as stream:
        bus.emit(change(1))
    assert [event async for event in stream] == []


async def test_an_iterator_that_nobody_holds_is_forgotten(bus: EventBus) -> None:
    stream = bus.events("leader:changed")
    bus.emit(change(1))
    async for _ in stream:
        break
    del stream
    gc.collect()
    bus.emit(change(2))
    assert bus._listeners == ()


async def test_a_waiting_reader_is_kept_alive(bus: EventBus) -> None:
    seen: list[Any] = []

    async def read() -> None:
        async for event in bus.events("leader:changed"):
            seen.append(event)
            return

    asyncio.create_task(read())  # noqa: RUF006 - what this is about: nobody holds the task
    await turns()
    gc.collect()
    bus.emit(change(1))
    await eventually(lambda: bool(seen))


async def test_a_cancelled_reader_loses_nothing(bus: EventBus) -> None:
    stream = bus.events("leader:changed")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(stream)
    bus.emit(change(1))
    assert await anext(stream) == change(1)


async def test_two_readers_of_one_iterator_are_refused(bus: EventBus) -> None:
    stream = bus.events("leader:changed")
    reader = asyncio.create_task(anext(stream, None))
    await turns()
    with pytest.raises(RuntimeError, match="give each reader its own"):
        await anext(stream)
    await stream.aclose()
    await reader


def test_an_iterator_may_be_read_on_one_loop_after_another(bus: EventBus) -> None:
    stream = bus.events("leader:changed")

    async def read_in_vain() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(stream)

    async def read() -> Any:
        return await anext(stream)

    asyncio.run(read_in_vain())
    bus.emit(change(1))
    assert asyncio.run(read()) == change(1)


def test_a_buffer_holds_at_least_one() -> None:
    with pytest.raises(ConfigError, match="buffer_size is 0"):
        EventBus(buffer_size=0)
