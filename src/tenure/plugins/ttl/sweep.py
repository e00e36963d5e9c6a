"""The leader's sweep: from the beginning of the index to the first slot that lies ahead.

Every record is judged by itself, as it was just read, and changed by compare-and-swap on that: whatever was written
meanwhile wins, also against a former leader that was paused before it sent. What is deleted of the index is deleted
for good reasons that stay good: a record that named the entry was seen, and names it no more; or no record names it,
and it is older than the quarantine. So none of this depends on who leads. Leadership keeps two from doing the same.

What is to be looked at again is remembered, up to a bound, so that it is not read at every tick; whoever leads next
begins with nothing remembered, and reads it once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenure.clock import Clock
from tenure.coordinator.events import NamedEvent
from tenure.database.resource import Resource
from tenure.database.writing import Found
from tenure.errors import (
    BodyTooLarge,
    Damaged,
    LeadershipLost,
    NotFound,
    RecordConflict,
    RecordError,
    RecordNotFound,
    StoreError,
)
from tenure.plugins.ttl.events import RecordDamaged, RecordsExpired
from tenure.plugins.ttl.expiring import Act, Call, Deed, Done
from tenure.plugins.ttl.gate import Gate
from tenure.plugins.ttl.guard import TTLGuard
from tenure.plugins.ttl.index import MAX_GROUP_BYTES, Listed, ids_in, slot_in
from tenure.plugins.ttl.judge import Verdict, judge, next_look, quarantine_ends
from tenure.plugins.ttl.listing import DueListing, in_parts
from tenure.plugins.ttl.records import Counts
from tenure.plugins.ttl.rules import Rules
from tenure.plugins.ttl.settings import OnExpire
from tenure.plugins.ttl.together import at_once
from tenure.store import Store, Stored

_log = logging.getLogger("tenure.ttl")

MAX_REMEMBERED = 200_000
"""Ids; those beyond it are read again sooner."""
_SLICES = 4
"""Times `at_once`: so many records are held in memory for their callbacks."""
_ALL = 10**9
_ROUNDS = 5
_TROUBLE_MS = 60_000
_NAMED = 100
_GROUP = ""
"""In place of an id: a group whose ids could not be read."""


class Later(msgspec.Struct):
    """An id that is to be looked at again."""

    at_ms: int = 0
    seen: bool = False
    """A record that names the entry, or has work under it, was seen: the write that the entry was for has landed."""
    called: bool = False
    """Its callback was called; only the record of that is to be cleared."""


class _Open(msgspec.Struct):
    """What is left to do about one entry."""

    ids: dict[str, Later]
    swept: int


class _Job(msgspec.Struct):
    entry: Listed
    id: str
    later: Later


class Sweeper:
    """For one term."""

    def __init__(
        self,
        store: Store,
        resource: Resource[Any],
        guard: TTLGuard,
        deed: Deed,
        *,
        clock: Clock,
        ensure: Callable[[], None],
        call: Callable[[Sequence[Call], Counts], Awaitable[list[bool]]],
        emit: Callable[[NamedEvent], None],
        on_start: Callable[[], None] = lambda: None,
        dry_run: bool = False,
    ) -> None:
        """`call`: has callbacks called; says of each whether that is done with. `dry_run`: only counts."""
        self._store = store
        self._listing = DueListing(store)
        self._resource = resource
        self._guard = guard
        self._rules: Rules = guard.rules
        self._deed = deed
        self._clock = clock
        self._ensure = ensure
        self._call = call
        self._emit = emit
        self._on_start = on_start
        self._dry_run = dry_run
        self._gate = Gate(self._rules.settings.rate_limit, clock)
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._remembered = 0
        self._number = 0
        self._tick_ms = round(self._rules.settings.tick * 1000)
        self._at_once = self._rules.settings.at_once
        is_calling = self._rules.settings.on_expire is OnExpire.CALLBACK
        self._slice = _SLICES * self._at_once if is_calling else _ALL

    @property
    def remembered(self) -> int:
        return self._remembered

    async def sweep(self, counts: Counts, on_page: Callable[[], Awaitable[None]] | None = None) -> None:
        """Once through all that is due. What it does is added to `counts` as it goes. Raises `StoreError`."""
        self._number += 1
        cursor: str | None = None
        started = False
        while True:
            self._ensure()
            limit_ms = (await self._guard.now()).earliest_ms
            due, cursor = await self._listing.page(cursor, limit_ms)
            page = [entry for entry in due if self._is_to_be_looked_at(entry, limit_ms)]
            if page:
                if not started:
                    started = True
                    self._on_start()
                for part in in_parts(page):
                    await self._work_on(part, limit_ms, counts)
                    if on_page is not None:
                        await on_page()
            if cursor is None:
                break
            await self._clock.sleep(0)  # a long listing of what is only waited for does not keep the loop to itself
        self._forget_what_is_gone(limit_ms)
        counts.waiting += self._remembered

    # Working

    def _is_to_be_looked_at(self, entry: Listed, limit_ms: int) -> bool:
        known = self._open.get(entry.stem)
        if known is None:
            return True
        known.swept = self._number
        return not known.ids or any(later.at_ms <= limit_ms for later in known.ids.values())

    async def _work_on(self, page: Sequence[Listed], limit_ms: int, counts: Counts) -> None:
        jobs: list[_Job] = []

        async def opened(entry: Listed) -> None:
            for id, later in (await self._ids_of(entry, limit_ms, counts)).items():
                if later.at_ms <= limit_ms and id != _GROUP:
                    jobs.append(_Job(entry, id, later))

        await at_once(self._at_once, opened, page)
        expired: list[str] = []
        try:
            for first in range(0, len(jobs), self._slice):
                await self._look_at(jobs[first : first + self._slice], limit_ms, counts, expired)
        finally:
            if expired:
                self._emit(RecordsExpired(self._resource.name, len(expired), tuple(expired[:_NAMED])))
        await self._delete_spent(page, counts)

    async def _look_at(self, jobs: Sequence[_Job], limit_ms: int, counts: Counts, expired: list[str]) -> None:
        calls: list[tuple[_Job, Call]] = []

        async def looked(job: _Job) -> None:
            outcome = await self._look(job, limit_ms, counts, expired)
            if isinstance(outcome, Call):
                calls.append((job, outcome))
            elif outcome is Done.DONE:
                self._finish(job)

        await at_once(self._at_once, looked, jobs)
        if calls:
            await self._have_called(calls, limit_ms, counts)

    async def _ids_of(self, entry: Listed, limit_ms: int, counts: Counts) -> dict[str, Later]:
        """What is left of an entry; of a group that is new here, its ids are read."""
        known = self._open.get(entry.stem)
        if known is not None and _GROUP not in known.ids:
            return known.ids
        if entry.id is not None:
            return self._remember(entry, {entry.id: Later()})
        if entry.size > MAX_GROUP_BYTES:
            ids: Sequence[str] | str = f"it has {entry.size:,} bytes, and no group has over {MAX_GROUP_BYTES:,}"
        else:
            try:
                stored = await self._store.get(entry.key)
                assert isinstance(stored, Stored)
                ids = ids_in(stored.body)
            except NotFound:
                return self._remember(entry, {})
            except StoreError as error:
                counts.errors += 1
                _log.debug("a group of index entries is read later: %s", error)
                return self._remember(entry, {_GROUP: Later()})
        if isinstance(ids, str):
            counts.damaged += 1
            self._tell_damaged(entry.key, ids)
            return self._remember(entry, {_GROUP: Later(limit_ms + self._quarantine_ms)})
        return self._remember(entry, {id: Later() for id in ids})

    async def _look(self, job: _Job, limit_ms: int, counts: Counts, expired: list[str]) -> Act:
        """Judge one record, and do what is to be done about it."""
        try:
            for _ in range(_ROUNDS):
                counts.read += 1
                found = await self._resource.find(job.id)
                outcome = await self._judge(job, found, limit_ms, counts, expired)
                if outcome is not Done.AGAIN:
                    return outcome
                await self._clock.sleep(0.01)
            job.later.at_ms = limit_ms + 1  # others write it all the time: at the next tick
        except BodyTooLarge as error:
            self._set_aside(job, str(error), limit_ms, counts)
        except StoreError as error:
            counts.errors += 1
            job.later.at_ms = 0
            _log.debug("record %r of %r is looked at again later: %s", job.id, self._resource.name, error)
        except (Damaged, RecordError) as error:
            self._set_aside(job, str(error), limit_ms, counts)
        except LeadershipLost:
            raise
        except Exception as error:  # one record must not keep all others from expiring
            _log.exception("record %r of %r could not be judged", job.id, self._resource.name)
            counts.errors += 1
            self._tell_damaged(job.id, f"unforeseen: {error!r}")
            job.later.at_ms = limit_ms + _TROUBLE_MS
        return Done.LATER

    async def _judge(self, job: _Job, found: Found | None, limit_ms: int, counts: Counts, expired: list[str]) -> Act:
        entry, later = job.entry, job.later
        judgement = judge(found.envelope if found is not None else None, entry.stem, limit_ms, self._rules)
        verdict = judgement.verdict
        if self._dry_run:
            counts.expired += verdict is Verdict.EXPIRE
            counts.damaged += verdict is Verdict.DAMAGED
            return Done.DONE
        if verdict is Verdict.DAMAGED:
            self._set_aside(job, judgement.reason, limit_ms, counts)
            return Done.LATER
        if verdict in (Verdict.ABSENT, Verdict.ELSEWHERE):
            return self._not_named(job, limit_ms, counts)
        assert found is not None
        later.seen = True
        if verdict is Verdict.WAIT:
            later.at_ms = judgement.at_ms
            return Done.LATER
        self._ensure()
        if verdict is Verdict.MOVE:
            try:
                await self._resource.amend(job.id, self._guard.cover(job.id, anew=True))
            except (RecordNotFound, RecordConflict):
                return Done.AGAIN
            counts.moved += 1
            return Done.DONE
        if verdict is Verdict.RELEASE:
            return await self._deed.release(found, judgement.expiry)
        if verdict is Verdict.WORK:
            return await self._deed.work(found, entry.stem, judgement.expiry, counts, called=later.called)
        await self._gate.passed()
        self._ensure()
        outcome = await self._deed.expire(found, entry.stem, judgement, counts, expired)
        if isinstance(outcome, Found):
            return await self._deed.work_on(outcome, entry.stem, counts)
        return outcome

    def _not_named(self, job: _Job, limit_ms: int, counts: Counts) -> Act:
        """The write that the entry was for has been replaced, never was, or may still be under way."""
        later, modified_ms = job.later, job.entry.modified_ms
        if later.seen:
            return Done.DONE
        ends_ms = quarantine_ends(modified_ms, self._rules.settings.quarantine)
        if limit_ms >= ends_ms:
            counts.dropped += 1
            return Done.DONE
        later.at_ms = next_look(modified_ms, limit_ms, tick_ms=self._tick_ms, ends_ms=ends_ms)
        return Done.LATER

    async def _have_called(self, calls: Sequence[tuple[_Job, Call]], limit_ms: int, counts: Counts) -> None:
        due = [(job, call) for job, call in calls if call.not_before_ms <= limit_ms]
        for job, call in calls:
            job.later.at_ms = max(job.later.at_ms, call.not_before_ms)
        if not due:
            return
        answers = await self._call([call for _, call in due], counts)
        clearing: list[tuple[_Job, Call]] = []
        for (job, call), is_done in zip(due, answers, strict=True):
            if is_done:
                job.later.called = True
                clearing.append((job, call))
            else:
                job.later.at_ms = max(limit_ms + 1, call.not_before_ms)

        async def cleared(each: tuple[_Job, Call]) -> None:
            job, call = each
            try:
                if await self._deed.clear(job.id, job.entry.stem, call.found):
                    self._deed.settled(job.entry.stem, job.id)
                    self._finish(job)
            except (StoreError, Damaged) as error:
                counts.errors += 1
                job.later.at_ms = 0
                _log.debug("what was done for record %r is cleared later: %s", job.id, error)

        await at_once(self._at_once, cleared, clearing)

    # Remembering

    def _remember(self, entry: Listed, ids: dict[str, Later]) -> dict[str, Later]:
        former = self._open.pop(entry.stem, None)
        self._remembered += len(ids) - (len(former.ids) if former is not None else 0)
        self._open[entry.stem] = _Open(ids, self._number)
        return ids

    def _finish(self, job: _Job) -> None:
        known = self._open.get(job.entry.stem)
        if known is not None and known.ids.pop(job.id, None) is not None:
            self._remembered -= 1

    async def _delete_spent(self, page: Iterable[Listed], counts: Counts) -> None:
        """Those of which nothing is left to do. What is not deleted now is tried at the next tick."""
        doomed = [entry for entry in page if (known := self._open.get(entry.stem)) is not None and not known.ids]
        if doomed and not self._dry_run:
            self._ensure()
            try:
                await self._store.delete(*(entry.key for entry in doomed))
            except StoreError as error:
                counts.errors += 1
                _log.debug("%s index entries are deleted later: %s", len(doomed), error)
                return
        for entry in doomed:
            self._open.pop(entry.stem, None)
        while self._remembered > MAX_REMEMBERED:
            _, former = self._open.popitem(last=False)
            self._remembered -= len(former.ids)

    def _forget_what_is_gone(self, limit_ms: int) -> None:
        """Entries that a whole sweep would have met: their writers have deleted them."""
        for stem, known in list(self._open.items()):
            if known.swept != self._number and (slot_in(stem) or 0) <= limit_ms:
                self._remembered -= len(self._open.pop(stem).ids)

    # Trouble

    def _set_aside(self, job: _Job, reason: str, limit_ms: int, counts: Counts) -> None:
        counts.damaged += 1
        job.later.at_ms = limit_ms + self._quarantine_ms
        if not self._dry_run:
            self._tell_damaged(job.id, reason)

    def _tell_damaged(self, id: str, reason: str) -> None:
        _log.warning("record %r of %r cannot be judged, and is left as it is: %s", id, self._resource.name, reason)
        self._emit(RecordDamaged(self._resource.name, id, reason[:500]))

    @property
    def _quarantine_ms(self) -> int:
        return round(self._rules.settings.quarantine * 1000)
