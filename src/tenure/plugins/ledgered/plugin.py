"""A plugin whose state is a ledger: what every process does for it, whoever leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, cast

import msgspec

from tenure.coordinator.config import CoordinatorConfig, seconds
from tenure.coordinator.given import check_flag, check_instance
from tenure.coordinator.lead import Lead
from tenure.coordinator.membership import StampedBeat
from tenure.coordinator.plugin import CoordinatorPlugin
from tenure.coordinator.service import GlobalCoordinatorService
from tenure.database.time import StoreTime
from tenure.database.tracing import UNTRACED, Tracing
from tenure.errors import ConfigError, TenureError
from tenure.ledger import InboxName, LedgerConfig, LogEntry, Lot, Place, Producer, agreed_ledger, ledger_store
from tenure.ledger.config import USUAL_TRIM_DELAY
from tenure.ledger.log import log_ends, read_entry
from tenure.ledger.snapshots import Sights
from tenure.plugins.ledgered.glance import LedgerGlance
from tenure.plugins.ledgered.leading import LedgerLeading
from tenure.store import Store

LAST_TICK = 2.0
"""Seconds that a leader which stops takes for what it said last itself."""
SHUTDOWN_TIMEOUT = 20.0


class NotLed(msgspec.Struct, frozen=True):
    """The leader of the namespace does not have this plugin: until it does, or another leads, nothing is decided."""

    name: ClassVar[str] = "not-led"
    leader: str
    epoch: int


class ClockSkewed(msgspec.Struct, frozen=True):
    """This host's wall clock differs from the store's by more than `max_clock_skew`. Nothing is decided by it here."""

    name: ClassVar[str] = "clock-skewed"
    worker_id: str
    seconds: float


class LedgerPlugin(CoordinatorPlugin):
    """Subclasses give `slug` and `what`, and override `compose` and `new_leading`."""

    what: ClassVar[str] = "ledger"
    """As it is called in messages: a queue, a schedule."""

    def __init__(
        self,
        *,
        namespace: str = "default",
        config: CoordinatorConfig | None = None,
        ledger: LedgerConfig | None = None,
        shutdown_timeout: float | timedelta = SHUTDOWN_TIMEOUT,
        takes_part: bool = True,
    ) -> None:
        """`takes_part=False`: it only writes to the inbox, and knows nothing of the election."""
        super().__init__(namespace=namespace, config=config, skip_cold_start=True)
        self._takes_part = check_flag("takes_part", takes_part)
        if ledger is not None:
            check_instance("ledger", ledger, LedgerConfig)
        self._shutdown_timeout = seconds("shutdown_timeout", shutdown_timeout, zero=True)
        self._ledger_given = ledger
        self._ledger = ledger if ledger is not None else LedgerConfig()
        self._store: Store | None = None
        self._producer: Producer | None = None
        self._time: StoreTime | None = None
        self._leading: LedgerLeading[Any] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._sights = Sights()

    # To override

    def compose(self, name: InboxName, place: Place, lots: Sequence[Lot]) -> bytes:
        """The body of an inbox object."""
        raise NotImplementedError

    def new_leading(self, lead: Lead) -> LedgerLeading[Any]:
        """The leader's side, for one term."""
        raise NotImplementedError

    async def prepare(self, store: Store) -> None:
        """Before anything else is begun: learn from the bucket what has to be known. `store` is the ledger's own."""

    async def began(self) -> None:
        """Everything runs."""

    async def ending(self) -> None:
        """It is stopped: end what still uses the ledger. What it submits is still written."""

    def ended(self) -> None:
        """Everything has stopped."""

    # Life

    async def start(self) -> None:
        host = cast(Any, self._attached())
        store = ledger_store(host.store, self.slug, self.name)
        await self.prepare(store)
        ledger = self._ledger_given if self._ledger_given is not None else LedgerConfig()
        delay = ledger.trim_delay_seconds
        if self._takes_part:
            if ledger.trim_delay is None:
                delay = await self._usual_trim_delay()
            await self._check_trim_delay(delay)  # what is written down holds for all, and is hard to take back
        agreed = await agreed_ledger(
            store,
            ledger,
            is_given=self._ledger_given is not None,
            reads=self._takes_part,
            usual_trim_delay=delay,
            what=f"the {self.what} {self.name!r}",
            draw_id=host.draw_id,
        )
        if self._takes_part:
            await self._check_trim_delay(agreed.trim_delay_seconds)
        self._ledger = agreed
        self._store = store
        self._sights = Sights()
        self._time = StoreTime(host.store, clock=host.clock, draw_id=host.draw_id, beats=self._stamped_beat)
        self._bell = asyncio.Event()
        self._producer = Producer(
            store,
            self.compose,
            config=self._ledger,
            clock=host.clock,
            draw_id=host.draw_id,
            on_durable=self._bell.set,
        )
        if self._takes_part:
            try:
                await super().start()
            except BaseException:
                self._store = self._producer = None
                raise
            self._watching = asyncio.get_running_loop().create_task(self._watch_over())
        await self.began()

    async def stop(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        await self.ending()
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                async with asyncio.timeout(self._shutdown_timeout):
                    await producer.drain()
            except TimeoutError:
                self._logger.warning("%r was stopped before everything that it was given was written", self)
        leading = self._leading
        if leading is not None:
            await leading.settle(LAST_TICK)  # what this process said last is decided, if it can be done quickly
        await super().stop()
        if producer is not None:
            await producer.aclose()
        self.ended()
        self._store = None

    async def on_become_coordinator(self) -> None:
        lead = self.lead
        if lead is None or self._store is None or self._time is None:
            return
        leading = self._leading = self.new_leading(lead)
        try:
            await leading.run()
        finally:
            self._leading = None

    @property
    def is_leading(self) -> bool:
        """Does this process decide here, now, and has it caught up?"""
        leading = self._leading
        return leading is not None and leading.clerk is not None and leading.halted is None

    def ledger_glance(self) -> LedgerGlance:
        """What this process knows without a request. Called where the plugin lives: on its loop."""
        leading, producer = self._leading, self._producer
        ticked = leading.ticked if leading is not None else None
        return LedgerGlance(
            takes_part=self._takes_part,
            leading=self.is_leading,
            halted=leading is not None and leading.halted is not None,
            tick_age=None if ticked is None else self._attached().clock.read().leader_elapsed(ticked),
            waiting=producer.waiting if producer is not None else 0,
            batches=producer.batches if producer is not None else 0,
        )

    # Inside

    @property
    def _tracing(self) -> Tracing:
        tracing = getattr(self._host, "tracing", UNTRACED)
        return tracing if isinstance(tracing, Tracing) else UNTRACED

    def _about_ms(self) -> int | None:
        """Plugin time as far as it is known without a request; `None`: it was never asked for."""
        skew = self._time.skew if self._time is not None else None
        return None if skew is None else int((self._attached().clock.read().wall_ns / 1e9 - skew) * 1000)

    @property
    def _logger(self) -> logging.Logger:
        return logging.getLogger(f"tenure.{self.what}")

    def _stamped_beat(self) -> StampedBeat | None:
        coordinator = self._coordinator
        return coordinator.stamped_beat if coordinator is not None else None

    def _wrote(self, entry: LogEntry) -> None:
        """This process has written an entry."""
        if self._producer is not None:
            self._producer.learn(entry.seq, self._attached().clock.read())

    async def _usual_trim_delay(self) -> float:
        """An entry must outlive whoever may still be about to write it: two of the longest leases of its namespace."""
        agreement = await (await self._settled_coordinator()).agreement()
        return max(USUAL_TRIM_DELAY, agreement.trim_delay)

    async def _check_trim_delay(self, delay: float) -> None:
        lease = (await self._settled_coordinator()).config.lease_timeout
        if delay < 2 * lease:
            raise ConfigError(
                f"trim_delay of the {self.what} {self.name!r} is {delay:g} s, and the lease {lease:g} s: the log must "
                f"be kept for at least two leases; give ledger=LedgerConfig(trim_delay={2 * lease:g}) in every "
                "process, or a shorter lease"
            )

    async def _settled_coordinator(self) -> GlobalCoordinatorService:
        """It need not have been started yet."""
        return await self._attached().get_global_coordinator(self.namespace, config=self._config)

    def _compare_clocks(self, was_skewed: bool) -> bool:
        """Tell, once, of a wall clock that is far off."""
        assert self._time is not None
        skew = self._time.skew
        if skew is None or abs(skew) <= self.coordinator.config.max_clock_skew:
            return False
        if not was_skewed:
            self._logger.warning(
                "the wall clock of this host is %.0f s %s the store's: nothing here is decided by it, but what people "
                "read in logs is; see to its time synchronisation",
                abs(skew),
                "ahead of" if skew > 0 else "behind",
            )
            self.emit(ClockSkewed.name, ClockSkewed(self.worker_id, round(skew, 1)))
        return True

    async def _watch_over(self) -> None:
        """The leader of a namespace may be a process that does not have this plugin: then nothing happens to it."""
        clock, lease = self._attached().clock, self.coordinator.config.lease_timeout
        seen = 0
        skewed = False
        while True:
            await clock.sleep(lease)
            skewed = self._compare_clocks(skewed)
            leader, epoch = await self._leader()
            leading = self._leading
            # This very worker has the plugin, also in the moments before it has begun to lead and after it has ended.
            if leader is None or leader == self.worker_id or epoch <= seen or leading is not None:
                continue
            await clock.sleep(lease)  # it may be catching up
            leading = self._leading
            if leading is not None:
                continue
            try:
                newest, last = await log_ends(self._opened())
                self._sights.saw(newest, clock.read(), self._ledger.trim_delay_seconds)
                end = max(newest, last)
                entry = await read_entry(self._opened(), end) if end else None
            except TenureError:
                continue
            if (await self._leader())[1] != epoch:
                continue
            seen = epoch
            if entry is None or entry.epoch < epoch:
                self._logger.warning(
                    "%r leads namespace %r, and for %g s nothing was decided on the %s %r. If it does not have the %s, "
                    "have every process of the namespace use it, or give it a namespace of its own; else it is slow",
                    leader,
                    self.namespace,
                    lease,
                    self.what,
                    self.name,
                    self.what,
                )
                self.emit(NotLed.name, NotLed(leader, epoch))

    async def _leader(self) -> tuple[str | None, int]:
        try:
            return await self.coordinator.get_leader(), self.coordinator.get_epoch()
        except TenureError:
            return None, 0

    async def _now_ms(self) -> int:
        """Plugin time."""
        assert self._time is not None
        return int(await self._time.now() * 1000)

    def _sending(self) -> Producer:
        if self._producer is None:
            raise self._not_started()
        return self._producer

    def _opened(self) -> Store:
        if self._store is None:
            raise self._not_started()
        return self._store

    def _not_started(self) -> TenureError:
        return TenureError(f"{self!r} is not started: `await db.use_plugin({self.what})` starts it")
