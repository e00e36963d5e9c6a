"""A million objects of others in every folder of a working fleet: it works on, in bounded memory, and says so once.

The crowd is never stored: listings show it, as they would. Half of it sorts before every name of ours, half behind.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

import pytest

from tenure.coordinator.layout import folder_of
from tenure.store import Entry, Version

from .test_bad_input import BEFORE
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
OTHER = Version("other")
AMONG = 12.0
"""Simulated seconds among them."""
MOST_BLOCKS = 200_000
"""Pieces of memory: of each row that is held there are two or more."""

Page = Callable[[str, str | None, bool], list[Entry]]


class Crowd:
    """Objects of others in some folders: for each stem so many, numbered. Their listing is computed, page by page."""

    def __init__(self, stems: list[str], each: int, end: str = "") -> None:
        self._stems = sorted(stems)
        self._each = each
        self._end = end
        self.most_blocks = 0
        """Pieces of memory that the interpreter held at most, when it was asked for a page."""

    def beside(self, page: Page) -> Page:
        """`page`, as it would be with all of them there."""

        def both(prefix: str, after: str | None, whole_seconds: bool) -> list[Entry]:
            self.most_blocks = max(self.most_blocks, sys.getallocatedblocks())
            rows = page(prefix, after, whole_seconds) + self._page(prefix, after)
            return sorted(rows, key=attrgetter("key"))[:PAGE]

        return both

    def _page(self, prefix: str, after: str | None) -> list[Entry]:
        found: list[Entry] = []
        for stem in self._stems:  # no stem begins another, so all of one come before all of the next
            if not stem.startswith(prefix):
                continue
            first = 0
            if after is not None and after.startswith(stem):
                first = int(after[len(stem) :].removesuffix(self._end)) + 1
            elif after is not None and after > stem:
                continue
            last = min(first + PAGE - len(found), self._each)
            found += [Entry(f"{stem}{number:07d}{self._end}", OTHER, 7, OLD) for number in range(first, last)]
            if len(found) >= PAGE:
                break
        return found


class Lived(NamedTuple):
    """What became of a fleet whose leader crashed in the middle."""

    epoch: int
    halts: int
    requests: int
    blocks: int
    done: Counter[str]
    said: Counter[str]


def lived(crowd: Crowd) -> Lived:
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        fleet.said.clear()
        requests, done, blocks = fleet.network.requests.total(), fleet.done.copy(), sys.getallocatedblocks()
        fleet.bucket._page = crowd.beside(fleet.bucket._page)  # type: ignore[assignment, method-assign]
        fleet.run(AMONG / 4)
        fleet.lead().host.crash()
        fleet.run(3 * AMONG / 4)
        return Lived(
            epoch=fleet.lead().named("leader:changed")[-1].epoch,
            halts=fleet.halts.total(),
            requests=fleet.network.requests.total() - requests,
            blocks=crowd.most_blocks - blocks,
            done=fleet.done - done,
            said=fleet.said.copy(),
        )


@pytest.mark.slow
@pytest.mark.req("EL-20")
def test_a_fleet_works_on_among_a_million_objects_of_others_in_every_folder() -> None:
    alone = lived(Crowd([], 0))
    among = lived(Crowd([folder + stem for folder in FOLDERS for stem in STEMS], MILLION // 2))

    assert among.epoch == alone.epoch == 2, "another was elected"
    assert not among.halts
    assert among.blocks < alone.blocks + MOST_BLOCKS
    assert among.requests < 2 * alone.requests, "a storm of requests"
    for what, usual in alone.done.items():
        assert among.done[what] >= usual * 0.5, f"{what}: {among.done}, and alone {alone.done}"
    told = [text for text in among.said if "-other-" in text]
    assert any("workers/" in text for text in told), among.said
    assert any("inbox/" in text for text in told), among.said
    for text, count in among.said.items():
        assert "nobody foresaw" not in text, text
        # Once by each who led, of each ledger: their inboxes have the same name in all.
        most = 2 * len(LEDGERS) if "is not folded" in text else 2
        assert count <= most, f"said {count} times: {text}"
    assert len(among.said) < 100, "a million lines are not a report"


@pytest.mark.slow
def test_a_million_records_of_workers_that_nobody_wrote() -> None:
    """Their names are like ours, and lie before all of ours: so many are looked at, and our own is still found."""
    crowd = Crowd([folder_of("default") + "workers/worker=-"], MILLION, ".json")
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        done, blocks = fleet.done.copy(), sys.getallocatedblocks()
        fleet.bucket._page = crowd.beside(fleet.bucket._page)  # type: ignore[assignment, method-assign]
        fleet.run(AMONG / 4)
        assert fleet.leader is not None
        assert (fleet.done - done)["handled"] > 0
        assert crowd.most_blocks - blocks < MOST_BLOCKS
        assert any("records lie among the workers" in text for text in fleet.said), fleet.said
