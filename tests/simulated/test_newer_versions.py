"""What a newer tenure has written: status of children, static nodes, failed callbacks, results, history of counters.

It is told of, and is there afterwards, byte for byte. All other places are in `test_bad_input.py`.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tenure import Database
from tenure.coordinator.fenced import Header, join
from tenure.errors import LedgerDamaged, SchemaTooNew
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.queue.plugin import _result_key
from tenure.plugins.supervisor.static import StaticPost
from tenure.plugins.supervisor.status import folder_of, read_status
from tenure.plugins.ttl.looking import FAILED, FailedCallback, encode_failed, failed_callbacks
from tenure.store import Stored
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.counters_rig import PAGES, Rig

from .plugins import Home
from .test_supervisor import Candidates
from .working import LEDGERS, WorkingFleet

CHILDREN = f"{folder_of('coordinator')}children.json"
HOUR = 3600.0


def newer(sound: bytes) -> bytes:
    """The same fields and one more, so that an older reader might take it for its own."""
    return json.dumps({**json.loads(sound), "schemaVersion": 2, "somethingNew": [1]}).encode()


@pytest.mark.parametrize("what", ["header", "body", "body of no children"])
def test_a_newer_status_of_children_is_told_of_and_stays(what: str, caplog: pytest.LogCaptureFixture) -> None:
    with Candidates() as fleet:
        for name in "ab":
            fleet.stand(name, [fleet.book.child("first")])
        fleet.lead()
        fleet.run(5)
        header, _, body = (fleet.bucket.body(CHILDREN) or b"").partition(b"\n")
        if what == "header":
            header = newer(header)
        else:
            body = newer(body) if what == "body" else b'{"schemaVersion":2,"shards":[]}'
        planted = header + b"\n" + body
        fleet.bucket.corrupt(CHILDREN, planted)
        starts = len(fleet.book.notes)
        fleet.lead().host.crash()
        fleet.run(40)
        leader = fleet.lead()
        assert len(fleet.book.notes) > starts, "the children run all the same"
        assert fleet.bucket.body(CHILDREN) == planted
        (told,) = [record.getMessage() for record in caplog.records if "is left as it is" in record.getMessage()]
        assert "newer tenure" in told and "update this process" in told

        async def look() -> object:
            try:
                return await read_status(Home(leader).store)
            except SchemaTooNew as error:
                return str(error)

        seen = leader.done(look())
        if what == "header":
            assert "newer tenure (schemaVersion 2): update this process" in str(seen)
        else:
            assert seen is None
            assert "cannot be read: a newer tenure wrote it" in caplog.records[-1].getMessage()
        fleet.bucket.remove(CHILDREN)
        leader.done(fleet.candidates[leader.name].stop())
        assert fleet.bucket.body(CHILDREN) is not None, "its last word is written where nothing newer lies"


async def _body(store: Any, key: str) -> bytes:
    found = await store.get(key)
    assert isinstance(found, Stored)
    return found.body


@pytest.mark.parametrize(
    "form", [b'{"schemaVersion":2,"node":"not-a-name","writeId":"%d"}', b'{"schemaVersion":2,"n":%d}']
)
async def test_a_newer_static_node_is_seen_to_live_and_stays(form: bytes) -> None:
    store, clock = MemoryStore(), SimulatedClock()
    post = StaticPost(store, "kids", "a", clock=clock, draw_id=lambda: "0123456789abcdef")
    key = f"{folder_of('kids')}static/nodes/b.ffffffffffff.json"
    told = []
    for beat in range(3):
        await store.put(key, form % beat)
        told.append(await post.look_around())
        assert await _body(store, key) == form % beat
    assert told == [(), ("b.ffffffffffff.json",), ("b.ffffffffffff.json",)], "by its key: what else it says is not read"


async def test_newer_failed_callbacks_are_told_of_and_stay(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    sound = FailedCallback(resource="r", id="a", data={"n": 1}, version=1, expired_ms=5, attempts=2, error="no")
    planted = {f"{FAILED}{1:020d}-a": newer(encode_failed(sound)), f"{FAILED}{2:020d}-b": b'{"schemaVersion":2}'}
    for key, body in planted.items():
        await store.put(key, body)
    await store.put(f"{FAILED}{3:020d}-c", encode_failed(sound))
    unmarked = encode_failed(sound).replace(b'"schemaVersion":1,', b"")
    await store.put(f"{FAILED}{4:020d}-d", unmarked)
    with caplog.at_level(logging.WARNING):
        assert await failed_callbacks(store, 10) == [sound, sound]
    assert [record.getMessage() for record in caplog.records] == [
        "2 failed callbacks are on record by a newer tenure: update this process to see them"
    ]
    for key, body in planted.items():
        assert await _body(store, key) == body


def test_a_leader_leaves_newer_failed_callbacks_where_they_are() -> None:
    with WorkingFleet(failing=True) as fleet:
        fleet.run(12)
        folder = f"{LEDGERS['ttl']}{FAILED}"
        key = fleet.bucket.keys(folder)[0]
        planted = newer(fleet.bucket.body(key) or b"")
        fleet.bucket.corrupt(key, planted)
        before = len(fleet.bucket.keys(folder))
        fleet.lead().host.crash()
        fleet.run(24)
        assert len(fleet.bucket.keys(folder)) > before, "its own it goes on to write"
        assert fleet.bucket.body(key) == planted


async def test_a_newer_result_is_refused_and_stays(tmp_path: Any) -> None:
    planted = b'{"tenure":"result","schemaVersion":2}\n{"n":7}'
    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin("jobs", result_retention=60.0)
        own = {"tenure": "result", "schemaVersion": 2, "text": "of two\nlines"}
        queue.on_message(lambda message: own, blocking="inline")
        await db.use_plugin(queue)
        first = await queue.enqueue("job")
        assert await queue.result(first, timeout=60.0) == own, "what a handler returns is never taken for a newer form"

        store = queue._opened()
        assert await _body(store, _result_key(first)) == json.dumps(own, separators=(",", ":")).encode()
        message = Message(first, "job", 2, {}, None, 0, None, "", 0)  # type: ignore[arg-type]
        await store.put(_result_key(first), planted)
        with pytest.raises(SchemaTooNew, match=r"schemaVersion 2\): update this process"):
            await queue.result(first)
        await queue._keep_result(message, own)
        assert await _body(store, _result_key(first)) == planted

        await store.put(_result_key(first), b'"of an earlier attempt"')
        await queue._keep_result(message, own)
        assert await queue.result(first) == own


def test_a_page_that_is_not_what_the_log_names_is_refused_and_stays() -> None:
    """Its form is that of the machine which wrote the log; what is put in its place is known by its checksum."""
    with Rig(interval=600.0) as rig:
        rig.leader()
        writer = rig.node("writer")
        rig.done(writer, lambda: writer.counters.add("home", "views"))
        rig.until(lambda: bool(rig.bucket.keys(PAGES)), 3 * HOUR)
        (key,) = rig.bucket.keys(PAGES)
        planted = newer(rig.bucket.body(key) or b"")
        rig.bucket.corrupt(key, planted)
        with pytest.raises(LedgerDamaged, match="is not what was written"):
            rig.done(writer, lambda: writer.counters.history("home", "views"))
        rig.done(writer, lambda: writer.counters.add("home", "views"))
        rig.wait(3 * HOUR)
        assert rig.bucket.body(key) == planted
        assert rig.total("home") == 2, "amounts are counted all the same"


def test_what_is_planted_would_be_read_if_it_were_not_newer() -> None:
    """The fields are all there: only the version says that it is none of ours."""
    header = json.loads(join(Header(namespace="n", epoch=1, write_id="w"), b"").partition(b"\n")[0])
    assert header["schemaVersion"] == 1
    assert json.loads(newer(b'{"schemaVersion":1,"a":1}')) == {"schemaVersion": 2, "a": 1, "somethingNew": [1]}
