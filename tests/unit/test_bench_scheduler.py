"""`make bench-scheduler` is run by hand: what it counts, and that it still runs, is tested here."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from rich.console import Console

from bench.scheduler.__main__ import measure
from bench.scheduler.figures import kept, requests_of, row_of
from bench.scheduler.jobs import ZONES, JobSpec, busy_jobs, expected, many_jobs
from bench.scheduler.ours import declare
from bench.scheduler.plan import Plan
from bench.scheduler.table import show
from bench.scheduler.watch import Watch
from tenure import SchedulerPlugin

MINUTE = 1_800_000_000.0


def test_the_jobs_are_a_mix() -> None:
    jobs = many_jobs(10_000)
    assert len({job.id for job in jobs}) == 10_000
    assert sum(bool(job.period) for job in jobs) == 7_000
    assert {job.zone for job in jobs if job.cron} == set(ZONES)
    assert len({job.offset for job in jobs if job.period}) == 7_000
    declare(SchedulerPlugin(), jobs[::100])  # all of them can be declared


@pytest.mark.parametrize(
    ("low", "high", "count"), [(0.5, 1.5, 1), (0.0005, 59.0005, 0), (0.0005, 60.0005, 1), (-0.5, 120.5, 3)]
)
def test_instants_are_counted(low: float, high: float, count: int) -> None:
    offset = 1.0 if count == 1 and high < 2 else 0.0
    assert expected([JobSpec("a", 60.0, offset), JobSpec("b", cron="* * * * *")], MINUTE + low, MINUTE + high) == count


def test_busy_jobs_are_counted_each_second() -> None:
    assert expected(busy_jobs(50), MINUTE + 0.0005, MINUTE + 10.0005) == 500


def test_samples_are_kept_at_even_ranks_and_the_last() -> None:
    assert kept([1.0, 2.0]) == [1.0, 2.0, 2.0]
    ordered = [float(number) for number in range(100_001)]
    assert len(kept(ordered)) <= 1001
    assert kept(ordered)[-1] == 100_000.0


def test_requests_are_priced_as_s3_does() -> None:
    found = requests_of({"create": 10, "get": 10, "list": 0}, 10.0)
    assert found["requests_per_hour"] == 7200
    assert found["requests"] == {"create": 10, "get": 10}
    assert found["usd_per_hour"] == pytest.approx((10 * 0.005 + 10 * 0.0004) / 1000 * 360, rel=0.01)


async def test_what_is_late_and_what_did_not_run_is_seen() -> None:
    watch = Watch()
    jobs = [JobSpec("a", 0.1), JobSpec("b", 0.1)]
    now = int(time.time())
    for tenth in range(-10, 200):
        watch.runs += [(now + tenth / 10, now + tenth / 10 + 0.25, True)] * 2
    window = await watch.window(jobs, 0.25, lambda: {"create": 3})
    assert window["ran_periodic"] == window["expected_periodic"] >= 4
    assert set(window["lateness_ms"]) == {250.0}
    assert (window["early"], window["spent"]) == (0, {"create": 0})
    assert len(window["gaps_ms"]) == len(window["busy_ms"]) > 0
    cpu = {"seconds": 2.0, "cpu_seconds": 0.5, "runs": 4, "ticks": 2, "tick_ms": [1.0, 3.0]}
    raw = {"start": {"leads": 1.0, "all_next_fires_known": 2.0}, "window": window, "cpu": cpu, "memory_bytes": 2**20}
    row = {**row_of(raw), "load": [1.0, 2.0]}
    assert (row["not_run"], row["runs"], row["lateness_ms"]["p99"]) == (0, window["ran_periodic"], 250.0)
    assert (row["cpu"]["share"], row["cpu"]["ms_per_tick"], row["cpu"]["ms_per_run"]) == (0.25, 250.0, 125.0)
    assert row["cpu"]["tick_ms_per_run"] == 1.0
    show([{"subject": "us", "settings": "s", "many": row, "busy": row}], vars(Plan()), Console(quiet=True))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["many", pytest.param("busy", marks=pytest.mark.trials)])
def test_our_side_can_be_measured(part: str, tmp_path: Path) -> None:
    row = measure(["tenure"], part, tmp_path, Plan.quick())["tenure"]
    json.dumps(row)
    assert row["not_run"] == row["early"] == 0
    assert row["runs"] > 20
    assert row["cpu"]["ticks"] > 0
    assert row["requests_per_hour"] > 0
