"""What a coordinator reports, and how it reaches those who listen.

Guarantee: `emit` never blocks, never raises and never runs a listener's code, on whichever thread it is called. One
listener gets its events in order, one at a time, on the event loop (or thread) that it registered on. A listener that
raises, hangs or is slow harms nobody else.

Not guaranteed: that a slow listener sees everything. Each may be a bounded number of events behind; then it loses the
oldest, and is told how many.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import ClassVar, TypeAlias, get_args

import msgspec

from tenure.coordinator.delivery import (
    ALL_EVENTS,
    EventsLost,
    EventStream,
    Handler,
    HandlerLoop,
    HandlerThread,
    Listener,
    NamedEvent,
    Subscription,
    describe,
    is_async,
)
from tenure.coordinator.given import shown
from tenure.errors import ConfigError

__all__ = [
    "ALL_EVENTS",
    "EVENT_NAMES",
    "PLUGIN_PREFIX",
    "CircuitBreakerOpen",
    "ClockSkew",
    "ColdStartPhaseChanged",
    "ConfigDiffers",
    "ContentionDetected",
    "CoordinatorDemoted",
    "CoordinatorElected",
    "CoordinatorPromoted",
    "EpochRenewed",
    "Event",
    "EventBus",
    "EventStream",
    "EventsLost",
    "Handler",
    "HookFailed",
    "LeaderChanged",
    "LeaseDamaged",
    "LoopStalled",
    "NamedEvent",
    "OverranLease",
    "PluginEvent",
    "Subscription",
    "Tap",
    "WorkerHeartbeat",
    "WorkerWasReplaced",
    "WorkersUpdated",
]

PLUGIN_PREFIX = "plg:"
MAX_NAME_CHARACTERS = 256
"""Events whose names begin with this are made up by plugins: `plg:ttl:cleanup-started`."""


class LeaderChanged(msgspec.Struct, frozen=True):
    """Another leader, or none: `new_leader` is None while nobody leads. `epoch` is the new leader's."""

    name: ClassVar[str] = "leader:changed"
    namespace: str
    previous_leader: str | None
    new_leader: str | None
    epoch: int


class WorkersUpdated(msgspec.Struct, frozen=True):
    """The set of active workers is another one now."""

    name: ClassVar[str] = "workers:updated"
    namespace: str
    workers: tuple[str, ...]


class ContentionDetected(msgspec.Struct, frozen=True):
    """A heartbeat took `duration` seconds, `ratio` times the `expected` interval."""

    name: ClassVar[str] = "contention:detected"
    namespace: str
    duration: float
    expected: float
    ratio: float
    threshold: float
    timestamp: float
    """Seconds since 1970 on this host's wall clock, as every timestamp of an event."""


class CircuitBreakerOpen(msgspec.Struct, frozen=True):
    """The store failed `failure_count` times in a row; heartbeats are skipped for a while."""

    name: ClassVar[str] = "circuitBreaker:open"
    namespace: str
    failure_count: int


class WorkerHeartbeat(msgspec.Struct, frozen=True):
    """This worker's heartbeat was stored."""

    name: ClassVar[str] = "coord:worker-heartbeat"
    worker_id: str
    timestamp: float


class CoordinatorElected(msgspec.Struct, frozen=True):
    """This worker saw an election end: `worker_id` leads.

    `active_workers`: who was alive in the listing that this worker ranked itself by. A worker that did not stand names
    those it knew, without a holder whose lease lapsed. Empty in election-only mode.
    """

    name: ClassVar[str] = "coord:coordinator-elected"
    worker_id: str
    epoch: int
    active_workers: tuple[str, ...]


class CoordinatorPromoted(msgspec.Struct, frozen=True):
    """This worker began to lead."""

    name: ClassVar[str] = "coord:coordinator-promoted"
    worker_id: str
    epoch: int
    timestamp: float


class CoordinatorDemoted(msgspec.Struct, frozen=True):
    """This worker stopped leading, for this reason."""

    name: ClassVar[str] = "coord:coordinator-demoted"
    worker_id: str
    epoch: int
    reason: str


class EpochRenewed(msgspec.Struct, frozen=True):
    """The leader began another mandate under the same epoch."""

    name: ClassVar[str] = "coord:coordinator-epoch-renewed"
    worker_id: str
    epoch: int
    mandate_ends_at: float


class ColdStartPhaseChanged(msgspec.Struct, frozen=True):
    """The first election of a new namespace entered `phase`, after `duration` seconds in the one before."""

    name: ClassVar[str] = "coord:cold-start-phase-changed"
    namespace: str
    phase: str
    """`observing`, `election`, `preparation` or `ready`."""
    duration: float


class HookFailed(msgspec.Struct, frozen=True):
    """A hook of a plugin raised; nothing else was harmed."""

    name: ClassVar[str] = "hook:failed"
    namespace: str
    plugin: str
    hook: str
    error: str


class PluginEvent(msgspec.Struct, frozen=True):
    """An event of the coordinator, told again under a plugin's own name: `plg:{slug}:coordinator-elected`."""

    name: str
    plugin: str
    """The instance's name."""
    event: NamedEvent


class LoopStalled(msgspec.Struct, frozen=True):
    """The event loop of the user's code stood still for so many seconds."""

    name: ClassVar[str] = "loop:stalled"
    namespace: str
    seconds: float
    leading: bool


class LeaseDamaged(msgspec.Struct, frozen=True):
    """The lease record cannot be trusted. Nobody is elected until it has been set aside and rebuilt."""

    name: ClassVar[str] = "lease:damaged"
    namespace: str
    reason: str


class WorkerWasReplaced(msgspec.Struct, frozen=True):
    """A newer process uses this worker's id; this one stops."""

    name: ClassVar[str] = "worker:replaced"
    namespace: str
    worker_id: str


class ConfigDiffers(msgspec.Struct, frozen=True):
    """Workers of one namespace do not agree about a setting."""

    name: ClassVar[str] = "config:differs"
    namespace: str
    field: str
    ours: str
    theirs: str


class ClockSkew(msgspec.Struct, frozen=True):
    """This host's wall clock is off."""

    name: ClassVar[str] = "clock:skewed"
    namespace: str
    detail: str


class OverranLease(msgspec.Struct, frozen=True):
    """Leader-only work was still running when the lease ran out: another leader may be at work already."""

    name: ClassVar[str] = "lease:overran"
    namespace: str
    epoch: int
    what: str


Event: TypeAlias = (
    LeaderChanged
    | WorkersUpdated
    | ContentionDetected
    | CircuitBreakerOpen
    | WorkerHeartbeat
    | CoordinatorElected
    | CoordinatorPromoted
    | CoordinatorDemoted
    | EpochRenewed
    | ColdStartPhaseChanged
    | HookFailed
    | LoopStalled
    | LeaseDamaged
    | WorkerWasReplaced
    | ConfigDiffers
    | ClockSkew
    | OverranLease
    | EventsLost
)
EVENT_NAMES: frozenset[str] = frozenset(kind.name for kind in get_args(Event))


class Tap(Listener):
    """Calls `take` with every event, where it is emitted: for what must be known at once, and returns at once."""

    def __init__(self, take: Callable[[NamedEvent], None], consumer: str) -> None:
        super().__init__((ALL_EVENTS,), consumer, 1)
        self._take = take

    def offer(self, event: NamedEvent) -> None:
        self._take(event)

    def end(self) -> None:
        self.is_closed = True


class EventBus:
    """Carries events from where they happen to whoever listens.

        subscription = bus.on("leader:changed", print)
        async for event in bus.events("leader:changed", "workers:updated"): ...

    `more_names` are names beyond `EVENT_NAMES` that may be listened to; so may all that begin with `plg:`. With
    `names`, only these may.
    """

    def __init__(
        self,
        buffer_size: int = 256,
        logger: logging.Logger | None = None,
        *,
        more_names: Collection[str] = (),
        names: Collection[str] | None = None,
    ) -> None:
        if buffer_size < 1:
            raise ConfigError(f"buffer_size is {buffer_size}: a listener must be allowed at least one event")
        self._buffer_size = buffer_size
        self._logger = logger if logger is not None else logging.getLogger("tenure.coordinator")
        self._names = EVENT_NAMES | frozenset(more_names) if names is None else frozenset(names)
        self._plugins_too = names is None
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()  # replaced, never changed: emit walks it without the lock
        self._closed = False
        self._thread: HandlerThread | None = None

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler` with every event of this name ("*": every event).

        It runs on the event loop that is running now. Without one, a plain handler runs on a thread of the bus,
        which such handlers share: a slow one delays the others. An async one is refused.
        """
        self._check_names(name)
        if not callable(handler):
            raise ConfigError(
                f"handler {shown(handler)} for {name!r} cannot be called: give a function of one argument"
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if is_async(handler):
                raise ConfigError(
                    f"handler {describe(handler)} for {name!r} is async, and no event loop is running here to run it: "
                    "register it from a coroutine, or use a plain function"
                ) from None
            loop = None
        with self._lock:
            if self._closed:
                raise ConfigError(f"cannot listen to {name!r}: this coordinator's events have ended")
            executor = self._handler_thread() if loop is None else HandlerLoop(loop)
            subscription = Subscription(self, name, handler, executor, self._buffer_size)
            self._listeners = (*self._listeners, subscription)
        return subscription

    def off(self, name: str, handler: Handler) -> bool:
        """End every subscription of `handler` to `name`. False: there was none."""
        found = [each for each in self._listeners if isinstance(each, Subscription) and each.is_for(name, handler)]
        for subscription in found:
            subscription.cancel()
        return bool(found)

    def events(self, *names: str) -> EventStream:
        """An async iterator over the events of these names (none given: all), from now on, until the bus closes."""
        self._check_names(*names)
        stream = EventStream(self, names or (ALL_EVENTS,), self._buffer_size)
        with self._lock:
            if self._closed:
                stream.feed.end()
            else:
                self._listeners = (*self._listeners, stream.feed)
        return stream

    def tap(self, take: Callable[[NamedEvent], None], consumer: str) -> Tap:
        """Have `take` called with every event by whoever emits it, until the tap is ended."""
        tap = Tap(take, consumer)
        with self._lock:
            self._listeners = (*self._listeners, tap)
        return tap

    @property
    def is_heard(self) -> bool:
        """Does anybody listen? What is costly to tell need not be made up if not."""
        return bool(self._listeners)

    def emit(self, event: NamedEvent) -> None:
        """Hand `event` to everybody who listens. Returns at once; their code runs later, elsewhere."""
        if self._closed:
            return
        abandoned = False
        for listener in self._listeners:
            try:
                if listener.wants(event):
                    listener.offer(event)
                abandoned = abandoned or listener.is_closed
            except Exception:
                self._logger.exception("a %s did not reach %s", type(event).__name__, listener.consumer)
        if abandoned:
            self.forget_closed()

    def close(self) -> None:
        """No more events. Those already emitted are still delivered, then iterators end."""
        with self._lock:
            self._closed = True
            listeners, self._listeners = self._listeners, ()
            thread, self._thread = self._thread, None
        for listener in listeners:
            listener.end()
        if thread is not None:
            thread.end()

    def report_lost(self, consumer: str, count: int) -> None:
        """A handler was too slow: say so, to the log and to those who listen for it."""
        self._logger.warning("%s is too slow: %d events were dropped, the oldest first", consumer, count)
        self.emit(EventsLost(consumer, count))

    def report_failed(self, consumer: str, event: NamedEvent) -> None:
        """A handler raised: called while that exception is being handled."""
        self._logger.exception("%s failed on %s", consumer, event.name)

    def forget_closed(self) -> None:
        """Let go of those who want nothing any more."""
        with self._lock:
            self._listeners = tuple(listener for listener in self._listeners if not listener.is_closed)

    def _handler_thread(self) -> HandlerThread:
        if self._thread is None:
            self._thread = HandlerThread()
        return self._thread

    def _check_names(self, *names: str) -> None:
        for name in names:
            if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS:
                raise ConfigError(f"name is {shown(name)}: give the name of an event, or {ALL_EVENTS!r} for all")
            if name == ALL_EVENTS or (self._plugins_too and name.startswith(PLUGIN_PREFIX)):
                continue
            if name not in self._names:
                close = get_close_matches(name, self._names, 1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                known = ", ".join(sorted(self._names))
                raise ConfigError(f"there is no event {name!r}: {hint}There are {known}, and {ALL_EVENTS!r} for all")
