"""A named collection of JSON records.

    emails = db.resource("emails", schema=Email)
    record = await emails.insert(Email(to="ada@example.com", subject="Hello"))
    await emails.patch(record.id, {"subject": "Hello again"}, if_version=record.version)

Guarantee: a write that returned is there, and is overwritten only by somebody who read it, or who says so by writing
without `if_version`. An update with `if_version` is applied to that version of that record or not at all, also when the
record was deleted and its id inserted again meanwhile. A delete, however late it lands, never removes what was written
after it. A call that raised `WriteUnknown` happened once, or not at all, or may still happen once.

Assumption: every write to the resource's keys goes through this class. There is no blind put.

Not guaranteed: anything across two records.

Deleting writes a tombstone by compare-and-swap, which hides the record and keeps its version. It is then removed where
nothing can be lost by it: by conditional delete where the store has one, by a plain delete where the id is never
inserted again (`reuse_ids=False`, and ids that tenure drew) and no plugin shapes the records, since it may write to
tombstones as well; otherwise `tenure gc` does it. A tombstone with something in `reserved` stays. Because tombstones
go, the first version of an id that may come back is not 1 but a number drawn at random: so no version of the old record
fits the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.given import check_count, check_flag, check_instance, shown
from tenure.database.counted import COUNTERS, still_counted
from tenure.database.expiry import TTL, carried, ended
from tenure.database.guarding import UNCOVERED, Cover, Guard, Outdated, Shape
from tenure.database.ids import check_given_id, check_id, check_name, draw, folder_of, is_drawn, key_of, parse_key
from tenure.database.records import (
    MAX_RESERVED_BYTES,
    Envelope,
    Inserted,
    Page,
    Record,
    SetAside,
    decode,
    is_tombstone_size,
)
from tenure.database.schema import Misfit, Schema
from tenure.database.writing import Draft, Found, Writer, Written
from tenure.election.records import time_of_day
from tenure.entropy import NewId, new_id
from tenure.errors import (
    BodyTooLarge,
    ConfigError,
    DamagedRecord,
    InvalidRecord,
    NotFound,
    RecordConflict,
    RecordExists,
    RecordNotFound,
    StoreError,
    TenureError,
    WriteUnknown,
)
from tenure.store import Entry, Names, Store, Stored, Strangers, ours

A = TypeVar("A")
D = TypeVar("D")
R = TypeVar("R")
_log = logging.getLogger("tenure.resource")

MAX_BYTES = 1_000_000
"""The default limit for the data of one record, as JSON."""
MAX_PAGE = 1000
MAX_INSERTS = 10_000
_AT_ONCE = 16
_TRIES = 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
_FIRST_VERSION_BYTES = 5
_PREPARED_AT_ONCE = 500
"""Records of one `insert_many` whose writes are prepared together."""


class Removal(enum.Enum):
    """What `patch` takes for a field that is to go."""

    REMOVE = "remove"


REMOVE = Removal.REMOVE
"""`await emails.patch(id, {"draft": REMOVE})` takes the field away; `None` would set it to null."""

Change = Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
"""From a record's data and reserved fields to what they shall be. It may be called more than once."""


class Resource(Generic[D]):
    """The records of one name. `schema`: a `msgspec.Struct` or dataclass that every record fits, or `None`.

    `reuse_ids=False` promises that no id is inserted again after its record was deleted, by anybody: deleted records
    then leave nothing behind on any store. `max_bytes` limits the data of one record, as JSON.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        schema: type[D] | None = None,
        *,
        reuse_ids: bool = True,
        max_bytes: int = MAX_BYTES,
        clock: Clock = SYSTEM_CLOCK,
        draw_id: NewId = new_id,
    ) -> None:
        self.name = check_name(name)
        self.reuse_ids = check_flag("reuse_ids", reuse_ids)
        check_count("max_bytes", max_bytes, least=1, most=16 * MAX_BYTES)
        self._schema: Schema[D] = Schema(schema)
        self._max_bytes = max_bytes
        self._store = store
        self._clock = clock
        self._draw_id = draw_id
        self._writer = Writer(store, clock=clock, draw_id=draw_id)
        self._folder = folder_of(name)
        self._guard: Guard | None = None
        self._shapes: dict[str, Shape] = {}

    def __repr__(self) -> str:
        return f"<Resource {self.name!r}>"

    @property
    def schema(self) -> type[D] | None:
        return self._schema.kind

    async def insert(self, data: D | Mapping[str, Any], id: str | None = None) -> Record[D]:
        """Add a record; without `id` one is drawn. Raises `RecordExists` if the id is taken."""
        given = draw(self._draw_id) if id is None else check_given_id(id)
        return await self._insert(given, self._storable(data, given), cover=self._cover(given))

    async def get(self, id: str) -> Record[D]:
        """The record. Raises `RecordNotFound`, and `DamagedRecord` if what is stored is none or does not fit."""
        found = await self._found(check_id(id))
        return self._record(found.envelope)

    async def get_or_none(self, id: str) -> Record[D] | None:
        """The record, or `None` if there is none."""
        try:
            return await self.get(id)
        except RecordNotFound:
            return None

    async def exists(self, id: str) -> bool:
        """Is there a record with this id? Also true of one that does not fit the schema."""
        found = await self._read(check_id(id))
        return found is not None and not found.envelope.deleted

    async def update(self, id: str, data: D | Mapping[str, Any], if_version: int | None = None) -> Record[D]:
        """Replace the record's data. With `if_version` only if it is in that version, otherwise `Conflict`."""
        plain = self._storable(data, check_id(id))
        return self._record((await self._edit(id, if_version, lambda envelope: {"data": plain})).envelope)

    async def patch(self, id: str, changes: Mapping[str, Any], if_version: int | None = None) -> Record[D]:
        """Change some fields of the record, and leave the others. `None` sets null; `REMOVE` takes a field away."""
        check_id(id)
        if not isinstance(changes, Mapping):
            raise self._invalid(id, f"changes are {type(changes).__name__}: give a dict of fields")
        try:
            self._schema.check_fields(changes)
            plain = {
                name: value if value is REMOVE else self._schema.plain_value(name, value)
                for name, value in changes.items()
            }
        except Misfit as misfit:
            raise self._invalid(id, str(misfit)) from None

        def merged(envelope: Envelope) -> dict[str, Any]:
            fields = {**envelope.data, **plain}
            fields = {name: value for name, value in fields.items() if value is not REMOVE}
            return {"data": self._storable_patch(fields, id)}

        return self._record((await self._edit(id, if_version, merged)).envelope)

    async def rewrite(self, id: str, change: Change, if_version: int | None = None) -> Record[D]:
        """Give the record the data and reserved fields that `change` makes of those that it has, atomically."""

        def changed(envelope: Envelope) -> dict[str, Any]:
            data, reserved = change(dict(envelope.data), dict(envelope.reserved))
            if isinstance(reserved, Mapping):  # what plugins keep is not decided by who changes something else
                reserved = {name: value for name, value in reserved.items() if name not in (TTL, COUNTERS)}
            return {"data": self._storable_patch(data, id), "reserved": self._reservable(reserved, id)}

        return self._record((await self._edit(check_id(id), if_version, changed)).envelope)

    async def delete(self, id: str, if_version: int | None = None) -> None:
        """Delete the record. Raises `RecordNotFound` if there is none, and `Conflict` as `update` does."""
        written = await self._edit(check_id(id), if_version, lambda envelope: {"deleted": True, "data": {}})
        with contextlib.suppress(StoreError):  # the record is deleted already; `tenure gc` finds the tombstone
            await self._remove(id, written)

    async def list(self, limit: int = 100, after: str | None = None) -> Page[D]:
        """Up to `limit` records whose keys come after that of the id `after`: `after=page.next` goes on."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
            raise ConfigError(f"limit is {limit!r}: give 1 to {MAX_PAGE}")
        ids: list[str] = []
        foreign: list[SetAside] = []
        named = 0  # of the foreign, those that come before the last of `ids`; the next page names the others
        more = False
        strangers = Strangers()
        async with contextlib.aclosing(self._listing(after, strangers)) as listing:
            async for entry, id in listing:
                if id is not None and len(ids) == limit:
                    more = True
                    break
                if id is not None:
                    ids.append(id)
                    named = len(foreign)
                elif len(foreign) < MAX_PAGE:
                    foreign.append(self._foreign(entry.key))
        outside = [self._foreign(key) for key in strangers.met][:MAX_PAGE]
        read = await _side_by_side(self._look, ids)
        records = tuple(record for record in read if isinstance(record, Record))
        damaged = tuple(record for record in read if isinstance(record, SetAside))
        return Page(records, ids[-1] if more else None, (*damaged, *(foreign[:named] if more else foreign), *outside))

    async def records(
        self, *, after: str | None = None, on_damaged: Callable[[SetAside], object] | None = None
    ) -> AsyncIterator[Record[D]]:
        """Every record, page by page. What cannot be given back goes to `on_damaged`, or is logged."""
        if on_damaged is not None and not callable(on_damaged):
            raise ConfigError(f"on_damaged is {shown(on_damaged)}: give a function of one argument")
        while True:
            page = await self.list(after=after)
            for damaged in page.damaged:
                if on_damaged is not None:
                    on_damaged(damaged)
                else:
                    _log.warning("resource %r: record %r was left out: %s", self.name, damaged.id, damaged.reason)
            for record in page.records:
                yield record
            if page.next is None:
                return
            after = page.next

    async def count(self) -> int:
        """How many records there are, by the listing alone: one request for each thousand."""
        count = 0
        async with contextlib.aclosing(self._listing(None)) as listing:
            async for _, id in listing:
                count += id is not None
        return count

    async def insert_many(
        self, items: Sequence[D | Mapping[str, Any]], ids: Sequence[str] | None = None
    ) -> tuple[Inserted[D], ...]:
        """Insert each of `items`, some at a time, and say of each what became of it: one that fails stops no other.

        All are checked before the first is sent: one that does not fit raises `InvalidRecord`, and none is inserted.
        """
        check_instance("items", items, Sequence)
        if ids is not None:
            check_instance("ids", ids, Sequence)
        if len(items) > MAX_INSERTS:
            raise ConfigError(f"insert_many got {len(items):,} records: give at most {MAX_INSERTS:,} at a time")
        if ids is not None and len(ids) != len(items):
            raise ConfigError(f"insert_many got {len(items)} records and {len(ids)} ids: give one id for each, or none")
        chosen = [draw(self._draw_id) for _ in items] if ids is None else [check_given_id(id) for id in ids]
        plain = []
        for index, (item, id) in enumerate(zip(items, chosen, strict=True)):
            try:
                plain.append(self._storable(item, id))
                self._shaped(id, None, plain[-1])
                if self._guard is not None:
                    self._guard.check(id, plain[-1])
            except InvalidRecord as error:
                raise InvalidRecord(f"item {index}: {error}", resource=self.name, id=id) from None

        covers = [self._cover(id) for id in chosen]

        async def prepare(index: int) -> None:
            # What goes wrong with one is told when its turn comes to be written.
            with contextlib.suppress(TenureError):
                await covers[index].prepare(None, plain[index], {})

        async def one(index: int) -> Inserted[D]:
            try:
                record = await self._insert(chosen[index], plain[index], cover=covers[index])
            except TenureError as error:
                return Inserted(index, chosen[index], error=error)
            return Inserted(index, chosen[index], record=record)

        done: list[Inserted[D]] = []
        try:
            for first in range(0, len(items), _PREPARED_AT_ONCE):
                part = range(first, min(first + _PREPARED_AT_ONCE, len(items)))
                if self._guard is not None:
                    await _side_by_side(prepare, part, at_once=_PREPARED_AT_ONCE)
                done += await _side_by_side(one, part)
        finally:
            for cover in covers:
                cover.close()
        return tuple(done)

    async def _insert(self, id: str, plain: dict[str, Any], *, cover: Cover, revive: bool = True) -> Record[D]:
        """`revive=False`: an id whose record was deleted is taken."""
        key = key_of(self.name, id)
        try:
            for round_number in range(_TRIES):
                await self._pause(round_number)
                shaped = self._shaped(id, None, plain)
                reserved = await cover.prepare(None, shaped, {})
                try:
                    written = await self._writer.create(
                        key, id, self._first(id, shaped, reserved, cover), once=self._is_removed(id)
                    )
                except Outdated:
                    continue
                cover.decided(written is not None)
                if written is not None:
                    return self._record((await self._affirmed(id, cover, written)).envelope)
                found = await self._read(id)
                if found is None:
                    continue  # its tombstone was removed meanwhile
                if not found.envelope.deleted:
                    raise self._exists(id, found.envelope.version)
                if not found.envelope.is_unborn and (not revive or not self._may_return(id)):
                    raise self._exists(id, found.envelope.version, "was deleted, and ids are not used twice here")
                written = await self._attempt(found, {"deleted": False, "data": plain}, cover, is_new=True)
                if written is not None:
                    return self._record((await self._affirmed(id, cover, written)).envelope)
        finally:
            cover.close()
        raise self._overtaken(id, None)

    def _first(self, id: str, plain: dict[str, Any], reserved: dict[str, Any], cover: Cover) -> Draft:
        def draft(write_id: str) -> Envelope:
            cover.sending()
            at = self._now()
            version = _random_version(write_id) if self._may_return(id) else 1
            return Envelope(
                id=id,
                version=version,
                first_version=version,
                write_id=write_id,
                recent_writes=(write_id,),
                first_write_id=write_id,
                created_at=at,
                updated_at=at,
                data=plain,
                reserved=reserved,
            )

        return draft

    async def _edit(
        self,
        id: str,
        if_version: int | None,
        change: Callable[[Envelope], dict[str, Any]],
        cover: Cover | None = None,
    ) -> Written:
        """Read, change, compare-and-swap; and again if somebody was faster, unless a version was asked for."""
        if if_version is not None and (isinstance(if_version, bool) or not isinstance(if_version, int)):
            raise ConfigError(f"if_version is {if_version!r}: give the version of a record, an integer")
        cover = cover if cover is not None else self._cover(id)
        try:
            for round_number in range(_TRIES):
                await self._pause(round_number)
                found = await self._found(id)
                if if_version is not None and found.envelope.version != if_version:
                    raise self._conflict(id, if_version, found.envelope.version)
                written = await self._attempt(found, change(found.envelope), cover)
                if written is not None:
                    return await self._affirmed(id, cover, written)
        finally:
            cover.close()
        raise self._overtaken(id, if_version)

    async def _attempt(
        self, found: Found, changes: dict[str, Any], cover: Cover, *, is_new: bool = False
    ) -> Written | None:
        """Write over what was read, once its guard has prepared that; `None`: nothing of it was or will be written."""
        base = found.envelope
        reserved = changes.get("reserved", base.reserved)
        is_end = bool(changes.get("deleted"))
        reserved = ended(reserved) if is_new or is_end else carried(base.reserved, reserved)
        reserved = still_counted(base.reserved, reserved)
        if "data" in changes and not is_end:
            changes = {**changes, "data": self._shaped(base.id, base, changes["data"])}
        reserved = await cover.prepare(base, None if is_end else changes.get("data", base.data), reserved)

        def draft(write_id: str) -> Envelope:
            cover.sending()
            at = self._now()
            born = {"created_at": at} if is_new else {}
            return base.followed_by(write_id, at, **{**changes, "reserved": reserved, **born})

        try:
            written = await self._writer.replace(key_of(self.name, base.id), found, draft)
        except Outdated:
            return None
        cover.decided(written is not None)
        return written

    async def _affirmed(self, id: str, cover: Cover, written: Written) -> Written:
        """What was written, and will be found by who is to find it, however long the writing took."""
        renewal = cover.renewal()
        if renewal is None:
            return written
        try:
            return await self._edit(id, None, lambda envelope: {}, renewal)
        except RecordNotFound:
            return written
        except (StoreError, RecordConflict) as error:
            raise WriteUnknown(
                f"record {id!r} of {self.name!r} was written, so long after it was prepared that it must be written "
                f"anew, and that failed ({error}): write it again",
                record_id=id,
            ) from error

    def _cover(self, id: str) -> Cover:
        return self._guard.cover(id) if self._guard is not None else UNCOVERED

    # For plugins, which decide by what they have read

    def guarded_by(self, guard: Guard) -> None:
        """From here on every write through this object is prepared by `guard`."""
        if self._guard is not None and self._guard is not guard and not self._guard.is_retired:
            raise ConfigError(f"resource {self.name!r} is guarded already: use one plugin that expires its records")
        self._guard = guard

    def shaped_by(self, name: str, shape: Shape | None) -> None:
        """From here on every write through this object is shaped by the plugin of this name; `None`: no longer."""
        if shape is None:
            self._shapes.pop(name, None)
        else:
            self._shapes[name] = shape

    def _shaped(self, id: str, base: Envelope | None, data: dict[str, Any]) -> dict[str, Any]:
        for shape in self._shapes.values():
            data = shape.shaped(id, base, data)
        return data

    async def keep(self, id: str, reserved: dict[str, Any]) -> Written | None:
        """Keep something for a key that has nothing yet: a tombstone of no record, over which anything may be inserted.

        `None`: there is something. Raises `WriteUnknown`. What is kept stays, so that the key is never absent again:
        each copy that is sent lands on an absent key, or not at all.
        """

        def draft(write_id: str) -> Envelope:
            version = _random_version(write_id)
            return Envelope(
                id=id,
                version=version,
                first_version=version,
                write_id=write_id,
                recent_writes=(write_id,),
                first_write_id=write_id,
                updated_at=self._now(),
                deleted=True,
                data={},
                reserved=reserved,
            )

        assert reserved, "a tombstone that keeps nothing is removed"
        return await self._writer.create(key_of(self.name, id), id, draft, once=False)

    async def find(self, id: str) -> Found | None:
        """What lies there, tombstones included. Raises `DamagedRecord`."""
        return await self._read(id)

    async def swap(self, found: Found, **changes: Any) -> Written | None:
        """Change fields of the envelope that was read, if it is still there; `None`: another was first.

        No guard is asked: whoever calls this keeps its rules. Raises `WriteUnknown`.
        """

        def draft(write_id: str) -> Envelope:
            return found.envelope.followed_by(write_id, self._now(), **changes)

        return await self._writer.replace(key_of(self.name, found.envelope.id), found, draft)

    async def clear_away(self, id: str, written: Written) -> None:
        """Remove a tombstone, as `delete` does; what cannot be removed is left to `tenure gc`."""
        with contextlib.suppress(StoreError):
            await self._remove(id, written)

    async def amend(
        self, id: str, cover: Cover, change: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> Record[D]:
        """Write the record again, its data as `change` makes them, under the cover given."""

        def changed(envelope: Envelope) -> dict[str, Any]:
            return {} if change is None else {"data": self._storable_patch(change(dict(envelope.data)), id)}

        return self._record((await self._edit(check_id(id), None, changed, cover)).envelope)

    def check_field(self, setting: str, name: str, *examples: object) -> None:
        """Refuse a field that no record of this resource can have, or that cannot hold such values."""
        try:
            self._schema.check_fields({name: None})
            for example in examples:
                self._schema.check_value(name, example)
        except Misfit as misfit:
            raise ConfigError(f"{setting} is {name!r}, and resource {self.name!r} cannot have it: {misfit}") from None

    def fitting(self, data: dict[str, Any], id: str) -> dict[str, Any]:
        """The data, if the schema allows them in a record that exists; otherwise `InvalidRecord`."""
        return self._storable_patch(data, id)

    async def place(self, id: str, plain: dict[str, Any]) -> Record[D]:
        """Insert data that were stored before, under an id that is used once: `RecordExists` also if it was deleted."""
        return await self._insert(check_id(id), plain, cover=self._cover(id), revive=False)

    async def entries(self, after: str | None = None) -> AsyncGenerator[tuple[str, Entry], None]:
        """Id and listing of every record, without reading any."""
        async with contextlib.aclosing(self._listing(after)) as listing:
            async for entry, id in listing:
                if id is not None:
                    yield id, entry

    async def _remove(self, id: str, written: Written) -> None:
        if written.envelope.reserved:
            return
        if self._store.info.conditional_delete:
            if written.version is not None:
                await self._store.discard(key_of(self.name, id), written.version)
        elif not self._may_return(id) and not self._shapes:
            # Were something kept with the tombstone meanwhile, as amounts are, a plain delete would take it away.
            await self._store.delete(key_of(self.name, id))

    def _may_return(self, id: str) -> bool:
        """May this id be inserted again after its record was deleted?"""
        return self.reuse_ids and not is_drawn(id)

    def _is_removed(self, id: str) -> bool:
        """Is the tombstone of this id removed while others may be writing?"""
        return self._store.info.conditional_delete or not self._may_return(id)

    async def _read(self, id: str) -> Found | None:
        try:
            stored = await self._store.get(key_of(self.name, id))
        except NotFound:
            return None
        except BodyTooLarge as error:
            raise self._damaged(id, str(error)) from None
        assert isinstance(stored, Stored)
        envelope = decode(stored.body, id)
        if isinstance(envelope, str):
            raise self._damaged(id, envelope)
        return Found(envelope, stored.version)

    async def _found(self, id: str) -> Found:
        found = await self._read(id)
        if found is None or found.envelope.deleted:
            raise RecordNotFound(f"resource {self.name!r} has no record {id!r}", resource=self.name, id=id)
        return found

    async def _look(self, id: str) -> Record[D] | SetAside | None:
        """For a listing: the record, what is wrong with it, or `None` if it was deleted since."""
        try:
            found = await self._read(id)
            return None if found is None or found.envelope.deleted else self._record(found.envelope)
        except DamagedRecord as error:
            return SetAside(id, str(error))

    def _foreign(self, key: str) -> SetAside:
        return SetAside(key.removeprefix(self._folder), "its name is no record's")

    async def _listing(
        self, after: str | None, strangers: Strangers | None = None
    ) -> AsyncGenerator[tuple[Entry, str | None], None]:
        """Every object that is no tombstone, and its id, which is `None` where the key is none of ours."""
        start = None if after is None else key_of(self.name, check_id(after))
        names = Names(self._folder, f"{self._folder}id=", f"{self._folder}id>")
        async with contextlib.aclosing(ours(self._store, names, after=start, strangers=strangers)) as entries:
            async for entry in entries:
                parsed = parse_key(entry.key)
                if parsed is None or not is_tombstone_size(entry.size):
                    yield entry, None if parsed is None else parsed[1]

    def _record(self, envelope: Envelope) -> Record[D]:
        try:
            data = self._schema.load(envelope.data)
        except Misfit as misfit:
            raise self._damaged(envelope.id, f"it does not fit the schema: {misfit}") from None
        return Record(
            envelope.id,
            envelope.version,
            data,
            created_at=envelope.created_at,
            updated_at=envelope.updated_at,
            reserved=envelope.reserved,
        )

    def _storable(self, data: object, id: str) -> dict[str, Any]:
        try:
            return self._schema.store(data, max_bytes=self._max_bytes)
        except Misfit as misfit:
            raise self._invalid(id, str(misfit)) from None

    def _storable_patch(self, fields: dict[str, Any], id: str) -> dict[str, Any]:
        """Fields that a newer program stored and our schema does not have are carried along."""
        try:
            plain = Schema(None).store(fields, max_bytes=self._max_bytes)
            self._schema.load(plain)
        except Misfit as misfit:
            raise self._invalid(id, str(misfit)) from None
        return plain

    def _reservable(self, reserved: object, id: str) -> dict[str, Any]:
        try:
            return Schema(None).store(reserved, max_bytes=MAX_RESERVED_BYTES)
        except Misfit as misfit:
            raise self._invalid(id, f"reserved {misfit}") from None

    async def _pause(self, round_number: int) -> None:
        """Before another try: longer each time, and not in step with others."""
        if round_number:
            share = _random_version(self._draw_id()) / 256**_FIRST_VERSION_BYTES
            await self._clock.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**round_number) * share)

    def _now(self) -> str:
        return time_of_day(self._clock.read().wall_ns)

    def _invalid(self, id: str, why: str) -> InvalidRecord:
        return InvalidRecord(f"record {id!r} of {self.name!r} cannot be stored: {why}", resource=self.name, id=id)

    def _damaged(self, id: str, why: str) -> DamagedRecord:
        return DamagedRecord(f"record {id!r} of {self.name!r} is damaged: {why}", resource=self.name, id=id)

    def _exists(self, id: str, version: int, why: str = "exists already") -> RecordExists:
        return RecordExists(f"record {id!r} of {self.name!r} {why}", resource=self.name, id=id, found=version)

    def _conflict(self, id: str, expected: int, found: int) -> RecordConflict:
        return RecordConflict(
            f"record {id!r} of {self.name!r} is in version {found}, not {expected}: somebody else wrote first; read it "
            "again and decide anew",
            resource=self.name,
            id=id,
            expected=expected,
            found=found,
        )

    def _overtaken(self, id: str, expected: int | None) -> RecordConflict:
        return RecordConflict(
            f"record {id!r} of {self.name!r} was written by others {_TRIES} times while we tried: nothing was changed; "
            "spread the writes over more records",
            resource=self.name,
            id=id,
            expected=expected,
        )


async def _side_by_side(
    work: Callable[[A], Awaitable[R]], over: Sequence[A], *, at_once: int = _AT_ONCE
) -> Sequence[R]:
    """The results, in order; so many at a time. The first error ends it, and is raised as it is."""
    numbered = enumerate(over)
    results: dict[int, R] = {}

    async def take() -> None:
        for index, piece in numbered:
            results[index] = await work(piece)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(over))):
                group.create_task(take())
    except ExceptionGroup as failed:  # callers wait for a `StoreError`, not for a group that holds one
        raise failed.exceptions[0] from None
    return [results[index] for index in sorted(results)]


def _random_version(write_id: str) -> int:
    """A number of 40 bits, at least 1, that is as random as the id is."""
    return int.from_bytes(blake2b(write_id.encode(), digest_size=_FIRST_VERSION_BYTES).digest()) + 1
