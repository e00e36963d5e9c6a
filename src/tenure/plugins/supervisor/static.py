"""Static assignment: no election, one node is told to run the children. Two that were told so find each other.

Each such node keeps a record of its own, rewritten at every interval. One that sees another's record *change* knows
that a second one lives; no clocks are compared.

Tokens must rise also where elections are turned off and on again. So an assignment's number is its epoch (the last one
granted, for a static one) plus a base, which each static start raises by one.
"""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Annotated

import msgspec

from tenure.clock import Clock
from tenure.election.records import MAX_EPOCH, SCHEMA_VERSION, time_of_day
from tenure.entropy import NewId
from tenure.errors import NotFound, StoreError, WriteUnknown
from tenure.plugins.supervisor.status import folder_of
from tenure.store import Applied, Attempt, Entry, Prefixed, Remembers, Store, Stored, Version, commit, encode_name

_log = logging.getLogger("tenure.supervisor")

_COUNTER = "static/starts.json"
_NODES = "static/nodes/"
_TRIES = 20
_MAX_NODES = 100
_MAX_LISTED = 10_000
_ID_CHARACTERS = 12
_RECORD = re.compile(rf"{_NODES}[A-Za-z0-9\-_.~]+\.[A-Za-z0-9\-]{{{_ID_CHARACTERS}}}\.json")
_MAX_BYTES = 4096
_FORGOTTEN_AFTER = timedelta(hours=1)


class Starts(msgspec.Struct, frozen=True, rename="camel"):
    """How often a static coordinator was started."""

    base: Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)]
    write_ids: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION


class StaticNode(msgspec.Struct, frozen=True, rename="camel"):
    node: str
    write_id: str
    last_seen: str = ""
    schema_version: int = SCHEMA_VERSION


class StaticPost:
    """One node's part in it."""

    def __init__(self, store: Store, name: str, node: str, *, clock: Clock, draw_id: NewId) -> None:
        self._store = Prefixed(store, folder_of(name))
        self._node = node
        self._key = f"{_NODES}{encode_name(node)}.{draw_id()[:_ID_CHARACTERS]}.json"
        self._clock = clock
        self._draw_id = draw_id
        self._seen: dict[str, Version] = {}

    async def base(self) -> int:
        """What is added to an epoch: how many static starts there were."""
        return (await self._starts())[0].base

    async def raised_base(self) -> int:
        """The same, for a static start: one more than before."""
        for _ in range(_TRIES):
            found, version = await self._starts()
            attempt = Attempt(_COUNTER, version)

            def compose(write_id: str, found: Starts = found) -> bytes:
                return msgspec.json.encode(Starts(found.base + 1, (*found.write_ids, write_id)[-8:]))

            settled = await commit(
                self._store,
                attempt,
                compose,
                write_ids=_write_ids,
                remembers=Remembers.EVERY_WRITE,
                draw_id=self._draw_id,
                clock=self._clock,
            )
            if isinstance(settled.outcome, Applied):
                return found.base + 1
        raise WriteUnknown(f"{_COUNTER} could not be written in {_TRIES} tries")

    async def look_around(self) -> tuple[str, ...]:
        """Write this node's record, and give the names of others whose record changed since the last look."""
        record = StaticNode(self._node, self._draw_id(), time_of_day(self._clock.read().wall_ns))
        await self._store.put(self._key, msgspec.json.encode(record))
        others: list[str] = []
        seen: dict[str, Version] = {}
        entries = await self._listed()
        ours = next((entry.modified for entry in entries if entry.key == self._key), None)
        old = [entry.key for entry in entries if ours is not None and ours - entry.modified > _FORGOTTEN_AFTER]
        if old:
            await self._store.delete(*old[:_MAX_NODES])  # their names hold an id of that start, and never come again
        for entry in entries:
            if entry.key == self._key or entry.key in old or len(seen) >= _MAX_NODES:
                continue
            seen[entry.key] = entry.version
            before = self._seen.get(entry.key)
            if before is not None and not before.matches(entry.version):
                others.append(await self._name_of(entry.key))
        self._seen = seen
        return tuple(sorted(others))

    async def _listed(self) -> list[Entry]:
        """Records of nodes, our own among them, the newest first; of very many only those."""
        kept: list[Entry] = []
        async for entry in self._store.list(_NODES):
            if _RECORD.fullmatch(entry.key):  # what others have put there is not ours to remove
                kept.append(entry)
            if len(kept) > _MAX_LISTED:
                kept = self._newest(kept)[: _MAX_LISTED // 2]
        return self._newest(kept)

    def _newest(self, entries: list[Entry]) -> list[Entry]:
        return sorted(entries, key=lambda entry: (entry.key == self._key, entry.modified), reverse=True)

    async def leave(self) -> None:
        try:
            await self._store.delete(self._key)  # its name holds an id of this start, and is never used again
        except StoreError as error:
            _log.debug("the record of static coordinator %r was not removed: %s", self._node, error)

    async def _name_of(self, key: str) -> str:
        try:
            stored = await self._store.get(key)
        except StoreError:
            return key.removeprefix(_NODES)  # that it lives is known; what it is called need not be
        assert isinstance(stored, Stored)
        found = decode_node(stored.body)
        return found.node if found is not None else key.removeprefix(_NODES)

    async def _starts(self) -> tuple[Starts, Version | None]:
        try:
            stored = await self._store.get(_COUNTER)
        except NotFound:
            return Starts(0), None
        assert isinstance(stored, Stored)
        return decode_starts(stored.body), stored.version


def decode_node(body: bytes) -> StaticNode | None:
    """`None`: it is no record of a node, or a newer tenure's."""
    try:
        found = msgspec.json.decode(body[:_MAX_BYTES], type=StaticNode)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.schema_version <= SCHEMA_VERSION else None


def decode_starts(body: bytes) -> Starts:
    """Raises `StoreError`."""
    _refuse_a_newer_one(body)
    try:
        return msgspec.json.decode(body[:_MAX_BYTES], type=Starts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise StoreError(
            f"{_COUNTER} cannot be read: tokens would not be sure to rise; look at it, or remove it"
        ) from None


class _Version(msgspec.Struct, rename="camel"):
    """A newer form may differ in all else."""

    schema_version: int = 0


def _refuse_a_newer_one(body: bytes) -> None:
    try:
        version = msgspec.json.decode(body[:_MAX_BYTES], type=_Version).schema_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if version > SCHEMA_VERSION:
        raise StoreError(f"{_COUNTER} was written by a newer tenure (schemaVersion {version}): update this process")


def _write_ids(body: bytes) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(body[:_MAX_BYTES], type=Starts).write_ids
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
