"""How an event reaches one listener: in order, one at a time, on the listener's own loop or thread, within bounds.

Any thread may offer an event. It is put into a bounded buffer, and the listener's side is woken; no code of the
listener runs in the offering thread. A listener that is too slow loses the oldest, and somebody is told how many.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import msgspec

ALL_EVENTS = "*"
"""Listens to every event, also to those of plugins."""


class NamedEvent(Protocol):
    """Anything with a name can be emitted; `Event` lists what a coordinator emits."""

    @property
    def name(self) -> str: ...


Handler: TypeAlias = Callable[[Any], object]
"""Called with the event. If it is async, or returns an awaitable, that is awaited before its next event."""


class EventsLost(msgspec.Struct, frozen=True):
    """A listener was too slow, and `count` events were dropped, the oldest first."""

    name: ClassVar[str] = "events:lost"
    consumer: str
    count: int


class Bus(Protocol):
    """What a listener needs of the bus that it listens to."""

    def forget_closed(self) -> None: ...

    def report_lost(self, consumer: str, count: int) -> None: ...

    def report_failed(self, consumer: str, event: NamedEvent) -> None: ...


class Listener:
    """The newest events that one listener has yet to see. Any thread may offer; one place takes."""

    def __init__(self, names: Collection[str], consumer: str, buffer_size: int) -> None:
        self._names = frozenset(names)
        self.consumer = consumer
        self._size = buffer_size
        self._lock = threading.Lock()
        self._pending: deque[NamedEvent] = deque()
        self._lost = 0
        self.is_closed = False
        """Wants nothing any more, and may be forgotten. Set without the lock by an iterator that was thrown away."""

    def wants(self, event: NamedEvent) -> bool:
        return event.name in self._names or ALL_EVENTS in self._names

    def offer(self, event: NamedEvent) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Nothing more will be offered."""
        raise NotImplementedError

    def _add(self, event: NamedEvent) -> None:
        if len(self._pending) >= self._size:
            # Losing the notice of a loss is no loss to give notice of: two slow listeners would feed each other.
            if isinstance(event, EventsLost):
                return
            self._pending.popleft()
            self._lost += 1
        self._pending.append(event)


class Subscription(Listener):
    """One handler of one name of events. `cancel()`, or leaving its `with` block, ends it."""

    def __init__(self, bus: Bus, name: str, handler: Handler, executor: Executor, buffer_size: int) -> None:
        super().__init__((name,), f"handler {describe(handler)} of {name!r}", buffer_size)
        self._bus = bus
        self._name = name
        self._handler = handler
        self._executor = executor
        self._is_scheduled = False
        self._report_at = 1

    def is_for(self, name: str, handler: Handler) -> bool:
        return self._name == name and self._handler == handler

    def cancel(self) -> None:
        """No further event is delivered; a call that is under way goes on to its end."""
        with self._lock:
            self.is_closed = True
            self._pending.clear()
        self._bus.forget_closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def offer(self, event: NamedEvent) -> None:
        if self._executor.is_gone():
            self.cancel()
        with self._lock:
            if self.is_closed:
                return
            self._add(event)
            lost = self._loss_to_report()
            must_schedule, self._is_scheduled = not self._is_scheduled, True
        if lost:
            self._bus.report_lost(self.consumer, lost)
        if must_schedule:
            self._schedule()

    def end(self) -> None:
        """What is pending is still delivered."""

    async def deliver(self) -> None:
        """Run the handler on the oldest event, on its loop."""
        event = self._take()
        if event is None:
            return
        try:
            result = self._handler(event)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._bus.report_failed(self.consumer, event)  # only something that the handler waited for was cancelled
        except Exception:
            self._bus.report_failed(self.consumer, event)

    def deliver_here(self) -> None:
        """Run the handler on the oldest event, on this thread, which has no loop."""
        event = self._take()
        if event is None:
            return
        try:
            result = self._handler(event)
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError("it returned an awaitable, and was registered where no event loop was running")
        except BaseException:  # sys.exit() here would end the thread, and every other handler on it
            self._bus.report_failed(self.consumer, event)

    def proceed(self) -> None:
        """One event is done: go on to the next, or come to rest."""
        with self._lock:
            self._is_scheduled = bool(self._pending)
            goes_on = self._is_scheduled
            lost = 0
            if not goes_on:
                # It has caught up: report what is left, and be quick to report the next loss.
                lost, self._lost = self._lost, 0
                self._report_at = 1
        if lost:
            self._bus.report_lost(self.consumer, lost)
        if goes_on:
            self._schedule()

    def _schedule(self) -> None:
        if not self._executor.schedule(self):
            self.cancel()

    def _take(self) -> NamedEvent | None:
        with self._lock:
            return self._pending.popleft() if self._pending else None

    def _loss_to_report(self) -> int:
        """Report losses at 1, 2, 4, 8, … so that a handler that hangs is reported soon, and not for ever."""
        if self._lost < self._report_at:
            return 0
        lost, self._lost = self._lost, 0
        self._report_at *= 2
        return lost


class Executor(Protocol):
    """Where the code of a handler runs."""

    def is_gone(self) -> bool:
        """Will nothing ever run here again?"""
        ...

    def schedule(self, subscription: Subscription) -> bool:
        """Have its next event delivered soon. False: it never will be."""
        ...


class HandlerLoop:
    """Runs a handler on the event loop that it was registered on, and in the context of that moment."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None  # a loop holds its tasks weakly

    def is_gone(self) -> bool:
        return self._loop.is_closed()

    def schedule(self, subscription: Subscription) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._begin, subscription)
        except RuntimeError:
            return False
        return True

    def _begin(self, subscription: Subscription) -> None:
        # A task for plain handlers too: what they raise, and what they may give back to await, is treated alike.
        self._task = self._loop.create_task(subscription.deliver(), name=subscription.consumer, context=self._context)
        self._task.add_done_callback(functools.partial(self._done, subscription))

    def _done(self, subscription: Subscription, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            subscription.cancel()  # the loop is shutting down
            return
        task.exception()  # SystemExit and the like have already stopped the loop
        subscription.proceed()


class HandlerThread:
    """Runs plain handlers that were registered where no loop was running. One thread, started when first needed."""

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[Subscription | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="tenure-events", daemon=True).start()

    def is_gone(self) -> bool:
        return False

    def schedule(self, subscription: Subscription) -> bool:
        self._due.put(subscription)
        return True

    def end(self) -> None:
        self._due.put(None)

    def _run(self) -> None:
        is_ending = False
        while not (is_ending and self._due.empty()):
            subscription = self._due.get()
            if subscription is None:
                is_ending = True
                continue
            subscription.deliver_here()
            subscription.proceed()


class EventStream(AsyncIterator[Any]):
    """The events of some names, in order, for one reader.

    A reader that falls behind gets `EventsLost` with the number of the lost, then the events that are left. It ends
    when the bus closes, after what was emitted before; or with `aclose()`, or by leaving its `async with` block.
    """

    def __init__(self, bus: Bus, names: Collection[str], buffer_size: int) -> None:
        self._bus = bus
        self.feed = _Feed(names, f"iterator over {', '.join(names)}", buffer_size)

    async def __anext__(self) -> Any:
        return await self.feed.take()

    async def aclose(self) -> None:
        """End it now; what was not read yet is dropped."""
        self.feed.abandon()
        self.feed.end()
        self._bus.forget_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # `async for … break` leaves a stream behind that nobody closes; the bus forgets it at the next event. No lock
        # may be taken here: this runs wherever the garbage is collected.
        self.feed.abandon()


class _Feed(Listener):
    """What the bus knows of a stream. While somebody waits, it keeps the waiting task alive, as a loop would not."""

    def __init__(self, names: Collection[str], consumer: str, buffer_size: int) -> None:
        super().__init__(names, consumer, buffer_size)
        self._has_ended = False
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def offer(self, event: NamedEvent) -> None:
        with self._lock:
            if self.is_closed or self._has_ended:
                return
            self._add(event)
            waiter, self._waiter = self._waiter, None
        self._wake(waiter)

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            waiter, self._waiter = self._waiter, None
        self._wake(waiter)

    def abandon(self) -> None:
        self.is_closed = True

    async def take(self) -> NamedEvent:
        while True:
            with self._lock:
                if self.is_closed:
                    raise StopAsyncIteration
                if self._lost:
                    lost, self._lost = self._lost, 0
                    return EventsLost(self.consumer, lost)
                if self._pending:
                    return self._pending.popleft()
                if self._has_ended:
                    raise StopAsyncIteration
                if self._waiter is not None:
                    raise RuntimeError("this stream of events is being read already: give each reader its own")
                loop = asyncio.get_running_loop()
                future: asyncio.Future[None] = loop.create_future()
                mine = self._waiter = (loop, future)
            try:
                await future
            finally:
                with self._lock:
                    if self._waiter is mine:
                        self._waiter = None

    def _wake(self, waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None) -> None:
        if waiter is None:
            return
        loop, future = waiter
        try:
            loop.call_soon_threadsafe(_resolve, future)
        except RuntimeError:
            self.abandon()  # its loop is closed: nobody is left who could read


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def is_async(handler: Any) -> bool:
    """Is it known, without calling it, to be async?"""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(handler.__call__)


def describe(handler: Handler) -> str:
    """The name by which a person would know it."""
    inner = handler.func if isinstance(handler, functools.partial) else handler
    return str(getattr(inner, "__qualname__", type(inner).__name__))
