"""SV-9: whatever is started, stopped, crashed, cut off and paused, a child runs on one node at most, and in the end on
exactly one."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tenure.plugins.supervisor.candidate import CoordinatorCandidate
from tenure.plugins.supervisor.child import Child, Context
from tenure.plugins.supervisor.keeper import Keeper
from tenure.plugins.supervisor.restarts import RestartPolicy
from tenure.plugins.supervisor.running import LeasedCoroutine
from tenure.plugins.supervisor.supervisor import CoordinatorSupervisor
from tenure.testing import Host

from .fleet import Node
from .plugins import Home
from .test_supervisor import Candidates

CHILDREN = ("prompt", "slow", "crashing", "timing", "service")
WIND_UP = 0.25
"""Seconds that the slow child takes to end: less than its share of what the lease leaves."""
NOTICED_WITHIN = 0.35
"""Seconds after waking up in which a process finds that its lease is over, with room for the loop's own timers."""
REPORTED_FROM = 0.15
"""An overrun is reported once it has lasted for longer than the last chance that hooks are given."""

Step = tuple[str, int, float]
NODES = st.integers(0, 3)
SECONDS = st.sampled_from([0.05, 0.3, 1.0, 2.2, 4.0, 5.0, 6.5, 9.0, 20.0])
CALM = st.tuples(
    st.sampled_from(["start", "stop", "crash", "step-down", "cut", "heal", "wait", "wait"]), NODES, SECONDS
)
ROUGH = st.tuples(
    st.sampled_from(["start", "stop", "crash", "step-down", "cut", "heal", "freeze", "suspend", "wait", "wait"]),
    NODES,
    SECONDS,
)
PHASES = (Phase.explicit, Phase.generate)
FEW = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)


def slow_service(cluster: Cluster, node: Node) -> type:
    """A service that takes a moment to start and to stop."""

    class Slowly:
        async def start(self, context: Context) -> None:
            self.context = context
            self.number = next(cluster._starts)
            cluster.active["service"][self.number] = node
            await context.clock.sleep(0.05)

        async def stop(self) -> None:
            await self.context.clock.sleep(0.1)
            cluster.active["service"].pop(self.number, None)

    return Slowly


class Overlap:
    """Two nodes ran one child at once, from `began` on."""

    def __init__(self, child: str, nodes: tuple[str, ...], began: float) -> None:
        self.child = child
        self.nodes = nodes
        self.began = began
        self.ended: float | None = None


class Cluster(Candidates):
    """Nodes that come and go, and an account of which of them runs which child at every instant of true time."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.active: dict[str, dict[int, Node]] = {name: {} for name in CHILDREN}  # by start: one node may have two
        self._starts = itertools.count(1)
        self.overlaps: list[Overlap] = []
        self.without_lease: list[tuple[float, str, str]] = []
        self._open: dict[str, Overlap] = {}
        self.paused: dict[int, list[tuple[float, float]]] = {}  # by node number: from when until when
        self.alive: dict[int, Node] = {}  # by place
        self.placed: dict[int, float] = {}
        self.world.on_step = self._account

    def _account(self, host: Host) -> None:
        super()._check(host)
        for child, active in self.active.items():
            running = [node for node in active.values() if node.host.alive and not node.host.frozen]
            overlap = self._open.get(child)
            if len(running) > 1:
                if overlap is None:
                    names = tuple(f"{node.name}.{node.number}" for node in running)
                    self._open[child] = overlap = Overlap(child, names, self.world.now)
                    self.overlaps.append(overlap)
            elif overlap is not None:
                overlap.ended = self.world.now
                del self._open[child]

    def _went_on(self, context: Context) -> None:
        """Code of a child was resumed after a wait. Only under a lease that is valid, whatever happened meanwhile."""
        assert context.lead is not None
        if context.lead.holding.remaining(context.clock.read()) <= 0:
            self.without_lease.append((self.world.now, context.node, context.name))

    def asleep(self, node: Node, began: float, ended: float) -> float:
        """For how long of that time."""
        pauses = self.paused.get(node.number, [])
        return sum(max(0.0, min(until, ended) - max(since, began)) for since, until in pauses)

    def has_just_woken(self, node: Node, at: float) -> bool:
        """Only who slept through the end of a lease may be late. A pause soon after another goes on with it."""
        slept, woke = 0.0, -math.inf
        for since, until in self.paused.get(node.number, []):
            slept = until - since + (slept if since <= woke + 0.5 else 0.0)
            woke = until
            if slept > 1 and until - 0.01 <= at <= until + 0.5:
                return True
        return False

    def children_of(self, node: Node) -> list[Child]:
        def child(name: str, body: Callable[[Context], Any]) -> Child:
            async def run(context: Context) -> None:
                start = next(self._starts)
                self.active[name][start] = node
                try:
                    await body(context)
                finally:
                    self.active[name].pop(start, None)

            return Child(name, run)

        async def prompt(context: Context) -> None:
            while True:
                await context.clock.sleep(0.4)
                self._went_on(context)

        async def slow(context: Context) -> None:
            try:
                await context.clock.sleep(1e9)
            finally:
                await context.clock.sleep(WIND_UP)

        async def crashing(context: Context) -> None:
            await context.clock.sleep(1.7)
            self._went_on(context)
            raise ValueError("as usual")

        async def timing(context: Context) -> None:
            """What uses cancellation for its own ends must not be lost to its supervisor by that."""
            while True:
                try:
                    async with asyncio.timeout(0.3):
                        await context.clock.sleep(1e9)
                except TimeoutError:
                    self._went_on(context)
                async with asyncio.TaskGroup() as group:
                    group.create_task(context.clock.sleep(0.1))

        return [
            child("prompt", prompt),
            child("slow", slow),
            child("crashing", crashing),
            child("timing", timing),
            Child("service", slow_service(self, node)),
        ]

    def place(self, number: int) -> None:
        """Start a process at this place, if none is alive there."""
        node = self.alive.get(number)
        if node is not None and node.host.alive and (node.service.running or self.world.now < self.placed[number] + 2):
            return
        name = f"node-{number}"
        host = None
        if node is not None:
            if node.host.alive:
                node.host.crash()
            host = node.host.respawn()
        node = self.join(name, host=host, bare=True)
        policy = RestartPolicy(max_restarts=1000, first_backoff=0.1, longest_backoff=0.1)
        candidate = CoordinatorCandidate(
            self.children_of(node), config=node.service.config, environ={}, restarts=policy
        )
        candidate.attach(Home(node), "test")  # type: ignore[arg-type]
        self.candidates[str(node.number)] = candidate
        self.alive[number] = node
        self.placed[number] = self.world.now
        node.run(candidate.start())

    def do(self, action: str, number: int, seconds: float) -> None:
        node = self.alive.get(number)
        if action == "wait":
            self.run(seconds)
        elif action == "start":
            self.place(number)
        elif node is not None and node.host.alive:
            if action == "crash":
                node.host.crash()
            elif action == "cut":
                self.network.cut(node.host)
            elif action == "heal":
                self.network.heal(node.host)
            elif node.host.frozen:
                pass
            elif action == "freeze":
                self.paused.setdefault(node.number, []).append((self.world.now, self.world.now + seconds))
                node.host.freeze(seconds)
            elif action == "suspend":
                self.paused.setdefault(node.number, []).append((self.world.now, self.world.now + seconds))
                node.host.suspend(seconds)
            elif action == "stop":
                node.run(self.candidates[str(node.number)].stop())
            elif action == "step-down" and node.leads:
                node.run(node.service.leave("step-down"))

    def settle(self) -> None:
        for node in self.alive.values():
            if node.host.alive:
                self.network.heal(node.host)
        self.run(25)
        left = [number for number, node in self.alive.items() if node.host.alive and node.service.running]
        for number in range(4):
            if len(left) < 2 and number not in left:
                self.place(number)
                left.append(number)
        self.run(60)

    def where(self) -> dict[str, list[str]]:
        return {
            child: [node.name for node in active.values() if node.host.alive] for child, active in self.active.items()
        }


def live_through(steps: list[Step], seed: int) -> Cluster:
    cluster = Cluster(seed)
    with cluster:
        for number in range(3):
            cluster.place(number)
        cluster.run(4)
        for action, number, seconds in steps:
            cluster.do(action, number, seconds)
            cluster.run(0.01)
        cluster.settle()
        leader = cluster.leader
        assert leader is not None, "after the last fault somebody leads"
        cluster.until(lambda: all(nodes == [leader.name] for nodes in cluster.where().values()), 5)
        cluster.world.errors.clear()  # processes that were crashed in the middle of something say so
    return cluster


def check_calm(steps: list[Step], seed: int) -> None:
    cluster = live_through(steps, seed)
    assert cluster.overlaps == []
    assert cluster.without_lease == []


@pytest.mark.req("SV-9")
@FEW
@given(st.lists(CALM, min_size=5, max_size=25), st.integers(0, 1000))
@example([("cut", 0, 1.0), ("wait", 0, 9.0), ("heal", 0, 1.0), ("crash", 1, 1.0), ("wait", 0, 9.0)], 1)
def test_children_run_on_one_node_at_most_at_every_instant(steps: list[Step], seed: int) -> None:
    check_calm(steps, seed)


TWICE: list[Step] = [
    ("wait", 0, 5.0), ("heal", 3, 0.3), ("suspend", 2, 4.0), ("step-down", 3, 5.0), ("wait", 0, 20.0),
    ("start", 3, 9.0), ("freeze", 0, 20.0), ("wait", 2, 20.0), ("step-down", 1, 0.3), ("crash", 2, 4.0),
    ("step-down", 3, 5.0), ("start", 3, 0.3), ("stop", 0, 2.2), ("suspend", 0, 5.0), ("suspend", 3, 4.0),
    ("crash", 1, 20.0), ("start", 0, 4.0), ("cut", 1, 20.0), ("step-down", 2, 2.2), ("freeze", 0, 6.5),
    ("crash", 3, 9.0), ("freeze", 3, 0.3),
]  # fmt: skip
"""One that is paused, wakes, and is paused again in the middle of winding up."""


AGAIN: list[Step] = [
    ("wait", 0, 9.0), ("freeze", 0, 5.0), ("stop", 0, 1.0), ("crash", 2, 9.0), ("wait", 2, 5.0), ("suspend", 0, 1.0),
    ("cut", 2, 5.0),
]  # fmt: skip
"""One that was paused for long, and is paused for a second just after it woke."""


def check_rough(steps: list[Step], seed: int) -> None:
    cluster = live_through(steps, seed)
    assert cluster.without_lease == []
    numbers = {f"{node.name}.{node.number}": node for node in cluster.nodes.values()}
    for overlap in cluster.overlaps:
        ended = overlap.ended if overlap.ended is not None else cluster.world.now
        lasted = ended - overlap.began
        culprits = [numbers[name] for name in overlap.nodes if cluster.has_just_woken(numbers[name], overlap.began)]
        assert culprits, f"{overlap.nodes} had {overlap.child} at once for {lasted} s, and neither was paused"
        # Who is paused once more, while it winds up, can do nothing meanwhile.
        lasted -= max(cluster.asleep(node, overlap.began, ended) for node in culprits)
        assert lasted < NOTICED_WITHIN + {"slow": WIND_UP, "service": 0.2}.get(overlap.child, 0.0), (
            f"{overlap.nodes} had {overlap.child} at once for {lasted} s"
        )
        if lasted > NOTICED_WITHIN + REPORTED_FROM:
            assert any(node.named("lease:overran") for node in culprits)


@pytest.mark.req("SV-9")
@FEW
@given(st.lists(ROUGH, min_size=5, max_size=25), st.integers(0, 1000))
@example([("freeze", 0, 20.0), ("wait", 0, 20.0), ("wait", 0, 9.0)], 1)
@example([("suspend", 0, 20.0), ("wait", 0, 20.0), ("wait", 0, 9.0)], 1)
@example(TWICE, 495)
@example(AGAIN, 483)
def test_a_pause_may_leave_a_child_winding_up_and_that_is_reported(steps: list[Step], seed: int) -> None:
    """Code of a process that slept through the end of its lease is not resumed when it wakes: it is cancelled. It may
    take a quarter of a second until that is noticed, and what takes time to end then is reported."""
    check_rough(steps, seed)


@pytest.mark.slow
@pytest.mark.req("SV-9")
@pytest.mark.parametrize("lives", [75, pytest.param(150, marks=pytest.mark.trials)])
@pytest.mark.parametrize(
    ("step", "check"), [(CALM, check_calm), (ROUGH, check_rough)], ids=["without pauses", "with pauses"]
)
def test_many_lives(step: st.SearchStrategy[Step], check: Callable[[list[Step], int], None], lives: int) -> None:
    @settings(FEW, max_examples=lives)
    @given(st.lists(step, min_size=5, max_size=25), st.integers(0, 1000))
    def live(steps: list[Step], seed: int) -> None:
        check(steps, seed)

    live()


class TestTheCheckerFindsIt:
    """Broken variants of the production classes."""

    CUT = (("cut", 0, 1.0), ("wait", 0, 9.0), ("wait", 0, 9.0))

    def test_a_supervisor_that_leaves_its_children_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def leave(self: CoordinatorSupervisor, *_: Any) -> None:
            return

        monkeypatch.setattr(CoordinatorSupervisor, "_stop", leave)
        assert self._found(self.CUT)

    def test_a_keeper_that_does_not_wait_for_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def stop(self: Keeper, within: float) -> bool:
            return True

        monkeypatch.setattr(Keeper, "stop", stop)
        assert self._found(self.CUT)

    def test_a_keeper_that_starts_a_child_beside_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        begin = Keeper.begin

        def begin_twice(self: Keeper) -> None:
            begin(self)
            begin(self)

        monkeypatch.setattr(Keeper, "begin", begin_twice)
        assert self._found([])

    def test_a_supervisor_that_starts_on_every_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start = CoordinatorCandidate.start

        async def start_at_once(self: CoordinatorCandidate) -> None:
            self.election_enabled, self.cluster_coordinator = False, True
            await start(self)

        monkeypatch.setattr(CoordinatorCandidate, "start", start_at_once)
        assert self._found([])

    def test_code_that_is_resumed_after_a_sleep_of_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Unleased(LeasedCoroutine):
            def __init__(self, coroutine: Any, may_go_on: Any) -> None:
                super().__init__(coroutine, lambda: True)

        monkeypatch.setattr("tenure.plugins.supervisor.running.LeasedCoroutine", Unleased)
        found = [live_through([("suspend", 0, 20.0), ("wait", 0, 30.0)], seed).without_lease for seed in range(8)]
        assert any(found)

    def _found(self, planned: Sequence[Step]) -> bool:
        cluster, steps = Cluster(1), list(planned)
        try:
            with cluster:
                for number in range(3):
                    cluster.place(number)
                cluster.run(6)
                if cluster.leader is not None:
                    place = next(place for place, node in cluster.alive.items() if node is cluster.leader)
                    steps = [(action, place if action == "cut" else number, at) for action, number, at in steps]
                for action, number, seconds in steps:
                    cluster.do(action, number, seconds)
                cluster.run(5)
                cluster.world.errors.clear()
        except AssertionError as failure:
            return "both lead" not in str(failure)
        return bool(cluster.overlaps)
