"""The way from threads into an event loop, and back: one background thread with a loop for each `Database`.

A call is made on the loop, and its thread waits. What it raises there is raised here, as it is. Ctrl-C in a call that
waits cancels it and takes back what it may have got.

At the end of the interpreter everything is closed, but not under the feet of a thread that the interpreter waits for
anyway: such a thread is waited for first.
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
from typing import Any, Generic, TypeVar

from tenure.coordinator.runner import ThreadRunner
from tenure.errors import CoordinationError, ForkedProcess, TenureError

T = TypeVar("T")
_log = logging.getLogger("tenure.blocking")

_TAKES_BACK_SECONDS = 10.0
"""So long Ctrl-C waits for a call to take back what it did. A second Ctrl-C does not wait."""
_LOOKS_EVERY = 0.2


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
        self._lock = threading.Lock()
        self._calls: set[_Call[Any]] = set()
        self._bodies: list[Body] = []
        self._users: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._closing = asyncio.Event()
        self._is_closing = False
        self._is_closed = False
        self._failure: Exception | None = None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        _warn_of_a_running_loop(what)
        self._runner = ThreadRunner("tenure-blocking", _nothing)
        self._runner.start(self._main)
        self._ready.wait()
        _remember(self)

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
            loop.call_soon_threadsafe(call.start)
        except RuntimeError:
            raise self.closed() from None
        try:
            _wait(call.done)
        except BaseException:
            if not goes_on:
                self.tell(call.give_up)
                call.done.wait(_TAKES_BACK_SECONDS)
            raise

    def tell(self, what: Callable[[], object]) -> None:
        self._runner.tell(what)

    def check(self) -> asyncio.AbstractEventLoop:
        """Raises where nothing can be asked: in a forked child, after `close()`, and on the loop's own thread."""
        self.check_process()
        if threading.get_ident() == self._thread:
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
        """Wind up, and end the thread. A second call waits for the first. Raises what winding up raised."""
        self.check_process()
        if threading.get_ident() == self._thread:
            self.check()
        self._is_closing = True
        self.tell(self._closing.set)
        _wait(self._ended)
        self._runner.wait(_TAKES_BACK_SECONDS)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def at_exit(self) -> None:
        if self.is_forked or self._ended.is_set():
            return
        self._await_threads()
        try:
            for body in list(self._bodies):
                if body.is_over or body.thread is threading.main_thread():
                    self.leave(body)
                    self.call(body.abandon)
            self.close()
        except TenureError as error:
            _log.warning("%s was not closed as it should at the end of the process: %s", self._what, error)

    def _await_threads(self) -> None:
        """The interpreter ends when its threads have, and what they use is there for as long."""
        while waiting := [thread for thread in list(self._users) if self._holds_the_end(thread)]:
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
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._ready.set()
        try:
            await self._closing.wait()
            for body in [body for body in self._bodies if body.is_over]:
                self.leave(body)
                await body.abandon()
            await self._wind_up()
        except Exception as error:
            self._failure = error
        finally:
            with self._lock:
                self._is_closed = True
                calls = list(self._calls)
            for call in calls:
                call.give_up()
            if tasks := [call.task for call in calls if call.task is not None and not call.task.done()]:
                await asyncio.wait(tasks, timeout=_TAKES_BACK_SECONDS)
            for call in calls:
                call.done.set()
            self._ended.set()


class _Call(Generic[T]):
    """One call, from the thread that waits for it."""

    def __init__(self, work: Callable[[], Awaitable[T]], take_back: Callable[[T], Awaitable[object]] | None) -> None:
        self.thread = threading.current_thread()
        self.done = threading.Event()
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


def _wait(event: threading.Event) -> None:
    """In pieces: a signal that the system hands to another thread does not wake this one, and Ctrl-C should."""
    while not event.wait(_LOOKS_EVERY):
        pass


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
