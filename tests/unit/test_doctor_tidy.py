"""What `tenure doctor` leaves behind: nothing of its own, and nothing old of others'."""

from __future__ import annotations

from tenure.doctor.examine import _Examination
from tenure.store.memory import MemoryStore
from tenure.store.scratch import SCRATCH_FOLDERS
from tenure.store.url import parse_url
from tenure.testing import SimulatedClock
from tests.unit.leases import numbered


async def test_scratch_that_was_left_an_hour_ago_goes() -> None:
    clock = SimulatedClock()
    store = MemoryStore(clock=clock)
    for folder in SCRATCH_FOLDERS:
        await store.put(f"{folder}old/x", b"x")
    await store.put("mine/x", b"x")
    clock.advance(3601)
    await store.put("tenure-time/new/mark", b"x")
    examination = _Examination(
        parse_url("memory://"), 1, 1, 1, lambda step, done, total: None, clock=clock, draw_id=numbered("id-")
    )
    await examination._tidy(store)
    assert [entry.key async for entry in store.list()] == ["mine/x", "tenure-time/new/mark"]
