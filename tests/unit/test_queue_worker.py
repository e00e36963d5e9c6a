"""The side of a queue that handles messages, in simulated time: what it may lose, and what it costs."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tenure import Database
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig
from tenure.errors import AccessDenied, ConfigError, NotFound, StoreError, StoreUnavailable, TicketLost
from tenure.ledger import LedgerConfig
from tenure.plugins.ledgered import Halted
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.queue.message import Message
from tenure.plugins.queue.meter import WINDOW, IdleMeter
from tenure.store import Stored
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, Request
from tests.unit.queue_rig import FOLDER, INBOX, Rig
from tests.unit.queues import Desk

QUICK = CoordinatorConfig(startup_jitter_max=0.0)


class Panic(BaseException):
    """As libraries in Rust raise it."""


class TestHandlersThatMisbehave:
    @pytest.mark.req("SQ-3")
    @pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
    def test_one_that_raises_what_is_no_exception_has_failed(self, is_batch: bool) -> None:
        with Rig(max_attempts=1) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(given: Any) -> None:
                for message in given if is_batch else [given]:
                    if message.body == 0:
                        raise Panic("rust")
                    rig.handled.append(message.body)

            if is_batch:
                rig.work(None, batch_handler=handle, batch_size=1, concurrency=1)
            else:
                rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, *range(10))
            rig.run(20.0)
            assert sorted(rig.handled) == list(range(1, 10))
            (dead,) = leader.machine.dead.values()
            assert dead.history[-1].error == "Panic: rust"

    @pytest.mark.req("SQ-3")
    @pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
    @pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "goes on"])
    def test_one_that_keeps_its_cancellation_to_itself_holds_up_no_stop(self, goes_on: bool, is_batch: bool) -> None:
        with Rig(visibility_timeout=10.0) as rig:
            leader, client = rig.lead(), rig.client()
            stopped: list[float] = []
            release = asyncio.Event()

            async def handle(given: Any) -> None:
                while True:
                    try:
                        await release.wait()
                    except asyncio.CancelledError:
                        if goes_on and not release.is_set():
                            continue
                    return

            if is_batch:
                worker = rig.work(None, batch_handler=handle, batch_size=2, concurrency=2)
            else:
                worker = rig.work(handle, concurrency=2)
            rig.enqueue(1.0, client, *range(6))

            async def stop() -> None:
                await worker.queue.stop(1.0)
                stopped.append(rig.world.now)

            rig.at(5.0, worker.host, stop)
            rig.run(15.0)
            assert stopped
            assert stopped[0] < 5.0 + 1.0 + 4.0
            assert leader.machine.in_flight_count == 0, "all were given back, or told as done or interrupted"
            release.set()
            rig.run(20.0)

    @pytest.mark.req("SQ-1", "SQ-3")
    def test_one_that_fails_when_all_requests_of_its_worker_time_out_ends_no_runner(self) -> None:
        """A task whose `asyncio.timeout` has come is being cancelled for a moment, as in a loop that is shut down."""
        with Rig(max_attempts=1) as rig:
            _, client = rig.lead(), rig.client()
            tried: list[Any] = []

            def tasks(*names: str) -> list[asyncio.Task[Any]]:
                return [task for task in worker.queue._tasks if any(f".{name}()" in repr(task) for name in names)]

            async def handle(message: Any) -> None:
                tried.append(message.body)
                timed_out = tasks("_follow", "_report_on")
                assert len(timed_out) == 2
                for task in timed_out:
                    task.cancel()  # which here is not taken back: they end, and this is all that is handled
                raise StoreUnavailable("no answer within 5 s")

            worker = rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, 1)
            rig.run(20.0)
            assert tried == [1]
            assert [task.done() for task in tasks("_run")] == [False]

    @pytest.mark.req("SQ-3")
    @pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
    @pytest.mark.parametrize("then", ["returns", "raises", "lets it out", "does not wait", "is done before"])
    def test_a_timeout_that_is_never_taken_back_ends_no_runner(self, then: str, is_batch: bool) -> None:
        """Those of older libraries cancel the task that they are in, and leave it at that."""
        with Rig(max_attempts=1) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(given: Any) -> None:
                rig.handled += [message.body for message in (given if is_batch else [given])]
                task = asyncio.current_task()
                assert task is not None
                if then == "does not wait":
                    task.cancel()
                    return
                rig.world.call_at(rig.world.now + 0.01, task.cancel)
                if then == "is done before":
                    return
                try:
                    await worker.host.clock.sleep(1.0)
                except asyncio.CancelledError:
                    if then == "raises":
                        raise TimeoutError from None
                    if then == "lets it out":
                        raise

            if is_batch:
                worker = rig.work(None, batch_handler=handle, batch_size=2, concurrency=2)
            else:
                worker = rig.work(handle, concurrency=2)
            rig.enqueue(1.0, client, 1, 2)
            rig.enqueue(10.0, client, *range(3, 11))
            rig.run(30.0)
            assert sorted(rig.handled) == list(range(1, 11))
            assert leader.machine.in_flight_count == 0
            totals = leader.machine.totals
            assert (totals.done, totals.died) == ((0, 10) if then in ("raises", "lets it out") else (10, 0))
            assert not any(task.done() for task in worker.queue._tasks)

    @pytest.mark.req("SQ-3")
    @pytest.mark.parametrize("keeps_it", [False, True])
    def test_one_that_takes_back_its_cancellation_is_stopped_all_the_same(self, keeps_it: bool) -> None:
        with Rig() as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                try:
                    await worker.host.clock.sleep(1e6)
                except asyncio.CancelledError:
                    if not keeps_it:
                        raise
                    task = asyncio.current_task()
                    assert task is not None
                    task.uncancel()

            worker = rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, "job")
            rig.at(4.0, worker.host, lambda: worker.queue.stop(1.0))
            rig.run(10.0)
            assert all(task.done() for task in worker.queue._tasks)
            assert leader.machine.in_flight_count == 0

    @pytest.mark.req("SQ-3")
    @pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
    def test_a_runner_that_ends_is_told_and_holds_nothing(
        self, is_batch: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Rig(visibility_timeout=5.0, max_attempts=2) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(given: Any) -> None:
                for message in given if is_batch else [given]:
                    if message.body == 0 and message.attempt == 1:
                        raise GeneratorExit
                    rig.handled.append(message.body)

            if is_batch:
                worker = rig.work(None, batch_handler=handle, batch_size=1, concurrency=2, auto_extend=True)
            else:
                worker = rig.work(handle, concurrency=2, auto_extend=True)
            rig.enqueue(1.0, client, *range(10))
            rig.run(60.0)
            assert sorted(rig.handled) == list(range(10))
            assert leader.machine.in_flight_count == 0
            assert "a worker of a queue does not go on" in caplog.text
            assert (len(worker.queue._running), worker.queue._ready_messages) == (0, 0)

    @pytest.mark.req("SQ-3")
    @pytest.mark.parametrize("keeps_it", [False, True])
    def test_all_end_with_their_loop(self, keeps_it: bool, caplog: pytest.LogCaptureFixture) -> None:
        """As `asyncio.run` ends those that nobody has stopped."""

        async def use() -> None:
            db = Database("memory://")
            await db.connect()
            queue = S3QueuePlugin("jobs", config=QUICK)
            begun = asyncio.Event()

            @queue.handler(concurrency=3)
            async def handle(message: Message) -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if not keeps_it:
                        raise

            await db.use_plugin(queue)
            await queue.enqueue_many([1, 2])
            await begun.wait()

        asyncio.run(use())
        assert "does not go on" not in caplog.text

    def test_a_store_that_refuses_at_once_is_not_asked_without_a_pause(self) -> None:
        with Rig() as rig:
            rig.lead()
            worker = rig.work(lambda message: None)
            rig.run(2.0)
            asked: list[str] = []

            async def refuse(request: Request) -> StoreError | None:
                if request.verb in ("list", "create"):
                    asked.append(request.verb)
                    return AccessDenied("the credentials have expired")
                return None

            worker.store.always(ANY, ANY, refuse)
            worker.queue._begin_anew()
            rig.run(10.0)
            assert 2 <= len(asked) <= 40
            worker.store.end_script()
            asked.clear()
            rig.run(20.0)
            assert worker.queue._lost_in_a_row == 0


class TestAtMostOnce:
    @pytest.mark.req("SQ-3")
    def test_who_stops_handles_what_it_has_settled_and_gives_back_the_rest(self) -> None:
        with Rig(delivery="at-most-once") as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await worker.host.clock.sleep(1.0)

            worker = rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, *range(20))
            rig.at(4.0, worker.host, lambda: worker.queue.stop(10.0))
            rig.run(60.0)
            machine = leader.machine
            assert machine.totals.done == len(rig.handled) < 10
            assert machine.ready_count == 20 - len(rig.handled)
            assert machine.in_flight_count == machine.totals.lapsed == 0

    def test_who_dies_loses_no_more_than_it_had_settled(self) -> None:
        with Rig(delivery="at-most-once", visibility_timeout=5.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await first.host.clock.sleep(0.5)

            async def quick(message: Message) -> None:
                rig.handled.append(message.body)

            first = rig.work(handle, "first", concurrency=2)
            rig.enqueue(1.0, client, *range(100))
            rig.world.call_at(4.0, first.host.crash)
            rig.world.call_at(5.0, lambda: rig.work(quick, "second"))
            rig.run(120.0)
            assert leader.machine.totals.done == 100
            assert len(rig.handled) == len(set(rig.handled)), "something was handled twice"
            assert 100 - len(rig.handled) <= 6, "more was lost than was settled and not begun"

    def test_what_fails_after_it_was_settled_is_not_tried_again(self) -> None:
        with Rig(delivery="at-most-once") as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                raise ValueError("no")

            rig.work(handle)
            rig.enqueue(1.0, client, *range(30))
            rig.run(30.0)
            assert sorted(rig.handled) == list(range(30))
            assert leader.machine.totals.done == 30
            assert not leader.machine.dead

    @pytest.mark.parametrize(("concurrency", "takes"), [(1, 40.0), (10, 20.0)])
    def test_what_was_settled_is_handled_however_late_it_is(self, concurrency: int, takes: float) -> None:
        with Rig(delivery="at-most-once", visibility_timeout=30.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await worker.host.clock.sleep(takes)

            worker = rig.work(handle, concurrency=concurrency)
            rig.enqueue(1.0, client, *range(6 * concurrency))
            rig.run(400.0)
            assert sorted(rig.handled) == list(range(6 * concurrency))
            assert leader.machine.totals.done == 6 * concurrency

    def test_what_waits_behind_one_that_takes_long_goes_back_and_does_not_die(self) -> None:
        with Rig(delivery="at-most-once", visibility_timeout=30.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await worker.host.clock.sleep(600.0)

            worker = rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, *range(10))
            rig.run(580.0)
            machine = leader.machine
            assert (machine.totals.lapsed, len(machine.dead)) == (0, 0)
            assert machine.ready_count >= 8

    def test_who_stops_while_it_settles_handles_that_too(self) -> None:
        with Rig(delivery="at-most-once") as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            worker = rig.work(handle, concurrency=10)
            create = worker.store.inner.create

            async def slowly(key: str, body: bytes) -> Any:
                outcome = await create(key, body)
                if key.startswith(INBOX) and rig.world.now > 1:
                    await worker.host.clock.sleep(0.5)
                return outcome

            worker.store.inner.create = slowly
            rig.enqueue(1.0, client, *range(10))
            rig.at(1.6, worker.host, lambda: worker.queue.stop(20.0))
            rig.run(60.0)
            assert len(rig.handled) == leader.machine.totals.done
            assert leader.machine.ready_count == 10 - len(rig.handled)


class TestReports:
    def test_to_extend_what_is_done_is_refused_and_costs_nothing(self) -> None:
        with Rig(visibility_timeout=30.0) as rig:
            rig.lead()
            client = rig.client()
            refused: list[str] = []
            tasks = []

            async def handle(message: Message) -> None:
                async def later() -> None:
                    await worker.host.clock.sleep(2.0)
                    try:
                        await message.extend()
                    except TicketLost as error:
                        refused.append(str(error))

                tasks.append(asyncio.get_running_loop().create_task(later()))

            worker = rig.work(handle, concurrency=2)
            rig.enqueue(1.0, client, 1)
            rig.run(20.0)
            before = worker.queue.counts["reports"]
            rig.run(620.0)
            assert len(refused) == 1
            assert worker.queue.counts["reports"] - before <= 600 / 15

    @pytest.mark.parametrize("is_member", [False, True])
    def test_who_let_a_ticket_lapse_unseen_says_that_it_is_there(self, is_member: bool) -> None:
        with Rig(visibility_timeout=200.0) as rig:
            leader, client = rig.lead(), rig.client()
            leader.leading._is_alive = lambda name: True if is_member else None

            async def handle(message: Message) -> None:
                rig.handled.append((message.body, rig.world.now))
                if message.body == 2:
                    await worker.host.clock.sleep(100.0)

            async def before(request: Request) -> StoreError | None:
                lost = request.verb == "create" and request.key.startswith(INBOX) and 1.0 < rig.world.now < 64
                return StoreUnavailable("no") if lost else None

            worker = rig.work(handle, concurrency=4, is_member=is_member)
            worker.store.always(ANY, ANY, before)
            rig.enqueue(1.0, client, 1, 2)
            rig.enqueue(230.0, client, 3)
            rig.run(300.0)
            assert [at for body, at in rig.handled if body == 3 and at < 240]


class TestPoison:
    @pytest.mark.req("SQ-1")
    def test_a_message_that_kills_its_worker_dies_alone(self) -> None:
        with Rig(visibility_timeout=5.0, max_attempts=3) as rig:
            leader, client = rig.lead(), rig.client()
            workers: list[Any] = []

            def begin() -> None:
                if workers and workers[-1].host.alive:
                    return

                async def handle(message: Message) -> None:
                    rig.handled.append(message.body)
                    if message.body == 0:
                        rig.world.call_at(rig.world.now, workers[-1].host.crash)
                    await workers[-1].host.clock.sleep(0.02)

                workers.append(rig.work(handle, f"w{len(workers)}", concurrency=1, prefetch=1000))

            rig.enqueue(1.0, client, *range(200))
            for time in range(0, 120, 3):
                rig.world.call_at(float(time), begin)
            rig.run(400.0)
            assert set(rig.handled) == set(range(200))
            assert [letter.run.attempt for letter in leader.machine.dead.values()] == [3]
            assert leader.machine.totals.done == 199


class TestTime:
    @pytest.mark.req("SQ-1")
    @pytest.mark.parametrize("rate", [0.99, 1.01])
    def test_a_leader_that_cannot_measure_the_stores_time_takes_nothing_from_a_worker(self, rate: float) -> None:
        """For ten minutes, with a clock as wrong as it may be: nothing that was acked in time comes again."""
        with Rig(visibility_timeout=15.0) as rig:
            leader, client = rig.lead(rate=rate), rig.client()

            async def before(request: Request) -> StoreError | None:
                measures = request.verb in ("create", "list") and not request.key.startswith("plugin=")
                return StoreUnavailable("503") if measures and 5 < rig.world.now < 604 else None

            leader.store.always(ANY, ANY, before)

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                if message.attempt == 1:
                    await worker.host.clock.sleep(6.0 + 0.02 * message.body)

            worker = rig.work(handle, concurrency=500, prefetch=500)
            rig.enqueue(598.0, client, *range(400))
            rig.run(700.0)
            assert rig.again == []
            assert set(rig.handled) == set(range(400))

    def test_a_new_leader_heeds_that_the_logs_time_is_ahead_of_its_own(self) -> None:
        with Rig(visibility_timeout=115.0, margin=0.2, presence=3000.0) as rig:
            first, client = rig.lead(rate=1.01, name="first"), rig.client()

            async def handle(message: Message) -> None:
                while message.body == 1 and rig.world.now < 115.74:
                    await worker.host.clock.sleep(0.05)

            worker = rig.work(handle, concurrency=4, host=rig.world.host("w", rate=0.99))
            rig.enqueue(1.0, client, 1)
            rig.enqueue(3.0, client, 2)
            rig.enqueue(115.35, client, 3)

            def change() -> None:
                first.lease.valid = False
                rig.lead(2, name="second")

            rig.world.call_at(110.0, lambda: rig.work(handle, "other"))
            rig.world.call_at(115.56, change)
            rig.run(130.0)
            assert rig.again == []


class TestBlocked:
    @pytest.mark.req("SQ-1")
    @pytest.mark.parametrize("what", ["unreadable", "newer", "early"])
    def test_an_object_of_somebody_else_does_not_keep_a_dead_workers_messages(self, what: str) -> None:
        bodies = {"unreadable": b"x", "newer": b'{"schema":2}\n', "early": b'{"schema":1,"after":5}\n'}
        number = 6 if what == "early" else 1
        with Rig(visibility_timeout=5.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def hang(message: Message) -> None:
                await asyncio.get_running_loop().create_future()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            async def before(request: Request) -> StoreError | None:
                denied = what == "unreadable" and request.verb == "get" and "somebody" in request.key
                return AccessDenied("kms:Decrypt") if denied else None

            leader.store.always(ANY, ANY, before)
            rig.bucket.corrupt(f"{FOLDER}inbox/{1:020d}-somebody-x-{number:010d}", bodies[what])
            dies = rig.work(hang, "dies", concurrency=1)
            rig.enqueue(1.0, client, "job")
            rig.world.call_at(5.0, dies.host.crash)
            rig.world.call_at(6.0, lambda: rig.work(handle, "healthy"))
            rig.run(60.0)
            assert rig.handled == ["job"]
            assert leader.leading.term is not None
            assert leader.leading.term.problems or what == "early"


class TestSegments:
    @pytest.mark.req("SQ-1")
    def test_what_an_unwritten_entry_would_make_superfluous_is_kept(self) -> None:
        """A leader clears away after its predecessors, while it decides on an entry that it will never write."""
        with Rig(visibility_timeout=5.0) as rig:
            first, client = rig.lead(), rig.client()
            held = asyncio.Event()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                if message.attempt == 1:
                    await worker.host.clock.sleep(2.0)

            worker = rig.work(handle)
            rig.enqueue(1.0, client, "job")
            rig.run(2.0)
            first.lease.valid = False
            second = rig.lead(2, name="second")

            async def before(request: Request) -> StoreError | None:
                if request.verb == "list" and request.key.endswith("/seg/"):
                    await held.wait()
                if request.verb == "create" and "/log/" in request.key and rig.world.now > 3.0:
                    return StoreUnavailable("no entry is written any more")
                return None

            second.store.always(ANY, ANY, before)
            rig.run(5.0)
            assert second.machine.totals.done == 1, "the test is of no use: it has not decided on the report"
            held.set()
            rig.run(6.0)
            assert rig.bucket.keys(f"{FOLDER}seg/"), "the body is gone, and the log says that it is needed"
            second.lease.valid = False
            rig.lead(3, name="third")
            rig.run(40.0)
            assert not rig.bucket.keys(f"{FOLDER}seg/")

    @pytest.mark.parametrize("max_attempts", [1, 5])
    @pytest.mark.parametrize("lie", ["truncated", "absent"])
    def test_one_read_that_lies_buries_nothing(self, lie: str, max_attempts: int) -> None:
        """WA-8: a 404 for what is there, or half of it."""
        with Rig(max_attempts=max_attempts) as rig:
            rig.lead()
            client = rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            worker = rig.work(handle)
            worker.store.on("get", "*/seg/*", "truncated" if lie == "truncated" else NotFound("seg/1"))
            rig.enqueue(1.0, client, "a", "b")
            rig.run(20.0)
            worker.store.assert_script_was_met()
            assert sorted(rig.handled) == ["a", "b"]

    @pytest.mark.parametrize("key", [None, "k"])
    def test_what_cannot_be_read_for_a_while_is_tried_again_and_in_order(self, key: str | None) -> None:
        """An ordinary failed attempt: those behind it, of its key, do not pass it."""
        with Rig(max_attempts=50, visibility_timeout=30.0) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append((message.body, message.attempt))

            worker = rig.work(handle)
            lying = worker.store.always("get", "*/seg/*", "truncated")
            rig.enqueue(1.0, client, "a", "b", ordering_key=key)
            rig.run(3.0)
            assert not rig.handled
            rig.run(5.0)
            lying.stop()
            rig.run(60.0)
            assert len(leader.machine.dead) == 0
            bodies = [body for body, _ in rig.handled]
            assert (bodies if key else sorted(bodies)) == ["a", "b"]
            assert rig.handled[0][1] > 1, "the test is of no use: it was read at the first attempt"

    def test_what_is_gone_is_asked_for_once_for_each_ticket_and_dies_in_the_end(self) -> None:
        with Rig(max_attempts=3, backoff=0.1) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            worker = rig.work(handle)
            worker.store.always("get", "*/seg/*", NotFound("seg/1"))
            for number in range(20):
                rig.enqueue(1.0, client, number, ordering_key=f"{number}")
            rig.run(40.0)
            assert len(leader.machine.dead) == 20
            assert not rig.handled
            tickets = worker.queue.counts["tickets"]
            assert worker.store.count("get", "*/seg/*") <= 2 * tickets

    def test_an_earlier_read_is_not_believed_again(self) -> None:
        """Its size is right, and what is in it is not: the next attempt reads it anew."""
        with Rig(max_attempts=5) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            worker = rig.work(handle)
            get = worker.store.inner.get
            spoilt: list[str] = []

            async def spoil(key: str, **options: Any) -> Any:
                stored = await get(key, **options)
                if "/seg/" in key and not spoilt:
                    spoilt.append(key)
                    header, rest = stored.body.split(b"\n", 1)
                    return Stored(header + b"\n" + b"?" * len(rest), stored.version)
                return stored

            worker.store.inner.get = spoil
            rig.enqueue(1.0, client, "a")
            rig.run(20.0)
            assert spoilt
            assert rig.handled == ["a"]
            assert len(leader.machine.dead) == 0


class TestIdle:
    @pytest.mark.req("SQ-4")
    @pytest.mark.parametrize("workers", [1, 10])
    def test_an_idle_queue_costs_what_its_budget_says(self, workers: int) -> None:
        with Rig(idle_budget=1200.0, tick_interval=0.02, load_interval=0.1, poll_interval=0.05) as rig:
            rig.lead()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            for number in range(workers):
                rig.work(handle, f"w{number}")
            rig.run(600.0)
            before = sum(rig.network.requests.values())
            rig.run(4200.0)
            spent = sum(rig.network.requests.values()) - before
            # The leader and each worker spend half a budget on looking. What is left is for saying that one is there.
            looks = (workers + 1) * 600
            assert looks * 0.9 < spent < looks * 1.6
            rig.enqueue(4201.0, rig.client(), "wake")
            rig.run(4230.0)
            assert rig.handled == ["wake"]

    def test_a_meter_tells_what_was_spent_lately(self) -> None:
        clock = ScriptedClock()
        meter = IdleMeter(clock)  # type: ignore[arg-type]
        assert meter.per_hour() == 0
        for _ in range(300):
            clock.advance(2.0)
            meter.looked()
        assert meter.per_hour() == pytest.approx(1800, rel=0.05)
        clock.advance(WINDOW / 2)
        assert meter.per_hour() == pytest.approx(900, rel=0.05)
        clock.advance(WINDOW)
        assert meter.per_hour() == 0
        assert meter.total == 300


def test_rates_are_of_the_last_minute() -> None:
    desk = Desk()
    desk.join("w", 1000)
    for _ in range(120):
        desk.put(10)
        desk.finish_all()
        desk.tick()
        desk.wait(1)
    enqueued, done = desk.machine.rates(desk.now_ms)
    assert enqueued == pytest.approx(10, rel=0.1)
    assert done == pytest.approx(10, rel=0.1)
    desk.wait(300)
    desk.join("w", 900)
    desk.tick()
    enqueued, done = desk.machine.rates(desk.now_ms + 1)
    assert 0 <= enqueued < 4
    desk.new_leader()
    assert desk.machine.rates(desk.now_ms + 1) == (enqueued, done)


def test_what_nobody_foresaw_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Rig() as rig:
        leader, client = rig.lead(), rig.client()

        async def handle(message: Message) -> None:
            rig.handled.append(message.body)

        def fails(*args: object) -> None:
            raise RuntimeError("who would have thought")

        rig.work(handle)
        rig.run(5.0)
        with monkeypatch.context() as patched:
            patched.setattr(type(leader.leading), "_sweep_results", fails)
            rig.run(10.0)
        assert leader.leading.halted is not None
        rig.enqueue(15.0, client, "job")
        rig.run(60.0)
        assert [event.reason for event in rig.events if isinstance(event, Halted)] == [
            "unforeseen: RuntimeError('who would have thought')"
        ]
        assert rig.handled == ["job"]


def exit_at_once(message: Message) -> int:
    """In a process of a pool: it dies the first time."""
    if message.attempt == 1:
        os._exit(1)
    return os.getpid()


def calls_a_main(given: Message | list[Message]) -> str:
    """As click and argparse end a program."""
    for message in given if isinstance(given, list) else [given]:
        if message.body == "bad":
            sys.exit(3)
    return "done"


async def calls_a_main_here(message: Message) -> str:
    return calls_a_main(message)


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (calls_a_main_here, {}),
        (calls_a_main, {"blocking": "thread"}),
        (calls_a_main, {"blocking": "inline"}),
        pytest.param(calls_a_main, {"blocking": "process"}, marks=pytest.mark.slow),
        (calls_a_main, {"batch": 1}),
    ],
)
async def test_a_handler_that_would_end_the_program_has_failed(
    handler: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin("jobs", config=QUICK, max_attempts=1)
        queue.on_message(handler, concurrency=1, **options)
        await db.use_plugin(queue)
        await queue.enqueue("bad")
        await queue.enqueue("good")
        began = SYSTEM_CLOCK.read()
        while (await queue.stats()).done < 1:
            assert SYSTEM_CLOCK.read().leader_elapsed(began) < 60
            await SYSTEM_CLOCK.sleep(0.05)
        (letter,) = await queue.dead_letters()
        assert (letter.body, letter.history[-1]["error"]) == ("bad", "SystemExit: 3")


def test_a_handler_that_ends_the_program_when_it_is_cancelled_is_stopped_like_others() -> None:
    with Rig() as rig:
        leader, client = rig.lead(), rig.client()

        async def handle(message: Message) -> None:
            try:
                await worker.host.clock.sleep(1e6)
            except asyncio.CancelledError:
                sys.exit(3)

        worker = rig.work(handle)
        rig.enqueue(1.0, client, "job")
        rig.at(4.0, worker.host, lambda: worker.queue.stop(1.0))
        rig.run(10.0)
        assert (leader.machine.totals.failed, leader.machine.in_flight_count) == (1, 0)


@pytest.mark.slow
async def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin("jobs", config=QUICK, backoff=0.05, result_retention=60.0)
        queue.on_message(exit_at_once, blocking="process", concurrency=1)
        await db.use_plugin(queue)
        message = await queue.enqueue("job")
        assert await queue.result(message, timeout=60.0) != os.getpid()
        assert isinstance(queue.worker._caller.executor, ProcessPoolExecutor)  # type: ignore[union-attr]


async def test_the_log_is_kept_for_two_leases(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin(
            "jobs",
            config=CoordinatorConfig(lease_timeout=90, heartbeat_interval=10),
            ledger=LedgerConfig(trim_delay=120.0),
        )
        with pytest.raises(ConfigError, match=r"trim_delay .* is 120 s, and the lease 90 s: .*trim_delay=180"):
            await db.use_plugin(queue)


async def test_how_much_idling_costs_is_told(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = await db.use_plugin(S3QueuePlugin("jobs", config=QUICK, idle_budget=100_000))
        began = SYSTEM_CLOCK.read()
        while queue.idle_requests_per_hour == 0:
            assert SYSTEM_CLOCK.read().leader_elapsed(began) < 60
            await SYSTEM_CLOCK.sleep(0.05)


async def test_without_a_ledger_of_its_own_it_follows_the_lease(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        config = CoordinatorConfig(lease_timeout=90, heartbeat_interval=10)
        queue = await db.use_plugin(S3QueuePlugin("jobs", config=config))
        assert queue._ledger.trim_delay == 2 * config.longest_lease_seconds == 720


async def test_a_handler_that_is_registered_as_everything_ends(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = await db.use_plugin(S3QueuePlugin("jobs"))
        before = asyncio.all_tasks()
        queue.on_message(exit_at_once)
    assert queue.worker is None
    assert not asyncio.all_tasks() - before


async def test_a_result_that_is_no_json_is_kept_as_text(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin("jobs", config=QUICK, result_retention=60.0)
        queue.on_message(lambda message: [object(), "x" * 2000], blocking="inline")
        await db.use_plugin(queue)
        found = await queue.result(await queue.enqueue("job"), timeout=60.0)
        assert found.startswith("[<object object at ")
        assert len(found) == 1000
        assert (await queue.stats()).failed == 0


async def test_who_leaves_last_has_said_what_it_did(tmp_path: Path) -> None:
    handled = asyncio.Event()
    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin("jobs", config=QUICK)

        @queue.handler
        async def handle(message: Message) -> None:
            handled.set()

        await db.use_plugin(queue)
        await queue.enqueue("job")
        async with asyncio.timeout(60):
            await handled.wait()
    async with Database(f"file://{tmp_path}") as db:
        looks = await db.use_plugin(S3QueuePlugin("jobs", producer_only=True))
        stats = await looks.stats()
        assert (stats.done, stats.in_flight, stats.workers) == (1, 0, 0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda queue: queue.result("id"), "result_retention is 0, and this queue keeps no results"),
        (lambda queue: queue.redrive("nonsense"), "'nonsense' names no dead letter"),
        (lambda queue: queue.purge_dead("a:1", "a:x"), "'a:x' names no dead letter"),
        (lambda queue: queue.redrive(*["a:1"] * 10_001), "10,001 dead letters are named: give at most 10,000"),
        (lambda queue: queue.enqueue(1, visibility_timeout=8 * 86_400), "give half a second to seven days"),
    ],
)
async def test_what_cannot_be_is_refused_at_once(tmp_path: Path, call: Any, says: str) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = await db.use_plugin(S3QueuePlugin("jobs", producer_only=True))
        with pytest.raises(ConfigError, match=says):
            await call(queue)


async def test_a_name_that_contradicts_the_resource_is_refused(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        with pytest.raises(ConfigError, match="name is 'b' and resource is 'a': leave the name out"):
            await db.use_plugin(S3QueuePlugin("a"), name="b")


async def test_a_producer_does_not_handle(tmp_path: Path) -> None:
    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin("jobs", producer_only=True)
        queue.on_message(exit_at_once)
        with pytest.raises(ConfigError, match="has a handler, and producer_only=True"):
            await db.use_plugin(queue)


class TestSlowHandlers:
    def test_no_more_is_held_than_can_be_begun_in_time(self) -> None:
        with Rig(visibility_timeout=3.0, margin=0.3, max_attempts=2) as rig:
            leader, client = rig.lead(), rig.client()

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)
                await worker.host.clock.sleep(1.0)

            worker = rig.work(handle, concurrency=1)
            rig.enqueue(1.0, client, *range(30))
            rig.run(60.0)
            assert rig.handled == list(range(30))
            assert leader.machine.totals.lapsed == 0

    def test_what_will_not_be_begun_in_time_is_given_back_in_time(self) -> None:
        with Rig(visibility_timeout=10.0, max_attempts=2) as rig:
            leader, client = rig.lead(), rig.client()

            async def hang(message: Message) -> None:
                rig.handled.append(message.body)
                await slow.host.clock.sleep(8.0)

            async def handle(message: Message) -> None:
                rig.handled.append(message.body)

            slow = rig.work(hang, "slow", concurrency=1, prefetch=20)
            rig.enqueue(1.0, client, *range(20))
            rig.world.call_at(5.0, lambda: rig.work(handle, "quick"))
            rig.run(60.0)
            machine = leader.machine
            assert machine.totals.done == 20
            assert not machine.dead
            assert machine.totals.lapsed == len(rig.handled) - 20 <= 3, "only what was begun, and took too long"


def test_a_queue_belongs_to_the_leaders_of_one_namespace() -> None:
    with Rig() as rig:
        first = rig.lead()
        client = rig.client()
        rig.enqueue(1.0, client, "job")
        rig.run(5.0)
        first.lease.valid = False
        rig.run(10.0)
        second = rig.lead(epoch=2, name="another")
        second.lease.namespace = "other"
        rig.run(20.0)
        assert second.leading.halted == (
            "the leaders of namespace 'default' decide here, and this process belongs to 'other': give it that "
            "namespace, or a name of its own to what it works on"
        )


@pytest.mark.slow
async def test_a_leader_that_does_not_have_the_queue_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = CoordinatorConfig.fast(startup_jitter_max=0.0)
    async with Database(f"file://{tmp_path}", worker_id="busy-elsewhere") as one:
        await one.use_plugin(S3QueuePlugin("a", config=config))
        coordinator = await one.get_global_coordinator("default")
        async with asyncio.timeout(60):
            while not coordinator.is_leader():
                await SYSTEM_CLOCK.sleep(0.05)
        async with Database(f"file://{tmp_path}", worker_id="alone") as two:
            queue = await two.use_plugin(S3QueuePlugin("b", config=config))
            told = asyncio.Event()
            queue.on("plg:s3-queue:not-led", lambda event: told.set())
            async with asyncio.timeout(60):
                await told.wait()
    assert "'busy-elsewhere' leads namespace 'default', and for" in caplog.text
    assert "s nothing was decided on the queue 'b'" in caplog.text


class _Observed:
    """A coordinator that knows who leads, and hears what is told."""

    def __init__(self, leader: str) -> None:
        self.worker_id = "client"
        self.config = CoordinatorConfig.for_lease(9.0)
        self.leader = leader
        self.told: list[Any] = []
        self.emit = self.told.append

    async def get_leader(self) -> str:
        return self.leader

    def get_epoch(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("leader", "begins_meanwhile", "told"),
    [("another", False, ["plg:s3-queue:not-led"]), ("client", False, []), ("another", True, [])],
)
def test_nobody_is_told_of_who_leads_here(leader: str, begins_meanwhile: bool, told: list[str]) -> None:
    with Rig() as rig:
        plugin, host, _ = rig.plugin()
        host.start(plugin.start())
        rig.run(1.0)
        observed: Any = _Observed(leader)
        plugin._coordinator = observed
        host.start(plugin._watch_over())
        if begins_meanwhile:
            rig.world.call_at(15.0, lambda: setattr(plugin, "_leading", object()))
        rig.run(60.0)
        assert [event.name for event in observed.told] == told
