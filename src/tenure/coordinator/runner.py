"""Where a coordinator runs: on a thread with an event loop of its own, or on the loop that started it.

A thread of its own means that user code which blocks its loop does not cost the lease. The thread is a daemon: nobody's
process is kept alive by it. At the end of the interpreter, and when the user's loop is closed, the lease is released.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # its exit hook must be registered before ours: see _remember
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")

_NEVER = object()


class Runner(Protocol):
    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `main` until it ends."""
        ...

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Have `work` done where `main` runs."""
        ...

    def tell(self, call: Callable[..., object], *arguments: object) -> None:
        """Have `call` made where `main` runs, soon."""
        ...

    async def ended(self) -> None:
        """Return when `main` has ended."""
        ...

    def cancel(self) -> None:
        """End `main` without ceremony."""
        ...


class LoopRunner:
    """On the running loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(main())

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    def tell(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)

    async def ended(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class ThreadRunner:
    """On a daemon thread. `at_exit` is called, from whichever thread ends the interpreter, while threads still work."""

    def __init__(self, name: str, at_exit: Callable[[], None]) -> None:
        self._name = name
        self._at_exit = at_exit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._main_ended = False
        self._asked: dict[concurrent.futures.Future[Any], tuple[Coroutine[Any, Any, Any], ...]] = {}

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        ready = threading.Event()
        thread = threading.Thread(target=self._run, args=(main, ready), name=self._name, daemon=True)
        thread.start()
        ready.wait()
        _remember(self)

    def _run(self, main: Callable[[], Coroutine[Any, Any, None]], ready: threading.Event) -> None:
        async def begin() -> None:
            self._task = asyncio.current_task()
            ready.set()
            try:
                await main()
            finally:
                self._main_ended = True

        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(begin())
        except asyncio.CancelledError:
            pass
        finally:
            ready.set()
            self._done.set_result(None)
            self._refuse_the_rest()

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Raises `RuntimeError` if the thread has ended, or ends before `work` is done."""
        assert self._loop is not None
        doing = self._do(work)
        try:
            future = asyncio.run_coroutine_threadsafe(doing, self._loop)
        except RuntimeError:
            doing.close()
            work.close()  # its loop ended meanwhile
            raise
        self._asked[future] = (doing, work)
        future.add_done_callback(lambda future: self._asked.pop(future, None))
        if self._done.done():
            self._refuse_the_rest()
        answer = await asyncio.wrap_future(future)
        if answer is _NEVER:
            raise RuntimeError("the thread that was asked has ended")
        return cast(T, answer)

    async def _do(self, work: Coroutine[Any, Any, T]) -> T | object:
        if self._ended():
            work.close()  # what is begun while the loop is taken down is never ended
            return _NEVER
        try:
            return await work
        except asyncio.CancelledError:
            if self._ended():
                return _NEVER  # by the end of the loop: whoever asked was not cancelled
            raise

    def _ended(self) -> bool:
        return self._main_ended

    def _refuse_the_rest(self) -> None:
        """What was asked after the last turn of the loop gets no answer from there."""
        for future, coroutines in list(self._asked.items()):
            try:
                future.set_result(_NEVER)
            except concurrent.futures.InvalidStateError:
                pass
            for coroutine in coroutines:
                if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                    coroutine.close()

    def tell(self, call: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            pass  # its loop ended meanwhile, and nothing is left to be told

    async def ended(self) -> None:
        # Shielded: whoever gives up waiting must not cancel what others wait for too.
        await asyncio.shield(asyncio.wrap_future(self._done))

    def cancel(self) -> None:
        if self._task is not None:
            self.tell(self._task.cancel)

    def wait(self, seconds: float) -> None:
        """Wait for the end of `main`, without a loop of one's own: at the interpreter's end."""
        try:
            self._done.result(seconds)
        except (TimeoutError, concurrent.futures.CancelledError):
            pass

    def exit(self) -> None:
        self._at_exit()


_running: weakref.WeakSet[ThreadRunner] = weakref.WeakSet()
_registered_in: int | None = None


def _remember(runner: ThreadRunner) -> None:
    global _registered_in
    if _registered_in != os.getpid():
        _running.clear()  # in a forked child: the parent's, which do not run here
    _running.add(runner)
    first = _registered_in is None
    _registered_in = os.getpid()
    if first:
        # `atexit` is too late: by then thread pools, which the directory store needs, refuse work. Hooks of
        # `threading` run in the reverse order of their registration, so ours comes before theirs.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(_at_exit)
        else:
            import atexit

            atexit.register(_at_exit)


def _at_exit() -> None:
    if os.getpid() != _registered_in:
        return  # a forked child has none of these threads
    for runner in list(_running):
        runner.exit()
