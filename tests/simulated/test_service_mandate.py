"""Whole coordinators in simulated time: how long a leader may stay, who may ask it to go, and how it goes."""

from __future__ import annotations

import asyncio
import json

import pytest

from tenure.coordinator.config import CoordinatorConfig, MandateEnd
from tenure.coordinator.outside import Handover
from tenure.errors import RequestRefused, StoreError
from tests.simulated.fleet import QUICK, Fleet, Node


def refused(node: Node, to: str, *, force: bool = False, timeout: float = 30.0) -> str:
    """Why a transfer that was asked for on this node did not happen."""

    async def ask() -> str:
        try:
            await node.service.transfer(to, force=force, timeout=timeout)
        except RequestRefused as no:
            return str(no)
        return "it happened"

    return node.done(ask(), within=timeout + 30)


def led(fleet: Fleet) -> list[tuple[str, int]]:
    return [(name, epoch) for _, name, epoch in fleet.terms]


class TestTheMandate:
    @pytest.mark.req("EL-5")
    def test_it_is_renewed_under_the_same_epoch(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("b")
            fleet.run(5)
            fleet.join("a")
            began = fleet.terms[0][0]
            fleet.run(640)
            renewed = [(at - began, event) for at, event in leader.events if event.name.endswith("epoch-renewed")]
            assert [event.epoch for _, event in renewed] == [1, 1]
            assert [event.worker_id for _, event in renewed] == ["b", "b"]
            for number, (after, _) in enumerate(renewed, 1):
                assert 300 * number - 1 < after < 300 * number + 2
            assert renewed[1][1].mandate_ends_at == pytest.approx(renewed[0][1].mandate_ends_at + 300, abs=2)
            assert led(fleet) == [("b", 1)]
            assert leader.named("coord:coordinator-demoted") == []

    @pytest.mark.req("EL-5")
    def test_or_handed_over_to_who_ranks_better(self) -> None:
        with Fleet(config=QUICK.replace(mandate_end=MandateEnd.HAND_OVER)) as fleet:
            leader = fleet.join("b")
            fleet.run(5)
            fleet.join("a")
            fleet.join("c")
            began = fleet.terms[0][0]
            fleet.run(290 - (fleet.world.now - began))
            assert led(fleet) == [("b", 1)]
            fleet.run(20)
            assert led(fleet) == [("b", 1), ("a", 2)]
            assert [event.reason for event in leader.named("coord:coordinator-demoted")] == ["mandate-ended"]
            fleet.run(400)
            assert led(fleet) == [("b", 1), ("a", 2)], "nobody ranks better than the first"

    @pytest.mark.req("EL-5", "EL-16")
    def test_better_priority_waits_for_the_minimum(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(5)
            fleet.join("b", priority=1)
            began = fleet.terms[0][0]
            fleet.run(59 - (fleet.world.now - began))
            assert led(fleet) == [("a", 1)]
            fleet.run(15)
            assert led(fleet) == [("a", 1), ("b", 2)]
            assert [event.reason for event in leader.named("coord:coordinator-demoted")] == ["better-priority"]

    @pytest.mark.req("EL-5", "EL-16")
    def test_an_unhealthy_worker_of_better_priority_is_not_given_way_to(self) -> None:
        healthy = [False]
        with Fleet() as fleet:
            fleet.join("a")
            fleet.run(5)
            fleet.join("b", priority=1, health_check=lambda: healthy[0])
            fleet.run(200)
            assert led(fleet) == [("a", 1)]
            healthy[0] = True
            fleet.run(120)
            assert led(fleet) == [("a", 1), ("b", 2)]

    @pytest.mark.req("EL-5")
    def test_a_store_that_fails_at_its_end_is_not_hammered(self) -> None:
        """The same outage, at the end of a mandate and in the middle of one, costs about as many requests."""
        spent = []
        for begins in (200, 301):
            with Fleet() as fleet:
                fleet.join("a")
                fleet.run(begins)
                fleet.network.change(server_error=1.0)
                before = fleet.requests("a").total()
                fleet.run(12)
                spent.append(fleet.requests("a").total() - before)
        assert spent[1] < 2 * spent[0]


class TestRequests:
    @pytest.mark.req("EL-5", "EL-17")
    def test_one_inside_the_minimum_is_refused_with_the_time_left(self) -> None:
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.run(30)
            said = refused(other, "b")
            assert "'a', epoch 1, says no: elected" in said
            assert "only a forced request" in said
            assert led(fleet) == [("a", 1)]
            assert leader.leads
            assert fleet.json("state.json")["handoff"] is None
            assert "says no" in refused(other, "b"), "and the next one is answered as well"

    @pytest.mark.req("EL-5", "EL-17")
    def test_unless_it_is_forced(self) -> None:
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.run(30)
            done = other.done(other.service.transfer("b", force=True))
            assert done == Handover("a", 1, "b", 2)
            fleet.until(lambda: other.leads, within=1)
            assert leader.plugin.calls == ["become", "stop"]
            assert [event.reason for event in leader.named("coord:coordinator-demoted")] == ["transfer"]

    @pytest.mark.req("EL-17")
    def test_the_one_that_was_named_takes_it_also_if_another_watches_more_closely(self) -> None:
        """The next in rank sees a released lease sooner than one that looks once a heartbeat."""
        with Fleet(config=CoordinatorConfig.for_lease(10, hosting=QUICK.hosting)) as fleet:
            nodes = [fleet.join(name) for name in "abcd"]
            fleet.until(lambda: any(node.leads for node in nodes), within=90)
            for number in range(12):
                fleet.run(20 + number * 0.37)  # anywhere in a heartbeat
                for to in ("d", "b"):
                    assert nodes[2].done(nodes[2].service.transfer(to, force=True)).leader == to

    @pytest.mark.req("EL-17")
    @pytest.mark.parametrize("asking", ["a", "b", "c"])
    def test_after_it_anybody_may_ask_and_is_told_when_it_has_happened(self, asking: str) -> None:
        with Fleet() as fleet:
            for name in "abc":
                fleet.join(name)
            fleet.run(80)
            asked = fleet.world.now
            node = fleet.nodes[asking]
            assert node.done(node.service.transfer("c")) == Handover("a", 1, "c", 2)
            fleet.until(lambda: fleet.nodes["c"].leads, within=1)
            assert fleet.world.now - asked < 12, "a renewal, and the successor's next look"
            fleet.run(150)
            assert led(fleet) == [("a", 1), ("c", 2)]

    @pytest.mark.req("EL-17")
    def test_a_transfer_is_confirmed_once_the_new_term_is_on_record(self) -> None:
        """A lease that was granted is not leadership yet: whoever dies before the record is there never led."""
        with Fleet() as fleet:
            fleet.network.change("b", latency=(0.6, 0.6))
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.run(80)
            recorded: list[bool] = []

            async def ask() -> None:
                await leader.service.transfer("b")
                recorded.append(fleet.bucket.body(fleet.path(f"terms/{2:020d}.json")) is not None)

            leader.done(ask())
            assert recorded == [True]
            fleet.until(lambda: other.leads, within=3)  # its answer, and a look at what it wrote, are on their way

    @pytest.mark.req("EL-5", "EL-17")
    def test_a_transfer_pins_until_the_mandate_ends(self) -> None:
        with Fleet() as fleet:
            best, other = fleet.join("a", priority=5), fleet.join("b")
            fleet.run(80)
            other.done(other.service.transfer("b"))
            began = fleet.terms[-1][0]
            fleet.run(298 - (fleet.world.now - began))
            assert fleet.leader is other
            fleet.run(100)
            assert fleet.leader is best
            assert led(fleet) == [("a", 1), ("b", 2), ("a", 3)]

    @pytest.mark.req("EL-17")
    def test_one_to_somebody_who_is_not_there_is_refused_with_those_who_are(self) -> None:
        with Fleet() as fleet:
            node = fleet.join("a")
            fleet.join("b")
            fleet.run(80)
            assert refused(node, "x") == "'x' is not a live worker of 'default': there are a, b"
            assert refused(node, "a") == "'a' leads 'default' already, epoch 1"
            assert led(fleet) == [("a", 1)]

    @pytest.mark.req("EL-17")
    def test_one_to_a_leader_that_does_not_answer_ends_in_time(self) -> None:
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.run(80)
            leader.host.freeze(8)
            assert "nobody else leads after 4 s: 'a', epoch 1, may be frozen" in refused(other, "b", timeout=4)

    @pytest.mark.req("EL-17")
    def test_one_whose_target_dies_is_answered_with_who_leads_instead(self) -> None:
        with Fleet() as fleet:
            for name in "abc":
                fleet.join(name)
            fleet.run(80)
            node = fleet.nodes["b"]

            async def ask() -> str:
                try:
                    await node.service.transfer("c", timeout=60)
                except RequestRefused as no:
                    return str(no)
                return "it happened"

            task = node.run(ask())
            fleet.nodes["c"].host.crash()
            fleet.until(task.done)
            assert task.result().startswith("'a' stepped down, but 'b' leads now (epoch 2), not 'c'")
            assert fleet.leader is node

    def test_one_that_meets_a_store_that_is_away_says_so(self) -> None:
        with Fleet() as fleet:
            fleet.join("a")
            node = fleet.join("b")
            fleet.run(80)
            fleet.network.cut("b")

            async def ask() -> bool:
                try:
                    await node.service.transfer("b")
                except (StoreError, RequestRefused):
                    return True
                return False

            assert node.done(ask())

    def test_a_request_to_another_epoch_is_not_obeyed(self) -> None:
        """A slow outsider's write must not depose the next leader."""
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(80)
            state = fleet.json("state.json")
            state["writeId"] = "outsider"
            state["handoff"] = {"requestId": "r", "epoch": 7, "by": "somebody", "to": None, "forced": True}
            fleet.bucket.corrupt(fleet.path("state.json"), json.dumps(state).encode())
            fleet.run(30)
            assert led(fleet) == [("a", 1)]
            assert leader.leads


class TestSteppingDown:
    @pytest.mark.req("EL-17")
    def test_the_next_in_rank_follows_and_who_stepped_down_stays_in_the_fleet(self) -> None:
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.join("c")
            fleet.run(30)
            leader.done(leader.service.step_down())
            assert not leader.leads
            assert leader.plugin.calls == ["become", "stop"]
            assert fleet.until(lambda: other.leads) < 7
            fleet.run(200)
            assert led(fleet) == [("a", 1), ("b", 2)]
            assert other.done(other.service.get_active_workers()) == ["a", "b", "c"]

    @pytest.mark.req("EL-17")
    def test_who_does_not_lead_is_told_so(self) -> None:
        with Fleet() as fleet:
            fleet.join("a")
            other = fleet.join("b")
            fleet.run(30)

            async def ask() -> str:
                try:
                    await other.service.step_down()
                except RequestRefused as no:
                    return str(no)
                return "it happened"

            assert other.done(ask()) == "'b' does not lead 'default': ask the worker that does"

    @pytest.mark.req("EL-17")
    def test_the_only_worker_there_is_leads_again(self) -> None:
        with Fleet() as fleet:
            leader = fleet.join("a")
            fleet.run(30)
            leader.done(leader.service.step_down())
            fleet.run(30)
            assert led(fleet) == [("a", 1), ("a", 2)]

    @pytest.mark.req("EL-17", "CP-7")
    def test_the_lease_is_kept_until_the_hooks_have_returned(self) -> None:
        """A hook of eight seconds: nobody else leads before it has ended, and then somebody does."""
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.run(30)
            ended: list[float] = []

            async def wind_up() -> None:
                await leader.host.clock.sleep(8)
                ended.append(fleet.world.now)

            leader.plugin.on_stop_being_coordinator = wind_up  # type: ignore[method-assign]
            leader.run(leader.service.step_down())
            fleet.run(1)
            assert not leader.leads
            fleet.until(lambda: other.leads)
            assert ended
            assert ended[0] < fleet.terms[-1][0] < ended[0] + 7

    @pytest.mark.req("EL-17")
    def test_hooks_that_never_return_leave_the_lease_to_lapse(self) -> None:
        with Fleet() as fleet:
            leader, other = fleet.join("a"), fleet.join("b")
            fleet.run(30)
            leader.plugin.on_stop_being_coordinator = asyncio.Event().wait  # type: ignore[method-assign]
            leader.run(leader.service.step_down())
            fleet.run(60)
            assert [event.epoch for event in leader.named("lease:overran")] == [1]
            assert led(fleet) == [("a", 1), ("b", 2)]
            assert fleet.leader is other
