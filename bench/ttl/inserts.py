"""What it costs a writer that its records expire: an index entry before each, or before many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.queue.figures import percentile, usd
from bench.ttl.meter import billed, since, together
from bench.ttl.scene import FUTURE, Scene, body_of

CALLERS = 32
DAYS_30 = 30 * 86_400.0


def measure_inserts(home: Path, count: int, batch: int) -> list[dict[str, Any]]:
    rows = []
    for expiring in (False, True):
        scene = Scene(home / f"inserts-{expiring}", {"ttl": DAYS_30})
        rows += asyncio.run(_measure(scene, count, batch, expiring))
    return rows


async def _measure(scene: Scene, count: int, batch: int, expiring: bool) -> list[dict[str, Any]]:
    rows = []
    async with scene.writing(expiring=expiring) as (meter, records):

        async def single(number: int) -> None:
            await records.insert(body_of(number, FUTURE), id=f"single-{number}")

        async def caller(number: int) -> None:
            await records.insert(body_of(number, FUTURE), id=f"caller-{number}")

        async def many(number: int) -> None:
            numbers = range(number * batch, min(count, (number + 1) * batch))
            ids = [f"many-{each}" for each in numbers]
            done = await records.insert_many([body_of(each, FUTURE) for each in numbers], ids=ids)
            for each in done:
                if each.error is not None:
                    raise each.error

        await records.insert(body_of(0, FUTURE), id="first")  # it asks for the store's time, once for all
        for how, insert, calls, callers, per_call in (
            ("one by one", single, max(10, count // 10), 1, 1),
            (f"{CALLERS} callers", caller, count, CALLERS, 1),
            (f"insert_many of {batch}", many, -(-count // batch), 1, batch),
        ):
            before, cpu, began = meter.requests(), time.process_time(), time.perf_counter()
            samples = await _calls(insert, calls, callers)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            inserted = calls if per_call == 1 else count
            spent = since(meter.requests(), before)
            total = together(spent)
            rows.append(
                {
                    "how": how,
                    "ttl": expiring,
                    "records": inserted,
                    "per_second": round(inserted / seconds, 1),
                    "cpu_us_per_record": round(cpu / inserted * 1e6, 1),
                    "p50_ms_of_a_call": round(percentile(sorted(samples), 0.5), 3),
                    "requests": spent,
                    "billed_per_record": round(billed(total) / inserted, 5),
                    "usd_per_million": round(usd(total) / inserted * 1e6, 3),
                    "samples_ms": [round(sample, 2) for sample in samples],
                }
            )
    return rows


async def _calls(insert: Callable[[int], Awaitable[None]], calls: int, callers: int) -> list[float]:
    """Milliseconds that each call took."""
    samples: list[float] = []
    numbers = iter(range(calls))

    async def take() -> None:
        for number in numbers:
            began = time.perf_counter()
            await insert(number)
            samples.append((time.perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(take())
    return samples
