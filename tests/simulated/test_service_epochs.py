"""Whole coordinators in simulated time: the number of a term, and what it protects."""

from __future__ import annotations

import asyncio

import pytest

from tenure.coordinator.lead import Lead
from tenure.errors import Fenced, LeadershipLost
from tests.simulated.fleet import Fleet, Node


def leads_under(node: Node) -> Lead:
    lead = node.service.lead
    assert lead is not None
    return lead


def stop(node: Node) -> None:
    node.done(node.service.stop())


@pytest.mark.req("EF-1", "EL-18")
@pytest.mark.parametrize("seed", range(3))
def test_epochs_rise_by_one_through_crash_release_wiped_workers_and_a_restart_of_all(seed: int) -> None:
    with Fleet(seed) as fleet:
        for name in "abc":
            fleet.join(name)
        everyone = list(fleet.nodes.values())
        fleet.lead()
        fleet.run(20)

        fleet.lead().host.crash()
        fleet.lead()
        fleet.run(20)

        stop(fleet.lead())
        fleet.lead()
        fleet.run(20)

        assert fleet.bucket.wipe(fleet.path("workers/")) > 0
        fleet.run(20)
        assert fleet.epochs() == [1, 2, 3], "wiped worker records alone change nothing"

        fleet.bucket.wipe(fleet.path("workers/"))
        for node in everyone:
            node.host.crash()
        fleet.run(60)
        again = [fleet.join(node.name, host=node.host.respawn()) for node in everyone]
        fleet.lead()
        fleet.run(20)

        fleet.lead().done(fleet.lead().service.step_down())
        fleet.run(20)
        assert fleet.epochs() == [1, 2, 3, 4, 5]

        led = {epoch: name for _, name, epoch in fleet.terms}
        changes = [event for node in everyone + again for event in node.named("leader:changed")]
        assert {event.epoch for event in changes if event.new_leader is not None} == set(led)
        assert all(event.new_leader in (None, led[event.epoch]) for event in changes)
        for node in everyone + again:
            seen = [event.epoch for event in node.named("leader:changed")]
            assert seen == sorted(seen)
        recorded = fleet.bucket.keys(fleet.path("terms/"))
        assert recorded == [fleet.path(f"terms/{epoch:020d}.json") for epoch in led]
        assert [fleet.json(f"terms/{epoch:020d}.json")["leaderId"] for epoch in led] == list(led.values())


@pytest.mark.req("EF-1")
def test_a_process_that_starts_its_coordinator_again_has_not_forgotten_the_epoch() -> None:
    """`get_epoch()` is what tasks are judged by: it must not fall to 0 between `start()` and the first look."""
    with Fleet() as fleet:
        node = fleet.join("a")
        fleet.run(20)
        seen = [node.service.get_epoch()]
        stop(node)
        seen.append(node.service.get_epoch())
        node.done(node.service.start())
        seen.append(node.service.get_epoch())
        assert seen == [1, 1, 1]


class TestFencedWrites:
    @pytest.mark.req("EF-8")
    def test_a_write_that_was_under_way_when_leadership_passed_on_is_fenced(self) -> None:
        """The check before sending was right when it was made; only the store's side can say no any more."""
        with Fleet() as fleet:
            old, new = fleet.join("a"), fleet.join("b")
            fleet.run(20)
            first = leads_under(old)
            old.done(first.put("report", b"by a"))

            def delay(host: str, verb: str, key: str, at: float) -> None:
                if host == "a" and verb == "replace" and key == "report":
                    fleet.network.change("a", latency=(60.0, 60.0), timeout=200.0)

            fleet.network.on_request = delay
            caught: list[BaseException] = []

            async def write() -> None:
                try:
                    await first.put("report", b"late")
                except Fenced as error:
                    caught.append(error)

            writing = old.run(write())
            fleet.run(1)
            fleet.until(lambda: new.leads)
            second = leads_under(new)
            assert (first.epoch, second.epoch) == (1, 2)
            assert new.done(second.claim("report")) == b"by a", "nothing of a's has landed yet"
            claimed = fleet.bucket.body("report")
            fleet.network.on_request = None
            fleet.network.reset("a")  # what is under way still takes its minute
            fleet.until(writing.done)
            assert len(caught) == 1
            assert "epoch 2" in str(caught[0])
            assert fleet.bucket.body("report") == claimed
            new.done(second.put("report", b"by b"))
            found = new.done(second.get("report"))
            assert found is not None
            assert (found.body, found.epoch, found.namespace) == (b"by b", 2, "default")

    @pytest.mark.req("EF-8")
    def test_a_term_that_is_over_sends_nothing(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(20)
            lead = leads_under(node)
            node.done(node.service.step_down())
            asked: list[str] = []
            fleet.network.on_request = lambda host, verb, key, at: asked.append(key)

            async def write() -> bool:
                try:
                    await lead.put("report", b"late")
                except LeadershipLost:
                    return True
                return False

            assert node.done(write())
            assert "report" not in asked
            assert fleet.bucket.body("report") is None

    def test_ensure_says_how_long_leadership_is_certain(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(20)
            lead = leads_under(node)
            lead.ensure(1.0)
            assert 4.0 < lead.remaining() <= 10.0
            with pytest.raises(LeadershipLost, match="20 s were asked for"):
                lead.ensure(20.0)
            node.done(node.service.step_down())
            with pytest.raises(LeadershipLost, match="epoch 1 of 'default' is over \\(step-down\\)"):
                lead.ensure()


@pytest.mark.req("EL-12")
def test_namespaces_are_apart() -> None:
    """Two on one bucket, with the same worker ids: own leader, own epoch, own workers, own terms."""
    with Fleet() as fleet:
        for name in "abc":
            fleet.join(name, namespace="north")
        south = [fleet.join(name, host=fleet.world.host(f"south-{name}"), namespace="south") for name in "bc"]
        fleet.run(20)
        assert south[0].leads
        for _ in range(2):
            leader = next(node for node in fleet.nodes.values() if node.service.namespace == "north" and node.leads)
            leader.host.crash()
            fleet.run(60)
        assert fleet.json("state.json", "north")["epoch"] == 3
        assert fleet.json("state.json", "north")["leaderId"] == "c"
        assert fleet.json("state.json", "south")["epoch"] == 1
        assert fleet.json("state.json", "south")["leaderId"] == "b"
        assert south[0].done(south[0].service.get_active_workers()) == ["b", "c"]
        assert [event.epoch for event in south[1].named("leader:changed")] == [1]
        assert {event.namespace for event in south[1].named("leader:changed", "workers:updated")} == {"south"}
        assert len(fleet.bucket.keys(fleet.path("terms/", "south"))) == 1


class TestScopes:
    def test_a_scope_is_cancelled_when_its_lease_can_no_longer_be_trusted(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.run(20)
            ends: list[str] = []

            async def main() -> None:
                try:
                    async with node.service.leadership():
                        try:
                            await asyncio.Event().wait()
                        finally:
                            ends.append("body")
                            assert not node.service.is_leader()
                            assert node.service.holds_lease
                except LeadershipLost as lost:
                    ends.append(str(lost))

            task = node.run(main())
            fleet.run(1)
            fleet.network.cut("a")
            fleet.run(20)
            assert task.done()
            assert ends == ["body", "epoch 1 of 'default' ended (renew-deadline), and with it this scope"]

    def test_whoever_waits_is_told_that_the_coordinator_stopped(self) -> None:
        with Fleet() as fleet:
            fleet.join("a")
            fleet.run(20)
            node = fleet.join("b")
            fleet.run(10)
            told: list[str] = []

            async def main() -> None:
                try:
                    async with node.service.leadership():
                        told.append("leads")
                except Exception as error:
                    told.append(f"{type(error).__name__}: {error}")

            task = node.run(main())
            fleet.run(5)
            stop(node)
            fleet.run(1)
            assert task.done()
            assert told == ["CoordinationError: the coordinator of 'default' has stopped: start() it again"]

    def test_the_end_of_a_scope_gives_the_lease_to_the_next(self) -> None:
        with Fleet() as fleet:
            node, other = fleet.join("a"), fleet.join("b")
            fleet.run(20)

            async def main() -> None:
                async with node.service.leadership() as lead:
                    await asyncio.sleep(5)
                    assert lead.is_current()

            node.done(main())
            assert fleet.until(lambda: other.leads) < 7
