"""Objects that are not what they should be, in the place of each that a working fleet reads.

Whatever it is, it is told of once by each process that meets it, nothing else suffers, no request storm comes of it,
and what a newer tenure wrote is there afterwards, byte for byte.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tenure.coordinator.layout import folder_of, term_key, worker_key
from tenure.errors import SchemaTooNew
from tenure.store.protocol import MAX_BODY_BYTES

from .working import LEDGERS, WorkingFleet

BEFORE, AFTER = 12.0, 24.0
OURS = folder_of("default")
HUGE = bytes(MAX_BODY_BYTES + 1)

Place = Callable[[WorkingFleet], str]
Spoil = Callable[[bytes], bytes]


def _at(key: str) -> Place:
    return lambda fleet: key


def _log_end(fleet: WorkingFleet, folder: str) -> int:
    return int(fleet.bucket.keys(f"{folder}log/")[-1][-20:])


def _newest(prefix: str) -> Place:
    return lambda fleet: fleet.bucket.keys(prefix)[-1]


def _stranger(folder: str) -> Place:
    return lambda fleet: f"{folder}inbox/{_log_end(fleet, folder):020d}-stranger-{1:010d}"


def _next_entry(folder: str) -> Place:
    return lambda fleet: f"{folder}log/{_log_end(fleet, folder) + 1:020d}"


WORK = {
    "s3-queue": {"handled"},
    "scheduler": {"fired"},
    "ttl": {"expired", "clean_up"},
    "eventual-consistency": set[str](),
}
"""What may rest while a ledger has halted. Writes to its inbox go on."""
EVERYTHING = {"handled", "fired", "expired", "clean_up", "write_fenced"}

PLACES: dict[str, tuple[Place, set[str]]] = {
    "lease": (_at(f"{OURS}state.json"), EVERYTHING),
    "metadata": (_at(f"{OURS}metadata.json"), set()),
    "members": (_at(f"{OURS}members.json"), set()),
    "term": (_newest(f"{OURS}terms/"), set()),
    "worker": (_at(OURS + worker_key("x")), set()),
    "storage": (_at("plugin=kept/name=things/storage/last"), {"store"}),
    "lock": (_at("plugin=locks/lock=door.json"), {"hold"}),
    "fenced": (_at("fenced"), {"write_fenced"}),
    "record": (_newest("resource=sessions/data/"), set()),
    "counted record": (_at("resource=pages/data/id=front.json"), set()),
    "result": (_newest(f"{LEDGERS['s3-queue']}results/"), set()),
    "another tool's file among the workers": (_at(f"{OURS}workers/README.txt"), set()),
    "another tool's file among the terms": (_at(f"{OURS}terms/README.txt"), set()),
    "another tool's file in the index": (_at(f"{LEDGERS['ttl']}due/README.txt"), set()),
}
for _slug, _folder in LEDGERS.items():
    PLACES |= {
        f"batch of {_slug}": (_stranger(_folder), set()),
        f"entry of {_slug}": (_next_entry(_folder), WORK[_slug]),
        f"ledger.json of {_slug}": (_at(f"{_folder}ledger.json"), set()),
        f"settings.json of {_slug}": (_at(f"{_folder}settings.json"), set()),
        f"another tool's file in the inbox of {_slug}": (_at(f"{_folder}inbox/README.txt"), set()),
        f"another tool's file in the log of {_slug}": (_at(f"{_folder}log/{'9' * 20}"), set()),
        f"another tool's file in the snapshots of {_slug}": (_at(f"{_folder}snapshots/{'9' * 20}"), set()),
    }
PLACES |= {
    **{f"snapshot of {slug}": (_newest(f"{folder}snapshots/"), WORK[slug]) for slug, folder in LEDGERS.items()},
    "entry of the index": (_newest(f"{LEDGERS['ttl']}due/"), set()),
    "group of the index": (lambda fleet: fleet.bucket.keys(f"{LEDGERS['ttl']}due/")[-1].partition(".")[0], set()),
}


def _newer(sound: bytes) -> bytes:
    """As a later version might write it: what it says of its form, and perhaps all else, is different."""
    head, newline, rest = sound.partition(b"\n")
    try:
        fields = json.loads(head)
    except ValueError:
        fields = {}
    for name in ("schemaVersion", "schema"):
        if name in fields:
            fields[name] = 2
    fields = fields if {"schemaVersion", "schema"} & fields.keys() else {"schemaVersion": 2, "schema": 2}
    return json.dumps(fields | {"somethingNew": {"a": [1]}}).encode() + newline + rest


def _retyped(sound: bytes) -> bytes:
    head, newline, rest = sound.partition(b"\n")
    try:
        return json.dumps({name: [value] for name, value in json.loads(head).items()}).encode() + newline + rest
    except (ValueError, AttributeError):
        return b'{"schemaVersion": "1"}\n'


def _doubled(sound: bytes) -> bytes:
    """Every key twice, and the second time it says something else that could be."""
    head, newline, rest = sound.partition(b"\n")
    try:
        fields = json.loads(head)
        pairs = [*fields.items(), *((name, _another(name, value)) for name, value in fields.items())]
    except (ValueError, AttributeError):
        pairs = [("schemaVersion", 1), ("schemaVersion", 1)]
    inner = b",".join(json.dumps(name).encode() + b":" + json.dumps(value).encode() for name, value in pairs)
    return b"{" + inner + b"}" + newline + rest


def _another(name: str, value: Any) -> Any:
    if name in ("schemaVersion", "schema"):
        return value  # else nobody would look at the rest
    if isinstance(value, str):
        return value + "x"
    return value + 1 if type(value) is int else value


SPOILS: dict[str, Spoil] = {
    "garbage": lambda sound: b"\x00\xff garbage",
    "newer": _newer,
    "huge": lambda sound: HUGE,
    "deep": lambda sound: b'{"writeId": "w", "schemaVersion": 1, "a": ' + b"[" * 30_000,
    "truncated": lambda sound: sound[: len(sound) // 2],
    "wrong types": _retyped,
    "no number": lambda sound: b'{"schemaVersion": NaN, "epoch": Infinity}',
    "empty": lambda sound: b"",
    "duplicate keys": _doubled,
}
REMOVED_IN_TIME = {
    "worker",  # of a worker that is silent for two timeouts, whatever form its record has
    *(f"snapshot of {slug}" for slug in LEDGERS),  # a copy, once two later ones that we can read took its place
    "entry of the index",  # its name says all, and is all that is read; removed with the record that it is about
}
"""What is gone in the end, whoever wrote it. It is not written over either."""
OTHER_KINDS = {
    "chunks/": "a part of a snapshot: read by the checksum in the manifest, which has a version",
    "seg/": "bodies of messages: read only where an entry of the log names it, which has a version",
}
"""Objects of a working fleet that are in no place of their own above, and why."""
A_DAY = 60
QUICK = {(place, [*SPOILS][number // 3 % len(SPOILS)]) for number, place in enumerate(PLACES) if number % 3 == 0}
"""One of every third place."""


def _cases(day: str) -> list[Any]:
    """All, marked: the quick ones, which every run has; those of this day; and the rest, tried before a release."""
    slow = [(place, spoil) for place in PLACES for spoil in SPOILS if (place, spoil) not in QUICK]
    drawn = set(Random(day).sample(slow, A_DAY))

    def marks(case: tuple[str, str]) -> list[pytest.MarkDecorator]:
        return [] if case in QUICK else [pytest.mark.slow if case in drawn else pytest.mark.trials]

    cases = [(place, spoil) for place in PLACES for spoil in SPOILS]
    return [pytest.param(*case, id=f"{case[0]}: {case[1]}", marks=marks(case)) for case in cases]


CASES = _cases(os.environ["TENURE_TESTS_DAY"])


@functools.cache
def usual() -> tuple[int, dict[str, int], dict[str, bytes]]:
    """Of a fleet that nothing happens to but the death of its leader: requests, what was done, and sound batches."""
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        requests, done = sum(fleet.network.requests.values()), fleet.done.copy()
        batches = {
            slug: next(bodies[0] for key, bodies in fleet.bodies.items() if key.startswith(f"{folder}inbox/"))
            for slug, folder in LEDGERS.items()
        }
        _live_on(fleet)
        return sum(fleet.network.requests.values()) - requests, dict(fleet.done - done), batches


def _live_on(fleet: WorkingFleet) -> None:
    fleet.run(AFTER / 4)
    if fleet.leader is not None:
        fleet.leader.host.crash()
    fleet.run(3 * AFTER / 4)


def _sound(fleet: WorkingFleet, name: str, key: str) -> bytes:
    if name.startswith("batch of "):
        return usual()[2][name.removeprefix("batch of ")]
    return fleet.bucket.body(key) or b""


@pytest.mark.req("EL-20")
@pytest.mark.parametrize(("name", "spoil"), CASES)
def test_it_is_told_of_and_nothing_else_suffers(name: str, spoil: str) -> None:
    usual_requests, usually_done, _ = usual()
    place, resting = PLACES[name]
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        key = place(fleet)
        planted = SPOILS[spoil](_sound(fleet, name, key))
        fleet.said.clear()
        requests, done = sum(fleet.network.requests.values()), fleet.done.copy()
        fleet.bucket.corrupt(key, planted)
        written = list(fleet.bodies.get(key, []))
        _live_on(fleet)

        for text, count in fleet.said.items():
            assert "defect" not in text, text
            assert "nobody foresaw" not in text, text
            assert count <= 2 or "heartbeats" in text, f"said {count} times: {text}"
        assert sum(fleet.network.requests.values()) - requests < 1.3 * usual_requests, "a storm of requests"
        for what, least in usually_done.items():
            if what not in resting:
                assert (fleet.done - done)[what] >= least * 0.5, f"{what}: {fleet.done - done}"
        if spoil == "newer":
            assert fleet.bodies.get(key, []) == written, "a newer layout is not written over"
            assert fleet.bucket.body(key) == planted or (name in REMOVED_IN_TIME and fleet.bucket.body(key) is None)
        if name.startswith("another tool's"):
            assert fleet.bucket.body(key) == planted, "it is not ours to remove"


@pytest.mark.slow
def test_every_kind_of_object_has_its_place() -> None:
    """A new kind that is written is found here, and gets one."""
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        folders = {place(fleet).rpartition("/")[0] + "/" for place, _ in PLACES.values()}
        slots = f"{LEDGERS['ttl']}due/"
        strange = {
            key
            for key in fleet.bodies
            if f"{key.rpartition('/')[0]}/" not in folders
            and not key.startswith(slots)
            and not any(f"/{kind}" in key for kind in OTHER_KINDS)
        }
        assert strange == set()
        for kind in OTHER_KINDS:
            assert any(f"/{kind}" in key for key in fleet.bodies), f"nothing is written below {kind}"


@pytest.mark.req("EL-20")
@pytest.mark.parametrize("spoil", ["newer", "garbage", "huge"])
def test_a_lease_that_cannot_be_read_is_told_of_by_everybody_who_meets_it(spoil: str) -> None:
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        fleet.bucket.corrupt(f"{OURS}state.json", SPOILS[spoil](fleet.bucket.body(f"{OURS}state.json") or b""))
        fleet.run(AFTER)
        for node in fleet.nodes.values():
            assert len(node.named("lease:damaged")) == 1
        assert (fleet.leader is None) == (spoil in ("newer", "huge")), "what cannot be kept is not written over"


@pytest.mark.parametrize("slug", LEDGERS)
def test_a_process_does_not_start_on_what_a_newer_one_agreed(slug: str) -> None:
    """What all processes have in common is read at their start."""
    for name in ("ledger.json", "settings.json"):
        with WorkingFleet() as fleet:
            fleet.run(BEFORE)
            key = LEDGERS[slug] + name
            sound = fleet.bucket.body(key)
            if sound is None and (slug, name) != ("s3-queue", "settings.json"):
                continue
            planted = _newer(sound or b'{"tenure": "queue", "schemaVersion": 1}')
            fleet.bucket.corrupt(key, planted)
            fleet.add("c")
            fleet.run(5)
            assert fleet.fell[f"start of {slug}: {SchemaTooNew.__name__}"] >= 1
            assert fleet.bucket.body(key) == planted
            assert {what for what in fleet.fell if what.startswith("start of ")} == {
                f"start of {slug}: {SchemaTooNew.__name__}"
            }, "the others start"


def test_a_process_does_not_start_in_a_newer_namespace() -> None:
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        key = f"{OURS}metadata.json"
        planted = _newer(fleet.bucket.body(key) or b"")
        fleet.bucket.corrupt(key, planted)
        fleet.add("c")
        fleet.run(5)
        assert fleet.fell[f"start of s3-queue: {SchemaTooNew.__name__}"] >= 1
        assert fleet.bucket.body(key) == planted


def test_work_goes_on_when_an_entry_that_nobody_understands_is_gone_again() -> None:
    """It says that it is an entry, and what it decides is nothing that a plugin could."""
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        planted = []
        for folder in LEDGERS.values():
            end = _log_end(fleet, folder)
            entry = json.loads(fleet.bucket.body(f"{folder}log/{end:020d}") or b"")
            strange = entry | {"seq": end + 1, "writeId": "w", "kind": "work", "events": _strange()}
            planted.append(f"{folder}log/{end + 1:020d}")
            fleet.bucket.corrupt(planted[-1], json.dumps(strange).encode())
        fleet.run(15)
        assert len(fleet.halts) >= len(LEDGERS), fleet.halts
        for key in planted:
            fleet.bucket.remove(key)
        fleet.run(25)
        done = fleet.done.copy()
        fleet.run(10)
        more = fleet.done - done
        assert {"handled", "fired", "expired", "enqueue", "count"} <= more.keys(), more


def _strange() -> dict[str, Any]:
    return {
        "tickets": 5,
        "settled": "x",
        "events": 7,
        "applied": [1],
        "cleanup": "y",
        "counts": 3,
        "tally": 1,
        "rows": 2,
    }


@pytest.mark.parametrize("spoil", ["garbage", "newer", "huge"])
def test_a_term_that_cannot_be_read_keeps_nobody_from_leading(spoil: str) -> None:
    with WorkingFleet() as fleet:
        fleet.run(BEFORE)
        key = OURS + term_key(1)
        fleet.bucket.corrupt(key, SPOILS[spoil](fleet.bucket.body(key) or b""))
        fleet.lead().host.crash()
        fleet.run(20)
        assert fleet.lead().named("leader:changed")[-1].epoch == 2
