"""Where locks are kept: one thread with a loop of its own for all locks of a database, or the loop of the caller."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.coordinator.config import Hosting
from tenure.coordinator.lock.contest import Contest, elapsed_pause
from tenure.coordinator.lock.desk import Watch
from tenure.coordinator.lock.tenancy import Tenancy
from tenure.coordinator.loop_watch import LoopWatch
from tenure.coordinator.runner import LoopRunner, Runner, ThreadRunner
from tenure.entropy import Random
from tenure.errors import ForkedProcess, LockError

_log = logging.getLogger("tenure.lock")

T = TypeVar("T")

PATIENCE_SECONDS = 15.0
"""How long giving everything back may take. What is not given back by then lapses."""
COURTESY_SECONDS = 0.05
"""For so long after a release this process does not take the same lock again: others poll, and would starve."""
_MAX_REMEMBERED_LOCKS = 10_000
"""A process that tries more locks than this in turn does not find out which of their holders died."""


class LockCensus(msgspec.Struct, frozen=True):
    """How many locks one process holds, and how many of its tasks wait for one."""

    held: int
    waiting: int


class LockKeeper:
    """Renews every lock of one `Database`, and gives all of them back at its end. Starts with the first acquisition.

    Blocking code does not cost a lock, since it is renewed on a thread. When the loop that acquired a lock is closed,
    when the interpreter ends, and on `aclose()`, what is still held is released.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, hosting: Hosting = Hosting.THREAD) -> None:
        self._clock = clock
        self._hosting = hosting
        self._runner: Runner | None = None
        self._pid = os.getpid()
        self._starting = threading.Lock()  # the first acquisitions may come from several threads at once
        self._closed = False
        self._thread_ends = False
        self._closing = asyncio.Event()
        self._contests: set[Contest] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self._watches: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._released: dict[str, Reading] = {}
        self._seen: dict[str, Watch] = {}
        self.tenancies: set[Tenancy] = set()
        self.bodies: set[tuple[str, object]] = set()
        """(lock, task): who is inside `async with`, and would wait for itself."""

    async def aclose(self) -> None:
        """Give back every lock, and end. Bounded; whoever waits for a lock gets a `LockError`."""
        if os.getpid() != self._pid:
            return
        with self._starting:
            self._closed = True
            runner = self._runner
        if runner is None:
            return
        runner.tell(self._closing.set)
        await runner.ended()

    def census(self) -> LockCensus:
        """From any thread."""
        return LockCensus(len(self.tenancies), len(self._contests))

    # For locks: from the caller's loop

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Have `work` done where locks are kept."""
        try:
            return await self._running().ask(work)
        except (RuntimeError, LockError):
            work.close()
            if self._closed:
                raise self._is_closed() from None
            raise

    async def give_back(self, tenancy: Tenancy) -> bool:
        """Release it, and say whether it was ours. It goes on if the caller is cancelled, or this keeper is closed."""
        self.check_process()
        runner = self._runner
        assert runner is not None
        runner.tell(self._begin_release, tenancy)  # also if the caller is cancelled before the next line is heard
        work = self._released_by(tenancy)
        try:
            return await runner.ask(work)
        except RuntimeError:
            work.close()  # its thread has ended, and everything was released there
            return tenancy.outcome is True

    def tell(self, call: Callable[..., object], *arguments: object) -> None:
        if self._runner is not None and os.getpid() == self._pid:
            self._runner.tell(call, *arguments)

    def watch_of(self, key: str) -> Watch:
        """What was seen of this lock before, so that short waits add up to a long one. A copy: the answers to two
        contenders may overtake each other, and each must only go by what it knew when it asked."""
        seen = self._seen.get(key)
        return Watch(seen.sight, seen.known) if seen is not None else Watch()

    def forget_watch(self, key: str) -> None:
        self._seen.pop(key, None)

    def keep_watch(self, key: str, watch: Watch) -> None:
        self._seen.pop(key, None)
        self._seen[key] = Watch(watch.sight, watch.known)
        if len(self._seen) > _MAX_REMEMBERED_LOCKS:
            del self._seen[next(iter(self._seen))]

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"locks were opened in process {self._pid} and used in its forked child {os.getpid()}: make a Database "
                "in the child itself (gunicorn: in post_fork; multiprocessing: 'spawn')"
            )

    def _running(self) -> Runner:
        self.check_process()
        with self._starting:
            if self._closed:
                raise self._is_closed()
            if self._runner is None:
                runner: Runner = (
                    ThreadRunner("tenure-locks", _Release(self)) if self._hosting is Hosting.THREAD else LoopRunner()
                )
                runner.start(self._main)
                self._runner = runner
            return self._runner

    # Where locks are kept

    async def contend(self, contest: Contest, random: Random, *, courteous: bool) -> Tenancy | None:
        """Run `contest`. It goes on if the caller is cancelled; the caller then calls `drop`."""
        if self._closing.is_set():
            raise self._is_closed()
        pause = 0.0
        if courteous:
            pause = elapsed_pause(self._released.get(contest.name), self._clock.read(), COURTESY_SECONDS, random)
        contest.task = asyncio.get_running_loop().create_task(contest.run(pause))
        self._contests.add(contest)
        try:
            await asyncio.wait([contest.task])
        finally:
            self._contests.discard(contest)
        if contest.task.cancelled():
            raise self._is_closed()
        return contest.task.result()

    def _begin_release(self, tenancy: Tenancy) -> None:
        if not self._ends():  # what is begun after that is never ended
            tenancy.release()

    async def _released_by(self, tenancy: Tenancy) -> bool:
        if self._ends():
            return tenancy.outcome is True
        try:
            return await asyncio.shield(tenancy.release())
        except asyncio.CancelledError:
            if self._ends():  # cancelled by that, and not by whoever asked
                return tenancy.outcome is True
            raise

    def _ends(self) -> bool:
        """Is the thread's loop being taken down, with whatever is left on it?"""
        return self._thread_ends

    def drop(self, contest: Contest) -> None:
        """The caller is gone, without the lock: nothing may be left of the attempt."""
        try:
            self._in_background(self._dissolve(contest))
        except RuntimeError:
            pass  # its loop is being taken down; what was sent lapses

    async def _dissolve(self, contest: Contest) -> None:
        task = contest.task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the caller was told already, or does not want to know
        if contest.tenancy is not None:
            await asyncio.wait([contest.tenancy.release()])
        elif contest.desk.may_have_landed and not await contest.desk.withdraw():
            _log.warning("lock %r: an attempt that was given up may still land; then it lapses", contest.name)

    def install(self, tenancy: Tenancy) -> None:
        """Keep what was just granted."""
        self.tenancies.add(tenancy)
        tenancy.begin()
        if self._hosting is Hosting.THREAD and tenancy.user_loop not in self._watches:
            watch = LoopWatch(
                tenancy.user_loop,
                self._clock,
                stalled=lambda seconds: None,  # that is what this thread is for
                recovered=lambda: None,
                gone=lambda: self._loop_is_gone(tenancy.user_loop),
            )
            self._watches[tenancy.user_loop] = asyncio.get_running_loop().create_task(watch.run())

    def forget(self, tenancy: Tenancy) -> None:
        """It is over, one way or another."""
        self.tenancies.discard(tenancy)
        if tenancy.held.ended == "released":
            self._released.pop(tenancy.held.name, None)
            self._released[tenancy.held.name] = self._clock.read()
            if len(self._released) > _MAX_REMEMBERED_LOCKS:
                del self._released[next(iter(self._released))]
        if not any(other.user_loop is tenancy.user_loop for other in self.tenancies):
            watch = self._watches.pop(tenancy.user_loop, None)
            if watch is not None and watch is not asyncio.current_task():
                watch.cancel()

    def _loop_is_gone(self, loop: asyncio.AbstractEventLoop) -> None:
        left = [tenancy for tenancy in self.tenancies if tenancy.user_loop is loop]
        _log.info("the event loop that acquired %d locks was closed: they are released", len(left))
        for tenancy in left:
            tenancy.release()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            task = asyncio.get_running_loop().create_task(work)
        except RuntimeError:
            work.close()
            raise
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _main(self) -> None:
        try:
            await self._closing.wait()
        finally:
            self._closed = True
            self._closing.set()
            await self._wind_up()
            self._thread_ends = self._hosting is Hosting.THREAD

    async def _wind_up(self) -> None:
        for contest in list(self._contests):
            if contest.task is not None:
                contest.task.cancel()
            self._in_background(self._dissolve(contest))
        for tenancy in list(self.tenancies):
            self._in_background(tenancy.close())
        if self._background:
            await asyncio.wait(list(self._background), timeout=PATIENCE_SECONDS)
        for watch in self._watches.values():
            watch.cancel()

    def _is_closed(self) -> LockError:
        return LockError("the locks of this database are closed: connect it again, and make the lock again")

    def at_exit(self) -> None:
        """The interpreter ends without `aclose()`: release all the same."""
        runner = self._runner
        if isinstance(runner, ThreadRunner) and not self._closed:
            self._closed = True
            runner.tell(self._closing.set)
            runner.wait(PATIENCE_SECONDS)


class _Release:
    """Refers weakly: a runner that is remembered until the end must not keep its keeper alive."""

    def __init__(self, keeper: LockKeeper) -> None:
        self._keeper = weakref.ref(keeper)

    def __call__(self) -> None:
        keeper = self._keeper()
        if keeper is not None:
            keeper.at_exit()
