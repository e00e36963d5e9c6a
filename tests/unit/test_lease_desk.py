"""Every request about the lease, on stores that lose, delay, repeat and lie."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from tenure.coordinator.layout import DAMAGED, STATE, TERMS, term_key
from tenure.coordinator.lease import (
    MAX_GAP,
    MAX_REMEMBERED_WRITES,
    Grant,
    Held,
    Identity,
    LeaseDesk,
    Spoilt,
    Taken,
    Unsure,
)
from tenure.election.decide import Knowledge, LookUpHistory, Stand, Survey, Turn, Wait, Watch, decide
from tenure.election.records import Damage, Handoff, State, Term, TooNew, decode, decode_state, encode
from tenure.election.sight import Absent
from tenure.errors import StoreUnavailable
from tenure.store import Faults, Faulty, Outcome, Stored
from tenure.testing import SimulatedClock
from tests.support.clock import ScriptedClock
from tests.support.store import ANY, CONDITIONAL, After, Request, ScriptedStore
from tests.unit.leases import DAMAGE_LAPSE, LAPSE, RULES, held, numbered, released

Send = Callable[[], Awaitable[Outcome]]
TOO_NEW = b'{"schemaVersion":2,"leader":{"name":"ada"}}'


class Scene:
    """A bucket, a clock, and desks at it."""

    def __init__(self) -> None:
        self.clock = ScriptedClock()
        self.store = ScriptedStore(clock=self.clock)

    def desk(self, name: str = "ben", store: Any = None) -> LeaseDesk:
        who = Identity(name, f"{name}-1")
        return LeaseDesk(store or self.store, who, RULES, self.clock, numbered(f"{name}-w"))

    async def look(self, desk: LeaseDesk) -> Any:
        """What is found at a look, with the history where it is no lease."""
        sight = await desk.read()
        if isinstance(sight.found, Absent | Damage) and sight.found.history is None:
            await desk.look_up_history()
        assert desk.sight is not None
        return desk.sight.found

    async def stand(self, desk: LeaseDesk) -> Grant | None:
        """Take what is in sight now, as if it were free."""
        found = await self.look(desk)
        if isinstance(found, State):
            return await desk.stand(Stand(found.epoch + 1, found))
        damaged = isinstance(found, Damage) or bool(found.history)
        return await desk.stand(Stand(1, None, after_damage=damaged))

    async def lead(self, desk: LeaseDesk) -> Grant:
        grant = await self.stand(desk)
        assert grant is not None
        assert await desk.confirm(grant, within=10) is True
        return grant

    async def state(self) -> State:
        stored = await self.store.inner.get(STATE)
        assert isinstance(stored, Stored)
        state = decode_state(stored.body)
        assert isinstance(state, State)
        return state

    async def term(self, epoch: int) -> Term:
        stored = await self.store.inner.get(term_key(epoch))
        assert isinstance(stored, Stored)
        term = decode(stored.body, Term)
        assert isinstance(term, Term)
        return term

    async def keys(self, prefix: str = "") -> list[str]:
        return await self.store.keys(prefix)

    async def record_term(self, epoch: int, **changes: Any) -> None:
        fields: dict[str, Any] = {"leader_id": "ada", "uid": "ada-1", "grant_id": f"g{epoch}"}
        term = Term(write_id=f"t{epoch}", epoch=epoch, **fields | changes)
        await self.store.put(term_key(epoch), encode(term))

    async def ask(self, request_id: str = "r1") -> None:
        """A request from outside (E-6)."""
        state = await self.state()
        handoff = Handoff(request_id=request_id, epoch=state.epoch, by="ops")
        await self.store.put(STATE, encode(msgspec.structs.replace(state, write_id=request_id, handoff=handoff)))

    async def put_lease(self, state: State) -> None:
        await self.store.put(STATE, encode(state))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def yes() -> bool:
    return True


# Looking


async def test_the_clock_is_read_after_the_answer(scene: Scene) -> None:
    """E-2: the lease may have been written a moment before the answer came."""
    await scene.put_lease(held())

    async def answers_late(request: Request) -> None:
        scene.clock.advance(3)

    scene.store.on("get", STATE, After(answers_late))
    sight = await scene.desk().read()
    assert sight.since == sight.last == scene.clock.read()


async def test_a_look_at_an_unchanged_lease_moves_no_body(scene: Scene) -> None:
    await scene.put_lease(held())
    desk = scene.desk()
    first = await desk.read()
    scene.clock.advance(5)
    second = await desk.read()
    assert second.found == first.found == held()
    assert second.since == first.since
    assert second.last == scene.clock.read()


async def test_a_failed_look_leaves_the_watch_as_it_was(scene: Scene) -> None:
    await scene.put_lease(held())
    desk = scene.desk()
    before = await desk.read()
    scene.store.on("get list", STATE, "lost")
    with pytest.raises(StoreUnavailable):
        await desk.read()
    assert desk.sight is before


async def test_a_lease_that_was_rolled_back_is_damage_and_kept(scene: Scene) -> None:
    await scene.put_lease(held(renewals=5))
    desk = scene.desk()
    await desk.read()
    await scene.put_lease(held(epoch=6, grant_id="g6", write_id="w0", leader_write_id="w0"))
    sight = await desk.read()
    assert isinstance(sight.found, Damage)
    assert json.loads(sight.body)["epoch"] == 6
    assert desk.known.epoch == 7


async def test_damage_is_watched_without_reading_it_again(scene: Scene) -> None:
    await scene.store.put(STATE, b"junk")
    desk = scene.desk()
    first = await desk.read()
    scene.clock.advance(30)
    second = await desk.read()
    assert isinstance(second.found, Damage)
    assert second.since == first.since
    assert second.body == b"junk"


async def test_history_is_the_highest_number_that_was_ever_granted(scene: Scene) -> None:
    for epoch in (1, 2, 9):
        await scene.record_term(epoch)
    await scene.store.put(f"{TERMS}notes.txt", b"not a term")
    assert await scene.look(scene.desk()) == Absent(9)


async def test_a_lease_that_vanishes_has_the_history_that_was_seen(scene: Scene) -> None:
    await scene.put_lease(held())
    desk = scene.desk()
    await desk.read()
    await scene.store.delete(STATE)
    assert await scene.look(desk) == Absent(7)


async def test_an_empty_namespace_has_no_history(scene: Scene) -> None:
    assert await scene.look(scene.desk()) == Absent(0)


# Taking


async def test_the_first_grant(scene: Scene) -> None:
    desk = scene.desk()
    sent = scene.clock.read()
    grant = await scene.stand(desk)
    assert grant is not None
    state = await scene.state()
    assert grant.state == state == desk.mine
    assert (state.leader_id, state.uid, state.epoch, state.renewals) == ("ben", "ben-1", 1, 0)
    assert state.leader_write_id == state.write_id
    assert state.lease_duration_ms == 15_000
    assert grant.sent == sent
    assert not grant.after_damage


@pytest.mark.req("EF-1")
async def test_each_grant_is_one_above_the_last_and_clears_what_was_asked(scene: Scene) -> None:
    first = await scene.lead(scene.desk("ada"))
    await scene.ask()
    grant = await scene.lead(scene.desk("ben"))
    state = await scene.state()
    assert (grant.state.epoch, state.epoch) == (2, 2)
    assert state.grant_id != first.state.grant_id
    assert state.handoff is None
    assert state.refusal is None
    assert state.previous_leader == "ada"


async def test_the_sending_is_timed_before_it(scene: Scene) -> None:
    """E-1, also where the requests before it took their time."""
    await scene.put_lease(held())
    desk = scene.desk()
    began = scene.clock.read()

    async def slow(request: Request) -> None:
        scene.clock.advance(4)

    scene.store.on(CONDITIONAL, STATE, slow)
    grant = await scene.stand(desk)
    assert grant is not None
    assert grant.sent == began


async def test_of_two_that_stand_one_wins(scene: Scene) -> None:
    await scene.put_lease(held())
    ada, ben = scene.desk("ada"), scene.desk("ben")
    await ada.read()
    await ben.read()
    await scene.record_term(7)
    assert await ben.stand(Stand(8, held())) is not None
    assert await ada.stand(Stand(8, held())) is None
    assert ada.mine is None
    assert (await scene.state()).leader_id == "ben"


async def test_the_swap_is_on_the_version_in_sight(scene: Scene) -> None:
    """A renewal that came after the last look wins."""
    await scene.put_lease(held())
    await scene.record_term(7)
    desk = scene.desk()
    await desk.read()
    await scene.put_lease(held(write_id="w2", leader_write_id="w2", renewals=4))
    assert await desk.stand(Stand(8, held())) is None
    assert (await scene.state()).leader_id == "ada"


@pytest.mark.parametrize("fate", ["kept", "twice"])
async def test_a_grant_whose_answer_was_lost_is_recognised(scene: Scene, fate: str) -> None:
    scene.store.on(CONDITIONAL, STATE, fate)
    sent = scene.clock.read()
    grant = await scene.stand(scene.desk())
    assert grant is not None
    assert grant.state == await scene.state()
    assert grant.sent == sent


async def test_a_grant_that_never_arrived_is_none(scene: Scene) -> None:
    scene.store.on(CONDITIONAL, STATE, "lost")
    desk = scene.desk()
    assert await scene.stand(desk) is None
    assert desk.mine is None


async def test_a_grant_that_cannot_be_looked_for_is_a_failed_request(scene: Scene) -> None:
    desk = scene.desk()
    await scene.look(desk)
    scene.store.on(CONDITIONAL, STATE, "kept")
    scene.store.on("get list", STATE, "lost")
    with pytest.raises(StoreUnavailable):
        await desk.stand(Stand(1, None))
    assert desk.mine is None


async def test_a_grant_that_lands_late_is_taken_anew_rather_than_led_under(scene: Scene) -> None:
    """Its time ran while nobody knew of it; epoch + 1 over our own record costs nothing (E-4)."""
    desk = scene.desk()
    scene.store.on(CONDITIONAL, STATE, "late")
    assert await scene.stand(desk) is None
    scene.clock.advance(5)
    await scene.store.land()
    found = await scene.look(desk)
    assert isinstance(found, State)
    knowledge = Knowledge(rules=RULES, uid="ben-1", worker_id="ben", sight=desk.sight, may_stand=True)
    action = decide(knowledge, scene.clock.read())
    assert isinstance(action, Stand)
    assert action.epoch == 2
    grant = await desk.stand(action)
    assert grant is not None
    assert grant.state.epoch == 2
    assert await desk.confirm(grant, within=10) is True
    assert (await scene.term(1)).unconfirmed


async def test_a_grant_of_another_start_under_our_name_is_not_ours(scene: Scene) -> None:
    """I-3: a process leads only under a grant that it issued itself."""
    desk = scene.desk()
    await scene.look(desk)
    older = LeaseDesk(scene.store, Identity("ben", "ben-0"), RULES, scene.clock, numbered("old-w"))
    await scene.lead(older)
    assert await desk.stand(Stand(1, None)) is None
    assert desk.mine is None


async def test_a_lease_given_to_us_is_pinned_and_others_is_not(scene: Scene) -> None:
    await scene.record_term(7)
    await scene.put_lease(released("ben", pinned=True))
    grant = await scene.stand(scene.desk("ben"))
    assert grant is not None
    assert grant.state.pinned
    assert grant.state.previous_leader == "ada"
    await scene.put_lease(released("cyd", pinned=True, epoch=9, write_id="w9", leader_write_id="w9"))
    grant = await scene.stand(scene.desk("ben"))
    assert grant is not None
    assert not grant.state.pinned


# Confirming: E-3


async def test_a_confirmed_term_is_on_record(scene: Scene) -> None:
    grant = await scene.lead(scene.desk())
    term = await scene.term(1)
    assert (term.epoch, term.leader_id, term.uid, term.grant_id) == (1, "ben", "ben-1", grant.state.grant_id)
    assert not term.unconfirmed
    assert not term.after_damage


@pytest.mark.req("EL-18")
@pytest.mark.parametrize("fate", ["kept", "twice", "lost"])
async def test_a_term_whose_answer_was_lost_is_read_back(scene: Scene, fate: str) -> None:
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None
    scene.store.on(CONDITIONAL, term_key(1), fate)
    assert await desk.confirm(grant, within=10) is True
    assert (await scene.term(1)).grant_id == grant.state.grant_id


async def test_a_success_that_was_not_one_does_not_make_a_leader(scene: Scene) -> None:
    """Something on the way answers 200 to everything: what leads to leadership is read from the store itself."""
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None
    scene.store.on(CONDITIONAL, term_key(1), "lied")
    assert await desk.confirm(grant, within=10) is None
    assert await scene.keys(TERMS) == []
    assert await desk.confirm(grant, within=10) is True  # the next try goes through
    assert await scene.keys(TERMS) == [term_key(1)]


async def test_a_success_that_hid_anothers_record_does_not_make_a_leader(scene: Scene) -> None:
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None
    await scene.record_term(1, leader_id="ada")
    scene.store.on(CONDITIONAL, term_key(1), "lied")
    assert await desk.confirm(grant, within=10) is False


async def test_a_term_that_is_anothers_is_not_led(scene: Scene) -> None:
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None
    await scene.record_term(1, leader_id="ada", grant_id="hers")
    before = await scene.term(1)
    assert await desk.confirm(grant, within=10) is False
    assert await scene.term(1) == before


@pytest.mark.parametrize("body", [b"junk", TOO_NEW, b""])
async def test_a_term_that_cannot_be_read_is_anothers(scene: Scene, body: bytes) -> None:
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None
    await scene.store.put(term_key(1), body)
    assert await desk.confirm(grant, within=10) is False


async def test_after_a_term_was_anothers_our_own_lease_is_not_free(scene: Scene) -> None:
    """Whoever recorded that epoch may lead under it: our own record is damage, not ours to take at once."""
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None
    await scene.record_term(1, leader_id="ada", grant_id="hers")
    assert await desk.confirm(grant, within=10) is False
    desk.let_go()
    found = await scene.look(desk)
    assert isinstance(found, Damage)


async def test_a_confirmation_that_cannot_be_known_can_be_tried_again(scene: Scene) -> None:
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None
    scene.store.on(CONDITIONAL, term_key(1), "late", "late")
    scene.store.always("get list", term_key(1), "lost")
    assert await desk.confirm(grant, within=10) is None
    scene.store.end_script()
    await scene.store.land()
    assert await desk.confirm(grant, within=10) is True  # an earlier copy landed, and is known by its id
    assert len(await scene.keys(TERMS)) == 1


async def test_a_confirmation_ends_with_the_time_that_it_has(scene: Scene) -> None:
    desk = scene.desk()
    grant = await scene.stand(desk)
    assert grant is not None

    scene.store.on(CONDITIONAL, term_key(1), "lost", "lost", "lost", "lost")
    before = len(scene.store.log)
    assert await desk.confirm(grant, within=0.0) is None
    assert scene.store.log[before:] == [f"create {term_key(1)}"]


# Terms that nobody recorded: E-3, EL-18


@pytest.mark.req("EL-18")
async def test_a_predecessor_that_never_got_so_far_is_recorded_by_its_successor(scene: Scene) -> None:
    assert await scene.stand(scene.desk("ada")) is not None  # and dies before it confirms
    await scene.lead(scene.desk("ben"))
    first, second = await scene.term(1), await scene.term(2)
    assert first.unconfirmed
    assert (first.leader_id, first.uid) == ("ada", "ada-1")
    assert not second.unconfirmed


@pytest.mark.req("EL-18")
async def test_the_record_of_a_predecessor_is_left_as_it_is(scene: Scene) -> None:
    await scene.lead(scene.desk("ada"))
    before = await scene.term(1)
    await scene.lead(scene.desk("ben"))
    assert await scene.term(1) == before


@pytest.mark.req("EL-18")
async def test_numbers_that_nobody_recorded_are_recorded_too(scene: Scene) -> None:
    await scene.record_term(3)
    await scene.put_lease(held(epoch=7))
    await scene.lead(scene.desk("ben"))
    assert await scene.keys(TERMS) == [term_key(epoch) for epoch in (3, 4, 5, 6, 7, 8)]
    assert [(await scene.term(epoch)).unconfirmed for epoch in (4, 5, 6, 7, 8)] == [True, True, True, True, False]
    assert (await scene.term(5)).leader_id is None
    assert (await scene.term(7)).leader_id == "ada"


async def test_only_so_many_missing_numbers_are_looked_at(scene: Scene) -> None:
    await scene.put_lease(held(epoch=1000))
    await scene.lead(scene.desk("ben"))
    assert len(await scene.keys(TERMS)) == MAX_GAP + 1


@pytest.mark.req("EL-18")
async def test_a_released_lease_names_whom_it_was_taken_from(scene: Scene) -> None:
    await scene.put_lease(released("ben"))
    await scene.lead(scene.desk("ben"))
    assert (await scene.term(7)).leader_id == "ada"


@pytest.mark.req("EL-18")
async def test_nobody_takes_the_lease_over_a_term_that_cannot_be_recorded(scene: Scene) -> None:
    assert await scene.stand(scene.desk("ada")) is not None
    ben = scene.desk("ben")
    scene.store.on(CONDITIONAL, term_key(1), "lost")
    with pytest.raises(StoreUnavailable):
        await scene.stand(ben)
    assert (await scene.state()).leader_id == "ada"
    await scene.lead(ben)
    assert await scene.keys(TERMS) == [term_key(1), term_key(2)]
    assert (await scene.term(1)).unconfirmed


@pytest.mark.req("EF-1", "EL-20")
async def test_a_lease_put_back_between_a_grant_and_its_record_is_not_granted_again(scene: Scene) -> None:
    """The grant that is passed over is on record before the next one is taken: its number is used up."""
    await scene.lead(scene.desk("ada"))
    first = await scene.state()
    ben = scene.desk("ben")
    passed_over = await scene.stand(ben)
    assert passed_over is not None
    assert await scene.stand(scene.desk("cyd")) is not None
    await scene.put_lease(first)
    assert await scene.stand(scene.desk("dan")) is None
    assert await ben.confirm(passed_over, within=10) is False


@pytest.mark.req("EL-20")
async def test_a_lease_whose_epoch_is_on_record_for_another_grant_is_damaged(scene: Scene) -> None:
    await scene.put_lease(held())
    await scene.record_term(held().epoch, leader_id="cyd", grant_id="another")
    desk = scene.desk()
    assert await scene.stand(desk) is None
    assert desk.sight is not None
    assert isinstance(desk.sight.found, Damage)


@pytest.mark.req("EL-18")
async def test_a_predecessor_that_was_recorded_by_its_successor_does_not_lead(scene: Scene) -> None:
    ada = scene.desk("ada")
    grant = await scene.stand(ada)
    assert grant is not None
    await scene.lead(scene.desk("ben"))
    assert await ada.confirm(grant, within=10) is False


@pytest.mark.req("EF-1")
@pytest.mark.req("EL-20")
@pytest.mark.parametrize("recorded", [8, 9, 12])
async def test_an_epoch_that_is_on_record_means_an_old_lease(scene: Scene, recorded: int) -> None:
    """A backup was put back before this process looked for the first time: nothing is granted twice."""
    await scene.put_lease(held())
    await scene.record_term(recorded, leader_id="cyd")
    desk = scene.desk()
    assert await scene.stand(desk) is None
    assert desk.mine is None
    assert await scene.state() == held()
    assert desk.sight is not None
    assert isinstance(desk.sight.found, Damage)
    assert desk.sight.body == encode(held())


@pytest.mark.req("EF-1")
@pytest.mark.req("EL-20")
async def test_an_old_lease_is_rebuilt_above_the_history(scene: Scene) -> None:
    await scene.put_lease(held())
    await scene.record_term(12, leader_id="cyd")
    desk = scene.desk()
    assert await scene.stand(desk) is None
    grant = await scene.stand(desk)
    assert grant is not None
    assert grant.state.epoch == 13
    assert grant.after_damage


async def test_whoever_cannot_see_the_terms_does_not_stand(scene: Scene) -> None:
    await scene.put_lease(held())
    desk = scene.desk()
    await desk.read()
    scene.store.on("get list", TERMS, "lost")
    with pytest.raises(StoreUnavailable):
        await desk.stand(Stand(8, held()))
    assert await scene.state() == held()


@pytest.mark.req("EL-20")
async def test_a_namespace_that_was_empty_and_then_lost_its_lease_is_rebuilt(scene: Scene) -> None:
    desk = scene.desk()
    assert await scene.look(desk) == Absent(0)
    await scene.lead(scene.desk("ada"))
    await scene.store.delete(STATE)
    grant = None
    for _ in range(300):
        now = scene.clock.read()
        assert desk.sight is not None
        turn = Turn(desk.sight.mark, 0.0, now)
        action = decide(
            Knowledge(rules=RULES, uid="ben-1", worker_id="ben", sight=desk.sight, turn=turn, may_stand=True), now
        )
        match action:
            case Wait() | Survey() | Watch():
                scene.clock.advance(1)
                await desk.read()
            case LookUpHistory():
                await desk.look_up_history()
            case Stand():
                grant = await desk.stand(action)
                scene.clock.advance(1)
                await desk.read()
        if grant is not None:
            break
    assert grant is not None
    assert grant.state.epoch == 2


@pytest.mark.req("EL-20")
async def test_a_lease_whose_epoch_is_on_record_as_anothers_is_not_taken(scene: Scene) -> None:
    """That one may lead, and be granted more time than the lease in sight says."""
    await scene.put_lease(held())
    await scene.record_term(7, leader_id="cyd", grant_id="another")
    desk = scene.desk()
    assert await scene.stand(desk) is None
    assert desk.sight is not None
    assert isinstance(desk.sight.found, Damage)
    assert await scene.state() == held()


async def test_a_lease_whose_term_its_successor_recorded_is_as_good_as_any(scene: Scene) -> None:
    """Somebody recorded it, won the next epoch, and died before it wrote that."""
    await scene.put_lease(held())
    await scene.record_term(7, grant_id="unknown", unconfirmed=True)
    assert await scene.stand(scene.desk()) is not None


# Renewing


async def test_a_renewal_is_one_request(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    before = len(scene.store.log)
    scene.clock.advance(5)
    sent = scene.clock.read()
    assert await desk.renew(sent, yes) == Held(sent, landed=True)
    assert scene.store.log[before:] == [f"replace {STATE}"]
    state = await scene.state()
    assert state == desk.mine
    assert (state.renewals, state.epoch) == (1, 1)
    assert state.leader_write_id == state.write_id


async def test_renewals_keep_the_grant_and_change_the_write(scene: Scene) -> None:
    desk = scene.desk()
    grant = await scene.lead(desk)
    writes = {grant.state.write_id}
    for number in range(1, 4):
        await desk.renew(scene.clock.read(), yes)
        state = await scene.state()
        assert state.grant_id == grant.state.grant_id
        assert state.elected_at == grant.state.elected_at
        assert state.renewals == number
        writes.add(state.leader_write_id)
    assert len(writes) == 4


async def test_changes_go_with_a_renewal(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    await desk.renew(scene.clock.read(), yes, members_version=4, pinned=True)
    state = await scene.state()
    assert (state.members_version, state.pinned) == (4, True)


@pytest.mark.parametrize("fate", ["kept", "twice"])
async def test_a_renewal_whose_answer_was_lost_counts_from_its_sending(scene: Scene, fate: str) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    scene.clock.advance(5)
    sent = scene.clock.read()
    scene.store.on(CONDITIONAL, STATE, fate)
    assert await desk.renew(sent, yes) == Held(sent, landed=True)
    scene.clock.advance(5)
    sent = scene.clock.read()
    assert await desk.renew(sent, yes) == Held(sent, landed=True)  # the version that was read back is the right one


async def test_a_renewal_that_never_arrived_confirms_nothing(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    scene.store.on(CONDITIONAL, STATE, "lost")
    assert await desk.renew(scene.clock.read(), yes) == Held(None)
    assert await desk.renew(sent := scene.clock.read(), yes) == Held(sent, landed=True)


async def test_a_renewal_that_landed_late_counts_from_its_own_sending(scene: Scene) -> None:
    """E-1: not from the sending of the one that found it."""
    desk = scene.desk()
    await scene.lead(desk)
    first = scene.clock.read()
    scene.store.on(CONDITIONAL, STATE, "late")
    assert await desk.renew(first, yes, members_version=9) == Held(None)
    scene.clock.advance(3)
    await scene.store.land()
    assert await desk.renew(scene.clock.read(), yes) == Held(first, landed=False)
    assert (await scene.state()).members_version == 9


@pytest.mark.req("EL-17")
async def test_a_request_that_came_between_does_not_cost_the_renewal(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    await scene.ask()
    scene.clock.advance(1)
    standing = await desk.renew(scene.clock.read(), yes)
    assert standing == Held(scene.clock.read(), landed=True)
    state = await scene.state()
    assert state.renewals == 1
    assert state.handoff is not None  # it stays until it was answered
    assert desk.mine is not None
    assert desk.mine.request() is not None


async def test_the_second_try_counts_from_its_own_sending(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    first = scene.clock.read()

    async def interfere(request: Request) -> None:
        await scene.ask()
        scene.clock.advance(2)

    scene.store.on(CONDITIONAL, STATE, interfere)
    standing = await desk.renew(first, yes)
    assert isinstance(standing, Held)
    assert standing.landed
    assert standing.sent == scene.clock.read() != first


async def test_whoever_lost_the_lease_meanwhile_does_not_try_again(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    await scene.ask()
    before = await scene.state()
    assert await desk.renew(scene.clock.read(), lambda: False) == Held(None)
    assert await scene.state() == before


async def test_requests_that_keep_coming_between_do_not_hold_it_up_for_ever(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    asks = iter(range(10))

    async def interfere(request: Request) -> None:
        await scene.ask(f"r{next(asks)}")

    interfering = scene.store.on(CONDITIONAL, STATE, *[interfere] * 10)
    assert await desk.renew(scene.clock.read(), yes) == Held(None)
    assert len(interfering.left) == 8


async def test_a_request_after_a_lost_answer_hides_nothing(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    sent = scene.clock.read()
    scene.store.on(CONDITIONAL, STATE, "kept")

    async def ask(request: Request) -> None:
        await scene.ask()

    scene.store.on("get", ANY, ask)
    assert await desk.renew(sent, yes) == Held(sent, landed=True)
    assert desk.mine is not None
    assert desk.mine.request() is not None


async def test_a_lease_that_another_took_is_taken(scene: Scene) -> None:
    ada, ben = scene.desk("ada"), scene.desk("ben")
    await scene.lead(ada)
    await scene.lead(ben)
    assert await ada.renew(scene.clock.read(), yes) == Taken("ben")
    assert (await scene.state()).leader_id == "ben"


@pytest.mark.req("EL-20")
@pytest.mark.parametrize("body", [None, b"junk", TOO_NEW], ids=["gone", "junk", "newer"])
async def test_a_lease_that_was_spoilt_is_not_mended_by_its_holder(scene: Scene, body: bytes | None) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    if body is None:
        await scene.store.delete(STATE)
    else:
        await scene.store.put(STATE, body)
    assert isinstance(await desk.renew(scene.clock.read(), yes), Spoilt)
    if body is None:
        assert STATE not in await scene.keys()
    else:
        stored = await scene.store.get(STATE)
        assert isinstance(stored, Stored)
        assert stored.body == body


async def test_a_store_that_says_nothing_leaves_it_open(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    scene.store.on(CONDITIONAL, STATE, "lost")
    scene.store.on("get list", STATE, "lost")
    standing = await desk.renew(scene.clock.read(), yes)
    assert isinstance(standing, Unsure)
    assert "replace" in str(standing.error), "what it said to the write"
    assert await desk.renew(sent := scene.clock.read(), yes) == Held(sent, landed=True)


async def test_a_lease_put_back_under_its_holder_goes_on_counting(scene: Scene) -> None:
    """Followers who saw the higher count would call it rolled back otherwise."""
    desk = scene.desk()
    await scene.lead(desk)
    old = await scene.state()
    for _ in range(3):
        await desk.renew(scene.clock.read(), yes)
    await scene.put_lease(old)
    await desk.renew(scene.clock.read(), yes)
    await desk.renew(scene.clock.read(), yes)
    assert (await scene.state()).renewals > 3


async def test_only_so_many_writes_are_remembered(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    for _ in range(3 * MAX_REMEMBERED_WRITES):
        await desk.renew(scene.clock.read(), yes)
    assert len(desk._sent) == MAX_REMEMBERED_WRITES


# Releasing


@pytest.mark.req("EL-11")
async def test_a_release_names_the_successor_and_keeps_the_epoch(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    assert await desk.release("cyd", pinned=True) is True
    state = await scene.state()
    assert state.released
    assert (state.leader_id, state.uid, state.successor, state.pinned) == (None, None, "cyd", True)
    assert (state.epoch, state.previous_leader) == (1, "ben")
    assert state.leader_write_id == state.write_id


async def test_a_release_answers_the_request(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    await scene.ask()
    assert await desk.release(None, pinned=False) is True  # after one re-read: the version had moved
    state = await scene.state()
    assert state.released
    assert state.handoff is None


@pytest.mark.parametrize("fate", ["kept", "twice"])
async def test_a_release_whose_answer_was_lost_is_recognised(scene: Scene, fate: str) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    scene.store.on(CONDITIONAL, STATE, fate)
    assert await desk.release("cyd", pinned=False) is True
    assert (await scene.state()).successor == "cyd"


async def test_a_release_that_was_lost_is_sent_again_once(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    scene.store.on(CONDITIONAL, STATE, "lost")
    assert await desk.release(None, pinned=False) is True
    assert (await scene.state()).released


async def test_a_release_that_cannot_be_known_says_so(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    scene.store.on(CONDITIONAL, STATE, "lost", "lost")
    assert await desk.release(None, pinned=False) is None
    scene.store.on(CONDITIONAL, STATE, "kept")
    scene.store.on("get list", STATE, "lost")
    assert await desk.release(None, pinned=False) is None


async def test_a_lease_that_is_anothers_is_not_released(scene: Scene) -> None:
    ada, ben = scene.desk("ada"), scene.desk("ben")
    await scene.lead(ada)
    await scene.lead(ben)
    before = await scene.state()
    assert await ada.release("cyd", pinned=False) is False
    assert await scene.state() == before


@pytest.mark.parametrize("body", [None, b"junk", TOO_NEW], ids=["gone", "junk", "newer"])
async def test_a_spoilt_lease_is_not_released(scene: Scene, body: bytes | None) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    if body is None:
        await scene.store.delete(STATE)
    else:
        await scene.store.put(STATE, body)
    assert await desk.release(None, pinned=False) is False


async def test_a_released_lease_can_be_taken_by_anybody(scene: Scene) -> None:
    ada, ben = scene.desk("ada"), scene.desk("ben")
    await scene.lead(ada)
    await ada.release("ben", pinned=False)
    grant = await scene.lead(ben)
    assert grant.state.epoch == 2


async def test_after_letting_go_nothing_is_held_and_everything_is_seen_anew(scene: Scene) -> None:
    desk = scene.desk()
    await scene.lead(desk)
    desk.let_go()
    assert desk.mine is None
    assert desk.sight is None
    assert desk.known.epoch == 1
    assert isinstance(await scene.look(desk), State)


# Damage: E-9


@pytest.mark.req("EL-20")
async def test_damage_is_set_aside_and_rebuilt_above_the_history(scene: Scene) -> None:
    for epoch in (1, 2, 5):
        await scene.record_term(epoch)
    await scene.store.put(STATE, b"junk")
    desk = scene.desk()
    grant = await scene.lead(desk)
    assert grant.state.epoch == 6
    assert (await scene.term(6)).after_damage
    (aside,) = await scene.keys(DAMAGED)
    stored = await scene.store.get(aside)
    assert isinstance(stored, Stored)
    assert stored.body == b"junk"
    assert hashlib.sha256(b"junk").hexdigest()[:32] in aside


@pytest.mark.req("EL-20")
async def test_a_lost_lease_is_rebuilt_above_the_history(scene: Scene) -> None:
    await scene.record_term(5)
    grant = await scene.lead(scene.desk())
    assert grant.state.epoch == 6
    assert grant.after_damage


@pytest.mark.req("EL-20")
async def test_what_was_seen_counts_as_history_even_without_a_record(scene: Scene) -> None:
    await scene.put_lease(held(epoch=40))
    desk = scene.desk()
    await desk.read()
    await scene.store.put(STATE, b"junk")
    grant = await scene.stand(desk)
    assert grant is not None
    assert grant.state.epoch == 41


@pytest.mark.req("EL-20")
@pytest.mark.parametrize("fate", ["kept", "twice"])
async def test_setting_aside_the_same_damage_twice_is_fine(scene: Scene, fate: str) -> None:
    await scene.store.put(STATE, b"junk")
    first, second = scene.desk("ada"), scene.desk("ben")
    await scene.look(first)
    await scene.look(second)
    assert await first.rebuild(first.sight) == 1  # type: ignore[arg-type]
    scene.store.on(CONDITIONAL, STATE, fate)
    grant = await second.stand(Stand(1, None, after_damage=True))
    assert grant is not None
    assert len(await scene.keys(DAMAGED)) == 1


@pytest.mark.req("EL-20")
async def test_damage_that_cannot_be_set_aside_is_not_overwritten(scene: Scene) -> None:
    await scene.store.put(STATE, b"junk")
    desk = scene.desk()
    await scene.look(desk)
    digest = hashlib.sha256(b"junk").hexdigest()[:32]
    scene.store.on(CONDITIONAL, f"{DAMAGED}state-{digest}.json", "lost")
    with pytest.raises(StoreUnavailable):
        await desk.stand(Stand(1, None, after_damage=True))
    stored = await scene.store.get(STATE)
    assert isinstance(stored, Stored)
    assert stored.body == b"junk"


@pytest.mark.req("EL-20")
@pytest.mark.parametrize("body", [None, b"junk"], ids=["gone", "junk"])
async def test_a_grant_since_the_watch_began_starts_it_anew(scene: Scene, body: bytes | None) -> None:
    """Another rebuilt it and may lead, and it was lost again in the same way: the same sight is not the same loss."""
    await scene.record_term(5)
    if body is not None:
        await scene.store.put(STATE, body)
    desk = scene.desk()
    await scene.look(desk)
    scene.clock.advance(30)
    await scene.record_term(6)
    assert await desk.stand(Stand(1, None, after_damage=True)) is None
    assert desk.sight is not None
    assert desk.sight.since == scene.clock.read()
    assert desk.mine is None
    assert await scene.keys(DAMAGED) == []
    grant = await desk.stand(Stand(1, None, after_damage=True))
    assert grant is not None
    assert grant.state.epoch == 7


@pytest.mark.req("EL-20")
async def test_damage_that_changed_since_the_last_look_is_not_overwritten(scene: Scene) -> None:
    await scene.store.put(STATE, b"junk")
    desk = scene.desk()
    await scene.look(desk)
    await scene.put_lease(held())
    assert await desk.stand(Stand(1, None, after_damage=True)) is None
    assert await scene.state() == held()


@pytest.mark.req("EL-20")
async def test_a_newer_tenures_lease_is_never_overwritten(scene: Scene) -> None:
    """Whatever is decided is decided by what is in sight: `decide` never stands on it, for however long."""
    await scene.store.put(STATE, TOO_NEW)
    desk = scene.desk()
    for _ in range(10):
        assert await scene.look(desk) == TooNew(2)
        scene.clock.advance(DAMAGE_LAPSE)
        assert desk.sight is not None
        turn = Turn(desk.sight.mark, 0.0, scene.clock.read())
        knowledge = Knowledge(rules=RULES, uid="ben-1", worker_id="ben", sight=desk.sight, turn=turn, may_stand=True)
        assert decide(knowledge, scene.clock.read()) == Wait(None)
    stored = await scene.store.get(STATE)
    assert isinstance(stored, Stored)
    assert stored.body == TOO_NEW


@pytest.mark.req("EL-20")
async def test_a_lease_that_turned_newer_meanwhile_is_not_overwritten(scene: Scene) -> None:
    await scene.record_term(7)
    await scene.put_lease(held())
    desk = scene.desk()
    await desk.read()
    await scene.store.put(STATE, TOO_NEW)
    assert await desk.stand(Stand(8, held())) is None
    stored = await scene.store.get(STATE)
    assert isinstance(stored, Stored)
    assert stored.body == TOO_NEW


# On a store that does all of it at once


@pytest.mark.req("EF-1")
@pytest.mark.req("EL-18")
@pytest.mark.parametrize("seed", range(30))
async def test_epochs_rise_by_one_and_each_is_recorded_once_on_a_store_that_misbehaves(seed: int) -> None:
    """Three desks take the lease from each other in turn. A grant that is confirmed stays the only one of its epoch."""
    scene = Scene()
    faults = Faults(
        lost_request=0.1, lost_reply=0.15, late_landing=0.1, repeated=0.1, failed_read=0.1, late_seconds=3.0
    )
    network = SimulatedClock()
    faulty = Faulty(scene.store, faults, random=Random(seed), clock=network)
    desks = [scene.desk(name, faulty) for name in ("ada", "ben", "cyd")]
    random = Random(seed)
    led: dict[int, str] = {}
    for _ in range(60):
        desk = random.choice(desks)
        scene.clock.advance(LAPSE)
        await asyncio.sleep(0)  # what is late sets out
        network.advance(random.uniform(0, 3))
        try:
            grant = await scene.stand(desk)
            if grant is None:
                continue
            if await desk.confirm(grant, within=9) is True:
                assert grant.state.epoch not in led
                led[grant.state.epoch] = grant.state.grant_id
                await desk.renew(scene.clock.read(), yes)
                if random.random() < 0.5:
                    await desk.release(random.choice(["ada", "ben", None]), pinned=False)
        except StoreUnavailable:
            continue
        finally:
            desk.let_go()
    await asyncio.sleep(0)
    network.advance(10)
    await faulty.drain()
    for epoch, grant_id in led.items():
        assert (await scene.term(epoch)).grant_id == grant_id
    assert len(led) > 5
    assert list(led) == sorted(led)
    assert (await scene.state()).epoch >= max(led)
    assert faulty.hit.keys() >= {"lost_request", "lost_reply", "late_landing", "repeated", "failed_read"}


# Found by mutants


async def test_a_lease_says_when_it_and_its_mandate_end(scene: Scene) -> None:
    state = (await scene.lead(scene.desk("ada"))).state
    began = datetime.fromisoformat(state.elected_at)
    assert datetime.fromisoformat(state.lease_expires_at) - began == timedelta(seconds=RULES.lease)
    assert datetime.fromisoformat(state.mandate_ends_at) - began == timedelta(seconds=RULES.max_mandate)
