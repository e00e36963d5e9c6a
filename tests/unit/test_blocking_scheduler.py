"""The schedule and the ttl for threads: on a directory, with real threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import blocking
from tenure.errors import (
    ConfigError,
    CoordinationError,
    RecordNotFound,
    RequestNotAnswered,
    RequestRefused,
    TenureError,
)
from tests.support.waiting import eventually_here

PATIENCE = 60.0
SWIFT = tenure.CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
NAMES = (
    "job function declare add update remove pause resume run_now jobs get history next_fires stats on name is_leading"
)
OF_TTL = "touch persist expires_at run_cleanup cleanup_resource reindex stats failed on is_leading"
FAR = tenure.at(datetime(2100, 1, 1, tzinfo=UTC))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "bucket").as_uri()


@contextmanager
def opened(url: str, **options: Any) -> Iterator[blocking.Scheduler]:
    with blocking.Database(url, worker_id="ada") as db:
        yield db.use_plugin(tenure.SchedulerPlugin(config=SWIFT, **options))


def test_every_name_is_that_of_the_async_one() -> None:
    for names, twin, plugin in (
        (NAMES, blocking.Scheduler, tenure.SchedulerPlugin()),
        (OF_TTL, blocking.TTL, tenure.TTLPlugin("sessions", ttl=60)),
    ):
        for name in names.split():
            assert hasattr(twin, name)
            assert hasattr(plugin, name)


@pytest.mark.req("SC-1")
def test_plain_functions_are_called_in_threads_and_coroutines_too(url: str) -> None:
    seen: list[tuple[str, str]] = []
    with opened(url) as scheduler:
        told: list[Any] = []
        scheduler.on("plg:scheduler:finished", told.append)

        @scheduler.job(FAR, id="plain")
        def plain(run: tenure.Run) -> None:
            scheduler.stats()  # it may use the blocking API
            seen.append((run.job, threading.current_thread().name))

        @scheduler.job(FAR)
        async def coroutine() -> None:
            await asyncio.sleep(0)
            seen.append(("coroutine", threading.current_thread().name))

        eventually_here(lambda: scheduler.is_leading and len(scheduler.jobs()) == 2)
        runs = [scheduler.run_now("plain"), scheduler.run_now("coroutine")]
        eventually_here(lambda: scheduler.stats().succeeded == 2)
        assert sorted(job for job, _ in seen) == ["coroutine", "plain"]
        assert dict(seen)["plain"] == "job-plain"
        assert [record.run for record in scheduler.history()] == runs[::-1]
        eventually_here(lambda: {event.event.job for event in told} == {"plain", "coroutine"})
        with pytest.raises(ConfigError, match="job 'plain' is declared twice"):
            scheduler.declare("plain", FAR, function="plain")


@pytest.mark.req("SC-1")
def test_what_is_due_is_run_and_what_was_declared_before_is_known(url: str) -> None:
    plugin = tenure.SchedulerPlugin(config=SWIFT)
    ran = threading.Event()

    @plugin.job(tenure.every(1), id="tick")
    def tick() -> None:
        ran.set()

    with blocking.Database(url) as db:
        scheduler = db.use_plugin(plugin)
        assert ran.wait(PATIENCE)
        record = eventually_here(lambda: scheduler.history("tick"))[-1]
        assert (record.job, record.outcome) == ("tick", "fired")
        assert record.started_ms >= record.scheduled_ms


@pytest.mark.req("SC-1")
def test_jobs_are_added_changed_and_removed_by_another_process(url: str) -> None:
    with opened(url) as scheduler:
        given: list[Any] = []

        @scheduler.function("remind")
        def remind(run: tenure.Run) -> None:
            given.append(run.payload)
            raise ValueError("not today")

        with blocking.Database(url) as db:
            other = db.use_plugin(tenure.SchedulerPlugin(takes_part=False))
            assert not other.is_leading
            other.add("adhoc", FAR, function="remind", payload={"who": "ada"}, within=PATIENCE)
            with pytest.raises(RequestRefused, match="there is a job 'adhoc' already"):
                other.add("adhoc", FAR, function="remind", within=PATIENCE)
            other.update("adhoc", tenure.every(timedelta(days=3)), payload={"who": "ben"}, within=PATIENCE)
            other.pause("adhoc", within=PATIENCE)
            assert (other.get("adhoc").paused, other.get("adhoc").next_ms) == (True, None)
            other.run_now("adhoc", within=PATIENCE)
            eventually_here(lambda: other.stats().failed == 1)
            assert given == [{"who": "ben"}]
            assert other.history("adhoc", limit=1)[0].error == "ValueError: not today"
            other.resume("adhoc", within=PATIENCE)
            first, second = other.next_fires("adhoc", 2)
            assert second.at_ms - first.at_ms == 3 * 86_400_000
            other.remove("adhoc", within=PATIENCE)
            assert other.jobs() == []
            with pytest.raises(RequestRefused, match="there is no job 'adhoc'"):
                other.run_now("adhoc", within=PATIENCE)


def test_without_a_leader_it_is_durable_and_said_so(url: str) -> None:
    with opened(url, takes_part=False) as scheduler:
        with pytest.raises(RequestNotAnswered, match=r"no leader has decided on it in 0\.1 s"):
            scheduler.add("later", FAR, function="remind", within=0.1)
        scheduler.add("durable", FAR, command=("true",), wait=False)
        assert scheduler.stats().inbox == 2
        with pytest.raises(ConfigError, match="every is 0"):
            scheduler.add("bad", tenure.every(0), function="remind")
        with pytest.raises(ConfigError, match="there is no job 'later'"):
            scheduler.get("later")
        with pytest.raises(CoordinationError, match="has no coordinator"):
            scheduler.on("*", print)
    with pytest.raises(TenureError, match="is closed"):
        scheduler.jobs()
    with pytest.raises(TenureError, match="is closed"):
        scheduler.job(FAR)
    with opened(url) as scheduler:
        eventually_here(lambda: [view.id for view in scheduler.jobs()] == ["durable", "later"])


@pytest.mark.req("TT-1")
def test_records_expire_and_threads_keep_them(url: str) -> None:
    with blocking.Database(url) as db:
        sessions = db.resource("sessions")
        ttl = db.use_plugin(tenure.TTLPlugin("sessions", ttl=3600, tick=1, config=SWIFT))
        sessions.insert({"user": "ada"}, id="s1")
        first = ttl.expires_at("s1")
        assert first is not None
        later = ttl.touch("s1", ttl=timedelta(hours=2))
        assert later is not None
        assert timedelta(minutes=50) < later - first < timedelta(minutes=70)
        ttl.persist("s1")
        assert ttl.expires_at("s1") is None
        sessions.insert({"user": "ben"}, id="s2")
        ttl.touch("s2", ttl=0.001)
        assert ttl.resource == "sessions"
        eventually_here(lambda: not sessions.exists("s2"))
        assert sessions.exists("s1")
        assert ttl.run_cleanup(timeout=PATIENCE).counts.expired == 0
        assert eventually_here(lambda: ttl.stats().totals.expired) == 1
        with pytest.raises(RecordNotFound):
            ttl.touch("nobody")
