"""What the log of a TTL says: what was done, who was begun to be called, and what was asked for."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct, omit_defaults=True):
    """What came of a cleanup, or of all of them."""

    expired: int = 0
    """Records whose time had come, and that are gone, or marked ..."""
    deleted: int = 0
    soft_deleted: int = 0
    archived: int = 0
    called: int = 0
    """... by what was done with them. Archived and called are counted when that is done."""
    failed_calls: int = 0
    given_up: int = 0
    """Callbacks that failed so often that they are not called any more."""
    moved: int = 0
    """Records whose time was changed by a process without this plugin: they have another index entry now."""
    dropped: int = 0
    """Index entries that led to no record, and were kept for the whole quarantine."""
    waiting: int = 0
    """Ids that were looked at, and are to be looked at again later."""
    damaged: int = 0
    errors: int = 0
    """Of the store: tried again at the next tick."""
    read: int = 0
    """Records."""

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def add(self, other: Counts) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def clear(self) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, 0)


class Cleanup(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cleanup that has ended."""

    at_ms: int
    counts: Counts
    seconds: float = 0.0
    asked: list[str] = []
    """The requests that it answers."""
    dry_run: bool = False


class Work(msgspec.Struct, omit_defaults=True):
    """The events of one entry."""

    asked: dict[str, str] = {}
    """Requests for a cleanup, and whose they are."""
    begun: list[str] = []
    """Callbacks that are called next: the number of this entry is their token."""
    settled: list[str] = []
    """Callbacks that have succeeded, or are given up."""
    counts: Counts | None = None
    """What was done since the entry before."""
    cleanup: Cleanup | None = None
    """A cleanup has ended; what it did is in the counts of this entry, and of those before."""


decode_work = msgspec.json.Decoder(Work).decode
