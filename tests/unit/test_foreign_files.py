"""What other tools have put among our own: it stays where tenure removes what is old, and hides nothing of ours."""

from __future__ import annotations

import itertools

import pytest

from tenure.cli import status
from tenure.coordinator.layout import worker_key
from tenure.coordinator.reading import list_newest
from tenure.plugins.queue.leading import Leading
from tenure.plugins.supervisor.static import StaticPost
from tenure.plugins.supervisor.status import folder_of
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.support.lease import ScriptedLease
from tests.unit.queue_rig import FOLDER, Rig


def test_old_files_of_others_among_the_results_stay() -> None:
    others = {
        f"{FOLDER}results/{name}"
        for name in ("README.txt", "2024-01-31", "report-2024-01-31", "report-2024-11-30", "old/a-bbbbbb-1-2")
    }
    old = f"{FOLDER}results/{'1f' * 16}-0123456789ab-1-0"
    with Rig(result_retention=60.0, tick_interval=1.0) as rig:
        for key in (*others, old):
            rig.bucket.corrupt(key, b"1")
        rig.run(100.0)
        leader = rig.lead(epoch=1)
        rig.run(105.0)
        leader.lease.valid = False
        assert set(rig.bucket.keys(f"{FOLDER}results/")) == others


async def test_files_of_others_among_the_segments_stay() -> None:
    store = MemoryStore()
    others = {
        f"seg/{name}" for name in ("1", "1-", "1-notes.txt", "01-01-24", "1-of-a-series-1-to-2", "1-x-1/a", "-1-x-1")
    }
    for key in (*others, "seg/1-0123456789ab-1", "seg/1-0123456789ab-2", "seg/2-0123456789ab-1"):
        await store.put(key, b"")
    leading = object.__new__(Leading)
    leading._store, leading._lead = store, ScriptedLease(2)  # type: ignore[assignment]
    await leading._clear_segments(frozenset({"1-0123456789ab-2"}))
    left = {row.key async for row in store.list("seg/")}
    assert left == others | {"seg/1-0123456789ab-2", "seg/2-0123456789ab-1"}


async def test_old_files_of_others_among_static_nodes_stay() -> None:
    clock, numbers = SimulatedClock(), itertools.count(1)
    store = MemoryStore(clock=clock)
    nodes = folder_of("kids") + "static/nodes/"
    others = {nodes + name for name in ("README.txt", "a.json", "report.2024.json", "backup/a.0123456789ab.json")}

    def post() -> StaticPost:
        return StaticPost(store, "kids", "a", clock=clock, draw_id=lambda: f"{next(numbers):032x}"[::-1])

    for key in others:
        await store.put(key, b"{}")
    await post().look_around()  # of a start that is over, and left its record
    clock.advance(2 * 3600.0)
    await post().look_around()
    left = {row.key async for row in store.list(nodes)}
    assert others < left
    assert len(left - others) == 1, "old records of ours are removed"


async def test_newer_files_of_others_do_not_hide_the_workers() -> None:
    clock = SimulatedClock()
    store = MemoryStore(clock=clock)
    others = [f"workers/worker=b{number}.txt" for number in range(3)]
    for key in (worker_key("a"), *others):
        clock.advance(1.0)
        await store.put(key, b"{}")
    found = await list_newest(store, 2)
    assert [entry.key for entry in found.newest] == [worker_key("a")]
    assert (found.left_out, found.others) == (0, others)


async def test_a_status_holds_no_more_records_than_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedClock()
    store = MemoryStore(clock=clock)
    for number in range(10):
        clock.advance(1.0)
        await store.put(worker_key(f"w{number}"), b"{}")
    monkeypatch.setattr(status, "MAX_WORKERS_READ", 3)
    assert set(await status._versions(store)) == {worker_key(f"w{number}") for number in (7, 8, 9)}
