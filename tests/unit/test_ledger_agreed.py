"""Who sends has to know how long it is remembered: what the first process says of a ledger holds for all."""

from __future__ import annotations

import pytest

from tenure import Database
from tenure.errors import ConfigConflict
from tenure.ledger import LedgerConfig, agreed_ledger, ledger_store
from tenure.ledger.agreed import LEDGER
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler.queues import Queues
from tenure.store.memory import MemoryStore
from tests.unit.leases import numbered

draw_id = numbered("w")
SHORT = LedgerConfig(retention=90.0, send_timeout=5.0, give_up_after=15.0)


async def agreed(store: MemoryStore, config: LedgerConfig, *, is_given: bool) -> LedgerConfig:
    return await agreed_ledger(store, config, is_given=is_given, what="the queue 'jobs'", draw_id=draw_id)


@pytest.mark.req("SQ-1")
async def test_who_was_told_nothing_takes_what_the_others_have() -> None:
    store = MemoryStore()
    assert await agreed(store, SHORT, is_given=True) == SHORT
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
    assert await agreed(store, LedgerConfig(snapshot_every=7), is_given=True) == LedgerConfig(snapshot_every=7)


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
