"""Whole coordinators in simulated time: who is alive, as told at an election (WA-3).

A lease of 15 s lapses before a worker that fell silent with it times out (20 s), so the holder that died is in nobody's
way, and on nobody's list, only if it is left out.
"""

from __future__ import annotations

import pytest

from tests.simulated.fleet import Fleet, Node


def told(node: Node) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(each.worker_id, each.epoch, each.active_workers) for each in node.named("coord:coordinator-elected")]


def active(node: Node) -> list[str]:
    """At this instant, without a request."""
    engine = node.service._engine
    assert engine is not None
    return sorted(member.worker_id for member in engine.fleet.members)


class TestTheFirstElection:
    def test_all_hear_of_all(self) -> None:
        with Fleet() as fleet:
            nodes = [fleet.join(name) for name in "abc"]
            fleet.until(lambda: all(told(node) for node in nodes))
            assert [told(node) for node in nodes] == [[("a", 1, ("a", "b", "c"))]] * 3

    def test_the_leader_knows_its_fleet_as_soon_as_it_leads(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abc"}
            seen: list[tuple[float, list[str]]] = []

            async def look() -> None:
                async with nodes["a"].service.leadership():
                    seen.append((fleet.world.now, await nodes["a"].service.get_active_workers()))

            fleet.run(0.6)
            nodes["a"].run(look())
            fleet.until(lambda: seen)
            (_, found) = seen[0]
            assert found == ["a", "b", "c"]
            assert nodes["a"].named("workers:updated")[0].workers == ("a", "b", "c")

    def test_who_may_not_stand_and_has_listed_nobody_names_the_leader_and_itself(self) -> None:
        with Fleet() as fleet:
            fleet.join("a")
            other = fleet.join("b", eligible=False)
            fleet.until(lambda: told(other))
            assert told(other) == [("a", 1, ("a", "b"))]

    def test_who_comes_later_hears_of_all(self) -> None:
        with Fleet() as fleet:
            for name in "abc":
                fleet.join(name)
            fleet.run(30)
            late = fleet.join("d")
            fleet.until(lambda: told(late))
            assert told(late) == [("a", 1, ("a", "b", "c", "d"))] or told(late) == [("a", 1, ("a", "b", "c"))]

    def test_a_large_fleet_is_known_long_before_the_next_heartbeat(self) -> None:
        """Whoever is not the first in rank stops reading records once it knows its place."""
        with Fleet() as fleet:
            for number in range(20):
                fleet.join(f"w{number:02}", health_check=lambda fit=number >= 19: fit, startup_jitter_max=0.05)
            last = fleet.nodes["w19"]
            fleet.until(lambda: last.leads)
            fleet.run(1)
            assert len(told(last)[0][2]) < 20, "it stood as the last"
            assert len(active(last)) == 20
            assert len(last.named("workers:updated")[-1].workers) == 20

    def test_without_membership_there_is_nobody_to_name(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a", membership=False)
            fleet.until(lambda: told(node))
            assert told(node) == [("a", 1, ())]
            assert active(node) == []


class TestAfterAFailover:
    def test_the_dead_leader_is_not_named(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abcd"}
            watcher = fleet.join("w", eligible=False)
            fleet.run(60)
            for node in [*nodes.values(), watcher]:
                node.events.clear()
            nodes["a"].host.crash()
            fleet.until(lambda: nodes["b"].leads)
            assert active(nodes["b"]) == ["b", "c", "d", "w"]
            for _ in range(100):
                fleet.run(0.2)
                assert active(nodes["b"]) == ["b", "c", "d", "w"], "nor does it come back with the first heartbeat"
            for node in (nodes["b"], nodes["c"], nodes["d"], watcher):
                assert told(node) == [("b", 2, ("b", "c", "d", "w"))]
                assert node.named("workers:updated")[-1].workers == ("b", "c", "d", "w")
            assert len(nodes["b"].named("workers:updated")) == 1
            assert nodes["b"].service.get_metrics().worker_timeouts == 1

    def test_nor_is_one_that_died_before_it(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abc"}
            fleet.run(60)
            nodes["c"].host.crash()
            fleet.run(8)
            nodes["a"].host.crash()
            fleet.until(lambda: nodes["b"].leads)
            assert told(nodes["b"])[-1] == ("b", 2, ("b",))
            assert active(nodes["b"]) == ["b"]
            fleet.run(30)
            assert nodes["b"].service.get_metrics().worker_timeouts == 2

    def test_a_leader_that_was_frozen_is_back_with_its_next_heartbeat(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abc"}
            fleet.run(60)
            nodes["a"].host.freeze(17.5)
            fleet.until(lambda: nodes["b"].leads)
            assert active(nodes["b"]) == ["b", "c"]
            fleet.run(15)
            assert active(nodes["b"]) == ["a", "b", "c"]
            assert nodes["b"].service.get_metrics().worker_timeouts == 0

    def test_one_that_was_restarted_under_its_id_is_named(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abc"}
            fleet.run(60)
            nodes["a"].host.crash()
            fleet.run(2)
            fleet.join("a", host=nodes["a"].host.respawn(), eligible=False)
            fleet.until(lambda: nodes["b"].leads)
            fleet.run(8)
            assert active(nodes["b"]) == ["a", "b", "c"]


class TestAfterAnElectionWithoutAnybodyDead:
    def test_who_stepped_down_is_named(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abc"}
            fleet.run(60)
            nodes["a"].done(nodes["a"].service.step_down())
            fleet.until(lambda: nodes["b"].leads)
            fleet.run(10)
            for node in nodes.values():
                assert told(node)[-1] == ("b", 2, ("a", "b", "c"))

    def test_who_stopped_is_not(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abc"}
            fleet.run(60)
            nodes["a"].done(nodes["a"].service.stop())
            fleet.until(lambda: nodes["b"].leads)
            assert told(nodes["b"])[-1] == ("b", 2, ("b", "c"))
            assert active(nodes["b"]) == ["b", "c"]

    def test_a_leader_that_takes_its_own_lapsed_lease_again_is_named(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(30)
            fleet.network.outage(True)
            fleet.until(lambda: not node.leads)
            fleet.run(10)
            fleet.network.outage(False)
            fleet.until(lambda: node.leads)
            assert told(node)[-1] == ("a", 2, ("a",))
            assert active(node) == ["a"]


@pytest.mark.parametrize("seed", range(3))
def test_without_a_listing_the_known_are_named_but_for_the_one_that_died(seed: int) -> None:
    """The turn is drawn by chance then, and nothing else changes."""
    with Fleet(seed) as fleet:
        nodes = {name: fleet.join(name) for name in "abc"}
        fleet.run(60)

        def fail(host: str, verb: str, key: str, at: float) -> None:
            fleet.network.change(server_error=1.0 if verb == "list" and "/workers/" in key else 0.0)

        fleet.network.on_request = fail
        nodes["a"].host.crash()
        leader = fleet.lead()
        assert told(leader)[-1] == (leader.name, 2, ("b", "c"))
        assert active(leader) == ["b", "c"]
