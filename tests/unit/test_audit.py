"""The auditor finds what was planted, and nothing else."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from tenure.cli.audit import show
from tenure.coordinator import audit as module
from tenure.coordinator.audit import Audit, Finding, FindingKind, TermEnd, audit
from tenure.coordinator.layout import MEMBERS, METADATA, STATE, term_key
from tenure.election.records import MAX_RECORD_BYTES, Members, Metadata, Record, State, Term, encode
from tenure.errors import SchemaTooNew, StoreUnavailable
from tenure.store import Store
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, After, Request, ScriptedStore, yields

LEADERS = ("ada", "ben", "cyd")


def term(epoch: int, **changes: object) -> Term:
    leader = LEADERS[epoch % 3]
    whole = Term(write_id=f"t{epoch}", epoch=epoch, leader_id=leader, uid=f"u-{leader}", grant_id=f"g{epoch}")
    return msgspec.structs.replace(whole, **changes)


def lease(epoch: int, **changes: object) -> State:
    leader = LEADERS[epoch % 3]
    whole = State(
        write_id="w",
        leader_id=leader,
        uid=f"u-{leader}",
        epoch=epoch,
        grant_id=f"g{epoch}",
        leader_write_id="w",
        lease_duration_ms=15_000,
        renewals=3,
    )
    return msgspec.structs.replace(whole, **changes)


def released(epoch: int, by: str | None, **changes: object) -> State:
    return lease(epoch, leader_id=None, uid=None, previous_leader=by, **changes)


def members(epoch: int) -> Members:
    return Members(write_id="m", epoch=epoch, version=1, members=())


async def write(store: Store, key: str, record: Record) -> None:
    await store.put(key, encode(record))


async def bucket(terms: int, held: State | None = None) -> ScriptedStore:
    store = ScriptedStore()
    for epoch in range(1, terms + 1):
        await write(store, term_key(epoch), term(epoch))
    if held is not None:
        await write(store, STATE, held)
    return store


async def found(store: Store, clock: ScriptedClock | None = None) -> list[FindingKind]:
    result = await audit(store, "default", clock or ScriptedClock())
    assert result.ok is (not result.findings)
    return [finding.kind for finding in result.findings]


@pytest.mark.req("EL-18")
@pytest.mark.parametrize("terms", [1, 2, 15, 16, 17, 40])
async def test_a_whole_history_is_right(terms: int) -> None:
    store = await bucket(terms, lease(terms))
    store.always("get", ANY, yields)
    result = await audit(store, "default", clock := ScriptedClock())
    assert result.ok
    assert result.findings == ()
    assert (result.terms, result.lease_epoch) == (terms, terms)
    assert [seen.epoch for seen in result.timeline] == list(range(1, terms + 1))
    assert all(seen.leader == LEADERS[seen.epoch % 3] and seen.confirmed for seen in result.timeline)
    assert clock.slept == []
    assert store.most_at_once["get"] <= 16


async def test_a_released_lease_and_one_that_is_not_recorded_yet_are_right() -> None:
    assert await found(await bucket(4, released(4, "ben"))) == []
    assert await found(await bucket(4, lease(5, renewals=0))) == []
    assert await found(await bucket(0, lease(1, renewals=0))) == []
    # A winner that was asked to stop before its term was on record gives the lease away, once.
    assert await found(await bucket(4, released(5, "cyd", renewals=1))) == []


async def test_a_new_namespace_and_one_that_does_not_exist() -> None:
    store = ScriptedStore()
    assert not (await audit(store, "default", ScriptedClock())).founded
    await write(store, METADATA, Metadata(write_id="m", drift=0.01, longest_lease_ms=1, trim_delay_ms=1))
    result = await audit(store, "default", ScriptedClock())
    assert result.founded
    assert result.ok
    assert result.terms == 0


async def test_unconfirmed_terms_are_listed_and_are_no_finding() -> None:
    store = await bucket(5, lease(5))
    await write(store, term_key(2), term(2, unconfirmed=True))
    for epoch in (3, 4):  # known by their numbers alone
        await write(store, term_key(epoch), term(epoch, unconfirmed=True, leader_id=None, uid=None, grant_id="unknown"))
    result = await audit(store, "default", ScriptedClock())
    assert result.ok
    assert result.unconfirmed == (2, 3, 4)
    assert [seen.confirmed for seen in result.timeline] == [True, False, False, False, True]


# What is planted


@pytest.mark.req("EL-18")
@pytest.mark.parametrize("missing", [{1}, {1, 2, 3}, {3}, {3, 4}, {2, 5}, {6}])
async def test_a_missing_record_is_found(missing: set[int]) -> None:
    store = await bucket(7, lease(7))
    await store.delete(*map(term_key, missing))
    result = await audit(store, "default", ScriptedClock())
    assert {finding.kind for finding in result.findings} == {FindingKind.MISSING}
    firsts = {epoch for epoch in missing if epoch - 1 not in missing}
    assert [finding.key for finding in result.findings] == [term_key(epoch) for epoch in sorted(firsts)]
    assert not result.ok


async def test_numbers_may_be_missing_before_a_record_that_came_after_damage() -> None:
    store = await bucket(7, lease(7))
    await store.delete(term_key(3), term_key(4))
    await write(store, term_key(5), term(5, after_damage=True))
    result = await audit(store, "default", ScriptedClock())
    assert result.ok
    assert result.timeline[2].after_damage


@pytest.mark.req("EL-18")
async def test_a_record_under_anothers_number_is_found() -> None:
    store = await bucket(5, lease(5))
    await write(store, term_key(3), term(4, leader_id="mallory"))
    result = await audit(store, "default", ScriptedClock())
    assert [(each.kind, each.key) for each in result.findings] == [(FindingKind.MISMATCH, term_key(3))]
    assert "mallory" in result.findings[0].detail
    assert result.terms == 4


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"\xff\xfe", b'{"schemaVersion":1}', b" " * (MAX_RECORD_BYTES + 1)]
)
async def test_an_unreadable_record_is_found(body: bytes) -> None:
    store = await bucket(5, lease(5))
    await store.put(term_key(2), body)
    assert await found(store) == [FindingKind.UNREADABLE]


@pytest.mark.parametrize(
    "name", ["notes.txt", "1.json", "00000000000000000000.json", "00000000000000000002", "2/3.json"]
)
async def test_a_foreign_object_is_found_and_counted_once(name: str) -> None:
    # The lease is ahead of the record, so that the end of the listing is read twice.
    store = await bucket(5, lease(6, renewals=0))
    await store.put(f"terms/{name}", b"hello")
    result = await audit(store, "default", ScriptedClock())
    assert [(each.kind, each.key) for each in result.findings] == [(FindingKind.FOREIGN, f"terms/{name}")]
    assert result.terms == 5


async def test_a_confirmed_term_without_a_leader_is_found() -> None:
    store = await bucket(3, lease(3))
    await write(store, term_key(2), term(2, leader_id=None, uid=None))
    assert await found(store) == [FindingKind.NOBODY]


@pytest.mark.req("EL-18")
async def test_one_grant_under_two_numbers_is_found() -> None:
    store = await bucket(6, lease(6))
    await write(store, term_key(5), term(5, grant_id="g2"))
    result = await audit(store, "default", ScriptedClock())
    assert [(each.kind, each.key) for each in result.findings] == [(FindingKind.SAME_GRANT, term_key(5))]
    assert "epoch 2" in result.findings[0].detail


@pytest.mark.req("EL-18")
async def test_a_lease_that_was_put_back_is_found() -> None:
    assert await found(await bucket(5, lease(4))) == [FindingKind.LEASE_BEHIND]
    assert await found(await bucket(5, lease(1))) == [FindingKind.LEASE_BEHIND]


@pytest.mark.req("EL-18")
@pytest.mark.parametrize("change", [{"grant_id": "another"}, {"leader_id": "mallory"}, {"uid": "another"}])
async def test_an_epoch_with_two_leaders_is_found(change: dict[str, object]) -> None:
    assert await found(await bucket(5, lease(5, **change))) == [FindingKind.LEASE_DIFFERS]


@pytest.mark.req("EL-18")
async def test_an_old_record_that_names_another_leader_is_found() -> None:
    """Its successor noted whose the lease was."""
    store = ScriptedStore()
    for epoch in range(1, 6):
        await write(
            store, term_key(epoch), term(epoch, previous_leader=LEADERS[(epoch - 1) % 3] if epoch > 1 else None)
        )
    await write(store, STATE, lease(5))
    assert await found(store) == []
    await write(store, term_key(3), term(3, leader_id="mallory", previous_leader=LEADERS[2]))
    result = await audit(store, "default", ScriptedClock())
    assert [(each.kind, each.key) for each in result.findings] == [(FindingKind.TWO_LEADERS, term_key(3))]
    assert "'mallory'" in result.findings[0].detail
    assert "'ada'" in result.findings[0].detail
    # Also of a term that nobody led, if it names its winner.
    await write(store, term_key(3), term(3, leader_id="mallory", unconfirmed=True))
    assert await found(store) == [FindingKind.TWO_LEADERS]
    await write(store, term_key(3), term(3, leader_id=None, uid=None, grant_id="unknown", unconfirmed=True))
    assert await found(store) == []
    # What came after damage proves nothing.
    await write(store, term_key(3), term(3, leader_id="mallory", previous_leader=LEADERS[2]))
    await write(store, term_key(4), term(4, after_damage=True, previous_leader=None))
    assert await found(store) == []


@pytest.mark.req("EL-18")
@pytest.mark.parametrize("own", [None, term(5, unconfirmed=True)])
async def test_the_lease_is_the_witness_where_its_winner_has_noted_nothing(own: Term | None) -> None:
    for previous, expected in (("ben", []), ("mallory", [FindingKind.TWO_LEADERS])):
        store = await bucket(4, lease(5, renewals=0, previous_leader=previous))
        if own is not None:
            await write(store, term_key(5), own)
        result = await audit(store, "default", ScriptedClock())
        assert [each.kind for each in result.findings] == expected
        assert {each.key for each in result.findings} <= {term_key(4)}


@pytest.mark.req("EL-18")
@pytest.mark.parametrize(
    "held",
    [lease(5, renewals=1), released(5, "cyd", renewals=2), released(5, "cyd", renewals=1, successor="ada"), lease(5)],
)
async def test_the_newest_term_is_missed_once_it_was_led(held: State) -> None:
    store = await bucket(5, held)
    assert await found(store) == []
    await store.delete(term_key(5))
    result = await audit(store, "default", clock := ScriptedClock())
    assert [(each.kind, each.key) for each in result.findings] == [(FindingKind.MISSING, term_key(5))]
    assert sum(clock.slept) > 0
    late = ScriptedClock(lambda: write(store, term_key(5), term(5)))
    assert await found(store, late) == []


@pytest.mark.req("EL-18")
@pytest.mark.parametrize("held", [lease(5, renewals=0), released(5, "cyd", renewals=1)])
async def test_the_newest_term_is_missed_if_its_leader_wrote_the_members(held: State) -> None:
    store = await bucket(4, held)
    await write(store, MEMBERS, members(4))
    assert await found(store) == []
    await write(store, MEMBERS, members(5))
    assert await found(store) == [FindingKind.MISSING]


@pytest.mark.req("EL-18")
async def test_two_leaders_are_found_after_the_newest_was_released() -> None:
    store = await bucket(5, released(5, "cyd"))
    assert await found(store) == []
    await write(store, term_key(5), term(5, leader_id="mallory", uid="u"))
    result = await audit(store, "default", ScriptedClock())
    assert [(each.kind, each.key) for each in result.findings] == [(FindingKind.LEASE_DIFFERS, STATE)]
    assert "'cyd'" in result.findings[0].detail
    assert "'mallory'" in result.findings[0].detail
    # Whoever gives a lease away leaves its name in it.
    assert await found(await bucket(5, released(5, None))) == [FindingKind.LEASE_DIFFERS]


async def test_a_released_lease_and_a_successor_that_noted_it_agree() -> None:
    """The successor had seen no uid any more; or had seen one, and then the lease was given away after all."""
    for uid in (None, "u-cyd"):
        store = await bucket(4, released(5, "cyd", renewals=1))
        await write(store, term_key(5), term(5, unconfirmed=True, uid=uid))
        assert await found(store) == []
        await write(store, term_key(5), term(5, unconfirmed=True, uid=uid, leader_id="mallory"))
        assert await found(store) == [FindingKind.LEASE_DIFFERS]
    await write(store, term_key(5), term(5, unconfirmed=True, leader_id=None, uid=None, grant_id="unknown"))
    assert await found(store) == []


@pytest.mark.req("EL-18")
async def test_members_of_a_later_epoch_are_a_witness() -> None:
    # The lease and all terms are gone.
    store = ScriptedStore()
    await write(store, MEMBERS, members(3))
    result = await audit(store, "default", ScriptedClock())
    assert result.founded
    assert [(each.kind, each.key) for each in result.findings] == [
        (FindingKind.LEASE_MISSING, STATE),
        (FindingKind.MISSING, term_key(1)),
    ]
    # The lease and the newest terms were put back together.
    for held in (lease(2), released(2, "cyd")):
        store = await bucket(2, held)
        await write(store, MEMBERS, members(4))
        result = await audit(store, "default", ScriptedClock())
        assert [(each.kind, each.key) for each in result.findings] == [
            (FindingKind.LEASE_BEHIND, STATE),
            (FindingKind.MISSING, term_key(3)),
        ]
        assert "epochs 3 to 4 are not on record" in result.findings[1].detail
    # An epoch that was put back, and lost its own term as well.
    await store.delete(term_key(2))
    result = await audit(store, "default", ScriptedClock())
    assert [each.kind for each in result.findings] == [FindingKind.LEASE_BEHIND, FindingKind.MISSING]
    assert "epochs 2 to 4 are" in result.findings[1].detail


async def test_members_of_an_older_epoch_or_unreadable_ones_say_nothing() -> None:
    store = await bucket(3, lease(3))
    for body in (encode(members(1)), encode(members(3)), b"", b"{", b'{"epoch": 9}'):
        await store.put(MEMBERS, body)
        assert await found(store) == []
    await write(store, MEMBERS, msgspec.structs.replace(members(3), schema_version=2))
    with pytest.raises(SchemaTooNew, match=r"members\.json was written by a newer tenure"):
        await audit(store, "default", ScriptedClock())


async def test_members_that_are_written_during_the_audit_are_no_finding() -> None:
    store = await bucket(3, lease(3))
    await write(store, MEMBERS, members(3))

    async def next_leader(request: Request) -> None:
        await write(store, STATE, lease(4))
        await write(store, term_key(4), term(4))
        await write(store, MEMBERS, members(4))

    store.on("get", STATE, After(next_leader))
    result = await audit(store, "default", clock := ScriptedClock())
    assert result.ok, result.findings
    assert clock.slept == []


async def test_a_lease_above_its_history_is_found() -> None:
    assert await found(await bucket(5, lease(7))) == [FindingKind.LEASE_AHEAD]
    assert await found(await bucket(0, lease(2))) == [FindingKind.LEASE_AHEAD]
    for renewals, absent in ((0, "epoch 6 is not"), (1, "epochs 6 to 7 are not")):
        result = await audit(await bucket(5, lease(7, renewals=renewals)), "default", ScriptedClock())
        assert absent in result.findings[0].detail


async def test_a_lease_that_is_gone_or_unreadable_is_found() -> None:
    assert await found(await bucket(2)) == [FindingKind.LEASE_MISSING]
    store = await bucket(2)
    await store.put(STATE, b"garbage")
    assert await found(store) == [FindingKind.LEASE_UNREADABLE]


# What cannot be judged


async def test_a_newer_form_is_not_judged() -> None:
    store = await bucket(3, lease(3))
    await write(store, term_key(2), term(2, schema_version=2))
    with pytest.raises(SchemaTooNew, match="newer tenure"):
        await audit(store, "default", ScriptedClock())
    store = await bucket(3, lease(3, schema_version=2))
    with pytest.raises(SchemaTooNew, match="newer tenure"):
        await audit(store, "default", ScriptedClock())


async def test_a_store_that_does_not_answer_is_not_judged() -> None:
    store = ScriptedStore()
    store.always("list", ANY, "lost")
    with pytest.raises(StoreUnavailable):
        await audit(store, "default", ScriptedClock())


# A fleet that is alive meanwhile


async def test_a_record_that_comes_late_is_no_finding() -> None:
    store = await bucket(5, lease(5))
    await store.delete(term_key(4))
    clock = ScriptedClock(lambda: write(store, term_key(4), term(4, unconfirmed=True)))
    result = await audit(store, "default", clock)
    assert result.ok
    assert result.unconfirmed == (4,)
    assert sum(clock.slept) > 0


async def test_grants_during_the_audit_are_no_finding() -> None:
    """The history was read, and then the leader changed twice: before the lease is read, and after."""
    store = await bucket(5, lease(7))

    async def recorded(request: Request) -> None:
        await write(store, term_key(6), term(6))
        await write(store, term_key(7), term(7))
        await write(store, term_key(8), term(8))
        await write(store, STATE, lease(8))

    store.on("get", STATE, After(recorded))
    result = await audit(store, "default", clock := ScriptedClock())
    assert result.ok, result.findings
    assert (result.terms, result.lease_epoch) == (8, 7)
    assert clock.slept == []


# What a person reads


async def test_how_each_term_ended() -> None:
    store = await bucket(6, lease(6))
    day = "2026-05-01T12:00:"
    await write(store, term_key(1), term(1, elected_at=f"{day}00.000+00:00"))
    await write(store, term_key(2), term(2, elected_at=f"{day}07.500+00:00"))
    await write(store, term_key(3), term(3, elected_at=f"{day}01.000+00:00"))  # by another host's clock
    await write(store, term_key(4), term(4, elected_at="yesterday"))
    await write(store, term_key(5), term(5, unconfirmed=True))
    await write(store, term_key(6), term(6, after_damage=True))
    ends = [(each.ended, each.held_seconds) for each in (await audit(store, "default", ScriptedClock())).timeline]
    replaced, damaged = TermEnd.REPLACED, TermEnd.DAMAGED
    assert ends[:4] == [(replaced, 7.5), (replaced, None), (replaced, None), (replaced, None)]
    assert ends[4:] == [(TermEnd.NEVER_LED, None), (TermEnd.HOLDS, None)]
    await write(store, term_key(5), term(5))
    await write(store, STATE, lease(6, leader_id=None, uid=None, previous_leader="ada"))
    ends = [(each.ended, each.held_seconds) for each in (await audit(store, "default", ScriptedClock())).timeline]
    assert ends[4:] == [(damaged, None), (TermEnd.RELEASED, None)]
    await write(store, STATE, lease(7))
    assert (await audit(store, "default", ScriptedClock())).timeline[-1].ended is TermEnd.REPLACED
    await write(store, STATE, lease(2))
    assert (await audit(store, "default", ScriptedClock())).timeline[-1].ended is TermEnd.UNKNOWN


async def test_a_long_history_tells_how_far_it_is() -> None:
    told: list[int] = []
    await audit(await bucket(50, lease(50)), "default", ScriptedClock(), progress=told.append)
    assert told == [16, 32, 48]


def shown(result: Audit, width: int = 80) -> str:
    console = Console(width=width, highlight=False, file=io.StringIO())
    show(result, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(line[-1] in "┓┃┩│┘" for line in text.splitlines() if line[0] in "┏┃┡│└"), text  # none is cut
    return text


async def test_nobody_has_led_yet() -> None:
    store = ScriptedStore()
    await write(store, METADATA, Metadata(write_id="m", drift=0.01, longest_lease_ms=1, trim_delay_ms=1))
    text = shown(await audit(store, "default", ScriptedClock()))
    assert "nobody has led here yet" in text
    assert "one leader each" not in text


async def test_long_names_are_not_cut() -> None:
    name = "worker-1700000000000-0a1b2c00"
    store = await bucket(3, lease(3, leader_id=name))
    for epoch, second in ((1, "00"), (2, "07"), (3, "09")):
        at = f"2026-05-01T12:00:{second}.000+00:00"
        await write(store, term_key(epoch), term(epoch, leader_id=name, elected_at=at))
    result = await audit(store, "default", ScriptedClock())
    for width, there, absent in (
        (200, ["elected at", "held for about"], ["wider"]),
        (80, ["elected at", "2026-05-01 12:00:00Z", "wider terminal has room for: held for about"], []),
        (60, ["wider terminal has room for: held for about, elected at"], ["2026-05-01"]),
    ):
        text = shown(result, width)
        assert text.count(name) == 3
        assert "…" not in text
        assert all(each in text for each in there)
        assert not any(each in text for each in absent)
    folded = shown(result, 30)
    assert "…" not in folded
    parts = [line.split("│")[2].strip() for line in folded.splitlines() if line.startswith("│")]
    assert "".join(parts) == 3 * name


async def test_what_a_terminal_would_act_upon_is_not_printed() -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202e[red]x\nfake: line"
    store = await bucket(3, lease(3))
    await write(store, term_key(2), term(2, leader_id=evil, elected_at=evil, previous_leader=evil))
    result = await audit(store, "default", ScriptedClock())
    planted = (Finding(FindingKind.FOREIGN, f"terms/{evil}", evil),)  # not every store is as strict about its keys
    text = shown(msgspec.structs.replace(result, findings=planted, ok=False), 1000)
    assert text.count("owned") == 4
    assert not set("\x1b\x07\x9b\u202e") & set(text)
    assert r"\x1b]0;owned\x07\x9b31m\u202e[red]x" in text
    assert not any(line.startswith("fake") for line in text.splitlines())


# Bounds


async def test_no_more_is_kept_than_the_bounds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FINDINGS", 3)
    store = await bucket(12, lease(12))
    for epoch in range(2, 10):
        await store.put(term_key(epoch), b"{")
    result = await audit(store, "default", ScriptedClock())
    assert (len(result.findings), result.findings_left_out) == (3, 5)
    assert not result.ok


async def test_a_number_far_away_costs_nothing() -> None:
    store = await bucket(2, lease(2))
    await write(store, term_key(10**18), term(10**18))
    assert await found(store) == [FindingKind.MISSING, FindingKind.LEASE_BEHIND]


def test_as_json() -> None:
    result = Audit(True, "default", True, 0, None, (), (), 0, ())
    assert msgspec.json.decode(msgspec.json.encode(result)).keys() >= {"ok", "terms", "findings", "timeline"}
