"""What docs/plugins.md, supervisor.md, queue.md, ttl.md, schedule.md and counters.md show can be run, from the first
block on.

One block of each opens a database and then waits in `serve()`; programs of their own may come before it. The others are
run there.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tenure
import tenure.blocking
from tenure.cli.main import run as run_command
from tenure.cli.schedule_text import WORDS
from tenure.plugins.counters import CounterSettings, CounterStats
from tenure.plugins.counters import events as counter_events
from tenure.plugins.ledgered import ClockSkewed, Halted, LeadingBegan, NotLed
from tenure.plugins.queue import QueueSettings, QueueStats, events
from tenure.plugins.scheduler import Dst, Interrupted, Misfire, Outcome, Overlap, State, cron
from tenure.plugins.scheduler import events as schedule_events
from tenure.plugins.scheduler.job import JobOptions, job_from
from tenure.plugins.scheduler.timetable import timetable_of
from tenure.plugins.supervisor.telemetry import TELEMETRY_NAMES
from tenure.plugins.ttl import Counts, TTLSettings, TTLStats
from tenure.plugins.ttl import events as ttl_events
from tests.acceptance.fleet import fleet
from tests.support.waiting import eventually

DOCS = Path(__file__).parents[2] / "docs"
PATIENCE = 60.0


class Page:
    """The blocks of one page, which share their names."""

    def __init__(self, page: str, url: str, begin: int = 0, **names: Any) -> None:
        """`begin`: the number of the block that waits in `serve()`."""
        self.text = (DOCS / page).read_text()
        blocks = re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)
        self.before = blocks[:begin]
        self.first, *self.others = [
            compile(block.replace("s3://bucket/app", url), page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            for block in blocks[begin:]
        ]
        self.names = {"__name__": page, "asyncio": asyncio, **names}

    async def run(self, serve: Callable[[], Awaitable[None]]) -> dict[str, Any]:
        self.names["serve"] = serve
        async with asyncio.timeout(PATIENCE):
            await eval(self.first, self.names)
        return self.names

    async def run_others(self) -> None:
        assert len(self.others) >= 5
        for block in self.others:
            result = eval(block, self.names)
            if asyncio.iscoroutine(result):
                await result


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults spread a fleet's start over five seconds."""

    def fast(**settings: Any) -> tenure.CoordinatorConfig:
        return tenure.CoordinatorConfig.fast(**{"startup_jitter_max": 0, **settings})

    monkeypatch.setattr("tenure.database.core.CoordinatorConfig", fast)


async def test_plugins(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    written: list[tuple[int, int]] = []
    told: list[tuple[object, ...]] = []

    async def write_report(page: int, token: int) -> None:
        written.append((page, token))

    async with tenure.lead(url):  # what has a history needs no cold start
        pass
    page = Page(
        "plugins.md",
        url,
        write_report=write_report,
        task={"epoch": 1},
        print=lambda *words: told.append(words),
    )

    async def serve() -> None:
        await eventually(lambda: written)
        plugin = page.names["plugin"]
        assert plugin.is_coordinator
        async with fleet(url, "pod-7") as others:
            await page.run_others()
            await eventually(others["pod-7"].is_leader)
            await eventually(lambda: not plugin.is_coordinator)
            await eventually(lambda: (1, 0) in written)  # the one that works alone
            await eventually(lambda: any(words[1:] == ("->", "pod-7") for words in told))
        await plugin.coordinator.stop()
        await plugin.stop()

    await page.run(serve)
    assert written[0] == (1, 2)
    assert any("from a former leader, epoch 1: it is" in str(words[0]) for words in told)
    assert any(words[0] == "done, with" for words in told)


async def test_supervisor(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []
    tokens: list[int] = []

    async def send_what_is_due(token: int) -> None:
        tokens.append(token)
        await asyncio.sleep(0.1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    page = Page(
        "supervisor.md",
        tmp_path.as_uri(),
        send_what_is_due=send_what_is_due,
        answer=answer,
        print=lambda *words: told.append(words),
    )
    in_tables = set(re.findall(r"^\| `(\w+)` \|.*\|.*\|$", page.text.partition("## Telemetry")[2], re.MULTILINE))
    assert {name.rpartition(".")[2] for name in TELEMETRY_NAMES} <= in_tables

    async def serve() -> None:
        async def running() -> bool:
            status = await page.names["candidate"].children()
            return status is not None and {child.state.value for child in status.children} == {"running"}

        while not await running():
            await asyncio.sleep(0.05)
        await page.run_others()
        await page.names["candidate"].stop()

    names = await page.run(serve)
    assert tokens
    assert [child.name for child in names["children"]] == ["mailer", "api", "log"]
    assert sum(words[:2] == ("node-1", 1) for words in told) == 3
    await eventually(lambda: ("node-1", "stopped") in told)


async def test_queue(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []
    handled: list[tuple[Any, int]] = []
    statements: list[tuple[object, ...]] = []

    async def work_on(body: Any, token: int) -> Any:
        handled.append((body, token))
        if body == {"order": 9}:
            raise tenure.Reject("no nines")
        return body

    @contextlib.asynccontextmanager
    async def transaction() -> AsyncIterator[Callable[..., Awaitable[int]]]:
        async def sql(*words: object) -> int:
            statements.append(words)
            return 1

        yield sql

    page = Page(
        "queue.md",
        tmp_path.as_uri(),
        begin=3,
        work_on=work_on,
        transaction=transaction,
        tenure=tenure,
        print=lambda *words: told.append(words),
    )

    def orders() -> list[int]:
        return [body["order"] for body, _ in handled if isinstance(body, dict)]

    async def serve() -> None:
        queue = page.names["queue"]
        for block in page.others:
            if "redrive" in block.co_names:
                await eventually(lambda: {*range(1000), 21} <= set(orders()))
                while not (await queue.stats()).dead:
                    await asyncio.sleep(0.05)
            if "blocking" in block.co_names:  # a program of its own, without a loop
                await asyncio.to_thread(exec, block, dict(page.names))
                continue
            result = eval(block, page.names)
            if asyncio.iscoroutine(result):
                await result
        await queue.enqueue({"order": 9})
        await eventually(lambda: any(words[1:] == ("dead:", "refused") for words in told))
        assert orders().count(8) == 2, "one with a key, one of the thousand; the second with that key was dropped"
        assert any(words[1:3] == ("refused", {"order": 9}) for words in told), "a dead letter was shown"
        assert any(isinstance(words[0], str) and words[0].endswith("-0") for words in told), "an id, from a thread"

    exec(page.before[2], page.names)
    names = await page.run(serve)
    await names["book"](_delivered({"sum": 3}))
    await names["show"](_delivered({"price": 5}))
    assert [words[1:] for words in statements] == [("an-id",), (3,), (5, 7, "an-item")]


def _delivered(body: Any) -> Any:
    class Delivered:
        id, token, ordering_key = "an-id", 7, "an-item"

    delivered = Delivered()
    delivered.body = body  # type: ignore[attr-defined]
    return delivered


def _first_line(process: subprocess.Popen[str]) -> str:
    """Within `PATIENCE`: a worker that never says anything is ended."""
    ended = threading.Timer(PATIENCE, process.kill)
    ended.start()
    try:
        assert process.stdout is not None
        return process.stdout.readline()
    finally:
        ended.cancel()


_OF_EVERY_LEDGER = {Halted.name, NotLed.name, ClockSkewed.name}


def _names_of(module: Any) -> set[str]:
    return {kind.name for kind in vars(module).values() if isinstance(kind, type) and hasattr(kind, "name")}


def test_every_setting_and_event_of_a_queue_is_in_its_page() -> None:
    page = (DOCS / "queue.md").read_text()
    settings = page.partition("## Settings and limits")[2].partition("## Deploying")[0]
    assert set(QueueSettings.__struct_fields__) <= set(re.findall(r"`(\w+)`", settings))
    told = _names_of(events) | _OF_EVERY_LEDGER
    table = page.partition("| `plg:s3-queue:` |")[2].partition("\n\n")[0]
    assert told == set(re.findall(r"^\| `([a-z\-]+)` \|", table, re.MULTILINE))
    command = (DOCS / "command.md").read_text().partition("**stats**")[2].partition("**peek**")[0]
    assert set(QueueStats.__struct_fields__) <= set(re.findall(r"`(\w+)`", command))


def test_the_first_queue(tmp_path: Path) -> None:
    """Word by word, but for the place: by somebody who has the page before them."""
    program = Page("queue.md", "", begin=3).before[0].replace("file:///tmp/first-queue", tmp_path.as_uri())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("sent to ada@example.org, attempt 1\n", "")


@pytest.mark.slow
def test_the_commands_of_the_queue(tmp_path: Path) -> None:
    """Each of them, in order, in a shell."""
    page = Page("queue.md", "", begin=3)
    (tmp_path / "mailer.py").write_text(page.before[1])
    # In one write: threads handle them.
    handler = "import os\ndef handle(message): os.write(1, f'handled {message.body[\"order\"]}\\n'.encode())"
    (tmp_path / "orders.py").write_text(handler)
    # Two places: the leader of one has to be somebody who works on its queue.
    place = {"file:///tmp/first-queue": (tmp_path / "first").as_uri(), "s3://bucket/app": (tmp_path / "app").as_uri()}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    quick = "--lease 3s --set startup_jitter_max=0s"

    def shell(line: str) -> subprocess.Popen[str]:
        for shown, real in place.items():
            line = line.replace(shown, real)
        tenure_here = f"set -o pipefail; shopt -s expand_aliases; alias tenure='exec {sys.executable} -m tenure'\n"
        return subprocess.Popen(
            ["bash", "-c", tenure_here + line],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    workers = [shell(f"tenure queue work s3://bucket/app orders orders:handle {quick}")]
    try:
        lines = re.findall(r"^    ((?:tenure|printf) .*)$", page.text, re.MULTILINE)
        assert len(lines) >= 13
        for line in lines:
            if " work " in line:
                workers.append(shell(f"{line} {quick}"))
                assert _first_line(workers[-1]) == "sending to ben@example.org\n"
                continue
            run = shell(line)
            out, err = run.communicate(timeout=PATIENCE)
            assert (run.returncode, err) == (0, ""), (line, out, err)
            assert out.strip(), line
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            out, err = worker.communicate(timeout=PATIENCE)
            assert worker.returncode == 0, err
            if worker is workers[0]:
                assert sorted(re.findall(r"handled (\d+)", out)) == ["23", "24", "25", "26"]
    finally:
        for worker in workers:
            worker.kill()


class Order(msgspec.Struct):
    order: int
    note: str = "none"


async def test_bodies_that_do_not_fit_the_code(tmp_path: Path) -> None:
    """The table of a rolling deploy in docs/queue.md."""
    seen: list[Any] = []
    async with asyncio.timeout(PATIENCE), tenure.Database(tmp_path.as_uri()) as db:
        strict = await db.use_plugin(tenure.S3QueuePlugin("strict", schema=Order))
        loose = await db.use_plugin(tenure.S3QueuePlugin("loose", max_attempts=2, backoff=0.01))
        strict.on_message(lambda message: seen.append(message.body), blocking="inline")
        loose.on_message(lambda message: seen.append(message.body["order"]), blocking="inline")
        await strict.enqueue_many([{"order": 1}, {"order": 2, "new": True}, {"number": 3}, {"order": "four"}])
        await loose.enqueue_many([{"order": 5, "new": True}, {"number": 6}])
        while len(await strict.dead_letters()) < 2 or len(await loose.dead_letters()) < 1:
            await asyncio.sleep(0.05)
        refused = await strict.dead_letters()
        (failed,) = await loose.dead_letters()
    assert sorted(map(str, seen)) == sorted(map(str, [Order(1), Order(2), 5]))
    assert [letter.body for letter in refused] == [{"number": 3}, {"order": "four"}]
    for letter in refused:
        assert (letter.attempts, letter.reason) == (1, "refused")
        assert "its body cannot be read" in letter.history[-1]["error"]
    assert (failed.attempts, failed.reason, failed.history[-1]["error"]) == (2, "failed 2 times", "KeyError: 'order'")


@pytest.mark.slow
async def test_ttl(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []
    removed: list[tuple[str, int]] = []

    async def remove_file(path: str, token: int) -> None:
        removed.append((path, token))

    page = Page("ttl.md", tmp_path.as_uri(), begin=1, remove_file=remove_file, print=lambda *words: told.append(words))

    async def serve() -> None:
        for block in page.others:
            if "blocking" in block.co_names:  # a program of its own, without a loop
                await asyncio.to_thread(exec, block, dict(page.names))
                continue
            result = eval(block, page.names)
            if asyncio.iscoroutine(result):
                await result
        db = page.names["db"]
        for name in ("sessions", "docs", "logs", "files"):  # every way to expire that the page has
            plugin = db.plugins["ttl", name]
            await db.resource(name).insert({"path": f"of {name}"}, id="last")
            await plugin.touch("last", ttl=0.001)
            while not (await plugin.run_cleanup()).counts.expired:
                await asyncio.sleep(0.1)
        assert (await db.resource("docs").get("last")).data["deleted_at"] is not None
        (kept,) = (await db.resource("old-logs").list()).records
        assert {"resource", "id", "version", "created_at", "expired_at", "data"} == set(kept.data)
        assert kept.data["data"] == {"path": "of logs"}
        await eventually(lambda: (1, ("last",)) in told)
        assert await db.resource("sessions").exists("s1"), "it was persisted"

    await page.run(serve)
    assert [path for path, token in removed if token > 0] == ["of files"]
    assert len([words for words in told if words[0] == "until"]) == 1


@pytest.mark.slow
def test_the_first_ttl(tmp_path: Path) -> None:
    program = Page("ttl.md", "", begin=1).before[0].replace("file:///tmp/first-ttl", tmp_path.as_uri())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert re.fullmatch(r"until \S+ \S+\+00:00\ngone\n", done.stdout), done.stdout
    assert done.stderr == ""


def test_every_setting_and_event_of_a_ttl_is_in_its_page() -> None:
    page = (DOCS / "ttl.md").read_text()
    settings = page.partition("## Settings and limits")[2].partition("\n## ")[0]
    assert set(TTLSettings.__struct_fields__) <= set(re.findall(r"`(\w+)`", settings))
    operating = page.partition("## Operating")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", operating))
    assert {*TTLStats.__struct_fields__, *Counts.__struct_fields__} <= named
    table = operating.partition("| `plg:ttl:` |")[2].partition("\n\n")[0]
    expected = _names_of(ttl_events) | _OF_EVERY_LEDGER | {LeadingBegan.name}
    assert expected == set(re.findall(r"^\| `([a-z\-]+)` \|", table, re.MULTILINE))


# docs/counters.md


@pytest.mark.req("EC-1")
async def test_counters(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []
    page = Page("counters.md", tmp_path.as_uri(), begin=1, print=lambda *words: told.append(words))

    async def serve() -> None:
        assert len(page.others) >= 6
        for block in page.others:
            if "blocking" in block.co_names:  # a program of its own, without a loop
                await asyncio.to_thread(exec, block, dict(page.names))
                continue
            result = eval(block, page.names)
            if asyncio.iscoroutine(result):
                await result
        counters = page.names["counters"]
        found = await counters.get("home")
        assert {field: str(total) for field, total in found.items()} == {
            "views": "1",
            "paid": "15.50",
            "load": "0.0",
            "stats.likes": "-1",
            "stats.longest": "None",
        }
        assert '{"views": 1, "paid": Decimal("15.50")' in page.text
        assert (await page.names["pages"].insert({"title": "Home"}, id="home")).data["paid"] == "15.50"

    await page.run(serve)
    assert any(words[1:] == ("were", "right") for words in told)
    assert ("home", 1, 4) in told, "by top: the total after the set, and every call"
    assert (-1,) in told, "from a thread, with nobody who leads"
    assert any(words[1:2] == ("calls wait for",) for words in told)


@pytest.mark.slow
def test_the_first_counters(tmp_path: Path) -> None:
    """Word by word, but for the place; and again, and then from a shell."""
    url = tmp_path.as_uri()
    program = Page("counters.md", "", begin=1).before[0].replace("file:///tmp/first-counters", url)
    for total in (1000, 2000):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
        assert (done.stdout, done.stderr) == (f"{total}\n{{'title': 'Home', 'views': {total}}}\n", "")
    said = [_run_here(line.replace("file:///tmp/first-counters", url)) for line in _counting("first-counters")]
    assert len(said) == 3
    assert re.search(r"^views +5 +int:sum$", said[-1], re.MULTILINE)
    assert re.search(r"^likes +1 +int:sum$", said[-1], re.MULTILINE)


def _counting(place: str) -> list[str]:
    lines = re.findall(r"^    (tenure counter .*)$", (DOCS / "counters.md").read_text(), re.MULTILINE)
    return [line for line in lines if place in line]


def test_the_commands_of_the_counters(tmp_path: Path) -> None:
    """Each of them, in order, where somebody leads."""
    url = tmp_path.as_uri()
    lines = _counting("s3://bucket/app")
    assert len(lines) >= 6
    plugin = tenure.EventualConsistencyPlugin("pages", ["views"], interval=0.1, idle_budget=72_000)
    with tenure.blocking.Database(url) as db:
        counters = db.use_plugin(plugin)
        counters.add("home", "views", mode="sync", timeout=PATIENCE)
        for line in lines:
            assert _run_here(line.replace("s3://bucket/app", url)).strip(), line
        assert counters.get("home", "views", consistent=True) == 4


def test_every_setting_stat_and_event_of_counters_is_in_their_page() -> None:
    page = (DOCS / "counters.md").read_text()
    settings = page.partition("## Settings and limits")[2].partition("\n## ")[0]
    assert set(CounterSettings.__struct_fields__) <= set(re.findall(r"`(\w+)`", settings))
    operating = page.partition("## Operating")[2].partition("\n## ")[0]
    assert set(CounterStats.__struct_fields__) <= set(re.findall(r"`(\w+)`", operating))
    table = operating.partition("| `plg:eventual-consistency:` |")[2].partition("\n\n")[0]
    expected = _names_of(counter_events) | _OF_EVERY_LEDGER | {LeadingBegan.name}
    assert expected == set(re.findall(r"^\| `([a-z\-]+)` \|", table, re.MULTILINE))
    for kind in vars(counter_events).values():
        if isinstance(kind, type) and hasattr(kind, "name"):
            (row,) = re.findall(rf"^\| `{kind.name}` \|.*$", table, re.MULTILINE)
            assert set(kind.__struct_fields__) <= set(re.findall(r"`(\w+)`", row)), kind


# docs/schedule.md


def _schedule_page(url: str, **names: Any) -> Page:
    return Page("schedule.md", url, begin=1, **names)


async def _away_from_its_times(text: str) -> None:
    """A page whose jobs fire by themselves while its blocks are run has more records than its blocks make."""
    now_ms = time.time() * 1000
    jobs = [
        job_from("any", cron(times, timezone=zone or "UTC"), function="any")
        for times, zone in re.findall(r'cron\("([^"]+)"(?:, timezone="([^"]+)")?', text)
    ]
    fires = [timetable_of(job, 0).next_after(int(now_ms)) for job in jobs]
    soon = min(fire - now_ms for fire in fires if fire is not None) / 1000
    if soon < PATIENCE / 2:
        await asyncio.sleep(soon + 2)


async def test_schedule(tmp_path: Path) -> None:
    await _away_from_its_times((DOCS / "schedule.md").read_text())
    told: list[tuple[object, ...]] = []
    reports: list[tuple[datetime, int]] = []
    statements: list[tuple[object, ...]] = []
    sent: list[str] = []

    async def write_report(scheduled: datetime, token: int) -> None:
        reports.append((scheduled, token))
        if len(reports) == 2:
            raise ValueError("not yet")

    async def send(who: str) -> None:
        sent.append(who)

    async def report() -> str:
        return "a report"

    @contextlib.asynccontextmanager
    async def transaction() -> AsyncIterator[Callable[..., Awaitable[int]]]:
        async def sql(*words: object) -> int:
            statements.append(words)
            return 1

        yield sql

    page = _schedule_page(
        tmp_path.as_uri(),
        write_report=write_report,
        remove_old_files=lambda: None,
        send=send,
        report=report,
        transaction=transaction,
        print=lambda *words: told.append(words),
    )

    async def serve() -> None:
        scheduler = page.names["scheduler"]
        for block in page.others:
            if "blocking" in block.co_names:  # a program of its own, without a loop
                await asyncio.to_thread(exec, block, dict(page.names))
                continue
            result = eval(block, page.names)
            if asyncio.iscoroutine(result):
                await result
        while (await scheduler.stats()).succeeded < 2:  # nightly, and welcome-7
            await asyncio.sleep(0.05)
        for job in ("dump", "digest", "nightly"):
            await scheduler.run_now(job)
        while (await scheduler.stats()).succeeded < 5:
            await asyncio.sleep(0.05)
        assert {record.job for record in await scheduler.history()} == {"welcome-7", "nightly", "dump", "digest"}
        nightly, _ = await scheduler.history("nightly")
        assert (nightly.outcome, nightly.attempts, nightly.token) == ("fired", 2, reports[-1][1])
        await eventually(lambda: ("nightly", "failed:", "ValueError: not yet") in told)
        await page.names["book"](_begun())
        await page.names["show"](_begun())

    await page.run(serve)
    assert sent == ["ben"]
    tokens = [token for _, token in reports]
    assert len(tokens) == 3 and tokens == sorted(set(tokens))
    assert any(str(words[0]).startswith("welcome-7#") for words in told)
    assert (["clean", "digest", "dump", "nightly"],) in told, "from a thread"
    assert [words[1:] for words in statements] == [("a-run",), (), ("a report", 7)]


def _begun() -> Any:
    class Begun:
        id, token = "a-run", 7

    return Begun()


def test_the_first_schedule(tmp_path: Path) -> None:
    """Word by word, but for the place and the time that it takes."""
    program = _schedule_page("").before[0].replace("file:///tmp/first-schedule", tmp_path.as_uri())
    for shown, quicker in (
        ("asyncio.sleep(15)", "asyncio.wait_for(fired.wait(), 60)"),
        ("async def main", "fired = asyncio.Event()\n\n\nasync def main"),
        ("flush=True)", "flush=True)\n    fired.set()"),
        ("SchedulerPlugin()", "SchedulerPlugin(config=tenure.CoordinatorConfig.fast(startup_jitter_max=0))"),
        ("import asyncio", "import asyncio, tenure"),
    ):
        assert shown in program
        program = program.replace(shown, quicker)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * PATIENCE)
    assert re.fullmatch(r"greet was due at \d\d:\d\d:\d\d, attempt 1\n", done.stdout), (done.stdout, done.stderr)
    for line in _commands("first-schedule"):
        shown = _run_here(line.replace("file:///tmp/first-schedule", tmp_path.as_uri()))
        assert len(shown.splitlines()) >= 2, line


def _commands(place: str) -> list[str]:
    lines = re.findall(r"^    (tenure schedule .*)$", (DOCS / "schedule.md").read_text(), re.MULTILINE)
    return [line for line in lines if place in line]


def _run_here(line: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(shlex.split(line)[1:])
    assert (code, err.getvalue()) == (0, ""), (line, err.getvalue())
    return out.getvalue()


def test_the_commands_of_the_schedule(tmp_path: Path) -> None:
    """Each of them, in order, on what the page declares."""
    url = tmp_path.as_uri()
    plugin = tenure.SchedulerPlugin(idle_budget=72_000)
    plugin.declare("nightly", tenure.cron("30 2 * * *", timezone="Europe/Berlin"), command=("true",))
    lines = _commands("s3://bucket/app")
    assert len(lines) >= 6
    with tenure.blocking.Database(url) as db:
        scheduler = db.use_plugin(plugin)
        while not (scheduler.is_leading and scheduler.jobs()):
            time.sleep(0.02)
        for line in lines:
            assert _run_here(line.replace("s3://bucket/app", url)).strip(), line


def test_the_times_of_the_schedule_page() -> None:
    """What its tables say about clock changes."""
    page = (DOCS / "schedule.md").read_text().partition("### When clocks are changed")[2].partition("\n## ")[0]
    (preview,) = _commands("--cron")
    assert "2026-03-29 03:00 +02:00" in _run_here(preview)
    assert "02:30 does not exist on 2026-03-29 in Europe/Berlin" in _run_here(preview)
    claims = [
        ("30 2 * * *", "Europe/Berlin", "skip", "2026-03-29", "2026-03-30 02:30 +02:00"),
        ("30 2 * * *", "Europe/Berlin", "once", "2026-03-29", "03:00 +02:00"),
        ("30 2 * * *", "Europe/Berlin", "both", "2026-10-25", "02:30 +02:00"),
        ("30 2 * * *", "America/New_York", "once", "2026-03-08", "2026-03-08 03:00 -04:00"),
        ("30 2 * * *", "America/New_York", "once", "2026-11-01", "2026-11-01 02:30 -05:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "once", "2026-10-04", "2026-10-04 02:30 +11:00"),
        ("30 2 * * *", "Africa/Casablanca", "once", "2026-02-15", "2026-02-15 02:30 +01:00"),
        ("30 2 * * *", "Africa/Casablanca", "once", "2026-03-22", "2026-03-22 03:00 +01:00"),
    ]
    for text, zone, dst, day, claim in claims:
        assert claim.replace(" -", " −") in page
        words = [
            "tenure",
            "schedule",
            "next",
            "--cron",
            text,
            "--timezone",
            zone,
            "--dst",
            dst,
            "--after",
            day,
            "-n",
            "1",
        ]
        assert claim in _run_here(shlex.join(words))


def test_every_option_event_and_outcome_of_a_schedule_is_in_its_page() -> None:
    page = (DOCS / "schedule.md").read_text()
    options = page.partition("## Options and limits")[2].partition("## Deploying")[0]
    named = set(re.findall(r"`(\w+)`", options))
    assert set(JobOptions.__annotations__) <= named
    assert set(inspect.signature(tenure.SchedulerPlugin).parameters) - {"enable_coordinator"} <= named
    table = page.partition("| `plg:scheduler:` |")[2].partition("\n\n")[0]
    expected = _names_of(schedule_events) | _OF_EVERY_LEDGER | {LeadingBegan.name}
    assert expected == set(re.findall(r"^\| `([a-z\-]+)` \|", table, re.MULTILINE))
    for word in (*Outcome, *State, *Misfire, *Overlap, *Interrupted, *Dst):
        assert f"`{word.value}`" in page or f'"{word.value}"' in page, word
    for field in (set(dir(tenure.Run)) | set(tenure.Run.__slots__)) - set(dir(object)):
        assert field.startswith("_") or f"`{field}" in page, field
    command = (DOCS / "command.md").read_text().partition("## schedule")[2]
    assert set(WORDS) <= set(re.findall(r"`([a-z\-]+)`", command))
