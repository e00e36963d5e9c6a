"""What counts as healthy, degraded and unhealthy."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import msgspec
import pytest

from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.metrics import CoordinatorMetrics
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.errors import ConfigError
from tenure.plugins.cluster_health import ClusterHealth, Observation, Thresholds, judge
from tenure.plugins.supervisor.child import ChildState, ChildStatus
from tenure.store.memory import MemoryStore

FINE = Observation(
    node="a",
    namespace="default",
    role="leader",
    leader="a",
    epoch=3,
    lease_held=True,
    nodes=("a", "b"),
    store_latency=0.02,
    looked_ago=4.0,
    heartbeat_p95=0.2,
    children=(ChildStatus(name="poll", state=ChildState.RUNNING),),
)


def with_(**changes: Any) -> Observation:
    return msgspec.structs.replace(FINE, **changes)


@pytest.mark.req("SV-3")
def test_a_cluster_with_nothing_wrong_is_healthy() -> None:
    report = judge(FINE)
    assert report.status == "healthy"
    assert report.reasons == ()
    assert (report.nodes_up, report.leader, report.epoch, report.store_latency_ms) == (2, "a", 3, 20.0)


def child(state: ChildState, failures: int = 0) -> tuple[ChildStatus, ...]:
    return (ChildStatus(name="mail", state=state, failures=failures),)


@pytest.mark.req("SV-3")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"heartbeat_p95": 5.1}, "The store is slow"),
        ({"new_contention": 2}, "2 heartbeats took too long"),
        ({"breaker": "open"}, "The circuit breaker is open"),
        ({"breaker": "half-open"}, "The circuit breaker is half-open"),
        ({"children": child(ChildState.FAILED)}, "'mail' failed too often"),
        ({"children": child(ChildState.OVERRAN)}, "has not"),
        ({"children": child(ChildState.RUNNING, 9), "recent_failures": {"mail": 3}}, "'mail' keeps crashing: 3 times"),
    ],
)
def test_what_goes_on_and_should_be_looked_at_is_degraded(changes: dict[str, Any], reason: str) -> None:
    report = judge(with_(**changes))
    assert report.status == "degraded"
    assert len(report.reasons) == 1
    assert reason in report.reasons[0]


def test_a_failover_degrades_it_for_as_long_as_it_usually_takes() -> None:
    """WA-1."""
    gone = {"leader": None, "lease_held": None, "role": "follower", "failover": 22.0}
    report = judge(with_(leaderless_for=21.0, **gone))
    assert report.status == "degraded"
    assert report.reasons == ("Nobody leads for 21 s now; a failover usually takes 22 s at most.",)
    assert judge(with_(leaderless_for=22.0, **gone)).status == "unhealthy"
    assert judge(with_(leaderless_for=1.0, **gone | {"lease_held": False})).status == "unhealthy"


@pytest.mark.req("SV-3")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"leader": None, "lease_held": None, "role": "follower"}, "Nobody leads"),
        ({"lease_held": False}, "lease is not held"),
        ({"store_latency": None, "store_error": "no answer within 5 s"}, "The store does not answer: no answer within"),
        ({"looked_ago": 31.0}, "has not answered for 31 s"),
        ({"looked_ago": None}, "not looked at yet"),
        ({"running": False}, "does not run"),
    ],
)
def test_what_makes_leader_only_work_stand_still_is_unhealthy(changes: dict[str, Any], reason: str) -> None:
    report = judge(with_(breaker="open", **changes))
    assert report.status == "unhealthy"
    assert reason in report.reasons[0]
    assert any("circuit breaker" in each for each in report.reasons), "slighter ones are told too"


def test_one_crash_is_not_yet_a_habit() -> None:
    seen = with_(children=child(ChildState.BACKING_OFF, 2), recent_failures={"mail": 2})
    assert judge(seen).status == "healthy"
    assert judge(seen, Thresholds(crashes=2)).status == "degraded"


def test_a_report_holds_no_secret_and_is_bounded() -> None:
    error = "cannot reach https://user:hunter2@db.example/x?token=abcdef " + "x" * 5000
    nodes = tuple(f"n{number:05d}" for number in range(3000))
    broken = ChildStatus(name="mail", state=ChildState.FAILED, last_error=error)
    text = msgspec.json.encode(
        judge(with_(children=(broken,), store_latency=None, store_error=error, nodes=nodes))
    ).decode()
    assert "hunter2" not in text
    assert "abcdef" not in text
    shown = json.loads(text)
    assert shown["nodesUp"] == 3000
    assert len(shown["nodes"]) == 1000
    assert len(shown["children"][0]["lastError"]) < 400


@pytest.mark.parametrize("interval", [0, -1, True, "10", 1e9, float("nan")])
def test_an_interval_that_cannot_work_is_refused(interval: Any) -> None:
    with pytest.raises(ConfigError, match="check_interval is"):
        ClusterHealth(interval)


async def test_it_must_be_told_what_to_watch() -> None:
    with pytest.raises(ConfigError, match="observe"):
        await ClusterHealth().start()


class StubCoordinator:
    """Its own list of workers, and what a fresh listing shows."""

    worker_id = "a"
    namespace = "default"
    running = True
    config = CoordinatorConfig()
    leader_seen = "a"

    def __init__(self) -> None:
        self.listed = ["a", "b", "c"]
        self.fresh = ["a", "b", "c"]
        self._real = GlobalCoordinatorService(MemoryStore())

    async def get_active_workers(self, *, fresh: bool = False) -> list[str]:
        return self.fresh if fresh else self.listed

    async def get_leader(self, *, fresh: bool = False) -> str:
        return "a"

    def is_leader(self) -> bool:
        return True

    def get_epoch(self) -> int:
        return 1

    def get_metrics(self) -> CoordinatorMetrics:
        return self._real.get_metrics()

    def on(self, name: str, handler: Any) -> Any:
        return self._real.on(name, handler)


@pytest.mark.req("SV-3")
async def test_a_list_that_is_older_than_what_was_seen_makes_nobody_go_down() -> None:
    coordinator = StubCoordinator()
    coordinator.listed = []  # what a follower had, before it took over
    health = ClusterHealth.observe(cast(GlobalCoordinatorService, coordinator), 0.1)
    told: list[Any] = []
    for name in ("node:up", "node:down"):
        health.on(name, told.append)
    await health.start()
    await asyncio.sleep(0.5)
    assert told == [], "a fresh listing shows them all"
    coordinator.listed, coordinator.fresh = ["a", "b"], ["a", "b"]
    async with asyncio.timeout(10):
        while not told:
            await asyncio.sleep(0.02)
    coordinator.listed, coordinator.fresh = ["a", "b", "d"], ["a", "b", "d"]
    async with asyncio.timeout(10):
        while len(told) < 2:
            await asyncio.sleep(0.02)
    await health.stop()
    assert [(event.name, event.node, event.nodes) for event in told] == [
        ("node:down", "c", ("a", "b")),
        ("node:up", "d", ("a", "b", "d")),
    ]
