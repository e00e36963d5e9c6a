"""What is measured inside a process, ours or a peer's, in the same way. Nothing but Python is needed.

Lateness is by this machine's wall clock, which is also that of a directory store.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.scheduler.jobs import JobSpec, expected

TICK = 0.005
MOST_LATE = 10.0
"""Seconds after a window for which what was due in it is waited for."""


class Watch:
    """Of one process. `began` is called by every job."""

    def __init__(self) -> None:
        self.runs: list[tuple[float, float, bool]] = []
        """When it was due, when it began, and whether it has a period."""
        self.ticks: list[float] = []
        """Seconds that each tick of the scheduler kept the loop."""

    def began(self, due: float, *, is_periodic: bool) -> None:
        self.runs.append((due, time.time(), is_periodic))

    async def window(self, jobs: list[JobSpec], seconds: float, spent: Callable[[], dict[str, int]]) -> dict[str, Any]:
        """Lateness, stalls and what `spent` counts, of so many seconds."""
        gaps: list[tuple[float, float]] = []
        ticker = asyncio.create_task(_tick(gaps))
        collections = _collections()
        low, before, began = between_instants(), spent(), time.monotonic()
        await asyncio.sleep(seconds)
        high, after, passed = between_instants(), spent(), time.monotonic() - began
        ticker.cancel()
        gc.callbacks.remove(collections)
        wanted = expected(jobs, low, high)
        deadline = time.monotonic() + MOST_LATE
        while self._periodic(low, high) < wanted and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        late = sorted((at - due) * 1000 for due, at, _ in self.runs if low <= due < high)
        return {
            "seconds": round(passed, 2),
            "spent": {name: count - before.get(name, 0) for name, count in after.items()},
            "lateness_ms": [round(each, 2) for each in late],
            "early": sum(each < 0 for each in late),
            "expected_periodic": wanted,
            "ran_periodic": self._periodic(low, high),
            "gaps_ms": sorted(round(gap * 1000, 2) for gap, _ in gaps),
            "busy_ms": sorted(round(busy * 1000, 2) for _, busy in gaps),
            "collections_ms": sorted(round(each * 1000, 2) for each in collections.took),
        }

    async def cpu(self, seconds: float, ticks: Callable[[], int]) -> dict[str, Any]:
        """CPU time of the whole process, with nothing measured beside; `ticks`: of the scheduler, so far."""
        runs, before, first = len(self.runs), time.process_time(), ticks()
        self.ticks.clear()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        spent = time.process_time() - before
        return {
            "seconds": round(time.monotonic() - began, 2),
            "cpu_seconds": round(spent, 4),
            "runs": len(self.runs) - runs,
            "ticks": ticks() - first,
            "tick_ms": sorted(round(each * 1000, 3) for each in self.ticks),
        }

    def _periodic(self, low: float, high: float) -> int:
        return sum(is_periodic and low <= due < high for due, _, is_periodic in self.runs)


async def told_to_go_on(**so_far: object) -> None:
    """Say that it has started, and wait until the others have as well."""
    print(json.dumps(so_far), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def between_instants() -> float:
    """Now, but half a millisecond off any instant that a job has."""
    return math.floor(time.time() * 1000) / 1000 + 0.0005


async def _tick(gaps: list[tuple[float, float]]) -> None:
    """Note how long each tick took to come, and how much of that this thread was busy: the rest was the machine's."""
    last, spent = time.perf_counter(), time.thread_time()
    while True:
        await asyncio.sleep(TICK)
        now, busy = time.perf_counter(), time.thread_time()
        gaps.append((now - last, busy - spent))
        last, spent = now, busy


class Collections:
    """Full collections of Python's garbage, which keep every thread from going on."""

    def __init__(self) -> None:
        self.took: list[float] = []
        """CPU seconds."""
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.took.append(time.thread_time() - self._began)


def _collections() -> Collections:
    noted = Collections()
    gc.callbacks.append(noted)
    return noted


def memory_bytes() -> int:
    """What this process holds in memory that is its own."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
