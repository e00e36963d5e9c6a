"""The front door for threads: a store, and what coordinates on it.

with tenure.blocking.Database("s3://bucket/app") as db:
    coordinator = db.get_global_coordinator("default")
    coordinator.start()
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from tenure import database
from tenure.blocking.coordinator import Coordinator
from tenure.blocking.counters import Counters
from tenure.blocking.leading import Leader, OnLost, Overrun
from tenure.blocking.lock import Lock
from tenure.blocking.portal import Portal
from tenure.blocking.queue import Queue
from tenure.blocking.resource import Resource
from tenure.blocking.scheduler import Scheduler
from tenure.blocking.ttl import TTL
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.fenced import FencedValue
from tenure.coordinator.hooks import HookOverrun
from tenure.coordinator.lock.lock import DEFAULT_TTL
from tenure.errors import ConfigError, CoordinationError, ForkedProcess, InvalidUrl, TenureError
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin
from tenure.plugins.ttl import TTLPlugin
from tenure.store import Usage
from tenure.store.opening import DEFAULT_TIMEOUT

D = TypeVar("D")


class Database:
    """A store at a URL, for threads: `with Database("s3://bucket/app") as db:`.

    `worker_id` is the default for every coordinator; `timeout` is for each request, in seconds. Any thread may use it,
    and what it gives. It is closed once, when no thread needs it any more; a forked child opens its own.
    """

    def __init__(
        self, connection_string: str, *, worker_id: str | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        if not isinstance(connection_string, str):
            raise InvalidUrl(
                f"the URL is a {type(connection_string).__name__}: give a string, such as 's3://bucket/prefix' or "
                "path.as_uri()"
            )
        self._database = database.Database(connection_string, worker_id=worker_id, timeout=timeout)
        self._portal: Portal | None = None
        self._coordinators: dict[str, Coordinator] = {}
        self._connecting = threading.RLock()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<blocking Database {self.url}>"

    @property
    def url(self) -> str:
        """The URL, without what is secret in it."""
        return self._database.url

    @property
    def worker_id(self) -> str:
        return self._database.worker_id

    def connect(self) -> Self:
        """Open the store, and start the background thread. Raises a `StoreError` that says what to do."""
        self._check_process()
        with self._connecting:
            if self._portal is None or self._portal.is_closed:
                self._portal, self._coordinators = Portal(repr(self), self._database.disconnect), {}
            portal = self._portal
        try:
            portal.call(self._database.connect)
        except BaseException:
            portal.close()
            raise
        return self

    def close(self) -> None:
        """Stop every coordinator, give back every lock, close the store and end the background thread.

        Bodies on other threads are told, and waited for as `drain_timeout` says; join your threads first. A second call
        does nothing.
        """
        self._check_process()
        portal = self._portal
        if portal is None:
            return
        if portal.is_inside() and not portal.is_closed:
            raise CoordinationError(
                f"{self!r} is closed inside the body of a lease or lock of this thread: leave that `with` block first"
            )
        if not portal.is_closed:
            portal.check()
        portal.close()

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        portal = self._portal
        assert portal is not None
        if portal.is_forked and kind is not None:
            return  # what the child raised is what its parent should hear of
        self._check_process()
        portal.close()

    @property
    def underlying(self) -> database.Database:
        """The one that works on the loop behind this one, for what looks in from outside: `tenure.telemetry`."""
        return self._database

    def usage(self) -> Usage:
        """Requests, bytes and USD that went through this database since it was connected."""
        self._connected().check()
        return self._database.usage()

    def get_global_coordinator(
        self, namespace: str = "default", *, config: CoordinatorConfig | None = None
    ) -> Coordinator:
        """The coordinator of `namespace`, one for each process. `start()` makes it take part.

        Raises `ConfigConflict` naming the field if it exists with another config.
        """
        portal = self._connected()
        service = portal.call(lambda: self._database.get_global_coordinator(namespace, config=config))
        return self._coordinators.setdefault(namespace, Coordinator(portal, service))

    @overload
    def resource(self, name: str, schema: None = None, *, reuse_ids: bool = True) -> Resource[dict[str, Any]]: ...
    @overload
    def resource(self, name: str, schema: type[D], *, reuse_ids: bool = True) -> Resource[D]: ...
    def resource(self, name: str, schema: type[Any] | None = None, *, reuse_ids: bool = True) -> Resource[Any]:
        """The collection of JSON records called `name`.

        `schema`: a msgspec Struct or dataclass that every record must fit. `reuse_ids=False` promises, for the whole
        fleet, that an id is never inserted again after its record was deleted.
        """
        portal = self._connected()

        async def make() -> database.Resource[Any]:
            return self._database.resource(name, schema, reuse_ids=reuse_ids)

        return Resource(portal, portal.call(make))

    @overload
    def use_plugin(self, plugin: S3QueuePlugin, name: str | None = None) -> Queue: ...
    @overload
    def use_plugin(self, plugin: SchedulerPlugin, name: str | None = None) -> Scheduler: ...
    @overload
    def use_plugin(self, plugin: TTLPlugin, name: str | None = None) -> TTL: ...
    @overload
    def use_plugin(self, plugin: EventualConsistencyPlugin, name: str | None = None) -> Counters: ...
    def use_plugin(
        self,
        plugin: S3QueuePlugin | SchedulerPlugin | TTLPlugin | EventualConsistencyPlugin,
        name: str | None = None,
    ) -> Queue | Scheduler | TTL | Counters:
        """Start the plugin of a queue, a schedule, a ttl or counters, and give its twin for threads.

            queue = db.use_plugin(S3QueuePlugin("emails", producer_only=True))
            queue.enqueue({"to": "ada@example.org"})

        Use what it gives, and no longer the plugin, whose methods are async. Other plugins have no twin for threads.
        """
        if not isinstance(plugin, S3QueuePlugin | SchedulerPlugin | TTLPlugin | EventualConsistencyPlugin):
            raise ConfigError(
                f"{plugin!r} cannot be used by threads: give an S3QueuePlugin, a SchedulerPlugin, a TTLPlugin or an "
                "EventualConsistencyPlugin; other plugins are for tenure.Database"
            )
        portal = self._connected()
        started = portal.call(lambda: self._database.use_plugin(plugin, name))
        match started:
            case SchedulerPlugin():
                return Scheduler(portal, started)
            case TTLPlugin():
                return TTL(portal, started)
            case EventualConsistencyPlugin():
                return Counters(portal, started)
        return Queue(portal, started)

    def lock(
        self,
        name: str,
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        timeout: float | timedelta | None = None,
        owner: str | None = None,
    ) -> Lock:
        """A lock that one thread of the whole fleet holds at most.

            with db.lock("nightly-report", ttl=30) as held:
                write_report(fencing_token=held.token)

        It renews itself; after a holder died, it is free again when `ttl` seconds have passed. `timeout` bounds the
        wait of `with`, and `owner` (by default this worker) is what others are told.
        """
        portal = self._connected()

        async def make() -> Lock:
            return Lock(portal, self._database.lock(name, ttl=ttl, timeout=timeout, owner=owner), timeout)

        return portal.call(make)

    def read_fenced(self, key: str) -> FencedValue | None:
        """What a leader wrote under `key` (`leader.put`), from any worker; `None` if nobody ever did."""
        return self._connected().call(lambda: self._database.read_fenced(key))

    def _connected(self) -> Portal:
        self._check_process()
        if self._portal is None:
            raise TenureError(f"{self!r} is not connected: use `with`, or connect() first")
        return self._portal

    def _check_process(self) -> None:
        """Also before anything was opened: the worker id is drawn here, and children that share one replace each
        other."""
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"{self!r} was made in process {self._pid} and used in its forked child {os.getpid()}: make one in the "
                "child itself (gunicorn: in post_fork; multiprocessing: 'spawn')"
            )


@contextmanager
def lead(
    url: str,
    namespace: str = "default",
    *,
    config: CoordinatorConfig | None = None,
    worker_id: str | None = None,
    timeout: float | None = None,
    on_lost: OnLost | None = None,
    overrun: Overrun = HookOverrun.REPORT,
) -> Iterator[Leader]:
    """Wait until this process leads, then run the body.

        with tenure.blocking.lead("s3://bucket/app") as leader:
            while leader.is_current():
                do_a_piece(leader.epoch)
                leader.sleep(1)

    At its end the lease is released, so that another process takes over at once. A thread cannot be cancelled: the body
    must ask (`is_current`, `ensure`, `sleep`, `lost`), and if leadership was lost meanwhile, `LeadershipLost` is raised
    at the end, unless the body raised something else. `timeout`: `LeadershipTimeout` if it does not lead within so many
    seconds. `on_lost(leader)` is called on a thread of tenure's when leadership is lost. `overrun="exit"`: a body that
    still runs when the lease is about to pass on ends the process, with exit code 75; a process that was frozen
    meanwhile ends a moment after it wakes.
    """
    began = SYSTEM_CLOCK.read()
    with Database(url, worker_id=worker_id) as opened:
        coordinator = opened.get_global_coordinator(namespace, config=config)
        coordinator.leadership(timeout=timeout, on_lost=on_lost, overrun=overrun)  # refused before anything is written
        coordinator.start()
        if timeout is not None:
            timeout = max(0.0, timeout - SYSTEM_CLOCK.read().leader_elapsed(began))
        with coordinator.leadership(timeout=timeout, on_lost=on_lost, overrun=overrun) as leader:
            yield leader


def terms(
    url: str,
    namespace: str = "default",
    *,
    config: CoordinatorConfig | None = None,
    worker_id: str | None = None,
    on_lost: OnLost | None = None,
    overrun: Overrun = HookOverrun.REPORT,
) -> Iterator[Leader]:
    """Lead, again and again: one `Leader` after another, for as long as the loop goes on.

        for leader in tenure.blocking.terms("s3://bucket/app"):
            with leader:                    # a LeadershipLost of this term ends the block quietly; then comes the next
                work(leader)

    Leaving the loop, also by an exception, releases the lease. The loop ends by itself when the process is about to.
    """
    with Database(url, worker_id=worker_id) as opened:
        coordinator = opened.get_global_coordinator(namespace, config=config)
        coordinator.leadership(on_lost=on_lost, overrun=overrun)  # refuses what cannot be, before anything is written
        coordinator.start()
        yield from coordinator.terms(on_lost=on_lost, overrun=overrun)
