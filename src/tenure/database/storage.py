"""A plugin's own keys and values: small JSON, changed by compare-and-swap, with an optional time to live.

    storage = PluginStorage(store, "s3-queue", "orders")
    await storage.set("cursor", {"page": 7})
    if await storage.set_if_not_exists("jobs/42", {"by": "ada"}, ttl=60):
        ...                                            # exactly one of all who tried is here

Guarantee: a write that returned happened once, and nothing sent earlier can undo it: a copy that is under way in the
network for a minute finds a version that has moved on. Of many `set_if_not_exists` one wins; `set_if_version` loses no
update; what was deleted or has expired is not seen again until it is written again.

Assumption: the store honours compare-and-swap, and these keys are written through this class alone.

Not guaranteed: that a write which raised `WriteUnknown` did not happen. And times to live are judged by the store's
clock as each process estimates it (`tenure.database.time`): within about two seconds of the end, one process may still
see what another does not. Never by a wall clock of any host.

A key that was deleted keeps a small object, its tombstone: removing it outright would let a late copy of a former write
create the key again.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, TypeVar, overload

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.given import check_count, check_instance, shown
from tenure.coordinator.layout import check_name
from tenure.database.roundtrip import objection
from tenure.database.time import StoreTime
from tenure.election.records import Damage, Id, Record, TooNew, decode, encode
from tenure.entropy import NewId, new_id
from tenure.errors import BodyTooLarge, ConfigError, Conflict, Damaged, InvalidKey, NotFound, SchemaTooNew, WriteUnknown
from tenure.store import Applied, Attempt, Entry, Settled, Store, Stored, Unknown, Version, commit, encode_name
from tenure.store.keys import MAX_KEY_BYTES, MAX_SEGMENT_BYTES, decode_name
from tenure.store.outcome import NeverABool

MAX_DEPTH = 100
MAX_VALUE_BYTES = 1024 * 1024
"""The default limit of one value, as JSON."""
LARGEST_VALUE_BYTES = 8 * 1024 * 1024
"""What that limit may be raised to; nothing larger is ever read."""
MAX_TTL = 10 * 365.25 * 24 * 3600.0
MAX_KEYS_PER_BATCH = 10_000
MAX_KEYS_PER_PAGE = 1000
HISTORY = 16
"""How many writes a record remembers besides its own: so many may come between sending a write and settling it."""

SWEEP_AFTER = 24 * 3600.0
LEAST_SWEEP_AFTER = 3600.0
"""Seconds after which no copy of a write is under way any more, in any network, and none is being settled."""

PLUGINS = "plugin="
"""Keys that begin so belong to plugins."""

MAX_RECORD_BYTES = LARGEST_VALUE_BYTES + 64 * 1024
_MAX_NAME_CHARACTERS = 64
_NAME, _STORAGE = "name=", "storage"
_MAX_ENCODED_NAME_BYTES = MAX_SEGMENT_BYTES - len(_NAME)
_MAX_UNREADABLE = 100
_MOST_SWEPT = 10**9
_LOOKS_PER_PAGE = 10_000  # records that one page may read: a folder of tombstones is gone through in several calls
_AT_ONCE = 16
_TRIES = 24
_MAX_VERSION = 2**62
_SETTLE_WITHIN = 60.0
_ROUNDED = 1.0  # listings may show whole seconds
_PAUSE = 0.005
_LONGEST_PAUSE = 0.5
_ORIGIN = "-"  # stands in a history for "before this, there was no object"

T = TypeVar("T")


class StorageRecord(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="storage"):
    """What lies under a key. A tombstone is one without a value."""

    version: Annotated[int, msgspec.Meta(ge=1, le=_MAX_VERSION)]
    history: Annotated[tuple[Id, ...], msgspec.Meta(max_length=HISTORY * 4)] = ()
    """The ids of the writes before this one, oldest first: whose write was overwritten can still tell that it was."""
    deleted: bool = False
    expires_at_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    """On the store's clock."""
    value: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def writes(self) -> tuple[str, ...]:
        """The ids of all writes that this record proves to have happened."""
        return (*self.history, self.write_id)


class StorageEntry(msgspec.Struct, frozen=True):
    """A value and what is known about it."""

    key: str
    value: Any
    version: int
    """For `set_if_version`. It rises with each write; a key that was removed altogether begins anew, elsewhere."""
    expires_at: float | None = None
    """In seconds since 1970 on the store's clock; `None`: it stays."""


class Page(msgspec.Struct, NeverABool, frozen=True):
    """A part of a listing, in the order of the encoded keys."""

    instead: ClassVar[str] = "not true or false: ask for its `entries`, and go on while `after` is not None"

    entries: tuple[StorageEntry, ...]
    after: str | None
    """Give this to `list` for the next page; `None`: there is no more. A page before the last may be short."""
    unreadable: tuple[str, ...] = ()
    """Objects below this storage that it did not write, or cannot read; at most a hundred are named."""


class Swept(msgspec.Struct, frozen=True):
    """What `sweep` did."""

    removed: int
    after: str | None
    """Where to go on; `None`: it went through everything."""


class Batch(msgspec.Struct, NeverABool, Generic[T], frozen=True):
    """What became of each key of a batch: it is in `done` or in `failed`, and one failure stops no other key."""

    instead: ClassVar[str] = "not true or false: call `check()`, or look at `done` and `failed`"

    done: Mapping[str, T]
    failed: Mapping[str, Exception]

    def check(self) -> Mapping[str, T]:
        """`done`, if nothing failed; otherwise raises an `ExceptionGroup` of what did."""
        if self.failed:
            total = len(self.done) + len(self.failed)
            names = ", ".join(map(repr, tuple(self.failed)[:5])) + (", …" if len(self.failed) > 5 else "")
            raise ExceptionGroup(f"{len(self.failed)} of {total} keys failed: {names}", tuple(self.failed.values()))
        return self.done


class _Seen(msgspec.Struct, frozen=True):
    """What lay under a key when it was read."""

    record: StorageRecord | None = None
    at: Version | None = None
    live: bool = False
    """There is a value, and it has not expired."""

    @property
    def version(self) -> int | None:
        return self.record.version if self.record is not None and self.live else None


class PluginStorage:
    """The keys of one plugin instance: those of another slug or name are out of its reach.

    A key is text in segments joined by `/`; values are what comes back equal from JSON: text, numbers, booleans,
    None, lists, dicts with text keys, and msgspec Structs or dataclasses, which are read with `kind`. Others (bytes,
    sets, tuples, times) are refused. `max_value_bytes` limits each value. Every method raises `ConfigError` for input
    that cannot work, before anything is sent, and `StoreError` if the store did not say.
    """

    def __init__(
        self,
        store: Store,
        slug: str,
        name: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        draw_id: NewId = new_id,
        time: StoreTime | None = None,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        check_name("slug", slug, _MAX_NAME_CHARACTERS)
        check_name("name", name, _MAX_NAME_CHARACTERS)
        if encode_name(slug) != slug:
            raise ConfigError(f"slug is {slug!r}: use letters, digits, -, _ and . (not first)")
        if len(encoded := encode_name(name)) > _MAX_ENCODED_NAME_BYTES:
            raise ConfigError(
                f"name {name!r} takes {len(encoded)} bytes when encoded, and the limit is {_MAX_ENCODED_NAME_BYTES}: "
                "shorten it (a character outside A-Z a-z 0-9 - _ . takes 3 bytes or more)"
            )
        check_count("max_value_bytes", max_value_bytes, least=1, most=LARGEST_VALUE_BYTES)
        self._store = store
        self._folder = f"{PLUGINS}{slug}/{_NAME}{encoded}/{_STORAGE}/"
        self._clock = clock
        self._draw_id = draw_id
        self._time = time if time is not None else StoreTime(store, clock=clock, draw_id=draw_id)
        self._max_value_bytes = max_value_bytes

    def __repr__(self) -> str:
        return f"<PluginStorage {self._folder}>"

    @property
    def time(self) -> StoreTime:
        """The clock by which times to live are judged."""
        return self._time

    # Reading

    @overload
    async def get(self, key: str) -> Any: ...
    @overload
    async def get(self, key: str, kind: type[T]) -> T | None: ...
    async def get(self, key: str, kind: Any = Any) -> Any:
        """The value under `key`, as a `kind` if one is given; `None` if there is none (or if it is JSON's `null`)."""
        entry = await self.get_entry(key, kind)
        return None if entry is None else entry.value

    async def get_entry(self, key: str, kind: Any = Any) -> StorageEntry | None:
        """The value with its version and its end; `None` if it was never written, was deleted, or has expired.

        Raises `Damaged` if what lies there was not written by this class, or the value is no `kind`.
        """
        _check_kind(kind)
        seen = await self._look(key, self._object_key(key))
        return _entry(key, seen.record, kind) if seen.record is not None and seen.live else None

    async def get_many(self, keys: Iterable[str], kind: Any = Any) -> Batch[StorageEntry | None]:
        """`get_entry` of each key."""
        _check_kind(kind)
        return await _each(self._checked(keys), lambda key: self.get_entry(key, kind))

    async def list(self, prefix: str = "", *, limit: int = 100, after: str | None = None, kind: Any = Any) -> Page:
        """The entries whose keys begin with `prefix`, a page at a time; one request for each, besides the listing.

            page = await storage.list("jobs/")
            while page.after is not None:
                page = await storage.list("jobs/", after=page.after)

        It is no snapshot: an entry that is written meanwhile may or may not be in it. What was there all the time is.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_KEYS_PER_PAGE:
            raise ConfigError(f"limit is {limit!r}: give 1 to {MAX_KEYS_PER_PAGE}")
        _check_kind(kind)
        entries: dict[str, StorageEntry] = {}
        unreadable: dict[str, None] = {}
        looks = 0
        last: str | None = None
        room = lambda: min(_AT_ONCE, limit - len(entries))  # noqa: E731
        async with aclosing(self._chunks(prefix, after, room, unreadable)) as chunks:
            async for rows in chunks:
                found = await _each([key for key, _ in rows], lambda key: self.get_entry(key, kind))
                for key, row in rows:
                    if key in found.failed:
                        if not isinstance(found.failed[key], (Damaged, SchemaTooNew)):
                            raise found.failed[key]
                        unreadable[row.key] = None
                    elif (entry := found.done[key]) is not None:
                        entries[key] = entry
                looks += len(rows)
                if len(entries) == limit or looks >= _LOOKS_PER_PAGE:
                    last = rows[-1][0]
                    break
        return Page(tuple(entries.values()), last, tuple(unreadable)[:_MAX_UNREADABLE])

    # Writing

    async def set(self, key: str, value: Any, *, ttl: float | None = None) -> int:
        """Write it, whatever is there; gives the new version. `ttl`: seconds after which it reads as absent.

        Raises `WriteUnknown` if the store did not say whether it happened, and `Conflict` if others write this key so
        often that it certainly did not.
        """
        changed = await self._change(key, self._encoded(key, value), _checked_ttl(ttl), lambda _: True)
        assert changed is not None
        return changed

    async def set_if_not_exists(self, key: str, value: Any, *, ttl: float | None = None) -> int | None:
        """Write it only if there is nothing, or what there was has expired; `None`: there is something.

        Of all who try at once, one is given a version. Raises as `set` does.
        """
        return await self._change(key, self._encoded(key, value), _checked_ttl(ttl), lambda seen: not seen.live)

    async def set_if_version(self, key: str, value: Any, version: int, *, ttl: float | None = None) -> int:
        """Write it only if the entry still has `version`; gives the new one.

        Raises `Conflict` if it has another or is gone: then nothing was written. Otherwise raises as `set` does.
        """
        expected = _checked_version(version)
        changed = await self._change(
            key, self._encoded(key, value), _checked_ttl(ttl), lambda seen: _must_have(key, seen, expected)
        )
        assert changed is not None
        return changed

    async def delete(self, key: str, *, version: int | None = None) -> bool:
        """Make it absent; `False`: it already was. With `version`, only if it still has that, or `Conflict` is raised.

        Raises as `set` does.
        """
        expected = None if version is None else _checked_version(version)

        def may_go(seen: _Seen) -> bool:
            return seen.live if expected is None else _must_have(key, seen, expected)

        return await self._change(key, None, None, may_go) is not None

    async def set_many(self, values: Mapping[str, Any], *, ttl: float | None = None) -> Batch[int]:
        """`set` of each: the versions of those that were written, and the errors of the others."""
        check_instance("values", values, Mapping)
        names, seconds = self._checked(values), _checked_ttl(ttl)
        for key in names:
            self._encoded(key, values[key])  # all or none are refused; encoded again one by one, to hold one at a time
        return await _each(names, lambda key: self.set(key, values[key], ttl=seconds))

    async def delete_many(self, keys: Iterable[str]) -> Batch[bool]:
        """`delete` of each."""
        return await _each(self._checked(keys), self.delete)

    # Clearing up

    async def sweep(self, *, older_than: float = SWEEP_AFTER, limit: int = 10_000, after: str | None = None) -> Swept:
        """Remove tombstones, and entries that expired, which have been so for `older_than` seconds.

        Only where the store can remove an object on condition of its version; elsewhere nothing is removed. `limit`
        objects are looked at; `after` goes on where a sweep ended.

        Not at once: a copy of an earlier write may still be under way, and would create the key again.
        """
        is_number = isinstance(older_than, int | float) and not isinstance(older_than, bool)
        if not is_number or not LEAST_SWEEP_AFTER <= older_than <= MAX_TTL:
            raise ConfigError(
                f"older_than is {shown(older_than)}: give at least {LEAST_SWEEP_AFTER:g} seconds, in which "
                "every write that was sent before has arrived"
            )
        check_count("limit", limit, least=1, most=_MOST_SWEPT)
        if not self._store.info.conditional_delete:
            return Swept(0, None)
        before = await self._time.now() - older_than
        removed = looks = 0
        async with aclosing(self._chunks("", after, lambda: _AT_ONCE, {})) as chunks:
            async for rows in chunks:
                old = {key: row for key, row in rows if row.modified.timestamp() + _ROUNDED < before}
                swept = await _each(tuple(old), partial(self._discard, old, before))
                for error in swept.failed.values():
                    raise error
                removed += sum(swept.done.values())
                looks += len(rows)
                if looks >= limit:
                    return Swept(removed, rows[-1][0])
        return Swept(removed, None)

    async def _discard(self, old: Mapping[str, Entry], before: float, key: str) -> bool:
        row = old[key]
        try:
            seen = await self._look(key, row.key)
        except (Damaged, SchemaTooNew):
            return False
        if seen.record is None or seen.at is None or not row.version.matches(seen.at):
            return False  # written since it was listed, so it is not old
        if not is_leftover(seen.record, before):
            return False
        return isinstance(await self._store.discard(row.key, seen.at), Applied)

    # How it is done

    async def _change(
        self, key: str, value: bytes | None, ttl: float | None, may_change: Callable[[_Seen], bool]
    ) -> int | None:
        """Replace what is there, if `may_change`, by compare-and-swap; `None`: it may not. No value is a tombstone."""
        name = self._object_key(key)
        for number in range(_TRIES):
            if number:
                await self._clock.sleep(self._hesitation(number))
            seen = await self._look(key, name)
            if not may_change(seen):
                return None
            # Relative to this try, not to the call: what is written last begins to age then.
            ends = None if ttl is None else math.ceil((await self._time.now() + ttl) * 1000)
            draft = self._draft(seen, value, ends)
            settled = await commit(
                self._store,
                Attempt(name, seen.at),
                partial(_body_of, draft),
                write_ids=_writes_in,
                draw_id=self._draw_id,
                clock=self._clock,
                within=_SETTLE_WITHIN,
            )
            if isinstance(settled.outcome, Applied):
                return draft.version
            if not _certainly_not(seen, settled):
                error = settled.outcome.error if isinstance(settled.outcome, Unknown) else None
                raise WriteUnknown(
                    f"the write to {key!r} in {self._folder} got no decisive answer ({error or 'rejected'}): it may "
                    "have happened, or may still; read the key, or write again"
                ) from error
        raise Conflict(
            f"{key!r} in {self._folder} is written so often by others that no write got through in {_TRIES} tries: "
            "nothing was written"
        )

    def _draft(self, seen: _Seen, value: bytes | None, ends: int | None) -> StorageRecord:
        """The next record of a key. Its version is higher than that of the last, also if that was a tombstone."""
        last = seen.record
        return StorageRecord(
            write_id="?",
            version=last.version + 1 if last is not None else self._first_version(),
            history=last.writes[-HISTORY:] if last is not None else (_ORIGIN,),
            deleted=value is None,
            expires_at_ms=ends,
            value=msgspec.Raw(b"null" if value is None else value),
        )

    def _first_version(self) -> int:
        """A key that was swept away may have had any number of versions: the next ones must be none of those."""
        return 1 + (self._number() >> 24)

    def _hesitation(self, number: int) -> float:
        """Those who were in each other's way try again at different times."""
        longest = min(_LONGEST_PAUSE, _PAUSE * 2.0**number)
        return longest * (self._number() / 2**64)

    def _number(self) -> int:
        """64 bits as random as the ids are."""
        return int.from_bytes(hashlib.blake2b(self._draw_id().encode(), digest_size=8).digest())

    async def _look(self, key: str, name: str) -> _Seen:
        try:
            stored = await self._store.get(name)
        except NotFound:
            return _Seen()
        except BodyTooLarge as error:
            raise Damaged(f"{error}: nothing was changed") from None
        assert isinstance(stored, Stored)
        record = decode(stored.body, StorageRecord, MAX_RECORD_BYTES)
        if isinstance(record, TooNew):
            raise SchemaTooNew(
                f"{key!r} in {self._folder} was written by a newer tenure (schemaVersion {record.schema_version}): "
                "update this process"
            )
        if isinstance(record, Damage):
            raise Damaged(
                f"the object {name!r} is no record of this storage ({record.reason}): nothing was changed; move it away"
            )
        if record.version == _MAX_VERSION:
            raise Damaged(
                f"the object {name!r} has the highest version there can be: nothing was changed; move it away"
            )
        return _Seen(record, stored.version, await self._is_live(record))

    async def _is_live(self, record: StorageRecord) -> bool:
        if record.deleted:
            return False
        return record.expires_at_ms is None or await self._time.now() < record.expires_at_ms / 1000

    async def _chunks(
        self, prefix: str, after: str | None, size: Callable[[], int], foreign: dict[str, None]
    ) -> AsyncGenerator[Sequence[tuple[str, Entry]], None]:
        """Rows of the listing with their keys, `size()` at a time; names that are not ours go to `foreign`."""
        wanted = self._object_prefix(prefix)
        start = None if after is None else self._object_key(after, "after")
        if not wanted.endswith("/") and not wanted[:-1].endswith("/"):
            # One character short comes before all that begins with `wanted`, and after most of what does not.
            start = max(start or "", wanted[:-1])
        chunk: dict[str, Entry] = {}
        async with aclosing(_listing(self._store, wanted[: wanted.rindex("/") + 1], start)) as rows:
            async for row in rows:
                if not row.key.startswith(wanted):
                    if row.key > wanted:
                        break
                    continue
                key = _key_of(row.key.removeprefix(self._folder))
                if key is None or row.size > MAX_RECORD_BYTES:
                    if len(foreign) < _MAX_UNREADABLE:
                        foreign[row.key] = None
                    continue
                chunk[key] = row
                if len(chunk) >= size():
                    yield tuple(chunk.items())
                    chunk = {}
        if chunk:
            yield tuple(chunk.items())

    def _object_key(self, key: str, field: str = "key") -> str:
        name = self._folder + "/".join(map(encode_name, _segments(field, key)))
        if len(name) > MAX_KEY_BYTES:
            raise InvalidKey(
                f"{field} {key[:40] + '…'!r} takes {len(name)} bytes in all, and the limit is {MAX_KEY_BYTES}: "
                "shorten it (a character outside A-Z a-z 0-9 - _ . takes 3 bytes or more)"
            )
        return name

    def _object_prefix(self, prefix: str) -> str:
        """What the names of all keys that begin with `prefix` begin with: names are encoded character by character."""
        if not isinstance(prefix, str):
            raise InvalidKey(f"prefix is {prefix!r}: give text")
        folder, slash, rest = prefix.rpartition("/")
        encoded = "/".join(map(encode_name, _segments("prefix", folder))) + slash if slash else ""
        name = self._folder + encoded + (encode_name(rest) if rest else "")
        if len(name) > MAX_KEY_BYTES:
            raise InvalidKey(f"prefix {prefix[:40] + '…'!r} is longer than any key can be")
        return name

    def _checked(self, keys: Iterable[str]) -> Sequence[str]:
        if isinstance(keys, str):
            raise ConfigError(f"keys is the text {keys[:40]!r}: give a list of keys")
        check_instance("keys", keys, Iterable)
        names = tuple(dict.fromkeys(keys))
        if len(names) > MAX_KEYS_PER_BATCH:
            raise ConfigError(f"keys holds {len(names)} keys: give at most {MAX_KEYS_PER_BATCH} at once")
        for key in names:
            self._object_key(key)
        return names

    def _encoded(self, key: str, value: Any) -> bytes:
        try:
            body = msgspec.json.encode(value)
            if b"null" in body:
                _check_finite(msgspec.to_builtins(value))
            # What is nested too deeply to be read must not be written; how deep that is differs between Pythons.
            if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth(msgspec.json.decode(body)) > MAX_DEPTH:
                raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
            too_long = len(body) > self._max_value_bytes
            why = None if too_long else objection(value, body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(f"value for {key!r} cannot be written as JSON: {error}") from None
        if too_long:
            raise ConfigError(
                f"value for {key!r} takes {len(body):,} bytes as JSON, and max_value_bytes is "
                f"{self._max_value_bytes:,}: keep large data in objects of your own, and their names here"
            )
        if why is not None:
            raise ConfigError(f"value for {key!r} would not come back as it is: {why}")
        return body


def _depth(value: Any) -> int:
    """How deep lists and objects lie in each other, without recursion."""
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, list | dict)]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def _listing(store: Store, folder: str, after: str | None) -> AsyncGenerator[Entry, None]:
    rows = store.list(folder, after=after)
    assert isinstance(rows, AsyncGenerator)  # every store's is; one that is left early must be closed
    return rows


def _check_kind(kind: Any) -> None:
    if kind is Any:
        return
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        raise ConfigError(
            f"kind is {shown(kind)}: give a type that JSON can be read as, such as a msgspec Struct"
        ) from None


def _entry(key: str, record: StorageRecord, kind: Any) -> StorageEntry:
    try:
        value = msgspec.json.decode(record.value, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise Damaged(f"the value of {key!r} cannot be read as {name}: {error}") from None
    ends = None if record.expires_at_ms is None else record.expires_at_ms / 1000
    return StorageEntry(key, value, record.version, ends)


def _body_of(draft: StorageRecord, write_id: str) -> bytes:
    return encode(msgspec.structs.replace(draft, write_id=write_id))


def _writes_in(body: bytes) -> Sequence[str]:
    record = decode(body, StorageRecord, MAX_RECORD_BYTES)
    return record.writes if isinstance(record, StorageRecord) else ()


def _certainly_not(seen: _Seen, settled: Settled) -> bool:
    """Did a write that was not found in the record, after it had `seen`, certainly not happen, and cannot any more?

    The version that it expected must be gone, and the record must tell of every write since.
    """
    expected = settled.attempt.expected
    if settled.stored is None:
        # Removed altogether: by a sweep, which takes what has not been written for long, so not what we wrote just now.
        error = settled.outcome.error if isinstance(settled.outcome, Unknown) else None
        return expected is not None and isinstance(error, NotFound)
    if expected is not None and expected.matches(settled.stored.version):
        return False
    known = _writes_in(settled.stored.body)
    return _ORIGIN in known or (seen.record is not None and seen.record.write_id in known)


def _must_have(key: str, seen: _Seen, version: int) -> bool:
    if seen.version == version:
        return True
    now = "is gone" if seen.version is None else f"has version {seen.version}"
    raise Conflict(f"{key!r} {now}, and version {version} was expected: nothing was written; read it again")


def is_leftover(record: StorageRecord, before: float) -> bool:
    """Has it been of no use since `before`, on the store's clock? Of a tombstone that is to be asked of its object."""
    return record.deleted or (record.expires_at_ms is not None and record.expires_at_ms / 1000 < before)


def is_storage_key(key: str) -> bool:
    """Is this the name of an object that some `PluginStorage` writes?"""
    parts = key.split("/", 3)
    if len(parts) < 4 or not parts[0].startswith(PLUGINS) or not parts[1].startswith(_NAME) or parts[2] != _STORAGE:
        return False
    return _key_of(parts[3]) is not None


def _segments(field: str, key: str) -> Sequence[str]:
    if not isinstance(key, str) or not key or not key.isprintable():
        raise InvalidKey(f"{field} is {key!r}: give printable text, in segments joined by /")
    segments = key.split("/")
    if not all(segments):
        raise InvalidKey(f"{field} {key!r} has an empty segment: write each / between two segments, once")
    return segments


def _key_of(encoded: str) -> str | None:
    """The key whose name this is; `None`: no key's. A `/` may be encoded as well, by others: that names another key."""
    try:
        key = "/".join(map(decode_name, encoded.split("/")))
        return key if "/".join(map(encode_name, _segments("key", key))) == encoded else None
    except InvalidKey:
        return None


def _checked_ttl(ttl: float | None) -> float | None:
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 < ttl <= MAX_TTL:
        raise ConfigError(f"ttl is {ttl!r}: give seconds above zero, up to ten years, or None for a value that stays")
    return float(ttl)


def _checked_version(version: int) -> int:
    if isinstance(version, bool) or not isinstance(version, int):
        raise ConfigError(
            f"version is {version!r}: give the number that get_entry or an earlier write gave; to write only if there "
            "is nothing, use set_if_not_exists"
        )
    return version


def _check_finite(value: Any) -> None:
    """JSON has no NaN and no infinity; they would be written as null."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"it holds {found}")
        if isinstance(found, dict):
            waiting.extend(found.values())
        elif isinstance(found, (list, tuple)):
            waiting.extend(found)


async def _each(names: Sequence[str], act: Callable[[str], Awaitable[T]]) -> Batch[T]:
    """Do it for all names, some at a time, and note for each what became of it."""
    done: dict[str, T] = {}
    failed: dict[str, Exception] = {}
    waiting = iter(names)

    async def work() -> None:
        for name in waiting:
            try:
                done[name] = await act(name)
            except Exception as error:
                failed[name] = error

    async with asyncio.TaskGroup() as group:
        for _ in range(min(_AT_ONCE, len(names))):
            group.create_task(work())
    return Batch(
        {name: done[name] for name in names if name in done}, {name: failed[name] for name in names if name in failed}
    )
