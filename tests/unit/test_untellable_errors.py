"""Exceptions of users' code that cannot be told, or whose text cannot be written: a failure like any other."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from tenure import Database, Message, S3QueuePlugin, SchedulerPlugin, every
from tenure.coordinator.config import CoordinatorConfig
from tenure.plugins.ttl.calling import Caller, Expired
from tests.support.waiting import eventually

QUICK = CoordinatorConfig(startup_jitter_max=0.0)


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Nameless(Exception):
    """As of a file whose name is not UTF-8: Python tells that with halves of surrogate pairs."""

    def __str__(self) -> str:
        return "no such file: caf\udce9.txt"


ERRORS = pytest.mark.parametrize(
    ("error", "text"),
    [(Silent(), "Silent: (its text cannot be had)"), (Nameless(), "Nameless: no such file: caf?.txt")],
    ids=["silent", "nameless"],
)


@ERRORS
@pytest.mark.parametrize("at_most_once", [False, True])
async def test_of_a_handler(error: Exception, text: str, at_most_once: bool, tmp_path: Path) -> None:
    async def handler(message: Message) -> None:
        if message.body == "bad":
            raise error

    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin(
            "jobs", config=QUICK, max_attempts=1, delivery="at-most-once" if at_most_once else "at-least-once"
        )
        queue.on_message(handler, concurrency=1)
        await db.use_plugin(queue)
        await queue.enqueue("bad")
        await queue.enqueue("good")

        async def good_is_done() -> bool:
            return (await queue.stats()).done >= (2 if at_most_once else 1)

        await eventually(good_is_done)
        if not at_most_once:
            (letter,) = await queue.dead_letters()
            assert (letter.body, letter.history[-1]["error"]) == ("bad", text)


@ERRORS
async def test_of_a_job(error: Exception, text: str, tmp_path: Path) -> None:
    async def work() -> None:
        raise error

    async with Database(f"file://{tmp_path}") as db:
        schedule = SchedulerPlugin(config=QUICK)
        schedule.job(every(3600), id="bad")(work)
        await db.use_plugin(schedule)
        await schedule.run_now("bad")

        async def is_told() -> bool:
            return any(run.error for run in await schedule.history("bad"))

        await eventually(is_told)
        assert [run.error for run in await schedule.history("bad")] == [text]


@ERRORS
async def test_of_a_callback(error: Exception, text: str) -> None:
    async def callback(expired: Expired) -> None:
        raise error

    caller = Caller(callback, timeout=60.0, threads=1)
    now = datetime.fromtimestamp(0, UTC)
    given = Expired(resource="r", id="x", data={}, version=1, expired_at=now, created_at="", token=1, attempt=1)
    assert await caller.call(given) == text


class Checked(msgspec.Struct):
    """A schema is users' code as well."""

    name: str
    error: ClassVar[Exception]

    def __post_init__(self) -> None:
        if self.name == "bad":
            raise self.error


class Unnamed(KeyError):
    def __str__(self) -> str:
        return "caf\udce9"


class Wordless(OSError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [Unnamed(), Wordless()], ids=["nameless", "silent"])
async def test_of_a_schema(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checked, "error", error, raising=False)
    handled = []

    async def handler(message: Message) -> None:
        handled.append(message.body.name)

    async with Database(f"file://{tmp_path}") as db:
        queue = S3QueuePlugin("jobs", config=QUICK, schema=Checked, visibility_timeout=30)
        queue.on_message(handler, concurrency=1)
        await db.use_plugin(queue)
        await queue.enqueue_many([{"name": "good"}, {"name": "bad"}, {"name": "fine"}])

        async def all_are_decided() -> bool:
            stats = await queue.stats()
            return (stats.done, stats.dead) == (2, 1)

        await eventually(all_are_decided)
        (letter,) = await queue.dead_letters()
        assert letter.history[-1]["error"].startswith("its body cannot be read: ")
        assert sorted(handled) == ["fine", "good"]
