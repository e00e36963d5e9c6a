"""The leader's side of a TTL, for one term: look into the inbox, sweep, write down what that did, and rest."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tenure.clock import Clock
from tenure.coordinator.events import NamedEvent
from tenure.coordinator.lead import Lead
from tenure.database.resource import Resource
from tenure.database.time import StoreTime
from tenure.entropy import NewId
from tenure.errors import StoreError
from tenure.ledger import LedgerConfig, LedgerTerm, LogEntry
from tenure.ledger.snapshots import Sights
from tenure.plugins.ledgered import LedgerLeading, either
from tenure.plugins.ttl.calling import Caller, Expired, NotCalled
from tenure.plugins.ttl.clerk import TTLClerk
from tenure.plugins.ttl.events import CallbackFailed, CleanupFinished, CleanupStarted
from tenure.plugins.ttl.expiring import Call, Deed, trial_key
from tenure.plugins.ttl.guard import TTLGuard
from tenure.plugins.ttl.index import SLOT_MS
from tenure.plugins.ttl.looking import FAILED, FailedCallback, encode_failed
from tenure.plugins.ttl.records import Cleanup, Counts
from tenure.plugins.ttl.rules import moment_of
from tenure.plugins.ttl.sweep import Sweeper
from tenure.plugins.ttl.together import at_once
from tenure.store import Store, numbered, ours

EARLIER = 0.5
"""Seconds by which sweeps follow each other faster than they need to: what they take themselves."""
NOTED_EVERY = 10.0
"""Seconds after which a long sweep writes down what it has done so far."""
MAX_BACKOFFS = 20_000
MAX_FAILED = 10_000
"""Callbacks that were given up, and are kept for inspection ..."""
TRIMMED_EVERY = 100
"""... and so many more: then the oldest go ..."""
MAX_TRIMMED = 1000
"""... this many at a time."""


class TTLLeading(LedgerLeading[TTLClerk]):
    what = "ttl"

    def __init__(
        self,
        store: Store,
        lead: Lead,
        *,
        resource: Resource[Any],
        guard: TTLGuard,
        archive: Callable[[str], Resource[Any]],
        caller: Caller | None,
        ledger: LedgerConfig,
        clock: Clock,
        draw_id: NewId,
        time: StoreTime,
        bell: asyncio.Event,
        emit: Callable[[NamedEvent], None],
        on_entry: Callable[[LogEntry], None] = lambda entry: None,
        sights: Sights | None = None,
    ) -> None:
        super().__init__(
            store,
            lead,
            ledger=ledger,
            clock=clock,
            draw_id=draw_id,
            time=time,
            bell=bell,
            emit=emit,
            on_entry=on_entry,
            sights=sights,
        )
        self._resource = resource
        self._guard = guard
        self._settings = guard.rules.settings
        self._archive = archive
        self._caller = caller
        self._not_before: OrderedDict[str, int] = OrderedDict()
        """When a callback that failed is called again."""
        self._started = self._given_up = 0

    def new_clerk(self) -> TTLClerk:
        return TTLClerk(self._on_entry)

    async def serve(self, term: LedgerTerm, clerk: TTLClerk) -> None:
        deed = Deed(
            self._resource,
            self._guard.rules,
            archive=self._archive,
            settled=clerk.settled,
            not_before=lambda key: self._not_before.get(key, 0),
        )

        async def call(calls: Sequence[Call], counts: Counts) -> list[bool]:
            return await self._call(term, clerk, calls, counts)

        sweeper = Sweeper(
            self._store,
            self._resource,
            self._guard,
            deed,
            clock=self._clock,
            ensure=self._lead.ensure,
            call=call,
            emit=self._emit,
            on_start=self._start,
        )
        while True:
            began = self._clock.read()
            tick = await self.tick(term)
            if tick is None or tick.more:
                continue
            await self._clean_up(term, clerk, sweeper)
            rest = self._period() - self._clock.read().leader_elapsed(began)
            await either(self._bell, max(0.001, rest))

    def _period(self) -> float:
        """So short that what expires right after a sweep has looked is gone within `tick`: it is found by the slot in
        which it lies, and once the time is certain."""
        doubt = min(self._time.uncertainty, 60.0)
        return max(self._settings.tick / 2, self._settings.tick - SLOT_MS / 1000 - doubt - EARLIER)

    async def _clean_up(self, term: LedgerTerm, clerk: TTLClerk, sweeper: Sweeper) -> None:
        """One sweep. What it did is written down, also if the store failed in the middle of it."""
        began = noted = self._clock.read()
        asked = list(clerk.machine.asked)
        counts, total = Counts(), Counts()
        started = self._started

        async def on_page() -> None:
            nonlocal noted
            if self._clock.read().leader_elapsed(noted) >= NOTED_EVERY:
                noted = self._clock.read()
                self._note(clerk, counts, total)
                await self.tick(term, look=False)

        try:
            await sweeper.sweep(counts, on_page)
        except StoreError as error:
            counts.errors += 1
            text = "a cleanup of %r was cut short, and is gone on with: %s"
            self._seldom.warning(self._clock.read(), text, self._resource.name, error)
            asked = []  # it is not what was asked for
        finally:
            self._note(clerk, counts, total)
        happened = total.expired or total.archived or total.called or total.dropped or total.moved or total.given_up
        seconds = round(self._clock.read().leader_elapsed(began), 3)
        if happened or asked:
            at_ms = int(await self._time.now() * 1000)
            clerk.ended(Cleanup(at_ms, msgspec.structs.replace(total), seconds, asked))
            while await self.tick(term, look=False) is None:
                pass
        if asked or self._started > started:
            self._emit(CleanupFinished(self._resource.name, self._lead.epoch, total, seconds))

    def _start(self) -> None:
        self._started += 1
        self._emit(CleanupStarted(self._resource.name, self._lead.epoch))

    @staticmethod
    def _note(clerk: TTLClerk, counts: Counts, total: Counts) -> None:
        """What is in `counts` goes into the next entry, and to what this cleanup has done."""
        total.add(counts)
        counts.waiting = counts.read = counts.errors = 0  # of one cleanup; added up they would say nothing
        clerk.did(counts)
        counts.clear()

    # Callbacks

    async def _call(self, term: LedgerTerm, clerk: TTLClerk, calls: Sequence[Call], counts: Counts) -> list[bool]:
        """Written down first: the number of that entry is their token."""
        if self._caller is None:
            self._seldom.warning(
                self._clock.read(),
                "%s records of %r have expired and are to be given to a callback, and this process has none: give "
                "callback= in every process",
                len(calls),
                self._resource.name,
            )
            return [False] * len(calls)
        answers: list[bool] = [False] * len(calls)
        first = 0
        # What is written down is an attempt. So no more is begun than can be called, whatever becomes of the others.
        while first < len(calls) and (room := self._caller.room):
            begun = range(first, min(first + room, len(calls)))
            first = begun.stop
            clerk.begins([trial_key(calls[number].stem, calls[number].id) for number in begun])
            while (tick := await self.tick(term, look=False)) is None:
                pass
            assert tick.entry is not None
            await self._call_all(clerk, calls, begun, tick.entry.seq, answers, counts)
        if first < len(calls):
            self._seldom.warning(
                self._clock.read(),
                "%s callbacks for records of %r are called later: too many earlier ones have not ended, and hold their "
                "threads",
                len(calls) - first,
                self._resource.name,
            )
        return answers

    async def _call_all(
        self,
        clerk: TTLClerk,
        calls: Sequence[Call],
        begun: Sequence[int],
        token: int,
        answers: list[bool],
        counts: Counts,
    ) -> None:
        async def one(number: int) -> None:
            self._lead.ensure()
            answers[number] = await self._call_one(clerk, calls[number], token, counts)

        await at_once(self._settings.at_once, one, begun)

    async def _call_one(self, clerk: TTLClerk, call: Call, token: int, counts: Counts) -> bool:
        assert self._caller is not None
        key, pending = trial_key(call.stem, call.id), call.pending
        attempt = clerk.machine.trials.get(key, 1)
        expired = Expired(
            resource=self._resource.name,
            id=call.id,
            data=pending.data,
            version=pending.version,
            expired_at=moment_of(pending.at),
            created_at=pending.created,
            token=token,
            attempt=attempt,
        )
        try:
            error = await self._caller.call(expired)
        except NotCalled as reason:
            text = "the callback for record %r of %r is called later: %s"
            self._seldom.warning(self._clock.read(), text, call.id, expired.resource, reason)
            return False
        if error is None:
            counts.called += 1
            self._not_before.pop(key, None)
            return True
        counts.failed_calls += 1
        given_up = attempt >= self._settings.max_attempts
        if given_up:
            try:
                await self._keep(call, token, attempt, error)
            except StoreError as trouble:
                text = "a callback that failed for good is called again, for want of the store: %s"
                self._seldom.warning(self._clock.read(), text, trouble)
                given_up = False
        self._log.warning(
            "the callback for record %r of %r failed (attempt %s%s): %s",
            call.id,
            self._resource.name,
            attempt,
            ", given up" if given_up else "",
            error,
        )
        self._emit(CallbackFailed(self._resource.name, call.id, attempt, error, given_up))
        if given_up:
            counts.given_up += 1
            self._not_before.pop(key, None)
            return True
        longest = min(self._settings.max_backoff, self._settings.backoff * 2.0 ** min(attempt - 1, 100))
        try:
            now_ms = math.ceil(await self._time.now() * 1000)
        except StoreError:
            return False  # at the next tick
        call.not_before_ms = self._not_before[key] = now_ms + round(longest * 1000)
        while len(self._not_before) > MAX_BACKOFFS:
            self._not_before.popitem(last=False)
        return False

    async def _keep(self, call: Call, token: int, attempt: int, error: str) -> None:
        """For people to look at. The oldest go when there are very many."""
        pending = call.pending
        failed = FailedCallback(
            resource=self._resource.name,
            id=call.id,
            data=pending.data,
            version=pending.version,
            expired_ms=pending.at,
            attempts=attempt,
            error=error,
        )
        await self._store.put(f"{FAILED}{token:020d}-{self._draw_id()[-16:]}", encode_failed(failed))
        self._given_up += 1
        if self._given_up % TRIMMED_EVERY == 1:
            kept: deque[str] = deque()
            doomed: list[str] = []
            async for row in ours(self._store, numbered(FAILED)):
                kept.append(row.key)
                if len(kept) > MAX_FAILED:
                    doomed.append(kept.popleft())
                if len(doomed) >= MAX_TRIMMED:
                    break  # what is left goes the next time
            if doomed:
                await self._store.delete(*doomed)
