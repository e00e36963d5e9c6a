"""A term, and its scope, for a thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal, TypeAlias

from tenure.blocking.portal import Body, Flag, Portal, must_not_wait
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.fenced import FencedValue
from tenure.coordinator.hooks import HookOverrun, Subscriber
from tenure.coordinator.lead import Lead
from tenure.coordinator.scope import LeadershipScope
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.errors import ConfigError, CoordinationError, LeadershipLost, LeadershipTimeout, TenureError

_log = logging.getLogger("tenure.blocking")

_LOOKS_EVERY = 0.25
"""The end of a term is told at once. Timers stand still while a machine sleeps, and a lease does not: so look too."""
_LONGEST_WAIT = 366 * 86_400.0

Overrun: TypeAlias = HookOverrun | Literal["report", "exit"]
OnLost: TypeAlias = "Callable[[Leader], object]"


class Loss:
    """The end of a term, as a `threading.Event` that nobody sets by hand. True once it is set."""

    def __init__(self, lead: Lead, told: Flag) -> None:
        self._lead = lead
        self._told = told

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        return not self._lead.is_current()

    def wait(self, timeout: float | None = None) -> bool:
        """Until the term is over, `timeout` seconds at most. True: it is over."""
        seconds = _check_wait("timeout", timeout)
        began = SYSTEM_CLOCK.read()
        while (left := self._lead.remaining()) > 0:
            rest = seconds - SYSTEM_CLOCK.read().leader_elapsed(began)
            if rest <= 0:
                return False
            self._told.wait(min(rest, left, _LOOKS_EVERY))
        return True


class Leader:
    """A term of leadership, for threads: any of them may use it.

    It ends once, for good, by itself when its deadline passes. A forked child never leads. It is true while it is
    current: `if leader:` asks `is_current()`.
    """

    def __init__(self, lead: Lead, portal: Portal, told: Flag, *, is_term: bool = False) -> None:
        self._lead = lead
        self._portal = portal
        self._is_term = is_term
        self.lost = Loss(lead, told)
        """`leader.lost.is_set()`, `leader.lost.wait(seconds)`: for code that takes a `threading.Event`."""

    def __repr__(self) -> str:
        return f"<Leader of {self.namespace!r}, epoch {self.epoch}, {self.ended or 'current'}>"

    def __bool__(self) -> bool:
        return self.is_current()

    @property
    def namespace(self) -> str:
        return self._lead.namespace

    @property
    def worker_id(self) -> str:
        return self._lead.worker_id

    @property
    def epoch(self) -> int:
        """Higher than that of every leader before: the fencing token of this term."""
        return self._lead.epoch

    @property
    def ended(self) -> str | None:
        """Why it is over; `None` while it is not."""
        return self._lead.ended

    def is_current(self) -> bool:
        """Does this process lead, now? A local comparison, with no request."""
        return self._lead.is_current()

    def remaining(self) -> float:
        """Seconds for which it leads even if no renewal gets through any more; 0.0: it is over."""
        return self._lead.remaining()

    def ensure(self, seconds: float = 0.0) -> None:
        """Go on only if leadership is certain for `seconds` more; raises `LeadershipLost` otherwise."""
        self._portal.check_process()
        self._lead.ensure(seconds)

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until this term is over, `timeout` seconds at most. True: it is over."""
        return self.lost.wait(timeout)

    def sleep(self, seconds: float) -> None:
        """Sleep; raises `LeadershipLost` as soon as this term is over."""
        self._portal.check_process()
        if seconds is None:
            raise ConfigError("seconds is None: give a number of seconds, or use wait_lost(), which waits for good")
        if self.lost.wait(_check_wait("seconds", seconds)):
            self._lead.ensure()

    # Fenced writes

    def put(self, key: str, body: bytes) -> None:
        """Write `body` under `key`, unless a newer epoch has written or claimed it: then `Fenced`.

        Raises `LeadershipLost` before anything is sent if this term is over, `WriteUnknown` if the store did not say
        what became of the write.
        """
        self._portal.call(lambda: self._lead.put(key, body))

    def claim(self, key: str) -> bytes | None:
        """Take `key` over with its value unchanged, and return the value. Do this before you rely on what you read."""
        return self._portal.call(lambda: self._lead.claim(key))

    def get(self, key: str) -> FencedValue | None:
        """What lies under a fenced key, whoever wrote it."""
        return self._portal.call(lambda: self._lead.get(key))

    def delete(self, key: str) -> None:
        """Remove the value. The fence stays, so that an older epoch cannot write it again."""
        self._portal.call(lambda: self._lead.delete(key))

    # In a loop over terms()

    def __enter__(self) -> Leader:
        """In `for leader in terms()`: a `LeadershipLost` of this term ends the block quietly; then comes the next."""
        if not self._is_term:
            raise CoordinationError("`with leader` is for a leader from terms(); leadership() is a scope of its own")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return kind is not None and issubclass(kind, LeadershipLost) and not self.is_current()


class Leadership:
    """`with coordinator.leadership() as leader:`

    Waits until this process leads, runs the body, and gives leadership back. If it was lost meanwhile, `LeadershipLost`
    is raised at the end, unless the body raised something else.
    """

    def __init__(
        self,
        portal: Portal,
        service: GlobalCoordinatorService,
        *,
        timeout: float | None = None,
        on_lost: OnLost | None = None,
        overrun: Overrun = HookOverrun.REPORT,
        is_term: bool = False,
    ) -> None:
        self._portal = portal
        self._service = service
        self._timeout = None if timeout is None else _check_wait("timeout", timeout)
        if on_lost is not None and not callable(on_lost):
            raise ConfigError(f"on_lost is {on_lost!r}: give a function of one argument, the leader")
        self._on_lost = on_lost
        self._overrun = _overrun(overrun)
        self._is_term = is_term
        self._term: _Term | None = None
        self._body: Body | None = None

    def __enter__(self) -> Leader:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._portal.is_forked:
            if kind is None:
                self._portal.check_process()
            return
        assert self._term is not None
        lead = self._term.led
        lost, why = not lead.is_current(), lead.ended
        self.end()
        if lost and kind is None:
            raise LeadershipLost(
                f"epoch {lead.epoch} of {lead.namespace!r} ended ({why}) while this block ran: stand again, or use "
                "terms(), which does"
            )

    def begin(self) -> Leader:
        """Wait until this process leads."""
        self._portal.check()
        if self._term is not None:
            raise CoordinationError("this scope is in use: call leadership() for each `with`")
        began = SYSTEM_CLOCK.read()
        try:
            while True:
                term = self._term = _Term(self._service, self._portal, self._overrun, self._on_lost, self._is_term)
                left = None if self._timeout is None else self._timeout - SYSTEM_CLOCK.read().leader_elapsed(began)
                leader = self._portal.call(lambda: term.begin(left), take_back=lambda _: term.close())  # noqa: B023
                self._body = Body(term.close)
                self._portal.enter(self._body)
                if leader.is_current():
                    return leader
                self.end()  # this thread stood still until it was over: nothing may begin under it
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """The body is over: leadership is given back, if it is still ours."""
        term, self._term = self._term, None
        body, self._body = self._body, None
        if body is not None:
            self._portal.leave(body)
        if term is None or self._portal.is_forked:
            return
        if must_not_wait():
            self._portal.call_later(term.close)
            return
        try:
            self._portal.call(term.close, goes_on=True)
        except TenureError:
            if self._portal.is_closed:
                return  # and with it all that there was to end
            raise


class _Term(LeadershipScope):
    """What stands for the body on the loop: as long as the body runs, the lease is not given away."""

    def __init__(
        self,
        service: GlobalCoordinatorService,
        portal: Portal,
        overrun: HookOverrun,
        on_lost: OnLost | None,
        is_term: bool,
    ) -> None:
        super().__init__(_Host(service, overrun))
        self._service = service
        self._portal = portal
        self._tell = on_lost
        self._is_term = is_term
        self._told = Flag()
        self._leader: Leader | None = None

    @property
    def led(self) -> Lead:
        assert self._lead is not None
        return self._lead

    async def begin(self, seconds: float | None) -> Leader:
        self._service.leadership()  # refuses where the coordinator does not run, and keeps it from leaving by itself
        try:
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                lead = await self.acquire()
        except TimeoutError:
            leader = await self._service.get_leader() or "nobody"
            raise LeadershipTimeout(
                f"{self._service.worker_id!r} did not come to lead {self._service.namespace!r} in the time given; as "
                f"last seen, {leader} leads"
            ) from None
        # No await since then: whoever tells of its end finds it here.
        self._leader = Leader(lead, self._portal, self._told, is_term=self._is_term)
        return self._leader

    async def on_stop_being_coordinator(self) -> None:
        leader = self._leader
        if leader is not None and not self._closed.is_set():
            self._told.set()
            if self._tell is not None:
                # On a thread of its own: it may use the blocking API, or wait, and delays nobody.
                threading.Thread(target=_tell, args=(self._tell, leader), name="tenure-on-lost", daemon=True).start()
        await super().on_stop_being_coordinator()


class _Host:
    """The coordinator, as a scope sees it."""

    def __init__(self, service: GlobalCoordinatorService, overrun: HookOverrun) -> None:
        self._service = service
        self._overrun = overrun

    def subscribe(self, plugin: Subscriber) -> None:
        self._service.subscribe(plugin, hook_overrun=self._overrun)

    def unsubscribe(self, plugin: Subscriber) -> None:
        self._service.unsubscribe(plugin)

    async def leave(self, reason: str) -> None:
        await self._service.leave(reason)

    async def must_go_on(self) -> None:
        await self._service.must_go_on()


def _tell(on_lost: OnLost, leader: Leader) -> None:
    try:
        on_lost(leader)
    except BaseException:  # also sys.exit(), which would end this thread without a word
        _log.exception("on_lost failed for epoch %d of %r", leader.epoch, leader.namespace)


def _overrun(value: Overrun) -> HookOverrun:
    try:
        return HookOverrun(value)
    except ValueError:
        raise ConfigError(f"overrun is {value!r}: give 'report' or 'exit'") from None


def _check_wait(name: str, seconds: float | None) -> float:
    if seconds is None:
        return _LONGEST_WAIT
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_WAIT:
        raise ConfigError(f"{name} is {seconds!r}: give seconds, from 0 to {_LONGEST_WAIT:g}")
    return float(seconds)
