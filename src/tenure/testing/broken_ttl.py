"""Broken builds of what makes records expire: each is a patch to a production class, and the judge must catch it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from tenure.database import resource as resource_module
from tenure.database import writing as writing_module
from tenure.database.expiry import TTL, Pending, ended
from tenure.database.ids import key_of
from tenure.database.records import Envelope, encode
from tenure.database.resource import Resource
from tenure.database.writing import Found, Writer, Written
from tenure.errors import StoreError
from tenure.ledger.snapshots import Archivist
from tenure.plugins.ttl import expiring as expiring_module
from tenure.plugins.ttl import plugin as plugin_module
from tenure.plugins.ttl import sweep as sweep_module
from tenure.plugins.ttl.clerk import TTLClerk
from tenure.plugins.ttl.expiring import Call, Deed, Done, trial_key
from tenure.plugins.ttl.guard import TTLCover, TTLGuard
from tenure.plugins.ttl.index import Indexed, IndexWriter, key_for
from tenure.plugins.ttl.judge import Judgement, Verdict, judge
from tenure.plugins.ttl.leading import TTLLeading
from tenure.plugins.ttl.records import Counts, Work
from tenure.plugins.ttl.rules import Now, Rules, Wish, moment_of
from tenure.plugins.ttl.settings import OnExpire
from tenure.plugins.ttl.state import TTLMachine
from tenure.plugins.ttl.sweep import Sweeper
from tenure.store import Applied, Attempt, Rejected
from tenure.testing.broken import Patch, Variant


def _blind_delete() -> list[Patch]:
    async def put(self: Resource[Any], found: Found, **changes: Any) -> Written:
        envelope = found.envelope.followed_by(self._draw_id(), self._now(), **changes)
        version = await self._store.put(key_of(self.name, envelope.id), encode(envelope))
        return Written(envelope, version)

    return [(Resource, "swap", put)]


def _no_tombstone() -> list[Patch]:
    expire = Deed.expire

    async def delete(self: Deed, found: Found, *arguments: Any) -> Found | Done:
        if self._rules.settings.on_expire is not OnExpire.HARD_DELETE:
            return await expire(self, found, *arguments)
        await self._resource._store.delete(key_of(self._resource.name, found.envelope.id))
        return Done.DONE

    return [(Deed, "expire", delete)]


def _entry_after_record() -> list[Patch]:
    async def write(self: IndexWriter, id: str, slot_ms: int) -> Indexed:
        stem = f"{slot_ms:013d}/{blake2b(self._draw_id().encode(), digest_size=8).hexdigest()}."

        async def afterwards() -> None:
            with contextlib.suppress(StoreError):
                await self._send(key_for(stem, id), b'{"schema":1}')

        task = asyncio.get_running_loop().create_task(afterwards())
        self._puts[task] = None
        task.add_done_callback(lambda done: self._puts.pop(done, None))
        return Indexed(stem, self._clock.read())

    return [(IndexWriter, "write", write)]


def _no_quarantine() -> list[Patch]:
    return [(sweep_module, "quarantine_ends", lambda modified_ms, quarantine: 0)]


def _trusts_the_index() -> list[Patch]:
    def hasty(envelope: Envelope | None, stem: str, limit_ms: int, rules: Rules) -> Judgement:
        judgement = judge(envelope, stem, limit_ms, rules)
        if judgement.verdict in (Verdict.WAIT, Verdict.ELSEWHERE, Verdict.MOVE, Verdict.RELEASE):
            return msgspec.structs.replace(judgement, verdict=Verdict.EXPIRE, at_ms=int(stem.partition("/")[0]))
        return judgement

    return [(sweep_module, "judge", hasty)]


def _wall_clock() -> list[Patch]:
    """The leader alone: writers give expiries that are right."""
    sweep, now = Sweeper.sweep, TTLGuard.now

    async def by_the_wall(self: Sweeper, *arguments: Any) -> None:
        token = sweeping.set(True)
        try:
            await sweep(self, *arguments)
        finally:
            sweeping.reset(token)

    async def either(self: TTLGuard) -> Now:
        return Now(self.clock.read().wall_ns // 1_000_000, 0) if sweeping.get() else await now(self)

    sweeping = contextvars.ContextVar("sweeping", default=False)
    return [(Sweeper, "sweep", by_the_wall), (TTLGuard, "now", either)]


def _no_doubt() -> list[Patch]:
    return [(Now, "earliest_ms", property(lambda self: self.ms))]


def _archives_first() -> list[Patch]:
    expire = Deed.expire

    async def hasty(self: Deed, found: Found, stem: str, judgement: Judgement, *arguments: Any) -> Found | Done:
        envelope, settings = found.envelope, self._rules.settings
        if settings.on_expire is OnExpire.ARCHIVE:
            pending = Pending(
                how="archive",
                to=settings.archive or "",
                data=envelope.data,
                version=envelope.version,
                write=envelope.write_id,
                at=judgement.at_ms,
                created=envelope.created_at,
            )
            name = self._resource.name
            archived = expiring_module.archived(name, envelope.id, pending)
            await self._archive(pending.to).place(expiring_module.archive_id(name, envelope.id, pending), archived)
        return await expire(self, found, stem, judgement, *arguments)

    return [(Deed, "expire", hasty)]


def _archives_anew() -> list[Patch]:
    numbers = itertools.count(1)
    return [(expiring_module, "archive_id", lambda resource, id, pending: f"expired-{next(numbers)}")]


def _forgets_pending() -> list[Patch]:
    def ended(reserved: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in reserved.items() if name != "ttl"}

    return [(resource_module, "ended", ended)]


def _clears_first() -> list[Patch]:
    work = Deed.work

    async def hasty(self: Deed, found: Found, stem: str, *arguments: Any, **options: Any) -> Any:
        if self._rules.settings.on_expire is OnExpire.ARCHIVE and not await self.clear(found.envelope.id, stem, found):
            return Done.LATER
        return await work(self, found, stem, *arguments, **options)

    return [(Deed, "work", hasty)]


def _decided_is_done() -> list[Patch]:
    """What was decided is done by whoever decided it, or by nobody."""
    delete_spent = Sweeper._delete_spent

    async def hasty(self: Any, page: Any, counts: Any) -> None:
        for entry in page:
            known = self._open.get(entry.stem)
            if known is not None and all(later.seen for later in known.ids.values()):
                self._remembered -= len(known.ids)
                known.ids.clear()
        await delete_spent(self, page, counts)

    return [(Sweeper, "_delete_spent", hasty)]


def _unknown_is_done() -> list[Patch]:
    async def hopeful(self: Resource[Any], found: Found, **changes: Any) -> Written | None:
        def draft(write_id: str) -> Envelope:
            return found.envelope.followed_by(write_id, self._now(), **changes)

        drafts = writing_module._Drafts(draft)
        attempt = Attempt(key_of(self.name, found.envelope.id), found.version)
        outcome = await self._writer._send(attempt, drafts)
        if isinstance(outcome, Rejected):
            return None
        return Written(drafts.last, outcome.version if isinstance(outcome, Applied) else None)

    return [(Resource, "swap", hopeful)]


def _lost_is_done() -> list[Patch]:
    expire = Deed.expire

    async def resigned(self: Deed, *arguments: Any) -> Found | Done:
        outcome = await expire(self, *arguments)
        return Done.DONE if outcome is Done.AGAIN else outcome

    return [(Deed, "expire", resigned)]


def _spends_what_is_under_way() -> list[Patch]:
    close = TTLCover.close

    def hasty(self: TTLCover) -> None:
        self._undecided = False
        close(self)

    return [(TTLCover, "close", hasty)]


def _spends_the_former_first() -> list[Patch]:
    prepare = TTLCover.prepare

    async def hasty(self: TTLCover, base: Envelope | None, *arguments: Any) -> dict[str, Any]:
        reserved = await prepare(self, base, *arguments)
        if self._former and self._former != self._name:
            self._guard.index.spend(self._former, self._id)
        return reserved

    return [(TTLCover, "prepare", hasty)]


def _sends_however_late() -> list[Patch]:
    return [(TTLCover, "sending", lambda self: setattr(self, "_undecided", True))]


def _calls_first() -> list[Patch]:
    expire = Deed.expire

    async def hasty(self: Deed, found: Found, stem: str, judgement: Judgement, *arguments: Any) -> Any:
        if self._rules.settings.on_expire is not OnExpire.CALLBACK:
            return await expire(self, found, stem, judgement, *arguments)
        envelope = found.envelope
        pending = Pending(
            how="callback", data=envelope.data, version=envelope.version, write=envelope.write_id, at=judgement.at_ms
        )
        return Call(envelope.id, stem, found, pending)

    async def clear(self: Deed, id: str, stem: str, found: Found) -> bool:
        return await self._resource.swap(found, deleted=True, data={}, reserved={}) is not None

    return [(Deed, "expire", hasty), (Deed, "clear", clear)]


def _token_of_the_attempt() -> list[Patch]:
    call_one = TTLLeading._call_one

    async def counted(self: TTLLeading, clerk: TTLClerk, call: Call, token: int, counts: Counts) -> bool:
        attempt = clerk.machine.trials.get(trial_key(call.stem, call.id), 1)
        return await call_one(self, clerk, call, attempt, counts)

    return [(TTLLeading, "_call_one", counted)]


def _dry_run_expires() -> list[Patch]:
    """The sweep of a dry run is one like any other. (Callbacks aside: a dry run has nobody to call.)"""
    init = Sweeper.__init__

    def wet(self: Sweeper, store: Any, resource: Any, guard: TTLGuard, *arguments: Any, **options: Any) -> None:
        init(self, store, resource, guard, *arguments, **options)
        self._dry_run = self._dry_run and guard.rules.settings.on_expire is OnExpire.CALLBACK

    return [(Sweeper, "__init__", wet)]


def _writes_back() -> list[Patch]:
    """What need not be touched yet is written again, as it was read."""
    judge_one = Sweeper._judge

    async def writing(self: Sweeper, job: Any, found: Found | None, limit_ms: int, *arguments: Any) -> Any:
        outcome = await judge_one(self, job, found, limit_ms, *arguments)
        if outcome is Done.LATER and found is not None and not self._dry_run:
            await self._resource.swap(found)
        return outcome

    return [(Sweeper, "_judge", writing)]


def _rounds_times() -> list[Patch]:
    return [(plugin_module, "moment_of", lambda ms: moment_of(ms // 1000 * 1000))]


def _every_write_refreshes() -> list[Patch]:
    at = TTLCover._at

    async def from_now(self: TTLCover, is_new: bool, data: dict[str, Any], held: Any) -> Any:
        rules = self._guard.rules
        if self._wish is Wish.NOTHING and held.at is not None and rules.ttl_ms is not None and not rules.by_field:
            return rules.from_now(await self._guard.now()), False
        return await at(self, is_new, data, held)

    return [(TTLCover, "_at", from_now)]


def _rests_too_long() -> list[Patch]:
    return [(TTLLeading, "_period", lambda self: 3 * self._settings.tick + 5.0)]


def _keeps_spent_entries() -> list[Patch]:
    async def keep(self: Sweeper, page: Any, counts: Counts) -> None:
        pass

    return [(Sweeper, "_delete_spent", keep)]


def _calls_once() -> list[Patch]:
    have_called = Sweeper._have_called

    async def once(self: Sweeper, calls: Any, *arguments: Any) -> None:
        await have_called(self, calls, *arguments)
        for job, _ in calls:
            if not job.later.called:
                job.later.at_ms = 2**53

    return [(Sweeper, "_have_called", once)]


def unknown_is_written() -> list[Patch]:
    """Of all writes of records: whoever makes one is told that it is there."""

    async def replace(self: Writer, key: str, base: Found, draft: Any) -> Written | None:
        return await hopeful(self, Attempt(key, base.version), draft)

    async def create(self: Writer, key: str, id: str, draft: Any, *, once: bool) -> Written | None:
        return await hopeful(self, Attempt(key, None), draft)

    async def hopeful(self: Writer, attempt: Attempt, draft: Any) -> Written | None:
        drafts = writing_module._Drafts(draft)
        outcome = await self._send(attempt, drafts)
        if isinstance(outcome, Rejected):
            return None
        return Written(drafts.last, outcome.version if isinstance(outcome, Applied) else None)

    return [(Writer, "replace", replace), (Writer, "create", create)]


def unknown_insert_is_refused() -> list[Patch]:
    """Nobody looks whether it is one's own record that is in the way."""

    async def create(self: Writer, key: str, id: str, draft: Any, *, once: bool) -> Written | None:
        drafts = writing_module._Drafts(draft)
        outcome = await self._send(Attempt(key, None), drafts)
        return Written(drafts.last, outcome.version) if isinstance(outcome, Applied) else None

    return [(Writer, "create", create)]


def unknown_update_is_lost() -> list[Patch]:
    return _unknown_is_lost(lambda base, draft: not base.deleted and not draft.deleted)


def unknown_end_is_lost() -> list[Patch]:
    """Of a delete, and of an insert over a tombstone."""
    return _unknown_is_lost(lambda base, draft: base.deleted or draft.deleted)


def _unknown_is_lost(concerns: Callable[[Envelope, Envelope], bool]) -> list[Patch]:
    """The write is made again, upon what it may have written itself."""
    settled = Writer.replace

    async def replace(self: Writer, key: str, base: Found, draft: Any) -> Written | None:
        if not concerns(base.envelope, draft("")):
            return await settled(self, key, base, draft)
        drafts = writing_module._Drafts(draft)
        outcome = await self._send(Attempt(key, base.version), drafts)
        return Written(drafts.last, outcome.version) if isinstance(outcome, Applied) else None

    return [(Writer, "replace", replace)]


def _persists_for_a_day() -> list[Patch]:
    at = TTLCover._at

    async def for_a_day(self: TTLCover, is_new: bool, data: dict[str, Any], held: Any) -> Any:
        if self._wish is Wish.PERSIST and not self._guard.rules.by_field:
            return self._guard.rules.from_now(await self._guard.now(), 86_400_000), False
        return await at(self, is_new, data, held)

    return [(TTLCover, "_at", for_a_day)]


def _end_takes_all() -> list[Patch]:
    def ended_altogether(reserved: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in ended(reserved).items() if name == TTL}

    return [(module, "ended", ended_altogether) for module in (resource_module, expiring_module)]


def _puts_back() -> list[Patch]:
    call_one = TTLLeading._call_one

    async def with_return(self: TTLLeading, clerk: TTLClerk, call: Call, token: int, counts: Counts) -> bool:
        is_done = await call_one(self, clerk, call, token, counts)
        if not is_done:
            await self._resource.swap(call.found, deleted=False, data=call.pending.data)
        return is_done

    return [(TTLLeading, "_call_one", with_return)]


def _marks_with_now() -> list[Patch]:
    mark = Deed._mark

    async def late(self: Deed, found: Found, judgement: Judgement) -> Written | None:
        now_ms = self._resource._clock.read().wall_ns // 1_000_000
        return await mark(self, found, msgspec.structs.replace(judgement, at_ms=now_ms))

    return [(Deed, "_mark", late)]


def _keeps_marked_expiry() -> list[Patch]:
    return [(expiring_module, "ended", lambda reserved: reserved)]


def _adds_cleanups_twice() -> list[Patch]:
    enact = TTLMachine.enact

    def twice(self: TTLMachine, work: Work) -> None:
        enact(self, work)
        if work.cleanup is not None:
            self.totals.add(work.cleanup.counts)

    return [(TTLMachine, "enact", twice)]


def _tombstones_keep_expiry() -> list[Patch]:
    return [(resource_module, "ended", lambda reserved: reserved)]


def log_is_not_trimmed() -> list[Patch]:
    return [(Archivist, "bound", lambda self: None)]


TTL_VARIANTS = (
    Variant("blind-swap", "what has expired is written over whatever is there by then", "overwritten", _blind_delete),
    Variant("no-tombstone", "what has expired is deleted without a condition", "removed", _no_tombstone),
    Variant("entry-after-record", "the index entry is written while its record is", "index", _entry_after_record),
    Variant("no-quarantine", "an index entry without a record is dropped at once", "index", _no_quarantine),
    Variant(
        "trusts-the-index",
        "a due index entry is enough: the record's own time is not looked at",
        "early",
        _trusts_the_index,
    ),
    Variant("ttl-by-wall-clock", "records expire by the wall clock of whoever leads", "early", _wall_clock),
    Variant("no-doubt", "the store's time is taken as exact", "early", _no_doubt),
    Variant(
        "archives-first", "a record is archived before it is decided that it has expired", "archive", _archives_first
    ),
    Variant("archives-anew", "each attempt to archive a record has an id of its own", "archive", _archives_anew),
    Variant(
        "forgets-pending", "an insert over a tombstone forgets what was still to be done", "pending", _forgets_pending
    ),
    Variant("clears-first", "what is to be archived is cleared before it is in the archive", "pending", _clears_first),
    Variant("decided-is-done", "the index entry goes as soon as an expiry is decided", "index", _decided_is_done),
    Variant("unknown-is-done", "a swap without an answer counts as done", "index", _unknown_is_done),
    Variant("lost-is-done", "a record that somebody else wrote first is not judged again", "index", _lost_is_done),
    Variant(
        "spends-under-way", "a writer that got no answer takes its index entry back", "index", _spends_what_is_under_way
    ),
    Variant(
        "spends-the-former-first",
        "the old index entry goes before the new record has landed",
        "index",
        _spends_the_former_first,
    ),
    Variant(
        "sends-however-late",
        "a record is sent however long ago its index entry was written",
        "index",
        _sends_however_late,
    ),
    Variant(
        "calls-first", "a callback is called before it is decided that its record has expired", "callback", _calls_first
    ),
    Variant("token-of-the-attempt", "the token of a callback counts its attempts", "token", _token_of_the_attempt),
    Variant("dry-run-expires", "a dry run does what it was to count", "dry run", _dry_run_expires),
    Variant("writes-back", "what is to be looked at again is written back as it was read", "changed", _writes_back),
    Variant("rounds-times", "the time that a caller is told is cut off to whole seconds", "expires_at", _rounds_times),
    Variant(
        "every-write-refreshes",
        "every write has the time to live begin again",
        "expiry",
        _every_write_refreshes,
    ),
    Variant("rests-too-long", "the leader rests for longer than a tick between two sweeps", "late", _rests_too_long),
    Variant(
        "keeps-spent-entries", "index entries are not deleted when they are done with", "liveness", _keeps_spent_entries
    ),
    Variant("calls-once", "a callback that failed is not called again", "liveness", _calls_once),
    Variant("unknown-is-written", "a write of a record without an answer counts as done", "lost", unknown_is_written),
    Variant(
        "unknown-insert-is-refused",
        "an insert without an answer counts as refused if a record is there",
        "told",
        unknown_insert_is_refused,
    ),
    Variant(
        "unknown-update-is-lost",
        "an update without an answer counts as lost to another, and is made again",
        "twice",
        unknown_update_is_lost,
    ),
    Variant("persists-for-a-day", "a record that shall persist is given a long time", "persist", _persists_for_a_day),
    Variant(
        "end-takes-all",
        "a record that ends takes along what others keep with its id",
        "reserved",
        _end_takes_all,
    ),
    Variant("puts-back", "a record whose callback failed is put back", "resurrected", _puts_back),
    Variant(
        "marks-with-now",
        "a soft-deleted record says when it was swept",
        "strategy",
        _marks_with_now,
    ),
    Variant("marked-keeps-expiry", "a record that has expired keeps its expiry", "strategy", _keeps_marked_expiry),
    Variant("adds-cleanups-twice", "totals count a cleanup, and its entries again", "totals", _adds_cleanups_twice),
    Variant("tombstone-keeps-expiry", "a deleted record keeps its expiry", "user", _tombstones_keep_expiry),
    Variant("ttl-log-grows", "the log is never trimmed", "bounds", log_is_not_trimmed),
)
