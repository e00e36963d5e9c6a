"""The Python of the shorter pages: docs/health.md, locks.md, polling.md, resources.md and storage.md.

The longer ones have `test_docs.py`. Names that a page leaves to its reader are given here; addresses and URLs are ones
of this machine.
"""

from __future__ import annotations

import ast
import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec

import tenure
from lab.process import free_port
from tenure.plugins.cluster_health import ClusterHealth
from tenure.plugins.poll import (
    CommandCheck,
    HttpCheck,
    InPartition,
    On,
    PollOrchestrator,
    PollSchedule,
    PollWorker,
    TcpCheck,
    read_jobs,
    read_results,
)
from tests.acceptance.fleet import fleet, leader_of
from tests.acceptance.pages import PYTHON, ROOT, blocks
from tests.support.waiting import eventually

PATIENCE = 60.0


def python(page: str, **instead: str) -> list[str]:
    """Its blocks, with other words in some places."""
    found = [block.text for block in blocks(ROOT / "docs" / page) if block.kind == PYTHON]
    for shown, real in instead.items():
        assert any(shown in text for text in found), shown
        found = [text.replace(shown, real) for text in found]
    return found


async def run(text: str, **names: Any) -> dict[str, Any]:
    code = compile(text, "docs", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with asyncio.timeout(PATIENCE):
        result = eval(code, names)
        if asyncio.iscoroutine(result):
            await result
    return names


async def test_health(tmp_path: Path) -> None:
    (block,) = python("health.md")
    async with fleet(tmp_path.as_uri(), "ada") as coordinators:
        await leader_of(coordinators)
        names = await run(block, Child=tenure.Child, ClusterHealth=ClusterHealth, coordinator=coordinators["ada"])
        try:
            assert names["status"] in (200, 503)
            assert json.loads(names["body"])["leader"] == "ada"
            await eventually(lambda: names["health"].response()[0] == 200)
        finally:
            await names["health"].stop()


async def test_locks(tmp_path: Path) -> None:
    tokens: list[int] = []
    stock = {"apple": 0}

    async def write_report(fencing_token: int) -> None:
        tokens.append(fencing_token)

    async def sql(text: str, n: int, token: int, item: str) -> int:
        if token < stock[item]:
            return 0
        stock[item] = token
        return 1

    first, second, third = python("locks.md")
    async with tenure.Database(tmp_path.as_uri()) as db:
        await run(first, db=db, write_report=write_report)
        await run(first, db=db, write_report=write_report)
        names = await run(second, db=db, sql=sql, n=3, item="apple")
        await run(third, db=db, write_report=write_report)
        async with db.lock("nightly-report"):
            assert await db.lock("nightly-report").try_acquire() is None
    assert tokens == [1, 2, 3]
    assert (names["rows"], stock) == (1, {"apple": 1})


async def test_polling(tmp_path: Path) -> None:
    (block,) = python("polling.md")
    port = free_port()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    program = shutil.which("true")
    assert program is not None
    for shown, real in (
        ("https://example.org", f"http://127.0.0.1:{port}"),
        ('"db.dc1", 5432', f'"127.0.0.1", {port}'),
        ('"check-backup"', repr(program)),
    ):
        assert shown in block
        block = block.replace(shown, real)
    before, _, after = block.partition("# from anywhere")
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    kinds = (CommandCheck, HttpCheck, InPartition, On, PollOrchestrator, PollSchedule, PollWorker, TcpCheck)
    quick = tenure.CoordinatorConfig.fast(startup_jitter_max=0)
    async with (
        server,
        tenure.Database(tmp_path.as_uri(), worker_id="storage-1") as database,
        tenure.Database(tmp_path.as_uri(), worker_id="leader") as other,
    ):
        following = tenure.CoordinatorConfig.fast(startup_jitter_max=0, eligible=False)
        coordinator = await database.get_global_coordinator("coordinator", config=following)
        await coordinator.start()
        names: dict[str, Any] = {kind.__name__: kind for kind in kinds}
        names |= {"Child": tenure.Child, "database": database, "coordinator": coordinator}
        names |= {"read_jobs": read_jobs, "read_results": read_results}
        names = await run(before.replace("Child(", "child = Child("), **names)
        await other.use_plugin(tenure.CoordinatorCandidate([names["child"]], config=quick))
        async with asyncio.timeout(PATIENCE):
            while len(await read_results(database)) < 3:
                await asyncio.sleep(0.1)
        names = await run(after, **names)
        await names["worker"].stop()
    assert {name: result.ok for name, result in names["results"].items()} == {"website": 1, "db-dc1": 1, "backup": 1}
    assert [job.state.value for job in names["jobs"] if job.result is not None] == ["completed"]


async def test_resources(tmp_path: Path) -> None:
    (block,) = python("resources.md", **{"s3://bucket/app": tmp_path.as_uri()})
    names = await run(block, msgspec=msgspec, Database=tenure.Database)
    assert [record.id for record in names["page"].records] == ["welcome-ben"]
    assert names["record"].data.to == "ben@example.com"


async def test_storage(tmp_path: Path) -> None:
    (block,) = python("storage.md")
    async with tenure.Database(tmp_path.as_uri()) as db:
        names = await run(block, PluginStorage=tenure.PluginStorage, store=db.store)
        assert names["entry"].value == {"page": 7}
        assert [entry.key for entry in names["page"].entries] == ["jobs/42"]
        assert names["batch"].failed == {}
        assert await names["storage"].get("cursor") is None
