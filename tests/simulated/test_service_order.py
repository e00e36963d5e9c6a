"""Whole coordinators in simulated time: who leads among those who could."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import pytest

from tenure.coordinator.layout import folder_of, worker_key
from tenure.coordinator.membership import forgotten_after
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.entropy import Random
from tenure.errors import CoordinationError, WorkerReplaced
from tenure.store.memory import MemoryStore
from tests.simulated.fleet import QUICK, Fleet, Node

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


def leading(fleet: Fleet) -> str | None:
    return fleet.leader.name if fleet.leader is not None else None


class TestRank:
    @pytest.mark.req("EL-3")
    @pytest.mark.parametrize("seed", range(8))
    def test_the_first_id_wins_in_whatever_order_they_come(self, seed: int) -> None:
        """All of them within one `takeover_delay`; a second fleet of the same names elects the same one."""
        names = list(NAMES)
        Random(seed).shuffle(names)
        with Fleet(seed) as fleet:
            for name in names:
                fleet.join(name)
            fleet.run(20)
            assert [(name, epoch) for _, name, epoch in fleet.terms] == [("alpha", 1)]

    @pytest.mark.req("EL-3")
    @pytest.mark.parametrize("behind", [0.3, 0.6, 0.9])
    def test_also_if_it_comes_last_but_within_the_takeover_delay(self, behind: float) -> None:
        with Fleet(config=QUICK.replace(startup_jitter_max=0)) as fleet:
            for name in NAMES[1:]:
                fleet.join(name)
            fleet.run(behind)
            fleet.join("alpha")
            fleet.run(20)
            assert [(name, epoch) for _, name, epoch in fleet.terms] == [("alpha", 1)]

    @pytest.mark.req("EL-3")
    @pytest.mark.parametrize("seed", range(4))
    def test_after_a_crash_the_first_of_the_survivors_follows(self, seed: int) -> None:
        with Fleet(seed) as fleet:
            for name in NAMES:
                fleet.join(name)
            order = sorted(NAMES)
            fleet.run(20)
            for _ in range(3):
                fleet.lead().host.crash()
                fleet.run(45)
            assert [name for _, name, _ in fleet.terms] == order[:4]

    @pytest.mark.req("EL-16")
    @pytest.mark.parametrize("seed", range(4))
    def test_better_priority_comes_before_a_smaller_id(self, seed: int) -> None:
        with Fleet(seed) as fleet:
            for priority, name in enumerate(sorted(NAMES)):
                fleet.join(name, priority=priority)
            fleet.run(20)
            fleet.lead().host.crash()
            fleet.run(45)
            assert [name for _, name, _ in fleet.terms] == sorted(NAMES, reverse=True)[:2]


class TestStartup:
    @pytest.mark.req("EL-13")
    def test_jitter_spreads_the_first_heartbeats(self) -> None:
        first: dict[str, float] = {}

        def note(host: str, verb: str, key: str, at: float) -> None:
            if "/workers/" in key and verb == "create":
                first.setdefault(host, at)

        with Fleet(config=QUICK.replace(startup_jitter_min=1, startup_jitter_max=5)) as fleet:
            fleet.network.on_request = note
            for number in range(60):
                fleet.join(f"w{number:02d}")
            fleet.run(8)
            assert len(first) == 60
            times = sorted(first.values())
            assert times[0] >= 1.0
            assert times[-1] <= 5.5
            assert times[-1] - times[0] > 3.0
            assert max(Counter(int(at) for at in times).values()) < 40, "most of them came within one second"

    def test_without_jitter_they_come_at_once(self) -> None:
        """What the test above would see if jitter did nothing."""
        with Fleet(config=QUICK.replace(startup_jitter_max=0)) as fleet:
            for number in range(10):
                fleet.join(f"w{number}")
            fleet.run(0.5)
            assert len(fleet.bucket.keys(fleet.path("workers/"))) == 10


class TestIdentity:
    @pytest.mark.req("EL-14")
    def test_an_id_is_made_up_at_each_start(self) -> None:
        services = [GlobalCoordinatorService(MemoryStore()) for _ in range(50)]
        for service in services:
            assert re.fullmatch(r"worker-\d{13}-[0-9a-f]{8}", service.worker_id)
        assert len({service.worker_id for service in services}) == 50

    @pytest.mark.req("EL-14")
    @pytest.mark.parametrize("seed", range(4))
    def test_of_two_processes_with_one_id_the_newer_leads_and_the_older_is_told(self, seed: int) -> None:
        """That there are never two leaders is checked at every step by the fleet itself."""
        with Fleet(seed) as fleet:
            older = fleet.join("a")
            fleet.run(20)
            fate = older.run(_fate(older))
            newer = fleet.join("a", host=fleet.world.host("elsewhere"))
            fleet.run(60)
            assert newer.leads
            assert not older.leads
            assert not older.service.running
            assert [event.worker_id for event in older.named("worker:replaced")] == ["a"]
            assert older.plugin.calls == ["become", "stop"]
            assert fate.result() == "LeadershipLost"
            fleet.run(200)
            assert fleet.leader is newer, "the older one does not come back"
            assert fleet.epochs() == [1, 2]
            assert newer.named("worker:replaced") == []

    @pytest.mark.req("EL-14")
    def test_an_older_one_that_does_not_lead_stops_as_well(self) -> None:
        with Fleet() as fleet:
            leader, older = fleet.join("a"), fleet.join("b")
            fleet.run(20)
            fate = older.run(_fate(older))
            newer = fleet.join("b", host=fleet.world.host("elsewhere"))
            fleet.run(30)
            assert fate.result() == "WorkerReplaced"
            assert not older.service.running
            assert newer.service.running
            leader.host.crash()
            fleet.run(60)
            assert fleet.leader is newer
            assert leader.named("workers:updated")[-1].workers == ("a", "b")

    @pytest.mark.req("EL-14")
    def test_one_that_was_replaced_says_so_to_whoever_asks_for_leadership(self) -> None:
        with Fleet() as fleet:
            older = fleet.join("a")
            fleet.run(20)
            fleet.join("a", host=fleet.world.host("elsewhere"))
            fleet.run(60)
            with pytest.raises(WorkerReplaced, match="started later"):
                older.service.leadership()

    @pytest.mark.parametrize("stopped", [False, True])
    def test_one_that_was_replaced_does_not_replace_the_newer_one_in_turn(self, stopped: bool) -> None:
        """WA-3, EL-14: neither by a start() of the user, nor for the next plugin."""
        with Fleet() as fleet:
            older = fleet.join("a")
            fleet.run(20)
            assert not older.service.replaced
            newer = fleet.join("a", host=fleet.world.host("elsewhere"))
            fleet.run(60)
            assert older.service.replaced
            assert not older.service.running
            if stopped:
                older.done(older.service.stop())

            async def start_again() -> None:
                for start in (older.service.start, older.service.start_for_subscribers):
                    with pytest.raises(WorkerReplaced, match=r"worker id 'a'.*started later.*new Database"):
                        await start()

            older.done(start_again())
            fleet.run(120)
            assert older.service.replaced
            assert not older.service.running
            assert newer.leads
            assert not newer.service.replaced
            assert newer.named("worker:replaced") == []
            assert fleet.epochs() == [1, 2]

    def test_one_that_was_stopped_was_not_replaced(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(20)
            node.done(node.service.stop())
            assert not node.service.running
            assert not node.service.replaced
            node.done(node.service.start())
            fleet.run(60)
            assert node.leads

    @pytest.mark.req("EL-14")
    @pytest.mark.parametrize("lives", [True, False])
    def test_a_newer_tenure_under_our_id_is_left_alone_while_it_may_live(self, lives: bool) -> None:
        """A rolling upgrade in which an id comes back; and a rollback, where nobody but us is left to clear it away."""
        key = folder_of("default") + worker_key("a")
        with Fleet() as fleet:
            node = fleet.join("a")
            planted = b'{"schemaVersion":2,"somethingNew":0}'
            fleet.bucket.corrupt(key, planted)
            fleet.run(15)
            assert not node.leads
            assert fleet.bucket.body(key) == planted
            if lives:
                planted = b'{"schemaVersion":2,"somethingNew":1}'
                fleet.bucket.corrupt(key, planted)
                fleet.run(200)
                assert not node.service.running
                assert fleet.epochs() == []
                assert fleet.bucket.body(key) == planted
                with pytest.raises(WorkerReplaced, match="newer tenure"):
                    node.service.leadership()
            else:
                fleet.run(200)
                assert node.leads
                assert fleet.bucket.body(key) != planted

    @pytest.mark.req("EL-14")
    def test_a_newer_tenure_under_another_id_is_left_alone_until_it_is_long_dead(self) -> None:
        key = folder_of("default") + worker_key("newer")
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(20)
            timeout = forgotten_after(node.service.config.worker_timeout)
            for beat in range(20):
                planted = b'{"schemaVersion":2,"somethingNew":%d}' % beat
                fleet.bucket.corrupt(key, planted)
                fleet.run(timeout / 3)
                assert fleet.bucket.body(key) == planted, "it beats"
            fleet.run(2 * timeout)
            assert fleet.bucket.body(key) is None, "as any that is silent for so long"
            assert fleet.leader is node


async def _fate(node: Node) -> str:
    """What becomes of somebody who waits for leadership, and then works until it ends."""
    try:
        async with node.service.leadership():
            await asyncio.Event().wait()
    except CoordinationError as error:
        return type(error).__name__
    return "left"


class TestElectionOnly:
    @pytest.mark.req("EL-19")
    def test_there_are_no_worker_records_and_no_listings_and_a_watch_is_one_get(self) -> None:
        with Fleet(config=QUICK.replace(membership=False)) as fleet:
            for name in "abc":
                fleet.join(name)
            fleet.run(30)
            leader = fleet.lead()
            followers = [node for node in fleet.nodes.values() if node is not leader]
            before = {node.name: fleet.requests(node.name) for node in fleet.nodes.values()}
            beats = {node.name: node.service.get_metrics().heartbeat_count for node in fleet.nodes.values()}
            asked: list[tuple[str, str, str]] = []
            fleet.network.on_request = lambda host, verb, key, at: asked.append((host, verb, key))
            fleet.run(300)
            for node in followers:
                count = node.service.get_metrics().heartbeat_count - beats[node.name]
                assert count > 45
                spent = fleet.requests(node.name) - before[node.name]
                assert set(spent) == {"get"}
                assert abs(spent["get"] - count) <= 1
            assert set(fleet.requests(leader.name) - before[leader.name]) == {"replace"}
            assert {key for _, _, key in asked} == {fleet.path("state.json")}
            assert fleet.bucket.keys(fleet.path("workers/")) == []
            assert fleet.bucket.body(fleet.path("members.json")) is None
            assert leader.done(leader.service.get_active_workers()) == []
            assert leader.done(leader.service.get_active_workers(fresh=True)) == []

    @pytest.mark.req("EL-19")
    @pytest.mark.parametrize("seed", range(4))
    def test_it_fails_over_and_counts_like_any_other(self, seed: int) -> None:
        with Fleet(seed, config=QUICK.replace(membership=False)) as fleet:
            for name in "abc":
                fleet.join(name)
            listed: list[str] = []
            fleet.network.on_request = lambda host, verb, key, at: listed.append(key) if verb == "list" else None
            fleet.lead().host.crash()
            fleet.run(60)
            fleet.lead().host.crash()
            fleet.run(60)
            assert fleet.epochs() == [1, 2, 3]
            assert {key.rpartition("/namespace=default/")[2] for key in listed} <= {"terms/"}


class TestHealth:
    @pytest.mark.req("EL-16")
    def test_one_bad_answer_deposes_nobody_and_three_do(self) -> None:
        answers = {"a": True}
        with Fleet() as fleet:
            sick = fleet.join("a", health_check=lambda: answers["a"])
            well = fleet.join("b", health_check=lambda: True)
            fleet.run(60)
            for _ in range(4):
                answers["a"] = False
                fleet.run(9)  # at most two checks, five seconds apart
                answers["a"] = True
                fleet.run(6)
            assert leading(fleet) == "a"
            answers["a"] = False
            fleet.run(25)
            assert leading(fleet) == "b"
            assert [event.reason for event in sick.named("coord:coordinator-demoted")] == ["unhealthy"]
            assert sick.plugin.calls == ["become", "stop"]
            fleet.run(60)
            assert fleet.json("workers/worker=a.json")["healthy"] is False
            well.host.crash()
            fleet.run(60)
            assert leading(fleet) is None, "an unhealthy worker does not stand"
            answers["a"] = True
            fleet.run(4)
            assert leading(fleet) is None, "one good answer makes nobody fit"
            fleet.run(20)
            assert leading(fleet) == "a"
            assert fleet.epochs() == [1, 2, 3]

    @pytest.mark.req("EL-16")
    def test_if_nobody_is_healthy_nobody_leads(self) -> None:
        health = dict.fromkeys("abc", False)
        with Fleet() as fleet:
            for name in "abc":
                fleet.join(name, health_check=lambda name=name: health[name])
            fleet.run(120)
            assert fleet.terms == []
            health["b"] = True
            fleet.run(20)
            assert [(name, epoch) for _, name, epoch in fleet.terms] == [("b", 1)]
            health["b"] = False
            fleet.run(120)
            assert fleet.leader is None
            assert fleet.json("state.json")["leaderId"] is None
            assert fleet.epochs() == [1]

    @pytest.mark.req("EL-16")
    @pytest.mark.parametrize("kind", ["raises", "hangs", "async", "is cancelled by its own timeout"])
    def test_a_check_that_fails_or_never_ends_counts_as_no(self, kind: str) -> None:
        sick: list[bool] = []

        async def check(node: list[Node]) -> bool:
            if sick and kind == "raises":
                raise RuntimeError("no connection")
            if sick and kind == "hangs":
                await node[0].host.clock.sleep(10_000)
            if sick and kind == "is cancelled by its own timeout":
                task = asyncio.current_task()
                assert task is not None
                fleet.world.call_at(fleet.world.now + 0.01, task.cancel)
                await node[0].host.clock.sleep(10_000)
            return not sick

        with Fleet() as fleet:
            nodes: list[Node] = []
            nodes.append(fleet.join("a", health_check=lambda: check(nodes)))
            other = fleet.join("b")
            fleet.run(30)
            assert nodes[0].leads
            sick.append(True)
            fleet.run(60)
            assert fleet.leader is other

    @pytest.mark.req("EL-16")
    def test_one_that_turned_unhealthy_while_it_stood_does_not_lead(self) -> None:
        healthy = [True]
        with Fleet() as fleet:
            fleet.network.change("a", latency=(0.3, 0.3))
            fleet.join("a", health_check=lambda: healthy[0], health_check_interval=0.1, unhealthy_after=1)

            def turn(host: str, verb: str, key: str, at: float) -> None:
                if verb == "create" and key.endswith("state.json"):
                    healthy[0] = False

            fleet.network.on_request = turn
            fleet.run(60)
            assert not healthy[0]
            assert fleet.leader is None
