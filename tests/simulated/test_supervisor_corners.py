"""Sequences that once left a child running beside its successor, or a leader without its children."""

from __future__ import annotations

import asyncio

import pytest

from tenure.coordinator.hooks import HookOverrun
from tenure.plugins.supervisor.candidate import CoordinatorCandidate
from tenure.plugins.supervisor.child import Child, ChildState, Context
from tenure.plugins.supervisor.restarts import RestartPolicy

from .fleet import Fleet, Node
from .plugins import Home, Noting, give
from .test_supervisor import Candidates


class Service:
    """Up from `start` to the end of `stop`, which takes a while."""

    def __init__(self, up: dict[str, float], takes: float = 0.3) -> None:
        self._up = up
        self._takes = takes

    async def start(self, context: Context) -> None:
        self._context = context
        self._up[context.node] = 1

    async def stop(self) -> None:
        await self._context.clock.sleep(self._takes)
        self._up.pop(self._context.node, None)


async def _unsubscribe(node: Node) -> None:
    node.service.unsubscribe(node.plugin)


def other_of(fleet: Fleet, leader: Node) -> Node:
    return next(node for node in fleet.nodes.values() if node is not leader)


@pytest.mark.req("SV-2", "CP-7")
@pytest.mark.parametrize("first", ["step-down", "cut"])
def test_a_stop_during_a_demotion_does_not_cut_short_the_stopping_of_children(first: str) -> None:
    with Candidates() as fleet:
        up: dict[str, float] = {}
        for name in "ab":
            fleet.stand(name, [Child("service", Service(up, takes=0.8))])
        leader = fleet.lead()
        fleet.until(lambda: up)
        if first == "cut":
            fleet.network.cut(leader.name)
            fleet.until(lambda: not leader.leads)
        else:
            leader.run(leader.service.leave("step-down"))
        fleet.run(0.1)
        leader.run(fleet.candidates[leader.name].stop())
        other = other_of(fleet, leader)
        fleet.until(lambda: other.name in up, 30)
        assert list(up) == [other.name]


@pytest.mark.req("SV-2", "CP-7")
def test_a_service_that_is_slow_to_stop_after_a_sleep_of_the_machine_does_stop() -> None:
    with Candidates() as fleet:
        up: dict[str, float] = {}
        for name in "ab":
            fleet.stand(name, [Child("service", Service(up))])
        leader = fleet.lead()
        fleet.until(lambda: up)
        leader.host.suspend(20)
        fleet.run(30)
        assert list(up) == [other_of(fleet, leader).name]
        assert fleet.candidates[leader.name].supervisor.status() == ()


@pytest.mark.req("SV-2")
def test_a_stop_that_raises_is_tried_again_and_does_not_end_all_work() -> None:
    class Broken:
        stops = 0

        async def start(self, context: Context) -> None:
            raise OSError("port in use")

        async def stop(self) -> None:
            Broken.stops += 1
            raise AttributeError("never started")

    with Candidates() as fleet:
        fleet.stand("a", [fleet.book.child("good"), Child("broken", Broken())])
        fleet.lead()
        fleet.run(60)
        good, broken = fleet.candidates["a"].supervisor.status()
        assert good.state is ChildState.RUNNING
        assert broken.state is ChildState.FAILED
        assert broken.last_error == "OSError: port in use"
        assert Broken.stops == 6 * 3


@pytest.mark.req("SV-2")
def test_a_stop_that_was_given_up_on_still_hands_the_children_over() -> None:
    with Candidates() as fleet:
        up: dict[str, float] = {}
        for name in "ab":
            fleet.stand(name, [Child("service", Service(up, takes=3.0))])
        leader = fleet.lead()
        fleet.until(lambda: up)

        async def stop() -> None:
            try:
                async with asyncio.timeout(1):
                    await fleet.candidates[leader.name].stop()
            except TimeoutError:
                pass

        leader.done(stop())
        other = other_of(fleet, leader)
        fleet.until(lambda: other.name in up, 40)
        assert not leader.service.running


@pytest.mark.req("SV-2")
def test_a_child_may_ask_its_own_candidate_to_stop() -> None:
    with Candidates() as fleet:

        async def resign(context: Context) -> None:
            await context.clock.sleep(2)
            if context.node == "a":
                await fleet.candidates["a"].stop()
            await context.clock.sleep(1e9)

        for name in "ab":
            fleet.stand(name, [fleet.book.child("c", resign)])
        assert fleet.lead().name == "a"
        fleet.until(lambda: fleet.leader is not None and fleet.leader.name == "b", 40)
        fleet.run(10)
        assert fleet.book.said("b") == [("c", "start")]


@pytest.mark.req("EF-9")
def test_tokens_rise_within_a_term_and_when_elections_are_turned_off_and_on() -> None:
    with Candidates() as fleet:
        node = fleet.stand("a", [fleet.book.child("c")])
        keeps_the_lease = Noting()
        fleet.lead()
        give(fleet, node, keeps_the_lease)
        fleet.run(2)
        for _ in range(2):
            node.done(fleet.candidates["a"].stop())
            node.done(fleet.candidates["a"].start())
            fleet.run(2)
        assert fleet.epochs() == [1]
        node.done(keeps_the_lease.stop())
        node.done(fleet.candidates["a"].stop())
        for _ in range(2):
            static = CoordinatorCandidate(
                [fleet.book.child("c")], environ={}, coordinator_election_enabled=False, cluster_coordinator=True
            )
            static.attach(Home(node), "static")  # type: ignore[arg-type]
            node.done(static.start())
            fleet.run(2)
            status = node.done(static.children())
            assert status is not None
            assert status.children[0].state is ChildState.RUNNING
            node.done(static.stop())
        node.done(fleet.candidates["a"].start())
        fleet.run(30)
        tokens = fleet.book.tokens["c"]
        assert len(tokens) == 6
        assert tokens == sorted(set(tokens))


@pytest.mark.req("SV-2")
def test_a_candidate_that_is_started_again_waits_for_the_child_that_would_not_stop() -> None:
    with Candidates() as fleet:

        async def stubborn(context: Context) -> None:
            end = fleet.world.now + 40
            while fleet.world.now < end:
                try:
                    await context.clock.sleep(end - fleet.world.now)
                except asyncio.CancelledError:
                    pass

        node = fleet.stand("a", [fleet.book.child("bad", stubborn)], restarts=RestartPolicy(max_restarts=100))
        fleet.lead()
        fleet.run(2)
        node.run(fleet.candidates["a"].stop())
        fleet.run(15)
        node.run(fleet.candidates["a"].start())
        fleet.run(120)
        running = 0
        for _, _, _, what in fleet.book.notes:
            running += {"start": 1, "returned": -1, "cancelled": -1}.get(what, 0)
            assert running <= 1, "it ran beside itself"
        assert fleet.book.said().count(("bad", "start")) >= 2


@pytest.mark.req("SV-8")
def test_a_static_coordinator_does_not_wait_for_ever() -> None:
    with Candidates() as fleet:

        async def stubborn(context: Context) -> None:
            while True:
                try:
                    await context.clock.sleep(1e9)
                except asyncio.CancelledError:
                    pass

        node = fleet.join("a", bare=True)
        static = CoordinatorCandidate(
            [fleet.book.child("bad", stubborn)],
            environ={},
            coordinator_election_enabled=False,
            cluster_coordinator=True,
        )
        static.attach(Home(node), "static")  # type: ignore[arg-type]
        node.done(static.start())
        fleet.run(2)
        node.done(static.stop(), within=30)


@pytest.mark.req("CP-7")
def test_a_child_whose_first_step_comes_after_its_lease_does_not_begin() -> None:
    for callbacks in range(1, 40):  # somewhere among these is the one between the decision and the first step
        with Candidates() as fleet:
            for name in "ab":
                fleet.stand(name, [fleet.book.child("c")])
            fleet.until(lambda fleet=fleet: fleet.leader, 30)
            leader = fleet.leader
            assert leader is not None
            leader.host.freeze_after(callbacks, 20)
            thaws = fleet.world.now + 20
            fleet.run(40)
            late = [what for at, node, _, what in fleet.book.notes if node == leader.name and at >= thaws]
            assert "start" not in late, f"it began after its lease, {callbacks} callbacks after its election"


@pytest.mark.req("SV-2")
def test_odd_failures_are_failures() -> None:
    class Odd(BaseException):
        pass

    with Candidates() as fleet:

        async def odd(context: Context) -> None:
            raise Odd("half a surrogate: \ud800")

        async def group(context: Context) -> None:
            raise BaseExceptionGroup("several", [Odd("x")])

        fleet.stand("a", [fleet.book.child("odd", odd), fleet.book.child("group", group), fleet.book.child("good")])
        node = fleet.lead()
        fleet.run(90)
        status = node.done(fleet.candidates["a"].children())
        assert status is not None
        assert [child.state for child in status.children] == [ChildState.FAILED, ChildState.FAILED, ChildState.RUNNING]
        assert "Odd" in (status.children[0].last_error or "")


class TestPlugins:
    @pytest.mark.req("CP-3")
    def test_a_plugin_that_comes_at_the_end_of_the_preparation_is_begun_once(self) -> None:
        for moment in range(12):
            with Fleet() as fleet:
                node = fleet.join("a")
                first = Noting(skip_cold_start=False, cold_start_observation_window=1, cold_start_preparation_delay=2.5)
                give(fleet, node, first, "first")
                fleet.lead()
                fleet.run(2.0 + moment / 8)
                second = Noting(skip_cold_start=False)
                give(fleet, node, second, "second")
                fleet.run(6)
                assert first.said().count("become") == 1
                assert second.said().count("become") == 1
                node.done(node.service.step_down())
                assert first.said()[-1] == second.said()[-1] == "stop"

    @pytest.mark.req("CP-3")
    def test_the_preparation_is_not_lost_with_the_answer_to_the_grant(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting(skip_cold_start=False)
            give(fleet, node, plugin)
            fleet.run(14)
            fleet.network.change(node.host, lost_reply=0.6)
            fleet.until(lambda: node.named("coord:coordinator-promoted"), 60)
            fleet.network.reset(node.host)
            fleet.until(lambda: plugin.said(), 60)
            phases = [event.phase for event in node.named("coord:cold-start-phase-changed")]
            assert phases == ["observing", "election", "preparation", "ready"]

    @pytest.mark.req("CP-3")
    def test_election_only_has_no_cold_start(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a", membership=False)
            plugin = Noting(skip_cold_start=False)
            give(fleet, node, plugin)
            fleet.until(lambda: plugin.said(), 10)
            assert not node.named("coord:cold-start-phase-changed")

    @pytest.mark.req("CP-1")
    @pytest.mark.parametrize("alone", [False, True])
    def test_work_that_takes_its_cancellation_as_a_wish_to_finish_is_not_called_again(self, alone: bool) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting(enable_coordinator=not alone, coordinator_work_interval=1)

            async def work() -> None:
                try:
                    await node.host.clock.sleep(1e9)
                except asyncio.CancelledError:
                    await node.host.clock.sleep(0.5)

            plugin.work = work
            give(fleet, node, plugin)
            fleet.until(lambda: "work" in plugin.said())
            began = fleet.world.now
            node.done(plugin.stop())
            assert fleet.world.now - began < 2
            fleet.run(30)
            assert plugin.said() == ["become", "work", "worked", "stop"]

    @pytest.mark.req("CP-1")
    def test_a_hook_that_outlasts_a_stop_is_waited_for_by_the_next_start(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting(coordinator_work_interval=100)

            async def work() -> None:
                end = fleet.world.now + 25
                while fleet.world.now < end:
                    try:
                        await node.host.clock.sleep(end - fleet.world.now)
                    except asyncio.CancelledError:
                        pass

            plugin.work = work
            give(fleet, node, plugin)
            fleet.until(lambda: "work" in plugin.said())
            node.done(plugin.stop())
            node.done(plugin.start())
            fleet.run(60)
            assert plugin.said() == ["become", "work", "worked", "stop", "become", "work", "worked"]

    @pytest.mark.req("CP-1")
    @pytest.mark.parametrize("alone", [False, True])
    def test_a_hook_may_stop_its_own_plugin(self, alone: bool) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting(enable_coordinator=not alone)

            async def work() -> None:
                await plugin.stop()

            plugin.work = work
            give(fleet, node, plugin)
            fleet.until(lambda: "stop" in plugin.said(), 20)
            fleet.run(20)
            assert plugin.said().count("work") == 1
            assert not node.named("lease:overran")

    @pytest.mark.req("CP-2")
    def test_a_process_whose_work_will_not_end_does_not_lead_again(self) -> None:
        with Fleet() as fleet:
            plugins: dict[str, Noting] = {}
            stuck = True

            async def work(node: Node) -> None:
                while stuck and node.name == "a":
                    try:
                        await node.host.clock.sleep(1)
                    except asyncio.CancelledError:
                        pass

            for name in "ab":
                node = fleet.join(name)
                plugins[name] = Noting()
                plugins[name].work = lambda node=node: work(node)  # type: ignore[misc]
                give(fleet, node, plugins[name])
                node.done(_unsubscribe(node))
            assert fleet.lead().name == "a"
            fleet.until(lambda: "work" in plugins["a"].said())
            fleet.nodes["a"].run(fleet.nodes["a"].service.leave("step-down"))
            fleet.until(lambda: fleet.nodes["b"].leads, 60)
            fleet.nodes["b"].host.crash()
            fleet.run(60)
            assert not fleet.nodes["a"].leads, "it cannot do the work, and does not keep others from it"
            stuck = False
            fleet.until(lambda: fleet.nodes["a"].leads, 60)

    @pytest.mark.req("CP-2")
    def test_an_exception_that_is_none_is_a_failure_as_well(self) -> None:
        class Odd(BaseException):
            pass

        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting()

            async def work() -> None:
                raise Odd

            plugin.work = work
            give(fleet, node, plugin)
            fleet.until(lambda: plugin.said().count("work") == 3)
            assert plugin.hook_failures >= 2

    def test_the_last_plugin_to_stop_leaves_the_fleet(self) -> None:
        with Fleet() as fleet:
            node, other = fleet.join("a", bare=True), fleet.join("b", bare=True)
            plugins = [Noting(), Noting(), Noting()]
            give(fleet, node, plugins[0], "one")
            give(fleet, node, plugins[1], "two")
            fleet.until(lambda: plugins[0].said() and plugins[1].said())
            give(fleet, other, plugins[2], "three")
            fleet.run(8)
            node.done(plugins[0].stop())
            assert node.leads
            node.done(plugins[1].stop())
            assert not node.service.running
            fleet.until(lambda: plugins[2].said(), 20)
            node.done(plugins[1].start())
            fleet.run(5)
            assert node.service.running

    def test_a_coordinator_that_the_user_started_stays(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting()
            give(fleet, node, plugin)
            fleet.lead()
            node.done(_unsubscribe(node))
            node.done(plugin.stop())
            fleet.run(5)
            assert node.leads

    @pytest.mark.req("CP-1")
    def test_a_plugin_that_starts_while_the_last_one_leaves_is_served(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a", bare=True)
            first, second = Noting(), Noting()

            async def hand_over() -> None:
                first.coordinator.unsubscribe(first._hooks)  # nobody waits for it
                second.attach(Home(node), "second")
                second.now = lambda: fleet.world.now
                await second.start()

            give(fleet, node, first, "first")
            fleet.until(lambda: first.said())
            node.done(hand_over())
            fleet.until(lambda: "work" in second.said(), 60)
            assert node.service.running

    @pytest.mark.req("CP-1")
    def test_a_task_of_a_hook_that_outlived_it_may_restart_the_plugin(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a", bare=True)
            tasks: list[asyncio.Task[None]] = []

            class Watching(Noting):
                slug = "watching"

                async def on_become_coordinator(self) -> None:
                    await super().on_become_coordinator()
                    if not tasks:
                        tasks.append(asyncio.get_running_loop().create_task(self._restart()))

                async def _restart(self) -> None:
                    await node.host.clock.sleep(10)
                    await self.stop()
                    self.note("stopped")
                    await self.start()

            plugin = Watching()
            give(fleet, node, plugin)
            fleet.until(lambda: plugin.said().count("become") == 2, 90)
            assert plugin.said().index("stop") < plugin.said().index("stopped")

    @pytest.mark.req("CP-2")
    def test_work_that_will_not_end_keeps_its_process_from_leading_after_a_restart_as_well(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a", bare=True)
            plugin = Noting()
            stuck = True

            async def work() -> None:
                while stuck:
                    try:
                        await node.host.clock.sleep(1)
                    except asyncio.CancelledError:
                        pass

            plugin.work = work
            give(fleet, node, plugin)
            fleet.until(lambda: "work" in plugin.said())
            node.done(plugin.stop(), within=90)
            node.done(plugin.start())
            fleet.run(60)
            assert not node.leads
            assert plugin.said() == ["become", "work"]
            stuck = False
            fleet.until(lambda: plugin.said().count("become") == 2, 60)

    @pytest.mark.req("CP-6")
    def test_an_instance_without_coordination_never_works_beside_itself(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a", bare=True)
            plugin = Noting(enable_coordinator=False)
            at_work = 0

            async def work() -> None:
                nonlocal at_work
                at_work += 1
                assert at_work == 1, "beside itself"
                end = fleet.world.now + 60
                while fleet.world.now < end:
                    try:
                        await node.host.clock.sleep(end - fleet.world.now)
                    except asyncio.CancelledError:
                        pass
                at_work -= 1

            plugin.work = work
            give(fleet, node, plugin)
            fleet.until(lambda: "work" in plugin.said())
            for _ in range(3):
                node.done(plugin.stop())
                node.done(plugin.start())
            fleet.run(200)
            assert plugin.hook_failures == 0
            assert plugin.said().count("work") >= 2

    @pytest.mark.req("CP-7")
    def test_a_promise_to_exit_is_not_taken_back_while_its_work_still_runs(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a", bare=True)
            exits: list[int] = []
            node.service._exit_process = exits.append

            class Stubborn:
                async def on_become_coordinator(self, lead: object) -> None:
                    while True:
                        try:
                            await node.host.clock.sleep(1)
                        except asyncio.CancelledError:
                            pass

                def on_stop_being_coordinator(self) -> None: ...

            stubborn = Stubborn()

            async def begin() -> None:
                node.service.subscribe(stubborn, hook_overrun=HookOverrun.EXIT)
                await node.service.start()

            async def again() -> None:
                node.service.unsubscribe(stubborn)
                node.service.subscribe(stubborn, hook_overrun=HookOverrun.REPORT)
                await node.service.leave("step-down")

            node.done(begin())
            fleet.lead()
            fleet.run(1)
            node.run(again())
            fleet.until(lambda: exits, 60)


@pytest.mark.req("SV-8")
def test_a_static_child_that_was_left_behind_is_not_started_beside_itself() -> None:
    with Candidates() as fleet:

        async def stubborn(context: Context) -> None:
            end = fleet.world.now + 60
            while fleet.world.now < end:
                try:
                    await context.clock.sleep(end - fleet.world.now)
                except asyncio.CancelledError:
                    pass

        node = fleet.join("a", bare=True)
        static = CoordinatorCandidate(
            [fleet.book.child("bad", stubborn), fleet.book.child("good")],
            environ={},
            coordinator_election_enabled=False,
            cluster_coordinator=True,
        )
        static.attach(Home(node), "static")  # type: ignore[arg-type]
        node.done(static.start())
        fleet.run(2)
        node.done(static.stop(), within=40)
        node.done(static.start())
        fleet.run(20)
        assert fleet.book.said().count(("bad", "start")) == 1
        assert fleet.book.said().count(("good", "start")) == 2, "the others need not wait for it"
        fleet.run(60)
        assert fleet.book.said().count(("bad", "start")) == 2


@pytest.mark.req("SV-8")
def test_a_static_stop_that_was_given_up_on_is_finished_by_the_next_start() -> None:
    with Candidates() as fleet:

        async def slow(context: Context) -> None:
            try:
                await context.clock.sleep(1e9)
            finally:
                await context.clock.sleep(2)

        node = fleet.join("a", bare=True)
        static = CoordinatorCandidate(
            [fleet.book.child("slow", slow)],
            environ={},
            coordinator_election_enabled=False,
            cluster_coordinator=True,
        )
        static.attach(Home(node), "static")  # type: ignore[arg-type]

        async def cut() -> None:
            try:
                async with asyncio.timeout(0.5):
                    await static.stop()
            except TimeoutError:
                pass

        node.done(static.start())
        fleet.run(2)
        node.done(cut())
        node.done(static.start())
        fleet.run(10)
        assert static.is_leader()
        assert fleet.book.said() == [("slow", "start"), ("slow", "cancelled"), ("slow", "start")]
