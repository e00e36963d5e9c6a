"""Many writers count up one number over a store with every fault: no increment is lost, none counts twice.

The checker is itself checked: with any one rule of `settle` broken, it finds a violation.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from tenure.clock import Reading
from tenure.errors import StoreError
from tenure.store import Applied, Attempt, Faults, Faulty, Rejected, Remembers, Settled, Unknown
from tenure.store.memory import MemoryStore

rules: Any = importlib.import_module("tenure.store.settle")  # the package has a function of the same name

SEEDS = range(220)
WRITERS, INCREMENTS = 3, 4
FAULTS = Faults(
    lost_request=0.1,
    lost_reply=0.12,
    late_landing=0.2,
    repeated=0.12,
    failed_read=0.1,
    late_seconds=0.3,
    max_latency=0.03,
)


class Turns:
    """A clock on which ten milliseconds are one turn of the event loop."""

    def read(self) -> Reading:
        return Reading(0, 0, 0, 0)

    async def sleep(self, seconds: float) -> None:
        for _ in range(1 + round(seconds * 100)):
            await asyncio.sleep(0)


class Record(msgspec.Struct):
    """What is stored: a number, and the id of every write that made it."""

    value: int
    trail: list[str]


class Told(msgspec.Struct):
    """One increment that was asked for: the ids under which it was sent, and what the writer was told."""

    ids: list[str]
    settled: Settled


async def increment(store: Faulty, draw_id: Callable[[], str]) -> Told | None:
    """None: the number could not be read, so nothing was sent."""
    try:
        found = await store.get("n")
    except StoreError:
        return None
    record = msgspec.json.decode(found.body, type=Record)
    ids: list[str] = []

    def compose(write_id: str) -> bytes:
        ids.append(write_id)
        return msgspec.json.encode(Record(record.value + 1, [*record.trail, write_id]))

    settled = await rules.commit(
        store,
        Attempt("n", found.version),
        compose,
        write_ids=lambda body: json.loads(body)["trail"],
        remembers=Remembers.EVERY_WRITE,
        draw_id=draw_id,
        clock=Turns(),
    )
    return Told(ids, settled)


async def count_up(seed: int) -> tuple[Record, list[Told], Counter[str]]:
    """Let the writers work, each until it was told `Applied` often enough, and give what is stored at the end."""
    inner = MemoryStore()
    await inner.put("n", msgspec.json.encode(Record(0, [])))
    store = Faulty(inner, FAULTS, random=Random(seed), clock=Turns())
    numbers = itertools.count(1)
    told: list[Told] = []

    async def writer(name: int) -> None:
        applied = 0
        for _ in range(INCREMENTS * 10):
            answer = await increment(store, lambda: f"{name}-{next(numbers)}")
            if answer is not None:
                told.append(answer)
                applied += isinstance(answer.settled.outcome, Applied)
            if applied == INCREMENTS:
                break

    await asyncio.gather(*(writer(name) for name in range(WRITERS)))
    await store.drain()
    return msgspec.json.decode((await inner.get("n")).body, type=Record), told, store.hit


def violations(record: Record, told: list[Told]) -> list[str]:
    found = []
    if record.value != len(record.trail):
        found.append(f"the value is {record.value}, and {len(record.trail)} writes made it")
    found += [f"{write_id} counts twice" for write_id, count in Counter(record.trail).items() if count > 1]
    expected = 0
    for answer in told:
        landed = [write_id for write_id in record.trail if write_id in answer.ids]
        expected += len(landed) if isinstance(answer.settled.outcome, Unknown) else 0
        match answer.settled.outcome:
            case Applied():
                expected += 1
                if landed != [answer.settled.write_id]:
                    found.append(f"told that {answer.settled.write_id} was applied, and the record has {landed}")
            case Rejected():
                if landed:
                    found.append(f"told that it was rejected, and the record has {landed}")
            case Unknown():
                if len(landed) > 1:
                    found.append(f"one increment landed as {landed}")
    if record.value != expected:
        found.append(f"the value is {record.value}, and {expected} increments were applied")
    return found


def first_violation(seeds: range = SEEDS) -> str | None:
    with asyncio.Runner() as runner:
        for seed in seeds:
            record, told, _ = runner.run(count_up(seed))
            if found := violations(record, told):
                return f"seed {seed}: {found[0]}"
    return None


def test_every_increment_counts_as_its_writer_was_told() -> None:
    hit: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    resent = 0
    with asyncio.Runner() as runner:
        for seed in SEEDS:
            record, told, faults = runner.run(count_up(seed))
            assert violations(record, told) == [], f"seed {seed}"
            hit += faults
            outcomes.update(type(answer.settled.outcome).__name__ for answer in told)
            resent += sum(len(answer.ids) > 1 for answer in told)
    # The test means nothing if what it is about did not happen.
    assert set(hit) == {"lost_request", "lost_reply", "late_landing", "repeated", "failed_read"}
    assert min(hit.values()) > 100
    assert outcomes["Applied"] > 0.9 * len(SEEDS) * WRITERS * INCREMENTS
    assert outcomes["Rejected"] > 100
    assert resent > 100


def test_the_same_seed_gives_the_same_history() -> None:
    with asyncio.Runner() as runner:
        (one, told, _), (other, told_too, _) = runner.run(count_up(5)), runner.run(count_up(5))
    assert one == other
    assert [answer.ids for answer in told] == [answer.ids for answer in told_too]


def unknown_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    send = rules._send

    async def hopeful(store: Any, attempt: Attempt, *rest: Any) -> Any:
        outcome = await send(store, attempt, *rest)
        return Applied(attempt.expected) if isinstance(outcome, Unknown) else outcome

    monkeypatch.setattr(rules, "_send", hopeful)


def unknown_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not there when it is read back: taken as final."""
    read_back = rules._read_back

    async def hasty(*arguments: Any) -> tuple[Settled, bool]:
        verdict, pending = await read_back(*arguments)
        if isinstance(verdict.outcome, Unknown):
            return Settled(verdict.attempt, Rejected(), stored=verdict.stored), False
        return verdict, pending

    monkeypatch.setattr(rules, "_read_back", hasty)


def rejected_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = rules.settle

    async def trusting(store: Any, attempt: Attempt, **rest: Any) -> Settled:
        if isinstance(attempt.answers[-1], Rejected):
            return Settled(attempt, Rejected())
        return await settle(store, attempt, **rest)

    monkeypatch.setattr(rules, "settle", trusting)


def earlier_ids_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    read_back = rules._read_back

    async def forgetful(store: Any, attempt: Attempt, *rest: Any) -> Any:
        return await read_back(store, Attempt(attempt.key, attempt.expected, attempt.ids[-1:]), *rest)

    monkeypatch.setattr(rules, "_read_back", forgetful)


def resent_under_a_fresh_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pending write sent again on top of whatever is there now, so that both copies can land."""
    send = rules._send

    async def careless(
        store: Any, attempt: Attempt, compose: Callable[[str], bytes], draw_id: Callable[[], str]
    ) -> Any:
        if not attempt.ids:
            return await send(store, attempt, compose, draw_id)
        try:
            found = await store.get(attempt.key)
        except StoreError as error:
            return Unknown(error)
        attempt.expected = found.version
        record = msgspec.json.decode(found.body, type=Record)

        def compose_now(write_id: str) -> bytes:
            compose(write_id)
            return msgspec.json.encode(Record(record.value + 1, [*record.trail, write_id]))

        return await send(store, attempt, compose_now, draw_id)

    monkeypatch.setattr(rules, "_send", careless)


@pytest.mark.parametrize(
    "broken",
    [
        unknown_is_applied,
        unknown_is_rejected,
        rejected_is_not_confirmed,
        earlier_ids_are_forgotten,
        resent_under_a_fresh_condition,
    ],
)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert first_violation(range(3)) is None
    broken(monkeypatch)
    assert first_violation() is not None
