"""Every place in tenure where bytes of a bucket become something else, and what may come of it.

`DECODERS` is what is fuzzed (`tests/unit/test_decoders.py`, `tools/fuzz.py`). Each names the functions of tenure that
it covers; a test looks for functions that decode and are named by none. What is spoilt is sound at first: most of it is
from the bucket of a simulated fleet (`sound.json`, which `python -m tests.simulated.bodies` writes), the rest is what
tenure's own encoders make.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import msgspec

from tenure.coordinator.fenced import split
from tenure.coordinator.lock.records import decode_lock
from tenure.database import records as database_records
from tenure.database.counted import counted_of
from tenure.database.expiry import expiry_of
from tenure.database.storage import StorageRecord
from tenure.election.records import (
    Damage,
    Members,
    Metadata,
    Record,
    Term,
    Worker,
    decode,
    decode_state,
    encode,
)
from tenure.election.records import TooNew as NewerRecord
from tenure.errors import TenureError
from tenure.ledger.agreed import AgreedLedger
from tenure.ledger.leader import Poison, TooNewLetter
from tenure.ledger.log import _write_ids as log_write_ids
from tenure.ledger.machine import LedgerState
from tenure.ledger.place import Place
from tenure.ledger.records import LogEntry, decode_entry, decode_manifest
from tenure.plugins.counters.agreed import Agreed as AgreedCounters
from tenure.plugins.counters.pages import read_page, sorted_rows
from tenure.plugins.counters.records import Answer, Asked
from tenure.plugins.counters.records import Work as CountersWork
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.counters.wire import read_letter as read_counters_letter
from tenure.plugins.poll.book import Agent
from tenure.plugins.poll.book import _write_ids as poll_write_ids
from tenure.plugins.poll.job import CheckResult, JobState, job_id
from tenure.plugins.poll.job import Job as PollJob
from tenure.plugins.poll.job import decode_job as decode_poll_job
from tenure.plugins.poll.summary import Summary, decode_summary
from tenure.plugins.queue.agreed import Agreed as AgreedQueue
from tenure.plugins.queue.looking import shown_body
from tenure.plugins.queue.plugin import decode_result
from tenure.plugins.queue.records import Published
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import (
    PLAIN,
    Held,
    Options,
    Segment,
    Span,
    TooNew,
    Unreadable,
    encode_batch,
    encode_segment,
    read_header,
)
from tenure.plugins.scheduler.job import DamagedJob, decode_job
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.wire import read_batch
from tenure.plugins.supervisor.child import ChildState, ChildStatus
from tenure.plugins.supervisor.static import Starts, StaticNode, decode_node, decode_starts
from tenure.plugins.supervisor.static import _write_ids as static_write_ids
from tenure.plugins.supervisor.status import SupervisorStatus, decode_status
from tenure.plugins.ttl.agreed import Agreed as AgreedTtl
from tenure.plugins.ttl.index import SCHEMA, Group, ids_in
from tenure.plugins.ttl.looking import decode_failed
from tenure.plugins.ttl.state import TTLMachine
from tenure.plugins.ttl.wire import TooNew as TtlTooNew
from tenure.plugins.ttl.wire import Unreadable as TtlUnreadable
from tenure.plugins.ttl.wire import read_letter as read_ttl_letter
from tenure.store.scratch import scratch_body, scratch_ids

REFUSALS = (TenureError, Poison, TooNewLetter, Unreadable, TooNew, TtlUnreadable, TtlTooNew, DamagedJob)
"""What a decoder may raise: what is wrong, by name."""

Covers: TypeAlias = tuple[str, ...]
_SOUND: dict[str, Any] = json.loads((Path(__file__).parent / "sound.json").read_text())


def _found(kind: str) -> bytes:
    """Of a working fleet."""
    body: str = _SOUND[kind]
    return body.encode()


@dataclass(frozen=True)
class Decoder:
    name: str
    read: Callable[[bytes], object]
    covers: Covers
    """`module:function` below `tenure`."""
    sample: bytes
    """Something sound, which is accepted: what is spoilt begins with it."""
    refuses: bool = True
    """False: it makes something of everything."""


def _entries(slug: str, machine: Callable[[], Any]) -> list[tuple[str, bytes, bytes]]:
    """Of the log of a working fleet, one entry for each kind of event: which kinds, the snapshot before, the events."""
    state = LedgerState(machine())
    found: dict[str, tuple[str, bytes, bytes]] = {}
    for number, body in enumerate(_SOUND[f"log of {slug}"], 1):
        entry = decode_entry(body.encode(), number)
        assert isinstance(entry, LogEntry)
        if (events := entry.decided) is not None:
            kinds = ", ".join(_kinds(msgspec.json.decode(events)))
            found.setdefault(kinds, (kinds, _picture(state), events))
        state.apply(entry)
    return [*found.values(), ("everything", _picture(state), b"")]


def _kinds(events: dict[str, Any]) -> list[str]:
    told = events.get("events")
    return [*events, *(each[0] for each in told)] if isinstance(told, list) else list(events)


def _machine(machine: Callable[[], Any], before: bytes) -> Callable[[bytes], object]:
    """What a leader and its readers make of the events of an entry, after what was there before."""

    def read(body: bytes) -> object:
        state = LedgerState(machine())
        state.restore(before.split(b"\n"))
        head = b'{"tenure":"log","writeId":"w","seq":%d,"epoch":1,"timeMs":%d,"events":'
        entry = decode_entry(head % (state.seq + 1, state.time_ms) + body + b"}", state.seq + 1)
        if isinstance(entry, LogEntry):
            if machine is QueueMachine:
                entry.decided_as(msgspec.json.Decoder(Published).decode)
            assert state.apply(entry), "it is of a term that is over"
        return entry

    return read


def _restored(machine: Callable[[], Any]) -> Callable[[bytes], object]:
    """What a leader makes of a snapshot: chunks, one in a line."""

    def read(body: bytes) -> object:
        state = LedgerState(machine())
        damage = state.restore(body.split(b"\n"))
        return state if damage is None else damage

    return read


def _picture(state: LedgerState) -> bytes:
    return b"\n".join(state.snapshot())


def _of_ledger(what: str, slug: str, machine: Callable[[], Any], applies: Covers, restores: Covers) -> list[Decoder]:
    *entries, (_, whole, _) = _entries(slug, machine)
    entries += [(kinds, whole, msgspec.json.encode(events)) for kinds, events in FURTHER_EVENTS.get(slug, {}).items()]
    return [
        *(
            Decoder(f"events of {what}: {kinds}", _machine(machine, before), applies, events)
            for kinds, before, events in entries
        ),
        Decoder(f"snapshot of {what}", _restored(machine), restores, whole),
    ]


def _segment(body: bytes) -> object:
    return list(Segment(body).messages(0, 5))


def _reserved(id: str, read: Callable[[dict[str, Any]], object]) -> Callable[[bytes], object]:
    def reading(body: bytes) -> object:
        envelope = database_records.decode(body, id)
        return envelope if isinstance(envelope, str) else read(envelope.reserved)

    return reading


FURTHER_EVENTS: dict[str, dict[str, Any]] = {
    "eventual-consistency": {
        "an hour is sealed": CountersWork(seal=True),
        "asked": CountersWork(asked={"q": Asked("recalculate", "front", 1)}, covered=["q"]),
        "answered": CountersWork(answered=[Answer("q", {"views": 3}, {"views": 2})]),
    },
}
"""What the fleet did not do in that time."""
_BATCH = encode_batch(Place(0), [b"{}", b"[1]"], [Span(0, 1, Options(priority=3, key="k", headers={"a": "b"}))])
_SEGMENT = encode_segment([("u", 1, 5, 2, _BATCH)])
_LOG = [each.encode() for each in _SOUND["log of s3-queue"]]
_SEQ = 4
"""An entry with much in it."""
_MANIFEST = _found("manifest")
_RECORD, _COUNTED = _found("record"), _found("counted record")
_ID = json.loads(_RECORD)["id"]
_STARTED = json.loads(_SOUND["log of scheduler"][1])["events"]["events"][0][1]
_POLLED = PollJob(
    write_id="w",
    schedule="web",
    number=1,
    fingerprint="f",
    timeout_ms=5000,
    epoch=1,
    state=JobState.COMPLETED,
    worker_id="a",
    uid="u",
    token=3,
    attempt=1,
    ended_by="worker",
    result=CheckResult(ok=True, latency_ms=12.5, detail="200"),
)
_STATUS = SupervisorStatus(
    name="coordinator", node="a", epoch=3, children=(ChildStatus(name="one", state=ChildState.RUNNING, token=3, pid=7),)
)
_JSON = ("election.records:decode", "election.records:_newer")


def _record(kind: type[Any], sample: bytes | Record) -> Decoder:
    return Decoder(
        f"{kind.__module__.rpartition('tenure.')[2]}.{kind.__name__}",
        lambda body: decode(body, kind),
        _JSON,
        encode(sample) if isinstance(sample, Record) else sample,
    )


DECODERS = [
    Decoder("lease", decode_state, _JSON, _found("lease")),
    _record(Term, _found("term")),
    _record(Worker, _found("worker")),
    _record(Members, _found("members")),
    _record(Metadata, _found("metadata")),
    _record(AgreedLedger, _found("ledger")),
    _record(AgreedCounters, _found("settings of counters")),
    _record(AgreedQueue, b'{"tenure":"queue","writeId":"w","namespace":"default","settings":{"margin":1.5}}'),
    _record(AgreedTtl, _found("settings of a ttl")),
    _record(StorageRecord, _found("storage")),
    _record(Agent, Agent(write_id="w", worker_id="a", uid="u", ordinal=1, partition="eu", concurrency=4)),
    Decoder("lock", lambda body: decode_lock(body, "door"), _JSON, _found("lock")),
    Decoder(
        "fenced object",
        lambda body: split("k", body),
        ("coordinator.fenced:split",),
        _found("fenced object"),
    ),
    Decoder(
        "record",
        lambda body: database_records.decode(body, _ID),
        ("database.records:decode", "database.records:write_ids"),
        _RECORD,
    ),
    Decoder("write ids of a record", database_records.write_ids, ("database.records:write_ids",), _RECORD),
    Decoder("expiry", _reserved(_ID, expiry_of), ("database.expiry:expiry_of",), _RECORD),
    Decoder(
        "counted",
        _reserved("front", lambda reserved: counted_of(reserved, "pages")),
        ("database.counted:counted_of",),
        _COUNTED,
    ),
    Decoder("log entry", lambda body: decode_entry(body, _SEQ), _JSON, _LOG[_SEQ - 1]),
    Decoder("write id of a log entry", log_write_ids, ("ledger.log:_write_ids",), _LOG[_SEQ - 1]),
    Decoder("manifest", lambda body: decode_manifest(body, json.loads(_MANIFEST)["seq"]), _JSON, _MANIFEST),
    *_of_ledger(
        "a queue",
        "s3-queue",
        QueueMachine,
        (
            "plugins.queue.state:QueueMachine.apply",
            "plugins.queue.worker:QueueWorker._took",
            "ledger.records:LogEntry.decided_as",
        ),
        ("ledger.machine:LedgerState.restore", "plugins.queue.image:decode"),
    ),
    *_of_ledger(
        "a schedule",
        "scheduler",
        ScheduleMachine,
        ("plugins.scheduler.state:ScheduleMachine.apply", "plugins.scheduler.records:decode_work"),
        ("plugins.ledgered.image:decode",),
    ),
    *_of_ledger(
        "a ttl",
        "ttl",
        TTLMachine,
        ("plugins.ttl.state:TTLMachine.apply", "plugins.ttl.records:decode_work"),
        ("plugins.ttl.state:TTLMachine.restore",),
    ),
    *_of_ledger(
        "counters",
        "eventual-consistency",
        CountersMachine,
        ("plugins.counters.records:decode_work",),
        ("plugins.ledgered.image:decode",),
    ),
    Decoder(
        "batch of a queue",
        read_header,
        ("plugins.queue.wire:read_header", "plugins.queue.wire:_raise_if_newer"),
        _BATCH,
    ),
    Decoder("notes of a queue", read_header, ("plugins.queue.wire:read_header",), _found("batch of a queue")),
    Decoder("segment of a queue", _segment, ("plugins.queue.wire:Segment.__init__",), _SEGMENT),
    Decoder(
        "segment of a queue in use", _segment, ("plugins.queue.wire:Segment.__init__",), _found("segment of a queue")
    ),
    Decoder(
        "body of a message",
        lambda body: shown_body(Held("u", 1, 0, 1, body, PLAIN)),
        ("plugins.queue.looking:shown_body",),
        b'{"n":1}',
        refuses=False,
    ),
    Decoder(
        "result of a queue",
        lambda body: [decode_result("m", body)],
        ("plugins.queue.plugin:decode_result",),
        _found("result of a queue"),
    ),
    Decoder(
        "batch of a schedule",
        read_batch,
        ("plugins.scheduler.wire:read_batch", "plugins.scheduler.wire:_schema_of"),
        _found("batch of a schedule"),
    ),
    Decoder("job", decode_job, ("plugins.scheduler.job:decode_job",), msgspec.json.encode(_STARTED)),
    Decoder("letter of a ttl", read_ttl_letter, ("plugins.ttl.wire:read_letter",), _found("letter of a ttl")),
    Decoder(
        "group of the index",
        ids_in,
        ("plugins.ttl.index:ids_in",),
        msgspec.json.encode(Group(SCHEMA, ["a", "b"])),
    ),
    Decoder("failed callback", decode_failed, ("plugins.ttl.looking:decode_failed",), _found("failed callback")),
    Decoder(
        "letter of counters",
        read_counters_letter,
        ("plugins.counters.wire:read_letter",),
        _found("letter of counters"),
    ),
    Decoder(
        "page of counters",
        lambda body: read_page("pages/1", body),
        ("plugins.counters.pages:read_page",),
        msgspec.json.encode({"rows": sorted_rows({"views": {"a": [1, 1], "b": [2, 7, 0, 0, 1, 5, 7]}})}),
    ),
    Decoder("poll job", lambda body: decode_poll_job(job_id("web", 1), body), _JSON, encode(_POLLED)),
    Decoder(
        "poll summary",
        lambda body: decode_summary("web", body),
        _JSON,
        encode(Summary(write_id="w", schedule="web", epoch=1, folded=7, ok=6, not_ok=1, availability=0.857)),
    ),
    Decoder("write id of a poll job", poll_write_ids, ("plugins.poll.book:_write_ids",), encode(_POLLED)),
    Decoder(
        "static starts",
        decode_starts,
        ("plugins.supervisor.static:decode_starts", "plugins.supervisor.static:_refuse_a_newer_one"),
        msgspec.json.encode(Starts(1, ("w",))),
    ),
    Decoder(
        "write ids of static starts",
        static_write_ids,
        ("plugins.supervisor.static:_write_ids",),
        msgspec.json.encode(Starts(1, ("w",))),
    ),
    Decoder(
        "static node",
        decode_node,
        ("plugins.supervisor.static:decode_node",),
        msgspec.json.encode(StaticNode("a", "w", "2026-01-01T00:00:00+00:00")),
    ),
    Decoder(
        "status of a supervisor",
        lambda body: decode_status("coordinator", body),
        ("plugins.supervisor.status:decode_status",),
        msgspec.json.encode(_STATUS),
    ),
    Decoder("scratch", scratch_ids, ("store.scratch:scratch_ids",), scratch_body("w")),
]

_LEAVES: tuple[bytes, ...] = (
    *(b"null", b"true", b"-1", b"0", b"2", b"1e308", b"1e999", b"NaN", b"-Infinity", b"[]", b"{}", b"[[[[1]]]]"),
    *(b'""', b'"x"', b'"\xff"', b'"\\ud800"', b'"' + b"x" * 5000 + b'"'),
    *(b"9" * 19, b"9" * 4301, b"-" + b"9" * 30, b"[" * 3000, b'{"a":' * 3000),
)


def spoilt(sound: bytes, random: Random) -> bytes:
    """Something like `sound`, and wrong: cut, flipped, with a value replaced, a key given twice, or another form."""
    body = bytearray(sound)
    for _ in range(random.choice([1, 1, 2, 4])):
        at = random.randrange(len(body) + 1)
        match random.randrange(7):
            case 0:
                del body[at:]
            case 1 if body:
                body[at % len(body)] = random.randrange(256)
            case 2:
                body[at:at] = random.choice(_LEAVES)
            case 3:  # a value
                colons = [place for place, each in enumerate(body) if each == 0x3A]
                if colons:
                    start = random.choice(colons) + 1
                    end = next((n for n in range(start, len(body)) if body[n] in b",}"), len(body))
                    body[start:end] = random.choice(_LEAVES)
            case 4 if body[:1] == b"{":  # once more, with another value
                body[1:1] = b'"%s":%s,' % (random.choice([b"writeId", b"epoch", b"schema"]), random.choice(_LEAVES))
            case 5 if body[:1] == b"{":
                body[1:1] = b'"schemaVersion":%d,"schema":%d,' % (
                    (number := random.choice([0, -1, 2, 99, 10**30])),
                    number,
                )
            case _:
                end = random.randrange(at, len(body) + 1)
                body[at:at] = body[at:end]
    return bytes(body)


def refused(decoder: Decoder, body: bytes) -> bool:
    """Was it: by one of the errors that say why, or as what is damaged, newer or nothing? Anything else is raised."""
    try:
        found = decoder.read(body)
    except REFUSALS:
        return True
    return decoder.refuses and (found is None or found == () or isinstance(found, Damage | NewerRecord | str))


def bodies(decoder: Decoder, seed: int, count: int) -> Iterator[bytes]:
    random = Random(f"{decoder.name}/{seed}")
    return (spoilt(decoder.sample, random) for _ in range(count))
