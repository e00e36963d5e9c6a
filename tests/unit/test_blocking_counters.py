"""Counters for threads: on a directory, with real threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import blocking
from tenure.errors import ConfigError, InvalidRecord, RequestNotAnswered, TenureError
from tests.support.waiting import eventually_here

PATIENCE = 60.0
SWIFT = tenure.CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
NAMES = "add sub set get history top stats consolidate recalculate on name resource fields settings is_leading"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "bucket").as_uri()


@contextmanager
def opened(url: str, **options: Any) -> Iterator[tuple[blocking.Database, blocking.Counters]]:
    fields = {"views": int, "paid": Decimal, "stats.peak": "float:max"}
    with blocking.Database(url, worker_id="ada") as db:
        yield db, db.use_plugin(tenure.EventualConsistencyPlugin("pages", fields, config=SWIFT, **options))


def test_every_name_is_that_of_the_async_one() -> None:
    plugin = tenure.EventualConsistencyPlugin("pages", ["views"])
    plugin.name = "pages"
    for name in NAMES.split():
        assert hasattr(blocking.Counters, name)
        assert hasattr(plugin, name)


@pytest.mark.req("EC-1", "EC-2")
def test_threads_count_and_every_amount_is_counted_once(url: str) -> None:
    with opened(url) as (db, counters):
        pages = db.resource("pages")
        pages.insert({"title": "Home", "views": 100}, id="home")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: counters.add("home", "views"), range(200)))
        counters.sub("home", "views", 50)
        assert counters.get("home", "views", consistent=True) == 250
        counters.consolidate("home", timeout=PATIENCE)
        assert pages.get("home").data == {"title": "Home", "views": 250}
        stats = counters.stats()
        assert (stats.pending, stats.calls) == (0, 201)
        assert stats.applied < 50, "calls that come together are one write"

        counters.add("home", "paid", Decimal("0.10"), mode="sync", timeout=PATIENCE)
        counters.add("home", "paid", Decimal("0.20"), mode="sync", timeout=PATIENCE)
        counters.add("home", "stats.peak", 2.5, mode="sync", timeout=PATIENCE)
        assert counters.get("home") == {"views": 250, "paid": Decimal("0.30"), "stats.peak": 2.5}
        counters.set("home", "views", 7, op_id="once", mode="sync", timeout=PATIENCE)
        counters.set("home", "views", 9, op_id="once", mode="sync", timeout=PATIENCE)
        assert counters.get("home", "views") == 7

        (today,) = counters.history(None, "views")
        assert (today.adds, today.added, today.subs, today.subbed, today.sets) == (200, 200, 1, 50, 1)
        assert [(top.id, top.value) for top in counters.top("views", period="day")] == [("home", 7)]
        assert counters.recalculate("home", timeout=PATIENCE).former == {}


@pytest.mark.req("EC-1")
def test_it_tells_on_a_thread_and_refuses_what_the_async_one_refuses(url: str) -> None:
    with opened(url, interval=0.1) as (db, counters):
        told: list[tuple[Any, str]] = []
        counters.on(
            "plg:eventual-consistency:consolidated",
            lambda event: told.append((event, threading.current_thread().name)),
        )
        counters.add("home", "views")
        event, thread = eventually_here(lambda: told)[0]
        assert (event.event.resource, event.event.records) == ("pages", 1)
        assert thread != threading.current_thread().name
        assert counters.is_leading
        assert repr(counters) == "<blocking Counters of 'pages'>"
        assert (counters.name, counters.resource, counters.settings.interval) == ("pages", "pages", 0.1)
        assert {field: counter.word for field, counter in counters.fields.items()} == {
            "views": "int:sum",
            "paid": "decimal:sum",
            "stats.peak": "float:max",
        }
        with pytest.raises(ConfigError, match="which is not counted here"):
            counters.add("home", "veiws")
        with pytest.raises(InvalidRecord, match="its total is 1"):
            db.resource("pages").insert({"views": 5}, id="home")
    with pytest.raises(TenureError, match="is closed"):
        counters.add("home", "views")


def test_who_only_counts_does_not_lead_and_says_so_when_nobody_does(url: str) -> None:
    with opened(url, producer_only=True) as (_, counters):
        counters.add("home", "views", 3)
        assert counters.get("home", "views") == 0
        assert counters.get("home", "views", consistent=True) == 3
        with pytest.raises(RequestNotAnswered, match="written down and will be counted"):
            counters.add("home", "views", mode="sync", timeout=0.2)
        with pytest.raises(RequestNotAnswered, match="does one lead that works on these counters"):
            counters.consolidate(timeout=0.2)
    with opened(url) as (_, counters):
        eventually_here(lambda: counters.get("home", "views") == 4)
