"""Cluster health in simulated time: who comes and goes, and what each node would answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, cast

import pytest

from tenure.database import Database
from tenure.errors import CoordinationError
from tenure.plugins.cluster_health import ClusterHealth
from tenure.plugins.supervisor.child import ChildState, ChildStatus, Context, token_of
from tests.simulated.fleet import QUICK, Fleet, Node


class Watched:
    """A fleet in which every node observes, and the leader runs the child."""

    def __init__(self, seed: int = 1) -> None:
        self.fleet = Fleet(seed)
        self.observers: dict[str, ClusterHealth] = {}
        self.children: dict[str, ClusterHealth] = {}
        self.events: list[tuple[float, str, Any]] = []
        """(time, leader, event) of the children."""
        self.statuses: tuple[ChildStatus, ...] = ()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: Any) -> None:
        self.fleet.__exit__(*error)

    def join(self, name: str) -> Node:
        node = self.fleet.join(name)
        node.run(self._live(node))
        return node

    async def _live(self, node: Node) -> None:
        with contextlib.suppress(CoordinationError):  # its coordinator was stopped
            await self._watch(node)

    async def _watch(self, node: Node) -> None:
        service, clock = node.service, node.host.clock
        while not service.running:
            await clock.sleep(0.05)
        observer = ClusterHealth.observe(service, clock=clock)
        self.observers[node.name] = observer
        await observer.start()
        async for lead in service.terms():
            async with lead:
                child = ClusterHealth()
                child.on("*", lambda event: self.events.append((self.fleet.world.now, node.name, event)))
                self.children[node.name] = child
                context = Context(
                    name="health",
                    token=token_of(lead.epoch, 1),
                    node=node.name,
                    database=cast(Database, None),
                    coordinator=service,
                    lead=lead,
                    clock=clock,
                    statuses=lambda: self.statuses,
                )
                await child.start(context)
                try:
                    await child.wait()
                finally:
                    await asyncio.shield(child.stop())

    def told(self, name: str) -> list[tuple[str, str]]:
        return [(leader, event.node) for _, leader, event in self.events if event.name == name]

    def code(self, name: str) -> int:
        return self.observers[name].response()[0]


@pytest.mark.req("SV-3")
def test_nodes_that_come_and_go_are_told_of_once_each() -> None:
    with Watched() as watched:
        watched.join("a")
        watched.fleet.lead()
        watched.fleet.run(20)
        assert watched.told("node:up") == [], "those found at the start are the baseline"
        b, c = watched.join("b"), watched.join("c")
        watched.fleet.run(30)
        assert watched.told("node:up") == [("a", "b"), ("a", "c")]
        b.done(b.service.stop())
        watched.fleet.run(30)
        assert watched.told("node:down") == [("a", "b")]
        c.host.crash()
        watched.fleet.run(60)
        assert watched.told("node:down") == [("a", "b"), ("a", "c")]
        down = [event for _, _, event in watched.events if event.name == "node:down"]
        assert down[-1].nodes == ("a",)
        assert watched.children["a"].report().nodes_up == 1
        assert watched.told("node:up") == [("a", "b"), ("a", "c")]


@pytest.mark.req("SV-3")
@pytest.mark.parametrize("seed", range(4))
def test_a_new_leader_tells_of_nobody_but_the_one_that_died(seed: int) -> None:
    with Watched(seed) as watched:
        for name in "abc":
            watched.join(name)
        leader = watched.fleet.lead()
        watched.fleet.run(40)
        watched.events.clear()
        leader.host.crash()
        watched.fleet.until(lambda: watched.fleet.leader)
        watched.join("d")  # while it takes over
        watched.fleet.run(60)
        assert [node for _, node in watched.told("node:down")] in ([], [leader.name])
        assert [node for _, node in watched.told("node:up")] in ([], ["d"])
        now = watched.fleet.lead()
        assert set(watched.children[now.name].report().nodes) == set("abcd") - {leader.name}


@pytest.mark.req("SV-3")
def test_every_node_answers_and_the_answer_follows_the_leadership_and_the_store() -> None:
    with Watched() as watched:
        for name in "ab":
            watched.join(name)
        leader = watched.fleet.lead()
        watched.fleet.run(40)
        other = next(name for name in "ab" if name != leader.name)
        code, headers, body = watched.observers[other].response()
        assert code == 200
        assert headers["Content-Type"].startswith("application/json")
        shown = json.loads(body)
        assert (shown["status"], shown["leader"], shown["role"], shown["epoch"]) == (
            "healthy",
            leader.name,
            "follower",
            1,
        )
        assert shown["nodesUp"] == 2
        assert watched.children[leader.name].healthy()

        watched.fleet.network.outage(True)
        watched.fleet.run(30)
        assert watched.code(other) == 503
        assert not watched.observers[other].healthy()
        watched.fleet.network.outage(False)
        watched.fleet.run(90)
        assert watched.code(other) == 200
        assert watched.code(leader.name) == 200


@pytest.mark.parametrize("membership", [True, False])
def test_a_leader_that_nobody_replaces_makes_it_degraded_and_then_unhealthy(membership: bool) -> None:
    """WA-1."""
    with Fleet(config=QUICK.replace(membership=membership)) as fleet:
        leader = fleet.join("a")
        fleet.lead()
        follower = fleet.join("b", eligible=False)
        fleet.run(20)
        health = ClusterHealth.observe(follower.service, clock=follower.host.clock)
        follower.done(health.start())
        fleet.run(20)
        assert health.report().status == "healthy"
        leader.host.crash()
        fleet.until(lambda: health.report().status == "degraded", 40)
        code, _, body = health.response()
        assert (code, json.loads(body)["leader"]) == (200, None)
        fleet.run(QUICK.usual_failover() - 1)
        assert health.response()[0] == 200
        fleet.run(2)
        assert health.response()[0] == 503
        fleet.join("c")
        fleet.until(lambda: health.report().status == "healthy", 40)
        follower.done(health.stop())


def test_a_child_whose_lease_ended_is_unhealthy_at_once() -> None:
    with Watched() as watched:
        leader = watched.join("a")
        watched.fleet.lead()
        watched.fleet.run(20)
        child = watched.children["a"]
        assert child.healthy()
        lead = leader.service.lead
        assert lead is not None
        lead.end("test")
        assert child.response()[0] == 503
        assert "lease is not held" in child.report().reasons[0]


@pytest.mark.req("SV-3")
def test_a_change_of_status_is_told_once_with_its_reasons() -> None:
    with Watched() as watched:
        watched.join("a")
        watched.fleet.lead()
        watched.fleet.run(25)
        watched.statuses = (ChildStatus(name="mail", state=ChildState.RUNNING, failures=1),)
        watched.fleet.run(25)
        assert watched.children["a"].healthy(), "one crash is no habit"
        watched.statuses = (ChildStatus(name="mail", state=ChildState.BACKING_OFF, failures=6),)
        watched.fleet.run(60)
        assert not watched.children["a"].healthy()
        assert watched.children["a"].response()[0] == 200, "degraded, and it goes on"
        watched.fleet.run(400)  # longer than the window
        changes = [event for _, _, event in watched.events if event.name == "health:changed"]
        assert [(change.previous, change.report.status) for change in changes] == [
            (None, "healthy"),
            ("healthy", "degraded"),
            ("degraded", "healthy"),
        ]
        assert "'mail' keeps crashing" in changes[1].report.reasons[0]


def test_a_slow_store_is_degraded() -> None:
    with Watched() as watched:
        watched.join("a")
        watched.fleet.lead()
        watched.fleet.run(80)
        assert watched.children["a"].healthy()
        child = watched.children["a"]
        service = watched.fleet.nodes["a"].service
        for _ in range(100):
            service._metrics.heartbeat(6.0, 0.0)
        assert child.report().status == "degraded"
        assert "one heartbeat in twenty" in child.report().reasons[0]
