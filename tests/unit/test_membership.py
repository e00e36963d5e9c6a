"""Who is in the fleet: E-8, and liveness by the store's own times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.fleet import Fleet
from tenure.coordinator.layout import MEMBERS, WORKERS, worker_key
from tenure.coordinator.lease import Identity
from tenure.coordinator.membership import (
    MAX_BODIES_PER_SURVEY,
    MAX_REMOVALS_PER_SURVEY,
    MemberList,
    OwnRecord,
    Roster,
    forgotten_after,
)
from tenure.election.rank import MAX_STEPS
from tenure.election.records import MAX_RECORD_BYTES, Member, Members, Worker, decode, encode
from tenure.errors import StoreUnavailable, WorkerReplaced
from tenure.store import Stored
from tenure.testing import SimulatedClock
from tests.support.store import ANY, CONDITIONAL, After, Request, ScriptedStore, WholeSeconds
from tests.unit.leases import numbered

TIMEOUT = 20.0
TOO_NEW = b'{"schemaVersion":2}'


class Scene:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.store = ScriptedStore(clock=self.clock)
        self.starts = 0

    def own(self, name: str, priority: int = 0) -> OwnRecord:
        """The record of a process that has just started under this name."""
        self.starts += 1
        who = Identity(name, f"{name[:8]}-{self.starts:03}")
        own = OwnRecord(self.store, who, priority, TIMEOUT, self.clock, numbered(f"{who.uid}-w"))
        own.who = who  # type: ignore[attr-defined]
        return own

    def roster(self, own: OwnRecord) -> Roster:
        return Roster(self.store, own, own.who, TIMEOUT, self.clock)  # type: ignore[attr-defined]

    async def stored(self, name: str) -> Worker:
        answer = await self.store.inner.get(worker_key(name))
        assert isinstance(answer, Stored)
        worker = decode(answer.body, Worker)
        assert isinstance(worker, Worker)
        return worker


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def beat(own: OwnRecord, *, healthy: bool = True, leading: bool = False, epoch: int = 0) -> None:
    await own.beat(leading=leading, epoch=epoch, healthy=healthy)


# The store's time of it


async def test_a_listing_tells_the_time_of_our_last_heartbeat(scene: Scene) -> None:
    ada = scene.own("ada")
    roster = scene.roster(ada)
    assert roster.stamped is None
    await beat(ada)
    sent = scene.clock.read()
    scene.clock.advance(2)
    await roster.survey()
    assert roster.stamped is not None
    assert roster.stamped.sent == roster.stamped.heard == sent
    assert roster.stamped.modified.timestamp() == pytest.approx(sent.wall_ns / 1e9, abs=0.001)


async def test_a_heartbeat_that_may_have_been_followed_by_another_tells_no_time(scene: Scene) -> None:
    ada = scene.own("ada")
    roster = scene.roster(ada)
    await beat(ada)
    await roster.survey()
    before = roster.stamped
    scene.clock.advance(5)
    scene.store.on(CONDITIONAL, ANY, "kept")
    scene.store.on("get", ANY, "lost")
    with pytest.raises(StoreUnavailable):
        await beat(ada)  # it was written, and nobody knows when
    await roster.survey()
    assert roster.stamped is before
    await beat(ada)
    await roster.survey()
    assert roster.stamped is not before


# Its own record


@pytest.mark.req("EL-8")
async def test_a_first_heartbeat_registers(scene: Scene) -> None:
    ada = scene.own("ada", priority=3)
    assert ada.registered is None
    await beat(ada, leading=True, epoch=4)
    worker = await scene.stored("ada")
    assert (worker.worker_id, worker.uid, worker.ordinal, worker.priority) == ("ada", "ada-001", 1, 3)
    assert (worker.is_coordinator, worker.epoch, worker.healthy) == (True, 4, True)
    assert worker.registered_at == worker.last_heartbeat != ""
    assert ada.registered == ada.written == scene.clock.read()


async def test_a_heartbeat_is_one_request(scene: Scene) -> None:
    ada = scene.own("ada")
    await beat(ada)
    scene.clock.advance(5)
    scene.store.requests.clear()
    await beat(ada)
    assert scene.store.log == [f"replace {worker_key('ada')}"]
    worker = await scene.stored("ada")
    assert worker.registered_at != worker.last_heartbeat
    assert ada.written == scene.clock.read()
    assert ada.registered != ada.written


async def test_each_start_has_a_higher_ordinal(scene: Scene) -> None:
    for number in range(1, 4):
        await beat(scene.own("ada"))
        assert (await scene.stored("ada")).ordinal == number


async def test_a_record_that_cannot_be_read_is_replaced(scene: Scene) -> None:
    await scene.store.put(worker_key("ada"), b"junk")
    await beat(scene.own("ada"))
    assert (await scene.stored("ada")).ordinal == 1


@pytest.mark.parametrize("fate", ["kept", "twice"])
async def test_a_heartbeat_whose_answer_was_lost_is_recognised(scene: Scene, fate: str) -> None:
    ada = scene.own("ada")
    for _ in range(3):
        scene.store.on(CONDITIONAL, ANY, fate)
        await beat(ada)
        scene.clock.advance(5)
    assert (await scene.stored("ada")).ordinal == 1
    assert scene.store.count("get") == 4  # whether there was one before, and each answer


async def test_a_heartbeat_that_was_lost_is_sent_again(scene: Scene) -> None:
    ada = scene.own("ada")
    await beat(ada)
    scene.store.on(CONDITIONAL, ANY, "lost")
    scene.clock.advance(5)
    await beat(ada)
    assert ada.written == scene.clock.read()


async def test_a_heartbeat_that_cannot_be_known_is_a_failed_request(scene: Scene) -> None:
    ada = scene.own("ada")
    await beat(ada)
    written = ada.written
    scene.clock.advance(5)
    scene.store.on(CONDITIONAL, ANY, "kept")
    scene.store.on("get", ANY, "lost")
    with pytest.raises(StoreUnavailable):
        await beat(ada)
    assert ada.written == written
    await beat(ada)  # what was adopted meanwhile is its own
    assert ada.written == scene.clock.read()


async def test_a_registration_that_failed_is_tried_under_the_same_ordinal(scene: Scene) -> None:
    ada = scene.own("ada")
    scene.store.on("get", ANY, "lost")
    with pytest.raises(StoreUnavailable):
        await beat(ada)
    assert ada.registered is None
    scene.store.on(CONDITIONAL, ANY, *["lost"] * 3)
    with pytest.raises(StoreUnavailable, match="lost"):
        await beat(ada)  # tried so often and no more: the next heartbeat tries again
    assert ada.registered is None
    await beat(ada)
    assert ada.registered is not None
    assert (await scene.stored("ada")).ordinal == 1


@pytest.mark.req("EL-7")
async def test_a_record_that_was_cleaned_away_is_written_again(scene: Scene) -> None:
    """E-8: absent → create again."""
    ada = scene.own("ada")
    await beat(ada)
    await scene.store.delete(worker_key("ada"))
    await beat(ada)
    assert (await scene.stored("ada")).uid == "ada-001"


@pytest.mark.req("EL-14")
async def test_the_older_start_is_told_that_it_was_replaced(scene: Scene) -> None:
    older, newer = scene.own("ada"), scene.own("ada")
    await beat(older)
    await beat(newer)
    with pytest.raises(WorkerReplaced, match="'ada'"):
        await beat(older)
    await beat(newer)
    assert (await scene.stored("ada")).uid == "ada-002"


@pytest.mark.req("EL-14")
async def test_the_newer_start_is_not_put_off_by_a_late_write_of_the_older(scene: Scene) -> None:
    """E-8: lower ordinal → overwrite."""
    older, newer = scene.own("ada"), scene.own("ada")
    await beat(older)
    late = encode(await scene.stored("ada"))
    await beat(newer)
    await scene.store.put(worker_key("ada"), late)
    await beat(newer)
    assert (await scene.stored("ada")).uid == "ada-002"


@pytest.mark.req("EL-14")
async def test_of_two_that_start_at_once_one_stays(scene: Scene) -> None:
    first, second = scene.own("ada"), scene.own("ada")
    await first._find_ordinal()
    await second._find_ordinal()  # both saw nobody
    await beat(first)
    await beat(second)
    assert (await scene.stored("ada")).ordinal == 2
    with pytest.raises(WorkerReplaced):
        await beat(first)
    await beat(second)


@pytest.mark.req("EL-14")
async def test_whoever_was_away_for_so_long_that_its_count_was_lost_gives_way(scene: Scene) -> None:
    """Its record was removed, and the start that came meanwhile began to count at one again."""
    await beat(scene.own("ada"))
    older = scene.own("ada")
    await beat(older)
    assert (await scene.stored("ada")).ordinal == 2
    scene.clock.advance(2 * TIMEOUT)
    await scene.store.delete(worker_key("ada"))
    newer = scene.own("ada")
    await beat(newer)
    assert (await scene.stored("ada")).ordinal == 1
    with pytest.raises(WorkerReplaced):
        await beat(older)
    await beat(newer)


@pytest.mark.req("EL-14")
async def test_a_newer_tenure_under_our_name_replaces_us(scene: Scene) -> None:
    ada = scene.own("ada")
    await beat(ada)
    await scene.store.put(worker_key("ada"), TOO_NEW)
    with pytest.raises(WorkerReplaced):
        await beat(ada)
    answer = await scene.store.get(worker_key("ada"))
    assert isinstance(answer, Stored)
    assert answer.body == TOO_NEW


@pytest.mark.req("EL-14")
async def test_a_newer_tenure_that_lives_under_our_name_is_left_alone(scene: Scene, caplog: Any) -> None:
    key = worker_key("ada")
    await scene.store.put(key, TOO_NEW)
    ada = scene.own("ada")
    for _ in range(3):
        await beat(ada)
        scene.clock.advance(5)
    assert ada.registered is None
    assert len(caplog.records) == 1
    assert "takes no part until that was silent for 42 s" in caplog.text
    later = TOO_NEW.replace(b"}", b',"beat":2}')
    await scene.store.put(key, later)
    with pytest.raises(WorkerReplaced, match=r"newer tenure \(schemaVersion 2\).*give each process an id of its own"):
        await beat(ada)
    await ada.remove()
    answer = await scene.store.get(key)
    assert isinstance(answer, Stored)
    assert answer.body == later
    assert scene.store.count("create replace delete discard list") == 0


@pytest.mark.req("EL-14")
async def test_what_a_newer_tenure_left_behind_long_ago_bars_nobody_from_starting(scene: Scene) -> None:
    """After a rollback. If that one is alive after all, it writes again, and we give way."""
    await scene.store.put(worker_key("ada"), TOO_NEW)
    ada = scene.own("ada")
    silent = 0.0
    while ada.registered is None:
        await beat(ada)
        assert (ada.registered is None) == (silent <= forgotten_after(TIMEOUT))
        silent += 5
        scene.clock.advance(5)
    assert (await scene.stored("ada")).ordinal == 1
    await scene.store.put(worker_key("ada"), TOO_NEW)
    with pytest.raises(WorkerReplaced):
        await beat(ada)


async def test_one_that_takes_our_name_while_we_look_is_left_alone(scene: Scene) -> None:
    for before in (None, b"junk"):
        ada = scene.own("ada")
        await scene.store.delete(worker_key("ada"))
        if before is not None:
            await scene.store.put(worker_key("ada"), before)
        await ada._find_ordinal()
        await scene.store.put(worker_key("ada"), TOO_NEW)
        with pytest.raises(WorkerReplaced):
            await beat(ada)
        answer = await scene.store.get(worker_key("ada"))
        assert isinstance(answer, Stored)
        assert answer.body == TOO_NEW


@pytest.mark.req("EL-11")
async def test_leaving_removes_the_record(scene: Scene) -> None:
    ada = scene.own("ada")
    await ada.remove()  # never registered: nothing to remove
    await beat(ada)
    await ada.remove()
    assert [entry async for entry in scene.store.list(WORKERS)] == []


@pytest.mark.parametrize("name", ["a/b", "ünïcödé", "two words", "..", "x" * 60])
async def test_any_name_will_do(scene: Scene, name: str) -> None:
    own = scene.own(name)
    await beat(own)
    survey = await scene.roster(own).survey()
    assert [member.worker_id for member in survey.members] == [name]


# Liveness


@pytest.mark.req("EL-7")
async def test_whoever_is_silent_for_longer_than_the_timeout_is_gone(scene: Scene) -> None:
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ada)
    await beat(ben)
    roster = scene.roster(ada)
    for expected in ({"ada", "ben"}, {"ada", "ben"}, {"ada"}):
        survey = await roster.survey()
        assert {member.worker_id for member in survey.members} == expected
        scene.clock.advance(10.6)
        await beat(ada)
    assert (await roster.survey()).gone == (worker_key("ben"),)


async def test_the_wall_clock_of_this_host_does_not_matter(scene: Scene) -> None:
    """Only times of the store are compared, with each other."""
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ada)
    await beat(ben)
    here = SimulatedClock()
    here.step_wall(-7200)
    mine = OwnRecord(scene.store, Identity("cyd", "cyd-1"), 0, TIMEOUT, here, numbered("c"))
    await beat(mine)
    survey = await Roster(scene.store, mine, Identity("cyd", "cyd-1"), TIMEOUT, here).survey()
    assert len(survey.members) == 3


async def test_time_since_our_own_last_heartbeat_counts(scene: Scene) -> None:
    """A listing long after our own heartbeat: those who wrote when we did are as old as we are."""
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ada)
    await beat(ben)
    scene.clock.advance(TIMEOUT + 1.5)
    survey = await scene.roster(ada).survey()
    assert [member.worker_id for member in survey.members] == ["ada"]  # we ourselves are alive, whatever it says


@pytest.mark.req("EL-7")
@given(st.floats(0, 1), st.floats(0, TIMEOUT), st.floats(0, 1))
@example(start=0.95, silent=TIMEOUT, share=0.955)
async def test_whole_seconds_in_a_listing_cost_nobody_its_place(start: float, silent: float, share: float) -> None:
    """`share`: of the silence of the one, how much had passed when the other last wrote."""
    scene = Scene()
    scene.store = ScriptedStore(inner=WholeSeconds(clock=scene.clock))
    scene.clock.advance(start)
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ben)
    scene.clock.advance(silent * share)
    await beat(ada)
    scene.clock.advance(silent * (1 - share))
    assert len((await scene.roster(ada).survey()).members) == 2


async def test_without_a_record_of_our_own_nothing_is_judged(scene: Scene) -> None:
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ben)
    with pytest.raises(StoreUnavailable):
        await scene.roster(ada).survey()
    await beat(ada)
    await scene.store.delete(worker_key("ada"))
    with pytest.raises(StoreUnavailable):
        await scene.roster(ada).survey()


@pytest.mark.req("EL-7")
async def test_only_the_long_gone_are_forgotten(scene: Scene) -> None:
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ben)
    roster = scene.roster(ada)
    scene.clock.advance(TIMEOUT + 2)
    await beat(ada)
    survey = await roster.survey()
    assert (survey.gone, survey.forgotten) == ((worker_key("ben"),), ())
    scene.clock.advance(TIMEOUT + 2)
    await beat(ada)
    survey = await roster.survey()
    assert survey.forgotten == (worker_key("ben"),)
    await roster.remove(survey.forgotten)
    assert [entry.key async for entry in scene.store.list(WORKERS)] == [worker_key("ada")]
    await beat(ben)  # it was only very late
    assert len((await roster.survey()).members) == 2


async def test_removals_are_bounded(scene: Scene) -> None:
    keys = [worker_key(f"w{number:04}") for number in range(MAX_REMOVALS_PER_SURVEY + 50)]
    for key in keys:
        await scene.store.put(key, b"junk")
    roster = scene.roster(scene.own("ada"))
    await roster.remove(tuple(keys))
    assert len([entry async for entry in scene.store.list(WORKERS)]) == 50
    await roster.remove(())


# Bodies


async def test_a_body_is_read_once_per_registration(scene: Scene) -> None:
    ada, ben = scene.own("ada"), scene.own("ben", priority=7)
    await beat(ada)
    await beat(ben)
    roster = scene.roster(ada)
    await roster.survey()
    scene.store.requests.clear()
    for _ in range(5):
        scene.clock.advance(5)
        await beat(ada)
        await beat(ben)
        survey = await roster.survey()
    assert scene.store.count("get") == 0
    assert survey.members == (Member("ada", "ada-001"), Member("ben", "ben-002", 7))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
async def test_a_restart_under_the_same_id_is_noticed_whatever_else_changed(
    scene: Scene, before: bool, after: bool
) -> None:
    """A listing shows sizes only: those of two starts differ, also if one was unhealthy or led."""
    ada = scene.own("ada")
    await beat(ada)
    roster = scene.roster(ada)
    for number in range(10):
        ben = scene.own("ben", priority=number)
        await beat(ben, healthy=before if number % 2 else after, leading=number % 3 == 0, epoch=10**number)
        survey = await roster.survey()
        assert Member("ben", ben.who.uid, number) in survey.members  # type: ignore[attr-defined]


async def test_a_change_of_health_is_noticed(scene: Scene) -> None:
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ada)
    await beat(ben)
    roster = scene.roster(ada)
    await roster.survey()
    await beat(ben, healthy=False)
    scene.store.requests.clear()
    await roster.survey()
    assert scene.store.keys_of("get") == [worker_key("ben")]


async def test_bodies_are_read_a_bounded_number_at_a_time(scene: Scene) -> None:
    ada = scene.own("ada")
    await beat(ada)
    for number in range(MAX_BODIES_PER_SURVEY + 50):
        worker = Worker(write_id="w", worker_id=f"w{number:04}", uid=f"u{number}", ordinal=1)
        await scene.store.put(worker_key(worker.worker_id), encode(worker))
    roster = scene.roster(ada)
    scene.store.requests.clear()
    assert len((await roster.survey()).members) == MAX_BODIES_PER_SURVEY
    assert scene.store.count("get") == MAX_BODIES_PER_SURVEY
    assert len((await roster.survey()).members) == MAX_BODIES_PER_SURVEY + 51


async def test_a_large_fleet_does_not_shrink_because_its_leader_is_new(scene: Scene) -> None:
    """It reads every record anew, some at a time; whom the list names stays a member until then, if it is alive."""
    ada = scene.own("ada")
    await beat(ada)
    fleet = MAX_BODIES_PER_SURVEY + 50
    for number in range(fleet):
        worker = Worker(write_id="w", worker_id=f"w{number:04}", uid=f"u{number}", ordinal=1, priority=number)
        await scene.store.put(worker_key(worker.worker_id), encode(worker))
    told = [Member(f"w{number:04}", f"u{number}", number) for number in range(fleet)]
    restarted = Member("w0240", "an earlier start", 7)
    dead, nameless = Member("w9999", "dead"), Member("\ud7ff" * 200, "nobody")
    roster = scene.roster(ada)
    roster.begin_anew((*told[:240], restarted, *told[241:-1], dead, nameless))
    everybody = (Member("ada", "ada-001"), *told)
    scene.store.requests.clear()
    first = (await roster.survey()).members
    assert first == tuple(restarted if member == told[240] else member for member in everybody[:-1])
    assert (await roster.survey()).members == everybody
    assert scene.store.count("get") == fleet + 1


# Whose turn it is


async def plant(scene: Scene, count: int, **fields: Any) -> list[Member]:
    members = []
    for number in range(count):
        worker = Worker(write_id="w", worker_id=f"w{number:04}", uid=f"u{number}", ordinal=1, **fields)
        await scene.store.put(worker_key(worker.worker_id), encode(worker))
        members.append(Member(worker.worker_id, worker.uid, worker.priority, worker.eligible))
    return members


async def place_of(
    scene: Scene, own: OwnRecord, listed: list[Member], but: str | None = None, priority: int = 0
) -> int:
    await beat(own)
    scene.store.requests.clear()
    who = own.who  # type: ignore[attr-defined]
    me = Member(who.worker_id, who.uid, priority)
    return await scene.roster(own).place(me, tuple(listed), but=but, most=5)


@pytest.mark.req("EL-3")
async def test_the_place_in_rank_is_found_in_the_leaders_list(scene: Scene) -> None:
    listed = await plant(scene, 1000)
    for name, place in (("w0003x", 4), ("zoe", 5), ("ada", 0)):
        own = scene.own(name)
        assert await place_of(scene, own, listed) == place
        assert scene.store.count("get") == 0
        await own.remove()


@pytest.mark.req("EL-3")
async def test_whom_the_leader_did_not_list_is_read_until_enough_come_before(scene: Scene) -> None:
    """Otherwise each of a thousand that start together would read two hundred records."""
    await plant(scene, 1000)
    assert await place_of(scene, scene.own("zoe"), []) == 5
    assert scene.store.count("get") <= 8
    listed = [Member(f"w{number:04}", f"u{number}") for number in range(2, 1000)]
    assert await place_of(scene, scene.own("w0001x"), listed) == 2
    assert scene.store.keys_of("get") == [worker_key(name) for name in ("w0000", "w0001", "zoe")]  # whom it lacks


async def test_who_comes_first_reads_a_bounded_number(scene: Scene) -> None:
    await plant(scene, 1000)
    assert await place_of(scene, scene.own("ada"), []) == 0
    assert scene.store.count("get") == MAX_BODIES_PER_SURVEY


@pytest.mark.req("EL-16")
async def test_priority_and_eligibility_count_in_the_place(scene: Scene) -> None:
    bosses = await plant(scene, 3, priority=2)
    assert await place_of(scene, scene.own("ada"), bosses) == 3
    assert await place_of(scene, scene.own("ada"), []) == 3
    assert await place_of(scene, scene.own("boss", 2), [], priority=2) == 0
    idle = await plant(scene, 3, eligible=False)
    assert await place_of(scene, scene.own("zoe", 3), idle, priority=3) == 0


async def test_neither_the_dead_nor_the_one_that_lapsed_come_before(scene: Scene) -> None:
    listed = await plant(scene, 3)
    assert await place_of(scene, scene.own("zoe"), listed, but="u1") == 2
    scene.clock.advance(TIMEOUT + 2)
    await plant(scene, 1)
    assert await place_of(scene, scene.own("zoe"), listed) == 1


async def test_a_holder_that_lapsed_is_not_alive_until_it_writes_again(scene: Scene) -> None:
    """WA-3, E-7: neither in the listing that ranks candidates nor in the next ones, and it has not timed out either."""
    ben, ada = scene.own("ben"), scene.own("ada")
    listed = await plant(scene, 2)
    await beat(ben)
    await beat(ada)
    roster = scene.roster(ada)
    me = Member("ada", ada.who.uid)  # type: ignore[attr-defined]
    await roster.place(me, tuple(listed), but=ben.who.uid, most=5)  # type: ignore[attr-defined]
    assert roster.ranked == (me, *listed)
    assert roster.ranked_all
    survey = await roster.survey()
    assert [member.worker_id for member in survey.members] == ["ada", "w0000", "w0001"]
    assert survey.gone == ()
    scene.clock.advance(2)
    await beat(ben)
    await beat(ada)
    assert [member.worker_id for member in (await roster.survey()).members] == ["ada", "ben", "w0000", "w0001"]


@pytest.mark.req("EL-3")
@pytest.mark.parametrize(("before", "asks"), [(49, True), (50, False), (1000, False)])
async def test_who_surely_comes_last_asks_nobody(scene: Scene, before: int, asks: bool) -> None:
    """All of a fleet want to know it at the same moment."""
    listed = await plant(scene, before + 1)
    who = Identity("zoe", "zoe-1")
    fleet = Fleet(
        *(scene.store, who, CoordinatorConfig(), scene.clock, numbered("zoe-w")), failed=lambda _: None, pulse=str
    )
    await fleet.beat(leading=False, epoch=1, healthy=True)
    fleet.members = tuple(listed)
    scene.store.requests.clear()
    assert await fleet.place("u0") == MAX_STEPS
    assert scene.store.log == ([f"list {WORKERS}"] if asks else [])


async def test_a_record_too_large_to_be_one_has_no_place(scene: Scene) -> None:
    await scene.store.put(worker_key("aaa"), b"x" * (MAX_RECORD_BYTES + 1))
    assert await place_of(scene, scene.own("ben"), []) == 0
    assert scene.store.count("get") == 0


FOREIGN = {
    "junk": b"junk",
    "empty": b"",
    "newer": TOO_NEW,
    "large": b"{" + b" " * MAX_RECORD_BYTES,
    "another's": encode(Worker(write_id="w", worker_id="cyd", uid="u", ordinal=1)),
    "no name at all": encode(Worker(write_id="w", worker_id="\ud7ff" * 200, uid="u", ordinal=1)),
}


@pytest.mark.parametrize("body", FOREIGN.values(), ids=FOREIGN)
async def test_what_is_no_worker_is_no_member(scene: Scene, body: bytes) -> None:
    ada = scene.own("ada")
    await beat(ada)
    await scene.store.put(worker_key("ben"), body)
    scene.store.requests.clear()
    survey = await scene.roster(ada).survey()
    assert [member.worker_id for member in survey.members] == ["ada"]
    if len(body) > MAX_RECORD_BYTES:
        assert f"get {worker_key('ben')}" not in scene.store.log  # not even read


async def test_whoever_left_between_listing_and_reading_is_no_member(scene: Scene) -> None:
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ada)
    await beat(ben)

    async def leave(request: Request) -> None:
        await ben.remove()

    scene.store.on("list", ANY, After(leave))
    assert [member.worker_id for member in (await scene.roster(ada).survey()).members] == ["ada"]


async def test_a_look_at_one_member(scene: Scene) -> None:
    ada, ben = scene.own("ada"), scene.own("ben")
    await beat(ada)
    await beat(ben, healthy=False)
    roster = scene.roster(ada)
    worker = await roster.look_at(Member("ben", "ben-002"))
    assert worker is not None
    assert not worker.healthy
    assert await roster.look_at(Member("ben", "ben-of-before")) is None
    assert await roster.look_at(Member("cyd", "c")) is None


# The list of members

FLEET = (Member("ada", "a-1"), Member("ben", "b-1", 5))


async def test_members_are_written_by_the_leader_and_read_by_the_others(scene: Scene) -> None:
    leader, follower = MemberList(scene.store, numbered("l")), MemberList(scene.store, numbered("f"))
    assert await leader.write(FLEET, epoch=3, version=1)
    assert await follower.read(1)
    assert (follower.members, follower.version) == (FLEET, 1)
    assert not await follower.read(2)  # nothing changed
    assert follower.version == 2


async def test_a_change_of_members_is_one_request(scene: Scene) -> None:
    leader = MemberList(scene.store, numbered("l"))
    await leader.write(FLEET, epoch=3, version=1)
    scene.store.requests.clear()
    assert await leader.write(FLEET[:1], epoch=3, version=2)
    assert scene.store.log == [f"replace {MEMBERS}"]


async def test_a_deposed_leader_does_not_write_over_its_successor(scene: Scene) -> None:
    old, new = MemberList(scene.store, numbered("o")), MemberList(scene.store, numbered("n"))
    assert await old.write(FLEET, epoch=3, version=1)
    assert await new.write(FLEET[:1], epoch=4, version=2)
    assert not await old.write(FLEET, epoch=3, version=3)  # by compare-and-swap
    assert not await old.write(FLEET, epoch=3, version=3)  # by the epoch that it finds there
    follower = MemberList(scene.store, numbered("f"))
    await follower.read(2)
    assert follower.members == FLEET[:1]


@pytest.mark.parametrize("body", [b"junk", b""])
async def test_a_damaged_list_is_written_anew(scene: Scene, body: bytes) -> None:
    await scene.store.put(MEMBERS, body)
    follower = MemberList(scene.store, numbered("f"))
    assert not await follower.read(1)
    assert follower.version == 1  # and not asked for again before the lease names another
    leader = MemberList(scene.store, numbered("l"))
    assert await leader.write(FLEET, epoch=3, version=2)


async def test_a_newer_tenures_list_is_left_alone(scene: Scene) -> None:
    await scene.store.put(MEMBERS, TOO_NEW)
    assert not await MemberList(scene.store, numbered("l")).write(FLEET, epoch=3, version=2)
    answer = await scene.store.get(MEMBERS)
    assert isinstance(answer, Stored)
    assert answer.body == TOO_NEW


async def test_a_newer_tenures_list_that_was_read_is_left_alone_as_well(scene: Scene) -> None:
    await scene.store.put(MEMBERS, TOO_NEW)
    members = MemberList(scene.store, numbered("l"))
    assert not await members.read(1)
    assert not await members.write(FLEET, epoch=3, version=2)
    answer = await scene.store.get(MEMBERS)
    assert isinstance(answer, Stored)
    assert answer.body == TOO_NEW


async def test_a_missing_list_has_no_members(scene: Scene) -> None:
    follower = MemberList(scene.store, numbered("f"))
    assert not await follower.read(4)
    assert follower.members == ()


async def test_a_list_that_could_not_be_read_is_read_again(scene: Scene) -> None:
    await MemberList(scene.store, numbered("l")).write(FLEET, epoch=3, version=1)
    follower = MemberList(scene.store, numbered("f"))
    scene.store.on("get", ANY, "lost")
    with pytest.raises(StoreUnavailable):
        await follower.read(1)
    assert follower.version != 1
    assert await follower.read(1)


async def test_a_write_whose_answer_was_lost_is_made_again(scene: Scene) -> None:
    leader = MemberList(scene.store, numbered("l"))
    scene.store.on(CONDITIONAL, ANY, "kept")
    assert not await leader.write(FLEET, epoch=3, version=1)
    assert await leader.write(FLEET, epoch=3, version=2)
    answer = await scene.store.get(MEMBERS)
    assert isinstance(answer, Stored)
    stored = decode(answer.body, Members)
    assert isinstance(stored, Members)
    assert (stored.members, stored.version, stored.epoch) == (FLEET, 2, 3)


async def test_a_new_term_looks_before_it_writes(scene: Scene) -> None:
    leader = MemberList(scene.store, numbered("l"))
    await leader.write(FLEET, epoch=3, version=1)
    await MemberList(scene.store, numbered("o")).write(FLEET[:1], epoch=4, version=2)
    leader.forget()
    assert await leader.write(FLEET, epoch=5, version=3)


# Found by mutants


async def test_records_behind_the_bound_of_a_listing_are_not_seen(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.coordinator.membership.MAX_LISTED", 3)
    ada, *others = (scene.own(name) for name in ("ada", "bob", "cyd", "dan", "eve"))
    for own in (ada, *others):
        await beat(own)
    fleet = await scene.roster(ada).survey()
    assert [member.worker_id for member in fleet.members] == ["ada", "bob", "cyd"]


async def test_our_own_record_is_seen_also_behind_the_bound(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.coordinator.membership.MAX_LISTED", 2)
    zoe, *others = (scene.own(name) for name in ("zoe", "ada", "bob", "cyd"))
    for own in (zoe, *others):
        await beat(own)
    fleet = await scene.roster(zoe).survey()
    assert [member.worker_id for member in fleet.members] == ["ada", "bob", "zoe"]
