"""The queue for threads: on a directory, with real threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import blocking
from tenure.blocking import queue as blocking_queue
from tenure.errors import ConfigError, CoordinationError, TenureError
from tests.support.waiting import eventually_here

PATIENCE = 60.0
SWIFT = tenure.CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
NAMES = (
    "enqueue enqueue_many stats peek dead_letters redrive purge purge_dead pause resume result handler on_message on"
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "bucket").as_uri()


@contextmanager
def opened(url: str, **options: Any) -> Iterator[blocking.Queue]:
    with blocking.Database(url) as db:
        yield db.use_plugin(tenure.S3QueuePlugin("orders", config=SWIFT, **options))


def test_every_name_is_that_of_the_async_queue() -> None:
    for name in NAMES.split():
        assert callable(getattr(blocking.Queue, name))
        assert callable(getattr(tenure.S3QueuePlugin, name))


def test_what_threads_enqueue_threads_handle(url: str) -> None:
    """Handlers enqueue as well, and ask for results."""
    with opened(url, result_retention=60) as queue:

        @queue.handler(concurrency=4)
        def handle(message: tenure.Message) -> Any:
            assert threading.current_thread().name.startswith("queue-orders")
            if message.body["order"] == 1:
                return {"next": queue.enqueue({"order": 2})}
            return message.body

        first = queue.enqueue({"order": 1}, headers={"trace": "7"})
        following = queue.result(first, timeout=PATIENCE)["next"]
        assert queue.result(following, timeout=PATIENCE) == {"order": 2}
        assert queue.is_leading
        eventually_here(lambda: queue.stats().done == 2)
        with pytest.raises(ConfigError, match="has a handler already"):
            queue.handler(handle)


def test_a_coroutine_handles_too(url: str) -> None:
    handled: list[Any] = []

    async def handle(message: tenure.Message) -> None:
        handled.append(message.body)

    with opened(url) as queue:
        assert queue.on_message(handle, concurrency=2) is handle
        queue.enqueue(b"\x00\xff")
        eventually_here(lambda: handled == [b"\x00\xff"])


def test_a_handler_that_was_there_before(url: str) -> None:
    handled: list[Any] = []
    plugin = tenure.S3QueuePlugin("orders", config=SWIFT)
    plugin.handler(lambda message: handled.append(message.body))
    with blocking.Database(url) as db:
        db.use_plugin(plugin).enqueue(7)
        eventually_here(lambda: handled == [7])


def test_calls_of_many_threads_share_requests(url: str) -> None:
    threads, each = 32, 25
    with opened(url, producer_only=True) as queue, ThreadPoolExecutor(threads) as pool:
        together = threading.Barrier(threads)

        def enqueue(number: int) -> list[str]:
            together.wait(PATIENCE)
            return [queue.enqueue({"thread": number, "order": order}) for order in range(each)]

        ids = [id for found in pool.map(enqueue, range(threads)) for id in found]
        assert len(set(ids)) == threads * each
        assert 0 < queue.stats().inbox < threads * each / 2  # objects; some 35 on an idle machine
    seen: dict[int, list[int]] = {}
    done = threading.Semaphore(0)

    def handle(message: tenure.Message) -> None:
        seen.setdefault(message.body["thread"], []).append(message.body["order"])
        done.release()

    with opened(url) as queue:
        queue.on_message(handle, concurrency=1)
        for _ in range(threads * each):
            assert done.acquire(timeout=PATIENCE)
    assert {number: sorted(orders) for number, orders in seen.items()} == {
        number: list(range(each)) for number in range(threads)
    }


def test_an_iterator_runs_on_the_thread_that_calls(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_queue, "PIECE", 10)
    drawn_on: set[threading.Thread] = set()

    with opened(url, producer_only=True) as queue:

        def bodies(count: int) -> Iterator[Any]:
            for number in range(count):
                drawn_on.add(threading.current_thread())
                queue.stats()  # it may use the blocking API
                yield tenure.Outgoing(body=number) if number % 2 else number

        for count in (0, 9, 10, 25):
            assert len(set(queue.enqueue_many(bodies(count)))) == count
        assert drawn_on == {threading.current_thread()}
        assert len(queue.enqueue_many([1, 2])) == 2
        with pytest.raises(ConfigError, match="priority is 9999"):
            queue.enqueue_many(iter(()), priority=9999)


def test_people(url: str) -> None:
    refused: list[int] = []

    def handle(message: tenure.Message) -> None:
        refused.append(message.body)
        raise tenure.Reject("never")

    with opened(url) as queue:
        told: list[Any] = []
        queue.on("plg:s3-queue:messages-dead", told.append)
        queue.pause()
        eventually_here(lambda: queue.stats().paused)
        queue.enqueue_many([1, 2, 3])
        eventually_here(lambda: queue.stats().ready == 3)
        assert [message.body for message in queue.peek(limit=2)] == [1, 2]
        queue.on_message(handle)
        queue.resume()
        eventually_here(lambda: queue.stats().dead == 3)
        eventually_here(lambda: told)
        letter, *others = queue.dead_letters()
        assert (letter.reason, len(others)) == ("refused", 2)
        queue.redrive(letter.ref)
        eventually_here(lambda: len(refused) == 4)
        eventually_here(lambda: queue.stats().dead == 3)
        queue.purge_dead(queue.dead_letters(limit=1)[0].ref)
        eventually_here(lambda: queue.stats().dead == 2)
        queue.purge_dead()
        eventually_here(lambda: queue.stats().dead == 0)
        queue.pause()
        queue.enqueue(5)
        eventually_here(lambda: queue.stats().ready == 1)
        queue.purge()
        eventually_here(lambda: queue.stats().ready == 0)


def test_the_same_errors(url: str) -> None:
    with blocking.Database(url) as db:
        queue = db.use_plugin(tenure.S3QueuePlugin("orders", producer_only=True, result_retention=60))
        with pytest.raises(ConfigError, match="priority is 1001"):
            queue.enqueue(1, priority=1001)
        with pytest.raises(ConfigError, match="concurrency is 0"):
            queue.handler(concurrency=0)
        with pytest.raises(ConfigError, match="limit is 0"):
            queue.peek(limit=0)
        with pytest.raises(TimeoutError, match="there is no result of 'nobody-1-0'"):
            queue.result("nobody-1-0", timeout=0.1)
        with pytest.raises(CoordinationError, match="has no coordinator"):
            queue.on("*", print)
        with pytest.raises(ConfigError, match="there is a plugin 'orders'"):
            db.use_plugin(tenure.S3QueuePlugin("orders"))
        with pytest.raises(ConfigError, match="give an S3QueuePlugin"):
            db.use_plugin(tenure.CoordinatorPlugin())  # type: ignore[arg-type]
    with pytest.raises(TenureError, match="is closed"):
        queue.enqueue(1)
    with pytest.raises(TenureError, match="is closed"):
        queue.handler(print)
    with pytest.raises(TenureError, match="is not connected"):
        blocking.Database(url).use_plugin(tenure.S3QueuePlugin("orders"))


def test_closing_waits_for_what_runs(url: str) -> None:
    """The handler uses the queue while the database is being closed."""
    begun, ended = threading.Event(), threading.Event()
    with opened(url) as queue:

        @queue.handler
        def handle(message: tenure.Message) -> None:
            begun.set()
            time.sleep(0.5)
            queue.enqueue("from the last one", delay=3600)
            ended.set()

        queue.enqueue("first")
        assert begun.wait(PATIENCE)
    assert ended.is_set()
    with opened(url) as queue:
        eventually_here(lambda: (queue.stats().done, queue.stats().delayed) == (1, 1))
