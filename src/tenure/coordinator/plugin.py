"""The base class of everything that is to happen on the leader alone.

    class Reports(CoordinatorPlugin):
        slug = "reports"

        async def coordinator_work(self) -> None:     # every few seconds, on one process of the fleet
            await write_report(token=self.epoch)

    await db.use_plugin(Reports(coordinator_work_interval=60))

Guarantee: hooks run on the loop that started the plugin, one at a time, and only while this process leads. When that
ends, what runs is cancelled, and `on_stop_being_coordinator` called, while the lease is still ours; after a stall
nothing new begins. What a hook raises is reported, and harms neither the heartbeat, nor other plugins, nor later calls.

Not guaranteed: that code which ignores cancellation, or blocks a thread, has ended when the lease passes on. It is
reported as `lease:overran` (or ends the process: `HookOverrun.EXIT`), and fenced writes protect what it writes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol

from tenure.clock import Clock, Reading
from tenure.coordinator.apart import apart
from tenure.coordinator.cold_start import ColdStartPlan
from tenure.coordinator.config import DAY, CoordinatorConfig, check_config, seconds
from tenure.coordinator.events import (
    EventStream,
    Handler,
    HookFailed,
    LeaderChanged,
    NamedEvent,
    PluginEvent,
    Subscription,
    Tap,
)
from tenure.coordinator.fencing import EpochFence, EpochValidation
from tenure.coordinator.given import check_flag, shown
from tenure.coordinator.hooks import PLUGIN_HOOKS, HookFailure, HookOverrun, check_hooks, hook_failure, prepared
from tenure.coordinator.layout import MAX_WORKER_ID_CHARACTERS, check_name, folder_of
from tenure.coordinator.lead import Lead
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.election.records import MAX_EPOCH
from tenure.errors import ConfigError, CoordinationError, RequestRefused

_log = logging.getLogger("tenure.plugin")

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z0-9])|[A-Z]?[a-z0-9]+|[A-Z]+")
_MAX_SLUG = 40
_COORDINATOR_EVENTS = "coord:"
_LONGEST_INTERVAL = 24 * 3600.0


_ALONE_WITHIN = 10.0
"""Seconds that `stop()` waits for the hooks of a plugin without coordination."""


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class PluginHost(Protocol):
    """What a plugin needs of its database."""

    @property
    def clock(self) -> Clock: ...

    @property
    def worker_id(self) -> str: ...

    async def get_global_coordinator(
        self, namespace: str = "default", *, config: CoordinatorConfig | None = None
    ) -> GlobalCoordinatorService: ...

    def plugin_storage(self, slug: str, name: str) -> Any: ...


class CoordinatorPlugin:
    """Leader-only work. Override any of the three hooks; all may be plain functions or coroutines.

    `coordinator_work_interval` is the time from the start of one call to the start of the next; a call that takes
    longer is followed by the next one at once, never overlapped by it. The other options are those of the election
    (`config`), of its first run in a new namespace (`skip_cold_start`, `cold_start_…`), and of work that does not end
    (`hook_overrun`) or cannot begin (`on_hook_failure`). `enable_coordinator=False`: this is the only instance;
    everything runs here, and nothing is elected or written for it.
    """

    slug: str = ""  # no ClassVar: Pyright would ask for one in every subclass that sets it
    """The kind of plugin, as in `plg:{slug}:…` and in keys. Default: made of the class's name."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__dict__.get("slug"):
            words = _WORD.findall(cls.__name__.removesuffix("Plugin") or cls.__name__)
            cls.slug = "-".join(words).lower()[:_MAX_SLUG]
        if not _SLUG.fullmatch(cls.slug) or len(cls.slug) > _MAX_SLUG:
            raise ConfigError(
                f"slug of {cls.__name__} is {cls.slug!r}: give at most {_MAX_SLUG} lower-case letters, digits and "
                "single dashes, e.g. 'nightly-report'"
            )

    def __init__(
        self,
        *,
        namespace: str = "default",
        config: CoordinatorConfig | None = None,
        enable_coordinator: bool = True,
        coordinator_work_interval: float | timedelta = 5.0,
        skip_cold_start: bool = False,
        cold_start_observation_window: float | timedelta = 15.0,
        cold_start_preparation_delay: float | timedelta = 5.0,
        hook_overrun: HookOverrun | str = HookOverrun.REPORT,
        on_hook_failure: HookFailure | str = HookFailure.KEEP_LEADING,
    ) -> None:
        folder_of(namespace)  # refuses a name that cannot be one
        self.namespace = namespace
        check_config(config)
        self.coordinator_work_interval = seconds(
            "coordinator_work_interval", coordinator_work_interval, shortest=0.001, longest=_LONGEST_INTERVAL
        )
        check_flag("enable_coordinator", enable_coordinator)
        check_flag("skip_cold_start", skip_cold_start)
        try:
            self._hook_overrun = HookOverrun(hook_overrun)
        except ValueError:
            raise ConfigError(f"hook_overrun is {hook_overrun!r}: it must be 'report' or 'exit'") from None
        self._on_hook_failure = hook_failure(on_hook_failure)
        self.enable_coordinator = enable_coordinator
        self._config = config
        plan = ColdStartPlan(
            seconds("cold_start_observation_window", cold_start_observation_window, zero=True),
            seconds("cold_start_preparation_delay", cold_start_preparation_delay, zero=True),
        )
        self._cold_start = None if skip_cold_start else plan
        self.name = self.slug
        """Of this instance; set when it is given to a database."""
        self._host: PluginHost | None = None
        self._coordinator: GlobalCoordinatorService | None = None
        self._hooks = _Hooks(self)
        self._fence = EpochFence()
        self._fence_lock = threading.Lock()  # epochs are learned on the coordinator's thread
        self._tap: Tap | None = None
        self._alone: asyncio.Task[None] | None = None
        self._former: set[asyncio.Task[None]] = set()
        self._hook_tasks: set[asyncio.Task[Any] | None] = set()
        self._ending = False
        self._starting = asyncio.Lock()
        self._lead: Lead | None = None
        self._told = False
        self.hook_failures = 0
        """How many calls of hooks raised."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # To override

    def on_become_coordinator(self) -> Awaitable[None] | None:
        """This process leads now (`self.lead`). May run for as long as the term; it is cancelled when that ends."""

    def on_stop_being_coordinator(self) -> Awaitable[None] | None:
        """It leads no more; the lease is still ours, for the time that `self.time_to_wind_up()` gives."""

    def coordinator_work(self) -> Awaitable[None] | None:
        """Called every `coordinator_work_interval` while this process leads, once `on_become_coordinator` returned."""

    # Life

    def attach(self, host: PluginHost, name: str) -> None:
        """Belong to a database. Called by `Database.use_plugin`."""
        check_hooks(self, PLUGIN_HOOKS)
        if self._host is not None and self._host is not host:
            raise ConfigError(f"{self!r} belongs to {self._host!r} already: make one plugin object for each database")
        self._host, self.name = host, name

    async def start(self) -> None:
        """Called by `Database.use_plugin`. Override it for what must be set up first, and call this one then."""
        await self.start_coordination()

    async def start_coordination(self) -> None:
        """Take part: from here on the hooks are called. A second call changes nothing."""
        host = self._attached()
        async with self._starting:
            if self._ending:
                await self._end()  # a stop that was not waited for
            if self._coordinator is not None or self._alone is not None:
                return
            if not self.enable_coordinator:
                self._alone = asyncio.get_running_loop().create_task(self._work_alone(host.clock, set(self._former)))
                return
            coordinator = await host.get_global_coordinator(self.namespace, config=self._config)
            self._begin(coordinator, host.clock)
            try:
                await coordinator.start_for_subscribers()
            except BaseException:
                await self._end()
                raise

    async def stop(self) -> None:
        """Wind up and take no further part. The coordinator goes on for the other plugins of this process, if any."""
        async with self._starting:
            alone, self._alone = self._alone, None
            if alone is not None:
                alone.cancel()
                self._former = {task for task in self._former if not task.done()} | {alone}
                if not self._is_inside():
                    await asyncio.wait([alone], timeout=_ALONE_WITHIN)
            await self._end()

    # What is known

    @property
    def coordinator(self) -> GlobalCoordinatorService:
        """Raises if the plugin takes no part in an election."""
        if self._coordinator is None:
            why = "was told not to coordinate" if not self.enable_coordinator else "has not been started"
            how = "" if not self.enable_coordinator else "; `await db.use_plugin(plugin)` starts it"
            raise CoordinationError(f"{self!r} {why}: it has no coordinator{how}")
        return self._coordinator

    @property
    def is_coordinator(self) -> bool:
        """Does this plugin lead, at this instant? From its `on_become_coordinator` on, so not yet while a cold start
        is being prepared (`coordinator.is_leader()` is true then). Always true, once started, without coordination."""
        if not self.enable_coordinator:
            return self._alone is not None and not self._alone.done()
        return self.lead is not None

    @property
    def worker_id(self) -> str:
        return self._coordinator.worker_id if self._coordinator is not None else self._attached().worker_id

    @property
    def storage(self) -> Any:
        """The `PluginStorage` of this instance: keys and values that no other plugin sees."""
        return self._attached().plugin_storage(self.slug, self.name)

    @property
    def lead(self) -> Lead | None:
        """The leadership under which this plugin works; `None` if it does not lead (or does not coordinate)."""
        return self._lead if self._lead is not None and self._lead.is_current() else None

    @property
    def epoch(self) -> int:
        """The epoch of `lead`, or the last one known; 0 without coordination."""
        if self._lead is not None:
            return self._lead.epoch
        return self._coordinator.get_epoch() if self._coordinator is not None else 0

    def time_to_wind_up(self) -> float:
        """Seconds until another may lead; infinite without coordination."""
        if not self.enable_coordinator:
            return float("inf")
        return self._lead.time_to_wind_up() if self._lead is not None else 0.0

    async def ensure_coordinator(
        self, *, force: bool = False, desired_coordinator: str | None = None, timeout: float = 30.0
    ) -> str:
        """See to it that somebody leads, and say who.

        With `desired_coordinator` leadership is handed to that worker, and with `force` also inside the mandate of
        the one that has it. With `force` alone the leader is asked to step down, so that an election is held. Raises
        `RequestRefused` if it did not happen within `timeout` seconds.
        """
        check_flag("force", force)
        if desired_coordinator is not None:
            check_name("desired_coordinator", desired_coordinator, MAX_WORKER_ID_CHARACTERS)
        timeout = seconds("timeout", timeout, zero=True, longest=DAY)
        if not self.enable_coordinator:
            return self.worker_id
        coordinator = self.coordinator
        before = await coordinator.get_leader()
        leader = await self._await_leader(timeout)
        if desired_coordinator is not None and leader != desired_coordinator:
            return (await coordinator.transfer(desired_coordinator, force=force, timeout=timeout)).leader
        if force and desired_coordinator is None and before is not None:
            return (await coordinator.elect_again(timeout=timeout)).leader
        return leader

    def validate_epoch(self, task_epoch: int, *, dispatched_ago: float | None = None) -> EpochValidation:
        """Is a task that was dispatched by the leader of `task_epoch`, and arrived now, still good?

        The answer is true if it is: `if not plugin.validate_epoch(epoch): return`. `dispatched_ago` (seconds, by the
        task's own stamp) can only narrow the grace. Stale tasks are counted as `epoch_drift_events`.
        """
        # One that no lease can have would make every true one look stale, for good.
        if isinstance(task_epoch, bool) or not isinstance(task_epoch, int) or not 0 <= task_epoch <= MAX_EPOCH:
            raise ConfigError(
                f"task_epoch is {shown(task_epoch)}: it is the epoch of the leader that dispatched the task"
            )
        if isinstance(dispatched_ago, bool) or not isinstance(dispatched_ago, int | float | None):
            raise ConfigError(f"dispatched_ago is {shown(dispatched_ago)}: give a number of seconds")
        now = self._attached().clock.read()
        with self._fence_lock:
            verdict = self._fence.validate_epoch(task_epoch, now, dispatched_ago)
        if not verdict.valid and self._coordinator is not None:
            self._coordinator.count_epoch_drift()
        return verdict

    def is_epoch_valid(self, task_epoch: int, *, dispatched_ago: float | None = None) -> bool:
        """`validate_epoch(...).valid`."""
        return self.validate_epoch(task_epoch, dispatched_ago=dispatched_ago).valid

    def on(self, name: str, handler: Handler) -> Subscription:
        """Call `handler(event)` for every event called `name`: the coordinator's, and this plugin's `plg:{slug}:…`."""
        return self.coordinator.on(name, handler)

    def events(self, *names: str) -> EventStream:
        return self.coordinator.events(*names)

    def emit(self, what: str, event: NamedEvent) -> None:
        """Tell listeners of `plg:{slug}:{what}`. Without coordination there is nobody to tell."""
        coordinator = self._coordinator  # read once: this may be another thread than the one that stops the plugin
        if coordinator is not None:
            coordinator.emit(PluginEvent(f"plg:{self.slug}:{what}", self.name, event))

    # Inside

    def _begin(self, coordinator: GlobalCoordinatorService, clock: Clock) -> None:
        settings = coordinator.config
        with self._fence_lock:
            self._fence = EpochFence(settings.epoch_fencing_enabled, settings.epoch_grace_period)
        self._coordinator = coordinator
        if self._tap is None:
            self._tap = coordinator.tap(lambda event: self._heard(event, clock.read()), repr(self))
        with self._fence_lock:  # after the tap: a change in between is heard
            if (epoch := coordinator.get_epoch()) > 0:
                self._fence.observe(epoch, clock.read())
        coordinator.subscribe(self._hooks, cold_start=self._cold_start, hook_overrun=self._hook_overrun)

    async def _end(self) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            return
        self._ending = True
        if self._is_inside():
            coordinator.unsubscribe(self._hooks)  # whoever waited for its own end would wait for ever
        else:
            await coordinator.withdraw(self._hooks)
        if self._tap is not None:
            self._tap.end()
        self._coordinator = self._tap = None
        self._ending = False

    def _heard(self, event: NamedEvent, now: Reading) -> None:
        """On whichever thread it happened."""
        if isinstance(event, LeaderChanged):
            with self._fence_lock:
                self._fence.observe(event.epoch, now)
        elif event.name.startswith(_COORDINATOR_EVENTS):
            self.emit(event.name.removeprefix(_COORDINATOR_EVENTS), event)

    async def lead_term(self, lead: Lead) -> None:
        """Everything that is done for one term; cancelled when it ends."""
        self._lead = lead
        self._told = True
        began = await self._call("on_become_coordinator")
        if not began and self._on_hook_failure is HookFailure.STEP_DOWN:
            if (coordinator := self._coordinator) is not None:  # the hook may have stopped its plugin
                coordinator.give_way(lead)
            return
        await self._work(self._attached().clock, lead.is_current)

    async def wind_up(self) -> None:
        """The term is over, and nothing of it runs any more."""
        if self._told:
            self._told = False
            await self._call("on_stop_being_coordinator")
        self._lead = None

    async def _work_alone(self, clock: Clock, before: set[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)  # never beside itself, also after a stop that was not waited for
        try:
            await self._call("on_become_coordinator")
            await self._work(clock, lambda: True)
            if not _is_cancelled():
                await asyncio.get_running_loop().create_future()
        finally:
            await self._call("on_stop_being_coordinator")

    async def _work(self, clock: Clock, may_begin: Callable[[], bool]) -> None:
        if type(self).coordinator_work is CoordinatorPlugin.coordinator_work:
            return
        # Work may take its cancellation as a wish to finish, and return: then nothing more begins either.
        while may_begin() and not _is_cancelled():
            began = clock.read()
            await self._call("coordinator_work")
            if _is_cancelled():
                return
            await clock.sleep(max(0.0, self.coordinator_work_interval - clock.read().leader_elapsed(began)))

    def _is_inside(self) -> bool:
        """Is this called by one of the plugin's own hooks?"""
        return asyncio.current_task() in self._hook_tasks

    async def _call(self, hook: str) -> bool:
        """False: it failed, which was reported."""
        task = asyncio.current_task()
        self._hook_tasks.add(task)
        try:
            result = prepared(hook, self, self._lead, PLUGIN_HOOKS)()
            if inspect.isawaitable(result):
                await apart(result, among=self._hook_tasks)
        except asyncio.CancelledError as error:
            if task is None or task.cancelling():
                raise
            self._failed(hook, error)  # it waited for something that was cancelled: that is its own failure
            return False
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            self._failed(hook, error)
            return False
        finally:
            self._hook_tasks.discard(task)
        return True

    def _failed(self, hook: str, error: BaseException) -> None:
        self.hook_failures += 1
        _log.error("%s of %r failed", hook, self, exc_info=error)
        coordinator = self._coordinator
        if coordinator is not None:
            text = f"{type(error).__name__}: {error}"[:500]
            coordinator.emit(HookFailed(self.namespace, self.name, hook, text))

    async def _await_leader(self, timeout: float) -> str:
        coordinator, clock = self.coordinator, self._attached().clock
        began = clock.read()
        while (leader := await coordinator.get_leader()) is None:
            if clock.read().leader_elapsed(began) >= timeout:
                raise RequestRefused(f"nobody leads {self.namespace!r} after {timeout:g} s: see `tenure status`")
            await clock.sleep(min(0.2, timeout))
        return leader

    def _attached(self) -> PluginHost:
        if self._host is None:
            raise ConfigError(f"{self!r} belongs to no database: `await db.use_plugin(plugin)` gives it to one")
        return self._host


class _Hooks:
    """How the coordinator sees a plugin. Its own hooks take no arguments, and are the user's to override."""

    def __init__(self, plugin: CoordinatorPlugin) -> None:
        self._plugin = plugin

    async def on_become_coordinator(self, lead: Lead) -> None:
        await self._plugin.lead_term(lead)

    async def on_stop_being_coordinator(self) -> None:
        await self._plugin.wind_up()
