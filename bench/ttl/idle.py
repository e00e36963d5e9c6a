"""What a leader spends in an hour in which nothing expires. The hour is a simulated one: the counts are exact."""

from __future__ import annotations

from typing import Any

from bench.queue.figures import usd
from bench.ttl.meter import SortedMeter, billed, since, together
from bench.ttl.scene import FUTURE, RESOURCE, body_of
from tenure import Database
from tenure.coordinator.config import CoordinatorConfig, Hosting
from tenure.entropy import Random
from tenure.plugins.ttl import TTLPlugin
from tenure.testing import Host, World

HOUR = 3600.0
SETTLED = 120.0
"""Seconds after which it does what it does for ever."""


def idle_hour(seed: int, records: int = 100) -> dict[str, Any]:
    """One process alone, with so many records that expire in the future."""
    with World(seed) as world:
        host = world.host("leader")
        meters: list[SortedMeter] = []
        host.start(_lead(host, seed, records, meters))
        world.run_until(SETTLED)
        before = meters[0].requests()
        world.run_until(SETTLED + HOUR)
        spent = since(meters[0].requests(), before)
        if world.errors:
            raise RuntimeError(f"the simulated hour went wrong: {world.errors[0]}")
    total = together(spent)
    return {
        "records": records,
        "requests": spent,
        "by_verb": total,
        "billed": billed(total),
        "usd": round(usd(total), 5),
        "usd_of_ttl": round(sum(usd(verbs) for kind, verbs in spent.items() if kind != "coordination"), 5),
    }


async def _lead(host: Host, seed: int, records: int, meters: list[SortedMeter]) -> None:
    random = Random(seed)

    def draw_id() -> str:
        return f"{random.getrandbits(128):032x}"

    async with Database("memory://", clock=host.clock, random=random, draw_id=draw_id) as database:
        meters.append(SortedMeter.watch(database, RESOURCE))
        config = CoordinatorConfig(hosting=Hosting.LOOP)
        await database.use_plugin(TTLPlugin(RESOURCE, field="expires_at", config=config))
        bodies = [body_of(number, FUTURE + number) for number in range(records)]
        await database.resource(RESOURCE).insert_many(bodies)
        await host.clock.sleep(2 * SETTLED + HOUR)
