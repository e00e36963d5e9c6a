"""Writes that a deposed leader cannot make: EF-8.

A fenced object is one line of JSON, which names the namespace, the epoch and the write, and after the newline the
user's bytes, untouched. The line is part of the body because it must move the object's version: `claim` writes the same
value under a newer epoch, and where versions are hashes of the body (S3), a mark kept in the object's metadata would
leave the version as it was, and the deposed leader's compare-and-swap would still go through.

Guarantee: once a newer epoch has written or claimed a key, no write of an older one changes it.

Assumption: the store honours compare-and-swap, and everyone writes the key through this module.

Not guaranteed: that a write without a decisive answer (`WriteUnknown`) did not happen. It may still land, until a newer
epoch touches the key.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenure.coordinator.given import shown
from tenure.coordinator.layout import RESERVED
from tenure.election.records import SCHEMA_VERSION
from tenure.entropy import NewId
from tenure.errors import ConfigError, Fenced, NotFenced, NotFound, SchemaTooNew, WriteUnknown
from tenure.store import Applied, Attempt, Rejected, Store, Stored, Unknown, Version, commit

MAX_HEADER_BYTES = 1024
_TRIES = 16


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="fenced"):
    """The first line of a fenced object."""

    namespace: str
    epoch: int
    write_id: str
    absent: bool = False
    """There is no value: claimed before anything was written, or deleted."""
    schema_version: int = 1


class FencedValue(msgspec.Struct, frozen=True):
    """What lies under a fenced key. True if there is a value, also an empty one."""

    body: bytes | None
    """`None`: claimed or deleted, so there is nothing."""
    epoch: int
    namespace: str

    def __bool__(self) -> bool:
        return self.body is not None


class Fence(msgspec.Struct, frozen=True):
    """Under which leadership to write."""

    namespace: str
    epoch: int


def split(key: str, stored: bytes) -> tuple[Header, bytes]:
    """The header and the user's bytes. Raises `NotFenced` for anything that was not written here."""
    line, newline, body = stored.partition(b"\n")
    if not newline or len(line) > MAX_HEADER_BYTES:
        raise _not_ours(key)
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise _not_ours(key) from None
    if header.schema_version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the object {key!r} was written by a newer tenure (schemaVersion {header.schema_version}): update this "
            "process"
        )
    return header, body


def join(header: Header, body: bytes) -> bytes:
    return msgspec.json.encode(header) + b"\n" + body


def check_user_key(key: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"key is {shown(key)}: give text")
    if key.startswith(RESERVED):
        raise ConfigError(f"key is {key!r}: keys that begin with {RESERVED!r} are tenure's own; choose another")
    return key


async def read(store: Store, key: str) -> FencedValue | None:
    """The value under a fenced key; `None` if nobody ever wrote or claimed it.

    Raises `NotFenced` if the object there is not a fenced one, and `StoreError` if the store did not say.
    """
    try:
        stored = await store.get(check_user_key(key))
    except NotFound:
        return None
    assert isinstance(stored, Stored)
    header, body = split(key, stored.body)
    return FencedValue(None if header.absent else body, header.epoch, header.namespace)


class FencedWriter:
    """Fenced writes under one leadership. `still_leading` raises if it is over: then nothing is sent."""

    def __init__(self, store: Store, fence: Fence, draw_id: NewId, still_leading: Callable[[], None]) -> None:
        self._store = store
        self._fence = fence
        self._draw_id = draw_id
        self._still_leading = still_leading

    async def put(self, key: str, body: bytes, *, unless: Callable[[bytes], str | None] = lambda _: None) -> None:
        """`unless`: is shown the value that is there, and says why it must stay. Then it raises `SchemaTooNew`."""

        def new_value(value: bytes | None) -> bytes:
            if value is not None and (why := unless(value)) is not None:
                raise SchemaTooNew(why)
            return body

        await self._change(key, new_value)

    async def claim(self, key: str) -> bytes | None:
        """Make the key ours, with its value unchanged: from here on nobody of an older epoch can change it."""
        return await self._change(key, lambda value: value)

    async def delete(self, key: str) -> None:
        await self._change(key, lambda _: None)

    async def _change(self, key: str, new_value: Callable[[bytes | None], bytes | None]) -> bytes | None:
        check_user_key(key)
        sent = False
        self._still_leading()
        for _ in range(_TRIES):
            value, version = await self._current(key, sent)
            changed = new_value(value)
            self._still_leading()
            attempt = Attempt(key, version)

            def compose(write_id: str, changed: bytes | None = changed) -> bytes:
                header = Header(
                    namespace=self._fence.namespace,
                    epoch=self._fence.epoch,
                    write_id=write_id,
                    absent=changed is None,
                )
                return join(header, changed or b"")

            settled = await commit(self._store, attempt, compose, write_ids=_ids_in, draw_id=self._draw_id, tries=1)
            if isinstance(settled.outcome, Applied):
                return changed
            sent = True
            if not all(isinstance(answer, Rejected) for answer in attempt.answers):
                error = settled.outcome.error if isinstance(settled.outcome, Unknown) else None
                raise WriteUnknown(
                    f"the write to {key!r} got no decisive answer ({error}): it may have happened, or may until a "
                    "newer epoch touches the key; read it, or write again"
                ) from error
        raise WriteUnknown(f"{key!r} is written so often by others that no write got through in {_TRIES} tries")

    async def _current(self, key: str, sent: bool) -> tuple[bytes | None, Version | None]:
        try:
            stored = await self._store.get(key)
        except NotFound:
            return None, None
        assert isinstance(stored, Stored)
        header, body = split(key, stored.body)
        if header.namespace != self._fence.namespace:
            raise NotFenced(
                f"{key!r} is fenced by namespace {header.namespace!r}, whose epochs cannot be compared with those of "
                f"{self._fence.namespace!r}: use a key of your own"
            )
        if header.epoch > self._fence.epoch:
            raise Fenced(
                f"{key!r} belongs to epoch {header.epoch}, and this leadership is epoch {self._fence.epoch}: another "
                "process leads now",
                maybe_written=sent,
            )
        return (None if header.absent else body), stored.version


def _ids_in(body: bytes) -> tuple[str, ...]:
    try:
        return (split("", body)[0].write_id,)
    except (NotFenced, SchemaTooNew):
        return ()


def _not_ours(key: str) -> NotFenced:
    return NotFenced(
        f"the object {key!r} was not written through a leadership: plain and fenced writes to one key do not mix; move "
        "it away, or use another key"
    )
