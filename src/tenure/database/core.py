"""The front door: a store, and the coordinators on it.

async with Database("s3://bucket/app") as db:
    coordinator = await db.get_global_coordinator("default")
    await coordinator.start()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast, overload

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.config import CoordinatorConfig, check_config
from tenure.coordinator.fenced import FencedValue, read
from tenure.coordinator.given import check_instance
from tenure.coordinator.layout import check_name, folder_of
from tenure.coordinator.lead import Lead
from tenure.coordinator.lock import DistributedLock
from tenure.coordinator.lock.keeper import LockCensus, LockKeeper
from tenure.coordinator.lock.lock import DEFAULT_TTL
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database.resource import Resource
from tenure.database.storage import PluginStorage
from tenure.database.time import StoreTime
from tenure.database.tracing import Tracer, Tracing
from tenure.entropy import NewId, Random, new_id
from tenure.errors import ConfigConflict, ConfigError, TenureError
from tenure.store import Metered, Store, Usage, open_store
from tenure.store.opening import DEFAULT_TIMEOUT
from tenure.store.url import parse_url

_log = logging.getLogger("tenure.database")

MAX_PLUGIN_NAME_CHARACTERS = 64


class Plugin(Protocol):
    """What `use_plugin` takes. `CoordinatorPlugin` is one."""

    @property
    def slug(self) -> str: ...

    def attach(self, host: Any, name: str) -> None:
        """Belong to the database `host`, under `name`."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


AnyPlugin = TypeVar("AnyPlugin", bound=Plugin)
D = TypeVar("D")


class Database:
    """A store at a URL (`s3://`, `gs://`, `az://`, `file:///`, `memory://`), and what coordinates on it.

    `worker_id` is the default for every coordinator; `timeout` is for each request, in seconds. Opening tries the store
    out, and refuses one on which tenure would not be safe.
    """

    def __init__(
        self,
        connection_string: str,
        *,
        worker_id: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        draw_id: NewId = new_id,
    ) -> None:
        self.url = parse_url(connection_string).shown
        self._opening = open_store(connection_string, timeout=timeout, clock=clock, draw_id=draw_id)
        self.worker_id = worker_id or f"worker-{clock.read().wall_ns // 1_000_000}-{draw_id()[:8]}"
        """The name of this process in every namespace whose config gives no other."""
        self.clock = clock
        self.random = random if random is not None else Random()
        self.draw_id = draw_id
        self._store: Metered | None = None
        self._coordinators: dict[str, GlobalCoordinatorService] = {}
        self._plugins: dict[tuple[str, str], Plugin] = {}
        self._resources: dict[str, Resource[Any]] = {}
        self._keeper: LockKeeper | None = None
        self._time: StoreTime | None = None
        self._connecting = asyncio.Lock()
        self._closing = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it was connected, and its plugins live."""
        self.tracing = Tracing()
        if worker_id is not None:
            CoordinatorConfig(worker_id=worker_id)  # refuses an id that cannot be one, before anything is opened

    def __repr__(self) -> str:
        return f"<Database {self.url}>"

    async def connect(self) -> Self:
        """Open the store. Raises a `StoreError` that says what to do."""
        async with self._connecting:
            if self._store is None:
                store = Metered(await self._opening, clock=self.clock)
                self.loop = asyncio.get_running_loop()
                if self.tracing.tracer is not None:
                    store.wrap(self.tracing.tracer.store)
                self._store = store
        return self

    async def disconnect(self) -> None:
        """Stop every plugin and every coordinator, give back every lock, and close the store."""
        async with self._connecting:  # a second call waits for the first, and a connect() for both
            self._closing = True
            try:
                await self._wind_up()
            finally:
                self._closing = False

    async def _wind_up(self) -> None:
        """Each step is taken also if an earlier one was cut short. Plugins use the rest until they have stopped."""
        plugins, self._plugins = list(self._plugins.values()), {}
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._close)
            steps.push_async_callback(self._release_locks)
            for coordinator in self._coordinators.values():
                steps.push_async_callback(coordinator.close)
            steps.push_async_callback(_close_together, list(self._coordinators.values()))
            steps.push_async_callback(_stop_plugins, plugins)

    async def _release_locks(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.aclose()

    async def _close(self) -> None:
        store, self._store = self._store, None
        self._coordinators, self._resources, self._time = {}, {}, None
        if store is not None:
            await store.aclose()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    @property
    def store(self) -> Store:
        """The store itself. Raises if the database is not connected."""
        return self._connected()

    def usage(self) -> Usage:
        """Requests, bytes and USD that went through this database since it was connected."""
        return self._connected().usage()

    async def get_global_coordinator(
        self, namespace: str = "default", *, config: CoordinatorConfig | None = None
    ) -> GlobalCoordinatorService:
        """The coordinator of `namespace`, made on first use; the same object ever after. `start()` makes it take part.

        Raises `ConfigConflict` naming the field if it exists with another config.
        """
        store = self._connected()
        self._check_not_closing()
        folder_of(namespace)  # refuses a name that cannot be one
        check_config(config)
        existing = self._coordinators.get(namespace)
        if existing is not None:
            self._check_same(existing, config)
            return existing
        chosen = config if config is not None else CoordinatorConfig()
        if chosen.worker_id is None:
            chosen = chosen.replace(worker_id=self.worker_id)
        # No await since the look-up: two calls at once cannot both get here.
        made = GlobalCoordinatorService(
            store, namespace, chosen, clock=self.clock, random=self.random, draw_id=self.draw_id, usage=store.usage
        )
        self._coordinators[namespace] = made
        if self.tracing.tracer is not None:
            self.tracing.tracer.coordinator(made)
        return made

    async def use_plugin(self, plugin: AnyPlugin, name: str | None = None) -> AnyPlugin:
        """Give `plugin` to this database, start it, and give it back.

        `name` tells several instances of one kind apart; it defaults to the kind (`slug`). All plugins of a namespace
        share one coordinator and its one heartbeat.
        """
        self._connected()
        self._check_not_closing()
        for needed in ("attach", "start", "stop"):
            if isinstance(plugin, type) or not callable(getattr(plugin, needed, None)):
                raise ConfigError(f"{plugin!r} is not a plugin: give an object of a subclass of CoordinatorPlugin")
        default = getattr(plugin, "default_name", plugin.slug)
        chosen = check_name("name", name if name is not None else default, MAX_PLUGIN_NAME_CHARACTERS)
        key = (plugin.slug, chosen)
        if key in self._plugins:
            raise ConfigError(
                f"there is a plugin {chosen!r} of kind {plugin.slug!r} already: give each instance a name of its own"
            )
        plugin.attach(self, chosen)
        self._plugins[key] = plugin
        try:
            await plugin.start()
        except BaseException:
            if self._plugins.get(key) is plugin:
                del self._plugins[key]
            raise
        if self._plugins.get(key) is not plugin:
            await plugin.stop()
            raise TenureError(f"{self!r} was disconnected while {plugin!r} was started: it was stopped again")
        return plugin

    @overload
    def resource(self, name: str, schema: None = None, *, reuse_ids: bool = True) -> Resource[dict[str, Any]]: ...
    @overload
    def resource(self, name: str, schema: type[D], *, reuse_ids: bool = True) -> Resource[D]: ...
    def resource(self, name: str, schema: type[Any] | None = None, *, reuse_ids: bool = True) -> Resource[Any]:
        """The collection of JSON records called `name`; the same object for the same name.

        `schema`: a msgspec Struct or dataclass that every record must fit. `reuse_ids=False` promises, for the whole
        fleet, that an id is never inserted again after its record was deleted.
        """
        store = self._connected()
        check_instance("name", name, str)
        existing = self._resources.get(name)
        if existing is None:
            existing = self._resources[name] = Resource(
                store, name, schema, reuse_ids=reuse_ids, clock=self.clock, draw_id=self.draw_id
            )
        elif (existing.schema, existing.reuse_ids) != (schema, reuse_ids):
            raise ConfigConflict(
                f"resource {name!r} was opened with schema {existing.schema} and reuse_ids={existing.reuse_ids}, and "
                f"now with schema {schema} and reuse_ids={reuse_ids}: use the same for all of a process"
            )
        return existing

    def opened_resource(self, name: str) -> Resource[Any] | None:
        """The resource of that name, whatever its schema, if this process has opened it."""
        return self._resources.get(name)

    def lock(
        self,
        name: str,
        *,
        ttl: float | timedelta = DEFAULT_TTL,
        timeout: float | timedelta | None = None,
        owner: str | None = None,
    ) -> DistributedLock:
        """A lock that one process of the fleet holds at most.

            async with db.lock("nightly-report", ttl=30) as held:
                await write_report(fencing_token=held.token)

        Its holder renews it by itself; after a holder died, it is free again when `ttl` seconds have passed. `timeout`
        bounds the wait of `async with`, and `owner` (by default this worker) is what others are told.
        """
        store = self._connected()
        if self._keeper is None:
            self._keeper = LockKeeper(clock=self.clock)
        return DistributedLock(
            store,
            name,
            ttl=ttl,
            timeout=timeout,
            owner=owner if owner is not None else self.worker_id,
            clock=self.clock,
            random=self.random,
            draw_id=self.draw_id,
            keeper=self._keeper,
        )

    async def read_fenced(self, key: str) -> FencedValue | None:
        """What a leader wrote under `key` (`lead.put`), from any worker; `None` if nobody ever did."""
        return await read(self._connected(), key)

    def plugin_storage(self, slug: str, name: str) -> PluginStorage:
        """The keys and values of one plugin instance, apart from those of every other."""
        store = self._connected()
        if self._time is None:
            self._time = StoreTime(store, clock=self.clock, draw_id=self.draw_id)
        return PluginStorage(store, slug, name, clock=self.clock, draw_id=self.draw_id, time=self._time)

    @property
    def plugins(self) -> dict[tuple[str, str], Plugin]:
        """By kind and name."""
        return dict(self._plugins)

    @property
    def coordinators(self) -> dict[str, GlobalCoordinatorService]:
        """By namespace: those that this process has asked for."""
        return dict(self._coordinators)

    @property
    def locks(self) -> LockCensus:
        """How many locks this process holds, and waits for."""
        keeper = self._keeper
        return keeper.census() if keeper is not None else LockCensus(0, 0)

    def trace(self, tracer: Tracer) -> None:
        """Have everything that can be followed told to `tracer` from now on; see `tenure.telemetry.otel`."""
        if self.tracing.tracer is not None:
            raise ConfigError(f"{self!r} is traced already: end that first")
        self.tracing.tracer = tracer
        if self._store is not None:
            self._store.wrap(tracer.store)
        for coordinator in self._coordinators.values():
            tracer.coordinator(coordinator)

    def _check_same(self, existing: GlobalCoordinatorService, config: CoordinatorConfig | None) -> None:
        if config is None:
            return
        if config.worker_id is None:
            config = config.replace(worker_id=self.worker_id)
        for field, theirs, ours in existing.config.differences(config):
            raise ConfigConflict(
                f"{field} is {ours!r} here, and the coordinator of {existing.namespace!r} in this process already "
                f"exists with {theirs!r}: one process has one coordinator per namespace; use the same config, or "
                "another namespace"
            )

    def _check_not_closing(self) -> None:
        if self._closing:
            raise TenureError(f"{self!r} is being disconnected: connect() it again first")

    def _connected(self) -> Metered:
        if self._store is None:
            raise TenureError(f"{self!r} is not connected: use `async with`, or await connect() first")
        return self._store


async def _stop_plugins(plugins: list[Plugin]) -> None:
    """All at once: each has the same time to wind up. One that fails does not keep the others from ending."""
    results = await asyncio.gather(*(plugin.stop() for plugin in plugins), return_exceptions=True)
    for plugin, result in zip(plugins, results, strict=True):
        if isinstance(result, Exception):
            _log.error("%r did not stop as it should", plugin, exc_info=result)


async def _close_together(coordinators: list[GlobalCoordinatorService]) -> None:
    await asyncio.gather(*(coordinator.close() for coordinator in coordinators), return_exceptions=True)


@asynccontextmanager
async def lead(
    url: str,
    namespace: str = "default",
    *,
    config: CoordinatorConfig | None = None,
    worker_id: str | None = None,
) -> AsyncIterator[Lead]:
    """Wait until this process leads, then run the body; it is cancelled when leadership can no longer be trusted.

        async with tenure.lead("s3://bucket/app") as lead:
            await only_one_of_us_does_this(lead.epoch)

    At its end the lease is released, so that another process takes over at once. If leadership was lost, the body is
    cancelled and `LeadershipLost` raised: call again to stand again, or use `terms()`, which does.
    """
    async with Database(url, worker_id=worker_id) as database:
        coordinator = await database.get_global_coordinator(namespace, config=config)
        await coordinator.start()
        async with coordinator.leadership() as leadership:
            yield leadership


async def terms(
    url: str,
    namespace: str = "default",
    *,
    config: CoordinatorConfig | None = None,
    worker_id: str | None = None,
) -> AsyncGenerator[Lead, None]:
    """Lead, again and again: one `Lead` after another, for as long as the loop goes on.

        async for lead in tenure.terms("s3://bucket/app"):
            async with lead:        # cancelled, quietly, when this term ends; then comes the next one
                await work(lead.epoch)

    A body that ends by itself gives leadership back, and stands again. A loop that is left by `break` or an exception
    while the program goes on is closed by `async with contextlib.aclosing(tenure.terms(url)) as terms:`, at once.
    """
    async with Database(url, worker_id=worker_id) as database:
        coordinator = await database.get_global_coordinator(namespace, config=config)
        await coordinator.start()
        async with aclosing(cast("AsyncGenerator[Lead, None]", coordinator.terms())) as one_after_another:
            async for leadership in one_after_another:
                yield leadership
