"""The index of what expires when: `due/{slot}/{nonce}.{id}`, or `due/{slot}/{nonce}` for many ids.

An entry is written before the record that names it, under a name that is never used again, and serves that one write
of each of its ids. `slot` is the time at which all of it has expired: a second, in milliseconds. Whoever looks for what
is due reads the names in order, and stops at the first slot that lies ahead: nothing that is not due is looked at.

Guarantee: when `write` returned, the entry is there. Calls that come together share an object where four or more of
them have the same slot.

Not guaranteed: that there is a record for each entry. Its writer may have been cut short; the leader clears such away.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

import msgspec

from tenure.clock import Clock, Reading
from tenure.database.ids import check_id
from tenure.entropy import NewId
from tenure.errors import ConfigError, StoreError, TenureError
from tenure.store import Entry, Store, decode_name, encode_name
from tenure.store.keys import MAX_SEGMENT_BYTES

_log = logging.getLogger("tenure.ttl")

DUE = "due/"
SLOT_MS = 1000
LAST_SLOT = 9_999_999_999_000
"""In the year 2286; what expires later has its entry there."""
MAX_GROUP = 500
"""Ids in one entry."""
MAX_GROUP_BYTES = 1024 * 1024
GROUP_FROM = 4
SCHEMA = 1
_NONCE = 16
_TRIES = 4
_PAUSE = 0.1
_LINGER = 0.003
_IN_FLIGHT = 16
_MAX_WAITING = 20_000
_MAX_SPENT = 10_000
_DELETES = 500
_SPENT_AFTER = 1.0
_NAME = re.compile(r"due/(\d{13})/([0-9a-f]{16})(?:\.(.+))?")
_STEM = re.compile(r"(\d{13})/[0-9a-f]{16}\.?")


class Group(msgspec.Struct, frozen=True):
    """The body of an entry for many ids."""

    schema: int
    ids: Annotated[list[str], msgspec.Meta(max_length=2 * MAX_GROUP)]


class Listed(msgspec.Struct, frozen=True):
    """An entry, as a listing shows it."""

    key: str
    stem: str
    """As records name it."""
    slot_ms: int
    id: str | None
    """`None`: it is a group."""
    modified_ms: int
    size: int


def slot_of(at_ms: int) -> int:
    """The end of the second in which it expires."""
    return min(LAST_SLOT, max(0, -(-at_ms // SLOT_MS) * SLOT_MS))


def slot_in(stem: str) -> int | None:
    """The slot of an entry that a record names; `None` if that is no name of an entry."""
    match = _STEM.fullmatch(stem)
    return int(match[1]) if match is not None else None


def key_for(stem: str, id: str) -> str:
    return DUE + stem + (encode_name(id) if stem.endswith(".") else "")


def parse(entry: Entry) -> Listed | None:
    """`None`: no writer of ours gives such a name."""
    match = _NAME.fullmatch(entry.key)
    if match is None:
        return None
    id = None
    if match[3] is not None:
        try:
            id = check_id(decode_name(match[3]))
        except ConfigError:
            return None
    stem = f"{match[1]}/{match[2]}" + ("." if id is not None else "")
    return Listed(entry.key, stem, int(match[1]), id, round(entry.modified.timestamp() * 1000), entry.size)


def ids_in(body: bytes) -> Sequence[str] | str:
    """The ids in the body of a group, or what is wrong with it."""
    try:
        group = msgspec.json.decode(body, type=Group)
        if group.schema != SCHEMA:
            return f"it is of schema {group.schema}, and this process knows {SCHEMA}: update it"
        return [check_id(id) for id in group.ids]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigError) as error:
        return f"unreadable: {str(error)[:200]}"


class Indexed(msgspec.Struct, frozen=True):
    """An entry that is there."""

    stem: str
    since: Reading
    """Read before it was sent: it is no older than this."""


class _Waiting(msgspec.Struct):
    id: str
    slot_ms: int
    future: asyncio.Future[Indexed]


class IndexWriter:
    """Writes entries for one process, and clears away those that it knows to lead nowhere."""

    def __init__(self, store: Store, *, clock: Clock, draw_id: NewId) -> None:
        """`store`: the plugin's own."""
        self._store = store
        self._clock = clock
        self._draw_id = draw_id
        self._waiting: list[_Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._puts: dict[asyncio.Task[None], None] = {}  # in the order in which they were begun
        self._spent: list[str] = []
        self._sweeping: asyncio.Task[None] | None = None
        self.written = 0
        """Objects."""

    async def write(self, id: str, slot_ms: int) -> Indexed:
        """Have an entry for `id`. Raises `StoreError`, and then it may be there or not; nothing may rely on it."""
        if len(self._waiting) >= _MAX_WAITING:
            raise TenureError(
                f"{len(self._waiting):,} index entries wait to be written: await earlier calls, or send fewer at a time"
            )
        future: asyncio.Future[Indexed] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(id, slot_ms, future))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.get_running_loop().create_task(self._flush())
        return await future

    def spend(self, stem: str, id: str) -> None:
        """No write that names this entry can ever land again: it is deleted soon, if it is this id's alone.

        A name is never used twice, so that nothing can be lost by it. What is not deleted the leader finds.
        """
        if stem.endswith(".") and len(self._spent) < _MAX_SPENT:
            self._spent.append(key_for(stem, id))
            if self._sweeping is None or self._sweeping.done():
                self._sweeping = asyncio.get_running_loop().create_task(self._clear())

    async def drain(self) -> None:
        """Delete now what is spent, and wait for what is being written."""
        if self._sweeping is not None and not self._sweeping.done():
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        await self._delete_spent()

    async def aclose(self) -> None:
        tasks = [task for task in (self._flusher, self._sweeping, *self._puts) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(TenureError("the index was closed before this was written"))

    async def _flush(self) -> None:
        while self._waiting:
            # A first one is not kept waiting for long; while others are under way, more of them come together.
            await self._clock.sleep(_LINGER if self._puts else 0)
            while len(self._puts) >= _IN_FLIGHT:
                await asyncio.wait(list(self._puts), return_when=asyncio.FIRST_COMPLETED)
            waiting, self._waiting = [each for each in self._waiting if not each.future.done()], []
            for part in _shared_out(waiting):
                task = asyncio.get_running_loop().create_task(self._put(part))
                self._puts[task] = None
                task.add_done_callback(lambda done: self._puts.pop(done, None))

    async def _put(self, part: Sequence[_Waiting]) -> None:
        nonce = blake2b(self._draw_id().encode(), digest_size=_NONCE // 2).hexdigest()
        stem = f"{part[0].slot_ms:013d}/{nonce}"
        if len(part) == 1 and len(encode_name(part[0].id)) + _NONCE + 1 <= MAX_SEGMENT_BYTES:
            stem += "."
            body = msgspec.json.encode({"schema": SCHEMA})
        else:
            body = msgspec.json.encode(Group(SCHEMA, [each.id for each in part]))
        since = self._clock.read()
        try:
            await self._send(key_for(stem, part[0].id), body)
        except BaseException as error:
            told = error if isinstance(error, Exception) else TenureError("the index was closed while this was written")
            for each in part:
                if not each.future.done():
                    each.future.set_exception(told)
                    each.future.exception()  # whoever does not wait for it is not told
            if isinstance(error, Exception):
                return
            raise
        self.written += 1
        for each in part:
            if not each.future.done():
                each.future.set_result(Indexed(stem, since))

    async def _send(self, key: str, body: bytes) -> None:
        """Sent again under the same name: whichever copy lands says the same."""
        for number in range(_TRIES):
            try:
                await self._store.put(key, body)
            except StoreError:
                if number == _TRIES - 1:
                    raise
                await self._clock.sleep(_PAUSE * 2.0**number)
            else:
                return

    async def _clear(self) -> None:
        while self._spent:
            await self._clock.sleep(_SPENT_AFTER)
            await self._delete_spent()

    async def _delete_spent(self) -> None:
        spent, self._spent = self._spent, []
        for first in range(0, len(spent), _DELETES):
            try:
                await self._store.delete(*spent[first : first + _DELETES])
            except TenureError as error:  # also of a store that was closed meanwhile
                _log.debug("%s spent index entries are left to the leader: %s", len(spent) - first, error)
                return


def _shared_out(waiting: Sequence[_Waiting]) -> list[list[_Waiting]]:
    """Which share an object: those of one slot, if they are enough, and no id twice: an entry serves one write."""
    by_slot: dict[int, list[dict[str, _Waiting]]] = {}
    for each in waiting:
        groups = by_slot.setdefault(each.slot_ms, [{}])
        if each.id in groups[-1] or len(groups[-1]) >= MAX_GROUP:
            groups.append({})
        groups[-1][each.id] = each
    parts: list[list[_Waiting]] = []
    for groups in by_slot.values():
        for group in groups:
            members = list(group.values())
            if len(members) >= GROUP_FROM:
                parts.append(members)
            else:
                parts += [[member] for member in members]
    return parts
