"""Broken builds of what makes records expire: each is a patch to a production class, and the judge must catch it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
from hashlib import blake2b
from typing import Any

import msgspec

from tenure.database import resource as resource_module
from tenure.database import writing as writing_module
from tenure.database.expiry import Pending
from tenure.database.ids import key_of
from tenure.database.records import Envelope, encode
from tenure.database.resource import Resource
from tenure.database.writing import Found, Written
from tenure.errors import StoreError
from tenure.plugins.ttl import expiring as expiring_module
from tenure.plugins.ttl import sweep as sweep_module
from tenure.plugins.ttl.clerk import TTLClerk
from tenure.plugins.ttl.expiring import Call, Deed, Done, trial_key
from tenure.plugins.ttl.guard import TTLCover, TTLGuard
from tenure.plugins.ttl.index import Indexed, IndexWriter, key_for
from tenure.plugins.ttl.judge import Judgement, Verdict, judge
from tenure.plugins.ttl.leading import TTLLeading
from tenure.plugins.ttl.records import Counts
from tenure.plugins.ttl.rules import Now, Rules
from tenure.plugins.ttl.settings import OnExpire
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
)
