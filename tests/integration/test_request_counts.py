"""What coordination costs, counted at the server: each worker reaches it through a proxy of its own.

The figures are printed (`pytest -s`): requests of each worker per heartbeat.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lab.endpoint import S3Endpoint
from lab.fault_proxy import FaultProxy, ProxiedRequest
from tenure import CoordinatorConfig, Database
from tenure.coordinator.plugin import CoordinatorPlugin
from tenure.store.url import parse_url

WORKERS = ("ada", "ben", "cyd")
HEARTBEAT = 1.0
BEATS = 12
LATENCY = 0.01
"""About what a request takes on this machine."""
WARM_UP_BEATS = 6
"""Registrations, the first list of members, and the first ranking are over by then."""

pytestmark = [pytest.mark.slow, pytest.mark.clock]


class Counted(CoordinatorPlugin):
    """One of many in a process."""

    def __init__(self, settings: CoordinatorConfig) -> None:
        super().__init__(config=settings, skip_cold_start=True, coordinator_work_interval=0.5)
        self.epochs: list[int] = []
        self.worked = 0

    async def on_become_coordinator(self) -> None:
        self.epochs.append(self.epoch)

    async def coordinator_work(self) -> None:
        self.worked += 1


def config(**changes: Any) -> CoordinatorConfig:
    return CoordinatorConfig.fast(
        **{
            "heartbeat_interval": HEARTBEAT,
            "heartbeat_jitter": 0,
            "standby_watch_interval": HEARTBEAT,
            "lease_timeout": 6,
            "worker_timeout": 8,
            "startup_jitter_max": 0,
            **changes,
        }
    )


async def count(
    endpoint: S3Endpoint, prefix: str, plugins: int, settings: CoordinatorConfig
) -> dict[str, Counter[str]]:
    """Requests by verb that the leader and each of its followers made in a few heartbeats in which nothing happened."""
    async with AsyncExitStack() as stack:
        proxies: dict[str, FaultProxy] = {}
        coordinators: dict[str, Any] = {}
        used: list[Counted] = []
        for name in WORKERS:
            proxy = proxies[name] = FaultProxy(endpoint.url)
            url = endpoint.store_url("tests", prefix, endpoint=proxy.start())
            stack.callback(proxy.stop)
            database = await stack.enter_async_context(Database(url, worker_id=name))
            coordinators[name] = coordinator = await database.get_global_coordinator("default", config=settings)
            made = [Counted(settings) for _ in range(plugins)]
            used += made
            # All at once: there is one coordinator all the same.
            await asyncio.gather(*(database.use_plugin(plugin, f"p{n}") for n, plugin in enumerate(made)))
            assert {id(plugin.coordinator) for plugin in made} == {id(coordinator)}
        for coordinator in coordinators.values():
            await coordinator.start()
        async with asyncio.timeout(30):
            while not any(coordinator.is_leader() for coordinator in coordinators.values()):
                await asyncio.sleep(0.05)
        await asyncio.sleep(WARM_UP_BEATS * HEARTBEAT)
        (leader,) = [name for name, coordinator in coordinators.items() if coordinator.is_leader()]
        before = {name: len(proxy.requests) for name, proxy in proxies.items()}
        started = time.monotonic()
        await asyncio.sleep(BEATS * HEARTBEAT)
        requests = {name: proxy.requests[before[name] :] for name, proxy in proxies.items()}
        elapsed = time.monotonic() - started
        assert elapsed < (BEATS + 1) * HEARTBEAT, "this machine is too slow to count by time"
        assert coordinators[leader].is_leader(), "leadership changed while nothing happened"
        assert len([plugin for plugin in used if plugin.epochs]) == plugins, "the leader's plugins were not told"
        assert all(plugin.worked for plugin in used if plugin.epochs), "a plugin did no work"
        counted = {name: Counter(map(verb, sent)) for name, sent in requests.items()}
        for coordinator in coordinators.values():
            await coordinator.stop()
    # The busier of the followers is the standby.
    followers = sorted((counted[name] for name in WORKERS if name != leader), key=Counter.total)
    print(
        f"\n{plugins} plugins, membership {settings.membership}, {BEATS} heartbeats: leader {dict(counted[leader])}, "
    )
    print(f"  followers {[dict(follower) for follower in followers]}")
    return {"leader": counted[leader], "follower": followers[0], "standby": followers[1]}


def verb(request: ProxiedRequest) -> str:
    return "LIST" if request.method == "GET" and "list-type" in request.path else request.method


async def count_side_by_side(
    endpoint: S3Endpoint, url_of: Callable[[str], str], plugins: Sequence[int], settings: CoordinatorConfig
) -> list[dict[str, Counter[str]]]:
    prefixes = [parse_url(url_of("ministack")).prefix.rstrip("/") for _ in plugins]
    return await asyncio.gather(
        *(count(endpoint, prefix, number, settings) for prefix, number in zip(prefixes, plugins, strict=True))
    )


@pytest.mark.req("EL-2")
async def test_requests_do_not_depend_on_the_number_of_plugins(
    ministack: S3Endpoint, url_of: Callable[[str], str]
) -> None:
    found = await count_side_by_side(ministack, url_of, (1, 4, 10), config())
    for one in found:
        # A beat more or less falls into the time that was counted.
        assert one["leader"]["PUT"] <= 2 * (BEATS + 1)
        assert one["leader"]["LIST"] <= BEATS + 1
        assert set(one["leader"]) == {"PUT", "LIST"}, f"the leader did more than renew, beat and list: {one['leader']}"
        assert one["follower"].total() <= 2 * (BEATS + 1)
        assert one["standby"].total() <= (2 + 1) * (BEATS + 1), "beyond a heartbeat and a look per watch"
        assert one["leader"]["PUT"] >= 2 * (BEATS - 1), "it did not renew and heartbeat at the pace that was set"
        assert one["follower"]["PUT"] >= BEATS - 1, "it was hardly there"
        assert one["follower"]["LIST"] == one["standby"]["LIST"] == 0, "only the leader lists"
    per_beat = {"leader": 3, "follower": 2, "standby": 3}
    for role, requests in per_beat.items():
        totals = [one[role].total() for one in found]
        assert max(totals) - min(totals) <= requests, f"{role} with 1, 4, 10 plugins: {totals}"


@pytest.mark.trials
@pytest.mark.req("EL-19")
async def test_election_only_costs_a_follower_one_get_per_watch(
    ministack: S3Endpoint, url_of: Callable[[str], str]
) -> None:
    (found,) = await count_side_by_side(ministack, url_of, (1,), config(membership=False))
    for role in ("follower", "standby"):
        assert set(found[role]) == {"GET"}, f"the {role} did more than look: {found[role]}"
        assert BEATS - 1 <= found[role]["GET"] <= BEATS + 1
    assert set(found["leader"]) == {"PUT"}, f"the leader did more than renew: {found['leader']}"
    assert BEATS - 1 <= found["leader"]["PUT"] <= BEATS + 1


@pytest.mark.req("OP-4")
@pytest.mark.trials
@pytest.mark.parametrize("membership", [True, False])
async def test_a_plan_tells_what_the_server_counts(
    ministack: S3Endpoint, url_of: Callable[[str], str], membership: bool
) -> None:
    settings = config(standby_watch_interval=HEARTBEAT / 4, membership=membership)
    (found,) = await count_side_by_side(ministack, url_of, (1,), settings)
    counted = sum(found.values(), Counter())
    told = settings.requests_per_hour(len(WORKERS), latency=LATENCY)
    for name, requests in told.items():
        in_time = requests * BEATS * HEARTBEAT / 3600
        # 10 %, and for each worker a request more or less that falls into the time that was counted.
        assert abs(counted[name.upper()] - in_time) <= 0.1 * in_time + len(WORKERS), (
            f"{name}: {counted[name.upper()]} were counted, and the plan says {in_time:.1f}"
        )
    assert set(counted) <= {"GET", "PUT", "LIST"}
