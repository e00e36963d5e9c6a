"""The state that a log adds up to. Pure: entries in, state out; the same on every process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from tenure.election.records import Damage, unreadable
from tenure.errors import LedgerHalted
from tenure.ledger.producers import Producers, Remembered
from tenure.ledger.records import Kind, LogEntry


class Stamp(msgspec.Struct, frozen=True):
    """Which entry it is that is applied."""

    seq: int
    epoch: int
    time_ms: int
    doubt_ms: int = 0
    """Of a term's first entry: by how much its time may be too early."""


class Machine(Protocol):
    """The state machine of a plugin."""

    version: int
    """Raised when older code could not apply the entries of this one."""

    def apply(self, events: bytes, stamp: Stamp) -> None:
        """Total: every entry of a leader can be applied. If it raises, the plugin halts."""
        ...

    def began(self, stamp: Stamp) -> None:
        """A leader begins."""
        ...

    def snapshot(self) -> Iterable[bytes]:
        """Chunks from which `restore` makes the same state again."""
        ...

    def restore(self, chunks: Sequence[bytes]) -> None: ...


class _Frame(msgspec.Struct, frozen=True, rename="camel"):
    """The first chunk: the ledger's own state."""

    seq: int
    epoch: int
    time_ms: int
    horizon: int
    machine: int
    producers: dict[str, Remembered]
    namespace: str = ""


class LedgerState:
    """What was made of the entries up to `seq`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.producers = Producers()
        self.seq = 0
        self.epoch = 0
        """The highest so far: an entry of a lower one is void (L-2)."""
        self.time_ms = 0
        self.machine_version = 0
        """Of the leader that began the newest term."""
        self.namespace = ""
        """Whose election decides who leads this ledger; empty: that was never said."""
        self.voids = 0
        self.restored = 0
        """The entry whose snapshot this began with."""

    def apply(self, entry: LogEntry) -> bool:
        """Take in the next entry. False: it is void, and changed nothing but the count."""
        if entry.seq != self.seq + 1:
            raise LedgerHalted(f"entry {entry.seq} cannot follow entry {self.seq}")
        if entry.epoch < self.epoch:
            self.seq = entry.seq
            self.voids += 1
            return False
        stamp = Stamp(entry.seq, entry.epoch, entry.time_ms, entry.doubt_ms)
        if entry.machine > self.machine.version:
            raise LedgerHalted(
                f"entry {entry.seq} was written for version {entry.machine} of the plugin's state, and this process "
                f"knows version {self.machine.version}: update it"
            )
        self.begin(entry, stamp)
        try:
            if (events := entry.decided) is not None:
                self.machine.apply(events, stamp)
        except Exception as error:
            raise LedgerHalted(f"entry {entry.seq} could not be applied: {error!r}") from error
        self.conclude(entry)
        return True

    def begin(self, entry: LogEntry, stamp: Stamp) -> None:
        """A term's first entry, or one that begins it anew; nothing for the others."""
        if entry.epoch > self.epoch or entry.kind is Kind.TERM:
            self.epoch = entry.epoch
            self.machine_version = entry.machine or self.machine_version
            self.namespace = entry.namespace or self.namespace
            try:
                self.machine.began(stamp)
            except Exception as error:
                raise LedgerHalted(f"entry {stamp.seq} could not be applied: {error!r}") from error

    def conclude(self, entry: LogEntry) -> None:
        """The ledger's own part of an entry whose events were applied."""
        for uid, through in entry.resumed.items():
            self.producers.resume(uid, through)
        for uid, numbers in (*entry.folded.items(), *entry.skipped.items()):
            self.producers.fold(uid, numbers, entry.seq, entry.time_ms)
        if entry.forgotten or entry.horizon:
            self.producers.forget(entry.forgotten, entry.horizon)
        self.seq, self.time_ms = entry.seq, max(self.time_ms, entry.time_ms)

    def snapshot(self) -> list[bytes]:
        frame = _Frame(
            self.seq,
            self.epoch,
            self.time_ms,
            self.producers.horizon,
            self.machine.version,
            self.producers.snapshot(),
            self.namespace,
        )
        return [msgspec.json.encode(frame), *self.machine.snapshot()]

    def restore(self, chunks: Sequence[bytes], seq: int | None = None) -> Damage | None:
        """Become the state of a snapshot (of entry `seq`, if given), or say what is wrong with it, unchanged."""
        try:
            frame = msgspec.json.decode(chunks[0], type=_Frame)
        except (IndexError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return unreadable(error)
        if seq is not None and frame.seq != seq:
            return Damage(f"it is of entry {frame.seq}")
        if frame.machine > self.machine.version:
            raise LedgerHalted(
                f"the snapshot of entry {frame.seq} is of version {frame.machine} of the plugin's state, and this "
                f"process knows version {self.machine.version}: update it"
            )
        try:
            self.machine.restore(chunks[1:])
        except Exception as error:
            raise LedgerHalted(f"the snapshot of entry {frame.seq} could not be restored: {error!r}") from error
        self.producers.restore(frame.producers, frame.horizon)
        self.seq, self.epoch, self.time_ms = frame.seq, frame.epoch, frame.time_ms
        self.machine_version, self.namespace = frame.machine, frame.namespace
        self.restored = frame.seq
        return None
