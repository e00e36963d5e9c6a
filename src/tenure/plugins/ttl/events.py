"""What a TTL tells those who listen: `ttl.on("plg:ttl:expired", handler)`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenure.plugins.ttl.records import Counts


class CleanupStarted(msgspec.Struct, frozen=True):
    """The leader has found index entries that are due."""

    name: ClassVar[str] = "cleanup-started"
    resource: str
    epoch: int


class CleanupFinished(msgspec.Struct, frozen=True):
    name: ClassVar[str] = "cleanup-finished"
    resource: str
    epoch: int
    counts: Counts
    seconds: float


class RecordsExpired(msgspec.Struct, frozen=True):
    """Records have expired: `count` of them, and the ids of the first ones."""

    name: ClassVar[str] = "expired"
    resource: str
    count: int
    ids: tuple[str, ...]


class CallbackFailed(msgspec.Struct, frozen=True):
    """A callback failed. `given_up`: it is not called again, and kept for inspection (`failed()`)."""

    name: ClassVar[str] = "callback-failed"
    resource: str
    id: str
    attempt: int
    error: str
    given_up: bool


class RecordDamaged(msgspec.Struct, frozen=True):
    """What a due index entry leads to cannot be judged. It is left as it is, and looked at again later."""

    name: ClassVar[str] = "record-damaged"
    resource: str
    id: str
    reason: str
