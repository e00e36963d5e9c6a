"""Whole coordinators in simulated time: what may be asked, what it costs, and what is written where."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tenure import CoordinatorConfig, Database
from tenure.coordinator.config import ContentionConfig
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.errors import ConfigConflict, ConfigError, SchemaTooNew, TenureError
from tests.simulated.fleet import Fleet, Plugin
from tests.simulated.plugins import Noting


class TestOnePerNamespace:
    @pytest.mark.req("EL-1")
    async def test_the_second_call_gives_the_same_object(self, url_of: Callable[[str], str]) -> None:
        async with Database(url_of("memory")) as database:
            first = await database.get_global_coordinator("default")
            assert isinstance(first, GlobalCoordinatorService)
            assert await database.get_global_coordinator() is first
            assert await database.get_global_coordinator("other") is not first
            assert not first.running, "made, and not started"

    @pytest.mark.req("EL-1")
    async def test_also_when_many_ask_at_once(self, url_of: Callable[[str], str]) -> None:
        async with Database(url_of("memory")) as database:
            found = await asyncio.gather(*(database.get_global_coordinator("default") for _ in range(20)))
            assert len({id(service) for service in found}) == 1

    @pytest.mark.req("EL-1")
    async def test_another_config_is_refused_by_the_name_of_the_field(self, url_of: Callable[[str], str]) -> None:
        async with Database(url_of("memory"), worker_id="w") as database:
            made = await database.get_global_coordinator(config=CoordinatorConfig(lease_timeout=30))
            assert made.worker_id == "w"
            same = await database.get_global_coordinator(config=CoordinatorConfig(lease_timeout=30))
            assert same is made
            assert await database.get_global_coordinator() is made, "no config: whatever there is"
            with pytest.raises(ConfigConflict, match=r"^lease_timeout is 15"):
                await database.get_global_coordinator(config=CoordinatorConfig())
            with pytest.raises(ConfigConflict, match=r"^contention\.threshold is 3"):
                await database.get_global_coordinator(
                    config=CoordinatorConfig(lease_timeout=30, contention=ContentionConfig(threshold=3))
                )
            with pytest.raises(ConfigConflict, match=r"^worker_id is 'v'"):
                await database.get_global_coordinator(config=CoordinatorConfig(lease_timeout=30, worker_id="v"))

    async def test_a_database_that_is_not_connected_says_so(self, url_of: Callable[[str], str]) -> None:
        database = Database(url_of("memory"))
        with pytest.raises(TenureError, match="not connected"):
            await database.get_global_coordinator()

    async def test_a_database_may_be_connected_again(self, url_of: Callable[[str], str]) -> None:
        database = Database(url_of("memory"))
        for _ in range(2):
            await database.connect()
            await (await database.get_global_coordinator()).get_leader(fresh=True)
            await database.disconnect()

    @pytest.mark.parametrize("name", ["", "x" * 65, "line\nbreak"])
    async def test_a_namespace_that_cannot_be_one_is_refused(self, url_of: Callable[[str], str], name: str) -> None:
        async with Database(url_of("memory")) as database:
            with pytest.raises(ConfigError, match="namespace is"):
                await database.get_global_coordinator(name)


async def _subscribe(service: GlobalCoordinatorService, plugins: list[Plugin]) -> None:
    for plugin in plugins:
        service.subscribe(plugin)


class TestCost:
    @pytest.mark.req("EL-2")
    def test_subscribers_cost_no_requests(self) -> None:
        """Five minutes with a failover in them, once with a single subscriber and once with forty."""
        spent = []
        for more in (0, 39):
            with Fleet() as fleet:
                nodes = [fleet.join(name) for name in "abc"]
                fleet.run(1)
                plugins = [Plugin(lambda: 0.0) for _ in range(more)]
                for node in nodes:
                    node.done(_subscribe(node.service, plugins), within=0.05)
                fleet.run(150)
                nodes[0].host.crash()
                fleet.run(150)
                assert nodes[1].leads
                assert all(plugin.calls == ["become", "become"] for plugin in plugins)
                spent.append(dict(fleet.network.requests))
        assert spent[0] == spent[1]

    @pytest.mark.req("EL-2")
    def test_what_a_heartbeat_costs(self) -> None:
        """A follower: one read, one write. The leader: two writes, one listing. The next in rank looks each second."""
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abcd"}
            fleet.run(60)
            before = {name: fleet.requests(name) for name in nodes}
            beats = {name: node.service.get_metrics().heartbeat_count for name, node in nodes.items()}
            fleet.run(300)
            for name, node in nodes.items():
                count = node.service.get_metrics().heartbeat_count - beats[name]
                spent = fleet.requests(name) - before[name]
                expected = {
                    "a": {"replace": 2 * count, "list": count},
                    "b": {"replace": count, "get": 300},
                }.get(name, {"replace": count, "get": count})
                assert set(spent) == set(expected)
                for verb, number in expected.items():
                    slack = 0.2 * number if verb == "get" and name == "b" else 3
                    assert spent[verb] == pytest.approx(number, abs=slack), (name, verb)


class TestCalls:
    @pytest.mark.req("EL-9")
    def test_plain_calls_are_plain(self) -> None:
        """A coroutine that nobody awaits is true: `if service.is_leader():` must never be one."""
        service = GlobalCoordinatorService
        for name in ("is_leader", "get_epoch", "get_metrics", "get_circuit_breaker_status", "subscribe", "unsubscribe"):
            assert not inspect.iscoroutinefunction(getattr(service, name)), name
        assert isinstance(inspect.getattr_static(service, "is_coordinator"), property)
        for name in ("get_leader", "current_leader", "get_active_workers", "start", "stop", "step_down", "transfer"):
            assert inspect.iscoroutinefunction(getattr(service, name)), name

    @pytest.mark.req("EL-9")
    def test_nothing_is_asked_for_but_with_fresh(self) -> None:
        with Fleet() as fleet:
            leader, follower = fleet.join("a"), fleet.join("b")
            fleet.run(30)
            asked: list[tuple[str, str]] = []
            fleet.network.on_request = lambda host, verb, key, at: asked.append((verb, key))

            async def ask() -> tuple[object, ...]:
                service = follower.service
                return (
                    service.is_leader(),
                    service.is_leader("a"),
                    service.is_leader("b"),
                    service.is_coordinator,
                    service.get_epoch(),
                    service.get_metrics().heartbeat_count > 3,
                    service.get_circuit_breaker_status().state,
                    await service.get_leader(),
                    await service.current_leader(),
                    await service.get_active_workers(),
                )

            task = follower.run(ask())
            fleet.run(0.0)
            assert task.result() == (False, True, False, False, 1, True, "closed", "a", "a", ["a", "b"])
            assert asked == []
            assert leader.service.is_leader() is leader.service.is_leader("a") is leader.service.is_coordinator is True

            fresh = follower.run(follower.service.get_leader(fresh=True))
            fleet.run(0.0)
            assert asked == [("get", fleet.path("state.json"))]
            fleet.run(1)
            assert fresh.result() == "a"
            leader.host.crash()
            fleet.bucket.remove(fleet.path("workers/worker=a.json"))
            assert follower.done(follower.service.get_active_workers(fresh=True)) == ["b"]
            assert follower.done(follower.service.get_active_workers()) == ["a", "b"], "as last observed"
            assert ("list", fleet.path("workers/")) in asked

    @pytest.mark.req("EL-9")
    async def test_before_the_start_nobody_leads(self, url_of: Callable[[str], str]) -> None:
        async with Database(url_of("memory")) as database:
            service = await database.get_global_coordinator()
            assert (service.is_leader(), service.is_leader("x"), service.get_epoch()) == (False, False, 0)
            assert await service.get_leader() is None
            assert await service.get_active_workers() == []
            assert service.get_circuit_breaker_status().state == "closed"
            assert service.get_metrics().heartbeat_count == 0
            for ask in (service.leadership, service.terms().__anext__, service.step_down):
                with pytest.raises(TenureError, match="await start\\(\\) first"):
                    found = ask()
                    if inspect.isawaitable(found):
                        await found

    @pytest.mark.req("EL-10")
    def test_a_handler_or_a_hook_that_raises_breaks_nothing_else(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("a")

            class Broken(Plugin):
                def on_become_coordinator(self, lead: object) -> None:
                    raise RuntimeError("a plugin's own affair")

                async def on_stop_being_coordinator(self) -> None:
                    raise RuntimeError("and again")

            async def add() -> None:
                leader.service.subscribe(Broken(lambda: 0.0))
                leader.service.on("leader:changed", lambda event: 1 / 0)
                leader.service.on("coord:worker-heartbeat", lambda event: 1 / 0)

            leader.run(add())
            fleet.run(60)
            assert leader.leads
            assert leader.service.get_metrics().heartbeat_count > 8
            assert len(leader.named("coord:worker-heartbeat")) > 8
            leader.done(leader.service.stop())
            assert leader.plugin.calls == ["become", "stop"]
            assert fleet.json("state.json")["leaderId"] is None

    def test_a_coordinator_plugin_may_subscribe(self) -> None:
        """WA-4: `coordinator.subscribe(plugin)`, as the first design has it."""
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting()

            async def add() -> None:
                node.service.subscribe(plugin)

            node.run(add())
            fleet.lead()
            fleet.run(1)
            assert plugin.said() == ["become"]
            node.done(node.service.step_down())
            assert plugin.said() == ["become", "stop"]

    @pytest.mark.parametrize("hook", ["on_become_coordinator", "on_stop_being_coordinator"])
    def test_a_hook_that_cannot_be_called_is_refused(self, hook: str) -> None:
        """WA-4"""
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(1)
            plugin = Plugin(lambda: 0.0)
            setattr(plugin, hook, lambda lead, more: None)

            async def add() -> str:
                try:
                    node.service.subscribe(plugin)
                except ConfigError as error:
                    return str(error)
                return "accepted"

            said = node.done(add())
            assert f"{hook} of <" in said
            assert said.endswith("cannot be called: it must take the Lead, or nothing")

    def test_a_subscriber_without_hooks_is_refused(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(1)

            async def add() -> str:
                try:
                    node.service.subscribe(object())  # type: ignore[arg-type]
                except ConfigError as error:
                    return str(error)
                return "accepted"

            said = node.done(add())
            assert said.startswith("plugin is <object object at ")
            assert said.endswith("which has no method on_become_coordinator: a subscriber needs both hooks")


class TestLayout:
    @pytest.mark.req("EL-8")
    def test_what_lies_where(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("pod/7 ü")
            fleet.join("z")
            fleet.run(30)
            assert leader.leads
            assert fleet.bucket.keys() == [
                fleet.path(name)
                for name in (
                    "members.json",
                    "metadata.json",
                    "state.json",
                    f"terms/{1:020d}.json",
                    "workers/worker=pod~2f7~20~c3~bc.json",
                    "workers/worker=z.json",
                )
            ]

    @pytest.mark.req("EL-8")
    def test_what_it_says(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.join("b")
            fleet.run(30)
            wall = 1_700_000_000 + fleet.world.now
            state = fleet.json("state.json")
            assert (state["leaderId"], state["epoch"], state["schemaVersion"]) == ("a", 1, 1)
            assert state["leaseDurationMs"] == 15_000
            assert wall < datetime.fromisoformat(state["leaseExpiresAt"]).timestamp() < wall + 15
            assert {"uid", "grantId", "leaderWriteId", "writeId", "renewals", "electedAt", "mandateEndsAt"} <= set(
                state
            )
            assert {"previousLeader", "successor", "handoff", "membersVersion"} <= set(state)
            for name in "ab":
                worker = fleet.json(f"workers/worker={name}.json")
                assert (worker["workerId"], worker["isCoordinator"], worker["epoch"]) == (name, name == "a", 1)
                registered = datetime.fromisoformat(worker["registeredAt"]).timestamp()
                heartbeat = datetime.fromisoformat(worker["lastHeartbeat"]).timestamp()
                assert 1_700_000_000 <= registered < 1_700_000_001
                assert wall - 7 < heartbeat < wall
            metadata = fleet.json("metadata.json")
            assert datetime.fromisoformat(metadata["createdAt"]).timestamp() == pytest.approx(1_700_000_000, abs=1)
            assert (metadata["schemaVersion"], metadata["drift"], metadata["longestLeaseMs"]) == (1, 0.01, 60_000)
            assert metadata["timing"] == {"heartbeat_interval": 5000, "lease_timeout": 15_000, "worker_timeout": 20_000}
            assert leader.named("config:differs") == []

    @pytest.mark.req("EL-8")
    def test_workers_with_other_timing_are_reported(self) -> None:
        with Fleet() as fleet:
            fleet.join("a")
            fleet.run(5)
            other = fleet.join("b", heartbeat_interval=4)
            fleet.run(5)
            (event,) = other.named("config:differs")
            assert (event.namespace, event.field, event.ours, event.theirs) == (
                "default",
                "heartbeat_interval",
                "4 s",
                "5 s",
            )
            assert other.service.running

    @pytest.mark.req("EL-8")
    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"drift": 0.02}, "drift is 0.02 here"),
            ({"longest_lease": 30.0}, "longest_lease is 30 here"),
            ({"lease_timeout": 90.0}, "lease_timeout is 90 s"),
        ],
    )
    def test_what_all_must_agree_on_is_refused_by_name(self, changes: dict[str, Any], complaint: str) -> None:
        with Fleet() as fleet:
            fleet.join("a")
            fleet.run(5)
            other = fleet.join("b", **changes)
            fleet.run(5)
            assert not other.service.running
            ((_, error),) = fleet.world.errors
            assert isinstance(error, ConfigConflict)
            assert str(error).startswith(complaint)
            fleet.world.errors.clear()

    @pytest.mark.req("EL-8")
    def test_metadata_of_a_newer_form_is_left_alone(self) -> None:
        with Fleet() as fleet:
            fleet.bucket.corrupt(fleet.path("metadata.json"), b'{"schemaVersion": 9}')
            fleet.join("a")
            fleet.run(30)
            ((_, error),) = fleet.world.errors
            assert isinstance(error, SchemaTooNew)
            assert fleet.bucket.body(fleet.path("metadata.json")) == b'{"schemaVersion": 9}'
            assert fleet.bucket.body(fleet.path("state.json")) is None
            fleet.world.errors.clear()
