"""Whole coordinators in simulated time: who is counted, and who is handed what."""

from __future__ import annotations

import pytest

from tenure.coordinator.config import MandateEnd
from tests.simulated.fleet import QUICK, Fleet


@pytest.mark.req("EL-7")
def test_a_worker_that_died_is_counted_and_cleaned_up() -> None:
    with Fleet() as fleet:
        for name in "abc":
            fleet.join(name)
        fleet.run(30)
        leader = fleet.nodes["a"]
        assert leader.done(leader.service.get_active_workers()) == ["a", "b", "c"]
        fleet.nodes["c"].host.crash()
        fleet.run(30)
        assert leader.service.get_metrics().worker_timeouts == 1
        assert leader.named("workers:updated")[-1].workers == ("a", "b")
        fleet.run(30)
        assert fleet.bucket.body(fleet.path("workers/worker=c.json")) is None


def test_a_worker_that_left_politely_is_no_timeout() -> None:
    with Fleet() as fleet:
        for name in "abc":
            fleet.join(name)
        fleet.run(30)
        leaver = fleet.nodes["c"]
        leaver.done(leaver.service.stop())
        fleet.run(30)
        assert fleet.nodes["a"].named("workers:updated")[-1].workers == ("a", "b")
        assert fleet.nodes["a"].service.get_metrics().worker_timeouts == 0


def test_a_mandate_is_not_handed_over_to_an_unhealthy_worker() -> None:
    with Fleet(config=QUICK.replace(mandate_end=MandateEnd.HAND_OVER, max_epoch_duration=60)) as fleet:
        leader = fleet.join("b")
        fleet.run(10)
        fleet.join("a", health_check=lambda: False)
        fleet.run(200)
        assert leader.named("coord:coordinator-demoted") == []


@pytest.mark.parametrize("workers", ["abc", "abcde"])
def test_a_worker_that_restarts_with_better_priority_is_handed_the_lease(workers: str) -> None:
    with Fleet(config=QUICK.replace(min_epoch_duration=10)) as fleet:
        for name in workers:
            fleet.join(name)
        fleet.run(30)
        host = fleet.nodes["c"].host
        host.crash()
        fleet.join("c", host=host.respawn(), priority=10)
        fleet.run(300)
        assert fleet.leader is not None
        assert fleet.leader.name == "c"
