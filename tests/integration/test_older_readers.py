"""What older versions make of records that say their version now, and did not before; and of those of a newer version.

The older versions run from their wheels.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenure.coordinator.fenced import Header, join
from tenure.election.records import encode
from tenure.ledger.records import LogEntry
from tenure.plugins.supervisor.static import StaticNode
from tenure.plugins.ttl.looking import FailedCallback, encode_failed

from .test_released import WHEELS
from .test_rolling_upgrade import OLDER
from .versions import unpacked

SUPERVISOR = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import tenure
from tenure.plugins.supervisor import read_status
from tenure.plugins.supervisor.static import StaticPost
from tenure.store.memory import MemoryStore

async def main(bodies):
    store, folder = MemoryStore(), "plugin=supervisor/name=kids/"
    await store.put(folder + "children.json", bodies["children"].encode())
    status = await read_status(store, "kids")
    post = StaticPost(store, "kids", "a", clock=tenure.clock.SYSTEM_CLOCK, draw_id=lambda: "0123456789abcdef")
    for beat in "12":
        key = folder + "static/nodes/b.ffffffffffff.json"
        await store.put(key, bodies["node"].replace("beat", beat).encode())
        others = await post.look_around()
    said = {"file": tenure.__file__, "node": status.node, "children": [each.name for each in status.children]}
    print(json.dumps(said | {"others": others}))

asyncio.run(main(json.load(sys.stdin)))
"""

LEDGER = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import tenure
from tenure.ledger.records import decode_entry
from tenure.plugins.ttl.looking import failed_callbacks
from tenure.store.memory import MemoryStore

async def main(bodies):
    store, said = MemoryStore(), {"file": tenure.__file__}
    for number, name in enumerate(["unmarked", "present", "newer"]):
        entry = decode_entry(bodies["entry", name].encode(), 7)
        said[name] = [type(entry).__name__, getattr(entry, "schema_version", None), getattr(entry, "folded", None)]
        await store.put(f"failed/{number:020d}-a", bodies["failed", name].encode())
    said["failed"] = [[each.id, each.data] for each in await failed_callbacks(store, 10)]
    print(json.dumps(said))

asyncio.run(main({tuple(key.split()): body for key, body in json.load(sys.stdin).items()}))
"""

HALTED = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import tenure
from tenure import CoordinatorConfig, Database
from tenure.plugins.queue import S3QueuePlugin

async def main(url):
    folder = "plugin=s3-queue/name=mail/"
    async with Database(url, worker_id="old") as db:
        queue = S3QueuePlugin("mail", config=CoordinatorConfig.fast(startup_jitter_max=0), result_retention=60)
        queue.on_message(lambda message: 1, blocking="inline")
        halted = asyncio.get_running_loop().create_future()
        await db.use_plugin(queue)
        queue.on("plg:s3-queue:halted", lambda event: halted.done() or halted.set_result(event.event.reason))
        id = await queue.enqueue("first")
        assert await queue.result(id) == 1
        while not halted.done():  # it goes on deciding until it meets this
            end = max([entry.key async for entry in db.store.list(folder + "log/")])
            key = f"{folder}log/{int(end[-20:]) + 1:020d}"
            body = json.loads((await db.store.get(end)).body)
            body |= {"schemaVersion": 2, "seq": body["seq"] + 1, "writeId": "newer", "somethingNew": 1}
            planted = json.dumps(body).encode()
            await db.store.create(key, planted)
            if (await db.store.get(key)).body == planted:
                await queue.enqueue("second")
                reason = await asyncio.wait_for(halted, 60)
        await asyncio.sleep(2)
        kept = (await db.store.get(key)).body == planted
        newer = folder + "results/" + id
        await db.store.put(newer, b'{"tenure":"result","schemaVersion":2}\\n{"n":7}')
        try:
            result = await queue.result(id)
        except Exception as error:
            result = type(error).__name__
        print(json.dumps({"file": tenure.__file__, "reason": reason, "kept": kept, "result": result}))

asyncio.run(main(sys.argv[2]))
"""


async def say(script: str, wheel: Path, folder: Path, bodies: dict[str, str], *more: str) -> dict[str, Any]:
    older = unpacked(wheel, folder)

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, str(older), *more]
        given = json.dumps(bodies)
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)

    ended = await asyncio.to_thread(run)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    assert said.pop("file").startswith(str(older)), "the older version did not run"
    return said


def marked(body: bytes, version: int | None) -> str:
    """A record with another version, or without one."""
    fields = json.loads(body)
    assert fields.pop("schemaVersion") == 1
    return json.dumps(fields if version is None else {"schemaVersion": version, **fields})


@pytest.mark.req("SV-2")
@pytest.mark.parametrize("version", [None, 1, 2])
@pytest.mark.parametrize("wheel", [*WHEELS, OLDER], ids=lambda wheel: wheel.name.split("-")[1])
async def test_older_supervisors_read_nodes_and_children_that_say_their_version(
    wheel: Path, version: int | None, tmp_path: Path
) -> None:
    """Also a higher one, which those did not look at: what a newer tenure tells them of children is for people."""
    status = {
        "schemaVersion": 1,
        "name": "kids",
        "node": "b",
        "epoch": 3,
        "children": [{"name": "web", "state": "running", "token": 5}],
    }
    header, _, _ = join(Header(namespace="n", epoch=3, write_id="w"), b"").partition(b"\n")
    children = header.decode() + "\n" + marked(json.dumps(status).encode(), version)
    node = marked(msgspec.json.encode(StaticNode("b", "beat")), version)
    said = await say(SUPERVISOR, wheel, tmp_path, {"children": children, "node": node})
    assert said == {"node": "b", "children": ["web"], "others": ["b"]}


@pytest.mark.req("SQ-1", "TT-2")
async def test_an_older_ledger_reads_entries_that_say_their_version_and_refuses_newer_ones(tmp_path: Path) -> None:
    entry = encode(LogEntry(write_id="w", seq=7, epoch=1, time_ms=5, folded={"u": [1]}))
    failed = encode_failed(
        FailedCallback(resource="r", id="a", data={"n": 1}, version=1, expired_ms=5, attempts=2, error="no")
    )
    versions = {"unmarked": None, "present": 1, "newer": 2}
    bodies = {
        f"{kind} {name}": marked(body, version)
        for kind, body in (("entry", entry), ("failed", failed))
        for name, version in versions.items()
    }
    said = await say(LEDGER, OLDER, tmp_path, bodies)
    assert said["unmarked"] == said["present"] == ["LogEntry", 1, {"u": [1]}]
    assert said["newer"][:2] == ["TooNew", 2]
    assert said["failed"] == [["a", {"n": 1}]] * 3, "these were read whatever they say, and never written over"


@pytest.mark.slow
@pytest.mark.req("SQ-1")
async def test_an_older_leader_halts_at_a_newer_entry_and_leaves_it(tmp_path: Path) -> None:
    said = await say(HALTED, OLDER, tmp_path / "older", {}, f"file://{tmp_path / 'store'}")
    assert "was written by a newer tenure (schemaVersion 2): update this process" in said["reason"]
    assert said["kept"]
    assert said["result"] == "DecodeError", "a newer result is none that it could take for its own"
