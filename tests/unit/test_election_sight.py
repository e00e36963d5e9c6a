"""What was seen of the lease, and since when: E-2 and E-9."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.election.records import Damage, Handoff, State, TooNew
from tenure.election.sight import Absent, Found, Known, Sight, judge, mark_of, observe
from tenure.store import Version
from tenure.testing import SimulatedClock
from tests.unit.leases import LAPSE, at, held, released

V1, V2 = Version("1"), Version("2")
TORN = Damage("torn")


def seen(found: Found, version: Version | None = V1, since: float = 0.0, last: float | None = None) -> Sight:
    return Sight(found, version, at(since), at(since if last is None else last))


def renewed(state: State, write_id: str = "w2") -> State:
    return msgspec.structs.replace(state, write_id=write_id, leader_write_id=write_id, renewals=state.renewals + 1)


def asked(state: State) -> State:
    """An outsider has added a request (E-6)."""
    return msgspec.structs.replace(
        state, write_id="w-ops", handoff=Handoff(request_id="r", epoch=state.epoch, by="ops")
    )


# E-2: what is timed, and from when


def test_the_first_look_starts_the_watch_after_its_answer() -> None:
    sight = observe(None, held(), V1, at(3), max_gap=15)
    assert sight.since == sight.last == at(3)


def test_the_same_write_is_watched_on() -> None:
    sight = observe(seen(held()), held(), V1, at(5), max_gap=15)
    assert (sight.since, sight.last) == (at(0), at(5))


def test_a_renewal_starts_the_watch_anew() -> None:
    sight = observe(seen(held()), renewed(held()), V2, at(5), max_gap=15)
    assert sight.since == sight.last == at(5)


def test_an_outsiders_request_is_no_renewal() -> None:
    """It moves the version, and must not keep a dead leader in office."""
    sight = observe(seen(held()), asked(held()), V2, at(5), max_gap=15)
    assert sight.since == at(0)
    assert sight.version == V2  # what a takeover has to be based on


def test_a_release_is_another_sight() -> None:
    given_away = released(write_id="w2", leader_write_id="w2")
    assert observe(seen(held()), given_away, V2, at(5), max_gap=15).since == at(5)


def test_whoever_looked_away_for_a_lease_watches_anew() -> None:
    """A backup that was put back meanwhile looks like a leader that died."""
    assert observe(seen(held()), held(), V1, at(15), max_gap=15).since == at(0)
    assert observe(seen(held()), held(), V1, at(15.1), max_gap=15).since == at(15.1)


def test_many_looks_make_one_watch() -> None:
    sight = seen(held())
    for second in range(5, 41, 5):
        sight = observe(sight, held(), V1, at(second), max_gap=15)
    assert sight.since == at(0)
    assert sight.last == at(40)


@pytest.mark.req("EL-15")
def test_suspend_of_the_watcher_counts_as_looking_away() -> None:
    clock = SimulatedClock()
    sight = observe(None, held(), V1, clock.read(), max_gap=15)
    clock.suspend(3600)
    again = observe(sight, held(), V1, clock.read(), max_gap=15)
    assert again.since == clock.read()


# Marks


def test_damage_is_timed_by_its_version() -> None:
    assert observe(seen(TORN), Damage("torn otherwise"), V1, at(5), max_gap=60).since == at(0)
    assert observe(seen(TORN), TORN, V2, at(5), max_gap=60).since == at(5)


def test_a_generation_tells_versions_apart_where_contents_are_the_same() -> None:
    old, new = Version("same", "1"), Version("same", "2")
    assert observe(seen(TORN, old), TORN, new, at(5), max_gap=60).since == at(5)


def test_damage_is_timed_together_with_the_history() -> None:
    """Between two looks the lease may have been rebuilt, and damaged again in the same way."""
    before = seen(Damage("torn", history=4))
    assert observe(before, Damage("torn", history=4), V1, at(5), max_gap=60).since == at(0)
    assert observe(before, Damage("torn", history=5), V1, at(5), max_gap=60).since == at(5)
    lost = seen(Absent(4), None)
    assert observe(lost, Absent(5), None, at(5), max_gap=60).since == at(5)


def test_an_absence_is_timed_and_one_with_history_is_another() -> None:
    assert observe(seen(Absent(), None), Absent(0), None, at(5), max_gap=60).since == at(0)
    assert observe(seen(Absent(), None), Absent(4), None, at(5), max_gap=60).since == at(5)
    assert observe(seen(Absent(4), None), Absent(4), None, at(5), max_gap=60).since == at(0)


def test_every_kind_of_sight_has_a_mark_of_its_own() -> None:
    found: list[tuple[Found, Version | None]] = [
        (held(), V1),
        (renewed(held()), V1),
        (TORN, V1),
        (TORN, V2),
        (TORN, None),
        (TooNew(2), V1),
        (Absent(), None),
        (Absent(3), None),
    ]
    assert len({mark_of(*pair) for pair in found}) == len(found)
    assert mark_of(held(), V1) == mark_of(held(), V2)
    assert seen(held()).mark == mark_of(held(), V1)


def test_only_what_cannot_be_read_is_kept_as_bytes() -> None:
    assert observe(None, TORN, V1, at(0), body=b"junk", max_gap=60).body == b"junk"
    assert observe(None, held(), V1, at(0), body=b"{...}", max_gap=15).body == b""


# E-9: an old lease that was put back


def test_a_lease_that_moves_on_is_believed() -> None:
    known = Known().with_state(held())
    for later in (held(), renewed(held()), held(epoch=8, grant_id="g8", renewals=0), asked(held())):
        assert judge(later, V2, known, None) is later


@pytest.mark.req("EL-20")
def test_a_lower_epoch_is_damage() -> None:
    known = Known().with_state(held())
    found = judge(held(epoch=6, grant_id="g6"), V2, known, None)
    assert isinstance(found, Damage)
    assert "epoch 6" in found.reason
    assert "epoch 7" in found.reason


@pytest.mark.req("EL-20")
def test_fewer_renewals_of_the_same_grant_are_damage() -> None:
    known = Known().with_state(held())
    assert isinstance(judge(held(renewals=2), V2, known, None), Damage)
    assert judge(held(renewals=3), V2, known, None) == held(renewals=3)


@pytest.mark.req("EL-20")
def test_an_epoch_granted_twice_is_damage() -> None:
    known = Known().with_state(held())
    assert isinstance(judge(held(by="ben", grant_id="other", renewals=9), V2, known, None), Damage)


@pytest.mark.req("EL-20")
def test_the_same_write_under_another_version_was_put_back() -> None:
    found = judge(held(), V2, Known().with_state(held()), seen(held(), V1))
    assert isinstance(found, Damage)
    assert judge(held(), V1, Known().with_state(held()), seen(held(), V1)) == held()


def test_without_a_version_nothing_is_said_about_versions() -> None:
    assert judge(held(), V2, Known(), seen(held(), None)) == held()
    assert judge(held(), None, Known(), seen(held(), V1)) == held()


@pytest.mark.parametrize("found", [TORN, TooNew(2), Absent(), Absent(4)])
def test_what_is_no_lease_is_judged_no_further(found: Found) -> None:
    assert judge(found, V1, Known().with_state(held()), seen(held())) is found


@pytest.mark.req("EL-20")
def test_a_lease_that_is_longer_than_any_is_damage() -> None:
    """Whoever waited for it would wait for a day; it is no lease of ours."""
    assert isinstance(judge(held(), V1, Known(), None, longest_lease=14.9), Damage)
    assert judge(held(), V1, Known(), None, longest_lease=15.0) == held()


# What is known


def test_history_raises_what_is_known_and_never_lowers_it() -> None:
    known = Known().with_state(held())
    assert known.with_history(6) is known
    assert known.with_history(7) is known
    assert known.with_history(9) == Known(9)


@pytest.mark.req("EL-20")
def test_a_lease_below_the_history_was_put_back() -> None:
    known = Known().with_history(9)
    assert isinstance(judge(held(epoch=8), V1, known, None), Damage)
    ninth = held(epoch=9, grant_id="g9", renewals=0)
    assert judge(ninth, V1, known, None) is ninth


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=20))
def test_what_is_believed_never_goes_back(stored: list[tuple[int, int]]) -> None:
    """I-2 as one process sees it, whatever somebody puts into the bucket."""
    known = Known()
    before = (0, -1)
    for epoch, renewals in stored:
        state = held(epoch=epoch, grant_id=f"g{epoch}", renewals=renewals, write_id="w", leader_write_id="w")
        found = judge(state, None, known, None)
        if isinstance(found, State):
            assert (epoch, renewals) >= before
            known, before = known.with_state(found), (epoch, renewals)
        else:
            assert (epoch, renewals) < before
        assert (known.epoch, known.renewals) == before


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from("abc")), min_size=1, max_size=20))
def test_a_watch_is_never_longer_than_the_write_was_there(looks: list[tuple[float, str]]) -> None:
    """The safety half of E-2: `since` is never before the first look of the last unbroken run of the same write."""
    sight: Sight | None = None
    now, run_began, last = 0.0, 0.0, ""
    for pause, write in looks:
        gap, now = pause, now + pause
        if write != last or gap > 15:
            run_began = now
        last = write
        sight = observe(sight, held(leader_write_id=write), V1, at(now), max_gap=15)
        assert sight.since.boottime_ns >= at(run_began).boottime_ns
    assert sight is not None
    assert at(now).follower_elapsed(sight.since) < LAPSE or now - run_began >= LAPSE - 1e-6
