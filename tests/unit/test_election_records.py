"""Bytes from a bucket become a record that keeps its invariants, or a word on what is wrong: never an exception."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.election.records import (
    MAX_LEASE_MS,
    MAX_RECORD_BYTES,
    SCHEMA_VERSION,
    Damage,
    Handoff,
    Member,
    Members,
    Metadata,
    Record,
    Refusal,
    State,
    Term,
    TooNew,
    Worker,
    decode,
    decode_state,
    encode,
    time_of_day,
)
from tests.unit.leases import held, released

KINDS: tuple[type[Record], ...] = (State, Term, Worker, Members, Metadata)

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
ids = st.text("0123456789abcdef", min_size=1, max_size=64)
epochs = st.integers(1, 10**18)
holders = st.one_of(st.just((None, None)), st.tuples(names, ids))
handoffs = st.builds(Handoff, request_id=ids, epoch=epochs, by=names, to=st.none() | names, forced=st.booleans())


@st.composite
def states(draw: st.DrawFn) -> State:
    leader_id, uid = draw(holders)
    return State(
        write_id=draw(ids),
        leader_id=leader_id,
        uid=uid,
        epoch=draw(epochs),
        grant_id=draw(ids),
        leader_write_id=draw(ids),
        lease_duration_ms=draw(st.integers(1, MAX_LEASE_MS)),
        renewals=draw(st.integers(0, 2**62)),
        previous_leader=draw(st.none() | names),
        successor=draw(st.none() | names),
        pinned=draw(st.booleans()),
        handoff=draw(st.none() | handoffs),
        refusal=draw(st.none() | st.builds(Refusal, request_id=ids, reason=names)),
        members_version=draw(st.integers(0, 2**62)),
    )


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def assert_invariants(state: State) -> None:
    assert state.schema_version == SCHEMA_VERSION
    assert (state.leader_id is None) == (state.uid is None) == state.released
    assert 1 <= state.epoch <= 10**18
    assert 1 <= state.lease_duration_ms <= MAX_LEASE_MS
    assert 0 < state.lease_seconds <= MAX_LEASE_MS / 1000
    assert state.renewals >= 0
    assert state.members_version >= 0
    for identity in (state.write_id, state.grant_id, state.leader_write_id):
        assert 1 <= len(identity) <= 64
    for name in (state.leader_id, state.previous_leader, state.successor):
        assert name is None or 1 <= len(name) <= 256
    assert state.request() is None or state.request().epoch == state.epoch  # type: ignore[union-attr]


@given(states())
def test_a_lease_survives_being_written(state: State) -> None:
    assert decode_state(encode(state)) == state
    assert_invariants(state)


@pytest.mark.req("EL-8")
def test_the_lease_has_the_names_that_others_read() -> None:
    """The storage layout is part of the interface: dashboards and other tools read it."""
    fields = json.loads(encode(held()))
    assert fields.keys() >= {
        *("leaderId", "uid", "epoch", "grantId", "leaderWriteId", "writeId", "leaseDurationMs", "leaseExpiresAt"),
        *("renewals", "electedAt", "mandateEndsAt", "previousLeader", "successor", "handoff", "membersVersion"),
        "schemaVersion",
    }
    assert fields["leaderId"] == "ada"
    assert fields["leaseDurationMs"] == 15_000
    assert fields["schemaVersion"] == 1


@pytest.mark.req("EL-8")
def test_a_worker_record_has_the_names_that_others_read() -> None:
    worker = Worker(write_id="w", worker_id="ada", uid="u", ordinal=1)
    assert json.loads(encode(worker)).keys() >= {
        *("workerId", "lastHeartbeat", "registeredAt", "isCoordinator", "epoch", "priority", "schemaVersion"),
    }


# Hostile bytes


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    for kind in KINDS:
        assert isinstance(decode(body, kind), kind | Damage | TooNew)
    state = decode_state(body)
    if isinstance(state, State):
        assert_invariants(state)


@settings(max_examples=400)
@pytest.mark.req("EL-20")
@given(states(), st.data())
def test_a_lease_with_other_values_is_damage_or_keeps_its_invariants(state: State, data: st.DataObject) -> None:
    fields: dict[str, Any] = json.loads(encode(state))
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=3)):
        if data.draw(st.booleans()):
            fields[name] = data.draw(json_values)
        else:
            fields.pop(name, None)
    found = decode_state(json.dumps(fields).encode())
    if isinstance(found, State):
        assert_invariants(found)
    else:
        assert isinstance(found, Damage | TooNew)


@settings(max_examples=300)
@pytest.mark.req("EL-20")
@given(states(), st.data())
def test_a_lease_with_other_bytes_is_damage_or_keeps_its_invariants(state: State, data: st.DataObject) -> None:
    body = bytearray(encode(state))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    torn = bytes(body[: data.draw(st.integers(0, len(body)))])
    for variant in (bytes(body), torn):
        found = decode_state(variant)
        if isinstance(found, State):
            assert_invariants(found)
    assert isinstance(decode_state(torn), Damage | TooNew) or torn == bytes(body)


HOSTILE = {
    "nothing": b"",
    "not JSON": b"<html>502 Bad Gateway</html>",
    "a byte order mark": b"\xef\xbb\xbf" + encode(held()),
    "no UTF-8": encode(held()).replace(b"ada", b"a\xff\xfe"),
    "half a surrogate pair": encode(held()).replace(b"ada", b"\\ud800"),
    "deep arrays": b"[" * 60_000,
    "deep arrays in a field": encode(held())[:-1] + b',"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "a number without end": b'{"schemaVersion":1,"epoch":' + b"9" * 60_000 + b"}",
    "an epoch of nothing": encode(held()).replace(b'"epoch":7', b'"epoch":0'),
    "an epoch below nothing": encode(held()).replace(b'"epoch":7', b'"epoch":-7'),
    "an epoch beyond bounds": encode(held()).replace(b'"epoch":7', b'"epoch":1000000000000000001'),
    "half an epoch": encode(held()).replace(b'"epoch":7', b'"epoch":7.5'),
    "a truth for an epoch": encode(held()).replace(b'"epoch":7', b'"epoch":true'),
    "an endless lease": encode(held()).replace(b"15000", str(MAX_LEASE_MS + 1).encode()),
    "no lease": encode(held()).replace(b"15000", b"0"),
    "a leader without a uid": encode(held()).replace(b'"ada-1"', b"null"),
    "a uid without a leader": encode(held()).replace(b'"ada"', b"null"),
    "an empty leader": encode(held()).replace(b'"ada"', b'""'),
    "a long leader": encode(held(by="x" * 257)),
    "schema 0": encode(held()).replace(b'"schemaVersion":1', b'"schemaVersion":0'),
    "negative schema": encode(held()).replace(b'"schemaVersion":1', b'"schemaVersion":-3'),
    "too large": encode(held())[:-1] + b" " * MAX_RECORD_BYTES + b"}",
    "two records": encode(held()) * 2,
}


@pytest.mark.req("EL-20")
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_a_lease_is_damage(body: bytes) -> None:
    assert isinstance(decode_state(body), Damage)


def test_a_reason_is_short_enough_for_a_log() -> None:
    for body in HOSTILE.values():
        found = decode_state(body)
        assert isinstance(found, Damage)
        assert 0 < len(found.reason) < 300


# A newer tenure


@pytest.mark.parametrize(
    "body",
    [
        encode(msgspec.structs.replace(held(), schema_version=2)),
        b'{"schemaVersion":2}',
        b'{"schemaVersion":2,"epoch":"seven","leaderId":{"name":"ada"}}',
        b'{"schemaVersion":99999999999999999999999}',
    ],
    ids=["same form", "nothing else", "another form", "far ahead"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_form_is_recognised_whatever_else_changed(body: bytes, kind: type[Record]) -> None:
    assert isinstance(decode(body, kind), TooNew)


def test_a_newer_lease_may_break_what_ours_must_keep() -> None:
    """It is not ours to judge: only our own form has our invariants."""
    odd = msgspec.structs.replace(held(), schema_version=2, uid=None)
    assert decode_state(encode(odd)) == TooNew(2)


def test_fields_that_we_do_not_know_are_no_damage() -> None:
    """A later tenure may add fields without a new form."""
    body = encode(held())[:-1] + b',"mood":"sunny","list":[1,{"a":null}]}'
    assert decode_state(body) == held()


def test_fields_that_have_defaults_may_be_left_out() -> None:
    fields = json.loads(encode(held()))
    for name in ("leaseExpiresAt", "handoff", "refusal", "membersVersion", "schemaVersion", "pinned"):
        del fields[name]
    assert decode_state(json.dumps(fields).encode()) == held()


# Bounds


def test_members_may_be_more_than_a_record() -> None:
    members = Members(
        write_id="w", epoch=1, version=1, members=tuple(Member(f"worker-{n:05}", f"u{n}") for n in range(3000))
    )
    body = encode(members)
    assert len(body) > MAX_RECORD_BYTES
    assert isinstance(decode(body, Members), Damage)
    assert decode(body, Members, limit=len(body)) == members


# The lease itself


def test_a_released_lease_says_so() -> None:
    assert not held().released
    assert released().released
    assert released().lease_seconds == 15.0


def test_a_request_for_another_epoch_is_none() -> None:
    """E-6: under another epoch it is ignored."""
    ours = Handoff(request_id="r", epoch=7, by="ops")
    theirs = Handoff(request_id="r", epoch=6, by="ops")
    assert held(handoff=ours).request() is ours
    assert held(handoff=theirs).request() is None
    assert held().request() is None


def test_records_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        held().epoch = 8  # type: ignore[misc]


# Times for people


def test_a_time_of_day() -> None:
    assert time_of_day(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123+00:00"


@given(st.integers())
def test_no_clock_is_too_broken_to_be_written_down(wall_ns: int) -> None:
    assert len(time_of_day(wall_ns)) < 64


def test_years_that_no_calendar_holds_are_left_out() -> None:
    assert time_of_day(10**40) == ""
    assert time_of_day(-(10**400)) == ""
