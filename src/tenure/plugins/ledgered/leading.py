"""The leader's side of a ledger for one term: begin, serve, and begin anew after whatever went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.events import NamedEvent
from tenure.coordinator.lead import Lead
from tenure.coordinator.seldom import Seldom
from tenure.database.time import StoreTime
from tenure.entropy import NewId
from tenure.errors import LeadershipLost, LedgerError, SchemaTooNew, StoreError
from tenure.ledger import Clerk, LedgerConfig, LedgerTerm, LogEntry, Tick
from tenure.ledger.leader import Overtaken
from tenure.ledger.snapshots import Sights
from tenure.store import Store

HALTED_PAUSE = 10.0
LONGEST_PAUSE = 5.0

C = TypeVar("C", bound=Clerk)


class Halted(msgspec.Struct, frozen=True):
    """The leader cannot go on with this ledger; `reason` says what to do. Nothing is lost."""

    name: ClassVar[str] = "halted"
    reason: str


class LeadingBegan(msgspec.Struct, frozen=True):
    """This process has caught up, and decides from here on."""

    name: ClassVar[str] = "leading"
    seq: int
    epoch: int


class LedgerLeading(Generic[C]):
    """One term of one ledger. Subclasses say who decides (`new_clerk`) and when (`serve`)."""

    what: ClassVar[str] = "ledger"
    """As it is called in what is logged: a queue, a schedule."""

    def __init__(
        self,
        store: Store,
        lead: Lead,
        *,
        ledger: LedgerConfig,
        clock: Clock,
        draw_id: NewId,
        time: StoreTime,
        bell: asyncio.Event,
        emit: Callable[[NamedEvent], None],
        on_entry: Callable[[LogEntry], None] = lambda entry: None,
        sights: Sights | None = None,
    ) -> None:
        """`bell`: rung when there is something to do before the next pause is over. `sights`: see `LedgerTerm`."""
        self._store = store
        self._lead = lead
        self._ledger = ledger
        self._clock = clock
        self._draw_id = draw_id
        self._time = time
        self._bell = bell
        self._emit = emit
        self._on_entry = on_entry
        self._sights = sights if sights is not None else Sights()
        self._log = logging.getLogger(f"tenure.{self.what}")
        self._seldom = Seldom(self._log)
        self.clerk: C | None = None
        self.term: LedgerTerm | None = None
        self.halted: str | None = None
        self._told: str | None = None
        """Why it halted, once that was told: it is tried again and again, and told once."""
        self._begun = self._finished = 0
        """Ticks, for who waits for one."""
        self._failures = 0
        self.ticked: Reading | None = None
        """When a tick last succeeded."""

    # To override

    def new_clerk(self) -> C:
        raise NotImplementedError

    def began(self, entry: LogEntry, clerk: C) -> None:
        """Caught up, and the term's first entry is written."""
        self._emit(LeadingBegan(entry.seq, entry.epoch))

    async def serve(self, term: LedgerTerm, clerk: C) -> None:
        """Tick, and rest, until the term ends."""
        raise NotImplementedError

    # Life

    async def run(self) -> None:
        """Until the term ends. What stops this ledger is told, and tried again: nothing else suffers from it."""
        failures = 0
        while True:
            try:
                await self._lead_once()
            except LeadershipLost as error:
                self._log.info("a %s is left to the next leader: %s", self.what, error)
                return
            except Overtaken as error:
                self._log.info("%s", error)
            except StoreError as error:
                failures += 1
                self._seldom.warning(self._clock.read(), "a %s waits for its store: %s", self.what, error)
                await self._clock.sleep(min(LONGEST_PAUSE, 0.2 * 2.0 ** min(failures, 5)))
            except (LedgerError, SchemaTooNew) as error:
                await self._halt(str(error))
            except Exception as error:  # whatever it is, it must not end it for the rest of the term unseen
                self._log.exception("a %s met something that nobody foresaw", self.what)
                await self._halt(f"unforeseen: {error!r}"[:1000])
            finally:
                term, self.term, self.clerk = self.term, None, None
                if term is not None:
                    await term.aclose()

    async def settle(self, within: float) -> None:
        """Wait for a tick that begins after this call, if one comes in time: what was sent before is then decided."""
        wanted, began = self._begun + 1, self._clock.read()
        while self._finished < wanted and self.clerk is not None and self.halted is None:
            if self._clock.read().leader_elapsed(began) >= within:
                return
            self._bell.set()
            await self._clock.sleep(0.02)

    async def tick(self, term: LedgerTerm, *, look: bool = True) -> Tick | None:
        """One tick of the term; `None`: the store failed, nothing was decided, and there was a pause."""
        if look:
            self._bell.clear()
            self._begun += 1
        begun = self._begun
        try:
            tick = await term.tick(look=look)
        except StoreError as error:
            self._failures += 1
            text = "a tick of a %s failed, and is tried again: %s"
            self._seldom.warning(self._clock.read(), text, self.what, error)
            await self._clock.sleep(min(LONGEST_PAUSE, 0.1 * 2.0 ** min(self._failures, 6)))
            return None
        self._failures = 0
        self._told = None
        self.ticked = self._clock.read()
        if look:
            self._finished = begun
        return tick

    async def _halt(self, reason: str) -> None:
        self.halted = reason
        level = logging.DEBUG if reason == self._told else logging.ERROR
        self._log.log(level, "a %s has halted, and is tried again in %g s: %s", self.what, HALTED_PAUSE, reason)
        if reason != self._told:
            self._told = reason
            self._emit(Halted(reason))
        await self._clock.sleep(HALTED_PAUSE)

    async def _lead_once(self) -> None:
        clerk = self.new_clerk()
        self.term = term = LedgerTerm(
            self._store,
            self._lead,
            clerk,
            config=self._ledger,
            clock=self._clock,
            draw_id=self._draw_id,
            now=self._time.now,
            uncertainty=lambda: self._time.uncertainty,
            namespace=self._lead.namespace,
            sights=self._sights,
        )
        entry = await term.begin()
        self.clerk, self.halted, self.ticked = clerk, None, self._clock.read()
        self._on_entry(entry)
        self.began(entry, clerk)
        await self.serve(term, clerk)


async def either(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, or so long. Only a pause: nothing may depend on how long it was."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
