"""Plugin storage over a network with every fault, on hosts whose wall clocks are hours apart: DB-3.

The judge knows what the bucket held at every instant, and what each caller was told. It is itself tried on variants of
the storage that break one rule each.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

import tenure.database.storage as rules
from tenure.database.storage import PluginStorage, StorageEntry
from tenure.database.time import StoreTime
from tenure.errors import Conflict, StoreError, WriteUnknown
from tenure.store import Applied, Attempt, Settled, Unknown
from tenure.testing import Host, Network, SimulatedBucket, SimulatedStore, World
from tenure.testing.bucket import Write
from tenure.testing.machine import EPOCH_SECONDS

FOLDER = "plugin=p/name=n/storage/"
HOSTS = ("a", "b", "c")
WALL_OFFSETS = {"a": -3 * 3600.0, "b": 0.0, "c": 5 * 3600.0}
KEYS = ("k", "l")
VERBS = {"get": 4, "list": 1, "set": 2, "set ttl": 2, "create": 3, "create ttl": 2, "update": 4, "delete": 3}
STEPS = 20
BUSY, END = 150.0, 900.0
TTL = 60.0
TOLERANCE = 5.0
"""How far two hosts' estimates of the store's clock may lie apart here, where a reply may take eight seconds."""
SEEDS = range(300)

FAULTS: dict[str, Any] = {
    "lost_request": 0.04,
    "lost_reply": 0.08,
    "late_landing": 0.10,
    "repeated": 0.05,
    "slow_request": 0.02,
    "slow_reply": 0.02,
    "server_error": 0.04,
}


class Call(msgspec.Struct):
    """One call, what its caller was told, and when (true time)."""

    host: str
    verb: str
    key: str
    token: str
    began: float
    expected: int | None = None
    ended: float | None = None
    result: Any = None
    error: str | None = None
    """`unknown`, `conflict` or `failed` (nothing was sent)."""


class Run:
    """One simulation: what the bucket did, and what everybody was told."""

    def __init__(self, seed: int, *, crashes: int = 2, sweeps: int = 0) -> None:
        self.world = World(seed)
        self.bucket = SimulatedBucket(self.world)
        self.network = Network(self.world)
        self.network.whole_second_times = seed % 2 == 0
        self.network.change(**FAULTS)
        self.bucket.watchers.append(self._on_write)
        self.states: dict[str, list[tuple[float, dict[str, Any] | None]]] = {key: [] for key in KEYS}
        self.calls: list[Call] = []
        self.swept = 0
        self._sweeps = sweeps
        self._numbers = itertools.count(1)
        self._random = Random(f"{seed}/calls")
        for name in HOSTS:
            rate = self._random.uniform(0.999, 1.001)
            self._launch(self.world.host(name, wall_offset=WALL_OFFSETS[name], rate=rate))
        for _ in range(crashes):
            self.world.call_at(self._random.uniform(0, BUSY), self._crash, self._random.choice(HOSTS))
        for _ in range(4):
            jump = self._random.choice([-7200.0, 7200.0])
            self.world.call_at(self._random.uniform(0, BUSY), self._set_clock, self._random.choice(HOSTS), jump)

    def go(self) -> Run:
        with self.world:
            self.world.run_until(END + self._sweeps * 6000.0)
        assert self.world.errors == []
        return self

    def _set_clock(self, name: str, jump: float) -> None:
        self.world.hosts[name].step_wall(jump)

    def _crash(self, name: str) -> None:
        host = self.world.hosts[name]
        if host.alive:
            host.crash()
            self._launch(host.respawn())

    def _launch(self, host: Host) -> None:
        ids = itertools.count(1)
        number = next(self._numbers)
        draw_id = lambda: f"{host.name}-{number}-{next(ids)}"  # noqa: E731
        store = SimulatedStore(self.bucket, host, self.network)
        time = StoreTime(store, clock=host.clock, draw_id=draw_id)
        storage = PluginStorage(store, "p", "n", clock=host.clock, draw_id=draw_id, time=time)
        host.start(self._live(host, storage, Random(f"{self.world.seed}/{host.name}/{number}")))

    async def _live(self, host: Host, storage: PluginStorage, random: Random) -> None:
        for _ in range(STEPS):
            # Now in a hurry and in each other's way, now so slowly that values expire.
            await host.clock.sleep(random.choice([0.0, 0.02, 0.5, 5.0, 30.0]) * random.random())
            await self._step(host, storage, random.choice(KEYS), random.choices(*zip(*VERBS.items(), strict=True))[0])
        for key in KEYS:
            await self._told(host, "get", key, partial(storage.get_entry, key))
        if self._sweeps > 0:
            self._sweeps -= 1
            await host.clock.sleep(4000.0 * (1 + random.random() / 10))
            try:
                self.swept += (await storage.sweep(older_than=3600.0)).removed
            except StoreError:
                pass
            await self._live(host, storage, random)

    async def _step(self, host: Host, storage: PluginStorage, key: str, verb: str) -> None:
        version: Any = None
        if verb == "update":
            entry = await self._told(host, "get", key, partial(storage.get_entry, key))
            if not isinstance(entry, StorageEntry):
                return
            version = entry.version
        token = f"{host.name}{next(self._numbers)}"
        ttl = TTL if verb.endswith("ttl") else None
        act: dict[str, Callable[[], Any]] = {
            "get": lambda: storage.get_entry(key),
            "list": lambda: storage.list(limit=1000),
            "set": lambda: storage.set(key, token, ttl=ttl),
            "create": lambda: storage.set_if_not_exists(key, token, ttl=ttl),
            "update": lambda: storage.set_if_version(key, token, version),
            "delete": lambda: storage.delete(key),
        }
        name = verb.removesuffix(" ttl")
        await self._told(host, name, key, act[name], token, version)

    async def _told(
        self, host: Host, verb: str, key: str, act: Callable[[], Any], token: str = "", expected: int | None = None
    ) -> Any:
        call = Call(host.name, verb, key, token, self.world.now, expected)
        self.calls.append(call)
        try:
            call.result = await act()
        except WriteUnknown:
            call.error = "unknown"
        except Conflict:
            call.error = "conflict"
        except StoreError:
            call.error = "failed"
        call.ended = self.world.now
        return call.result

    def _on_write(self, write: Write) -> None:
        key = write.key.removeprefix(FOLDER)
        if key in self.states:
            self.states[key].append((write.at, None if write.new is None else json.loads(write.new)))


def violations(run: Run) -> list[str]:
    return [found for key in KEYS for found in _breaks(run, key) + _violations_of(run, key)]


def _breaks(run: Run, key: str) -> list[str]:
    """Each write stands on the one before it, and versions never repeat."""
    found, last = [], None
    for at, record in run.states[key]:
        if record is not None:
            seen = record["history"][-1]
            if seen != ("-" if last is None else last["writeId"]):
                found.append(f"at {at:.3f} {record['writeId']} replaced what it had not seen")
            if last is not None and record["version"] != last["version"] + 1:
                found.append(f"at {at:.3f} version {record['version']} came after {last['version']}")
        last = record
    versions = [record["version"] for _, record in run.states[key] if record is not None]
    if len(versions) != len(set(versions)):
        found.append(f"a version of {key!r} was given twice")
    return found


def _violations_of(run: Run, key: str) -> list[str]:
    found: list[str] = []
    states = run.states[key]
    landed: dict[str, list[int]] = {}
    for number, (_, record) in enumerate(states):
        if record is not None and not record["deleted"]:
            landed.setdefault(record["value"], []).append(number)
    calls = [call for call in run.calls if call.key == key or call.verb == "list"]
    for call in calls:
        where = f"{call.verb} by {call.host} at {call.began:.3f} of {call.token or call.key!r}"
        if call.verb in ("set", "create", "update"):
            at = landed.get(call.token, [])
            if len(at) > 1:
                found.append(f"{where} happened {len(at)} times")
            success = call.ended is not None and call.error is None and call.result is not None
            if success and len(at) != 1:
                found.append(f"{where} was acknowledged, and happened {len(at)} times")
            if success and at and not call.began <= states[at[0]][0] <= call.ended:
                found.append(f"{where} was acknowledged, and happened outside the call")
            if success and at and states[at[0]][1]["version"] != call.result:
                found.append(f"{where} was told another version")
            refused = call.error in ("conflict", "failed") or (
                call.ended is not None and call.error is None and call.result is None
            )
            if refused and at:
                found.append(f"{where} was told that it did not happen")
            for number in at:
                found += _misplaced(call, states, number, where)
        elif call.ended is not None and call.error is None and call.verb in ("get", "list"):
            found += _misread(call, key, states, where)
    return found


def _version_before(states: list[Any], number: int) -> tuple[int | None, float | None, bool]:
    """Of what a write replaced: its version, its end in true time, and whether it was there at all."""
    record = states[number - 1][1] if number else None
    if record is None or record["deleted"]:
        return None, None, False
    ends = record["expiresAtMs"]
    return record["version"], None if ends is None else ends / 1000 - EPOCH_SECONDS, True


def _misplaced(call: Call, states: list[Any], number: int, where: str) -> list[str]:
    """Conditions held when the write happened."""
    at = states[number][0]
    version, ends, there = _version_before(states, number)
    if call.verb == "create" and there and (ends is None or at < ends - TOLERANCE):
        return [f"{where} replaced a value that was there"]
    if call.verb == "update" and version != call.expected:
        return [f"{where} replaced version {version}, and expected {call.expected}: an update was lost"]
    own = states[number][1]["expiresAtMs"]
    # Counted from sending: what lands late has part of its time behind it, and none has more than it was given.
    if own is not None and own / 1000 - EPOCH_SECONDS > at + TTL + TOLERANCE:
        return [f"{where} would live for {own / 1000 - EPOCH_SECONDS - at:.1f} s, and {TTL} were asked for"]
    if own is not None and own / 1000 - EPOCH_SECONDS < call.began + TTL - TOLERANCE:
        return [f"{where} would end before {TTL} s have passed"]
    return []


def _misread(call: Call, key: str, states: list[Any], where: str) -> list[str]:
    """What was read is a state that the key was in during the call, and alive then."""
    assert call.ended is not None
    entry = call.result
    if call.verb == "list":
        entry = next((entry for entry in call.result.entries if entry.key == key), None)
    before = [record for at, record in states if at < call.began][-1:] or [None]
    during = before + [record for at, record in states if call.began <= at <= call.ended]
    if entry is not None:
        same = [record for record in during if record and not record["deleted"] and record["version"] == entry.version]
        if not same or same[0]["value"] != entry.value:
            return [f"{where} saw {entry.value!r}, which was not there"]
        ends = same[0]["expiresAtMs"]
        if ends is not None and call.began > ends / 1000 - EPOCH_SECONDS + TOLERANCE:
            return [f"{where} saw {entry.value!r}, which had expired"]
        return []
    for record in during:
        ends = None if record is None else record["expiresAtMs"]
        if record is None or record["deleted"]:
            return []
        if ends is not None and call.ended > ends / 1000 - EPOCH_SECONDS - TOLERANCE:
            return []
    return [f"{where} saw nothing, and {during[-1]['value']!r} was there"]


def removals(run: Run) -> list[str]:
    return [f"{key!r} was removed" for key in KEYS for _, record in run.states[key] if record is None]


def first_violation(seeds: range) -> str | None:
    for seed in seeds:
        run = Run(seed).go()
        if found := violations(run):
            return f"seed {seed}: {found[0]}"
    return None


@pytest.mark.req("DB-3")
def test_every_caller_was_told_what_happened() -> None:
    hits: Counter[str] = Counter()
    told: Counter[str] = Counter()
    for seed in SEEDS:
        run = Run(seed).go()
        assert violations(run) + removals(run) == [], f"seed {seed}"
        hits += run.network.hits
        for call in run.calls:
            told[f"{call.verb} {call.error or ('cut short' if call.ended is None else 'done')}"] += 1
            told["created" if call.verb == "create" and call.result else ""] += 1
            told["deleted" if call.verb == "delete" and call.result else ""] += 1
    # The test means nothing if what it is about did not happen.
    for fault in ("lost_request", "lost_reply", "late_landing_applied", "late_landing_rejected", "repeated"):
        assert hits[fault] > 20, hits
    for outcome in ("update conflict", "set unknown", "created", "deleted", "get done", "list done", "update done"):
        assert told[outcome] > 3, told
    assert sum(count for name, count in told.items() if name.endswith("cut short")) > 3, told


@pytest.mark.req("DB-3")
def test_a_sweep_takes_only_what_is_gone_and_nothing_comes_back() -> None:
    swept = written_again = 0
    for seed in range(60):
        run = Run(seed, sweeps=4).go()
        assert violations(run) == [], f"seed {seed}"
        assert len(removals(run)) >= run.swept
        swept += run.swept
        written_again += sum(before[1] is None for key in KEYS for before, _ in itertools.pairwise(run.states[key]))
    assert swept > 20
    assert written_again > 10


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = Run(3).go(), Run(3).go()
    assert one.states == other.states
    assert one.calls == other.calls


# Variants that break one rule each


def blind_put(monkeypatch: pytest.MonkeyPatch) -> None:
    async def put(store: Any, attempt: Attempt, compose: Any, *, draw_id: Any, **_: Any) -> Settled:
        write_id = draw_id()
        try:
            await store.put(attempt.key, compose(write_id))
        except StoreError as error:
            return Settled(attempt, Unknown(error))
        return Settled(attempt, Applied(attempt.expected), write_id)  # type: ignore[arg-type]

    monkeypatch.setattr(rules, "commit", put)


def own_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def now(self: StoreTime) -> float:
        return self._clock.read().wall_ns / 1e9

    monkeypatch.setattr(StoreTime, "now", now)


def plain_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(self: PluginStorage, key: str) -> bool:
        await self._store.delete(self._object_key(key))
        return True

    monkeypatch.setattr(PluginStorage, "delete", delete)


def tombstone_discarded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = PluginStorage.delete

    async def removed(self: PluginStorage, key: str) -> bool:
        done = await delete(self, key)
        seen = await self._look(key, self._object_key(key))
        if seen.record is not None and seen.record.deleted:
            assert seen.at is not None
            await self._store.discard(self._object_key(key), seen.at)
        return done

    monkeypatch.setattr(PluginStorage, "delete", removed)


def rejection_is_taken_for_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_certainly_not", lambda seen, settled: True)


def overwritten_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last write id counts, and not finding it is taken for a rejection."""
    monkeypatch.setattr(rules, "_writes_in", lambda body: (json.loads(body)["writeId"],))
    monkeypatch.setattr(rules, "_certainly_not", lambda seen, settled: settled.stored is not None)


def existence_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    change = PluginStorage._change

    async def careless(self: PluginStorage, key: str, value: Any, ttl: Any, may_change: Any) -> Any:
        if not may_change(await self._look(key, self._object_key(key))):
            return None
        return await change(self, key, value, ttl, lambda _: True)

    monkeypatch.setattr(PluginStorage, "_change", careless)


@pytest.mark.parametrize(
    "broken",
    [
        blind_put,
        own_wall_clock,
        plain_delete,
        tombstone_discarded_at_once,
        rejection_is_taken_for_certain,
        overwritten_is_forgotten,
        existence_is_checked_once,
    ],
)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]) -> None:
    broken(monkeypatch)
    assert first_violation(range(400)) is not None
