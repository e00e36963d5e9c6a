"""A schedule as its users have it: leaders that come and go, commands from anywhere. Mostly in simulated time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

import tenure
from tenure import Database, Message, Run, S3QueuePlugin, SchedulerPlugin, cron, every
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig
from tenure.database.time import StoreTime
from tenure.entropy import Random
from tenure.errors import ConfigError, RequestNotAnswered, RequestRefused, StoreError, StoreUnavailable
from tenure.ledger import LedgerConfig, ledger_store
from tenure.plugins.queue.leading import Leading
from tenure.plugins.queue.settings import settings_from
from tenure.plugins.scheduler.job import at
from tenure.plugins.scheduler.records import CutShort, Passed, Succeeded
from tenure.plugins.scheduler.registry import Registry
from tenure.plugins.scheduler.wire import Command
from tests.support.lease import ScriptedLease
from tests.support.store import ANY, Request
from tests.support.waiting import eventually
from tests.unit.schedule_rig import FOLDER, START_MS, Leader, Rig
from tests.unit.schedules import declared, new_registry

QUICK = CoordinatorConfig(startup_jitter_max=0.0)


class Ran:
    """Functions that note what they were given."""

    def __init__(self, rig: Rig, takes: float = 0.0) -> None:
        self.rig = rig
        self.takes = takes
        self.runs: list[tuple[float, Run]] = []

    def registry(self, *jobs: Any, host: Any = None) -> Registry:
        registry = Registry()
        registry.add_function("work", self.work)
        for job in jobs:
            registry.declare(job)
        return registry

    async def work(self, run: Run) -> None:
        self.runs.append((self.rig.world.now, run))
        if self.takes:
            await asyncio.sleep(self.takes)

    def tokens(self, run: str) -> list[int]:
        return [each.token for _, each in self.runs if each.id == run]


class TestLeading:
    @pytest.mark.req("SC-2")
    def test_every_second_for_a_minute(self) -> None:
        with Rig() as rig:
            ran = Ran(rig)
            jobs = [declared(f"job{number}", every(1)) for number in range(20)]
            leader = rig.lead(ran.registry(*jobs))
            rig.run(62.0)
            for job in jobs:
                fired = rig.fired(job.id)
                assert 58 <= len(fired) <= 62
                instants = [instant for _, instant in fired]
                assert instants == list(range(instants[0], instants[0] + 1000 * len(fired), 1000))
            lateness = sorted(time - (instant - START_MS) / 1000 for time, instant in rig.fired())
            assert lateness[0] >= 0, "nothing is early"
            assert lateness[len(lateness) // 2] < 1.2
            assert len(ran.runs) == len(rig.fired())
            assert leader.machine.totals.succeeded >= len(ran.runs) - 40
            assert len(rig.entries) <= 2 * 62 + 10, "about two entries a second, however many jobs there are"

    def test_a_look_makes_nothing_that_is_due_wait_longer(self) -> None:
        """Something is due all the time: entries are half a second apart, also after one that had a look."""
        with Rig() as rig:
            first = datetime.fromtimestamp(START_MS / 1000, UTC)
            starts = [first + timedelta(seconds=number / 10) for number in range(100)]
            jobs = [declared(f"job{n}", every(10), start=start) for n, start in enumerate(starts)]
            rig.lead(Ran(rig).registry(*jobs))
            rig.run(90.0)
            times = [time for time, _ in rig.entries if time > 20]
            gaps = [later - earlier for earlier, later in pairwise(times)]
            assert max(gaps) < 0.65, "an entry, its request, and what is due next"
            assert len(times) <= 2 * 70 + 70 / 5 + 5

    def test_an_idle_schedule_costs_its_looks_alone(self) -> None:
        with Rig() as rig:
            leader = rig.lead(Ran(rig).registry(declared("far", every(86_400))))
            rig.run(60.0)
            rig.requests.clear()
            idle = leader.idle
            rig.run(3660.0)
            assert leader.idle - idle <= 725
            assert rig.requests["list"] <= 725 + 60
            assert rig.requests["create"] <= 60, "the time is measured now and then"

    @pytest.mark.req("SC-2")
    def test_a_wall_clock_that_is_a_day_ahead_fires_nothing_early(self) -> None:
        for ahead in (86_400.0, -86_400.0):
            with Rig() as rig:
                tomorrow = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(hours=23)
                ran = Ran(rig)
                jobs = [
                    declared("minutes", cron("* * * * *")),
                    declared("once", at(tomorrow)),
                    declared("ten", every(10)),
                ]
                leader = rig.lead(ran.registry(*jobs))
                leader.host.step_wall(ahead)
                rig.world.call_at(100.0, lambda leader=leader, ahead=ahead: leader.host.step_wall(ahead))
                rig.run(300.0)
                assert len(rig.fired("minutes")) == 5
                assert 28 <= len(rig.fired("ten")) <= 30
                assert not rig.fired("once")
                assert all(time >= (instant - START_MS) / 1000 for time, instant in rig.fired())
                assert {run.job for _, run in ran.runs} == {"minutes", "ten"}

    @pytest.mark.req("SC-2")
    @pytest.mark.req("EF-9")
    def test_who_takes_over_begins_again_what_was_cut_short(self) -> None:
        with Rig() as rig:
            ran = Ran(rig, takes=5.0)
            registry = ran.registry(declared("slow", every(20)), declared("once", every(20), interrupted="abandon"))
            first = rig.lead(registry)
            rig.world.call_at(22.0, first.host.crash)
            rig.world.call_at(27.0, lambda: rig.lead(registry, epoch=2, name="second"))
            rig.run(35.0)
            run = next(run.id for _, run in ran.runs if run.job == "slow")
            assert len(ran.tokens(run)) == 2
            assert ran.tokens(run)[0] < ran.tokens(run)[1]
            cut = [event for _, event in rig.events if isinstance(event, CutShort)]
            assert [event.again for event in cut] == [True, False]
            assert len([run for _, run in ran.runs if run.job == "once"]) == 1
            # each occurrence has one decision, whoever made it
            assert len({instant for _, instant in rig.fired("slow")}) == len(rig.fired("slow")) == 1

    @pytest.mark.req("SC-2")
    def test_whoever_loses_its_lease_ends_its_runs(self) -> None:
        with Rig() as rig:
            ended: list[float] = []

            async def work() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(rig.world.now)

            registry = Registry()
            registry.add_function("work", work)
            registry.declare(declared("endless", every(10)))
            leader = rig.lead(registry)
            rig.world.call_at(15.0, leader.task.cancel)
            rig.run(20.0)
            assert len(ended) == 1
            assert 15.0 <= ended[0] < 15.1
            assert not any(isinstance(event, Succeeded) for _, event in rig.events)

    @pytest.mark.req("SC-2")
    @pytest.mark.parametrize("crash_after", range(0, 60, 8))
    def test_killed_at_any_request(self, crash_after: int) -> None:
        """Whenever it dies, each instant is decided once, and all that fired is run to its end by somebody."""
        with Rig(seed=crash_after) as rig:
            ran = Ran(rig, takes=0.3)
            registry = ran.registry(
                declared("a", every(1)), declared("b", every(1), overlap="queue-one"), declared("c", every(3))
            )
            first = rig.lead(registry)
            count = 0

            async def dying(request: Request) -> None:
                nonlocal count
                count += 1
                if count > 8 + crash_after and first.host.alive:
                    rig.world.call_at(rig.world.now, lambda: crash(first))

            first.store.always(ANY, ANY, dying)
            rig.world.call_at(25.0, lambda: rig.lead(registry, epoch=2, name="second"))
            rig.run(45.0)
            assert not first.host.alive
            for job, period in (("a", 1000), ("b", 1000), ("c", 3000)):
                decided = rig.decided(job, period)
                assert decided == list(range(decided[0], decided[-1] + 1, period))
                assert len(decided) >= 40_000 // period
            tokens: dict[str, int] = {}
            for _, run in ran.runs:
                assert run.token > tokens.get(run.id, 0)
                tokens[run.id] = run.token

    def test_the_store_away_for_a_while(self) -> None:
        with Rig() as rig:
            ran = Ran(rig)
            leader = rig.lead(ran.registry(declared("job", every(1), misfire_grace=2)))

            async def away(request: Request) -> StoreError | None:
                if 20 < rig.world.now < 80:
                    return StoreUnavailable("away")
                return None

            leader.store.always(ANY, ANY, away)
            rig.run(120.0)
            records = leader.machine.records_of("job")
            assert sum(record.count for record in records) >= 115
            assert leader.machine.totals.coalesced >= 50
            assert not leader.leading.halted

    def test_after_a_long_absence_the_inbox_waits_for_the_backlog(self) -> None:
        with Rig() as rig:
            ran = Ran(rig)
            jobs = [declared(f"job{number}", every(1), misfire_grace=3600) for number in range(5)]
            first = rig.lead(ran.registry(*jobs))
            rig.world.call_at(5.0, first.host.crash)
            caller = rig.caller()
            rig.at(1990.0, caller.host, lambda: caller.give(Command("pause"), 60.0))
            rig.world.call_at(2000.0, lambda: rig.lead(ran.registry(*jobs), epoch=2, name="second"))
            rig.run(2030.0)
            assert caller.answers == [None]
            decided = sum(
                event.count if isinstance(event, Passed) else 1
                for _, event in rig.events
                if hasattr(event, "scheduled_ms")
            )
            assert decided >= 5 * 1995

    def test_poison_in_the_inbox_is_set_aside(self) -> None:
        with Rig() as rig:
            ran = Ran(rig)
            leader = rig.lead(ran.registry(declared("job", every(10))))
            caller = rig.caller()
            bodies = [b"nonsense", b'{"schema":1,"after":0,"commands":"?"}', b'{"schema":9,"after":0}']

            async def put() -> None:
                for number, body in enumerate(bodies, 1):
                    key = f"{FOLDER}inbox/{0:020d}-stranger{number}-{1:010d}"
                    await rig.store(caller.host).put(key, body)

            rig.at(5.0, caller.host, put)
            rig.at(20.0, caller.host, lambda: caller.add("more", every(10), function="work"))
            rig.run(45.0)
            assert caller.answers == [None]
            assert len(rig.bucket.keys(FOLDER + "damaged/")) == 2
            assert len(rig.bucket.keys(FOLDER + "inbox/")) == 1, "what is newer is left for who can read it"
            assert {"job", "more"} <= set(leader.machine.jobs)
            assert len(rig.fired("job")) == 4

    def test_snapshots_and_a_trimmed_log_are_taken_over(self) -> None:
        ledger = LedgerConfig(snapshot_every=10, trim_delay=5.0)
        with Rig(ledger=ledger) as rig:
            ran = Ran(rig)
            registry = ran.registry(declared("job", every(1)))
            first = rig.lead(registry)
            rig.world.call_at(60.0, first.host.crash)
            rig.world.call_at(61.0, lambda: rig.lead(registry, epoch=2, name="second"))
            rig.run(90.0)
            assert len(rig.bucket.keys(FOLDER + "log/")) < 60
            decided = rig.decided("job", 1000)
            assert decided == list(range(decided[0], decided[-1] + 1, 1000))
            assert len(decided) > 85


class TestCommands:
    @pytest.mark.req("SC-1")
    def test_from_any_process_with_the_leaders_answer(self) -> None:
        with Rig() as rig:
            ran = Ran(rig)
            leader = rig.lead(ran.registry())
            caller = rig.caller()

            async def script() -> None:
                await caller.add("job", every(2), function="work", payload=[1])
                await caller.add("job", every(2), function="work")
                await caller.give(Command("run-now", "job", run="mine"))
                await caller.give(Command("remove", "nobody"))
                await asyncio.sleep(5)
                await caller.give(Command("pause", "job"))

            rig.at(2.0, caller.host, script)
            rig.run(60.0)
            first, again, run, nobody, pause = caller.answers
            assert (first, run, pause) == (None, None, None)
            assert "already" in str(again)
            assert "no job 'nobody'" in str(nobody)
            assert leader.machine.jobs["job"].paused
            assert ran.runs[0][1].id == "job#mine"
            assert ran.runs[0][1].payload == [1]
            assert len(ran.runs) < 15

    def test_nobody_leads(self) -> None:
        with Rig() as rig:
            caller = rig.caller()
            rig.at(1.0, caller.host, lambda: caller.give(Command("pause"), 10.0))
            rig.at(1.0, caller.host, lambda: caller.give(Command("pause"), None))
            rig.run(20.0)
            assert caller.answers[0] is None, "it is durable, and that was all that was asked for"
            assert isinstance(caller.answers[1], RequestNotAnswered)

    def test_many_at_once_each_with_its_own_answer(self) -> None:
        with Rig() as rig:
            leader = rig.lead(Ran(rig).registry())
            caller = rig.caller()

            async def script() -> None:
                await asyncio.gather(
                    *(caller.add(f"job{number % 30}", every(50), function="work") for number in range(60))
                )

            rig.at(2.0, caller.host, script)
            rig.run(30.0)
            assert len(leader.machine.jobs) == 30
            assert len(caller.answers) == 60
            assert sum(answer is None for answer in caller.answers) == 30

    def test_an_answer_through_a_failover(self) -> None:
        with Rig() as rig:
            registry = Ran(rig).registry()
            first = rig.lead(registry)
            caller = rig.caller()
            rig.world.call_at(5.0, first.host.crash)
            rig.at(6.0, caller.host, lambda: caller.add("job", every(5), function="work"))
            rig.world.call_at(16.0, lambda: rig.lead(registry, epoch=2, name="second"))
            rig.run(40.0)
            assert caller.answers == [None]


class TestQueue:
    @pytest.mark.req("SC-1")
    @pytest.mark.req("SC-2")
    def test_sent_again_by_the_next_leader_it_is_one_message(self) -> None:
        with Rig() as rig:
            registry = new_registry((), [declared("mail", every(10), queue="mails", body={"n": 1})])
            first = rig.lead(registry)

            def crash_once_sent(write: Any) -> None:
                if write.new is not None and write.key.startswith("plugin=s3-queue/name=mails/inbox/"):
                    rig.world.call_at(rig.world.now, lambda: crash(first))

            rig.bucket.watchers.append(crash_once_sent)
            rig.world.call_at(20.0, lambda: rig.lead(registry, epoch=2, name="second"))
            rig.run(28.0)
            assert not first.host.alive
            assert len(rig.bucket.keys("plugin=s3-queue/name=mails/inbox/")) >= 2
            sends = [event for _, event in rig.events if isinstance(event, CutShort)]
            assert [(event.again, event.counts) for event in sends] == [(True, False)]
            queue = self._queue(rig)
            rig.run(34.0)
            assert queue.machine is not None
            assert queue.machine.totals.duplicates == 1
            assert queue.machine.ready_count == len(rig.fired("mail"))

    def _queue(self, rig: Rig) -> Leading:
        """Somebody leads the queue as well."""
        host = rig.world.host("queue")
        store = rig.store(host)
        leading = Leading(
            ledger_store(store, "s3-queue", "mails"),
            ScriptedLease(1),  # type: ignore[arg-type]
            settings_from({}),
            random=Random(1),
            is_alive=lambda name: None,
            ledger=rig.ledger,
            clock=host.clock,
            draw_id=rig.draw_id,
            time=StoreTime(store, clock=host.clock, draw_id=rig.draw_id),
            bell=asyncio.Event(),
            emit=lambda event: None,
        )
        host.start(leading.run())
        return leading


def crash(leader: Leader) -> None:
    if leader.host.alive:
        leader.host.crash()


class TestPlugin:
    """The whole of it, on a store in memory and real time: a second or two."""

    async def test_from_declaration_to_history(self) -> None:
        async with Database("memory://schedule-plugin") as db:
            scheduler = SchedulerPlugin(config=QUICK)
            ran: list[Any] = []

            @scheduler.job(every(1), retries=1, backoff=0.01)
            async def unlucky(run: Run) -> None:
                ran.append(run)
                if run.attempt == 1:
                    raise ValueError("once")

            @scheduler.function("other")
            def other(run: Run) -> None:
                ran.append(run)

            scheduler.declare("mail", every(1), queue="mails", body={"hello": "ada"})
            await db.use_plugin(scheduler)
            assert scheduler.name == "scheduler"
            queue = await db.use_plugin(S3QueuePlugin("mails", config=QUICK))
            mails: list[Message] = []

            @queue.handler
            async def handle(message: Message) -> None:
                mails.append(message)

            told: list[str] = []
            scheduler.on("plg:scheduler:fired", lambda event: told.append(event.name))
            await eventually(lambda: scheduler.is_leading)
            await scheduler.add("adhoc", every(3600), function="other", payload={"a": 1})
            with pytest.raises(RequestRefused, match="already"):
                await scheduler.add("adhoc", every(3600), function="other")
            run = await scheduler.run_now("adhoc")
            await eventually(lambda: any(each.id == run for each in ran))
            await scheduler.update("adhoc", payload={"a": 2}, retries=5)
            with pytest.raises(RequestRefused, match="no job"):
                await scheduler.update("nobody", retries=5)
            with pytest.raises(RequestRefused, match="in code"):
                await scheduler.remove("unlucky")
            await eventually(lambda: len([each for each in ran if each.job == "unlucky"]) >= 2 and mails)
            await scheduler.pause()
            assert (await scheduler.stats()).paused
            await scheduler.resume()
            jobs = {view.id: view for view in await scheduler.jobs()}
            assert set(jobs) == {"unlucky", "mail", "adhoc"}
            assert jobs["adhoc"].definition.retries == 5
            assert jobs["adhoc"].next_ms is not None
            assert (await scheduler.get("adhoc")).schedule == "every 3600 s"
            assert len(await scheduler.next_fires("adhoc", 3)) == 3
            history = await scheduler.history("adhoc")
            assert [(record.run, record.outcome, record.state) for record in history] == [(run, "fired", "done")]
            with pytest.raises(ConfigError, match="no job"):
                await scheduler.history("nobody")
            assert await scheduler.history()
            await scheduler.remove("adhoc")
            assert len(await scheduler.history("adhoc")) == 1
            assert "plg:scheduler:fired" in told
            headers = mails[0].headers
            assert headers["tenure-job"] == "mail"
            assert int(headers["tenure-token"]) > 0
        tokens = [each.token for each in ran if each.job == "unlucky"]
        assert tokens == sorted(set(tokens))

    async def test_another_process_gives_commands_and_code_declares_while_it_leads(self) -> None:
        async with Database("memory://schedule-outside") as db, Database("memory://schedule-outside") as outside:
            scheduler = await db.use_plugin(SchedulerPlugin(config=QUICK))
            scheduler.function("work")(lambda: None)
            caller = await outside.use_plugin(SchedulerPlugin(takes_part=False))
            await caller.add("job", every(3600), function="work")
            await caller.pause("job", wait=False)
            await eventually(lambda: scheduler._leading.machine.jobs["job"].paused)  # type: ignore[union-attr]
            assert not caller.is_leading
            ran: list[int] = []
            now = datetime.fromtimestamp(SYSTEM_CLOCK.read().wall_ns / 1e9, UTC)
            scheduler.job(at(now), id="later")(lambda: ran.append(1))
            await eventually(lambda: ran)

    def test_what_cannot_be_is_refused_with_what_would_be_right(self) -> None:
        with pytest.raises(ConfigError, match="enable_coordinator"):
            SchedulerPlugin(enable_coordinator=False)
        with pytest.raises(ConfigError, match="idle_budget"):
            SchedulerPlugin(idle_budget=1)
        with pytest.raises(ConfigError, match="max_runs"):
            SchedulerPlugin(max_runs=0)
        scheduler = SchedulerPlugin()
        scheduler.job(every(1), id="a")(lambda: None)
        with pytest.raises(ConfigError, match="already"):
            scheduler.job(every(1), id="a")(lambda: None)
        with pytest.raises(ConfigError, match="twice"):
            scheduler.declare("a", every(1), queue="q")
        with pytest.raises(ConfigError, match="declare"):
            scheduler.job(every(1), id="b", queue="q")(lambda: None)
        with pytest.raises(ConfigError, match="give a function"):
            scheduler.function("c")(7)  # type: ignore[type-var]

    def test_the_front_door(self) -> None:
        assert {"SchedulerPlugin", "Run", "cron", "every", "at"} <= set(tenure.__all__)
        assert tenure.at is at
