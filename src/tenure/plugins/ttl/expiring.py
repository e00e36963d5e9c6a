"""What becomes of a record whose time has come. Each step is one compare-and-swap, or can be done twice without harm.

Deleting and marking are one step. To archive or to call takes several, and any process may end between two of them: so
it is decided first. One compare-and-swap deletes the record and leaves what is to be done, with the data, in the
tombstone (`pending`), under the name of the index entry; then it is done; then that is cleared; and only then is the
entry spent. Whoever finds the entry goes on where its predecessor ended. An insert over the tombstone carries `pending`
along, and neither harms the other.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from tenure.database.expiry import Expiry, Pending, ended, expiry_of, with_expiry
from tenure.database.resource import MAX_BYTES, Resource
from tenure.database.writing import Found, Written
from tenure.errors import DamagedRecord, RecordExists
from tenure.plugins.ttl.judge import Judgement
from tenure.plugins.ttl.records import Counts
from tenure.plugins.ttl.rules import Rules, iso
from tenure.plugins.ttl.settings import OnExpire

MAX_PENDING = 4
"""Lives of one id that may be waited for at a time: a fifth expires when one of them is done with ..."""
MAX_PENDING_BYTES = 16 * MAX_BYTES
"""... or when there is room for it."""
_ROUNDS = 5


class Done(enum.Enum):
    DONE = "done"
    """Nothing is left to do under this entry."""
    LATER = "later"
    AGAIN = "again"
    """Somebody else wrote first: read and judge again."""


class Call(msgspec.Struct):
    """A callback that is to be called."""

    id: str
    stem: str
    found: Found
    pending: Pending
    not_before_ms: int = 0


Act: TypeAlias = Done | Call


def trial_key(stem: str, id: str) -> str:
    """What the log calls a callback."""
    return f"{stem}:{id}"


class Deed:
    def __init__(
        self,
        resource: Resource[Any],
        rules: Rules,
        *,
        archive: Callable[[str], Resource[Any]],
        settled: Callable[[str], None],
        not_before: Callable[[str], int],
    ) -> None:
        """`archive`: the resource of that name. `settled`, `not_before`: of a callback, by `trial_key`."""
        self._resource = resource
        self._rules = rules
        self._archive = archive
        self._settled = settled
        self._not_before = not_before

    async def expire(
        self, found: Found, stem: str, judgement: Judgement, counts: Counts, expired: list[str]
    ) -> Found | Done:
        """The one step that decides. Gives the tombstone if there is more to do."""
        how, id = self._rules.settings.on_expire, found.envelope.id
        if how is OnExpire.HARD_DELETE:
            written = await self._resource.swap(found, deleted=True, data={}, reserved=ended(found.envelope.reserved))
        elif how is OnExpire.SOFT_DELETE:
            written = await self._mark(found, judgement)
        elif not _has_room(judgement.expiry.pending, found.envelope.data):
            return Done.LATER
        else:
            written = await self._set_aside(found, stem, judgement)
        if written is None:
            return Done.AGAIN
        expired.append(id)
        counts.expired += 1
        if how is OnExpire.HARD_DELETE:
            counts.deleted += 1
            await self._resource.clear_away(id, written)
            return Done.DONE
        if how is OnExpire.SOFT_DELETE:
            counts.soft_deleted += 1
            return Done.DONE
        return Found(written.envelope, written.version) if written.version is not None else Done.AGAIN

    async def release(self, found: Found, expiry: Expiry) -> Done:
        """It does not expire, and need not name an entry."""
        kept = msgspec.structs.replace(expiry, at=None, entry="")
        written = await self._resource.swap(found, reserved=with_expiry(found.envelope.reserved, kept))
        return Done.DONE if written is not None else Done.AGAIN

    async def work(self, found: Found, stem: str, expiry: Expiry, counts: Counts, *, called: bool = False) -> Act:
        """Go on with what was decided."""
        pending, id = expiry.pending[stem], found.envelope.id
        if pending.how == OnExpire.CALLBACK.value and not called:
            return Call(id, stem, found, pending, self._not_before(trial_key(stem, id)))
        if pending.how == OnExpire.ARCHIVE.value:
            try:
                await self._archive(pending.to).place(
                    archive_id(self._resource.name, id, pending), archived(self._resource.name, id, pending)
                )
            except RecordExists:
                pass  # an earlier attempt of ours has come as far
        elif pending.how != OnExpire.CALLBACK.value:
            raise DamagedRecord(
                f"record {id!r} of {self._resource.name!r} is to be given to {pending.how[:80]!r}, which is not known "
                "here: update this process",
                resource=self._resource.name,
                id=id,
            )
        if not await self.clear(id, stem, found):
            return Done.LATER
        if called:
            self.settled(stem, id)
        else:
            counts.archived += 1
        return Done.DONE

    async def work_on(self, found: Found, stem: str, counts: Counts) -> Act:
        expiry = expiry_of(found.envelope.reserved)
        assert not isinstance(expiry, str)
        return await self.work(found, stem, expiry, counts)

    async def clear(self, id: str, stem: str, found: Found | None) -> bool:
        """What was to be done is done: take it away. False: others write it all the time."""
        for _ in range(_ROUNDS):
            if found is None:
                found = await self._resource.find(id)
            if found is None:
                return True
            expiry = expiry_of(found.envelope.reserved)
            if isinstance(expiry, str):
                raise DamagedRecord(
                    f"record {id!r} of {self._resource.name!r} is damaged: {expiry}",
                    resource=self._resource.name,
                    id=id,
                )
            if stem not in expiry.pending:
                return True
            left = {name: pending for name, pending in expiry.pending.items() if name != stem}
            kept = msgspec.structs.replace(expiry, pending=left)
            written = await self._resource.swap(found, reserved=with_expiry(found.envelope.reserved, kept))
            if written is not None:
                if written.envelope.deleted:
                    await self._resource.clear_away(id, written)
                return True
            found = None
        return False

    def settled(self, stem: str, id: str) -> None:
        self._settled(trial_key(stem, id))

    async def _mark(self, found: Found, judgement: Judgement) -> Written | None:
        envelope = found.envelope
        marked = {**envelope.data, self._rules.settings.soft_field: iso(judgement.at_ms)}
        return await self._resource.swap(
            found, data=self._resource.fitting(marked, envelope.id), reserved=ended(envelope.reserved)
        )

    async def _set_aside(self, found: Found, stem: str, judgement: Judgement) -> Written | None:
        envelope, settings = found.envelope, self._rules.settings
        pending = Pending(
            how=settings.on_expire.value,
            to=settings.archive or "",
            data=envelope.data,
            version=envelope.version,
            write=envelope.write_id,
            at=judgement.at_ms,
            created=envelope.created_at,
        )
        kept = Expiry(pending={**judgement.expiry.pending, stem: pending})
        return await self._resource.swap(found, deleted=True, data={}, reserved=with_expiry(envelope.reserved, kept))


def _has_room(pending: dict[str, Pending], data: dict[str, Any]) -> bool:
    if not pending:
        return True
    size = sum(len(msgspec.json.encode(each)) for each in (*pending.values(), data))
    return len(pending) < MAX_PENDING and size <= MAX_PENDING_BYTES


def archive_id(resource: str, id: str, pending: Pending) -> str:
    """The same for each attempt, and for no other record."""
    parts = "\0".join((resource, id, str(pending.version), pending.write))
    return "expired-" + blake2b(parts.encode(), digest_size=20).hexdigest()


def archived(resource: str, id: str, pending: Pending) -> dict[str, Any]:
    """What is kept of a record in the archive."""
    return {
        "resource": resource,
        "id": id,
        "version": pending.version,
        "created_at": pending.created,
        "expired_at": iso(pending.at),
        "data": pending.data,
    }
