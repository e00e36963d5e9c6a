"""Whole coordinators in simulated time: whom they name as leader, and whom they count, when that has ended."""

from __future__ import annotations

import pytest

from tests.simulated.fleet import QUICK, Fleet, Node


def seen(node: Node) -> tuple[str | None, list[str]]:
    return node.done(node.service.get_leader()), node.done(node.service.get_active_workers())


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_process_that_stopped_names_itself_no_longer(name: str) -> None:
    """WA-3."""
    with Fleet() as fleet:
        fleet.join("a")
        fleet.lead()
        fleet.join("b")
        fleet.run(20)
        assert seen(fleet.nodes[name]) == ("a", ["a", "b"])
        stopped = fleet.nodes[name]
        stopped.done(stopped.service.stop())
        leader, workers = seen(stopped)
        assert leader != name
        assert name not in workers
        fleet.run(30)
        assert stopped.done(stopped.service.get_leader()) is None, "it has heard nothing for a whole lease"
        last = stopped.named("leader:changed")[-1]
        assert last.new_leader != name
        if name == "a":
            assert (last.previous_leader, last.new_leader) == ("a", None)


def test_a_process_that_lost_its_lease_names_itself_no_longer() -> None:
    """WA-3: nor when it reads its own lease, which has not lapsed for the others yet."""
    with Fleet() as fleet:
        node = fleet.join("a")
        fleet.lead()
        fleet.run(20)
        fleet.network.outage(True)
        fleet.until(lambda: node.named("coord:coordinator-demoted"))
        fleet.run(0.1)
        assert not node.service.is_leader()
        assert node.done(node.service.get_leader()) is None
        assert not node.service.is_leader("a")
        last = node.named("leader:changed")[-1]
        assert (last.previous_leader, last.new_leader) == ("a", None)
        fleet.network.outage(False)
        while not node.service.is_leader():
            fleet.run(0.5)
            if not node.leads:
                assert node.done(node.service.get_leader()) is None
        assert [event.new_leader for event in node.named("leader:changed")] == ["a", None, "a"]


def test_a_leader_whose_work_winds_up_says_that_nobody_leads() -> None:
    """WA-3."""
    with Fleet() as fleet:
        node = fleet.join("a")
        node.plugin.on_stop_being_coordinator = lambda: node.host.clock.sleep(5)  # type: ignore[method-assign]
        fleet.lead()
        fleet.run(20)
        node.run(node.service.leave("asked"))
        fleet.run(3)
        assert node.service.holds_lease
        assert node.done(node.service.get_leader()) is None
        assert node.named("leader:changed")[-1].new_leader is None


def test_a_process_that_let_its_lease_lapse_and_lives_counts_itself() -> None:
    """WA-1: whoever is not fit to lead any more, and is not replaced, is no dead leader."""
    with Fleet(config=QUICK.replace(health_check_interval=1.0)) as fleet:
        fit = [True]
        node = fleet.join("a", health_check=lambda: fit[0])
        fleet.lead()
        fleet.run(20)
        fit[0] = False
        fleet.network.outage(True)
        fleet.until(lambda: not node.leads, 60)
        fleet.network.outage(False)
        fleet.run(3 * QUICK.lease_timeout + QUICK.worker_timeout)
        assert not node.leads
        assert seen(node) == (None, ["a"])
        assert node.done(node.service.get_active_workers(fresh=True)) == ["a"]


def test_a_process_that_winds_up_is_alive() -> None:
    """A leader judges by this list whose work lapses, and its own does not while it stops."""
    with Fleet() as fleet:
        node = fleet.join("a")
        node.plugin.on_stop_being_coordinator = lambda: node.host.clock.sleep(5)  # type: ignore[method-assign]
        fleet.lead()
        fleet.run(20)
        stopping = node.run(node.service.stop())
        fleet.run(2)
        assert seen(node) == (None, ["a"])
        fleet.until(stopping.done)
        assert seen(node) == (None, [])


def watching(fleet: Fleet, **changes: object) -> tuple[Node, Node]:
    """A leader, and a follower that cannot take over."""
    leader = fleet.join("a")
    fleet.lead()
    follower = fleet.join("b", eligible=False, **changes)
    fleet.run(20)
    assert follower.done(follower.service.get_leader()) == "a"
    return leader, follower


BEAT = QUICK.heartbeat_interval + QUICK.heartbeat_jitter
LAPSES = QUICK.lease_timeout * (1 + QUICK.drift) + QUICK.takeover_margin


@pytest.mark.parametrize("membership", [True, False])
def test_a_dead_leader_is_not_named_once_its_lease_was_watched(membership: bool) -> None:
    """WA-1: although nobody takes over."""
    with Fleet(config=QUICK.replace(membership=membership)) as fleet:
        leader, follower = watching(fleet)
        leader.host.crash()
        took = fleet.until(lambda: follower.service.leader_seen is None)
        assert QUICK.lease_timeout - BEAT <= took <= LAPSES + 2 * BEAT + 1
        assert follower.done(follower.service.get_leader(fresh=True)) is None
        assert not follower.service.is_leader("a")
        fleet.run(BEAT)
        last = follower.named("leader:changed")[-1]
        assert (last.previous_leader, last.new_leader, last.epoch) == ("a", None, 1)
        assert follower.service.get_epoch() == 1
        fleet.run(QUICK.worker_timeout)
        assert seen(follower) == (None, ["b"] if membership else [])
        if membership:
            assert follower.named("workers:updated")[-1].workers == ("b",)
        told = len(follower.named("leader:changed", "workers:updated"))
        fleet.run(120)
        assert len(follower.named("leader:changed", "workers:updated")) == told, "each is told of once"
        fleet.join("c")
        fleet.until(lambda: follower.service.leader_seen == "c")
        assert [event.new_leader for event in follower.named("leader:changed")] == ["a", None, "c"]


def test_a_store_that_does_not_answer_leaves_the_last_name_for_one_lease() -> None:
    """WA-1: and `observed_age` says how old that is."""
    with Fleet() as fleet:
        _, follower = watching(fleet)
        fleet.network.cut("b")
        fleet.run(10)
        age = follower.service.observed_age
        assert age is not None
        assert 10 - 1 <= age <= 10 + BEAT + 1
        assert follower.service.leader_seen == "a"
        fleet.run(LAPSES - age - 0.5)
        assert follower.service.leader_seen == "a"
        fleet.run(1)
        assert follower.service.leader_seen is None
        fleet.run(BEAT)
        assert follower.named("leader:changed")[-1].new_leader is None
        fleet.network.heal("b")
        fleet.until(lambda: follower.service.leader_seen == "a")
        fleet.run(BEAT)
        assert [event.new_leader for event in follower.named("leader:changed")] == ["a", None, "a"]
        assert len(follower.named("coord:coordinator-elected")) == 1, "it was elected once"
        assert follower.service.get_metrics().leader_changes == 1


def test_a_coordinator_that_does_not_run_watches_from_one_fresh_look_to_the_next() -> None:
    """WA-1."""
    with Fleet() as fleet:
        leader = fleet.join("a")
        fleet.lead()
        outside = fleet.join("b", bare=True)
        fleet.run(20)
        assert outside.service.observed_age is None
        for _ in range(10):
            fleet.run(5)
            assert outside.done(outside.service.get_leader(fresh=True)) == "a"
        assert outside.service.observed_age is not None
        leader.host.crash()
        names = []
        for _ in range(8):
            fleet.run(5)
            names.append(outside.done(outside.service.get_leader(fresh=True)))
        assert names[:2] == ["a", "a"]
        assert names[5:] == [None, None, None]
        assert outside.done(outside.service.get_active_workers(fresh=True)) == []
