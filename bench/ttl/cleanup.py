"""One cleanup by a leader that starts when everything that is due has been loaded."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

import msgspec

from bench.queue.figures import usd
from bench.ttl.disk import files_in
from bench.ttl.meter import INDEX, RECORDS, Requests, billed, since, together
from bench.ttl.scene import Scene
from tenure.coordinator.events import PluginEvent
from tenure.plugins.ttl import Counts
from tenure.plugins.ttl.events import CleanupFinished

PATIENCE = 600.0


class Cleaned(NamedTuple):
    """From the moment at which the leader had caught up until it had written down that the cleanup had ended."""

    expired: int
    seconds: float
    cpu: float
    requests: Requests
    """All that its process sent since it was started: the election and the ledger included."""
    due_entries: int
    """Index entries that were due, each for one record or for many. Those for many have to be read."""
    counts: dict[str, int]
    left: int
    """Records that are there afterwards."""

    @property
    def billed_per_record(self) -> float:
        return billed(together(self.requests)) / self.expired

    @property
    def read_in_vain(self) -> int:
        """Records that were read, and did not expire, and index entries that were read, and not due."""
        records, entries = (self.requests.get(kind, {}).get("get", 0) for kind in (RECORDS, INDEX))
        return max(0, records - self.expired) + max(0, entries - self.due_entries)

    def as_json(self) -> dict[str, Any]:
        total = together(self.requests)
        return {
            "expired": self.expired,
            "seconds": round(self.seconds, 3),
            "per_second": round(self.expired / self.seconds, 1),
            "cpu_us_per_record": round(self.cpu / self.expired * 1e6, 1),
            "requests": self.requests,
            "by_verb": total,
            "billed_per_record": round(self.billed_per_record, 5),
            "usd_per_million": round(usd(total) / self.expired * 1e6, 3),
            "index_entries_due": self.due_entries,
            "read_in_vain": self.read_in_vain,
            "records_left": self.left,
            "counts": self.counts,
        }


def clean_up(scene: Scene, due: int) -> Cleaned:
    return asyncio.run(_clean_up(scene, due))


async def _clean_up(scene: Scene, due: int) -> Cleaned:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[float, float, Counts]] = loop.create_future()
    began: tuple[float, float] = (0.0, 0.0)
    total = Counts()
    entries = scene.due_entries()
    async with scene.leading() as (meter, database, ttl):
        before = meter.requests()
        coordinator = await database.get_global_coordinator(ttl.namespace, config=ttl._config)

        def on_leading(event: PluginEvent) -> None:
            nonlocal began
            began = (time.perf_counter(), time.process_time())

        def on_finished(event: PluginEvent) -> None:
            assert isinstance(event.event, CleanupFinished)
            total.add(event.event.counts)
            if total.expired >= due and not ended.done():
                ended.set_result((time.perf_counter(), time.process_time(), total))

        coordinator.on("plg:ttl:leading", on_leading)
        coordinator.on("plg:ttl:cleanup-finished", on_finished)
        await database.use_plugin(ttl)
        try:
            async with asyncio.timeout(PATIENCE):
                wall, cpu, counts = await ended
        except TimeoutError:
            raise RuntimeError(f"after {PATIENCE:g} s {total.expired:,} of {due:,} records had expired") from None
        requests = since(meter.requests(), before)
    return Cleaned(
        counts.expired,
        wall - began[0],
        cpu - began[1],
        requests,
        entries,
        {name: value for name, value in msgspec.structs.asdict(counts).items() if value},
        files_in(scene.records),
    )
