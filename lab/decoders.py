"""Every place in tenure where bytes of a bucket become something else, and what may come of it.

`DECODERS` is what is fuzzed (`tests/unit/test_decoders.py`, `tools/fuzz.py`). Each names the functions of tenure that
it covers; a test looks for functions that decode and are named by none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from tenure.coordinator.fenced import split
from tenure.coordinator.lock.records import decode_lock
from tenure.database import records as database_records
from tenure.database.counted import COUNTERS, counted_of
from tenure.database.expiry import TTL, expiry_of
from tenure.database.storage import StorageRecord
from tenure.election.records import Members, Metadata, Term, Worker, decode, decode_state
from tenure.errors import TenureError
from tenure.ledger.agreed import AgreedLedger
from tenure.ledger.leader import Poison, TooNewLetter
from tenure.ledger.log import _write_ids as log_write_ids
from tenure.ledger.machine import LedgerState
from tenure.ledger.place import Place
from tenure.ledger.records import LogEntry, decode_entry, decode_manifest
from tenure.plugins.counters.agreed import Agreed as AgreedCounters
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.counters.wire import read_letter as read_counters_letter
from tenure.plugins.poll.book import Agent
from tenure.plugins.poll.book import _write_ids as poll_write_ids
from tenure.plugins.poll.job import decode_job as decode_poll_job
from tenure.plugins.poll.summary import decode_summary
from tenure.plugins.queue.agreed import Agreed as AgreedQueue
from tenure.plugins.queue.looking import shown_body
from tenure.plugins.queue.records import Published
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import (
    PLAIN,
    Held,
    Segment,
    TooNew,
    Unreadable,
    encode_batch,
    encode_segment,
    read_header,
)
from tenure.plugins.scheduler.job import DamagedJob, decode_job
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.wire import read_batch
from tenure.plugins.supervisor.static import _write_ids as static_write_ids
from tenure.plugins.ttl.agreed import Agreed as AgreedTtl
from tenure.plugins.ttl.index import ids_in
from tenure.plugins.ttl.state import TTLMachine
from tenure.plugins.ttl.wire import TooNew as TtlTooNew
from tenure.plugins.ttl.wire import Unreadable as TtlUnreadable
from tenure.plugins.ttl.wire import read_letter as read_ttl_letter
from tenure.store.scratch import scratch_ids

REFUSALS = (TenureError, Poison, TooNewLetter, Unreadable, TooNew, TtlUnreadable, TtlTooNew, DamagedJob)
"""What a decoder may raise: what is wrong, by name."""
_SEQ = 7


@dataclass(frozen=True)
class Decoder:
    name: str
    read: Callable[[bytes], object]
    covers: tuple[str, ...]
    """`module:function` below `tenure`."""
    sample: bytes = b"{}"
    """Something sound, or nearly: what is spoilt begins with it."""


def _machine(machine: Callable[[], Any]) -> Callable[[bytes], object]:
    """What a leader and its readers make of the events of an entry."""

    def read(body: bytes) -> object:
        entry = decode_entry(b'{"tenure":"log","writeId":"w","seq":1,"epoch":1,"timeMs":1,"events":' + body + b"}", 1)
        if isinstance(entry, LogEntry):
            entry.decided_as(msgspec.json.Decoder(Published).decode)
            LedgerState(machine()).apply(entry)
        return entry

    return read


def _restored(machine: Callable[[], Any]) -> Callable[[bytes], object]:
    """What a leader makes of a snapshot: chunks, one in a line."""
    return lambda body: LedgerState(machine()).restore(body.split(b"\n"))


def _picture(machine: Callable[[], Any]) -> bytes:
    return b"\n".join(LedgerState(machine()).snapshot())


def _segment(body: bytes) -> object:
    return list(Segment(body).messages(0, 5))


def _reserved(read: Callable[[dict[str, Any]], object]) -> Callable[[bytes], object]:
    def reading(body: bytes) -> object:
        envelope = database_records.decode(body, "r")
        return envelope if isinstance(envelope, str) else read(envelope.reserved)

    return reading


_ENVELOPE = (
    b'{"id":"r","version":2,"writeId":"w","recentWrites":["w"],"firstVersion":1,"createdAt":"","updatedAt":"",'
    b'"data":{"a":1},"reserved":{"ttl":{"at":5},"counters":{"r":{"ledger":"l","through":1}}},"schemaVersion":1}'
)
_STATE = (
    b'{"writeId":"w","schemaVersion":1,"leaderId":"a","uid":"u","epoch":3,"grantId":"g","leaderWriteId":"w",'
    b'"leaseDurationMs":15000,"renewals":2,"handoff":{"requestId":"r","epoch":3,"by":"me"}}'
)
_ENTRY = (
    b'{"tenure":"log","writeId":"w","schemaVersion":1,"seq":7,"epoch":2,"timeMs":5,"folded":{"u":[1]},'
    b'"rejected":[{"key":"k","reason":"r"}],"events":{"a":1}}'
)
_BATCH = encode_batch(Place(0), [b"{}", b"[1]"])
_SEGMENT = encode_segment([("u", 1, 5, 2, _BATCH)])
_JSON = ("election.records:decode", "election.records:_newer")


def _record(kind: type[Any], sample: bytes) -> Decoder:
    return Decoder(
        f"{kind.__module__.rpartition('tenure.')[2]}.{kind.__name__}", lambda body: decode(body, kind), _JSON, sample
    )


DECODERS = [
    Decoder("lease", decode_state, _JSON, _STATE),
    _record(Term, b'{"writeId":"w","epoch":1,"leaderId":"a","uid":"u","grantId":"g"}'),
    _record(Worker, b'{"writeId":"w","workerId":"a","uid":"u","ordinal":1,"priority":3}'),
    _record(Members, b'{"writeId":"w","epoch":1,"version":2,"members":[{"workerId":"a","uid":"u"}]}'),
    _record(Metadata, b'{"writeId":"w","drift":0.01,"longestLeaseMs":15000,"trimDelayMs":30000,"timing":{"a":1}}'),
    _record(AgreedLedger, b'{"tenure":"ledger","writeId":"w","retentionMs":1000}'),
    _record(AgreedCounters, b'{"tenure":"counters","writeId":"w","timezone":"UTC","fields":{"views":"int:sum"}}'),
    _record(AgreedQueue, b'{"tenure":"queue","writeId":"w","namespace":"default","settings":{"margin":1.5}}'),
    _record(AgreedTtl, b'{"tenure":"ttl","writeId":"w","quarantineMs":1000}'),
    _record(StorageRecord, b'{"writeId":"w","value":{"a":1},"version":1,"writes":["w"]}'),
    _record(Agent, b'{"writeId":"w","workerId":"a","uid":"u"}'),
    Decoder(
        "lock",
        lambda body: decode_lock(body, "door"),
        _JSON,
        b'{"writeId":"w","name":"door","uid":"u","owner":"o","token":1,"holderWriteId":"w","ttlMs":1000}',
    ),
    Decoder(
        "fenced object",
        lambda body: split("k", body),
        ("coordinator.fenced:split",),
        b'{"namespace":"n","epoch":1,"writeId":"w"}\nbody',
    ),
    Decoder(
        "record",
        lambda body: database_records.decode(body, "r"),
        ("database.records:decode", "database.records:write_ids"),
        _ENVELOPE,
    ),
    Decoder("expiry", _reserved(expiry_of), ("database.expiry:expiry_of",), _ENVELOPE),
    Decoder(
        "counted", _reserved(lambda reserved: counted_of(reserved, "r")), ("database.counted:counted_of",), _ENVELOPE
    ),
    Decoder("log entry", lambda body: decode_entry(body, _SEQ), _JSON, _ENTRY),
    Decoder("write id of a log entry", log_write_ids, ("ledger.log:_write_ids",), _ENTRY),
    Decoder(
        "manifest",
        lambda body: decode_manifest(body, _SEQ),
        _JSON,
        b'{"tenure":"snapshot","writeId":"w","seq":7,"epoch":1,"timeMs":1,"machine":1,"chunks":[{"key":"k","size":1,"sha256":"x"}]}',
    ),
    Decoder(
        "events of a queue",
        _machine(QueueMachine),
        (
            "plugins.queue.state:QueueMachine.apply",
            "plugins.queue.worker:QueueWorker._took",
            "ledger.records:LogEntry.decided_as",
        ),
        b'{"tickets":[],"settled":[],"lapsed":[]}',
    ),
    Decoder(
        "events of a schedule",
        _machine(ScheduleMachine),
        ("plugins.scheduler.state:ScheduleMachine.apply", "plugins.scheduler.records:decode_work"),
        b'{"events":[]}',
    ),
    Decoder(
        "events of a ttl",
        _machine(TTLMachine),
        ("plugins.ttl.state:TTLMachine.apply", "plugins.ttl.records:decode_work"),
        b'{"asked":{"r":"a"},"counts":{}}',
    ),
    Decoder(
        "events of counters",
        _machine(CountersMachine),
        ("plugins.counters.records:decode_work",),
        b'{"applied":{"a":1},"tally":{}}',
    ),
    Decoder(
        "snapshot of a queue",
        _restored(QueueMachine),
        ("ledger.machine:LedgerState.restore", "plugins.queue.image:decode"),
        _picture(QueueMachine),
    ),
    Decoder(
        "snapshot of a schedule",
        _restored(ScheduleMachine),
        ("plugins.ledgered.image:decode",),
        _picture(ScheduleMachine),
    ),
    Decoder(
        "snapshot of a ttl", _restored(TTLMachine), ("plugins.ttl.state:TTLMachine.restore",), _picture(TTLMachine)
    ),
    Decoder(
        "snapshot of counters",
        _restored(CountersMachine),
        ("plugins.ledgered.image:decode",),
        _picture(CountersMachine),
    ),
    Decoder(
        "batch of a queue",
        read_header,
        ("plugins.queue.wire:read_header", "plugins.queue.wire:_raise_if_newer"),
        b'{"schema":1,"after":0,"sizes":[2]}\n{}',
    ),
    Decoder("segment of a queue", _segment, ("plugins.queue.wire:Segment.__init__",), _SEGMENT),
    Decoder(
        "body of a message",
        lambda body: shown_body(Held("u", 1, 0, 1, body, PLAIN)),
        ("plugins.queue.looking:shown_body",),
        b'{"n":1}',
    ),
    Decoder(
        "batch of a schedule",
        read_batch,
        ("plugins.scheduler.wire:read_batch", "plugins.scheduler.wire:_schema_of"),
        b'{"schema":1,"after":0,"commands":[{"op":"pause","id":"j"}]}',
    ),
    Decoder(
        "job",
        decode_job,
        ("plugins.scheduler.job:decode_job",),
        b'{"id":"j","schedule":{"type":"every","seconds":2},"target":{"type":"function","name":"f"}}',
    ),
    Decoder(
        "letter of a ttl", read_ttl_letter, ("plugins.ttl.wire:read_letter",), b'{"schema":1,"after":0,"requests":[]}'
    ),
    Decoder("group of the index", ids_in, ("plugins.ttl.index:ids_in",), b'{"schema":1,"ids":["a"]}'),
    Decoder(
        "letter of counters",
        read_counters_letter,
        ("plugins.counters.wire:read_letter",),
        b'{"schema":1,"after":0,"fields":{"v":"int:sum"},"rows":{"v":{"a":[1]}}}',
    ),
    Decoder(
        "poll job",
        lambda body: decode_poll_job("web-0000000001", body),
        _JSON,
        b'{"writeId":"w","id":"web-0000000001","state":"pending"}',
    ),
    Decoder("poll summary", lambda body: decode_summary("web", body), _JSON, b'{"writeId":"w","schedule":"web"}'),
    Decoder("write id of a poll job", poll_write_ids, ("plugins.poll.book:_write_ids",), b'{"writeId":"w"}'),
    Decoder(
        "static starts", static_write_ids, ("plugins.supervisor.static:_write_ids",), b'{"base":1,"writeIds":["w"]}'
    ),
    Decoder("scratch", scratch_ids, ("store.scratch:scratch_ids",), b'{"writeId":"w"}'),
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
    """Was it refused, by one of the errors that say why? Anything else is raised."""
    try:
        decoder.read(body)
    except REFUSALS:
        return True
    return False


def bodies(decoder: Decoder, seed: int, count: int) -> Iterator[bytes]:
    random = Random(f"{decoder.name}/{seed}")
    return (spoilt(decoder.sample, random) for _ in range(count))


assert {COUNTERS, TTL} == {"counters", "ttl"}, "the sample of a record names them"
