"""What to do next about the lease: rules E-1 to E-11, as one pure function."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.clock import Reading
from tenure.election.decide import (
    BeginDrain,
    Confirm,
    Drain,
    End,
    Knowledge,
    LookUpHistory,
    MandateEnd,
    Opening,
    Refuse,
    Release,
    Renew,
    Rules,
    Stand,
    Survey,
    Tenure,
    Turn,
    Wait,
    Watch,
    decide,
    opening,
)
from tenure.election.holding import Holding
from tenure.election.records import Damage, Handoff, State, TooNew
from tenure.election.sight import Absent, Found, Sight, mark_of
from tenure.store import Version
from tenure.testing import SimulatedClock
from tests.unit.leases import DAMAGE_LAPSE, LAPSE, RULES, at, held, released, rules

ACTIONS = (Watch, Wait, LookUpHistory, Survey, Stand, Confirm, Renew, Refuse, BeginDrain, Release, End)
V1 = Version("1")
TORN = Damage("torn", history=4)
REQUEST = Handoff(request_id="r", epoch=8, by="ops")


def seen(found: Found, *, last: float = 0.0) -> Sight:
    """In sight since second 0."""
    return Sight(found, None if isinstance(found, Absent) else V1, at(0), at(last))


def knowing(found: Found | None = None, **changes: Any) -> Knowledge:
    """A follower, `ben`, fit to stand, whose turn comes as soon as the lease is free."""
    fields: dict[str, Any] = {
        "rules": RULES,
        "uid": "ben-1",
        "worker_id": "ben",
        "may_stand": True,
    }
    if found is not None:
        fields["sight"] = sight = seen(found)
        fields["turn"] = Turn(sight.mark, 0.0, at(0))
    return Knowledge(**fields | changes)


def wait_at_most(action: object, seconds: float) -> None:
    assert isinstance(action, Wait), action
    assert action.seconds is not None
    assert 0 < action.seconds <= seconds


# As a follower: looking


def test_first_of_all_it_looks() -> None:
    assert decide(knowing(), at(0)) == Watch()


def test_a_heartbeat_is_a_reason_to_look_before_anything_else() -> None:
    for found in (held(), released("ben"), Absent(0), Absent(), TORN, TooNew(2)):
        assert decide(knowing(found, look_now=True), at(1000)) == Watch()


def test_a_standby_looks_more_often() -> None:
    standby = knowing(held(), look_every=1.0)
    assert decide(standby, at(0.25)) == Wait(0.75)
    assert decide(standby, at(1.0)) == Watch()


def test_others_wait_until_the_lease_may_have_lapsed() -> None:
    wait_at_most(decide(knowing(held()), at(5)), LAPSE - 5)


def test_a_standby_looks_at_a_lapsed_lease_before_it_stands() -> None:
    """The renewal that came meanwhile is cheaper to see than to collide with."""
    late = knowing(held(), look_every=1.0)
    assert decide(late, at(LAPSE + 1)) == Watch()
    fresh = msgspec.structs.replace(late, sight=seen(held(), last=LAPSE + 0.9))
    assert isinstance(decide(fresh, at(LAPSE + 1)), Stand)


@pytest.mark.req("CB-1")
def test_whoever_may_not_stand_still_looks() -> None:
    """E-10: the breaker is open, or the worker unhealthy; the watch goes on."""
    for found in (held(), released("ben"), released(), Absent(0), TORN):
        barred = knowing(found, may_stand=False)
        assert decide(barred, at(1000)) == Wait(None)
        assert decide(msgspec.structs.replace(barred, look_now=True), at(1000)) == Watch()
        assert decide(msgspec.structs.replace(barred, look_every=1.0), at(1000)) == Watch()


# E-2: taking over


@pytest.mark.req("EL-15")
def test_a_held_lease_is_taken_only_after_it_lapsed() -> None:
    wait_at_most(decide(knowing(held()), at(LAPSE - 0.001)), 0.0011)
    assert decide(knowing(held()), at(LAPSE + 0.001)) == Stand(8, held())


def test_the_lease_in_the_record_counts_not_our_own() -> None:
    longer = held(lease_duration_ms=40_000)
    assert isinstance(decide(knowing(longer), at(LAPSE + 1)), Wait)
    assert isinstance(decide(knowing(longer), at(40 * 1.01 + 0.11)), Stand)


def test_a_request_from_outside_shortens_nothing() -> None:
    asked = held(handoff=Handoff(request_id="r", epoch=7, by="ops", to="ben", forced=True))
    assert isinstance(decide(knowing(asked), at(10)), Wait)


@pytest.mark.req("EL-14")
def test_a_restart_under_the_same_name_waits_like_anybody_else() -> None:
    """Its predecessor may be frozen, and believe that it leads."""
    earlier = held(by="ben", uid="ben-0")
    assert isinstance(decide(knowing(earlier), at(LAPSE - 0.1)), Wait)
    assert opening(RULES, seen(earlier), "ben-1", "ben") == Opening(LAPSE, True)


def test_its_own_lease_may_be_taken_anew_at_once() -> None:
    """E-4 and I-3: only this process could lead under it, and it knows that it does not."""
    own = held(by="ben", uid="ben-1")
    assert decide(knowing(own, turn=None), at(0.001)) == Stand(8, own)


# E-5: a lease that was given away


def test_the_successor_takes_it_at_once() -> None:
    heir = released("ben")
    assert decide(knowing(heir, turn=None), at(0)) == Stand(8, heir)


def test_others_find_out_their_turn_first() -> None:
    assert decide(knowing(released("cyd"), turn=None), at(0)) == Survey()
    assert decide(knowing(released(), turn=None), at(0)) == Survey()


def test_nobody_stands_before_its_turn() -> None:
    lapsed = released("cyd")
    second = knowing(lapsed, turn=Turn(seen(lapsed).mark, 2.0, at(10)))
    assert decide(second, at(10.5)) == Wait(1.5)
    assert decide(second, at(12)) == Stand(8, lapsed)


def test_a_turn_was_drawn_for_one_state_of_the_lease() -> None:
    stale = knowing(held(), turn=Turn("lease w0", 0.0, at(0)))
    assert decide(stale, at(LAPSE + 1)) == Survey()


def test_a_standby_goes_on_looking_while_it_waits_for_its_turn() -> None:
    lapsed = released("cyd")
    second = knowing(lapsed, sight=seen(lapsed, last=10), turn=Turn(seen(lapsed).mark, 5.0, at(10)), look_every=1.0)
    assert decide(second, at(10.25)) == Wait(0.75)
    assert decide(second, at(11)) == Watch()


# E-9: damage


@pytest.mark.parametrize("found", [Absent(), Damage("torn")], ids=["missing", "unreadable"])
def test_what_is_no_lease_raises_the_question_of_history(found: Found) -> None:
    """What cannot be read is watched together with the history, so that has to be known when the watch begins."""
    assert decide(knowing(found), at(0)) == LookUpHistory()
    assert decide(knowing(found), at(10**6)) == LookUpHistory()


def test_a_new_namespace_is_free() -> None:
    assert decide(knowing(Absent(0)), at(0)) == Stand(1, None, after_damage=False)


@pytest.mark.req("EL-20")
@pytest.mark.parametrize("found", [TORN, Absent(4)], ids=["unreadable", "missing with history"])
def test_damage_is_held_by_an_unknown_leader(found: Found) -> None:
    """For the longest lease that anybody may have, not for our own."""
    assert isinstance(decide(knowing(found), at(LAPSE + 1)), Wait)
    wait_at_most(decide(knowing(found), at(DAMAGE_LAPSE - 0.001)), 0.0011)
    stand = decide(knowing(found), at(DAMAGE_LAPSE + 0.001))
    assert isinstance(stand, Stand)
    assert stand.after_damage
    assert stand.over is None


@pytest.mark.req("EL-20")
def test_damage_is_contested_too() -> None:
    assert decide(knowing(TORN, turn=None), at(DAMAGE_LAPSE + 1)) == Survey()


@pytest.mark.req("EL-20")
def test_a_newer_tenure_is_never_overwritten() -> None:
    assert decide(knowing(TooNew(2)), at(10**6)) == Wait(None)
    assert opening(RULES, seen(TooNew(2)), "ben-1", "ben") is None


# As the holder


def leading(**changes: Any) -> Tenure:
    """Elected at second 0, with a confirmed term."""
    fields: dict[str, Any] = {
        "epoch": 8,
        "holding": Holding(at(0), RULES.lasts, RULES.leads_for),
        "confirmed": True,
        "granted": at(0),
        "mandate_since": at(0),
    }
    return Tenure(**fields | changes)


def long_serving(seconds: float, **changes: Any) -> Tenure:
    """Elected at second 0, and renewed a moment before `seconds`."""
    return leading(**{"holding": Holding(at(seconds - 0.5), RULES.lasts, RULES.leads_for), **changes})


def hold(tenure: Tenure, now: float, rules: Rules = RULES) -> object:
    return decide(Knowledge(rules=rules, uid="ben-1", worker_id="ben", tenure=tenure), at(now))


# E-3: a grant is not leadership yet


def test_a_grant_is_confirmed_before_anything_else() -> None:
    granted = leading(confirmed=False, renew_now=True, outranked_by="ada", request=REQUEST)
    assert hold(granted, 0.1) == Confirm()


def test_a_grant_that_is_not_wanted_any_more_is_given_back_at_once() -> None:
    """Nobody has begun to lead under it, so there is nothing to wind up."""
    assert hold(leading(confirmed=False, leave="stopped"), 0.1) == Release(None, False)


def test_a_confirmation_that_did_not_go_through_is_tried_again_after_a_pause() -> None:
    granted = leading(confirmed=False, last_try=at(2))
    assert hold(granted, 2.25) == Wait(0.75)
    assert hold(granted, 3.0) == Confirm()


def test_a_grant_that_cannot_be_confirmed_in_time_is_over() -> None:
    assert hold(leading(confirmed=False, last_try=at(9.5)), 9.75) == Wait(0.25)
    assert hold(leading(confirmed=False), 10.0) == End("renew-deadline")


# E-4: the end of a term


def test_at_the_deadline_the_term_ends() -> None:
    assert isinstance(hold(leading(renew_now=True), 9.999), Renew)
    assert hold(leading(renew_now=True), 10.0) == End("renew-deadline")
    assert hold(leading(leave="asked"), 10.0) == End("renew-deadline")


@pytest.mark.req("CB-3")
def test_the_deadline_is_waited_for_without_any_request() -> None:
    assert hold(leading(), 4.0) == Wait(6.0)
    assert hold(leading(), 10.0) == End("renew-deadline")


@pytest.mark.req("EL-15")
def test_a_wall_clock_that_ran_ahead_ends_the_term() -> None:
    knowledge = Knowledge(rules=RULES, uid="ben-1", worker_id="ben", tenure=leading(renew_now=True))
    assert decide(knowledge, at(1, wall_ahead=1.5)) == End("renew-deadline")


def test_a_term_that_somebody_was_told_is_over_is_over() -> None:
    """`is_leader()` said false once: no renewal makes it true again."""
    assert hold(leading(ended="renew-deadline", renew_now=True), 1.0) == End("renew-deadline")


# E-1: renewing


def test_a_renewal_is_due_with_the_heartbeat() -> None:
    assert hold(leading(), 5.0) == Wait(5.0)
    assert hold(leading(renew_now=True), 5.0) == Renew()


def test_a_renewal_that_did_not_go_through_is_tried_again_after_a_pause() -> None:
    tried = leading(renew_now=True, last_try=at(5))
    assert hold(tried, 5.25) == Wait(0.75)
    assert hold(tried, 6.0) == Renew()


# E-5: leaving


def test_whoever_wants_to_leave_drains_first() -> None:
    assert hold(leading(leave="stopped"), 1.0) == BeginDrain("stopped")
    assert hold(leading(leave="handed over", leave_to="cyd"), 1.0) == BeginDrain("handed over", "cyd", pinned=True)


@pytest.mark.req("EL-5")
def test_the_holder_may_always_leave() -> None:
    """Inside `min_epoch_duration` as well."""
    assert isinstance(hold(leading(leave="asked"), 0.1), BeginDrain)


def test_the_lease_is_kept_while_work_winds_up() -> None:
    draining = leading(ended="stopped", drain=Drain("stopped", at(2)), renew_now=True)
    assert hold(draining, 4.0) == Renew()
    assert hold(msgspec.structs.replace(draining, renew_now=False), 4.0) == Wait(8.0)
    assert hold(msgspec.structs.replace(draining, last_try=at(3.75)), 4.0) == Wait(0.75)


def test_only_when_work_has_ended_is_the_lease_released() -> None:
    done = leading(ended="stopped", drain=Drain("stopped", at(2), "cyd", pinned=True, done=True))
    assert hold(done, 4.0) == Release("cyd", True)


def test_work_that_never_ends_keeps_the_lease_from_everybody() -> None:
    """No release: it lapses."""
    stuck = leading(
        drain=Drain("stopped", at(2)), holding=Holding(at(11), RULES.lasts, RULES.leads_for), renew_now=True
    )
    assert hold(stuck, 11.999) == Renew()
    assert hold(stuck, 12.0) == End("drain-timeout")


def test_a_lease_that_lapsed_in_winding_up_is_not_released() -> None:
    """It may be another's by now."""
    done = leading(drain=Drain("stopped", at(2), done=True))
    assert hold(done, 14.9) == End("lease-lapsed")


def test_winding_up_may_take_longer_than_the_deadline_if_the_lease_still_holds() -> None:
    draining = leading(ended="stopped", drain=Drain("stopped", at(9)), last_try=at(9.5))
    assert hold(draining, 11.0) == Renew()


# E-6: requests


@pytest.mark.req("EL-5")
@pytest.mark.req("EL-17")
def test_a_request_in_the_first_minute_is_refused_with_the_reason() -> None:
    answer = hold(long_serving(59, request=REQUEST), 59)
    assert isinstance(answer, Refuse)
    assert answer.request is REQUEST
    assert "forced" in answer.reason


@pytest.mark.req("EL-5")
@pytest.mark.req("EL-17")
def test_a_request_after_that_or_with_force_is_followed() -> None:
    assert hold(long_serving(61, request=REQUEST), 61) == BeginDrain("step-down")
    forced = msgspec.structs.replace(REQUEST, forced=True)
    assert hold(leading(request=forced), 1.0) == BeginDrain("step-down")
    to = msgspec.structs.replace(REQUEST, to="cyd")
    assert hold(long_serving(61, request=to), 61) == BeginDrain("transfer", "cyd", pinned=True)


def test_a_renewed_mandate_does_not_start_the_first_minute_again() -> None:
    again = long_serving(310, mandate_since=at(300), request=REQUEST)
    assert hold(again, 310) == BeginDrain("step-down")


def test_a_refusal_that_did_not_go_through_is_tried_again_after_a_pause() -> None:
    assert hold(leading(request=REQUEST, last_try=at(5)), 5.25) == Wait(0.75)


# E-11: the mandate


@pytest.mark.req("EL-4")
def test_a_better_id_alone_changes_nothing_inside_the_mandate() -> None:
    for now in (1.0, 61.0, 299.0):
        assert isinstance(hold(long_serving(now, preceded_by="ada"), now), Wait)


@pytest.mark.req("EL-5")
@pytest.mark.req("EL-16")
def test_a_better_priority_may_ask_after_the_first_minute() -> None:
    outranked = {"outranked_by": "zoe", "preceded_by": "zoe"}
    wait_at_most(hold(long_serving(59, **outranked), 59), 1.0)
    assert hold(long_serving(60, **outranked), 60) == BeginDrain("better-priority", "zoe")


@pytest.mark.req("EL-5")
def test_a_transfer_pins_until_the_mandate_ends() -> None:
    pinned = {"outranked_by": "zoe", "preceded_by": "zoe", "pinned": True}
    assert isinstance(hold(long_serving(200, **pinned), 200), Wait)
    assert hold(long_serving(300, **pinned), 300, rules(mandate_end=MandateEnd.HAND_OVER)) == BeginDrain(
        "mandate-ended", "zoe"
    )


@pytest.mark.req("EL-5")
def test_at_the_end_of_its_mandate_it_renews_that() -> None:
    wait_at_most(hold(long_serving(299), 299), 1.0)
    assert hold(long_serving(300, preceded_by="ada"), 300) == Renew(mandate=True)


@pytest.mark.req("EL-5")
def test_or_it_makes_way_if_it_is_told_to() -> None:
    hand_over = rules(mandate_end=MandateEnd.HAND_OVER)
    assert hold(long_serving(300, preceded_by="ada"), 300, hand_over) == BeginDrain("mandate-ended", "ada")
    assert hold(long_serving(300), 300, hand_over) == Renew(mandate=True)


def test_whatever_is_to_be_written_waits_after_a_failure() -> None:
    """The store has just failed to take it; only leaving and the deadline do not wait."""
    tried = {"last_try": at(5), "renew_now": True, "request": REQUEST, "outranked_by": "zoe"}
    assert hold(leading(**tried), 5.25) == Wait(0.75)
    assert hold(leading(**tried, leave="stopped"), 5.25) == BeginDrain("stopped")
    assert hold(leading(**tried | {"last_try": at(9.9)}), 9.95) == Wait(pytest.approx(0.05))
    assert hold(leading(**tried | {"last_try": at(9.9)}), 10.0) == End("renew-deadline")


def test_a_mandate_whose_renewal_did_not_go_through_is_tried_again_after_a_pause() -> None:
    assert hold(long_serving(300, last_try=at(300)), 300.25) == Wait(0.75)


# For whatever is known


readings = st.builds(Reading, *[st.integers(-(10**13), 10**13)] * 4)
steady = st.floats(0, 400).map(at)
moments = steady | readings
seconds = st.floats(0, 100)
some_rules = st.builds(
    rules,
    lease=st.floats(0.1, 100),
    leads_for=st.floats(0, 100),
    drift=st.floats(0, 0.1),
    margin=st.floats(0, 2),
    longest_lease=st.floats(0.1, 400),
    takeover_delay=st.floats(0, 10),
    renew_retry=st.floats(0.001, 5),
    min_mandate=seconds,
    max_mandate=st.floats(0, 1000),
    mandate_end=st.sampled_from(MandateEnd),
    drain_timeout=seconds,
)
names = st.sampled_from(["ada", "ben", "cyd"])
handoffs = st.builds(Handoff, request_id=st.just("r"), epoch=st.integers(1, 9), by=names, to=st.none() | names)
found_leases = st.builds(
    held,
    names,
    st.sampled_from(["ada-1", "ben-1", "ben-0"]),
    epoch=st.integers(1, 10**18),
    lease_duration_ms=st.integers(1, 100_000),
    leader_write_id=st.sampled_from(["w1", "w2"]),
    handoff=st.none() | handoffs,
)
found_anything: st.SearchStrategy[Found] = st.one_of(
    found_leases,
    st.builds(released, st.none() | names),
    st.builds(Damage, st.just("torn"), st.none() | st.integers(0, 5)),
    st.just(TooNew(2)),
    st.builds(Absent, st.none() | st.integers(0, 5)),
)
sights = st.builds(Sight, found_anything, st.none() | st.just(V1), moments, moments)
turns = st.builds(
    Turn,
    st.sampled_from(["lease w1", "lease w2", mark_of(Absent(0), None), mark_of(TORN, V1)]),
    seconds,
    moments,
)
drains = st.builds(Drain, st.just("stopped"), moments, st.none() | names, st.booleans(), st.booleans())
tenures = st.builds(
    Tenure,
    epoch=st.integers(1, 9),
    holding=st.builds(Holding, moments, seconds, seconds),
    confirmed=st.booleans(),
    granted=moments,
    mandate_since=moments,
    pinned=st.booleans(),
    request=st.none() | handoffs,
    outranked_by=st.none() | names,
    preceded_by=st.none() | names,
    ended=st.none() | st.just("told"),
    drain=st.none() | drains,
    leave=st.none() | st.just("asked"),
    leave_to=st.none() | names,
    renew_now=st.booleans(),
    last_try=st.none() | moments,
)
followers = st.builds(
    Knowledge,
    rules=some_rules,
    uid=st.just("ben-1"),
    worker_id=st.just("ben"),
    sight=st.none() | sights,
    turn=st.none() | turns,
    may_stand=st.booleans(),
    look_now=st.booleans(),
    look_every=st.none() | st.floats(0.01, 10),
)
holders = st.builds(Knowledge, rules=some_rules, uid=st.just("ben-1"), worker_id=st.just("ben"), tenure=tenures)


@st.composite
def eager(draw: st.DrawFn) -> Knowledge:
    """A follower that nothing but the lease itself holds back."""
    sight = draw(sights)
    turn = Turn(sight.mark, 0.0, sight.since)
    return Knowledge(rules=draw(some_rules), uid="ben-1", worker_id="ben", sight=sight, turn=turn, may_stand=True)


@settings(max_examples=200)
@given(followers | eager() | holders, moments)
def test_there_is_always_something_to_do_and_never_a_wait_of_nothing(knowledge: Knowledge, now: Reading) -> None:
    """A wait of nothing would turn the loop without end."""
    action = decide(knowledge, now)
    assert isinstance(action, ACTIONS)
    if isinstance(action, Wait):
        assert action.seconds is None or action.seconds > 0
    assert decide(knowledge, now) == action  # it keeps nothing


@pytest.mark.req("EL-15")
@settings(max_examples=400)
@given(followers | eager(), moments)
def test_nobody_stands_on_a_lease_that_another_may_hold(knowledge: Knowledge, now: Reading) -> None:
    action = decide(knowledge, now)
    if not isinstance(action, Stand):
        return
    sight = knowledge.sight
    assert sight is not None
    assert knowledge.may_stand
    found, watched = sight.found, now.follower_elapsed(sight.since)
    assert not isinstance(found, TooNew)
    if isinstance(found, State):
        assert action.epoch == found.epoch + 1
        assert action.over is found
        if not found.released and found.uid != knowledge.uid:
            assert watched >= knowledge.rules.lapses_after(found.lease_seconds)
    elif isinstance(found, Damage) or found.history != 0:
        assert action.after_damage
        assert watched >= knowledge.rules.damage_lapses_after


@pytest.mark.req("EL-15")
@settings(max_examples=200)
@given(found_leases, st.floats(0, 0.9999), st.data())
def test_a_held_lease_is_never_contested_early(lease: State, share: float, data: st.DataObject) -> None:
    """Not even surveyed: however the rest of what is known looks."""
    knowledge = data.draw(followers)
    lapse = knowledge.rules.lapses_after(lease.lease_seconds)
    knowledge = msgspec.structs.replace(knowledge, uid="zed-1", worker_id="zed", sight=seen(lease))
    assert isinstance(decide(knowledge, at(lapse * share)), Watch | Wait)


@given(followers, moments)
def test_a_follower_only_ever_does_what_followers_do(knowledge: Knowledge, now: Reading) -> None:
    assert isinstance(decide(knowledge, now), Watch | Wait | LookUpHistory | Survey | Stand)


@settings(max_examples=200)
@given(holders, moments)
def test_a_holder_only_ever_does_what_holders_do(knowledge: Knowledge, now: Reading) -> None:
    assert not isinstance(decide(knowledge, now), Watch | LookUpHistory | Survey | Stand)


@settings(max_examples=200)
@given(holders, moments)
def test_a_term_that_is_over_only_ends(knowledge: Knowledge, now: Reading) -> None:
    assert knowledge.tenure is not None
    over = msgspec.structs.replace(knowledge.tenure, ended="told", drain=None)
    assert decide(msgspec.structs.replace(knowledge, tenure=over), now) == End("told")


@pytest.mark.req("EL-15")
@settings(max_examples=200)
@given(holders, moments)
def test_nothing_is_kept_up_after_its_deadline(knowledge: Knowledge, now: Reading) -> None:
    tenure = knowledge.tenure
    assert tenure is not None
    action = decide(knowledge, now)
    left = tenure.holding.leading(now) if tenure.drain is None else tenure.holding.remaining(now)
    if left <= 0:
        assert isinstance(action, End)
    if isinstance(action, Wait):
        assert action.seconds is not None
        assert action.seconds <= left  # the end of a term is never slept through
    if isinstance(action, Release):
        assert tenure.drain.done if tenure.drain is not None else not tenure.confirmed


@pytest.mark.req("EL-5")
@settings(max_examples=200)
@given(tenures, st.floats(0, 59.9))
def test_nobody_overthrows_a_living_leader_in_its_first_minute(tenure: Tenure, now: float) -> None:
    young = msgspec.structs.replace(
        tenure,
        granted=at(0),
        mandate_since=at(0),
        holding=Holding(at(now), RULES.lasts, RULES.leads_for),
        confirmed=True,
        ended=None,
        drain=None,
        leave=None,
    )
    action = hold(young, now)
    assert isinstance(action, Wait | Renew | Refuse)


# Two processes, one lease

PASTIMES = ["run", "leader sleeps", "follower sleeps"]


@pytest.mark.req("EL-15")
@settings(max_examples=200)
@given(
    rates=st.tuples(st.floats(0.99, 1.01), st.floats(0.99, 1.01)),
    slews=st.tuples(st.floats(-0.08, 0.08), st.floats(-0.08, 0.08)),
    steps=st.lists(st.tuples(st.sampled_from(PASTIMES), st.floats(0.1, 9)), max_size=12),
)
def test_while_one_may_lead_the_other_does_not_stand(
    rates: tuple[float, float], slews: tuple[float, float], steps: list[tuple[str, float]]
) -> None:
    """Both decide for themselves, on clocks that differ by all that is allowed. The leader wrote the lease before the
    follower saw it, and no renewal gets through."""
    leader, follower = (SimulatedClock(rate=rate, slew=slew) for rate, slew in zip(rates, slews, strict=True))
    tenure = leading(holding=Holding(leader.read(), RULES.lasts, RULES.leads_for), last_try=leader.read())
    sight = Sight(held(), V1, follower.read(), follower.read())
    watching = knowing(held(), sight=sight)
    for kind, seconds in steps:
        for clock, asleep in ((leader, kind == "leader sleeps"), (follower, kind == "follower sleeps")):
            (clock.suspend if asleep else clock.advance)(seconds)
        leads = tenure.holding.leading(leader.read()) > 0
        stands = isinstance(decide(watching, follower.read()), Stand)
        assert not (leads and stands)
        if not leads:
            assert isinstance(hold_at(tenure, leader.read()), End)


def hold_at(tenure: Tenure, now: Reading) -> object:
    return decide(Knowledge(rules=RULES, uid="ada-1", worker_id="ada", tenure=tenure), now)


# Found by mutants


def test_nobody_stands_in_the_last_second_before_its_turn() -> None:
    lapsed = released("cyd")
    second = knowing(lapsed, turn=Turn(seen(lapsed).mark, 2.0, at(10)))
    assert decide(second, at(11.75)) == Wait(0.25)
