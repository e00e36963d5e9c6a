"""Whom a process may name as leader, and for how long (WA-1)."""

from __future__ import annotations

import pytest

from tenure.coordinator.lease_watch import LeaseWatch
from tests.unit.leases import LAPSE, RULES, at, held, released


def watched(*looks: float) -> LeaseWatch:
    """The same write, shown by answers at these seconds."""
    watch = LeaseWatch(RULES)
    for look in looks:
        watch.saw(held(), at(look))
    return watch


def test_nobody_was_seen_yet() -> None:
    watch = LeaseWatch(RULES)
    assert (watch.leader(at(0)), watch.age(at(0)), watch.gone(at(99), 20)) == (None, None, None)


def test_a_holder_is_named_until_an_answer_shows_that_its_lease_has_lapsed() -> None:
    assert watched(0, 5, 10, LAPSE - 0.1).leader(at(LAPSE + 1)) == "ada", "the last answer was a little early"
    assert watched(0, 5, 10, LAPSE).leader(at(LAPSE)) is None


def test_a_renewal_starts_the_watch_anew() -> None:
    watch = watched(0, 10, LAPSE)
    watch.saw(held(leader_write_id="w2", renewals=4), at(LAPSE + 1))
    assert watch.leader(at(LAPSE + 1)) == "ada"


def test_the_same_write_after_a_long_gap_is_as_old_as_it_is() -> None:
    """No process stands by this: a lease that is looked at once a minute must not look fresh for ever."""
    assert watched(0, 60).leader(at(60)) is None


def test_without_an_answer_the_name_stands_for_one_lease() -> None:
    watch = watched(0, 10)
    assert watch.leader(at(10 + LAPSE - 0.01)) == "ada"
    assert watch.age(at(14)) == pytest.approx(4)
    assert watch.leader(at(10 + LAPSE)) is None
    assert watch.gone(at(200), 20) is None, "that it died is not known"


def test_a_lease_that_was_given_away_is_nobodys() -> None:
    watch = watched(0)
    watch.saw(released(), at(1))
    assert watch.leader(at(1)) is None
    assert watch.gone(at(100), 20) is None


def test_the_holder_of_a_lapsed_lease_is_gone_after_the_timeout_of_workers() -> None:
    watch = watched(0, 10, LAPSE)
    assert watch.gone(at(19.9), 20) is None
    assert watch.gone(at(20), 20) == "ada-1"
    assert watched(0, 10).gone(at(20), 5) is None, "it holds its lease"


def test_an_answer_that_was_overtaken_is_not_the_newest() -> None:
    watch = watched(0)
    watch.saw(held("ben", leader_write_id="w9", epoch=8), at(5))
    watch.saw(held(), at(6), sent=at(4))
    assert watch.leader(at(6)) == "ben"
    watch.saw(held("eva", leader_write_id="w10", epoch=9), at(8), sent=at(7))
    assert watch.leader(at(8)) == "eva"
