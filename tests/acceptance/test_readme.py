"""What the README shows can be run."""

from __future__ import annotations

import ast
import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
import pytest

import tenure
import tenure.blocking
from tests.acceptance.fleet import fleet, leader_of

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def compiled(block: str, url: str = "memory://") -> CodeType:
    text = block.replace("s3://bucket/app", url)
    return compile(text, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def block_with(text: str) -> str:
    (found,) = [block for block in BLOCKS if text in block]
    return found


async def run(block: str, url: str, **names: Any) -> dict[str, Any]:
    await eval(compiled(block, url), names)
    return names


@pytest.fixture
def done() -> list[int]:
    return []


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults spread a fleet's start over five seconds."""

    def fast(**settings: Any) -> tenure.CoordinatorConfig:
        return tenure.CoordinatorConfig.fast(**{"startup_jitter_max": 0, **settings})

    monkeypatch.setattr("tenure.database.core.CoordinatorConfig", fast)


def test_every_block_is_run() -> None:
    """Each of README.md has a test below, which asks for it by words that no other one has."""
    assert len(BLOCKS) >= 6
    asked = [
        call.args[0].value
        for call in ast.walk(ast.parse(Path(__file__).read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", None) == "block_with"
        if isinstance(call.args[0], ast.Constant)
    ]
    assert len(set(asked)) == len(asked)
    assert {block_with(words) for words in asked} == set(BLOCKS)


async def test_the_first_example(tmp_path: Path, done: list[int]) -> None:
    async def only_one_of_us_does_this(epoch: int) -> None:
        done.append(epoch)

    names = {"tenure": tenure, "only_one_of_us_does_this": only_one_of_us_does_this}
    assert block_with("only_one_of_us_does_this") == BLOCKS[0]
    async with asyncio.timeout(30):
        await run(BLOCKS[0], tmp_path.as_uri(), **names)
        await run(BLOCKS[0], tmp_path.as_uri(), **names)
    assert done == [1, 2]


async def test_the_long_form_and_fenced_writes(tmp_path: Path, done: list[int]) -> None:
    async def work(epoch: int) -> None:
        done.append(epoch)

    async with asyncio.timeout(30):
        names = await run(block_with("coordinator.leadership()"), tmp_path.as_uri(), work=work)
    assert done == [1]
    assert names["coordinator"].namespace == "reports"

    async with asyncio.timeout(30), fleet(tmp_path.as_uri(), "ada", namespace="other") as coordinators:
        await leader_of(coordinators)
        lead = coordinators["ada"].lead
        names = await run(block_with("lead.claim("), "", lead=lead)
        assert names["latest"] is None
        assert lead is not None
        assert await lead.claim("reports/latest") == b"..."


async def test_plugins_children_records_and_locks(tmp_path: Path, done: list[int]) -> None:
    class Email(msgspec.Struct):
        to: str
        subject: str = ""

    async def write_report(token: int) -> None:
        done.append(token)

    async def send_mails() -> None:
        await asyncio.sleep(60)

    async with asyncio.timeout(30):
        await run(block_with("class Reports"), tmp_path.as_uri(), write_report=write_report)
        async with tenure.Database(tmp_path.as_uri()) as db:
            names = await run(block_with("CoordinatorCandidate(children)"), "", db=db, send_mails=send_mails)
            assert [child.name for child in names["children"]] == ["mailer", "sync"]
            changed = Email(to="ben@example.org")
            names = await run(
                block_with('db.resource("emails"'), "", db=db, Email=Email, changed=changed, write_report=write_report
            )
            assert (await names["emails"].get(names["record"].id)).data == changed
    assert done == [1]


async def test_the_queue(tmp_path: Path, done: list[int]) -> None:
    async def send_mail(body: object, token: int) -> None:
        assert body == {"to": "ada@example.org"}
        done.append(token)

    async with asyncio.timeout(30), tenure.Database(tmp_path.as_uri()) as db:
        await run(block_with("S3QueuePlugin("), "", db=db, send_mail=send_mail)
        while not done:
            await asyncio.sleep(0.02)
    assert len(done) == 1


async def test_records_that_expire(tmp_path: Path) -> None:
    async with asyncio.timeout(30), tenure.Database(tmp_path.as_uri()) as db:
        names = await run(block_with("TTLPlugin("), "", db=db)
        left = await names["ttl"].expires_at("s1") - datetime.now(UTC)
        assert timedelta(minutes=29) < left < timedelta(minutes=31)


async def test_counters(tmp_path: Path) -> None:
    async with asyncio.timeout(30), tenure.Database(tmp_path.as_uri()) as db:
        names = await run(block_with("EventualConsistencyPlugin("), "", db=db)
        counters = names["counters"]
        assert await counters.get("home", "views", consistent=True) == 1
        await counters.consolidate()
        assert [(place.id, place.value) for place in await counters.top("views", period="day")] == [("home", 1)]


async def test_the_schedule(tmp_path: Path, done: list[int]) -> None:
    async def write_report(scheduled: object, token: int) -> None:
        done.append(token)

    async with asyncio.timeout(30), tenure.Database(tmp_path.as_uri()) as db:
        names = await run(block_with("SchedulerPlugin("), "", db=db, write_report=write_report)
        while not names["scheduler"].is_leading:
            await asyncio.sleep(0.02)
        for job in ("nightly", "digest"):
            await names["scheduler"].run_now(job)
        while (await names["scheduler"].stats()).succeeded < 2:
            await asyncio.sleep(0.02)
    assert len(done) == 1


async def test_terms_and_events(tmp_path: Path, done: list[int]) -> None:
    async def work(epoch: int) -> None:
        done.append(epoch)
        if len(done) == 2:
            raise EOFError

    async with asyncio.timeout(30), fleet(tmp_path.as_uri(), "ada") as coordinators:
        told: list[object] = []
        names = {"coordinator": coordinators["ada"], "print": lambda *words: told.append(words)}
        listening = asyncio.create_task(run(block_with("coordinator.on("), "", **names))
        with pytest.raises(EOFError):
            await run(block_with("coordinator.terms()"), "", coordinator=coordinators["ada"], work=work)
        while len(told) < 4:
            await asyncio.sleep(0.02)
        listening.cancel()
    assert done == [1, 2]


async def test_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def standard(**settings: Any) -> tenure.CoordinatorConfig:
        return tenure.CoordinatorConfig(**{"startup_jitter_max": 0, **settings})

    monkeypatch.setattr("tenure.database.core.CoordinatorConfig", standard)  # five seconds are more than fast() has
    booked: list[tuple[str, int]] = []
    names = {
        "orders": lambda: ["first", "second"],
        "book": lambda order, fencing_token: booked.append((order, fencing_token)),
    }
    code = compiled(block_with("tenure.blocking.lead("), tmp_path.as_uri())
    async with asyncio.timeout(30):
        await asyncio.to_thread(exec, code, names)
    assert booked == [("first", 1), ("second", 1)]


async def test_the_store(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    async with tenure.store.open_store(url) as store:
        await store.create("config.json", b"old")
        await run(block_with("open_store(").replace("s3://my-bucket/myapp", url), url, new_body=b"new")
        assert (await store.get("config.json")).body == b"new"
