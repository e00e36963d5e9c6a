"""Whole coordinators in simulated time: a lease that is not what it should be makes no leader and lowers no epoch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenure.coordinator.config import CoordinatorConfig
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.world import World
from tests.simulated.fleet import QUICK, Fleet

LONGEST = QUICK.longest_lease_seconds
"""The holder of a lease that cannot be read may have had one that long."""

Damage = Callable[[Fleet], None]


def _overwrite(body: bytes) -> Damage:
    return lambda fleet: fleet.bucket.corrupt(fleet.path("state.json"), body)


def _change(**fields: Any) -> Damage:
    def apply(fleet: Fleet) -> None:
        state = fleet.json("state.json") | {"writeId": "somebody-else"} | fields
        fleet.bucket.corrupt(fleet.path("state.json"), json.dumps(state).encode())

    return apply


DAMAGE: dict[str, Damage] = {
    "not JSON": _overwrite(b"\x00\xff garbage"),
    "empty": _overwrite(b""),
    "another program's": _overwrite(b'{"leader": "me"}'),
    "huge": _overwrite(b'{"leaderId": "' + b"x" * 100_000 + b'"}'),
    "half a leader": _change(uid=None),
    "epoch of no number": _change(epoch="two"),
    "epoch of minus one": _change(epoch=-1),
    "a lease of a year": _change(leaseDurationMs=365 * 86_400_000),
    "deleted": lambda fleet: fleet.bucket.remove(fleet.path("state.json")),
}


class TestDamage:
    @pytest.mark.req("EL-20", "EF-1")
    @pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
    def test_it_is_reported_set_aside_and_rebuilt_above_the_history(
        self, damage: Damage, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Fleet() as fleet:
            for name in "abc":
                fleet.join(name)
            fleet.run(20)
            fleet.lead().host.crash()
            fleet.run(60)
            assert fleet.epochs() == [1, 2]
            damage(fleet)
            broken = fleet.bucket.body(fleet.path("state.json"))
            began = fleet.world.now
            fleet.run(LONGEST)
            assert fleet.leader is None, "whoever held it may have had the longest lease there is"
            assert fleet.bucket.body(fleet.path("state.json")) == broken
            fleet.run(30)
            assert fleet.epochs() == [1, 2, 3]
            assert fleet.terms[-1][0] - began > LONGEST
            assert fleet.json("state.json")["epoch"] == 3
            assert fleet.json(f"terms/{3:020d}.json")["afterDamage"] is True
            aside = fleet.bucket.keys(fleet.path("damaged/"))
            assert [fleet.bucket.body(key) for key in aside] == ([broken] if broken else [])
            living = [node for node in fleet.nodes.values() if node.host.alive]
            assert any(node.named("lease:damaged") for node in living)
            assert any("rebuilt once nobody has written it for" in each.getMessage() for each in caplog.records)
            fleet.run(120)
            assert fleet.epochs() == [1, 2, 3], "once is enough"
            for node in living:
                assert len(node.named("lease:damaged")) <= 1, "one report for one damage"

    @pytest.mark.req("EL-20")
    def test_the_leader_stops_leading_when_it_finds_it(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(20)
            DAMAGE["not JSON"](fleet)
            fleet.run(7)
            assert not leader.leads
            assert [event.reason for event in leader.named("coord:coordinator-demoted")] == ["damaged"]
            assert leader.plugin.calls == ["become", "stop"]

    @pytest.mark.req("EL-20")
    @pytest.mark.parametrize("whole_fleet_restarts", [False, True])
    def test_one_that_was_put_back_from_before_makes_nobody_leader_again(self, whole_fleet_restarts: bool) -> None:
        """A backup of epoch 1 in a namespace that got to 3: also for processes that never saw 3."""
        with Fleet() as fleet:
            for name in "abc":
                fleet.join(name)
            fleet.run(20)
            old = fleet.bucket.body(fleet.path("state.json"))
            assert old is not None
            for _ in range(2):
                fleet.lead().done(fleet.lead().service.step_down())
                fleet.run(30)
            assert fleet.epochs() == [1, 2, 3]
            if whole_fleet_restarts:
                hosts = {node.name: node.host for node in fleet.nodes.values()}
                for host in hosts.values():
                    host.crash()
                fleet.bucket.restore(fleet.path("state.json"), old)
                for name, host in hosts.items():
                    fleet.join(name, host=host.respawn())
            else:
                fleet.bucket.restore(fleet.path("state.json"), old)
            fleet.run(LONGEST + 90)
            assert fleet.epochs() == [1, 2, 3, 4]
            assert any("rolled back" in e.reason for n in fleet.nodes.values() for e in n.named("lease:damaged"))
            assert len(fleet.bucket.keys(fleet.path("damaged/"))) == 1

    @pytest.mark.req("EL-20", "EF-1")
    @pytest.mark.parametrize("leader_dies", [False, True])
    def test_a_renewal_that_was_put_back_is_not_taken_for_a_new_one(self, leader_dies: bool) -> None:
        """The leader counts from when it sent that one, long ago; the others know that there were later ones."""
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.join("b")
            fleet.run(20)
            old = fleet.bucket.body(fleet.path("state.json"))
            assert old is not None
            fleet.run(20)
            if leader_dies:
                leader.host.crash()
            fleet.bucket.restore(fleet.path("state.json"), old)
            fleet.run(LONGEST + 60)
            assert fleet.epochs() == [1, 2]

    def test_the_same_lease_written_once_more_costs_nothing(self) -> None:
        """A tool that copies a bucket onto itself gives every object a new version."""
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.join("b")
            fleet.run(30)
            body = fleet.bucket.body(fleet.path("state.json"))
            assert body is not None
            fleet.bucket.restore(fleet.path("state.json"), body)
            fleet.run(120)
            assert leader.leads
            assert fleet.epochs() == [1]

    @pytest.mark.req("EL-20")
    def test_a_newer_form_is_left_alone_for_ever(self) -> None:
        with Fleet() as fleet:
            nodes = [fleet.join(name) for name in "ab"]
            fleet.run(20)
            _change(schemaVersion=2, leaderId="of-tomorrow")(fleet)
            newer = fleet.bucket.body(fleet.path("state.json"))
            fleet.run(1000)
            assert fleet.bucket.body(fleet.path("state.json")) == newer
            assert fleet.leader is None
            assert fleet.epochs() == [1]
            assert any("newer tenure" in event.reason for node in nodes for event in node.named("lease:damaged"))
            assert fleet.bucket.keys(fleet.path("damaged/")) == []

    @pytest.mark.req("EL-20")
    def test_a_new_namespace_has_no_damage(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            assert fleet.until(lambda: node.leads) < 5
            assert node.named("lease:damaged") == []

    @pytest.mark.req("EL-20")
    def test_the_longest_lease_of_the_namespace_counts_not_ones_own(self) -> None:
        """Founded by processes with leases of two minutes: one with short leases waits for theirs."""
        with Fleet() as fleet:
            founder = fleet.join("a", lease_timeout=120, longest_lease=240)
            fleet.run(20)
            founder.host.crash()
            DAMAGE["deleted"](fleet)
            node = fleet.join("b", **_timing(CoordinatorConfig.fast()))
            assert 240 < fleet.until(lambda: node.leads, within=300) < 260

    @pytest.mark.req("EL-15", "EL-20")
    @pytest.mark.parametrize("lost", ["removed", "damaged"])
    def test_who_was_allowed_a_longer_lease_is_waited_for_though_nobody_knows_of_it_any_more(self, lost: str) -> None:
        """metadata.json is founded anew by one with a short lease, who calls a longer one damaged. Its holder leads on
        for as long as its own lease says, and is not told of any of this."""

        def settings(number: int) -> dict[str, Any]:
            leases: list[dict[str, Any]] = [
                {"lease_timeout": 15.0, "heartbeat_interval": 5.0},
                {"lease_timeout": 60.0, "heartbeat_interval": 20.0, "worker_timeout": 120.0},
                {"lease_timeout": 3.0, "heartbeat_interval": 1.0, "heartbeat_jitter": 0.2, "takeover_delay": 0.3},
            ]
            return leases[number] | {"membership": False}

        with World(1) as world:
            cluster = SimulatedCluster(world, 3, CoordinatorConfig(startup_jitter_max=0), settings=settings)
            founder, slow, quick = (cluster.workers[name] for name in "abc")
            founder.start()
            world.run_until(10)
            slow.start()
            world.run_until(30)
            metadata = cluster.key("metadata.json")
            if lost == "removed":
                cluster.bucket.remove(metadata)
            else:
                cluster.bucket.corrupt(metadata, b"\x00")
            quick.start()
            world.run_until(60)
            quick.healthy = False
            world.run_until(75)
            founder.crash()
            world.run_until(200)
            assert cluster.leaders() == ["b"]
            quick.healthy = True
            while world.now < 500:
                world.run_until(world.now + 0.5)
                assert cluster.leaders() in ([], ["b"]), f"at {world.now:g} s"
            slow.crash()
            world.run_until(700)
            assert cluster.leaders() == ["c"]


def _timing(config: CoordinatorConfig) -> dict[str, Any]:
    names = ("heartbeat_interval", "heartbeat_jitter", "lease_timeout", "worker_timeout", "standby_watch_interval")
    return {name: getattr(config, name) for name in names}
