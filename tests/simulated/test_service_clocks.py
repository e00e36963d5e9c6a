"""Whole coordinators in simulated time: `is_leader()` turns false by itself, whatever became of the process.

The fleet checks after every single step that no two lead; these tests ask a process that does not run.
"""

from __future__ import annotations

import pytest

from tenure.entropy import Random
from tests.simulated.fleet import Fleet, Node


def false_after(fleet: Fleet, node: Node, within: float = 20.0) -> float:
    """How long it takes until `is_leader()` says no, asked every 10 ms, without a turn of the process's own loop."""
    began = fleet.world.now
    while node.service.is_leader():
        assert fleet.world.now - began < within
        fleet.run(0.01)
    assert node.host.frozen
    return fleet.world.now - began


class TestAProcessThatStandsStill:
    @pytest.mark.req("EL-15")
    @pytest.mark.parametrize("pause", ["freeze", "suspend"])
    def test_says_no_before_anybody_else_says_yes(self, pause: str) -> None:
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.run(30)
            getattr(leader.host, pause)(100)
            assert leader.service.is_leader()
            assert false_after(fleet, leader) <= 10.0, "renew_deadline after its last renewal, at the latest"
            assert not leader.service.is_coordinator
            assert leader.service.lead is None
            assert not other.service.is_leader()
            fleet.until(lambda: other.leads, within=30)
            fleet.run(100)
            assert not leader.host.frozen
            assert not leader.service.is_leader()
            assert leader.plugin.calls == ["become", "stop"]
            assert [(name, epoch) for _, name, epoch in fleet.terms] == [("a", 1), ("b", 2)]

    @pytest.mark.req("EL-15", "CP-7")
    def test_begins_nothing_for_the_term_that_ended_meanwhile(self) -> None:
        """The hook for a new term was under way when the process was stopped for longer than the lease."""
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.join("b")

            def freeze(host: str, verb: str, key: str, at: float) -> None:
                if host == "a" and "/terms/" in key and verb == "get":  # the term is read back, then it leads
                    fleet.world.call_at(at + 0.0001, leader.host.freeze, 60.0)

            fleet.network.on_request = freeze
            fleet.run(120)
            assert leader.plugin.calls == []
            assert fleet.leader is fleet.nodes["b"]

    @pytest.mark.req("EL-15")
    @pytest.mark.parametrize("seed", range(6))
    def test_never_makes_two_leaders(self, seed: int) -> None:
        """Leaders are stopped in turn, at random moments, for random times; clocks differ by what is allowed."""
        random = Random(seed)
        with Fleet(seed) as fleet:
            for name in "abc":
                host = fleet.world.host(
                    name, rate=random.uniform(0.991, 1.009), wall_offset=random.choice([-86_400.0, 0.0, 3.0, 1e6])
                )
                fleet.join(name, host=host)
            fleet.run(20)
            for _ in range(8):
                leader = fleet.lead()
                fleet.run(random.uniform(0, 8))
                pause = leader.host.freeze if random.random() < 0.5 else leader.host.suspend
                pause(random.uniform(5, 40))
                fleet.run(random.uniform(20, 60))
            assert fleet.epochs() == list(range(1, len(fleet.terms) + 1))
            assert len(fleet.terms) > 3


class TestTheWallClock:
    @pytest.mark.req("EL-15")
    def test_a_step_forward_ends_leadership_at_once(self) -> None:
        """A guest that was stopped without noticing shows it by a wall clock that was put right."""
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(30)
            assert leader.service.is_leader()
            leader.host.step_wall(30)
            assert not leader.service.is_leader()
            leader.host.step_wall(-30)
            assert not leader.service.is_leader(), "who was told no is never told otherwise about that term"
            fleet.run(60)
            assert leader.service.is_leader()
            assert fleet.epochs() == [1, 2]

    @pytest.mark.req("EL-15")
    @pytest.mark.parametrize("step", [-86_400.0, -30.0, 0.5])
    def test_a_step_back_or_a_small_one_costs_nothing_and_gains_nothing(self, step: float) -> None:
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(30)
            lead = leader.service.lead
            assert lead is not None
            before = lead.remaining()
            leader.host.step_wall(step)
            assert lead.remaining() == pytest.approx(before, abs=1e-6)
            leader.host.freeze(60)
            assert false_after(fleet, leader) <= 10.0

    @pytest.mark.req("EL-15")
    def test_slewed_clocks_do_not_lengthen_it(self) -> None:
        """NTP slows the leader's clock by 8 % and it is frozen: MONOTONIC_RAW tells the truth."""
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            renewed: list[float] = []

            def note(host: str, verb: str, key: str, at: float) -> None:
                if host == "a" and verb == "replace" and key.endswith("state.json"):
                    renewed.append(at)

            fleet.network.on_request = note
            fleet.run(30)
            leader.host.set_slew(-0.08)
            other.host.set_slew(0.08)
            fleet.run(30)
            leader.host.freeze(60)
            false_after(fleet, leader)
            assert 9.9 < fleet.world.now - renewed[-1] < 10.1, "not 10.9"
            fleet.run(60)
            assert fleet.epochs() == [1, 2]
