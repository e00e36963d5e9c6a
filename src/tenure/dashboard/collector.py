"""Looks at the bucket at a pace that costs little, and puts what it sees on the board. Only reads.

Guarantee: nothing that lies in the bucket ends it. What cannot be read is told, and looked at again.

While nobody watches, the lease is looked at every thirty seconds, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenure._version import __version__
from tenure.clock import Clock, Reading
from tenure.coordinator.layout import namespace_store
from tenure.dashboard.board import Board
from tenure.dashboard.fleet import Fleet
from tenure.dashboard.sections import Meta, OwnUsage, Problem, shown
from tenure.dashboard.times import wall_ms
from tenure.dashboard.work import Work
from tenure.errors import StoreError, TenureError
from tenure.store import Store
from tenure.store.metered import Metered
from tenure.store.url import redact

_log = logging.getLogger("tenure.dashboard")

SECONDS_BETWEEN_LISTINGS = 5.0
SECONDS_WITHOUT_WATCHERS = 60.0
IDLE_SECONDS = 30.0
_LONGEST_PAUSE = 30.0
_WORK_PAUSE = 1.0
_SECONDS_OF_WORK = 10
"""At most, before it is looked for what else there is."""
_SECONDS_BEFORE_RATES = 10.0


class Collector:
    """`store` is the whole database's, opened for reading."""

    def __init__(self, store: Store, place: str, namespace: str, *, interval: float, clock: Clock) -> None:
        self._clock = clock
        self._interval = interval
        self._started = clock.read()
        self._place = place
        self._namespace = namespace
        self.meter = Metered(store)
        self.fleet = Fleet(Metered(namespace_store(self.meter, namespace)), namespace, interval, clock)
        self.work = Work(self.meter, clock, store.info.provider)
        self.board = Board(lambda: wall_ms(clock.read()))
        self.clients = 0
        """Pages that watch."""
        self._asked: Reading | None = None
        """When something was last asked for, by anybody."""
        self._wake = asyncio.Event()
        self._looked = asyncio.Event()
        self._problem: Problem | None = None
        self._troubles: dict[str, str] = {}
        """By loop: why its last look failed."""
        self._listed_terms: Reading | None = None
        self._post_lease()
        self._post_workers()
        self._post_work()

    # Who watches

    def touch(self) -> None:
        """Somebody looks: from now on, and for a while, everything is kept up to date."""
        was_idle = not self.is_watched()
        self._asked = self._clock.read()
        if was_idle:
            self._looked.clear()
            self._wake.set()
            self._wake = asyncio.Event()

    def joined(self) -> None:
        """A page watches, until it has `left`."""
        self.touch()
        self.clients += 1

    def left(self) -> None:
        self.touch()  # it may be loaded again
        self.clients -= 1

    def is_watched(self) -> bool:
        asked = self._asked
        recently = asked is not None and self._clock.read().leader_elapsed(asked) < SECONDS_WITHOUT_WATCHERS
        return self.clients > 0 or recently

    async def looked(self, within: float) -> None:
        """Until the lease was looked at since somebody came, or so long."""
        try:
            async with asyncio.timeout(within):
                await self._looked.wait()
        except TimeoutError:
            pass

    @property
    def trouble(self) -> str | None:
        """Why the store does not answer; `None` if it did, at the last look."""
        view = self.fleet.view
        if view.error is not None:
            return shown(redact(view.error))
        return None if view.sight is not None else "the store was not looked at yet"

    # Loops

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again("lease", self._look_at_lease, self._interval, IDLE_SECONDS))
            group.create_task(self._again("workers", self._look_at_workers, SECONDS_BETWEEN_LISTINGS, None))
            group.create_task(self._again("work", self._look_at_work, _WORK_PAUSE, None))

    async def _again(self, what: str, look: Callable[[], Awaitable[None]], pause: float, idle: float | None) -> None:
        """`idle`: the pause while nobody watches; `None`: until somebody does."""
        failures = 0
        while True:
            wake = self._wake
            try:
                if idle is not None or self.is_watched():
                    await look()
                    failures = 0
                    self._troubles.pop(what, None)
            except TenureError as error:
                failures += 1
                _log.debug("a look at the %s failed: %s", what, error)
                self._failed(what, error)
            except Exception as error:
                failures += 1
                _log.exception("a defect of tenure: a look at the %s failed", what)
                self._failed(what, error)
            seconds = max(pause, min(_LONGEST_PAUSE, pause * 2.0 ** min(failures, 10))) if failures else pause
            await self._pause(wake, seconds, idle)

    async def _pause(self, wake: asyncio.Event, seconds: float, idle: float | None) -> None:
        if self.is_watched():
            await self._clock.sleep(seconds)
            return
        # Nobody watches: whoever comes is not kept waiting.
        woken = asyncio.ensure_future(wake.wait())
        slept = asyncio.ensure_future(self._clock.sleep(max(seconds, idle))) if idle is not None else None
        try:
            await asyncio.wait([each for each in (woken, slept) if each is not None], return_when="FIRST_COMPLETED")
        finally:
            for each in (woken, slept):
                if each is not None:
                    each.cancel()

    def _failed(self, what: str, error: Exception) -> None:
        self._troubles[what] = shown(redact(str(error) or type(error).__name__))
        if what == "lease":
            self.fleet.watcher.failed(StoreError(self._troubles[what]))
            self._looked.set()
        self._post_lease()

    # Looks

    async def _look_at_lease(self) -> None:
        fleet = self.fleet
        epoch = fleet.view.epoch
        await fleet.look_at_lease()
        fleet.watcher.answered()
        self._looked.set()
        now = self._clock.read()
        late = self._listed_terms is None or now.leader_elapsed(self._listed_terms) >= SECONDS_BETWEEN_LISTINGS
        if fleet.view.epoch != epoch or (fleet.terms.newest < fleet.view.epoch and late):
            self._listed_terms = now
            await fleet.terms.look(fleet.view.epoch)
        self._post_lease()

    async def _look_at_workers(self) -> None:
        await self.fleet.look_at_workers()
        self._post_lease()
        self._post_workers()

    async def _look_at_work(self) -> None:
        try:
            await self.work.search()
            for _ in range(_SECONDS_OF_WORK):
                if not await self.work.look():
                    break
                self._post_work()  # what is known is shown, before all of it is
        finally:
            self._post_work()

    # The board

    def _post_lease(self) -> None:
        fleet, board = self.fleet, self.board
        board.put("meta", *self._meta())
        board.put("lease", fleet.lease())
        board.put("terms", fleet.terms.section(fleet.view.state))
        board.put("latency", fleet.latency())
        board.put("changes", fleet.changes())

    def _post_workers(self) -> None:
        self.board.put("workers", self.fleet.workers())
        self.board.put("usage", self.fleet.usage(self._own_usage()))

    def _post_work(self) -> None:
        changed, work = self.work.changed, self.work
        if "queues" in changed:
            self.board.put("queues", *work.queues())
        if "schedules" in changed:
            self.board.put("schedules", work.schedules())
        if "counters" in changed:
            self.board.put("counters", work.counters())
        if "children" in changed:
            self.board.put("children", work.children())
        changed.clear()

    def _meta(self) -> tuple[Meta, Meta]:
        now = wall_ms(self._clock.read())
        text = next(iter(self._troubles.values()), None)
        if text is None:
            self._problem = None
        else:
            self._problem = Problem(text=text, since_ms=self._problem.since_ms if self._problem else now)

        def meta(now_ms: int) -> Meta:
            return Meta(
                place=shown(self._place),
                namespace=self._namespace,
                version=__version__,
                started_ms=wall_ms(self._started),
                now_ms=now_ms,
                interval_seconds=self._interval,
                election_only=self.fleet.election_only,
                problem=self._problem,
            )

        return meta(now), meta(0)

    def _own_usage(self) -> OwnUsage:
        usage = self.meter.usage()
        seconds = self._clock.read().follower_elapsed(self._started)
        known = seconds >= _SECONDS_BEFORE_RATES
        return OwnUsage(
            requests=usage.total,
            requests_per_hour=round(usage.total / seconds * 3600, 1) if known else None,
            usd_per_day=round(usage.usd / seconds * 86400, 6) if known else None,
            by_verb={verb: sum(outcomes.values()) for verb, outcomes in usage.requests.items()},
        )
