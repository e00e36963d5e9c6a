"""Tells subscribers that a term began or ended, on the loop on which they subscribed.

For each subscriber: one call at a time, in order; no `on_stop_being_coordinator` without its `on_become_coordinator`; a
call that is still waiting when its term ends is dropped. What a subscriber raises is logged and harms nobody else.
Hooks are called with as many arguments as they take: the `Lead`, or nothing.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Protocol, TypeAlias

from tenure.coordinator.given import shown, takes
from tenure.coordinator.lead import Lead
from tenure.errors import ConfigError

_log = logging.getLogger("tenure.coordinator")

Hook: TypeAlias = Callable[..., Awaitable[None] | None]


class Subscriber(Protocol):
    """What `subscribe()` takes: an object with two hooks, which may be plain functions or coroutines.

    `on_become_coordinator` is given the `Lead` if it can take it, and `on_stop_being_coordinator` if it must.
    `on_become_coordinator` may run for as long as the term does: it is cancelled when leadership ends, and
    `on_stop_being_coordinator` is called when it has returned.
    """

    @property
    def on_become_coordinator(self) -> Hook: ...

    @property
    def on_stop_being_coordinator(self) -> Hook: ...


SUBSCRIBER_HOOKS: Mapping[str, int] = {"on_become_coordinator": 1, "on_stop_being_coordinator": 0}
"""The hooks of a subscriber, and whether one that can be called with the lead and without it is given it (1) or not."""
PLUGIN_HOOKS: Mapping[str, int] = {**SUBSCRIBER_HOOKS, "on_become_coordinator": 0, "coordinator_work": 0}
"""Those of a `CoordinatorPlugin`, which has the lead as an attribute."""


def prepared(name: str, subscriber: object, lead: Lead | None, hooks: Mapping[str, int]) -> Callable[[], object]:
    """The call of a hook, with the lead if it takes it. Raises `ConfigError` if it cannot be called."""
    hook, preferred = getattr(subscriber, name), hooks[name]
    for count in (preferred, 1 - preferred):
        if takes(hook, count):
            return partial(hook, *[lead] * count)
    raise ConfigError(f"{name} of {shown(subscriber)} cannot be called: it must take the Lead, or nothing")


def check_hooks(subscriber: object, hooks: Mapping[str, int]) -> None:
    for name in hooks:
        if not callable(getattr(subscriber, name, None)):
            raise ConfigError(
                f"plugin is {shown(subscriber)}, which has no method {name}: a subscriber needs both hooks"
            )
        prepared(name, subscriber, None, hooks)


class HookOverrun(enum.Enum):
    """What happens when leader-only work is still running as the lease runs out."""

    REPORT = "report"
    """`lease:overran` is emitted and logged. Fencing protects what the work writes."""
    EXIT = "exit"
    """The process ends at once, just before another may lead: nothing of it can overlap its successor."""


class HookFailure(enum.Enum):
    """What a leader does whose `on_become_coordinator` raises."""

    KEEP_LEADING = "keep-leading"
    """It goes on leading. Other plugins of the process may depend on it."""
    STEP_DOWN = "step-down"
    """It stops leading, and lets others first. Where there is nobody else it tries again, ever more rarely."""


def hook_failure(value: object) -> HookFailure:
    """The policy, also by its word."""
    try:
        return HookFailure(value)
    except ValueError:
        raise ConfigError(f"on_hook_failure is {shown(value)}: it must be 'keep-leading' or 'step-down'") from None


class Seat:
    """One subscriber, and its loop."""

    def __init__(
        self,
        subscriber: Subscriber,
        loop: asyncio.AbstractEventLoop,
        *,
        prepares: bool = False,
        overrun: HookOverrun = HookOverrun.REPORT,
    ) -> None:
        self.subscriber = subscriber
        self.prepares = prepares
        """In a cold start, it is told only after the preparation."""
        self.overrun = overrun
        self.failed: Callable[[Lead], None] | None = None
        """Called if `on_become_coordinator` raises, on the subscriber's loop."""
        self._loop = loop
        self._started: Lead | None = None
        self._begun: Lead | None = None
        self._becoming: asyncio.Task[None] | None = None
        self._finished: Lead | None = None
        self._last: asyncio.Task[None] | None = None  # the wind-up of the term before
        self._posted = 0  # calls on their way to the subscriber's loop
        self._lock = threading.Lock()

    @property
    def is_gone(self) -> bool:
        """Its loop is closed: nothing runs there any more."""
        return self._loop.is_closed()

    def is_for(self, subscriber: Subscriber, loop: asyncio.AbstractEventLoop) -> bool:
        return self.subscriber is subscriber and self._loop is loop

    @property
    def is_idle(self) -> bool:
        """It has nothing left to do for any term."""
        if self.is_gone:
            return True
        return self._posted == 0 and all(task is None or task.done() for task in (self._becoming, self._last))

    def idle(self) -> Future[None]:
        """Done when what runs now for an earlier term has ended."""
        done: Future[None] = Future()
        if not self._post(self._tell_idle, done):
            done.set_result(None)
        return done

    # On the coordinator's loop

    def begin(self, lead: Lead) -> None:
        self._post(self._start, lead)

    def finish(self, lead: Lead) -> Future[None]:
        """Done when the subscriber has nothing left to do for this term."""
        done: Future[None] = Future()
        if not self._post(self._stop, lead, done):
            done.set_result(None)  # its loop is closed: nothing runs there any more
        return done

    def _post(self, call: Callable[..., None], *arguments: object) -> bool:
        with self._lock:
            self._posted += 1
        try:
            self._loop.call_soon_threadsafe(self._arrived, call, *arguments)
        except RuntimeError:
            return False
        return True

    # On the subscriber's loop

    def _arrived(self, call: Callable[..., None], *arguments: object) -> None:
        call(*arguments)
        with self._lock:
            self._posted -= 1

    def _tell_idle(self, done: Future[None]) -> None:
        last = self._last if self._last is not None and not self._last.done() else self._becoming
        if last is None:
            settle_quietly(done)
        else:
            last.add_done_callback(lambda _: settle_quietly(done))

    def _start(self, lead: Lead) -> None:
        if self._started is lead and self._finished is not lead:
            return  # told twice: one term is begun once, unless its subscriber left and came back
        self._started, self._finished = lead, None
        self._becoming = self._loop.create_task(self._become(lead, self._last))

    def _stop(self, lead: Lead, done: Future[None]) -> None:
        # One term is wound up once: a second cancellation would cut short what the first one began.
        if self._finished is not lead or self._last is None:
            self._finished = lead
            self._last = self._loop.create_task(self._wind_up(lead, self._becoming, self._last))
        self._last.add_done_callback(lambda _: settle_quietly(done))

    async def _become(self, lead: Lead, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        if not lead.is_current():
            return
        if not await self._call("on_become_coordinator", lead) and self.failed is not None:
            self.failed(lead)

    async def _wind_up(
        self,
        lead: Lead,
        becoming: asyncio.Task[None] | None,
        before: asyncio.Task[None] | None,
    ) -> None:
        if becoming is not None and not becoming.done():
            becoming.cancel()
            await asyncio.wait([becoming])
        if before is not None and not before.done():
            await asyncio.wait([before])  # work of an earlier term still runs: the lease must not go over its head
        if self._begun is lead:
            self._begun = None
            await self._call("on_stop_being_coordinator", lead)

    async def _call(self, name: str, lead: Lead) -> bool:
        """False: it raised."""
        try:
            call = prepared(name, self.subscriber, lead, SUBSCRIBER_HOOKS)
            if name == "on_become_coordinator":
                self._begun = lead
            result = call()
            if inspect.isawaitable(result):
                await result
        except Exception:
            _log.exception("%s of %s failed", name, type(self.subscriber).__name__)
            return False
        return True


def settle_quietly(done: Future[None]) -> None:
    try:
        done.set_result(None)
    except InvalidStateError:
        pass  # whoever waited has given up
