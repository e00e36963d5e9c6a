"""The way from threads into an event loop, and back: one background thread with a loop for each `Database`.

A call is made on the loop, and its thread waits. What it raises there is raised here, as it is. Ctrl-C in a call that
waits cancels it and takes back what it may have got.

At the end of the interpreter everything is closed, but not under the feet of a thread that the interpreter waits for
anyway, if it has used them: such a thread is waited for first.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Generic, TypeVar

from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.runner import ThreadRunner
from tenure.errors import CoordinationError, ForkedProcess, TenureError

T = TypeVar("T")
_log = logging.getLogger("tenure.blocking")

_TAKES_BACK_SECONDS = 10.0
"""So long Ctrl-C waits for a call to take back what it did. A second Ctrl-C does not wait."""
_LOOKS_EVERY = 0.2
_EXIT_SECONDS = 300.0
"""So long the end of the interpreter waits for the closing, which has bounds of its own: a defect must not keep a
process alive."""


class Flag:
    """A `threading.Event` that is set once, and on nothing but a lock in C.

    Those of `threading` take locks in Python code, where Ctrl-C may come between the taking and what gives it back:
    then whoever sets the event waits forever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wake()

    def wait(self, timeout: float | None = None) -> bool:
        """In pieces: a signal that the system hands to another thread does not wake this one, and Ctrl-C should."""
        began = SYSTEM_CLOCK.read()
        while not self._is_set:
            rest = _LOOKS_EVERY if timeout is None else timeout - SYSTEM_CLOCK.read().leader_elapsed(began)
            if rest <= 0:
                return False
            if self._lock.acquire(timeout=min(rest, _LOOKS_EVERY)):
                self._wake()  # whoever waits beside us; if Ctrl-C comes in between, they look at the end of a piece
        return True

    def _wake(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # somebody else has


class Body:
    """A `with` block that runs on some thread, under a lease or a lock. `abandon` is for one whose thread is over."""

    def __init__(self, abandon: Callable[[], Awaitable[object]]) -> None:
        self.thread = threading.current_thread()
        self.abandon = abandon

    @property
    def is_over(self) -> bool:
        return not self.thread.is_alive()


class Portal:
    """`wind_up` is run on the loop when it is closed; `what` is what users know it as."""

    def __init__(self, what: str, wind_up: Callable[[], Awaitable[object]]) -> None:
        self._what = what
        self._wind_up = wind_up
        self._pid = os.getpid()
        # A signal handler, or a finalizer that the collector runs, may make a call while one is begun here.
        self._lock = threading.RLock()
        self._calls: set[_Call[Any]] = set()
        self._bodies: list[Body] = []
        self._users: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._closing = asyncio.Event()
        self._is_closing = False
        self._is_closed = False
        self._is_exiting = False
        self._is_waited_for = True
        self._later: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._ready = Flag()
        self._ended = Flag()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        _warn_of_a_running_loop(what)
        self._runner = ThreadRunner("tenure-blocking", _nothing)
        try:
            self._runner.start(self._main)
            self._ready.wait()
            _remember(self)
        except RuntimeError as error:  # of `threading`, in an `atexit` callback
            raise CoordinationError(f"{what} cannot be opened any more, for this process is about to end") from error

    # From any thread

    def call(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        take_back: Callable[[T], Awaitable[object]] | None = None,
        goes_on: bool = False,
    ) -> T:
        """Have `work` done on the loop, and wait for it.

        On Ctrl-C it is cancelled, and `take_back` is given a result that came all the same; with `goes_on` it is left
        to end by itself, without anybody who waits.
        """
        loop = self.check()
        call = _Call(work, take_back)
        with self._lock:
            if self._is_closed:
                raise self.closed()
            self._calls.add(call)
            self._users.add(call.thread)
        try:
            self._await(call, loop, goes_on)
        finally:
            with self._lock:
                self._calls.discard(call)
        if call.was_cancelled:
            raise self.closed()
        return call.result()

    def _await(self, call: _Call[Any], loop: asyncio.AbstractEventLoop, goes_on: bool) -> None:
        try:
            try:
                loop.call_soon_threadsafe(call.start)
            except RuntimeError:
                call.done.set()
                raise self.closed() from None
            call.done.wait()
        except BaseException:
            # The second time, perhaps: Ctrl-C may have come before the loop was woken.
            self.tell(call.start if goes_on else call.give_up)
            if not goes_on:
                call.done.wait(_TAKES_BACK_SECONDS)
            raise

    def call_later(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have `work` done on the loop, and do not wait for it; see `must_not_wait`. What it raises is logged."""

        async def run() -> None:
            try:
                await work()
            except Exception as error:
                if not self._is_closed:
                    _log.warning("%s: what was dropped without its end was not given back: %s", self._what, error)

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(run())
            self._later.add(task)
            task.add_done_callback(self._later.discard)

        self.tell(begin)

    def tell(self, what: Callable[[], object]) -> None:
        self._runner.tell(what)

    def check(self) -> asyncio.AbstractEventLoop:
        """Raises where nothing can be asked: in a forked child, after `close()`, and on the loop's own thread."""
        self.check_process()
        if threading.current_thread() is self._thread:
            raise CoordinationError(
                f"{self._what} was called on its own background thread, and would wait for itself: a health check, or "
                "whatever runs there, must not use the blocking API"
            )
        if self._is_closed:
            raise self.closed()
        assert self._loop is not None
        return self._loop

    def check_process(self) -> None:
        if self.is_forked:
            raise ForkedProcess(
                f"{self._what} was opened in process {self._pid} and used in its forked child {os.getpid()}: open one "
                "in the child itself (gunicorn: in post_fork; multiprocessing: 'spawn')"
            )

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_closing(self) -> bool:
        """Somebody has asked for the end."""
        return self._is_closing

    def closed(self) -> TenureError:
        return TenureError(f"{self._what} is closed: connect() it, or open another one")

    # Bodies

    def enter(self, body: Body) -> None:
        with self._lock:
            self._bodies.append(body)
            self._users.add(body.thread)

    def leave(self, body: Body) -> None:
        with self._lock:
            if body in self._bodies:
                self._bodies.remove(body)

    def is_inside(self) -> bool:
        """Is this thread inside a body?"""
        here = threading.current_thread()
        return any(body.thread is here for body in self._bodies)

    # The end

    def close(self) -> None:
        """Wind up, and end the thread. A second call waits for the first. Raises what winding up raised.

        On a thread of tenure's own it waits for nothing: the rest happens by itself.
        """
        self.check_process()
        if must_not_wait():
            self._is_waited_for = False
            self._begin_to_close()
            return
        self._begin_to_close()
        self._ended.wait()
        self._join()

    def _begin_to_close(self) -> None:
        self._is_closing = True
        self.tell(self._closing.set)

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join(_TAKES_BACK_SECONDS)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def at_exit(self) -> None:
        if self.is_forked or self._ended.is_set():
            return
        self._await_threads()
        self._is_exiting = True
        self._begin_to_close()
        if not self._ended.wait(_EXIT_SECONDS):
            _log.error("%s was not closed within %g s at the end of the process", self._what, _EXIT_SECONDS)
            return
        try:
            self._join()
        except Exception as error:
            _log.warning("%s was not closed as it should at the end of the process: %s", self._what, error)

    def _await_threads(self) -> None:
        """The interpreter ends when its threads have, and what they use is there for as long."""
        while True:
            with self._lock:
                users = list(self._users)
            waiting = [thread for thread in users if self._holds_the_end(thread)]
            if not waiting:
                return
            waiting[0].join(_LOOKS_EVERY)

    def _holds_the_end(self, thread: threading.Thread) -> bool:
        if thread.daemon or not thread.is_alive() or thread is threading.main_thread():
            return False
        with self._lock:
            busy = {body.thread for body in self._bodies} | {call.thread for call in self._calls}
        # Idle threads of a pool are told to end after us.
        return thread in busy or thread not in getattr(concurrent.futures.thread, "_threads_queues", ())

    # On the loop

    async def _main(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.current_thread()
        self._ready.set()
        try:
            await self._closing.wait()
            for body in [body for body in self._bodies if self._is_over(body)]:
                self.leave(body)
                await body.abandon()
            await self._wind_up()
        except Exception as error:
            self._failure = error
            if not self._is_waited_for:
                _log.warning("%s was not closed as it should: %s", self._what, error)
        finally:
            with self._lock:
                self._is_closed = True
                calls = list(self._calls)
            for call in calls:
                call.give_up()
            tasks: list[asyncio.Task[Any]] = [call.task for call in calls if call.task is not None]
            if tasks := [task for task in (*tasks, *self._later) if not task.done()]:
                await asyncio.wait(tasks, timeout=_TAKES_BACK_SECONDS)
            for call in calls:
                call.done.set()
            self._ended.set()

    def _is_over(self, body: Body) -> bool:
        """What the main thread left open when it ended is over too."""
        return body.is_over or (self._is_exiting and body.thread is threading.main_thread())


class _Call(Generic[T]):
    """One call, from the thread that waits for it."""

    def __init__(self, work: Callable[[], Awaitable[T]], take_back: Callable[[T], Awaitable[object]] | None) -> None:
        self.thread = threading.current_thread()
        self.done = Flag()
        self.task: asyncio.Task[T] | None = None
        self._work = work
        self._take_back = take_back
        self._given_up = False

    @property
    def was_cancelled(self) -> bool:
        """It was given up on the loop's side, before or after it began."""
        return self.task is None or not self.task.done() or self.task.cancelled()

    def result(self) -> T:
        assert self.task is not None
        return self.task.result()

    # On the loop

    def start(self) -> None:
        if self._given_up:
            self.done.set()
            return
        if self.task is not None:
            return
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(self._finish)

    def give_up(self) -> None:
        self._given_up = True
        if self.task is not None:
            self.task.cancel()
        else:
            self.done.set()

    async def _run(self) -> T:
        result = await self._work()
        if self._given_up and self._take_back is not None:
            await self._take_back(result)
        return result

    def _finish(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # seen: whoever waited may have gone
        self.done.set()


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()
_registered = False


def _remember(portal: Portal) -> None:
    """Hooks of `threading` run in the reverse order of their registration. Ours is registered after those of the
    runner and of thread pools, so that both still work when it runs."""
    global _registered
    _portals.add(portal)
    if not _registered:
        _registered = True
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(_at_exit)
        else:
            import atexit

            atexit.register(_at_exit)


def _at_exit() -> None:
    for portal in list(_portals):
        portal.at_exit()


def must_not_wait() -> bool:
    """Is this a thread of tenure's own, of a loop or of the directory store?

    Nobody calls the blocking API there, but the collector does: what was dropped in a cycle, a generator of `terms()`
    for one, is ended on whichever thread it happens to run. To wait there may be to wait for oneself.
    """
    if threading.current_thread().name.startswith("tenure-file_"):
        return True
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is _OF_A_LOOP:
            return True
        frame = frame.f_back
    return False


_OF_A_LOOP = ThreadRunner._run.__code__


def _nothing() -> None:
    """The runner's own hook at the end has nothing to do: see `Portal.at_exit`."""


def _warn_of_a_running_loop(what: str) -> None:
    """In a notebook a loop runs wherever code does, and it is fine to make it wait. Elsewhere it is a mistake."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if "ipykernel" not in sys.modules:
        warnings.warn(
            f"{what} is opened where an event loop runs, which stands still whenever a call waits: use the async API "
            "there (tenure.lead, tenure.Database), or asyncio.to_thread",
            RuntimeWarning,
            stacklevel=_outside(),
        )


def _outside() -> int:
    """Of the first frame that is not the blocking API's own, for whoever called `warnings.warn` two frames up."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        ("tenure.blocking", "contextlib")
    ):
        level, frame = level + 1, frame.f_back
    return level
