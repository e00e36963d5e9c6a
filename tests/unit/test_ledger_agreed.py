"""Who sends has to know how long it is remembered: what the first process says of a ledger holds for all."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

from tenure import CoordinatorConfig, Database
from tenure.errors import ConfigConflict, ConfigError, TenureError
from tenure.ledger import LedgerConfig, agreed_ledger, ledger_of_onlooker, ledger_store
from tenure.ledger.agreed import LEDGER
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler.queues import Queues
from tenure.store.memory import MemoryStore
from tests.unit.leases import numbered

draw_id = numbered("w")
SHORT = LedgerConfig(retention=90.0, send_timeout=5.0, give_up_after=15.0)


async def agreed(store: MemoryStore, config: LedgerConfig, *, is_given: bool) -> LedgerConfig:
    return await agreed_ledger(store, config, is_given=is_given, reads=True, what="the queue 'jobs'", draw_id=draw_id)


async def sending(store: MemoryStore) -> LedgerConfig:
    return await agreed_ledger(store, LedgerConfig(), is_given=False, what="the queue 'jobs'", draw_id=draw_id)


async def test_who_was_told_nothing_takes_what_the_others_have() -> None:
    store = MemoryStore()
    assert await agreed(store, SHORT, is_given=True) == msgspec.structs.replace(SHORT, trim_delay=120.0)
    adopted = await agreed(store, LedgerConfig(), is_given=False)
    assert adopted.retention == 90.0
    assert adopted.give_up_after + adopted.send_timeout <= 90.0 / 4, "it may not send for longer than it is remembered"
    assert adopted.batch_bytes == LedgerConfig().batch_bytes


async def test_who_was_told_something_else_is_refused() -> None:
    store = MemoryStore()
    await agreed(store, LedgerConfig(), is_given=False)
    with pytest.raises(
        ConfigConflict, match=r"retention is 90 s here, and 3600 s where the queue 'jobs' was used first"
    ):
        await agreed(store, SHORT, is_given=True)
    found = await agreed(store, LedgerConfig(snapshot_every=7), is_given=True)
    assert found == LedgerConfig(snapshot_every=7, trim_delay=120.0)


@pytest.mark.parametrize("retention", [0.4, 7.0, 90.0, 279.9, 280.0, 3600.0, 1e7])
def test_any_retention_can_be_adopted(retention: float) -> None:
    adopted = LedgerConfig().remembered_for(retention)
    assert adopted.retention == retention
    assert adopted.send_timeout <= LedgerConfig().send_timeout


async def test_a_schedule_sends_to_a_queue_as_that_queue_remembers() -> None:
    async with Database("memory://") as db:
        worker = S3QueuePlugin("jobs", producer_only=True, ledger=SHORT)
        worker.attach(db, "jobs")
        await worker.start()
        for given in (None, LedgerConfig()):
            queues = Queues(db, given)
            queue = await queues.open("jobs")
            assert queue is not worker
            assert queue._ledger.retention == SHORT.retention
            await queues.aclose()
        queues = Queues(db, SHORT)
        assert (await queues.open("never used"))._ledger.retention == SHORT.retention
        await queues.aclose()
        await worker.stop()
        stored = await ledger_store(db.store, "s3-queue", "jobs").get(LEDGER)
        assert b'"retentionMs":90000' in stored.body  # type: ignore[union-attr]


class TestHowLongEntriesAreKept:
    """One that believed in a longer time than whoever trims would take a trimmed log for one that has ended."""

    QUICK = LedgerConfig(trim_delay=8.0)

    async def test_who_was_told_nothing_takes_what_the_others_have(self) -> None:
        store = MemoryStore()
        assert await agreed(store, self.QUICK, is_given=True) == self.QUICK
        assert (await agreed(store, LedgerConfig(), is_given=False)).trim_delay == 8.0
        assert (await sending(store)).trim_delay == 8.0
        assert (await ledger_of_onlooker(store)).trim_delay == 8.0

    async def test_who_was_told_something_else_is_refused(self) -> None:
        store = MemoryStore()
        await agreed(store, LedgerConfig(), is_given=False)
        with pytest.raises(ConfigConflict, match=r"trim_delay is 8 s here, and 120 s where the queue 'jobs' was used"):
            await agreed(store, self.QUICK, is_given=True)

    async def test_who_only_sends_has_no_say(self) -> None:
        store = MemoryStore()
        assert (await sending(store)).trim_delay < 1, "nobody has said anything, so nothing is relied upon"
        assert (await ledger_of_onlooker(store)).trim_delay < 1
        assert await agreed(store, self.QUICK, is_given=True) == self.QUICK
        assert (await ledger_of_onlooker(store)).trim_delay == 8.0

    async def test_a_ledger_of_an_older_tenure_is_told_once(self) -> None:
        store = MemoryStore()
        await store.put(LEDGER, b'{"tenure":"ledger","writeId":"w","schemaVersion":1,"retentionMs":3600000}')
        both = await asyncio.gather(
            agreed(store, self.QUICK, is_given=False), agreed(store, LedgerConfig(), is_given=False)
        )
        assert len({each.trim_delay for each in both}) == 1

    @pytest.mark.parametrize("body", [b"{", b'{"tenure":"ledger","writeId":"w","schemaVersion":99}'])
    async def test_an_onlooker_does_without_what_it_cannot_read(self, body: bytes) -> None:
        store = MemoryStore()
        assert (await ledger_of_onlooker(store)).trim_delay < 1
        await store.put(LEDGER, body)
        assert (await ledger_of_onlooker(store)).trim_delay < 1

    async def test_by_default_it_is_two_of_the_longest_leases_of_the_namespace(self) -> None:
        async with Database("memory://") as db:
            config = CoordinatorConfig.for_lease(100.0, startup_jitter_max=0)
            queue = await db.use_plugin(S3QueuePlugin("jobs", config=config))
            assert queue._ledger.trim_delay == 2 * config.longest_lease_seconds == 800.0
            assert (await ledger_of_onlooker(ledger_store(db.store, "s3-queue", "jobs"))).trim_delay == 800.0

    async def test_one_that_is_shorter_than_two_leases_is_refused_before_anybody_leads(self) -> None:
        async with Database("memory://") as db:
            with pytest.raises(ConfigError, match=r"trim_delay of the queue 'jobs' is 8 s, and the lease 15 s"):
                await db.use_plugin(S3QueuePlugin("jobs", ledger=self.QUICK))

    async def test_what_was_refused_is_not_what_the_others_are_held_to(self) -> None:
        async with Database("memory://") as db:
            with pytest.raises(ConfigError, match=r"give ledger=LedgerConfig\(trim_delay=30\)"):
                await db.use_plugin(S3QueuePlugin("jobs", ledger=self.QUICK))
            as_told = await db.use_plugin(S3QueuePlugin("jobs", ledger=LedgerConfig(trim_delay=30)))
            assert as_told._ledger.trim_delay == 30.0

    @pytest.mark.parametrize("is_first", [True, False], ids=["as the first", "as the second"])
    async def test_who_says_something_else_of_a_ledger_has_not_said_this(self, is_first: bool, tmp_path: Path) -> None:
        """Of two processes in which nobody says how long the log is kept, the second one could not be started."""
        config = CoordinatorConfig.for_lease(30.0, startup_jitter_max=0)
        given = [LedgerConfig(snapshot_every=100), None]
        async with Database(f"file://{tmp_path}") as one, Database(f"file://{tmp_path}") as another:
            for db, ledger in zip((one, another), given if is_first else given[::-1], strict=True):
                queue = await db.use_plugin(S3QueuePlugin("jobs", config=config, ledger=ledger))
                assert queue._ledger.trim_delay == 2 * config.longest_lease_seconds == 240.0
                assert queue._ledger.snapshot_every == (ledger or LedgerConfig()).snapshot_every

    async def test_who_has_not_said_it_takes_what_was_said(self) -> None:
        store = MemoryStore()
        await agreed(store, self.QUICK, is_given=True)
        found = await agreed(store, LedgerConfig(snapshot_every=7), is_given=True)
        assert found == LedgerConfig(snapshot_every=7, trim_delay=8.0)

    async def test_one_that_could_not_be_started_is_as_one_that_was_stopped(self, tmp_path: Path) -> None:
        """It took what it was given, and let nobody know that it has no part in anything."""
        async with Database(f"file://{tmp_path}") as one, Database(f"file://{tmp_path}") as another:
            leases = {
                db: CoordinatorConfig.for_lease(lease, longest_lease=80) for db, lease in ((one, 3), (another, 20))
            }
            await one.use_plugin(S3QueuePlugin("jobs", config=leases[one], ledger=LedgerConfig(trim_delay=30)))
            refused = S3QueuePlugin("jobs", config=leases[another])
            with pytest.raises(ConfigError, match=r"trim_delay of the queue 'jobs' is 30 s, and the lease 20 s"):
                await another.use_plugin(refused)
            with pytest.raises(TenureError, match="not started"):
                await refused.enqueue("nothing")

    async def test_one_with_a_short_lease_may_be_the_first(self, tmp_path: Path) -> None:
        """Leases may differ within a namespace, up to its longest one."""
        leases = {"founder": 100.0, "short": 3.0, "long": 100.0}
        async with contextlib.AsyncExitStack() as stack:
            dbs = {
                name: await stack.enter_async_context(Database(f"file://{tmp_path}", worker_id=name)) for name in leases
            }
            configs = {name: CoordinatorConfig.for_lease(lease, startup_jitter_max=0) for name, lease in leases.items()}
            await (await dbs["founder"].get_global_coordinator(config=configs["founder"])).start()
            for name in ("short", "long"):
                queue = await dbs[name].use_plugin(S3QueuePlugin("jobs", config=configs[name]))
                assert queue._ledger.trim_delay == 800.0
