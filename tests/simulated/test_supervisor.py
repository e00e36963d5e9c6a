"""Candidates and their children, on the production coordinator in simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenure.coordinator.config import Hosting
from tenure.errors import ConfigError
from tenure.plugins.supervisor.candidate import CoordinatorCandidate, candidate_config
from tenure.plugins.supervisor.child import Child, ChildState, Command, Context, Restart
from tenure.plugins.supervisor.restarts import GiveUp, RestartPolicy
from tenure.plugins.supervisor.status import read_status
from tenure.plugins.supervisor.supervisor import CoordinatorSupervisor

from .fleet import Fleet, Node
from .plugins import Home

CONFIG = candidate_config(hosting=Hosting.LOOP)


class Book:
    """What children did, in the order of true time."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.notes: list[tuple[float, str, str, str]] = []  # time, node, child, what
        self.tokens: dict[str, list[int]] = {}

    def note(self, context: Context, what: str) -> None:
        self.notes.append((self.fleet.world.now, context.node, context.name, what))

    def said(self, node: str | None = None) -> list[tuple[str, str]]:
        return [(child, what) for _, where, child, what in self.notes if node in (None, where)]

    def child(self, name: str, body: Callable[[Context], Any] | None = None, **options: Any) -> Child:
        async def run(context: Context) -> None:
            self.tokens.setdefault(name, []).append(context.token)
            self.note(context, "start")
            try:
                if body is not None:
                    await body(context)
                else:
                    await context.clock.sleep(1e9)
            except BaseException as error:
                self.note(context, "cancelled" if isinstance(error, asyncio.CancelledError) else "failed")
                raise
            self.note(context, "returned")

        return Child(name, run, **options)


class Candidates(Fleet):
    def __init__(self, seed: int = 1, **changes: Any) -> None:
        super().__init__(seed, CONFIG.replace(**changes), namespace="coordinator")
        self.book = Book(self)
        self.candidates: dict[str, CoordinatorCandidate] = {}

    def stand(self, name: str, children: list[Child], host: Any = None, **options: Any) -> Node:
        node = self.join(
            name, host=host, bare=True, **({"eligible": False} if options.get("eligible") is False else {})
        )
        candidate = CoordinatorCandidate(children, config=node.service.config, environ={}, **options)
        candidate.attach(Home(node), "test")  # type: ignore[arg-type]
        node.telemetry = []  # type: ignore[attr-defined]

        async def start() -> None:
            candidate.on("*", node.telemetry.append)  # type: ignore[attr-defined]
            await candidate.start()

        node.run(start())
        self.candidates[name] = candidate
        return node


@pytest.mark.req("SV-2")
def test_children_start_in_order_on_the_leader_alone_and_stop_in_reverse() -> None:
    with Candidates() as fleet:
        for name in "abc":
            fleet.stand(name, [fleet.book.child(child) for child in ("first", "second", "third")])
        leader = fleet.lead()
        fleet.run(5)
        assert fleet.book.said() == [("first", "start"), ("second", "start"), ("third", "start")]
        assert {node for _, node, _, _ in fleet.book.notes} == {leader.name}
        leader.done(fleet.candidates[leader.name].stop())
        assert not leader.service.running, "without children it has no reason to lead"
        status = leader.done(read_status(Home(leader).store))
        assert status is not None
        assert {child.state for child in status.children} == {ChildState.STOPPED}
        assert fleet.book.said(leader.name)[3:] == [
            ("third", "cancelled"),
            ("second", "cancelled"),
            ("first", "cancelled"),
        ]
        fleet.run(10)
        other = fleet.lead()
        assert other is not leader
        assert [child for child, what in fleet.book.said(other.name)] == ["first", "second", "third"]


@pytest.mark.req("EF-9")
def test_tokens_rise_with_every_start_anywhere() -> None:
    with Candidates() as fleet:

        async def crash(context: Context) -> None:
            await context.clock.sleep(1)
            raise ValueError("again")

        policy = RestartPolicy(max_restarts=1000, first_backoff=0.2, longest_backoff=0.2)
        for name in "ab":
            fleet.stand(name, [fleet.book.child("c", crash)], restarts=policy)
        for _ in range(3):
            leader = fleet.lead()
            fleet.run(10)
            leader.done(leader.service.step_down())
            fleet.run(10)
        tokens = fleet.book.tokens["c"]
        assert len(tokens) > 20
        assert tokens == sorted(set(tokens))


@pytest.mark.req("EF-9")
def test_tokens_rise_also_when_another_candidate_takes_over_within_a_term() -> None:
    with Candidates() as fleet:
        node = fleet.stand("a", [fleet.book.child("c")])
        node.done(node.service.start())  # it goes on leading without a candidate
        fleet.lead()
        fleet.run(5)
        node.done(fleet.candidates["a"].stop())
        assert node.leads
        other = CoordinatorCandidate([fleet.book.child("c")], config=node.service.config, environ={})
        other.attach(Home(node), "test")  # type: ignore[arg-type]
        node.run(other.start())
        fleet.run(5)
        first, second = fleet.book.tokens["c"]
        assert second > first
        node.done(other.stop())


@pytest.mark.req("SV-2")
def test_one_child_that_fails_is_started_again_and_the_others_are_left_alone() -> None:
    with Candidates() as fleet:

        async def fail_twice(context: Context) -> None:
            if len(fleet.book.tokens["weak"]) <= 2:
                await context.clock.sleep(1)
                raise ValueError("not yet")
            await context.clock.sleep(1e9)

        node = fleet.stand("a", [fleet.book.child("strong"), fleet.book.child("weak", fail_twice)])
        fleet.lead()
        fleet.run(20)
        assert fleet.book.said().count(("weak", "start")) == 3
        assert fleet.book.said().count(("strong", "start")) == 1
        status = {child.name: child for child in fleet.candidates["a"].supervisor.status()}
        assert status["weak"].state is ChildState.RUNNING
        assert (status["weak"].starts, status["weak"].failures) == (3, 2)
        assert status["weak"].last_error == "ValueError: not yet"
        starts = [at for at, _, child, what in fleet.book.notes if (child, what) == ("weak", "start")]
        assert 1.25 <= starts[1] - starts[0] <= 1.51, "half a second, less some jitter, after it ran for one"
        assert 1.5 <= starts[2] - starts[1] <= 2.01, "twice that"
        assert node.leads


@pytest.mark.req("SV-2")
def test_a_child_that_keeps_failing_is_left_alone_and_told_of() -> None:
    with Candidates() as fleet:

        async def fail(context: Context) -> None:
            raise ValueError("never")

        node = fleet.stand("a", [fleet.book.child("bad", fail), fleet.book.child("good")])
        fleet.lead()
        fleet.run(60)
        assert fleet.book.said().count(("bad", "start")) == 6, "once, and five restarts"
        assert fleet.book.said().count(("good", "start")) == 1
        (status, _) = fleet.candidates["a"].supervisor.status()
        assert status.state is ChildState.FAILED
        assert [event.child for event in node.telemetry if event.name.endswith("child_given_up")] == ["bad"]
        assert node.leads


@pytest.mark.req("SV-2")
def test_a_node_may_step_down_for_a_child_that_keeps_failing() -> None:
    with Candidates() as fleet:

        async def fail_on_a(context: Context) -> None:
            if context.node == "a":
                raise ValueError("not here")
            await context.clock.sleep(1e9)

        policy = RestartPolicy(max_restarts=2, first_backoff=0.1, give_up=GiveUp.STEP_DOWN)
        for name in "ab":
            fleet.stand(name, [fleet.book.child("c", fail_on_a)], restarts=policy)
        assert fleet.lead().name == "a"
        fleet.until(lambda: fleet.leader is not None and fleet.leader.name == "b", 60)
        fleet.run(20)
        assert fleet.book.said("b") == [("c", "start")]


@pytest.mark.req("SV-2")
@pytest.mark.parametrize(
    ("restart", "fails", "starts", "state"),
    [
        (Restart.PERMANENT, False, 6, ChildState.FAILED),
        (Restart.TRANSIENT, False, 1, ChildState.COMPLETED),
        (Restart.TRANSIENT, True, 6, ChildState.FAILED),
        (Restart.TEMPORARY, True, 1, ChildState.FAILED),
        (Restart.TEMPORARY, False, 1, ChildState.COMPLETED),
    ],
)
def test_restart_policies(restart: Restart, fails: bool, starts: int, state: ChildState) -> None:
    with Candidates() as fleet:

        async def end(context: Context) -> None:
            if fails:
                raise ValueError("so it goes")

        fleet.stand("a", [fleet.book.child("c", end, restart=restart)])
        fleet.lead()
        fleet.run(60)
        assert fleet.book.said().count(("c", "start")) == starts
        (status,) = fleet.candidates["a"].supervisor.status()
        assert status.state is state


@pytest.mark.req("SV-2", "CP-7")
def test_children_have_ended_before_another_node_may_start_them() -> None:
    with Candidates() as fleet:

        async def slow_to_end(context: Context) -> None:
            try:
                await context.clock.sleep(1e9)
            finally:
                await context.clock.sleep(0.3)
                fleet.book.note(context, "ended")

        for name in "ab":
            fleet.stand(name, [fleet.book.child(child, slow_to_end) for child in ("x", "y", "z")])
        leader = fleet.lead()
        fleet.run(5)
        fleet.network.cut(leader.name)
        other = "b" if leader.name == "a" else "a"
        fleet.until(lambda: fleet.book.said(other), 30)
        ended = [at for at, node, _, what in fleet.book.notes if node == leader.name and what == "ended"]
        began = [at for at, node, _, what in fleet.book.notes if node == other and what == "start"]
        assert len(ended) == 3
        assert max(ended) < min(began)
        assert not leader.named("lease:overran")


@pytest.mark.req("SV-2", "CP-7")
def test_a_child_that_never_stops_is_reported_and_not_started_beside_itself() -> None:
    with Candidates() as fleet:

        async def stubborn(context: Context) -> None:
            end = fleet.world.now + 100
            while fleet.world.now < end:
                try:
                    await context.clock.sleep(end - fleet.world.now)
                except asyncio.CancelledError:
                    fleet.book.note(context, "ignored")

        nodes = {name: fleet.stand(name, [fleet.book.child("good"), fleet.book.child("bad", stubborn)]) for name in "a"}
        nodes["a"].host.world.run_until(0.1)
        fleet.lead()
        fleet.run(5)
        began = fleet.world.now
        fleet.network.cut("a")
        fleet.until(lambda: nodes["a"].named("lease:overran"), 30)
        reports = [event.what for event in nodes["a"].named("lease:overran")]
        assert any("'bad'" in what for what in reports), reports
        assert not any("'good'" in what for what in reports), reports
        assert ("good", "cancelled") in fleet.book.said(), "the others are stopped all the same"
        fleet.network.heal("a")
        fleet.until(lambda: fleet.book.said().count(("good", "start")) == 2, 200)
        assert fleet.world.now - began > 90, "this node's children wait for the one that would not end"
        starts = [at for at, _, child, what in fleet.book.notes if (child, what) == ("bad", "start")]
        returned = [at for at, _, child, what in fleet.book.notes if (child, what) == ("bad", "returned")]
        assert returned[0] <= starts[1]


@pytest.mark.req("SV-2")
def test_services_are_started_and_stopped_and_their_end_is_noticed() -> None:
    class Server:
        made = 0

        def __init__(self) -> None:
            Server.made += 1
            self.ended = asyncio.Event()

        async def start(self, context: Context) -> None:
            self.context = context
            fleet.book.note(context, "start")

        async def stop(self) -> None:
            fleet.book.note(self.context, "stop")

        async def wait(self) -> None:
            await self.context.clock.sleep(3)
            raise RuntimeError("port is gone")

    with Candidates() as fleet:
        fleet.stand("a", [Child("server", Server)])
        fleet.lead()
        fleet.until(lambda: fleet.book.said().count(("server", "start")) == 2)
        assert fleet.book.said() == [("server", "start"), ("server", "stop"), ("server", "start")]
        assert Server.made == 2
        (status,) = fleet.candidates["a"].supervisor.status()
        assert status.last_error == "RuntimeError: port is gone"


@pytest.mark.req("SV-2")
def test_a_stop_that_hangs_is_cancelled_and_the_rest_are_stopped() -> None:
    class Hanging:
        async def start(self, context: Context) -> None:
            self.context = context
            fleet.book.note(context, "start")

        async def stop(self) -> None:
            fleet.book.note(self.context, "stopping")
            await self.context.clock.sleep(1e9)

    with Candidates() as fleet:
        node = fleet.stand("a", [fleet.book.child("good"), Child("hanging", Hanging(), stop_within=1.0)])
        fleet.lead()
        fleet.run(3)
        node.run(node.service.step_down())
        fleet.run(5)
        assert fleet.book.said() == [
            ("good", "start"),
            ("hanging", "start"),
            ("hanging", "stopping"),
            ("good", "cancelled"),
        ]
        fleet.until(lambda: node.named("lease:overran"), 60)


@pytest.mark.req("SV-2")
def test_the_status_is_readable_from_any_worker() -> None:
    with Candidates() as fleet:

        async def fail(context: Context) -> None:
            raise ValueError("boom")

        nodes = {
            name: fleet.stand(
                name, [fleet.book.child("good"), fleet.book.child("bad", fail, restart=Restart.TEMPORARY)]
            )
            for name in "ab"
        }
        leader = fleet.lead()
        fleet.run(5)
        other = nodes["b" if leader.name == "a" else "a"]
        status = other.done(fleet.candidates[other.name].children())
        assert status is not None
        assert (status.node, status.epoch) == (leader.name, 1)
        assert [(child.name, child.state.value) for child in status.children] == [
            ("good", "running"),
            ("bad", "failed"),
        ]
        assert status.children[1].last_error == "ValueError: boom"
        leader.host.crash()
        fleet.until(lambda: other.leads, 30)
        fleet.run(3)
        status = other.done(read_status(Home(other).store, "coordinator"))
        assert status is not None
        assert (status.node, status.epoch) == (other.name, 2)


class TestCandidate:
    @pytest.mark.req("SV-1")
    def test_the_environment_and_what_is_wrong_in_it(self) -> None:
        candidate = CoordinatorCandidate(
            environ={
                "COORDINATOR_ELIGIBLE": "false",
                "COORDINATOR_ELECTION_INTERVAL": "2500",
                "COORDINATOR_TAKEOVER_DELAY": "0",
            }
        )
        assert not candidate.eligible
        assert not candidate.config.eligible
        assert candidate.election_interval == 2.5
        assert candidate.config.takeover_delay == 0
        assert not CoordinatorCandidate(config=candidate_config(eligible=False), environ={}).eligible
        assert CoordinatorCandidate(config=CONFIG, takeover_delay=3, environ={}).config.takeover_delay == 3
        assert CoordinatorCandidate(config=CONFIG, environ={}).config == CONFIG
        default = CoordinatorCandidate(environ={})
        assert (default.eligible, default.election_interval, default.namespace) == (True, 5.0, "coordinator")
        config = default.config
        assert (config.lease_timeout, config.heartbeat_interval, config.standby_watch_interval) == (6, 2, 1)
        assert config.takeover_delay == 1
        assert CoordinatorCandidate(eligible=True, environ={"COORDINATOR_ELIGIBLE": "false"}).eligible

    @pytest.mark.req("SV-1")
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("COORDINATOR_ELIGIBLE", "maybe"),
            ("COORDINATOR_ELECTION_INTERVAL", "5s"),
            ("COORDINATOR_ELECTION_INTERVAL", "0"),
            ("COORDINATOR_ELECTION_INTERVAL", "-5"),
            ("COORDINATOR_ELECTION_INTERVAL", "99999999999"),
            ("COORDINATOR_TAKEOVER_DELAY", "1.5"),
            ("COORDINATOR_TAKEOVER_DELAY", "\u0665"),
        ],
    )
    def test_a_malformed_variable_is_refused_by_name(self, name: str, value: str) -> None:
        with pytest.raises(ConfigError, match=name):
            CoordinatorCandidate(environ={name: value})

    @pytest.mark.req("SV-1")
    def test_an_ineligible_node_makes_no_attempt(self) -> None:
        with Candidates() as fleet:
            fleet.stand("a", [fleet.book.child("c")], eligible=False)
            able = fleet.stand("b", [fleet.book.child("c")])
            fleet.until(lambda: able.leads, 10)
            fleet.run(10)
            able.host.crash()
            fleet.run(60)
            assert not fleet.nodes["a"].leads
            assert fleet.book.said("a") == []
            assert fleet.json("state.json")["leaderId"] == "b"
            assert fleet.epochs() == [1]

    @pytest.mark.req("SV-5")
    def test_telemetry(self) -> None:
        with Candidates() as fleet:
            for name in "ab":
                fleet.stand(name, [])
            leader = fleet.lead()
            assert leader.name == "a"
            fleet.run(12)
            follower = fleet.nodes["b"]
            checks = [event for event in follower.telemetry if event.name == "tenure.coordinator.election_check"]  # type: ignore[attr-defined]
            assert len(checks) == 2
            assert [check.current_leader for check in checks] == ["a", "a"]
            leader.done(leader.service.step_down())
            fleet.until(lambda: follower.leads)
            fleet.run(5)
            lost = next(event for event in leader.telemetry if event.name.endswith("lost_leadership"))  # type: ignore[attr-defined]
            assert lost.reason == "step-down"
            down = [event for event in follower.telemetry if event.name.endswith("leader_down")]  # type: ignore[attr-defined]
            assert [event.former_leader for event in down] == ["a"]

    def test_a_leader_that_nobody_replaces_is_told_of_as_down(self) -> None:
        """WA-1: at the loss, and once."""
        with Candidates() as fleet:
            leader = fleet.stand("a", [])
            fleet.lead()
            follower = fleet.stand("b", [], eligible=False)
            fleet.run(12)
            leader.host.crash()
            fleet.run(40)
            down = [event for event in follower.telemetry if event.name.endswith("leader_down")]  # type: ignore[attr-defined]
            assert [event.former_leader for event in down] == ["a"]
            assert follower.telemetry[-1].current_leader is None  # type: ignore[attr-defined]
            fleet.stand("c", [])
            fleet.until(lambda: fleet.leader, 60)
            fleet.run(12)
            down = [event for event in follower.telemetry if event.name.endswith("leader_down")]  # type: ignore[attr-defined]
            assert len(down) == 1
            assert follower.telemetry[-1].current_leader == "c"  # type: ignore[attr-defined]

    @pytest.mark.req("SV-5")
    def test_each_telemetry_event_says_when_and_where(self) -> None:
        """On the leader's side and on the candidate's: by the wall clock of the node that reports it."""
        with Candidates() as fleet:
            heard: dict[str, list[tuple[float, Any]]] = {"a": [], "b": []}
            for name, offset in (("a", 1000.0), ("b", -1000.0)):
                node, notes = fleet.stand(name, [], host=fleet.world.host(name, wall_offset=offset)), heard[name]

                async def listen(node: Node = node, notes: list[tuple[float, Any]] = notes) -> None:
                    def note(event: Any) -> None:
                        notes.append((node.host.clock.read().wall_ns / 1e9, event))

                    fleet.candidates[node.name].on("*", note)

                node.run(listen())
            leader = fleet.lead()
            fleet.run(12)
            leader.done(leader.service.step_down())
            fleet.until(lambda: fleet.nodes["b"].leads)
            fleet.run(6)
        said = {name: {event.name.rpartition(".")[2] for _, event in notes} for name, notes in heard.items()}
        assert said == {
            "a": {"became_leader", "lost_leadership", "election_check"},
            "b": {"became_leader", "leader_down", "election_check"},
        }
        for name, notes in heard.items():
            for wall, event in notes:
                assert event.node == name
                assert event.time == pytest.approx(wall, abs=0.01), event

    @pytest.mark.req("SV-6")
    @pytest.mark.parametrize("seed", range(10))
    def test_failover_of_children_within_the_stated_times(self, seed: int) -> None:
        with Candidates(seed) as fleet:
            for name in "abc":
                fleet.stand(name, [fleet.book.child("c")])
            leader = fleet.lead()
            fleet.run(20)
            leader.host.crash()
            crashed = fleet.world.now
            fleet.until(lambda: len(fleet.book.tokens["c"]) == 2, 30)
            assert fleet.world.now - crashed <= 10
            second = fleet.lead()
            returning = fleet.stand(leader.name, [fleet.book.child("c")], host=leader.host.respawn())
            fleet.run(20)
            assert fleet.lead() is second, "the one that returns is a standby"
            assert not returning.leads
            second.run(fleet.candidates[second.name].stop())
            stopped = fleet.world.now
            fleet.until(lambda: len(fleet.book.tokens["c"]) == 3, 30)
            assert fleet.world.now - stopped <= 5

    @pytest.mark.req("SV-7")
    def test_one_missed_renewal_changes_nothing(self) -> None:
        with Candidates() as fleet:
            for name in "ab":
                fleet.stand(name, [fleet.book.child("c")])
            leader = fleet.lead()
            fleet.run(10)
            for _ in range(5):
                fleet.network.cut(leader.name)
                fleet.run(1.9)
                fleet.network.heal(leader.name)
                fleet.run(6)
            assert fleet.epochs() == [1]
            assert fleet.book.said() == [("c", "start")]

    @pytest.mark.req("SV-7")
    @pytest.mark.parametrize("how", ["crash", "stop"])
    def test_who_is_not_next_in_rank_leaves_it_its_takeover_delay(self, how: str) -> None:
        """The next in rank is cut off just before, so that nobody comes before the one after it: which waits all the
        same, a step more where the lease was given away (E-5, E-7)."""
        delay, steps = 5.0, {"crash": 1, "stop": 2}[how]
        with Candidates(takeover_delay=delay) as fleet:
            for name in "abc":
                fleet.stand(name, [fleet.book.child("c")])
            leader = fleet.lead().name
            following, last = sorted(set("abc") - {leader})
            fleet.run(20)
            fleet.network.cut(following)
            if how == "crash":
                fleet.nodes[leader].host.crash()
                free_after = CONFIG.lease_timeout - CONFIG.heartbeat_interval - CONFIG.heartbeat_jitter
            else:
                fleet.nodes[leader].run(fleet.candidates[leader].stop())
                free_after = 0.0
            waited = fleet.until(lambda: fleet.nodes[last].leads, 60)
            assert waited > free_after + steps * delay
            # A look, a listing, a lease that had just been renewed, and a jitter well below one step.
            assert waited < CONFIG.lease_timeout + (steps + 1) * delay + 3

    @pytest.mark.req("SV-8")
    def test_static_assignment(self) -> None:
        with Candidates() as fleet:
            nodes = {}
            for name, chosen in (("a", True), ("b", False)):
                node = nodes[name] = fleet.join(name, bare=True)
                options = {"coordinator_election_enabled": False, "cluster_coordinator": chosen}
                candidate = CoordinatorCandidate([fleet.book.child("c")], environ={}, **options)
                candidate.attach(Home(node), "static")  # type: ignore[arg-type]
                fleet.candidates[name] = candidate
            leases = fleet.bucket.body(fleet.path("state.json"))
            for name, node in nodes.items():
                node.done(fleet.candidates[name].start())
            fleet.run(30)
            assert {node for _, node, _, _ in fleet.book.notes} == {"a"}
            assert fleet.candidates["a"].is_leader()
            assert not fleet.candidates["b"].is_leader()
            assert fleet.bucket.body(fleet.path("state.json")) == leases, "no election was held"
            nodes["a"].done(fleet.candidates["a"].stop())
            nodes["a"].done(fleet.candidates["a"].start())
            fleet.run(5)
            assert fleet.book.tokens["c"] == sorted(set(fleet.book.tokens["c"]))
            assert len(fleet.book.tokens["c"]) == 2

    @pytest.mark.req("SV-8")
    def test_two_static_coordinators_find_each_other(self, caplog: pytest.LogCaptureFixture) -> None:
        with Candidates() as fleet:
            heard: dict[str, list[Any]] = {}
            for name in "ab":
                node = fleet.join(name, bare=True)
                candidate = CoordinatorCandidate(
                    [fleet.book.child("c")], environ={}, coordinator_election_enabled=False, cluster_coordinator=True
                )
                candidate.attach(Home(node), "static")  # type: ignore[arg-type]
                heard[name] = []

                async def start(candidate: CoordinatorCandidate = candidate, name: str = name) -> None:
                    candidate.on("tenure.coordinator.two_static_coordinators", heard[name].append)
                    await candidate.start()

                node.run(start())
                if name == "a":
                    fleet.run(20)
                    assert heard["a"] == []
            fleet.run(20)
            assert [event.others for event in heard["a"]] == [("b",)]
            assert [event.others for event in heard["b"]] == [("a",)]
            assert "both told to be the coordinator" in caplog.text

    def test_what_cannot_work_is_refused(self) -> None:
        async def child(context: Context) -> None: ...

        with pytest.raises(ConfigError, match="two children are called 'x'"):
            CoordinatorSupervisor([Child("x", child), Child("x", child)])
        with pytest.raises(ConfigError, match="wrap it as Child"):
            CoordinatorSupervisor([child])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match="either told to run"):
            CoordinatorCandidate([], cluster_coordinator=True, environ={})
        with pytest.raises(ConfigError, match="belongs to no database"):
            _ = CoordinatorCandidate([], environ={}).node
        with pytest.raises(ConfigError, match="give a list of Child"):
            CoordinatorCandidate(Child("x", child), environ={})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="each argument by itself"):
            Command("rsync -a in out")
        with pytest.raises(ConfigError, match="there is no event 'lease:overran'"):
            CoordinatorCandidate([], environ={}).events("lease:overran")
        assert Child("x", child, restart="temporary").restart is Restart.TEMPORARY
        with pytest.raises(ConfigError, match="'permanent', 'transient', 'temporary'"):
            Child("x", child, restart="sometimes")
        with pytest.raises(ConfigError, match="max_restarts"):
            RestartPolicy(max_restarts=-1)
