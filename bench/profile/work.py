"""One piece of work in a process of its own: `python -m bench.profile.work NAME '{…}'`. Prints what it took, as JSON.

Nothing here may need more of tenure than both versions have.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import logging
import pstats
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import tenure
from tenure import CoordinatorConfig, Database
from tenure.plugins.queue import S3QueuePlugin
from tenure.store import open_store

_BODY = {"text": "x" * 180}


async def requests(url: str, count: int) -> dict[str, Any]:
    """CPU of single requests to a directory, one after the other."""
    store = await open_store(url)
    key = "plugin=bench/name=profile/inbox/one.json"
    await store.put(key, b"x" * 300)
    found: dict[str, Any] = {}
    for name, act in (("get", lambda _: store.get(key)), ("create", lambda n: store.create(f"{key}-{n}", b"x" * 300))):
        for number in range(count // 10):
            await act(f"warm-{number}")
        began = time.process_time()
        for number in range(count):
            await act(number)
        found[f"{name}_us"] = (time.process_time() - began) / count * 1e6
    await store.aclose()
    return found


async def queue(url: str, count: int, rate: float) -> dict[str, Any]:
    """CPU of a message, enqueued by itself, with the leader, a worker and the producer in one process."""
    async with Database(url, timeout=30.0) as database:
        plugin = S3QueuePlugin("bench", config=CoordinatorConfig(startup_jitter_max=0.0))
        await database.use_plugin(plugin)
        handled, all_handled = 0, asyncio.Event()

        @plugin.handler
        async def handle(message: Any) -> None:
            nonlocal handled
            handled += 1
            if handled == count:
                all_handled.set()

        while plugin.worker is None or not plugin.is_leading:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        before, cpu, began = database.usage().total, time.process_time(), time.monotonic()
        calls = []
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            calls.append(asyncio.create_task(plugin.enqueue(_BODY)))
        await asyncio.gather(*calls)
        await all_handled.wait()
        took = time.process_time() - cpu
        return {"message_us": took / count * 1e6, "requests_each": (database.usage().total - before) / count}


async def lapse(workers: int, crashes: int) -> dict[str, Any]:
    """Simulated: what a whole fleet asks of its store when its leader crashed."""
    from bench.scale.measure import measure
    from bench.scale.plan import Plan

    plan = Plan(sizes=(workers,), seconds=20.0, failovers={workers: crashes}, cycles=1, beyond=())
    found = await asyncio.to_thread(measure, workers, plan, lambda _: None)
    return {
        "busiest_second": max(each["peak_requests_per_second"] for each in found["failovers"]),
        "cold_start_busiest_second": found["cold_start"]["peak_requests_per_second"],
        "seconds": [each["seconds"] for each in found["failovers"]],
    }


def where(profile: cProfile.Profile, count: int = 12) -> list[dict[str, Any]]:
    """The functions with the most time of their own, without those in which a loop waits."""
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    waits = ("poll", "acquire", "select")
    busy = {name: row for name, row in stats.items() if not any(wait in name[2] for wait in waits)}
    total = sum(row[2] for row in busy.values())
    rows = sorted(busy.items(), key=lambda item: -item[1][2])[:count]
    return [
        {
            "function": _spoken(name),
            "share": round(row[2] / total, 4),
            "calls": row[1],
            "with_callees": round(row[3], 4),
        }
        for name, row in rows
    ]


def _spoken(name: tuple[str, int, str]) -> str:
    file, _, function = name
    path = Path(file)
    if "tenure" in path.parts:
        place = "/".join(path.parts[len(path.parts) - 1 - path.parts[::-1].index("tenure") :])
    else:
        place = "/".join(path.parts[-2:]) if path.suffix else ""
    return f"{place} {function}".strip()


WORK: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    "requests": requests,
    "queue": queue,
    "lapse": lapse,
}


def main(name: str, options: dict[str, Any]) -> None:
    logging.disable(logging.WARNING)
    profiled = options.pop("profiled", False)
    profile = cProfile.Profile()
    if profiled:
        profile.enable()
    found = asyncio.run(WORK[name](**options))
    if profiled:
        profile.disable()
        found["where"] = where(profile)
    found["sources"] = str(Path(tenure.__file__).parents[1])
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
