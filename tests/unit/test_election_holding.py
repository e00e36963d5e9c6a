"""How long a leader may believe in its lease: E-1 and E-4."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenure.clock import Reading
from tenure.election.holding import WALL_TOLERANCE_SECONDS, Holding
from tenure.testing import SimulatedClock
from tests.unit.leases import LAPSE, RULES, at

FRESH = Holding(at(0), RULES.lasts, RULES.leads_for)


def test_a_lease_is_relied_upon_for_less_than_its_length() -> None:
    assert RULES.lasts == pytest.approx(14.85)
    assert FRESH.remaining(at(0)) == pytest.approx(14.85)
    assert FRESH.remaining(at(14.8)) > 0
    assert FRESH.remaining(at(14.86)) < 0


def test_the_term_ends_before_the_lease_does() -> None:
    """E-4: the rest is for hooks."""
    assert FRESH.leading(at(9.999)) > 0
    assert FRESH.leading(at(10.0)) <= 0
    assert FRESH.remaining(at(10.0)) == pytest.approx(4.85)


# E-1: sending


def test_sending_another_renewal_changes_nothing_yet() -> None:
    """Its answer may never come, and then the lease in force is still the one before."""
    assert FRESH.sending(at(5), RULES.lasts) is FRESH
    assert FRESH.sending(at(0), RULES.lasts) is FRESH


def test_sending_a_release_ends_it_at_once() -> None:
    gone = FRESH.sending(at(5), 0.0)
    assert gone.remaining(at(5)) <= 0
    assert gone.leading(at(5)) <= 0


def test_a_write_of_a_shorter_lease_counts_from_its_sending() -> None:
    """It may be the one that followers see, whether or not we ever hear of it."""
    shorter = FRESH.sending(at(2), 3.0)
    assert shorter.remaining(at(2)) == pytest.approx(3.0)
    assert shorter.remaining(at(5)) <= 0


def test_what_is_over_stays_over_whatever_is_sent() -> None:
    late = at(15)
    assert FRESH.sending(late, RULES.lasts).remaining(late) <= 0
    assert FRESH.sending(late, 0.0).remaining(late) <= 0
    jumped = at(1, wall_ahead=5)
    assert FRESH.sending(jumped, 3.0).remaining(jumped) <= 0


@given(st.floats(0, 40), st.floats(0, 40), st.floats(0, 40))
def test_sending_never_lengthens_the_lease(elapsed: float, lasts: float, later: float) -> None:
    after = FRESH.sending(at(elapsed), lasts)
    assert after.remaining(at(elapsed + later)) <= FRESH.remaining(at(elapsed + later)) + 1e-6
    assert after.remaining(at(elapsed + later)) <= lasts - later + 1e-6 or after is FRESH


@pytest.mark.parametrize("elapsed", [9.0, 10.5], ids=["before the deadline", "after the deadline"])
def test_sending_a_shorter_lease_never_moves_the_deadline_back(elapsed: float) -> None:
    before = FRESH.leading(at(elapsed))
    after = FRESH.sending(at(elapsed), 4.0).leading(at(elapsed))
    assert after <= max(before, 0.0)


# E-1: confirmation


def test_a_confirmation_counts_from_its_own_sending() -> None:
    """Not from the answer, and not from the latest sending: followers time what they see, which is this write."""
    first, second = at(3), at(6)
    sent = FRESH.sending(first, RULES.lasts).sending(second, RULES.lasts)
    confirmed = sent.confirmed(first, RULES.lasts, RULES.leads_for)
    assert confirmed.remaining(at(8)) == pytest.approx(3 + 14.85 - 8)
    assert confirmed.leading(at(8)) == pytest.approx(3 + 10 - 8)


def test_a_confirmation_is_assigned_even_where_it_shortens() -> None:
    """E-1 says never by max: the lease that is in force may be an earlier write than the one counted so far."""
    later = FRESH.confirmed(at(9), RULES.lasts, RULES.leads_for)
    earlier = later.confirmed(at(4), RULES.lasts, RULES.leads_for)
    assert earlier.remaining(at(10)) == pytest.approx(4 + 14.85 - 10)


# The clocks


@pytest.mark.req("EL-15")
@pytest.mark.parametrize("suspended", [5.1, 15.0, 3600.0])
def test_suspend_counts(suspended: float) -> None:
    clock = SimulatedClock()
    holding = Holding(clock.read(), RULES.lasts, RULES.leads_for)
    clock.advance(5)
    assert holding.leading(clock.read()) > 0
    clock.suspend(suspended)
    assert holding.leading(clock.read()) <= 0


@pytest.mark.req("EL-15")
@pytest.mark.parametrize("slew", [-0.08, 0.08])
def test_a_slewed_clock_ends_it_no_later(slew: float) -> None:
    clock = SimulatedClock(slew=slew)
    holding = Holding(clock.read(), RULES.lasts, RULES.leads_for)
    clock.advance(RULES.lasts)
    assert holding.remaining(clock.read()) <= 1e-6


@pytest.mark.req("EL-15")
def test_a_wall_clock_that_was_put_right_ends_it() -> None:
    assert FRESH.leading(at(1, wall_ahead=0.9)) > 0
    assert FRESH.leading(at(1, wall_ahead=1.1)) <= 0
    assert FRESH.remaining(at(1, wall_ahead=1.1)) <= 0


@pytest.mark.req("EL-15")
@given(st.floats(0, 20), st.floats(-100_000, 0))
def test_a_wall_clock_that_is_set_back_never_lengthens_it(elapsed: float, step: float) -> None:
    assert FRESH.remaining(at(elapsed, wall_ahead=step)) == FRESH.remaining(at(elapsed))
    assert FRESH.leading(at(elapsed, wall_ahead=step)) == FRESH.leading(at(elapsed))


def test_a_confirmation_forgives_a_wall_clock_that_jumped_before_it() -> None:
    """The jump is measured from the last renewal: one that was sent after it proves that the lease is ours."""
    sent = at(2, wall_ahead=60)
    assert FRESH.remaining(sent) <= 0
    assert FRESH.confirmed(sent, RULES.lasts, RULES.leads_for).remaining(sent) == pytest.approx(14.85)


readings = st.builds(Reading, *[st.integers(-(10**15), 10**15)] * 4)


@given(readings, readings, st.floats(0, 100), st.floats(0, 1))
def test_whoever_leads_holds_the_lease(since: Reading, now: Reading, lasts: float, share: float) -> None:
    holding = Holding(since, lasts, lasts * share)
    assert holding.leading(now) <= holding.remaining(now) or holding.leading(now) <= 0
    assert now.wall_ran_ahead(since) <= WALL_TOLERANCE_SECONDS or holding.remaining(now) <= 0


@pytest.mark.req("EL-15")
@given(
    lead_rate=st.floats(0.99, 1.01),
    watch_rate=st.floats(0.99, 1.01),
    lead_slew=st.floats(-0.08, 0.08),
    watch_slew=st.floats(-0.08, 0.08),
    naps=st.lists(st.floats(0, 20), max_size=3),
    seen_after=st.floats(0, 5),
    walked=st.floats(0, 20),
)
def test_no_two_hosts_believe_in_one_lease(
    lead_rate: float,
    watch_rate: float,
    lead_slew: float,
    watch_slew: float,
    naps: list[float],
    seen_after: float,
    walked: float,
) -> None:
    """I-1 in small: a leader that counts from the sending, a follower that counts from the answer, clocks that differ
    by all that is allowed, NTP at work on both, and a leader that sleeps."""
    leader = SimulatedClock(rate=lead_rate, slew=lead_slew)
    follower = SimulatedClock(rate=watch_rate, slew=watch_slew)
    holding = Holding(leader.read(), RULES.lasts, RULES.leads_for)
    for clock in (leader, follower):
        clock.advance(seen_after)
    seen = follower.read()
    for nap in naps:
        leader.suspend(nap)
        follower.advance(nap)
    for clock in (leader, follower):
        clock.advance(walked)
    assume(holding.remaining(leader.read()) > 0)
    assert follower.read().follower_elapsed(seen) < LAPSE


# Found by mutants


def test_a_release_is_for_good_also_if_the_wall_clock_is_put_right_after_it() -> None:
    released = FRESH.sending(at(1, wall_ahead=5), 0.0)
    assert released.remaining(at(2)) <= 0
    assert released.leading(at(2)) <= 0
