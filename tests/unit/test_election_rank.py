"""Who may take over first: E-7."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.election.decide import turn_delay
from tenure.election.rank import precedes, ranked, successor
from tenure.election.records import Damage, Member, State
from tenure.election.sight import Absent, Sight
from tests.unit.leases import RULES, at, held, released

ADA, BEN, CYD = Member("ada", "u-ada"), Member("ben", "u-ben"), Member("cyd", "u-cyd")
BOSS = Member("zoe", "u-zoe", priority=5)


def sight_of(found: State | Damage | Absent) -> Sight:
    return Sight(found, None, at(0), at(0))


@pytest.mark.req("EL-3")
def test_among_equals_the_first_id_comes_first() -> None:
    assert ranked([CYD, ADA, BEN]) == [ADA, BEN, CYD]
    assert ranked([Member("worker-10", "a"), Member("worker-9", "b")])[0].worker_id == "worker-10"


@pytest.mark.req("EL-16")
def test_priority_comes_before_the_id() -> None:
    low = Member("aaa", "u-low", priority=-1)
    assert ranked([low, CYD, BOSS, ADA]) == [BOSS, ADA, CYD, low]


def test_whoever_let_the_lease_lapse_comes_last_whatever_its_priority() -> None:
    assert ranked([BOSS, ADA, BEN], lapsed_uid="u-zoe") == [ADA, BEN, BOSS]


def test_a_restart_of_the_one_that_lapsed_is_somebody_else() -> None:
    again = Member("zoe", "u-zoe-2", priority=5)
    assert ranked([ADA, again], lapsed_uid="u-zoe") == [again, ADA]


def test_who_comes_before_whom() -> None:
    assert [precedes(member, BEN) for member in (ADA, BEN, CYD, BOSS)] == [True, False, False, True]
    assert not precedes(msgspec.structs.replace(ADA, eligible=False), BEN)


def test_the_successor_is_the_best_of_the_others() -> None:
    assert successor([CYD, ADA, BEN], "u-ada") == BEN
    assert successor([CYD, ADA, BEN], "u-cyd") == ADA
    assert successor([ADA, BOSS], "u-ada") == BOSS
    assert successor([ADA], "u-ada") is None
    assert successor([], "u-ada") is None


members = st.builds(Member, st.text("abc", min_size=1, max_size=3), st.uuids().map(str), st.integers(-3, 3))
fleets = st.lists(members, max_size=8, unique_by=(lambda member: member.uid, lambda member: member.worker_id))


@pytest.mark.req("EL-3")
@given(fleets, st.randoms())
def test_the_same_fleet_ranks_alike_everywhere(fleet: list[Member], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(fleet)
    random.shuffle(shuffled)
    assert ranked(shuffled) == ranked(fleet)
    for place, member in enumerate(ranked(fleet)):
        assert sum(precedes(other, member) for other in fleet) == place


@given(fleets.filter(len), st.data())
def test_everyone_is_ranked_once_and_the_lapsed_one_last(fleet: list[Member], data: st.DataObject) -> None:
    lapsed = data.draw(st.sampled_from(fleet))
    order = ranked(fleet, lapsed_uid=lapsed.uid)
    assert order[-1] == lapsed
    assert order[:-1] == [member for member in ranked(fleet) if member != lapsed]
    assert successor(fleet, lapsed.uid) == (order[0] if len(order) > 1 else None)


# From place to seconds


@pytest.mark.parametrize("found", [held(), released(), Absent(0), Absent(4), Damage("torn")])
def test_the_kth_waits_k_steps(found: State | Damage | Absent) -> None:
    assert turn_delay(RULES, sight_of(found), 0, 0.0) == 0.0
    assert turn_delay(RULES, sight_of(found), 3, 0.0) == 3.0
    assert turn_delay(RULES, sight_of(found), 3, 0.25) == 3.25


def test_a_lease_with_an_heir_is_the_heirs_first() -> None:
    """E-5: the successor at once, the others after takeover_delay × (1 + k)."""
    assert turn_delay(RULES, sight_of(released("ben")), 0, 0.0) == 1.0
    assert turn_delay(RULES, sight_of(released("ben")), 2, 0.1) == pytest.approx(3.1)


def test_whoever_was_chosen_by_hand_has_time_to_look() -> None:
    """It may be any worker, and looks only once a heartbeat; others must not be quicker than that."""
    rules = msgspec.structs.replace(RULES, looks_every=2.5)
    chosen = msgspec.structs.replace(released("ben"), pinned=True)
    assert turn_delay(rules, sight_of(chosen), 0, 0.0) == 3.5
    assert turn_delay(rules, sight_of(released("ben")), 0, 0.0) == 1.0


def test_a_held_lease_has_no_heir_whatever_it_says() -> None:
    assert turn_delay(RULES, sight_of(held(successor="ben")), 0, 0.0) == 0.0


@given(st.integers(0, 5), st.floats(0, 0.25), st.floats(0, 0.25))
def test_jitter_never_changes_the_order(place: int, one: float, other: float) -> None:
    before = turn_delay(RULES, sight_of(held()), place, one)
    after = turn_delay(RULES, sight_of(held()), place + 1, other)
    assert before < after
