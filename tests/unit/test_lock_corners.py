"""A lock where it is used in unusual ways: many threads, tasks that come and go, a store that was closed first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tenure.coordinator.config import Hosting
from tenure.coordinator.lock import DistributedLock, Held, LockKeeper
from tenure.coordinator.lock import keeper as keeper_module
from tenure.coordinator.lock.desk import Watch
from tenure.coordinator.lock.records import lock_key
from tenure.coordinator.lock.rules import Known
from tenure.election.records import encode
from tenure.errors import LockError, LockLost, StoreUnavailable
from tenure.store import Outcome, Unknown, Version
from tenure.store.memory import MemoryStore
from tests.unit.leases import at
from tests.unit.test_lock_rules import SetClock, held_at_zero, record

PATIENCE = 20.0


@pytest.mark.req("DB-4")
def test_the_first_acquisitions_of_a_keeper_may_come_from_many_threads_at_once() -> None:
    """Two of them made two threads, and the second one closed the keeper."""
    for _ in range(5):
        store, keeper, failures = MemoryStore(), LockKeeper(), list[BaseException]()
        together = threading.Barrier(4)
        threads = [
            threading.Thread(target=acquire_on_a_loop_of_its_own, args=(store, keeper, f"job{i}", together, failures))
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert failures == []
        assert len([thread for thread in threading.enumerate() if thread.name == "tenure-locks"]) == 1
        asyncio.run(keeper.aclose())
        while any(thread.name == "tenure-locks" for thread in threading.enumerate()):
            time.sleep(0.001)


def acquire_on_a_loop_of_its_own(
    store: MemoryStore, keeper: LockKeeper, name: str, together: threading.Barrier, failures: list[BaseException]
) -> None:
    async def main() -> None:
        together.wait()
        async with asyncio.timeout(PATIENCE):
            held = await DistributedLock(store, name, keeper=keeper).acquire()
            assert await held.release()

    try:
        asyncio.run(main())
    except BaseException as failure:
        failures.append(failure)


@pytest.mark.req("DB-4")
async def test_a_scope_that_another_task_leaves_gives_the_lock_back() -> None:
    """An async generator that nobody iterates to its end is closed by a task of the event loop's own."""
    lock = DistributedLock(MemoryStore(), "job", hosting=Hosting.LOOP)

    async def numbers() -> AsyncIterator[Held]:
        async with lock as held:
            yield held
            yield held

    generator = numbers()
    held = await anext(generator)
    await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]
    assert not held.is_held()
    async with asyncio.timeout(PATIENCE), lock as held:
        assert held.token == 2, "this task may enter again"
    await lock.aclose()


async def test_a_task_that_is_not_the_bodys_keeps_its_own_cancellation() -> None:
    lock = DistributedLock(MemoryStore(), "job", hosting=Hosting.LOOP)
    await lock.__aenter__()
    held = lock._scopes[asyncio.current_task()].held
    held.end("taken")
    held.lost()

    async def leave() -> bool | None:
        return await lock.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)

    with pytest.raises(asyncio.CancelledError):  # the body was here, and is told
        await asyncio.sleep(PATIENCE)
    assert await asyncio.create_task(leave()) is False, "a cancellation of that task, and none of the lock's"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await lock.aclose()


async def test_which_of_several_scopes_another_task_leaves_is_not_guessed() -> None:
    lock = DistributedLock(MemoryStore(), "job", hosting=Hosting.LOOP)
    async with lock as held:
        lock._scopes[object()] = lock._scopes[asyncio.current_task()]

        async def leave() -> None:
            await lock.__aexit__(None, None, None)

        with pytest.raises(LockError, match="another task"):
            await asyncio.create_task(leave())
        assert held.is_held()
    await lock.aclose()


@pytest.mark.parametrize("hosting", list(Hosting))
async def test_a_store_that_was_closed_first_does_not_hide_what_the_body_raised(
    hosting: Hosting, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    lock = DistributedLock(store, "job", ttl=0.6, hosting=hosting)
    with pytest.raises(ValueError, match="its own"):
        async with lock:
            await store.aclose()
            await asyncio.sleep(0.3)  # a renewal was tried, too
            raise ValueError("its own")
    await lock.aclose()
    assert not [record for record in caplog.records if "never retrieved" in record.getMessage()]


@pytest.mark.req("DB-4")
async def test_from_the_call_of_release_on_it_is_not_held() -> None:
    lock = DistributedLock(MemoryStore(), "job", ttl=30)
    held = await lock.acquire()
    lock._keeper.tell(time.sleep, 0.3)  # the thread that would release it is busy
    releasing = asyncio.create_task(held.release())
    await asyncio.sleep(0)
    assert not held.is_held()
    releasing.cancel()
    await asyncio.wait([releasing])
    again = await lock.acquire(timeout=PATIENCE)
    assert again.token == 2, "it went on although its caller was cancelled"
    await lock.aclose()


class Sluggish(MemoryStore):
    """A thread of the loop's own pool is busy for a while after each write, as with files on a slow disk."""

    seconds = 0.0

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        await asyncio.sleep(self.seconds)
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.6)
        return await super().replace(key, body, expected)


async def test_a_release_while_the_thread_of_locks_ends_does_not_wait_for_ever() -> None:
    store = Sluggish()
    lock = DistributedLock(store, "job", ttl=4)
    held = await lock.acquire()
    await held.renew()
    lock._keeper.tell(held._tenant._tenancy._lose, "taken")  # type: ignore[union-attr]
    store.seconds = 0.9
    closing = asyncio.create_task(lock.aclose())
    await asyncio.sleep(0.2)
    assert not closing.done(), "it waits for the pool"
    async with asyncio.timeout(PATIENCE):
        assert await held.release() is False
        await closing


@pytest.mark.req("DB-4")
async def test_a_release_that_is_cut_short_by_the_end_of_all_locks_is_no_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper_module, "PATIENCE_SECONDS", 0.2)
    store = Sluggish()
    lock = DistributedLock(store, "job", ttl=30)
    held = await lock.acquire()
    store.seconds = PATIENCE
    releasing = asyncio.create_task(held.release())
    await asyncio.sleep(0.1)
    await lock.aclose()
    await asyncio.wait([releasing], timeout=PATIENCE)
    assert not releasing.cancelled(), "nobody cancelled it"
    assert releasing.result() is False


async def test_a_release_in_the_body_does_not_cancel_it() -> None:
    lock = DistributedLock(MemoryStore(), "job", ttl=0.5)
    async with lock as held:
        assert await held.release()
        await asyncio.sleep(0.6)
    await lock.aclose()


@pytest.mark.req("DB-4")
def test_a_release_ends_it_whatever_the_wall_clock_does() -> None:
    clock = SetClock()
    held = held_at_zero(clock)
    clock.now = at(1, wall_ahead=5.0)  # for a while it seems that there was a pause
    held.sending(clock.now, 0.0)
    clock.now = at(1.5)
    assert held.time_to_wind_up() == 0, "somebody else may hold it by now"
    assert not held.is_held()


class Interrupted(list[Callable[[], None]]):
    """Another thread finds the loss at the worst instant."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    def append(self, callback: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._lose)
        thread.start()
        thread.join(0.2)
        super().append(callback)

    def _lose(self) -> None:
        self._held.end("taken")
        self._held.lost()


@pytest.mark.req("DB-4")
def test_a_loss_at_the_instant_of_entering_is_told() -> None:
    held = held_at_zero(SetClock())
    told = threading.Event()
    held._on_loss = Interrupted(held)
    held.on_loss(told.set)
    assert told.wait(PATIENCE)


async def test_what_was_seen_of_many_locks_is_remembered() -> None:
    """`try_acquire()` over all of them in turn must find out that a holder died."""
    keeper = LockKeeper()
    for number in range(5000):
        keeper.keep_watch(f"lock{number}", Watch(known=Known(number + 1, "u")))
    assert keeper.watch_of("lock0").known == Known(1, "u")
    for number in range(20_000):
        keeper.keep_watch(f"more{number}", Watch())
    assert len(keeper._seen) <= 10_000


async def test_a_lock_of_a_database_does_not_close_all_the_others() -> None:
    store, keeper = MemoryStore(), LockKeeper(hosting=Hosting.LOOP)
    one, other = (DistributedLock(store, name, keeper=keeper) for name in ("one", "other"))
    held = await other.acquire()
    with pytest.raises(LockError, match="Database"):
        await one.aclose()
    assert held.is_held()
    await keeper.aclose()


@pytest.mark.req("DB-4")
async def test_a_body_that_ignores_the_loss_is_told_at_its_end() -> None:
    store = MemoryStore()
    lock = DistributedLock(store, "job", ttl=0.5, hosting=Hosting.LOOP)
    with pytest.raises(LockLost, match="taken"):
        async with lock:
            await store.put(lock_key("job"), encode(record(token=3)))
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                pass
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await lock.aclose()


@pytest.mark.req("DB-4")
@pytest.mark.parametrize("token", [2, 3])
async def test_a_release_says_that_others_held_it_also_where_the_clock_did_not_notice(token: int) -> None:
    """A machine that was stopped with all its clocks believes that its time is not over."""
    store = MemoryStore()
    lock = DistributedLock(store, "job", ttl=30, hosting=Hosting.LOOP)
    held = await lock.acquire()
    await store.put(lock_key("job"), encode(record(token=token, over_lapsed=token == 2)))
    assert held.is_held()
    assert await held.release() is False
    await lock.aclose()


class Mute(MemoryStore):
    """What it is told to replace happens, and it does not say so."""

    mute = False

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        outcome = await super().replace(key, body, expected)
        if not self.mute:
            return outcome
        await self.put(key, encode(record(token=3)))  # and two others came since
        return Unknown(StoreUnavailable("no answer"))


async def test_a_release_that_landed_without_an_answer_was_ours() -> None:
    store = Mute()
    lock = DistributedLock(store, "job", ttl=30, hosting=Hosting.LOOP)
    held = await lock.acquire()
    store.mute = True
    assert await held.release() is True
    await lock.aclose()
