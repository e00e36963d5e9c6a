"""Random histories of calls, against each store and a model of it that is a dictionary.

Where a store gives no decisive answer both states are allowed, and the model learns by a read which of them it is.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tenure.errors import NotFound, StoreUnavailable
from tenure.store import (
    Applied,
    Faults,
    Faulty,
    NotModified,
    Outcome,
    Prefixed,
    Rejected,
    Store,
    Stored,
    Unknown,
    Version,
    open_store,
)

T = TypeVar("T")

ROUNDS = 10
KEYS = ("a", "a/b", "a/b/c", "ab", "A", "b/x")
FAULTS = Faults(lost_request=0.08, lost_reply=0.08, late_landing=0.08, repeated=0.08, failed_read=0.08, late_seconds=0)

keys = st.sampled_from(KEYS)
Known = tuple[bytes, Version]


class StoreMachine(RuleBasedStateMachine):
    """Subclasses say which store; each history gets a folder of its own on it."""

    run: Callable[[Coroutine[Any, Any, Any]], Any]
    shared: Store
    faults: Faults | None
    seen: Counter[str]
    numbers = itertools.count(1)

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.truth: Store = Prefixed(self.shared, f"history-{next(self.numbers)}/")
        self.faulty = Faulty(self.truth, self.faults, random=Random(seed)) if self.faults else None
        self.store: Store = self.faulty or self.truth
        self.model: dict[str, Known] = {}
        self.worthless: dict[str, list[Version]] = {key: [] for key in KEYS}
        self.bodies = (b"body %d" % number for number in itertools.count())

    @rule(key=keys)
    def put(self, key: str) -> None:
        body = next(self.bodies)
        try:
            version = self.run(self.store.put(key, body))
        except StoreUnavailable:
            self.look_again("put", key, self.model.get(key), body)
        else:
            self.note("put", "ok")
            self.learn(key, (body, version))

    @rule(key=keys)
    def create(self, key: str) -> None:
        body = next(self.bodies)
        outcome = self.run(self.store.create(key, body))
        self.judge("create", key, body, outcome, holds=key not in self.model)

    @rule(key=keys, pick=st.integers(0, 7))
    def replace(self, key: str, pick: int) -> None:
        """With the right version more often than not, if there is one."""
        body, known = next(self.bodies), self.model.get(key)
        stale = self.stale_versions(key)
        if known is not None and (pick < 5 or not stale):
            self.judge("replace", key, body, self.run(self.store.replace(key, body, known[1])), holds=True)
        elif stale:
            expected = stale[pick % len(stale)]
            self.judge("replace", key, body, self.run(self.store.replace(key, body, expected)), holds=False)

    @rule(key=keys)
    def get(self, key: str) -> None:
        self.read_as_expected(key, None)

    @rule(key=keys, pick=st.integers(0, 4))
    def get_unless(self, key: str, pick: int) -> None:
        known, stale = self.model.get(key), self.stale_versions(key)
        if known is not None and (pick < 3 or not stale):
            self.read_as_expected(key, known[1])
        elif stale:
            self.read_as_expected(key, stale[pick % len(stale)])

    @rule(chosen=st.sets(keys, min_size=1, max_size=3))
    def delete(self, chosen: set[str]) -> None:
        try:
            self.run(self.store.delete(*chosen))
        except StoreUnavailable:
            for key in chosen:
                self.look_again("delete", key, self.model.get(key), None)
        else:
            self.note("delete", "ok")
            for key in chosen:
                self.learn(key, None)

    @rule(prefix=st.sampled_from(("", "a/", "a/b/", "A/", "b/", "c/")), after=st.none() | keys)
    def list(self, prefix: str, after: str | None) -> None:
        async def listed() -> list[tuple[str, Version, int]]:
            return [(row.key, row.version, row.size) async for row in self.store.list(prefix, after=after)]

        try:
            rows = self.run(listed())
        except StoreUnavailable:
            self.note("list", "failed")
            return
        self.note("list", "ok")
        wanted = [key for key in sorted(self.model) if key.startswith(prefix) and (after is None or key > after)]
        assert [key for key, _, _ in rows] == wanted
        for key, version, size in rows:
            body, known = self.model[key]
            assert version.matches(known)
            assert size == len(body)

    def judge(self, verb: str, key: str, body: bytes, outcome: Outcome, *, holds: bool) -> None:
        before = self.model.get(key)
        self.note(verb, type(outcome).__name__)
        if isinstance(outcome, Applied):
            assert holds, f"{verb} of {key} was applied, although its condition did not hold"
            self.learn(key, (body, outcome.version))
        elif isinstance(outcome, Unknown):
            self.look_again(verb, key, before, body if holds else b"must not be stored")
        elif holds:
            assert self.faults and self.faults.repeated, f"{verb} of {key} was rejected, although its condition held"
            now = self.look(key)
            assert now is not None, "rejected by nothing"
            assert now[0] == body, "rejected, and not by its own first copy"
            self.learn(key, now)

    def look_again(self, verb: str, key: str, before: Known | None, after: bytes | None) -> None:
        """No decisive answer: it happened, or it did not, and nothing else did."""
        self.note(verb, "undecided")
        now = self.look(key)
        if now is None:
            assert before is None or after is None
            self.note(verb, "had happened" if before is not None else "had not happened")
        elif before is not None and now[1].matches(before[1]):
            assert now[0] == before[0]
            self.note(verb, "had not happened")
        else:
            assert now[0] == after
            self.note(verb, "had happened")
        self.learn(key, now)

    def look(self, key: str) -> Known | None:
        if self.faulty:
            self.run(self.faulty.drain())
        try:
            found = self.run(self.truth.get(key))
        except NotFound:
            return None
        assert isinstance(found, Stored)
        return found.body, found.version

    def read_as_expected(self, key: str, unless: Version | None) -> None:
        known = self.model.get(key)
        try:
            found = self.run(self.store.get(key, unless=unless))
        except StoreUnavailable:
            self.note("get", "failed")
        except NotFound:
            self.note("get", "missing")
            assert known is None
        else:
            self.note("get", type(found).__name__)
            assert known is not None
            assert found.version.matches(known[1])
            same = unless is not None and unless.matches(known[1])
            assert isinstance(found, NotModified if same else Stored)
            assert isinstance(found, NotModified) or found.body == known[0]

    def stale_versions(self, key: str) -> list[Version]:
        """Versions that this key had, or that another one has."""
        return self.worthless[key] + [version for other, (_, version) in self.model.items() if other != key]

    def learn(self, key: str, known: Known | None) -> None:
        before = self.model.get(key)
        if before is not None and (known is None or not known[1].matches(before[1])):
            self.worthless[key].append(before[1])
        if known is None:
            self.model.pop(key, None)
        else:
            self.model[key] = known

    def note(self, verb: str, what: str) -> None:
        self.seen[f"{verb}: {what}"] += 1

    def teardown(self) -> None:
        if getattr(self, "faulty", None):
            self.run(self.faulty.drain())


def explore(url: str, *, histories: int, steps: int, faults: Faults | None = None, dice: int = 0) -> Counter[str]:
    """Run random histories on the store at `url`; what was seen, by verb and outcome."""
    with asyncio.Runner() as runner:

        async def opened() -> Store:
            return await open_store(url, timeout=20)

        store = runner.run(opened())
        machine = type(
            "Machine",
            (StoreMachine,),
            {"run": staticmethod(runner.run), "shared": store, "faults": faults, "seen": Counter()},
        )
        run_state_machine_as_test(
            seed(dice)(machine),
            settings=settings(
                max_examples=histories,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        runner.run(store.aclose())
    return machine.seen


@pytest.mark.parametrize(
    ("kind", "histories"),
    [
        ("memory", 50),
        ("directory", 20),
        pytest.param("ministack", 20, marks=pytest.mark.slow),
        pytest.param("gcs", 20, marks=pytest.mark.slow),
        pytest.param("ceph", 15, marks=pytest.mark.servers),
        pytest.param("azurite", 20, marks=pytest.mark.servers),
        pytest.param("memory", 100, marks=pytest.mark.trials),
        *(
            pytest.param(kind, 40, marks=[pytest.mark.servers, pytest.mark.trials])
            for kind in ("directory", "ministack", "gcs", "ceph", "azurite")
        ),
    ],
)
def test_a_store_agrees_with_a_dictionary(kind: str, histories: int, url_of: Callable[[str], str]) -> None:
    seen = explore(url_of(kind), histories=histories, steps=40)
    print(dict(sorted(seen.items())))
    for wanted in (
        *("put: ok", "create: Applied", "create: Rejected", "replace: Applied", "replace: Rejected"),
        *("get: Stored", "get: NotModified", "get: missing", "list: ok", "delete: ok"),
    ):
        assert seen[wanted], f"no history had {wanted!r}: {dict(seen)}"
    assert not seen["create: Unknown"] + seen["replace: Unknown"], "one writer at a time needs no third outcome"


@pytest.mark.slow
def test_a_faulty_store_agrees_with_one_of_two_dictionaries(url_of: Callable[[str], str]) -> None:
    wanted = [
        *(f"{verb}: {outcome.__name__}" for verb in ("create", "replace") for outcome in (Applied, Rejected, Unknown)),
        *(f"{verb}: had {what}happened" for verb in ("create", "replace", "put", "delete") for what in ("", "not ")),
        *("get: failed", "list: failed", "get: Stored", "get: NotModified"),
    ]
    seen: Counter[str] = Counter()
    # What a seed gives depends on what else is imported (Hypothesis takes constants from there), so one may miss some.
    for dice in range(ROUNDS):
        seen += explore(url_of("memory"), histories=50, steps=50, faults=FAULTS, dice=dice)
        if dice and all(seen[each] for each in wanted):
            break
    print(dict(sorted(seen.items())))
    for each in wanted:
        assert seen[each], f"no history had {each!r}: {dict(seen)}"
