"""An event loop on simulated time, for one simulated process."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from tenure.testing.host import Host

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Crashed(BaseException):
    """What a process that is gone gets for every sleep and every request: it can touch nothing any more."""


class Callback(asyncio.Handle):
    """asyncio's handle, with its host at hand and without the question about debug mode."""

    __slots__ = ("host",)

    if TYPE_CHECKING:
        _callback: Callable[..., object]
        _context: Context

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], loop: HostLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = arguments
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.host = loop.host


class Timer(asyncio.TimerHandle):
    __slots__ = ("host",)

    if TYPE_CHECKING:
        _callback: Callable[..., object]
        _context: Context
        _when: float
        _scheduled: bool

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: HostLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, arguments, loop, context)
        self.host = loop.host


class HostTask(asyncio.Task[T]):
    """A task that a set holds in the same order in every run: asyncio itself walks sets of tasks to cancel them."""

    def __init__(self, *arguments: Any, serial: int, **options: Any) -> None:
        self._serial = serial
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._serial


class HostLoop(asyncio.AbstractEventLoop):
    """What asyncio asks of a loop, on the host's own monotonic time. No threads, no sockets, no subprocesses."""

    def __init__(self, host: Host, push: Callable[[Callback], None]) -> None:
        self.host = host
        self._push = push

    def time(self) -> float:
        return self.host.machine.monotonic()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = Callback(callback, args, self, context)
        self._push(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.host.machine.monotonic() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = Timer(when, callback, args, self, context)
        host = self.host
        if host.alive:  # a dead host's timers are never due
            world = host.world
            due = host.machine.true_time_of(when)
            heapq.heappush(world._queue, (due, next(world._order), self._due, (timer,)))
            timer._scheduled = True
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        host = self.host
        if host.buried:
            coro.close()
            raise RuntimeError(f"host {host.name!r} crashed")
        world = host.world
        world._born += 1
        host._born += 1
        # asyncio's own names count on over the whole process, so that a second run would have others.
        label = f"{host.name}-{host._born}" if name is None else name
        task: HostTask[T] = HostTask(coro, serial=world._born, loop=self, name=label, context=context, **options)
        host._tasks.append(task)
        if len(host._tasks) > host._forget_at:
            host._forget_finished()
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self.host.buried

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        host = self.host
        error = context.get("exception") or RuntimeError(context.get("message", "unknown trouble"))
        if host.alive and not isinstance(error, Crashed | asyncio.CancelledError):
            host.world.errors.append((host.name, error))

    async def shutdown_asyncgens(self) -> None:
        """Nothing: a generator is closed when it is dropped."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing: there is none."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> NoReturn:
        raise RuntimeError(f"a simulated host has no threads to run {func!r} on: a thread could not be replayed")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if self.host.alive and handle._scheduled:  # type: ignore[attr-defined]
            self.host.world._timer_cancelled()

    def _due(self, timer: Timer) -> None:
        timer._scheduled = False
        if timer._cancelled:
            self.host.world._cancelled -= 1
        else:
            self.host.world._ready.append(timer)

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An async generator was dropped half-way: close it on this loop, as asyncio does."""
        if not self.host.buried:
            self.call_soon(self._close_generator, generator)
            return
        try:
            generator.aclose().__await__().send(None)
        except BaseException:  # noqa: S110 - the process is gone, and nobody is left to hear of it
            pass

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.create_task(generator.aclose())
