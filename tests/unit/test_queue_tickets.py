"""Tickets from the log to a handler, and what all of it costs: leader and workers in simulated time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tenure import CoordinatorConfig, Database
from tenure.coordinator.events import PluginEvent
from tenure.election.records import encode
from tenure.ledger import LogEntry
from tenure.ledger.layout import log_key
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.queue.events import TicketsPublished
from tenure.plugins.queue.records import Ticket, Work
from tenure.testing.machine import EPOCH_SECONDS
from tests.unit.queue_rig import FOLDER, Leader, Rig


@pytest.mark.req("SQ-2")
def test_each_takes_the_tickets_that_are_meant_for_it_and_reports_many_messages_at_once() -> None:
    count = 2000
    with Rig() as rig:
        leader, client = rig.lead(), rig.client()
        handled: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        workers = {}
        for name in handled:

            async def handle(message: Message, name: str = name) -> None:
                handled[name].append(message.body)

            workers[name] = rig.work(handle, name, prefetch=100)
        rig.run(2.0)
        rig.enqueue(2.0, client, *range(count))
        rig.run(30.0)
        published = [event for event in rig.events if isinstance(event, TicketsPublished)]
        assert sum(event.messages for event in published) == count
        meant: dict[str, list[int]] = {workers[name].queue.uid: [] for name in handled}
        for _, ticket in rig.tickets:
            for run in ticket.runs:
                meant[ticket.uid] += range(run.low, run.high)
        for name, worker in workers.items():
            assert sorted(handled[name]) == sorted(meant[worker.queue.uid])
            assert handled[name]
        assert sorted(number for numbers in handled.values() for number in numbers) == list(range(count))
        assert leader.machine.totals.done == count
        assert sum(worker.queue.counts["reports"] for worker in workers.values()) < count / 10


@pytest.mark.req("SQ-2", "EF-9")
async def test_who_listens_is_told_of_tickets() -> None:
    async with Database("memory://tickets") as db:
        queue = S3QueuePlugin("jobs", config=CoordinatorConfig.fast())
        told: asyncio.Queue[PluginEvent] = asyncio.Queue()
        handled: asyncio.Queue[int] = asyncio.Queue()

        @queue.handler
        async def handle(message: Message) -> None:
            handled.put_nowait(message.token)

        await db.use_plugin(queue)
        queue.on("plg:s3-queue:tickets-published", told.put_nowait)
        await queue.enqueue("job")
        event = await asyncio.wait_for(told.get(), 60)
        published = event.event
        assert isinstance(published, TicketsPublished)
        assert (published.tickets, published.messages) == (1, 1)
        assert await asyncio.wait_for(handled.get(), 60) == published.seq


@pytest.mark.req("SQ-2")
def test_a_ticket_of_a_former_leader_is_not_taken() -> None:
    """Its entry lands in the log after the next leader has begun: it is void, and so is everything in it."""
    with Rig() as rig:
        leader, client = rig.lead(epoch=2), rig.client()

        async def handle(message: Message) -> None:
            rig.handled.append((message.body, message.token))

        worker = rig.work(handle)
        rig.enqueue(1.0, client, "job", delay=30.0)
        rig.run(5.0)
        assert leader.leading.term is not None
        ((_, _, run),) = leader.machine.delayed
        seq = leader.leading.term.state.seq + 1
        now_ms = (EPOCH_SECONDS + 5) * 1000
        ticket = Ticket(f"{seq}-0", worker.queue.uid, seq, now_ms + 30_000, 30_000, [run.part(run.low, run.high)])
        events = msgspec.Raw(msgspec.json.encode(Work(tickets=[ticket])))
        late = LogEntry(write_id="late", seq=seq, epoch=1, time_ms=now_ms, events=events)
        rig.bucket.restore(FOLDER + log_key(seq), encode(late))
        rig.run(25.0)
        assert worker.queue.tail.position > seq, "it was read"
        assert rig.handled == []
        rig.run(60.0)
        ((body, token),) = rig.handled
        assert body == "job"
        assert token > seq


@pytest.mark.req("EF-9", "SQ-3")
def test_tokens_rise_through_failures_lapses_and_leaders() -> None:
    with Rig(visibility_timeout=5.0, backoff=0.5, max_attempts=20) as rig:
        tokens: dict[int, list[int]] = {number: [] for number in range(20)}
        leader, client = rig.lead(), rig.client()

        async def handle(message: Message) -> None:
            tokens[message.body].append(message.token)
            if rig.world.now < 60.0:
                raise RuntimeError("not yet")

        workers = [rig.work(handle, name, concurrency=3) for name in ("a", "b")]
        rig.enqueue(1.0, client, *tokens)
        for time in (5.0, 15.0, 30.0):
            rig.world.call_at(time, workers[int(time) % 2].host.freeze, 9.0)
        successors: list[Leader] = []

        def succeed(epoch: int) -> None:
            [leader, *successors][-1].lease.valid = False
            successors.append(rig.lead(epoch, name=f"leader {epoch}"))

        rig.world.call_at(12.0, succeed, 2)
        rig.world.call_at(35.0, succeed, 3)
        rig.run(200.0)
        assert successors[-1].machine.totals.done == 20
        for seen in tokens.values():
            assert len(seen) > 3
            assert seen == sorted(set(seen))


@pytest.mark.req("SQ-4")
def test_under_load_fifty_messages_and_more_share_a_request() -> None:
    count, call, rate = 30_000, 1000, 20_000
    with Rig(tick_interval=0.02, load_interval=0.1, poll_interval=0.05) as rig:
        leader, client = rig.lead(), rig.client()
        done: list[int] = []

        async def handle(message: Message) -> None:
            done.append(message.body)

        for number in range(4):
            rig.work(handle, f"w{number}", prefetch=5000)
        rig.run(2.0)
        before = sum(rig.network.requests.values())
        for first in range(0, count, call):
            rig.enqueue(2.0 + first / rate, client, *range(first, first + call))
        while len(done) < count:
            rig.run(rig.world.now + 0.05)
            assert rig.world.now < 30.0
        assert (sum(rig.network.requests.values()) - before) / count <= 0.02
        rig.run(rig.world.now + 2.0)
        assert leader.machine.totals.done == count
        assert sorted(done) == list(range(count))
