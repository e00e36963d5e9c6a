"""What a whole queue must hold to when its store is slow, its handlers are odd and its callers are many.

Each of these went wrong once. Leader, workers and producers are the real ones; time, store and network are simulated.
"""

from __future__ import annotations

import asyncio
import functools
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from tenure.election.records import encode
from tenure.errors import SchemaTooNew, StoreError, StoreUnavailable, TicketLost
from tenure.ledger import LedgerConfig, LogEntry
from tenure.ledger import follower as follower_module
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import log_key
from tenure.plugins.queue import Message
from tenure.plugins.queue.calling import called
from tenure.plugins.queue.leading import Leading
from tenure.plugins.queue.wire import Failure, Outcome
from tenure.store.memory import MemoryStore
from tenure.testing.machine import EPOCH_SECONDS
from tests.support.lease import ScriptedLease
from tests.support.store import ANY, Request
from tests.unit.queue_rig import FOLDER, LOG, Rig
from tests.unit.queues import Desk, messages_of


class TestEnqueueing:
    @pytest.mark.req("SQ-1")
    @pytest.mark.parametrize("bodies", [[b"x" * 5000] * 2000, [1] * 120_000], ids=["10 MB", "120,000"])
    def test_a_call_with_more_than_one_object_holds_is_folded_whole(self, bodies: list[Any]) -> None:
        with Rig() as rig:
            leader = rig.lead()
            plugin, host, _ = rig.plugin()
            ids: list[str] = []

            async def call() -> None:
                await plugin.start()
                ids.extend(await plugin.enqueue_many(bodies))

            rig.at(1.0, host, call)
            rig.run(30.0)
            assert len(set(ids)) == len(bodies)
            assert leader.machine.totals.enqueued == len(bodies)
            assert rig.inbox == []
            assert rig.bucket.keys(FOLDER + "damaged/") == []

    @pytest.mark.req("SQ-1")
    def test_calls_that_share_an_object_are_folded_all_though_their_headers_are_large(self) -> None:
        with Rig() as rig:
            leader = rig.lead()
            plugin, host, _ = rig.plugin()
            ids: list[str] = []

            async def call() -> None:
                await plugin.start()
                headers = {f"baggage-{part}": "b" * 1000 for part in range(5)}
                ids.extend(await asyncio.gather(*(plugin.enqueue(n, headers=headers) for n in range(2000))))

            rig.at(1.0, host, call)
            rig.run(30.0)
            assert len(set(ids)) == leader.machine.totals.enqueued == 2000
            assert rig.bucket.keys(FOLDER + "damaged/") == []

    @pytest.mark.req("SQ-3")
    def test_one_call_with_one_key_is_handled_in_order_though_one_of_its_writes_is_slow(self) -> None:
        with Rig() as rig:
            rig.lead()
            plugin, host, store = rig.plugin()
            slow: list[str] = []

            async def before(request: Request) -> None:
                if request.verb == "create" and "/inbox/" in request.key:
                    slow.append(request.key)
                    if len(slow) == 1:
                        await host.clock.sleep(1.0)

            async def handle(message: Message) -> None:
                rig.handled.append(message.body["n"])

            async def call() -> None:
                await plugin.start()
                await plugin.enqueue_many([{"n": n, "pad": "x" * 60_000} for n in range(60)], ordering_key="k")

            store.always(ANY, ANY, before)
            rig.work(handle, concurrency=10)
            rig.at(1.0, host, call)
            rig.run(30.0)
            assert len(slow) > 2
            assert rig.handled == list(range(60))

    def test_what_was_enqueued_before_a_purge_is_gone_though_one_entry_folds_both(self) -> None:
        with Rig() as rig:
            leader = rig.lead()
            client = rig.client()

            async def call() -> None:
                await rig.submit(client.producer, "before")
                await rig.command(client.producer, "purge")
                await rig.submit(client.producer, "after")

            rig.run(1.0)
            entries = len(rig.bucket.keys(LOG))
            leader.host.freeze(1.0)
            rig.at(1.1, client.host, call)
            rig.run(5.0)
            assert len(rig.bucket.keys(LOG)) == entries + 1
            assert (leader.machine.ready_count, leader.machine.totals.purged) == (1, 1)


@pytest.mark.req("SQ-3")
class TestDeadlines:
    """What was acked before its worker's deadline is not given out again, whatever was slow."""

    def test_an_extension_whose_entry_is_slow(self) -> None:
        with Rig(visibility_timeout=10.0) as rig:
            leader, client = rig.lead(), rig.client()
            slow = [False, 0]

            async def before(request: Request) -> None:
                if request.verb == "create" and "/log/" in request.key and slow[0]:
                    slow[:] = [False, slow[1] + 1]
                    await leader.host.clock.sleep(12.0)

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                if message.attempt == 1:
                    await worker.host.clock.sleep(5.0)
                    slow[0] = not slow[1]
                    await message.extend()
                    await worker.host.clock.sleep(1.0 + 0.02 * message.body)

            leader.store.always(ANY, ANY, before)
            worker = rig.work(handle, concurrency=100, prefetch=100)
            rig.enqueue(1.0, client, *range(100))
            rig.run(60.0)
            assert slow[1]
            assert rig.again == []
            assert sorted(rig.handled) == list(range(100))

    def test_a_listing_that_is_slow(self) -> None:
        with Rig(visibility_timeout=10.0, presence=60.0, idle_budget=72_000) as rig:
            leader, client = rig.lead(), rig.client()
            slow = []

            async def before(request: Request) -> None:
                if request.verb == "list" and request.key.endswith("inbox/") and rig.world.now > 6.08 and not slow:
                    slow.append(request.key)
                    await leader.host.clock.sleep(12.0)

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await worker.host.clock.sleep(0.2 + 0.01 * message.body)

            leader.store.always(ANY, ANY, before)
            worker = rig.work(handle, concurrency=100, prefetch=100)
            rig.enqueue(1.0, client, *range(200), delay=5.0)
            rig.run(60.0)
            assert slow
            assert rig.again == []
            assert sorted(rig.handled) == list(range(200))

    @pytest.mark.parametrize("in_the_way", [False, True])
    def test_an_entry_that_is_slow_and_work_that_is_begun_anew(self, in_the_way: bool) -> None:
        with Rig(visibility_timeout=10.0, idle_budget=72_000) as rig:
            leader, client = rig.lead(epoch=2), rig.client()
            slow: list[int] = []

            async def before(request: Request) -> None:
                if request.verb == "create" and "/log/" in request.key and rig.world.now > 1.5 and not slow:
                    slow.append(int(request.key[-20:]))
                    await leader.host.clock.sleep(12.0)
                    if in_the_way:  # what a former leader sent lands late, and is void
                        time_ms = round((EPOCH_SECONDS + rig.world.now) * 1000)
                        void = LogEntry(write_id="late", seq=slow[0] + 1, epoch=1, time_ms=time_ms)
                        rig.bucket.restore(FOLDER + log_key(void.seq), encode(void))

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await worker.host.clock.sleep(0.2 + 0.01 * message.body)

            leader.store.always(ANY, ANY, before)
            worker = rig.work(handle, concurrency=200, prefetch=200)
            rig.enqueue(1.6, client, *range(200))
            rig.run(60.0)
            began = [event for event in rig.events if type(event).__name__ == "LeadingBegan"]
            assert len(began) == (2 if in_the_way else 1)
            assert rig.again == []
            assert sorted(rig.handled) == list(range(200))

    @pytest.mark.parametrize(("budget", "visibility"), [(3600.0, 30.0), (60.0, 30.0), (3600.0, 0.5)])
    def test_an_idle_worker_looks_often_enough_to_begin_in_time(self, budget: float, visibility: float) -> None:
        with Rig(idle_budget=budget, visibility_timeout=visibility) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.attempt)

            rig.work(handle)
            rig.enqueue(203.7, client, "job")
            rig.run(330.0)
            assert rig.handled == [1]
            assert leader.machine.totals.lapsed == 0

    def test_a_handler_that_hangs_after_one_extension_loses_its_message(self) -> None:
        with Rig(visibility_timeout=20.0, presence=5.0, max_attempts=2) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await worker.host.clock.sleep(10.0)
                await message.extend()
                await asyncio.get_running_loop().create_future()

            worker = rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, "job")
            rig.run(30.0)
            assert leader.machine.totals.lapsed == 0
            rig.run(60.0)
            assert leader.machine.totals.lapsed == 1


class TestRunners:
    """Whatever a handler does, its runner goes on."""

    def test_a_result_that_cannot_be_kept(self) -> None:
        with Rig(visibility_timeout=5.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            async def keep(message: Message, result: object) -> None:
                if rig.world.now < 10:
                    raise StoreUnavailable("503")

            rig.work(handle, concurrency=2, on_result=keep)
            rig.enqueue(1.0, client, 1, 2)
            rig.enqueue(20.0, client, *range(10, 20))
            rig.run(60.0)
            assert leader.machine.totals.done == 12
            assert leader.machine.totals.lapsed == 0

    def test_a_handler_that_is_cancelled_by_itself(self) -> None:
        with Rig(max_attempts=1) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                if message.body < 10:
                    other = asyncio.ensure_future(asyncio.sleep(0))
                    other.cancel()
                    await other

            rig.work(handle, concurrency=2)
            rig.enqueue(1.0, client, 1, 2)
            rig.enqueue(20.0, client, *range(10, 20))
            rig.run(30.0)
            assert leader.machine.totals.done == 10
            assert [letter.history[-1].error for letter in leader.machine.dead.values()] == ["CancelledError: "] * 2

    def test_an_extension_that_is_never_answered(self) -> None:
        with Rig(visibility_timeout=5.0) as rig:
            leader, client = rig.lead(), rig.client()
            lost: list[Any] = []

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                if message.body < 10 and not lost:
                    await worker.host.clock.sleep(4.0)
                    rig.network.cut(worker.host)
                    try:
                        await message.extend()
                    except TicketLost:
                        lost.append(message.body)
                        raise

            worker = rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, 1)
            rig.world.call_at(30.0, lambda: rig.network.heal(worker.host))
            rig.enqueue(40.0, client, *range(10, 20))
            rig.run(90.0)
            assert lost == [1]
            assert leader.machine.totals.done == 11

    async def test_a_plain_handler_that_raises_stop_iteration(self) -> None:
        """A future cannot carry it: whoever awaits that would wait for ever."""

        def handle(message: object) -> object:
            return next(iter([]))

        with ThreadPoolExecutor(1) as pool:
            call = functools.partial(called, handle, None)
            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(pool, call), 30)

    @pytest.mark.req("EF-9")
    def test_a_message_can_be_given_to_another_process_with_its_token(self) -> None:
        class Keeper:
            token = 7

            def remaining(self) -> float:
                return 12.5

        given = Message("id", {"n": 1}, 2, {"trace": "t"}, "k", 3, Keeper(), "1-a-1", 4)  # type: ignore[arg-type]
        taken = pickle.loads(pickle.dumps(given))
        assert (taken.id, taken.body, taken.attempt, taken.headers, taken.ordering_key) == (
            ("id", {"n": 1}, 2, {"trace": "t"}, "k")
        )
        assert taken.token == 7
        assert 0 < taken.remaining() <= 12.5


class TestWorkers:
    @pytest.mark.req("SQ-3")
    def test_those_behind_a_message_that_cannot_be_fetched_wait_for_it(self) -> None:
        with Rig(backoff=0.5, max_backoff=0.5) as rig:
            rig.lead()
            client = rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append((message.body, rig.world.now > 9.0))

            async def before(request: Request) -> StoreError | None:
                is_first = request.verb == "get" and "/seg/" in request.key and request.key.endswith("-1")
                return StoreUnavailable("503") if is_first and rig.world.now < 9.0 else None

            rig.enqueue(1.0, client, 1, ordering_key="k")
            rig.enqueue(2.0, client, 2, ordering_key="k")
            rig.run(5.0)
            rig.work(handle, concurrency=10).store.always(ANY, ANY, before)
            rig.run(30.0)
            assert rig.handled == [(1, True), (2, True)]

    def test_reports_wait_for_room_in_a_process_that_enqueues_more_than_its_store_takes(self) -> None:
        ledger = LedgerConfig(waiting=50, in_flight=1)
        with Rig(visibility_timeout=30.0, ledger=ledger) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            async def before(request: Request) -> None:
                if request.verb == "create" and "/inbox/" in request.key and 2.0 < rig.world.now < 8.0:
                    await worker.host.clock.sleep(1.0)

            async def flood() -> None:
                while rig.world.now < 8.0:
                    while not worker.producer.is_full:
                        worker.host.start(rig.submit(worker.producer, 0, delay=86400.0))
                        await asyncio.sleep(0)
                    await worker.host.clock.sleep(0.02)

            worker = rig.work(handle, concurrency=5)
            worker.store.always(ANY, ANY, before)
            rig.at(2.0, worker.host, flood)
            rig.enqueue(2.5, client, *range(20))
            rig.run(25.0)
            assert worker.queue.counts["reports_lost"] == 0
            assert sorted(rig.handled) == list(range(20))
            assert leader.machine.totals.done == 20

    def test_a_report_of_many_long_errors_is_several_objects(self) -> None:
        count = 3000
        with Rig(visibility_timeout=120.0, max_attempts=2, backoff=100.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                if message.body % 10:
                    raise RuntimeError("x" * 1000)

            async def before(request: Request) -> None:
                if request.verb == "create" and "/inbox/" in request.key and 2.0 < rig.world.now < 5.0:
                    await worker.host.clock.sleep(1.0)

            sizes: list[int] = []
            rig.bucket.watchers.append(
                lambda write: sizes.append(len(write.new)) if write.new and "/inbox/" in write.key else None
            )
            worker = rig.work(handle, concurrency=10, prefetch=count)
            worker.store.always(ANY, ANY, before)
            rig.enqueue(2.0, client, *range(count))
            rig.run(40.0)
            assert (leader.machine.totals.done, leader.machine.totals.failed) == (300, 2700)
            assert max(sizes) < 1024 * 1024 < sum(sizes)
            assert rig.again == []

    @pytest.mark.parametrize("why", ["a newer schema", "refused"])
    def test_who_cannot_follow_the_log_is_soon_given_nothing_more(
        self, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Rig(visibility_timeout=5.0, max_attempts=3, presence=5.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            worker = rig.work(handle, "deaf")
            rig.run(3.0)
            read = follower_module.read_entry

            async def newer(store: Any, seq: int) -> LogEntry | None:
                entry = await read(store, seq)
                if entry is not None and store is worker.queue.store:
                    raise SchemaTooNew("written by a newer tenure")
                return entry

            if why == "refused":
                worker.store.always("get", "*/log/*", StoreUnavailable("AccessDenied"))
            else:
                monkeypatch.setattr(follower_module, "read_entry", newer)
            rig.enqueue(4.0, client, 1, 2, 3)
            rig.run(300.0)
            assert leader.machine.dead == {}
            assert leader.machine.ready_count == 3
            rig.work(handle, "healthy")
            rig.run(320.0)
            assert sorted(rig.handled) == [1, 2, 3]


@pytest.mark.parametrize("character", ["x", "é", "\x00", "\N{BAR CHART}"])
def test_a_tick_full_of_reports_of_long_errors_makes_an_entry_that_can_be_written(character: str) -> None:
    bytes_per_tick = LedgerConfig().bytes_per_tick
    desk = Desk(audited=False, max_attempts=1000, visibility_timeout=600.0)
    for number in range(8):
        desk.join(f"w{number}", capacity=2000)
    desk.put(16_000)
    desk.tick()
    size = 0
    for ticket in desk.tickets():
        failed = [Failure(segment, index, character * 1000) for segment, index in messages_of(ticket.runs)]
        for first in range(0, len(failed), 500):
            if size > bytes_per_tick:
                break
            desk.report(ticket.uid, Outcome(ticket.id, failed=failed[first : first + 500]))
            size += len(desk._inbox[-1].body)
    assert size > bytes_per_tick
    work = desk.tick()
    assert work is not None
    assert size < len(msgspec.json.encode(work)) < MAX_ENTRY_BYTES - 1024 * 1024


async def test_a_leader_that_is_none_any_more_clears_no_segments_and_says_nothing() -> None:
    """It tidies up beside its work, in a task that nobody awaits."""

    store = MemoryStore()
    await store.put("seg/1-x-1", b"of a former leader")
    leading = object.__new__(Leading)
    leading._store, leading._lead = store, ScriptedLease(2, left=0)  # type: ignore[assignment]
    await leading._clear_segments(frozenset())
    assert [row.key async for row in store.list("seg/")] == ["seg/1-x-1"]


def test_old_results_are_removed_also_where_every_term_is_short() -> None:
    """A leader looked for them 300 s after it had begun, and not before: where none lasts as long, they stayed."""
    with Rig(result_retention=60.0) as rig:
        rig.bucket.corrupt(f"{FOLDER}results/1-aaaaaa-0-1", b"1")
        rig.run(100.0)
        rig.bucket.corrupt(f"{FOLDER}results/2-aaaaaa-0-1", b"2")
        leader = rig.lead(epoch=1)
        rig.run(120.0)
        leader.lease.valid = False
        assert rig.bucket.keys(f"{FOLDER}results/") == [f"{FOLDER}results/2-aaaaaa-0-1"]
        assert leader.store.count("list", "*results/*") == 1, "a term costs one look more"
