"""Whole coordinators in simulated time: a term begins once, ends once, and its number only rises."""

from __future__ import annotations

import pytest

from tests.simulated.fleet import Fleet


@pytest.mark.req("EF-1")
def test_every_crash_gives_the_next_number_to_the_next_in_rank() -> None:
    with Fleet() as fleet:
        nodes = [fleet.join(name) for name in "abc"]
        for _ in range(2):
            fleet.lead().host.crash()
        fleet.lead()
        assert [(name, epoch) for _, name, epoch in fleet.terms] == [("a", 1), ("b", 2), ("c", 3)]
        fleet.run(10)
        seen = nodes[2].named("leader:changed")
        assert [(event.previous_leader, event.new_leader, event.epoch) for event in seen][-1] == ("b", "c", 3)
        assert [event.epoch for event in seen] == sorted({event.epoch for event in seen})


@pytest.mark.req("EL-4")
def test_a_leader_that_renews_is_not_overthrown_by_a_smaller_id() -> None:
    with Fleet() as fleet:
        fleet.join("b")
        fleet.run(20)
        fleet.join("a")
        fleet.run(200)
        assert [(name, epoch) for _, name, epoch in fleet.terms] == [("b", 1)]


class TestATermThatIsOverIsOverForTheWholeProcess:
    """Whatever ended `Lead` must end the engine's own tenure: otherwise it renews a lease under which nobody leads."""

    def test_a_leader_frozen_over_its_deadline_with_a_renewal_under_way_leads_again(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(20)
            assert leader.leads
            frozen: list[float] = []

            def freeze(host: str, verb: str, key: str, at: float) -> None:
                if not frozen and verb == "replace" and key.endswith("state.json"):
                    frozen.append(at)
                    # The answer comes while it stands still; it goes on after its renew_deadline, within its lease.
                    fleet.world.call_at(at + 0.001, leader.host.freeze, 6.0)

            fleet.network.on_request = freeze
            fleet.run(60)
            assert frozen
            assert leader.plugin.calls[:2] == ["become", "stop"]
            assert leader.leads

    def test_a_leader_that_said_no_once_ends_its_term(self) -> None:
        """The wall clock jumps, somebody asks `is_leader()`, the wall clock is put right, all between two beats."""
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(20)
            now = fleet.world.now
            answers: list[bool] = []
            fleet.world.call_at(now + 0.1, leader.host.step_wall, 3.0)
            fleet.world.call_at(now + 0.2, lambda: answers.append(leader.service.is_leader()))
            fleet.world.call_at(now + 0.3, leader.host.step_wall, -3.0)
            fleet.run(60)
            assert answers == [False]
            assert leader.plugin.calls[:2] == ["become", "stop"]
            assert leader.leads

    @pytest.mark.parametrize("seeds", [range(12)])
    def test_a_new_leader_on_a_healthy_store_keeps_its_term(self, seeds: range) -> None:
        demoted = []
        for seed in seeds:
            with Fleet(seed) as fleet:
                fleet.network.change(latency=(0.2, 0.3))
                for name in "abc":
                    fleet.join(name)
                fleet.run(60)
                fleet.lead().host.crash()
                fleet.run(90)
                for node in fleet.nodes.values():
                    demoted += [(seed, event) for event in node.named("coord:coordinator-demoted")]
        assert demoted == []
