"""Corners of a TTL that the simulator led to."""

from __future__ import annotations

from typing import Any

from tenure.database.ids import key_of
from tenure.database.resource import Resource
from tests.support.store import After, Request
from tests.unit.ttl_rig import DUE, NAME, Node, Rig


def without_the_plugin(node: Node) -> Resource[Any]:
    return Resource(node.store, NAME, clock=node.host.clock, draw_id=node.rig.draw_id)


def test_an_entry_is_not_taken_back_from_a_write_that_landed_though_it_was_said_to_be_lost() -> None:
    """A store, or something before it, breaks its word: the record must still be found when it expires."""
    with Rig() as rig:
        node, leader = rig.node("writer"), rig.node("leader")
        rig.done(node, lambda: node.things.insert({}, "x"))

        async def cannot_be_read(request: Request) -> None:
            node.store.on("get", request.key, "lost")

        node.store.on("replace", key_of(NAME, "x"), After(cannot_be_read, "denied"))
        rig.done(node, lambda: node.ttl.touch("x", ttl=60.0), within=10.0)
        node.store.assert_script_was_met()
        assert DUE + rig.expiry("x").entry + "x" in rig.bucket.keys(DUE)
        leader.lead()
        rig.wait(80.0)
        assert rig.alive() == []


def test_a_record_that_came_after_the_walk_had_seen_its_id_counts_from_its_own_time() -> None:
    with Rig(ttl=30.0) as rig:
        node = rig.node("writer")
        strange = without_the_plugin(node)
        rig.done(node, lambda: strange.insert({}, "x"))
        born: list[int] = []

        async def replaced(request: Request) -> None:
            await node.host.clock.sleep(20.0)
            await strange.delete("x")
            born.append(rig.now_ms)
            await strange.insert({}, "x")

        node.store.on("list", "resource=*", After(replaced))
        rig.done(node, node.ttl.reindex, within=30.0)
        assert born
        assert (rig.expiry("x").at or 0) >= born[0] + 30_000
