"""ClusterHealth and PollOrchestrator as children of a supervisor, moving with leadership."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.plugins.cluster_health import ClusterHealth
from tenure.plugins.poll import Anywhere, PollOrchestrator, PollSchedule, PollWorker, Run, Verdict, read_results
from tenure.plugins.supervisor.child import Child, ChildState, Context
from tenure.plugins.supervisor.restarts import RestartPolicy

from .fleet import Node
from .plugins import Home
from .test_supervisor import Candidates


@pytest.mark.req("SV-3")
def test_the_leaders_cluster_health_sees_nodes_come_and_go_and_children_that_crash() -> None:
    with Candidates() as fleet:
        health = {name: ClusterHealth(check_interval=2.0) for name in "abc"}
        told: dict[str, list[tuple[str, str]]] = {name: [] for name in "abc"}

        async def crash(context: Context) -> None:
            await context.clock.sleep(3)
            if broken:
                raise ValueError("again")
            await context.clock.sleep(1e9)

        async def listen(name: str) -> None:
            for event in ("node:up", "node:down"):
                health[name].on(event, lambda happened: told[name].append((happened.name, happened.node)))

        broken = False
        policy = RestartPolicy(max_restarts=100, first_backoff=0.1, longest_backoff=0.1)
        for name in "ab":
            node = fleet.stand(name, [Child("health", health[name]), fleet.book.child("c", crash)], restarts=policy)
            node.done(listen(name))
        leader = fleet.lead()
        assert leader.name == "a"
        fleet.run(20)
        assert health["a"].healthy()
        assert health["a"].report().status == "healthy"
        late = fleet.stand("c", [Child("health", health["c"])])
        fleet.until(lambda: ("node:up", "c") in told["a"], 30)
        late.host.crash()
        fleet.until(lambda: ("node:down", "c") in told["a"], 40)
        assert told["b"] == [], "only the leader's runs"
        broken = True
        leader.host.crash()
        other = fleet.nodes["b"]
        fleet.until(lambda: other.leads, 30)
        fleet.run(40)
        report = health["b"].report()
        assert report.status == "degraded"
        assert any("'c'" in reason or " c " in reason for reason in report.reasons), report.reasons
        status, _, body = health["b"].response()
        assert status == 200
        assert b"degraded" in body


class Instant:
    """A check without a network."""

    def definition(self) -> dict[str, Any]:
        return {"kind": "instant"}

    async def run(self, run: Run) -> Verdict:
        return Verdict(True, "fine")


@pytest.mark.req("SV-4")
def test_polling_goes_on_when_its_leader_dies() -> None:
    with Candidates() as fleet:
        schedules = [PollSchedule("web", Instant(), every=2.0, assign=Anywhere())]  # type: ignore[arg-type]
        workers: dict[str, PollWorker] = {}

        async def work(node: Node, name: str) -> None:
            worker = workers[name] = PollWorker(Home(node), node.service, schedules)  # type: ignore[arg-type]
            await worker.start()

        for name in "abc":
            node = fleet.stand(name, [Child("poll", PollOrchestrator(schedules))])
            node.run(work(node, name))
        leader = fleet.lead()
        fleet.run(30)
        before = leader.done(read_results(Home(leader)))  # type: ignore[arg-type]
        assert before["web"].ok >= 8
        (status,) = fleet.candidates[leader.name].supervisor.status()
        assert status.state is ChildState.RUNNING
        leader.host.crash()
        fleet.run(40)
        other = fleet.lead()
        after = other.done(read_results(Home(other)))  # type: ignore[arg-type]
        assert after["web"].ok >= before["web"].ok + 8
