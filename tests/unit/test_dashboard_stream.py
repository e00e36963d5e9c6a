"""Server-sent events: what changed, once for each change, and never more than a page can read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from tenure.coordinator.layout import STATE, namespace_store
from tenure.dashboard import stream
from tenure.dashboard.board import Board
from tenure.dashboard.bounds import MAX_CLIENTS
from tenure.dashboard.collector import Collector
from tenure.dashboard.sections import NAMES, Meta, QueueRow, Queues, Workers
from tenure.dashboard.stream import EventStream
from tenure.election.records import encode
from tenure.store.memory import MemoryStore
from tenure.testing import SimulatedClock
from tests.unit.dashboards import TOKEN, a_lease, a_store, events_in, shown, turns


class Reader:
    """A page: what it was sent, and how fast it reads."""

    def __init__(self) -> None:
        self.text = ""
        self.started: Message | None = None
        self.ended = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.leaves = asyncio.Event()
        self.largest = 0

    async def receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.started = message
        else:
            self.largest = max(self.largest, len(message["body"]))
            self.text += message["body"].decode()
            self.ended = not message.get("more_body", False)

    def events(self) -> list[tuple[str, Any]]:
        return events_in(self.text)

    def take(self) -> list[tuple[str, Any]]:
        found, self.text = self.events(), ""
        return found


class Scene:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.store = MemoryStore(clock=self.clock)
        self.collector = Collector(self.store, "memory://", "default", interval=1.0, clock=self.clock)
        self.closing = asyncio.Event()
        self.allowed = True
        self.reader = Reader()

    @property
    def board(self) -> Board:
        return self.collector.board

    @asynccontextmanager
    async def streaming(self) -> AsyncIterator[Reader]:
        task = asyncio.ensure_future(
            EventStream(self.collector, self.clock, self.closing, lambda: self.allowed)(
                {"type": "http"}, self.reader.receive, self.reader.send
            )
        )
        await turns()
        try:
            yield self.reader
        finally:
            self.reader.reads.set()
            self.reader.leaves.set()
            await asyncio.wait_for(task, 10)
            assert self.collector.clients == 0

    async def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await turns()


@pytest.mark.req("OP-5")
async def test_all_sections_at_first_and_then_what_changed() -> None:
    scene = Scene()
    async with scene.streaming() as reader:
        assert scene.collector.clients == 1
        assert scene.collector.is_watched()
        assert reader.started is not None
        assert (b"content-type", b"text/event-stream; charset=utf-8") in reader.started["headers"]
        assert [name for name, _ in reader.take()] == list(NAMES)
        scene.board.put("workers", Workers(total=7))
        await turns()
        assert reader.take() == [], "not twice within a second"
        await scene.passes(1.1)
        assert [(name, data["total"]) for name, data in reader.take()] == [("workers", 7)]
        scene.board.put("workers", Workers(total=7))
        await scene.passes(1.1)
        assert reader.take() == [], "nothing has changed"


async def test_the_time_alone_is_no_change() -> None:
    scene = Scene()
    async with scene.streaming() as reader:
        reader.take()
        meta = scene.board.section("meta")
        assert isinstance(meta, Meta)
        scene.collector._post_lease()
        await scene.passes(1.1)
        assert "meta" not in [name for name, _ in reader.take()]
        scene.collector._troubles["lease"] = "it does not answer"
        scene.collector._post_lease()
        await scene.passes(1.1)
        (data,) = [data for name, data in reader.take() if name == "meta"]
        assert data["problem"]["text"] == "it does not answer"
        assert data["nowMs"] == scene.clock.read().wall_ns // 1_000_000


@pytest.mark.req("OP-5")
async def test_who_is_slow_gets_the_newest() -> None:
    scene = Scene()
    async with scene.streaming() as reader:
        reader.take()
        reader.reads.clear()
        for number in range(500):
            scene.board.put("workers", Workers(total=number))
            await scene.passes(0.01)
        reader.reads.set()
        await scene.passes(1.1)
        await scene.passes(1.1)
        totals = [data["total"] for name, data in reader.take() if name == "workers"]
        assert totals[-1] == 499
        assert len(totals) <= 2


async def test_who_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SEND_WITHIN", 0.05)
    scene = Scene()
    scene.reader.reads.clear()
    await asyncio.wait_for(
        EventStream(scene.collector, scene.clock, scene.closing, lambda: True)(
            {"type": "http"}, scene.reader.receive, scene.reader.send
        ),
        10,
    )
    assert scene.collector.clients == 0


async def test_a_large_section_is_sent_more_rarely() -> None:
    scene = Scene()
    rows = [QueueRow(name=f"queue-{number}") for number in range(1000)]
    scene.board.put("queues", Queues(total=1000, rows=rows))
    assert 2 < scene.board.seconds_between("queues") < 10
    async with scene.streaming() as reader:
        reader.take()
        scene.board.put("queues", Queues(total=1001, rows=rows))
        await scene.passes(1.1)
        assert reader.take() == []
        await scene.passes(8)
        assert [data["total"] for name, data in reader.take() if name == "queues"] == [1001]


async def test_it_is_kept_alive() -> None:
    scene = Scene()
    async with scene.streaming() as reader:
        reader.take()
        await scene.passes(15.1)
        assert reader.text.startswith(": ")


@pytest.mark.parametrize("how", ["closed", "not allowed"])
async def test_it_ends_with_the_server_or_the_session(how: str) -> None:
    scene = Scene()
    async with scene.streaming() as reader:
        if how == "closed":
            scene.closing.set()
        else:
            scene.allowed = False
            await scene.passes(15.1)
        await turns()
        assert reader.ended
        assert scene.collector.clients == 0


async def test_no_more_pages_than_are_allowed() -> None:
    async with shown(a_store()) as page:
        page.dashboard.collector.clients = MAX_CLIENTS
        response = await page.get("/events")
        assert response.status_code == 503
        assert response.headers["retry-after"]
        page.dashboard.collector.clients = 0


async def test_who_asks_for_the_headers_alone_does_not_watch() -> None:
    async with shown(a_store()) as page, asyncio.timeout(10):
        response = await page.head("/events")
        assert (response.status_code, response.content) == (200, b"")
        assert response.headers["content-type"].startswith("text/event-stream")
        assert page.dashboard.collector.clients == 0


@pytest.mark.req("OP-5")
async def test_a_change_of_leader_is_pushed() -> None:
    scene = Scene()
    own = namespace_store(scene.store, "default")
    await own.put(STATE, encode(a_lease("ada")))
    looking = asyncio.ensure_future(scene.collector.run())
    try:
        async with scene.streaming() as reader:
            await scene.passes(1.1)
            await scene.passes(1.1)
            assert [data["leader"] for name, data in reader.take() if name == "lease"][-1] == "ada"
            await own.put(STATE, encode(a_lease("bob", epoch=2)))
            await scene.passes(1.1)
            await scene.passes(1.1)
            told = reader.take()
            assert [data["leader"] for name, data in told if name == "lease"] == ["bob"]
            assert [data["rows"][-1]["kind"] for name, data in told if name == "changes"] == ["elected"]
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_a_session_that_ends_ends_its_stream() -> None:
    async with shown(a_store(), token=TOKEN, read_needs_token=True) as page:
        assert (await page.get("/events")).status_code == 401
        await page.sign_in()
        access = page.dashboard.access
        cookie = f"tenure_session_8321={page.cookies['tenure_session_8321']}".encode()
        by_session = access.stays(
            Request({"type": "http", "headers": [(b"host", b"127.0.0.1:8321"), (b"cookie", cookie)]})
        )
        bearer = f"Bearer {TOKEN}".encode()
        by_token = access.stays(Request({"type": "http", "headers": [(b"authorization", bearer)], "client": None}))
        assert by_session()
        await page.post("/api/sign-out")
        assert not by_session()
        assert by_token()
