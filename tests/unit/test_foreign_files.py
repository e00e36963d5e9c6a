"""Where tenure removes what is old, what other tools have put there stays, however old it is."""

from __future__ import annotations

import itertools

from tenure.plugins.queue.leading import Leading
from tenure.plugins.supervisor.static import StaticPost
from tenure.plugins.supervisor.status import folder_of
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.queue_rig import FOLDER, Rig


def test_old_files_of_others_among_the_results_stay() -> None:
    others = {
        f"{FOLDER}results/{name}"
        for name in ("README.txt", "2024-01-31", "report-2024-01-31", "report-2024-11-30", "old/a-bbbbbb-1-2")
    }
    old = f"{FOLDER}results/{'1f' * 16}-0123456789ab-1-0"
    with Rig(result_retention=60.0) as rig:
        for key in (*others, old):
            rig.bucket.corrupt(key, b"1")
        rig.run(100.0)
        leader = rig.lead(epoch=1)
        rig.run(120.0)
        leader.lease.valid = False
        assert set(rig.bucket.keys(f"{FOLDER}results/")) == others


async def test_files_of_others_among_the_segments_stay() -> None:
    class Second:
        epoch = 2

        def ensure(self, seconds: float = 0.0) -> None:
            pass

    store = MemoryStore()
    others = {
        f"seg/{name}" for name in ("1", "1-", "1-notes.txt", "01-01-24", "1-of-a-series-1-to-2", "1-x-1/a", "-1-x-1")
    }
    for key in (*others, "seg/1-0123456789ab-1", "seg/1-0123456789ab-2", "seg/2-0123456789ab-1"):
        await store.put(key, b"")
    leading = object.__new__(Leading)
    leading._store, leading._lead = store, Second()  # type: ignore[assignment]
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
