"""CoordinatorPlugin, on the production coordinator in simulated time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest

from tenure.coordinator.hooks import HookFailure
from tenure.coordinator.lead import Lead
from tenure.coordinator.overrun import EXIT_OVERRAN
from tenure.coordinator.plugin import CoordinatorPlugin
from tenure.errors import ConfigError, CoordinationError, RequestRefused

from .fleet import QUICK, Fleet, Plugin
from .plugins import Noting, give

pytestmark = pytest.mark.usefixtures("caplog")


@pytest.mark.req("CP-1")
def test_the_three_hooks_of_a_term() -> None:
    with Fleet() as fleet:
        node = fleet.join("a")
        plugin = Noting(coordinator_work_interval=2.0)
        give(fleet, node, plugin)
        fleet.until(lambda: plugin.said().count("worked") == 3)
        assert plugin.is_coordinator
        assert plugin.worker_id == "a"
        assert plugin.epoch == 1
        starts = [at for at, what in plugin.notes if what == "work"]
        assert [round(later - earlier, 2) for earlier, later in itertools.pairwise(starts)] == [2.0, 2.0]
        node.done(plugin.stop())
        assert not plugin.is_coordinator
        assert plugin.said()[0] == "become"
        assert plugin.said()[-1] == "stop"
        assert plugin.said().count("stop") == 1
        fleet.run(10)
        assert plugin.said()[-1] == "stop", "nothing is called after stop()"
        assert node.leads, "the coordinator goes on for others"


@pytest.mark.req("CP-1")
def test_only_the_leaders_plugin_works() -> None:
    with Fleet() as fleet:
        plugins = {name: give(fleet, fleet.join(name), Noting()) for name in "abc"}
        leader = fleet.lead()
        fleet.run(20)
        assert plugins[leader.name].said().count("work") >= 3  # type: ignore[attr-defined]
        for name, plugin in plugins.items():
            if name != leader.name:
                assert plugin.said() == []  # type: ignore[attr-defined]
                assert not plugin.is_coordinator


@pytest.mark.req("CP-1")
def test_work_longer_than_its_interval_never_overlaps_itself() -> None:
    with Fleet() as fleet:
        node = fleet.join("a")
        plugin = Noting(coordinator_work_interval=1.0)
        plugin.work = lambda: node.host.clock.sleep(3.5)
        give(fleet, node, plugin)
        fleet.until(lambda: plugin.said().count("worked") == 4)
        calls = [what for what in plugin.said() if what in ("work", "worked")]
        assert calls[:8] == ["work", "worked"] * 4
        assert len(node.named("coord:worker-heartbeat")) >= 2


@pytest.mark.parametrize("coordinate", [True, False])
def test_hooks_may_take_the_lead(coordinate: bool) -> None:
    """WA-4: those of a plugin take nothing; one that wants the lead is given it, and None without an election."""
    said: list[tuple[str, int | None]] = []

    class Eager(CoordinatorPlugin):
        def on_become_coordinator(self, lead: Lead | None) -> None:  # type: ignore[override]
            said.append(("become", lead.epoch if lead is not None else None))

        def on_stop_being_coordinator(self, lead: Lead | None) -> None:  # type: ignore[override]
            said.append(("stop", lead.epoch if lead is not None else None))

    with Fleet() as fleet:
        node = fleet.join("a")
        plugin = Eager(skip_cold_start=True, enable_coordinator=coordinate)
        give(fleet, node, plugin)
        fleet.lead()
        fleet.run(1)
        node.done(plugin.stop())
        epoch = 1 if coordinate else None
        assert said == [("become", epoch), ("stop", epoch)]


def test_a_hook_that_cannot_be_called_is_refused_when_the_plugin_is_given_to_a_database() -> None:
    class Greedy(CoordinatorPlugin):
        def coordinator_work(self, lead: Lead, more: int) -> None:  # type: ignore[override]
            raise AssertionError

    with Fleet() as fleet:
        node = fleet.join("a")
        with pytest.raises(ConfigError, match=r"^coordinator_work of <Greedy 'greedy'> cannot be called: it must take"):
            give(fleet, node, Greedy())


@pytest.mark.req("CP-2")
def test_hooks_that_raise_harm_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Raising(Noting):
        slug = "raising"

        async def on_become_coordinator(self) -> None:
            await super().on_become_coordinator()
            raise ValueError("not today")

        async def on_stop_being_coordinator(self) -> None:
            await super().on_stop_being_coordinator()
            raise ValueError("not tomorrow")

        def coordinator_work(self) -> None:  # type: ignore[override]
            self.note("work")
            raise KeyError("never")

    with Fleet() as fleet:
        node = fleet.join("a")
        raising, other = Raising(), Noting()
        give(fleet, node, raising)
        give(fleet, node, other)
        fleet.until(lambda: raising.said().count("work") >= 3 and other.said().count("work") >= 3)
        assert node.leads
        failed = node.named("hook:failed")
        assert failed[0].hook == "on_become_coordinator"
        assert "not today" in failed[0].error
        assert {event.hook for event in failed} == {"on_become_coordinator", "coordinator_work"}
        node.done(node.service.step_down())
        assert raising.said()[-1] == other.said()[-1] == "stop"
        assert raising.hook_failures == raising.said().count("work") + 2
        fleet.until(lambda: raising.said().count("become") == 2, 200)


class Unable(Noting):
    """Its work cannot be begun here, for some time."""

    slug = "unable"
    fails = True

    async def on_become_coordinator(self) -> None:
        await super().on_become_coordinator()
        if self.fails:
            raise ConnectionError("no database")


class TestOnHookFailure:
    """WA-13"""

    def test_a_leader_whose_work_does_not_begin_steps_down_for_a_healthy_one(self) -> None:
        with Fleet() as fleet:
            unable, able = fleet.join("a"), fleet.join("b")
            failing = give(fleet, unable, Unable(on_hook_failure="step-down"))
            working = give(fleet, able, Noting(on_hook_failure="step-down"))
            assert isinstance(failing, Noting)
            assert isinstance(working, Noting)
            fleet.until(lambda: unable.named("coord:coordinator-promoted"))
            fleet.until(lambda: able.leads, within=3)
            assert failing.said() == ["become", "stop"], "no work without a beginning"
            assert [event.reason for event in unable.named("coord:coordinator-demoted")] == ["hook-failed"]
            fleet.run(60)
            assert able.leads
            assert working.said().count("work") > 5
            assert failing.said() == ["become", "stop"]

    def test_by_default_it_keeps_leading(self) -> None:
        with Fleet() as fleet:
            unable, able = fleet.join("a"), fleet.join("b")
            failing = give(fleet, unable, Unable())
            give(fleet, able, Noting())
            fleet.lead()
            fleet.run(60)
            assert unable.leads
            assert isinstance(failing, Noting)
            assert failing.said().count("work") > 5

    def test_the_only_worker_tries_again_ever_more_rarely_and_works_when_it_can(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Unable(on_hook_failure=HookFailure.STEP_DOWN)
            give(fleet, node, plugin)
            fleet.until(lambda: plugin.said().count("become") == 8, within=1000)
            tries = [at for at, what in plugin.notes if what == "become"]
            pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
            beat = node.service.config.heartbeat_interval
            assert [round((later - earlier) / beat) for earlier, later in itertools.pairwise(pauses)] == [
                2,
                4,
                8,
                0,
                0,
                0,
            ]
            assert node.service.get_epoch() == 8
            plugin.fails = False
            fleet.until(lambda: "worked" in plugin.said(), within=120)
            node.done(node.service.step_down())
            plugin.fails = True
            fleet.until(lambda: plugin.said().count("become") == 11, within=120)
            tries = [at for at, what in plugin.notes if what == "become"]
            assert tries[10] - tries[9] == pytest.approx(pauses[0], abs=beat), "a term that went well starts anew"

    def test_a_subscriber_has_the_same_choice(self) -> None:
        class Subscriber(Plugin):
            def on_become_coordinator(self, lead: Lead) -> None:
                super().on_become_coordinator(lead)
                raise ConnectionError("no database")

        with Fleet() as fleet:
            unable, able = fleet.join("a"), fleet.join("b")
            subscriber = Subscriber(lambda: fleet.world.now)

            async def add() -> None:
                unable.service.subscribe(subscriber, on_hook_failure=HookFailure.STEP_DOWN)

            unable.run(add())
            fleet.until(lambda: unable.named("coord:coordinator-promoted"))
            fleet.until(lambda: able.leads, within=3)
            assert subscriber.calls == unable.plugin.calls == ["become", "stop"]

    def test_work_that_ends_late_in_the_term_counts_as_well(self) -> None:
        """`on_become_coordinator` may run for as long as the term."""

        class Breaking(Noting):
            async def on_become_coordinator(self) -> None:
                await super().on_become_coordinator()
                await self.work()  # type: ignore[misc]
                raise ConnectionError("gone")

        with Fleet() as fleet:
            unable, able = fleet.join("a"), fleet.join("b")
            plugin = Breaking(on_hook_failure="step-down")
            plugin.work = lambda: unable.host.clock.sleep(30)
            give(fleet, unable, plugin)
            fleet.lead()
            fleet.run(29)
            assert unable.leads
            fleet.until(lambda: able.leads, within=10)


@pytest.mark.req("CP-2")
def test_a_hook_that_waited_for_something_cancelled_has_failed_and_is_called_again() -> None:
    with Fleet() as fleet:
        node = fleet.join("a")
        plugin = Noting()

        async def work() -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        plugin.work = work
        give(fleet, node, plugin)
        fleet.until(lambda: plugin.said().count("work") == 3)
        assert plugin.hook_failures >= 2


@pytest.mark.req("CP-2")
@pytest.mark.parametrize("keeps_it", [True, False])
@pytest.mark.parametrize("hook", ["work", "become"])
def test_a_hook_whose_timeout_cancels_its_task_is_called_again(hook: str, keeps_it: bool) -> None:
    """As older libraries do, and never take it back."""
    with Fleet() as fleet:
        node = fleet.join("a")

        async def times_out() -> None:
            task = asyncio.current_task()
            assert task is not None
            fleet.world.call_at(fleet.world.now + 0.1, task.cancel)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not keeps_it:
                    raise

        class TimesOut(Noting):
            async def on_become_coordinator(self) -> None:
                await super().on_become_coordinator()
                if hook == "become":
                    await times_out()

        plugin = TimesOut()
        plugin.work = times_out if hook == "work" else None
        give(fleet, node, plugin)
        fleet.until(lambda: plugin.said().count("work") == 3)
        assert plugin.hook_failures == (0 if keeps_it else 1 if hook == "become" else 2)
        node.done(plugin.stop())
        assert plugin.said()[-1] == "stop"


@pytest.mark.req("CP-7")
def test_work_is_cancelled_and_hooks_told_before_another_may_lead() -> None:
    with Fleet() as fleet:
        plugins: dict[str, Noting] = {}
        for name in "ab":
            node = fleet.join(name)
            plugins[name] = Noting()
            plugins[name].work = lambda node=node: node.host.clock.sleep(1000)  # type: ignore[misc]
            give(fleet, node, plugins[name])
        leader = fleet.lead()
        fleet.until(lambda: "work" in plugins[leader.name].said())
        fleet.network.cut(leader.name)
        other = plugins["b" if leader.name == "a" else "a"]
        fleet.until(lambda: other.said())
        plugin = plugins[leader.name]
        assert plugin.said() == ["become", "work", "cancelled", "stop"]
        assert plugin.when("stop") < other.when("become")


@pytest.mark.req("CP-7")
def test_a_voluntary_end_waits_for_the_work_to_wind_up() -> None:
    with Fleet() as fleet:
        plugins: dict[str, Noting] = {}
        for name in "ab":
            node = fleet.join(name)
            plugin = plugins[name] = Noting()

            async def work(node: Any = node, plugin: Noting = plugin) -> None:
                try:
                    await node.host.clock.sleep(1000)
                finally:
                    await node.host.clock.sleep(4)
                    plugin.note("wound up")

            plugin.work = work
            give(fleet, node, plugin)
        leader = fleet.lead()
        fleet.until(lambda: "work" in plugins[leader.name].said())
        leader.run(leader.service.step_down())
        other = plugins["b" if leader.name == "a" else "a"]
        fleet.until(lambda: other.said())
        plugin = plugins[leader.name]
        assert plugin.said() == ["become", "work", "wound up", "cancelled", "stop"]
        assert plugin.when("stop") < other.when("become")
        assert not leader.named("lease:overran")


@pytest.mark.req("CP-7")
def test_nothing_begins_after_a_stall() -> None:
    """A process that was frozen over the end of its lease starts no work with what was due meanwhile."""
    with Fleet() as fleet:
        plugins = {}
        for name in "ab":
            plugins[name] = Noting(coordinator_work_interval=1.0)
            give(fleet, fleet.join(name), plugins[name])
        leader = fleet.lead()
        plugin = plugins[leader.name]
        fleet.until(lambda: plugin.said().count("worked") == 2)
        leader.host.freeze(60)
        frozen_at = fleet.world.now
        other = plugins["b" if leader.name == "a" else "a"]
        fleet.until(lambda: other.said())
        fleet.run(60)
        late = [what for at, what in plugin.notes if at > frozen_at]
        assert late == ["stop"]


@pytest.mark.req("CP-7")
def test_code_that_ignores_cancellation_is_reported() -> None:
    with Fleet() as fleet:
        node = fleet.join("a")
        plugin = Noting()

        async def stubborn() -> None:
            end = fleet.world.now + 200
            while fleet.world.now < end:
                try:
                    await node.host.clock.sleep(end - fleet.world.now)
                except asyncio.CancelledError:
                    continue

        plugin.work = stubborn
        give(fleet, node, plugin)
        fleet.until(lambda: "work" in plugin.said())
        fleet.network.cut("a")
        fleet.until(lambda: node.named("lease:overran"))
        assert "stop" not in plugin.said()
        fleet.network.heal("a")
        fleet.run(200)
        assert plugin.said().count("stop") >= 1


@pytest.mark.req("CP-7")
@pytest.mark.parametrize("how", ["partition", "step-down"])
def test_a_process_that_promised_to_exits_before_its_lease_runs_out(how: str) -> None:
    with Fleet() as fleet:
        exits: list[tuple[float, int]] = []
        node = fleet.join("a")

        def leave(code: int) -> None:
            exits.append((fleet.world.now, code))
            node.host.crash()

        node.service._exit_process = leave
        other = fleet.join("b")
        plugin = Noting(hook_overrun="exit")
        plugin.work = lambda: _never(node)
        give(fleet, node, plugin)
        leader = fleet.lead()
        if leader is not node:
            other.done(other.service.transfer("a", force=True))
        fleet.until(lambda: "work" in plugin.said())
        if how == "partition":
            fleet.network.cut("a")
        else:
            node.run(node.service.step_down())
        took_over = fleet.until(lambda: other.leads, 200)
        assert took_over > 0
        assert [code for _, code in exits] == [EXIT_OVERRAN]
        assert exits[0][0] < fleet.world.now


async def _refusal(asked: Coroutine[Any, Any, Any]) -> str:
    try:
        await asked
    except RequestRefused as refused:
        return str(refused)
    return ""


async def _never(node: Any) -> None:
    while True:
        try:
            await node.host.clock.sleep(1000)
        except asyncio.CancelledError:
            pass


class TestColdStart:
    @pytest.mark.req("CP-3")
    def test_the_phases_of_a_new_namespace(self) -> None:
        with Fleet() as fleet:
            plugins = {name: Noting(skip_cold_start=False) for name in "ab"}
            nodes = {name: fleet.join(name) for name in "ab"}
            for name in "ab":
                give(fleet, nodes[name], plugins[name])
            leader = fleet.lead()
            assert leader.name == "a"
            fleet.until(lambda: plugins["a"].said())
            phases = leader.named("coord:cold-start-phase-changed")
            assert [event.phase for event in phases] == ["observing", "election", "preparation", "ready"]
            assert phases[0].duration == 0
            assert phases[1].duration == pytest.approx(15, abs=1)
            assert phases[3].duration == pytest.approx(5, abs=1.1)
            led, ready = leader.when("coord:coordinator-promoted"), plugins["a"].when("become")
            assert led > 15
            assert ready - led == pytest.approx(5, abs=1.1)
            fleet.run(10)
            follower = [event.phase for event in nodes["b"].named("coord:cold-start-phase-changed")]
            assert follower[0] == "observing"
            assert follower[-1] == "ready"
            assert "preparation" not in follower

    def test_a_plugin_does_not_lead_before_its_hook_is_called(self) -> None:
        """WA-3: its process leads during the preparation, and other subscribers may be at work."""
        with Fleet() as fleet:
            node, plugin = fleet.join("a"), Noting(skip_cold_start=False)
            give(fleet, node, plugin)
            fleet.lead()
            fleet.run(1)
            assert node.service.is_leader()
            assert plugin.said() == []
            assert (plugin.is_coordinator, plugin.lead) == (False, None)
            fleet.until(lambda: plugin.said())
            assert plugin.is_coordinator

    @pytest.mark.req("CP-3")
    def test_it_is_skipped_where_somebody_led_or_leads(self) -> None:
        with Fleet() as fleet:
            first = fleet.join("a")
            fleet.lead()
            plugin = Noting(skip_cold_start=False)
            late = fleet.join("b")
            give(fleet, late, plugin)
            fleet.run(10)
            first.done(first.service.stop())
            fleet.until(lambda: plugin.said(), 30)
            assert not late.named("coord:cold-start-phase-changed")

    @pytest.mark.req("CP-3")
    def test_a_bare_coordinator_and_one_that_skips_it_have_none(self) -> None:
        with Fleet() as fleet:
            bare = fleet.join("a")
            fleet.lead(within=5)
            assert not bare.named("coord:cold-start-phase-changed")
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting(skip_cold_start=True)
            give(fleet, node, plugin)
            fleet.until(lambda: plugin.said(), 5)
            assert not node.named("coord:cold-start-phase-changed")

    @pytest.mark.req("CP-3")
    def test_a_leader_that_appears_meanwhile_ends_the_observation(self) -> None:
        with Fleet() as fleet:
            slow = fleet.join("a")
            plugin = Noting(skip_cold_start=False)
            give(fleet, slow, plugin)
            fleet.run(4)
            hasty = fleet.join("b")
            fleet.until(lambda: hasty.leads, 12)
            fleet.run(7)
            phases = [event.phase for event in slow.named("coord:cold-start-phase-changed")]
            assert phases == ["observing", "ready"]
            assert not slow.leads

    @pytest.mark.req("CP-3")
    def test_the_longest_of_several_counts_and_there_is_one(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            short = Noting(skip_cold_start=False, cold_start_observation_window=2, cold_start_preparation_delay=0)
            long = Noting(skip_cold_start=False, cold_start_observation_window=20, cold_start_preparation_delay=3)
            give(fleet, node, short, "short")
            give(fleet, node, long, "long")
            fleet.until(lambda: short.said() and long.said())
            assert node.when("coord:coordinator-promoted") > 20
            assert len(node.named("coord:cold-start-phase-changed")) == 4

    @pytest.mark.req("CP-3")
    def test_leadership_lost_in_the_preparation_tells_nobody(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            plugin = Noting(skip_cold_start=False, cold_start_preparation_delay=20, coordinator_work_interval=1)
            give(fleet, node, plugin)
            fleet.lead()
            fleet.run(2)
            node.done(node.service.step_down())
            assert plugin.said() == []
            fleet.until(lambda: plugin.said(), 120)
            assert plugin.said()[0] == "become"


@pytest.mark.req("CP-4")
def test_each_plugin_tells_the_coordinators_events_again_under_its_own_name() -> None:
    with Fleet() as fleet:
        node = fleet.join("a")
        give(fleet, node, Noting(), "first")
        give(fleet, node, Noting(), "second")
        fleet.lead()
        fleet.run(7)
        node.done(node.service.step_down())
        fleet.run(1)
        names = {
            "coordinator-elected": "coord:coordinator-elected",
            "coordinator-promoted": "coord:coordinator-promoted",
            "coordinator-demoted": "coord:coordinator-demoted",
            "worker-heartbeat": "coord:worker-heartbeat",
        }
        for again, original in names.items():
            told = node.named(f"plg:noting:{again}")
            originals = node.named(original)
            assert originals
            assert [event.event for event in told if event.plugin == "first"] == originals
            assert [event.event for event in told if event.plugin == "second"] == originals


@pytest.mark.req("CP-4")
def test_each_plugin_tells_of_a_renewed_mandate_under_its_own_name() -> None:
    with Fleet(config=QUICK.replace(min_epoch_duration=5, max_epoch_duration=20)) as fleet:
        node = fleet.join("a")
        give(fleet, node, Noting(), "first")
        give(fleet, node, Noting(), "second")
        fleet.lead()
        fleet.run(50)
        originals = node.named("coord:coordinator-epoch-renewed")
        assert [(event.worker_id, event.epoch) for event in originals] == [("a", 1), ("a", 1)]
        assert originals[0].mandate_ends_at < originals[1].mandate_ends_at
        told = node.named("plg:noting:coordinator-epoch-renewed")
        for plugin in ("first", "second"):
            assert [event.event for event in told if event.plugin == plugin] == originals


class TestEnsureCoordinator:
    @pytest.mark.req("CP-5")
    def test_it_waits_for_one_and_hands_over_when_told_to(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "abc"}
            plugin = Noting()
            give(fleet, nodes["c"], plugin)
            assert nodes["c"].done(plugin.ensure_coordinator()) == fleet.lead().name == "a"
            fleet.run(8)
            assert nodes["c"].done(plugin.ensure_coordinator(force=True, desired_coordinator="b")) == "b"
            assert fleet.lead().name == "b"
            before = fleet.epochs()[-1]
            elected = nodes["c"].done(plugin.ensure_coordinator(force=True))
            assert fleet.lead().name == elected
            assert fleet.epochs()[-1] > before

    @pytest.mark.req("CP-5")
    def test_without_force_the_mandate_holds(self) -> None:
        with Fleet() as fleet:
            nodes = {name: fleet.join(name) for name in "ab"}
            plugin = Noting()
            give(fleet, nodes["b"], plugin)
            fleet.lead()
            fleet.run(8)
            refused = nodes["b"].done(_refusal(plugin.ensure_coordinator(desired_coordinator="b")))
            assert "only a forced request" in refused


class TestAlone:
    @pytest.mark.req("CP-6")
    def test_without_coordination_it_works_and_makes_no_request(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            node.done(node.service.stop())
            fleet.network.requests.clear()
            plugin = Noting(enable_coordinator=False, coordinator_work_interval=1.0)
            give(fleet, node, plugin)
            fleet.run(5)
            assert plugin.said().count("worked") >= 4
            assert plugin.is_coordinator
            assert plugin.lead is None
            assert plugin.epoch == 0
            assert node.done(plugin.ensure_coordinator()) == "a"
            node.done(plugin.stop())
            assert plugin.said()[-1] == "stop"
            assert not plugin.is_coordinator
            assert sum(fleet.network.requests.values()) == 0
            with pytest.raises(CoordinationError, match="told not to coordinate"):
                _ = plugin.coordinator


class TestEpochs:
    @pytest.mark.req("EF-2", "EF-3", "EF-4", "EF-5")
    def test_tasks_of_former_leaders_are_refused_and_counted(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            other = fleet.join("b")
            plugin = Noting()
            give(fleet, node, plugin)
            fleet.until(lambda: fleet.leader is not None)
            fleet.run(8)
            leader = fleet.lead()
            follower = other if leader is node else node
            epoch = leader.service.get_epoch()
            assert plugin.validate_epoch(epoch).reason == "current"
            assert plugin.validate_epoch(epoch - 1).reason == "stale"  # it saw no change: no grace
            assert node.service.get_metrics().epoch_drift_events == 1
            follower.done(follower.service.transfer(follower.name, force=True))
            fleet.until(lambda: node.service.get_epoch() == epoch + 1)
            assert plugin.validate_epoch(epoch).reason == "grace_period"
            assert plugin.validate_epoch(epoch, dispatched_ago=6.0).reason == "stale"
            assert plugin.validate_epoch(epoch - 1).reason == "stale"
            fleet.run(6)
            assert plugin.validate_epoch(epoch).reason == "stale"
            assert node.service.get_metrics().epoch_drift_events == 4
            assert plugin.validate_epoch(epoch + 5).reason == "current"
            assert plugin.validate_epoch(epoch + 1).reason == "stale"

    @pytest.mark.req("EF-6")
    def test_fencing_can_be_turned_off(self) -> None:
        with Fleet(config=QUICK.replace(epoch_fencing_enabled=False)) as fleet:
            node = fleet.join("a")
            plugin = Noting()
            give(fleet, node, plugin)
            fleet.lead()
            assert plugin.is_epoch_valid(0)
            assert node.service.get_metrics().epoch_drift_events == 0

    @pytest.mark.req("EF-4")
    def test_grace_runs_from_when_the_change_was_learned_not_from_when_it_is_asked(self) -> None:
        with Fleet() as fleet:
            node, other = fleet.join("a"), fleet.join("b")
            plugin = Noting()
            give(fleet, node, plugin)
            fleet.lead()
            fleet.run(8)
            epoch = node.service.get_epoch()
            other.done(other.service.transfer("b", force=True))
            fleet.until(lambda: node.service.get_epoch() == epoch + 1)
            fleet.run(7)
            assert not plugin.is_epoch_valid(epoch)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"coordinator_work_interval": 0}, "coordinator_work_interval"),
        ({"coordinator_work_interval": 500_000}, "looks like milliseconds"),
        ({"coordinator_work_interval": "5"}, "coordinator_work_interval is '5'"),
        ({"enable_coordinator": "no"}, "enable_coordinator is 'no'"),
        ({"skip_cold_start": 1}, "skip_cold_start is 1"),
        ({"cold_start_observation_window": -1}, "cold_start_observation_window"),
        ({"cold_start_preparation_delay": 15_000}, "looks like milliseconds"),
        ({"hook_overrun": "panic"}, "'report' or 'exit'"),
        ({"on_hook_failure": "panic"}, "'keep-leading' or 'step-down'"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        CoordinatorPlugin(**options)


def test_slugs() -> None:
    class NightlyHTTPReportPlugin(CoordinatorPlugin): ...

    assert NightlyHTTPReportPlugin.slug == "nightly-http-report"
    with pytest.raises(ConfigError, match="slug"):
        type("Odd", (CoordinatorPlugin,), {"slug": "No Good"})
    with pytest.raises(ConfigError, match="belongs to no database"):
        _ = NightlyHTTPReportPlugin().worker_id


def test_an_ineligible_worker_is_a_member_that_never_leads() -> None:
    with Fleet() as fleet:
        never = fleet.join("a", eligible=False)
        fleet.run(40)
        assert not never.leads
        assert fleet.epochs() == []
        able = fleet.join("b")
        fleet.until(lambda: able.leads, 20)
        fleet.run(12)
        assert able.done(able.service.get_active_workers()) == ["a", "b"]
        assert "does not stand" in able.done(_refusal(able.service.transfer("a", force=True)))
        able.host.crash()
        fleet.run(120)
        assert not never.leads
