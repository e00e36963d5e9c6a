"""Snapshots, so that a log need not be read from its beginning, nor kept (L-5).

Chunks have names that are never used twice; the manifest that names them, with their checksums, is created last. A
snapshot counts once it was read back. What it makes superfluous is removed when `trim_delay` has passed since it was
first seen, and always one snapshot later than it could be.

A term may be shorter than `trim_delay`, and all of them may be. So a process keeps what it saw while others led, and
over its own terms (`Sights`): that a snapshot was there, and when by its own clock. That is all that carries over.
Whether it is sound is found out anew in each term, by reading it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from contextlib import aclosing

import msgspec

from tenure.clock import Clock, Reading
from tenure.election.records import encode
from tenure.entropy import NewId
from tenure.errors import BodyTooLarge, InvalidKey, LedgerDamaged, NotFound, StoreError
from tenure.ledger.config import LedgerConfig
from tenure.ledger.layout import (
    CHUNK_NAMES,
    LOG_NAMES,
    SNAPSHOT_NAMES,
    chunks_of,
    log_key,
    parse_number,
    snapshot_key,
)
from tenure.ledger.machine import LedgerState
from tenure.ledger.records import Chunk, Manifest, checksum, decode_manifest
from tenure.ledger.together import all_of
from tenure.store import Applied, Names, Rejected, Store, Stored, Strangers, ours

_log = logging.getLogger("tenure.ledger")
_AT_ONCE = 8
_LISTINGS = 10
_MOST_SIGHTS = 64
_BEGINS_WITH_NUMBER = re.compile(r"(\d{20})(?:-|$)")


class Found(msgspec.Struct, frozen=True):
    manifest: Manifest
    chunks: list[bytes]


class Picture(msgspec.Struct, frozen=True):
    """A state as it was at one instant, between two entries: what is written later must not have moved on."""

    seq: int
    epoch: int
    time_ms: int
    machine: int
    chunks: list[bytes]


def picture_of(state: LedgerState) -> Picture:
    return Picture(state.seq, state.epoch, state.time_ms, state.machine.version, state.snapshot())


async def read_snapshot(store: Store, seq: int) -> Found | str:
    """A snapshot whose every byte is as it was written, or why there is none."""
    try:
        stored = await store.get(snapshot_key(seq))
        assert isinstance(stored, Stored)
        manifest = decode_manifest(stored.body, seq)
        if not isinstance(manifest, Manifest):
            return f"its manifest is not readable: {manifest}"
        limit = asyncio.Semaphore(_AT_ONCE)

        async def fetch(chunk: Chunk) -> bytes:
            async with limit:
                found = await store.get(chunk.key)
                assert isinstance(found, Stored)
                return found.body

        chunks = await all_of(fetch(chunk) for chunk in manifest.chunks)
    except (NotFound, BodyTooLarge, InvalidKey) as error:
        return str(error)  # none of these passes by itself: there may be a sound one that is older
    for chunk, body in zip(manifest.chunks, chunks, strict=True):
        if len(body) != chunk.size or checksum(body) != chunk.sha256:
            return f"{chunk.key} is not what was written"
    return Found(manifest, chunks)


async def snapshot_numbers(store: Store) -> list[int]:
    """Of all that a listing shows, in order."""
    return [number async for entry in ours(store, SNAPSHOT_NAMES) if (number := parse_number(entry.key)) is not None]


async def restore_newest(store: Store, state: LedgerState, at_least: int) -> bool:
    """Become the newest sound snapshot of entry `at_least` or later. False: there is none.

    Raises if there are some and none is sound: what they replaced may be gone. Those that were trimmed while they were
    read have newer ones in their place, which another listing shows.
    """
    looked: list[int] | None = None
    complaints: list[str] = []
    for _ in range(_LISTINGS):
        numbers = [number for number in await snapshot_numbers(store) if number >= at_least]
        if numbers == looked:
            break
        looked, complaints = numbers, []
        for number in reversed(numbers):
            found = await read_snapshot(store, number)
            if isinstance(found, Found):
                damage = state.restore(found.chunks, number)
                if damage is None:
                    return True
                complaints.append(f"{number}: {damage.reason}")
            else:
                complaints.append(f"{number}: {found}")
            _log.warning("the snapshot of entry %s cannot be used: %s", number, complaints[-1])
        if not complaints:
            return False
    raise LedgerDamaged(f"no snapshot can be used ({'; '.join(complaints)[:400]}): put one back from a backup")


async def restore_if_sound(store: Store, state: LedgerState, at_least: int) -> None:
    """The same before the log is read. If none is sound, the log may still have all that they replaced: whoever reads
    on finds out, and must not take where it ends for the end while one of them is of a later entry."""
    try:
        await restore_newest(store, state, at_least)
    except LedgerDamaged as error:
        _log.warning("the log is read from entry %s on instead: %s", at_least, error)


class Sights:
    """Snapshots that this process has seen in the bucket, and when. Nothing else is known of them.

    A time is of this process's own clock, read after the answer that showed the snapshot, which is at least as old.
    Times of the store, or of another process, would not do: clocks may leap.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, Reading]] = []

    def saw(self, seq: int, at: Reading, delay: float) -> None:
        """`delay`: of those that are older, the newest alone matters."""
        if seq < 1 or (self._rows and seq <= self._rows[-1][0]):
            return
        ripe = [row for row in self._rows if at.follower_elapsed(row[1]) >= delay]
        self._rows = ripe[-1:] + self._rows[len(ripe) :]
        if len(self._rows) < _MOST_SIGHTS:  # if there are more, the oldest of them is ripe soon, and makes room
            self._rows.append((seq, at))

    def since(self, seq: int) -> Reading | None:
        return next((at for number, at in self._rows if number == seq), None)

    def ripe(self, now: Reading, delay: float) -> int | None:
        """The newest that was seen so long ago, or longer."""
        return next((seq for seq, at in reversed(self._rows) if now.follower_elapsed(at) >= delay), None)

    def __len__(self) -> int:
        return len(self._rows)


class Archivist:
    """Writes snapshots, and removes what they make superfluous, for the leader of one term."""

    def __init__(
        self, store: Store, *, config: LedgerConfig, clock: Clock, draw_id: NewId, sights: Sights | None = None
    ) -> None:
        """`sights`: the process's own, which outlive the term."""
        self._store = store
        self._config = config
        self._clock = clock
        self._draw_id = draw_id
        self.verified: list[tuple[int, Reading]] = []
        """Snapshots that were read and found sound in this term, oldest first, and when each was first seen."""
        self._sights = sights if sights is not None else Sights()
        self._trimmed = -1
        self._strangers: dict[str, Strangers] = defaultdict(lambda: Strangers(told=False))
        self._recalled = 0

    def found_sound(self, seq: int) -> None:
        if not self.verified or seq > self.verified[-1][0]:
            now = self._clock.read()
            self._sights.saw(seq, now, self._config.trim_delay_seconds)
            self.verified.append((seq, self._sights.since(seq) or now))
            delay = self._config.trim_delay_seconds
            ripe = [at for at, row in enumerate(self.verified) if now.follower_elapsed(row[1]) >= delay]
            self.verified = self.verified[ripe[-2] :] if len(ripe) > 1 else self.verified

    async def write(self, picture: Picture) -> None:
        seq = picture.seq
        tag = self._draw_id()
        chunks = []
        for number, body in enumerate(picture.chunks):
            key = f"{chunks_of(seq)}{tag}-{number:06d}"
            # Unconditional: the name is ours alone, and the same bytes may land twice without harm.
            await self._store.put(key, body)
            chunks.append(Chunk(key, len(body), checksum(body)))
        manifest = Manifest(
            write_id=tag,
            seq=seq,
            epoch=picture.epoch,
            time_ms=picture.time_ms,
            machine=picture.machine,
            chunks=tuple(chunks),
        )
        outcome = await self._store.create(snapshot_key(seq), encode(manifest))
        if not isinstance(outcome, Applied | Rejected):
            _log.info("whether the snapshot of entry %s was written is not known: %s", seq, outcome.error)
        found = await read_snapshot(self._store, seq)
        if isinstance(found, Found):
            self.found_sound(seq)
        else:
            _log.warning("the snapshot of entry %s does not count: %s", seq, found)

    def bound(self) -> int | None:
        """Entries below this number are superfluous: the second newest sound snapshot covers them."""
        if len(self.verified) < 2:
            return None
        now = self._clock.read()
        ripe = [seq for seq, since in self.verified if now.follower_elapsed(since) >= self._config.trim_delay_seconds]
        if not ripe:
            return None
        older = [seq for seq, _ in self.verified if seq < ripe[-1]]
        return older[-1] if older else None

    def to_recall(self) -> int | None:
        """A snapshot that was seen long enough ago to trim by, while this term has none: it is to be read again."""
        if not self.verified or self.bound() is not None:
            return None
        seq = self._sights.ripe(self._clock.read(), self._config.trim_delay_seconds)
        return seq if seq is not None and self._recalled < seq <= self.verified[-1][0] else None

    async def recall(self) -> None:
        """Read the snapshot that `to_recall` gives, and the one before it: if both are sound, there is a bound."""
        seq = self.to_recall()
        if seq is None:
            return
        numbers = [number for number in await snapshot_numbers(self._store) if number <= seq]
        sound = dict(self.verified)
        for number in numbers[-2:] if numbers[-1:] == [seq] else ():
            if number not in sound and isinstance(await read_snapshot(self._store, number), Found):
                sound[number] = self._sights.since(number) or self._clock.read()
        self._recalled = seq  # not before: a store that failed is asked again
        self.verified = sorted(sound.items(), key=lambda row: row[0])

    async def trim(self) -> int:
        """Remove what is superfluous by now, some at a time; gives how many objects that were."""
        bound = self.bound()
        if bound is None or bound <= self._trimmed:
            return 0
        doomed, complete = await self._below(LOG_NAMES, bound)
        removed = len(doomed)
        if doomed:
            await self._store.delete(*doomed)
        if not complete:
            return removed
        # First the manifest, so that none is seen whose chunks are gone; whoever has read it already looks for a newer.
        for names in (SNAPSHOT_NAMES, CHUNK_NAMES):
            doomed, whole = await self._below(names, bound)
            complete = complete and whole
            removed += len(doomed)
            if doomed:
                await self._store.delete(*doomed)
        if complete:
            self._trimmed = bound
        return removed

    async def _below(self, names: Names, bound: int) -> tuple[list[str], bool]:
        """Names there that begin with a lower number, and whether these are all."""
        doomed: list[str] = []
        async with aclosing(ours(self._store, names, strangers=self._strangers[names.folder])) as rows:
            async for entry in rows:
                match = _BEGINS_WITH_NUMBER.match(entry.key.removeprefix(names.folder))
                if match is None:
                    continue  # somebody else's
                if int(match[1]) >= bound:
                    return doomed, True
                if len(doomed) >= self._config.trims_per_tick:
                    return doomed, False
                doomed.append(entry.key)
        return doomed, True


async def write_quietly(archivist: Archivist, picture: Picture) -> None:
    """A snapshot that cannot be written now is written later."""
    try:
        await archivist.write(picture)
    except StoreError as error:
        _log.info("a snapshot was not written, and will be later: %s", error)


__all__ = [
    "Archivist",
    "Found",
    "Sights",
    "log_key",
    "read_snapshot",
    "restore_if_sound",
    "restore_newest",
    "snapshot_numbers",
    "write_quietly",
]
