"""A million objects of others in every folder of a working fleet: it works on, in bounded memory, and says so once.

The crowd is never stored: listings show it, as they would. Half of it sorts before every name of ours, half behind.
"""

from __future__ import annotations

import bisect
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tenure.coordinator.layout import folder_of
from tenure.store import Entry, Version

from .test_bad_input import AFTER, BEFORE, usual
from .working import COUNTED, LEDGERS, RECORDS, WorkingFleet

MILLION = 1_000_000
PAGE = 1000
STEMS = ("-other-", "zz-other-")
LEDGER_FOLDERS = ("inbox/", "log/", "snapshots/", "chunks/", "damaged/")
FOLDERS = [
    "",
    *(folder_of("default") + each for each in ("", "terms/", "workers/", "damaged/")),
    *(folder + each for folder in LEDGERS.values() for each in ("", *LEDGER_FOLDERS)),
    *(LEDGERS["s3-queue"] + each for each in ("seg/", "results/")),
    *(LEDGERS["ttl"] + each for each in ("due/", "failed/")),
    LEDGERS["eventual-consistency"] + "pages/",
    *(f"resource={name}/data/" for name in (RECORDS, COUNTED)),
]
OLD = datetime(2020, 1, 1, tzinfo=UTC)

Page = Callable[[str, str | None, bool], list[Entry]]


def crowded(page: Page, folders: list[str]) -> Page:
    """`page`, as it would be with a million objects more in each folder."""

    def strangers(prefix: str, after: str | None) -> list[Entry]:
        found: list[str] = []
        for folder in folders:
            if not folder.startswith(prefix):
                continue
            for stem in STEMS:
                name = f"{folder}{stem}{{:07d}}".format
                first = 0 if after is None else bisect.bisect_right(range(MILLION // 2), after, key=name)
                found += [name(number) for number in range(first, min(first + PAGE, MILLION // 2))]
        return [Entry(key, Version("other"), 7, OLD) for key in sorted(found)[:PAGE]]

    def both(prefix: str, after: str | None, whole_seconds: bool) -> list[Entry]:
        rows = [*page(prefix, after, whole_seconds), *strangers(prefix, after)]
        return sorted(rows, key=lambda entry: entry.key)[:PAGE]

    return both


@pytest.mark.slow
@pytest.mark.req("EL-20", "SQ-1", "EC-2", "SC-2", "TT-2")
def test_a_fleet_works_on_among_a_million_objects_of_others_in_every_folder() -> None:
    usual_requests, usually_done, _ = usual()
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        fleet.said.clear()
        requests, done = sum(fleet.network.requests.values()), fleet.done.copy()
        fleet.bucket._page = crowded(fleet.bucket._page, FOLDERS)  # type: ignore[method-assign]
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            fleet.run(AFTER / 4)
            fleet.lead().host.crash()
            fleet.run(3 * AFTER / 4)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert fleet.lead().named("leader:changed")[-1].epoch == 2, "another was elected"
        assert not fleet.halts
        assert peak - before < 40_000_000
        assert sum(fleet.network.requests.values()) - requests < 4 * usual_requests, "a storm of requests"
        for what, least in usually_done.items():
            assert (fleet.done - done)[what] >= least * 0.5, f"{what}: {fleet.done - done}"
        told = [text for text in fleet.said if "-other-" in text]
        assert any("workers/" in text for text in told), fleet.said
        assert any("inbox/" in text for text in told), fleet.said
        for text, count in fleet.said.items():
            assert "nobody foresaw" not in text, text
            # Once by each who led, of each ledger: their inboxes have the same name in all.
            most = 2 * len(LEDGERS) if "is not folded" in text else 2
            assert count <= most or "heartbeats" in text, f"said {count} times: {text}"
        assert len(fleet.said) < 200, "a million lines are not a report"


@pytest.mark.slow
def test_a_million_records_of_workers_that_nobody_wrote() -> None:
    """Their names are like ours, and lie before all of ours: so many are looked at, and our own is still found."""
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        folder = folder_of("default") + "workers/"
        page = fleet.bucket._page

        def strangers(prefix: str, after: str | None, whole_seconds: bool) -> list[Entry]:
            rows = page(prefix, after, whole_seconds)
            if prefix == folder:
                name = f"{folder}worker=-{{:07d}}.json".format
                first = 0 if after is None else bisect.bisect_right(range(MILLION), after, key=name)
                rows += [Entry(name(n), Version("x"), 7, OLD) for n in range(first, min(first + PAGE, MILLION))]
            return sorted(rows, key=lambda entry: entry.key)[:PAGE]

        fleet.bucket._page = strangers  # type: ignore[method-assign]
        done = fleet.done.copy()
        fleet.run(AFTER / 4)
        assert fleet.leader is not None
        assert (fleet.done - done)["handled"] > 0
        assert any("records lie among the workers" in text for text in fleet.said), fleet.said
