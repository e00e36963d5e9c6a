"""No acknowledged write of a record is lost, none counts twice, and nothing that was written again is deleted.

The judge is itself checked: with any one rule broken, it finds a violation.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tenure.database import records, writing
from tenure.database.resource import Resource
from tenure.database.writing import Found, Writer, Written
from tests.simulated.resources import MODES, Mode, Scenario

resource_module: Any = importlib.import_module("tenure.database.resource")

SEEDS = range(30)
BROKEN_SEEDS = range(100)
BUCKET, DRAWN, DIRECTORY = MODES


def scenario(seed: int, mode: Mode) -> Scenario:
    made = Scenario(seed, mode)
    made.run()
    return made


@pytest.mark.req("DB-2")
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_call_had_the_effect_that_it_was_told(mode: Mode) -> None:
    told: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    removed = 0
    for seed in SEEDS:
        done = scenario(seed, mode)
        assert done.violations == []
        told += done.told
        hits += Counter(done.network.hits)
        removed += done.removed
    # The test means nothing if what it is about did not happen.
    for verb in ("insert", "update", "rewrite", "delete", "delete-version"):
        assert told[f"{verb} done"] > 20, told
    assert sum(count for what, count in told.items() if what.endswith(" no")) > 50
    assert sum(count for what, count in told.items() if what.endswith(" unknown")) > 5
    for fault in ("lost_request", "lost_reply", "late_landing_applied", "slow_request", "server_error_applied"):
        assert hits[fault] > 10, hits
    if mode is BUCKET:
        assert removed == 0
        assert hits["repeated"] > 10
    else:
        assert removed > 20


def blind_put(monkeypatch: pytest.MonkeyPatch) -> None:
    async def puts(self: Any, key: str, base: Found, draft: Any) -> Written:
        drafts = writing._Drafts(draft)
        version = await self._store.put(key, drafts.compose(self._draw_id()))
        return Written(drafts.last, version)

    monkeypatch.setattr(Writer, "replace", puts)


def deletes_without_a_tombstone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(self: Any, id: str, if_version: int | None = None) -> None:
        found = await self._found(id)
        if if_version is not None and found.envelope.version != if_version:
            raise self._conflict(id, if_version, found.envelope.version)
        await self._store.delete(resource_module.key_of(self.name, id))

    monkeypatch.setattr(Resource, "delete", delete)


def removes_tombstones_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def remove(self: Any, id: str, written: Written) -> None:
        await self._store.delete(resource_module.key_of(self.name, id))

    monkeypatch.setattr(Resource, "_remove", remove)


def versions_begin_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_module, "_random_version", lambda write_id: 1)


def creates_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resource, "_is_removed", lambda self, id: False)


def rejections_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Writer.__init__

    def trusting(self: Any, *arguments: Any, **rest: Any) -> None:
        init(self, *arguments, **rest)
        self._believes_rejections = True

    monkeypatch.setattr(Writer, "__init__", trusting)


def only_the_last_write_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is not found is taken as not applied."""
    monkeypatch.setattr(records, "RECENT_WRITES", 1)
    monkeypatch.setattr(records.Envelope, "remembers_all_since", lambda self, version: True)


@pytest.mark.parametrize(
    ("broken", "mode"),
    [
        (blind_put, BUCKET),
        (deletes_without_a_tombstone, BUCKET),
        (deletes_without_a_tombstone, DIRECTORY),
        (removes_tombstones_blindly, BUCKET),
        (removes_tombstones_blindly, DIRECTORY),
        (versions_begin_at_one, DIRECTORY),
        (creates_are_sent_again, DIRECTORY),
        (creates_are_sent_again, DRAWN),
        (rejections_are_believed, BUCKET),
        (only_the_last_write_is_remembered, BUCKET),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", "")),
)
def test_a_broken_rule_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], mode: Mode
) -> None:
    broken(monkeypatch)
    assert any(scenario(seed, mode).violations for seed in BROKEN_SEEDS)


def test_the_same_seed_gives_the_same_history() -> None:
    one, other = scenario(3, BUCKET), scenario(3, BUCKET)
    assert one.calls == other.calls
    assert one.bucket.versions == other.bucket.versions
