"""Whole coordinators in simulated time: leaving the fleet, politely and within bounds."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulated.fleet import Fleet, Node


def seconds_to_stop(fleet: Fleet, node: Node, within: float = 60.0) -> float:
    began = fleet.world.now
    node.done(node.service.stop(), within)
    return fleet.world.now - began


@pytest.mark.req("EL-11")
def test_a_leader_that_stops_tells_its_plugins_then_releases_then_deregisters() -> None:
    with Fleet() as fleet:
        leader, other = fleet.join("a"), fleet.join("b")
        fleet.run(30)
        released: list[float] = []
        removed: list[float] = []

        def watch(host: str, verb: str, key: str, at: float) -> None:
            if host == "a" and verb == "replace" and key.endswith("state.json"):
                released.append(at)
            if host == "a" and verb == "delete" and key.endswith("worker=a.json"):
                removed.append(at)

        fleet.network.on_request = watch
        assert seconds_to_stop(fleet, leader) < 1
        assert leader.plugin.calls == ["become", "stop"]
        assert leader.plugin.times[-1] <= released[-1] <= removed[0]
        state = fleet.json("state.json")
        assert state["leaderId"] is None
        assert state["previousLeader"] == "a"
        assert state["successor"] == "b"
        assert fleet.bucket.body(fleet.path("workers/worker=a.json")) is None
        assert not leader.service.running
        assert not leader.service.is_leader()
        assert [event.reason for event in leader.named("coord:coordinator-demoted")] == ["stopped"]
        before = fleet.requests("a").total()
        assert fleet.until(lambda: other.leads) < 7, "no lease has to lapse first"
        fleet.run(60)
        assert other.named("workers:updated")[-1].workers == ("b",)
        assert fleet.requests("a").total() == before, "what has stopped asks for nothing"


@pytest.mark.req("EL-11")
def test_a_follower_that_stops_deregisters() -> None:
    with Fleet() as fleet:
        fleet.join("a")
        follower = fleet.join("b")
        fleet.run(30)
        assert seconds_to_stop(fleet, follower) < 1
        assert fleet.bucket.body(fleet.path("workers/worker=b.json")) is None
        assert follower.plugin.calls == []
        assert fleet.epochs() == [1]


@pytest.mark.req("EL-11")
def test_a_hook_that_never_returns_delays_the_stop_by_drain_timeout_and_the_lease_lapses() -> None:
    """Its work may still be going on, so nobody is handed the lease; that it goes on is reported."""
    with Fleet() as fleet:
        leader, other = fleet.join("a"), fleet.join("b")
        fleet.run(30)
        leader.plugin.on_stop_being_coordinator = asyncio.Event().wait  # type: ignore[method-assign]
        assert 10 <= seconds_to_stop(fleet, leader) < 11
        assert fleet.json("state.json")["leaderId"] == "a", "not released"
        assert [event.epoch for event in leader.named("lease:overran")] == [1]
        assert fleet.bucket.body(fleet.path("workers/worker=a.json")) is None
        fleet.until(lambda: other.leads, within=20)
        assert fleet.epochs() == [1, 2]


@pytest.mark.req("EL-11")
def test_a_hook_that_ignores_its_cancellation_is_waited_for_no_longer() -> None:
    with Fleet() as fleet:
        leader = fleet.join("a")

        async def work(lead: object) -> None:
            while True:
                try:
                    await leader.host.clock.sleep(100)
                except asyncio.CancelledError:
                    if not leader.host.alive:
                        raise

        leader.plugin.on_become_coordinator = work  # type: ignore[method-assign]
        fleet.run(30)
        assert 10 <= seconds_to_stop(fleet, leader) < 11


@pytest.mark.req("EL-11")
@pytest.mark.parametrize("leading", [True, False])
def test_stopping_is_bounded_while_the_store_is_away(leading: bool) -> None:
    with Fleet() as fleet:
        nodes = [fleet.join("a"), fleet.join("b")]
        fleet.run(30)
        node = nodes[0] if leading else nodes[1]
        assert node.leads is leading
        fleet.network.outage(True)
        config = node.service.config
        assert seconds_to_stop(fleet, node) <= config.drain_timeout + 6 * config.request_timeout_seconds
        assert not node.service.running
        if leading:
            assert node.plugin.calls == ["become", "stop"]


@pytest.mark.req("EL-11")
def test_a_stop_during_the_startup_jitter_is_immediate() -> None:
    with Fleet() as fleet:
        node = fleet.join("a", startup_jitter_min=30, startup_jitter_max=30)
        fleet.run(5)
        assert seconds_to_stop(fleet, node) < 0.2
        fleet.run(60)
        assert fleet.terms == []


@pytest.mark.req("EL-11")
def test_a_stop_while_it_stands_is_as_quick_as_any_other() -> None:
    with Fleet() as fleet:
        fleet.network.change(latency=(0.3, 0.3))
        node = fleet.join("a")
        took: list[float] = []

        async def stop() -> None:
            began = fleet.world.now
            await node.service.stop()
            took.append(fleet.world.now - began)

        def watch(host: str, verb: str, key: str, at: float) -> None:
            if verb == "create" and key.endswith("state.json"):
                fleet.world.call_at(at + 0.01, lambda: node.run(stop()))

        fleet.network.on_request = watch
        fleet.run(60)
        assert len(took) == 1
        assert took[0] < 5
        assert fleet.json("state.json")["leaderId"] is None


def test_a_coordinator_that_stopped_may_start_again() -> None:
    with Fleet() as fleet:
        node = fleet.join("a")
        fleet.run(20)
        seconds_to_stop(fleet, node)
        node.done(node.service.stop())  # a second time: nothing to do
        node.done(node.service.start())
        node.done(node.service.start())
        fleet.run(20)
        assert node.leads
        assert node.plugin.calls == ["become", "stop", "become"]
        assert node.plugin.epochs == [1, 2]


def test_unsubscribing_is_leave_taking() -> None:
    """A plugin that goes is told that it stopped leading, once; the process goes on leading."""
    with Fleet() as fleet:
        node = fleet.join("a")
        fleet.run(20)

        async def leave() -> None:
            node.service.unsubscribe(node.plugin)

        node.done(leave())
        fleet.run(1)
        assert node.plugin.calls == ["become", "stop"]
        assert node.leads
        seconds_to_stop(fleet, node)
        assert node.plugin.calls == ["become", "stop"]
