"""Plain callbacks of a TTL, each in a thread of its own: one that hangs costs nobody else anything."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tenure.plugins.ttl import calling
from tenure.plugins.ttl.calling import Caller, Expired, NotCalled
from tenure.plugins.ttl.events import CallbackFailed
from tests.unit.ttl_rig import Rig

_SOON = 10.0


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """What a callback waits for that hangs; set at the end, so that none outlives its test."""
    event = threading.Event()
    yield event
    event.set()


def given(id: str) -> Expired:
    now = datetime.fromtimestamp(0, UTC)
    return Expired(resource="r", id=id, data={}, version=1, expired_at=now, created_at="", token=1, attempt=1)


async def until_room(caller: Caller, room: int) -> None:
    async with asyncio.timeout(_SOON):
        while caller.room < room:
            await asyncio.sleep(0.01)


async def test_one_that_hangs_keeps_no_other_from_being_called(stuck: threading.Event) -> None:
    called: list[str] = []

    def callback(expired: Expired) -> None:
        called.append(expired.id)
        if expired.id == "hangs":
            stuck.wait()

    caller = Caller(callback, timeout=0.15, threads=1)
    assert "longer than 0.15 s" in str(await caller.call(given("hangs")))
    assert [await caller.call(given("good")) for _ in range(3)] == [None] * 3
    assert called == ["hangs", "good", "good", "good"]


async def test_who_waits_for_a_thread_has_its_whole_time_before_it(stuck: threading.Event) -> None:
    def callback(expired: Expired) -> None:
        if expired.id == "hangs":
            stuck.wait()

    caller = Caller(callback, timeout=0.3, threads=1)
    hung, *good = await asyncio.gather(*(caller.call(given(id)) for id in ("hangs", "a", "b", "c")))
    assert hung is not None
    assert good == [None] * 3


async def test_those_left_behind_are_bounded(
    stuck: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calling, "MAX_LEFT_BEHIND", 2)
    called: list[str] = []

    def callback(expired: Expired) -> None:
        called.append(expired.id)
        stuck.wait()

    caller = Caller(callback, timeout=0.05, threads=1)
    for number in range(2):
        assert await caller.call(given(f"r{number}")) is not None
    assert "record 'r0' of 'r'" in caplog.text
    assert "left behind" in caplog.text
    assert caller.room == 0
    with pytest.raises(NotCalled, match="2 threads"):
        await caller.call(given("r2"))
    assert called == ["r0", "r1"]
    stuck.set()
    await until_room(caller, 2)
    assert await caller.call(given("r2")) is None


async def test_one_that_is_cancelled_is_left_behind_as_well(stuck: threading.Event) -> None:
    caller = Caller(lambda expired: stuck.wait(), timeout=60.0, threads=1)
    whole = caller.room
    call = asyncio.ensure_future(caller.call(given("x")))
    while caller.room == whole:
        await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.wait([call])
    assert caller.room == whole - 1
    stuck.set()
    await until_room(caller, whole)


async def test_without_a_thread_it_was_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    caller = Caller(lambda expired: None, timeout=60.0, threads=1)
    whole = caller.room
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(NotCalled, match="can't start new thread"):
            await caller.call(given("x"))
    assert caller.room == whole
    assert await caller.call(given("x")) is None


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration])
async def test_whatever_is_raised_in_a_thread_ends_nothing_else(kind: type[BaseException]) -> None:
    def callback(expired: Expired) -> None:
        raise kind

    assert kind.__name__ in str(await Caller(callback, timeout=60.0, threads=1).call(given("x")))


async def test_a_thread_has_the_context_of_its_call() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []
    caller = Caller(lambda expired: seen.append(variable.get()), timeout=60.0, threads=1)
    variable.set("of the call")
    assert await caller.call(given("x")) is None
    assert seen == ["of the call"]


async def test_what_a_plain_function_gives_may_be_something_to_wait_for() -> None:
    done: list[str] = []

    async def later(expired: Expired) -> None:
        done.append(expired.id)

    assert await Caller(lambda expired: later(expired), timeout=60.0, threads=1).call(given("x")) is None
    assert done == ["x"]


def test_above_the_bound_no_attempt_is_used_up() -> None:
    called: list[str] = []

    class Full(Caller):
        room = 1

    async def callback(expired: Expired) -> None:
        called.append(f"{expired.id}{expired.attempt}")

    with Rig(ttl=20.0, callback=callback, max_attempts=2, backoff=0.1) as rig:
        leader, writer = rig.node("leader"), rig.node("writer")
        leader.ttl._caller = caller = Full(callback, timeout=60.0, threads=1)
        caller.room = 0
        leader.lead()
        for id in "xyz":
            rig.done(writer, lambda id=id: writer.things.insert({}, id))
        rig.wait(60.0)
        assert called == []
        assert rig.done(writer, writer.ttl.stats).calling == 0
        caller.room = 1
        rig.wait(30.0)
        assert sorted(called) == ["x1", "y1", "z1"]
        assert rig.of(CallbackFailed) == []
        assert rig.entries == []


_HANGS = """
import asyncio, time
from datetime import datetime, UTC
from tenure.plugins.ttl.calling import Caller, Expired

async def main():
    caller = Caller(lambda expired: time.sleep(120), timeout=0.1, threads=1)
    now = datetime.now(UTC)
    given = Expired(resource="r", id="x", data={}, version=1, expired_at=now, created_at="", token=1, attempt=1)
    assert await caller.call(given) is not None
    print("over")

asyncio.run(main())
"""


def test_one_that_hangs_does_not_keep_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=20.0, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("Traceback")) == (0, "over\n", 0), ended.stderr
