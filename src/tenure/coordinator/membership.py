"""Who is in the fleet: this process's own record, and everyone's liveness (rules E-7 and E-8).

Liveness is judged by the store's clock alone: the times of a listing are compared with the time of our own fresh
record in the same listing, never with a clock of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.layout import MEMBERS, WORKER_NAMES, is_key_of, is_worker_key, worker_key
from tenure.coordinator.lease import Identity
from tenure.election.rank import precedes
from tenure.election.records import (
    MAX_MEMBERS_BYTES,
    MAX_RECORD_BYTES,
    Member,
    Members,
    TooNew,
    Worker,
    decode,
    encode,
    time_of_day,
)
from tenure.entropy import NewId
from tenure.errors import BodyTooLarge, InvalidKey, NotFound, StoreError, StoreUnavailable, WorkerReplaced
from tenure.store import Applied, Entry, Outcome, Rejected, Store, Stored, Strangers, Unknown, Version, ours

_log = logging.getLogger("tenure.coordinator")

MAX_LISTED = 50_000
"""Records of workers that one listing is read for: fifty pages. Whoever is behind them is not seen, until those whose
workers are gone have been removed."""
MAX_BODIES_PER_SURVEY = 200
MAX_REMOVALS_PER_SURVEY = 100
_AT_ONCE = 16
_FIRST_AT_ONCE = 8
"""More than a candidate has to find before it to know that its turn comes last."""
_TRIES = 3
_PADS = 8
_PAD_BYTES = 16  # more than all that changes while a process lives
_LISTED_TO_THE_SECOND = 1.0
"""Some stores' listings show whole seconds."""


class OwnRecord:
    """This process's line in the register: written at each heartbeat, by compare-and-swap on its last version."""

    def __init__(
        self,
        store: Store,
        who: Identity,
        priority: int,
        timeout: float,
        clock: Clock,
        draw_id: NewId,
        *,
        eligible: bool = True,
        pulse: Callable[[], str] = str,
    ) -> None:
        """`pulse` gives a line that never changes its length."""
        self._store = store
        self._who = who
        self._pulse = pulse
        self._priority = priority
        self._eligible = eligible
        self._timeout = timeout
        self._clock = clock
        self._draw_id = draw_id
        self._key = worker_key(who.worker_id)
        self._version: Version | None = None
        self._ordinal = 0
        self._registered_at = ""
        self._last_id = ""
        self._newer: tuple[Version, Reading] | None = None
        """A newer tenure's record that was there when we started, and since when we have seen it so."""
        self.registered: Reading | None = None
        """Since when; `None`: not yet."""
        self.written: Reading | None = None
        """When the record in the store was sent."""
        self.sending: tuple[Reading, Reading] | None = None
        """When that was sent, and heard to be there; `None` while another is under way, or may be."""

    @property
    def key(self) -> str:
        return self._key

    async def beat(self, *, leading: bool, epoch: int, healthy: bool) -> None:
        """Write it. Raises `StoreError` if that failed, and `WorkerReplaced` if a newer start has our id."""
        self.sending = None
        if self.registered is None and not await self._find_ordinal():
            return
        trouble: StoreError | None = None
        for _ in range(_TRIES):
            sent = self._clock.read()
            outcome = await self._write(encode(self._record(sent, leading, epoch, healthy)))
            if not isinstance(outcome, Applied):
                trouble = outcome.error if isinstance(outcome, Unknown) else trouble
                outcome = await self._settle()
            if isinstance(outcome, Unknown):
                raise outcome.error
            if isinstance(outcome, Applied):
                self._version = outcome.version
                self.written = sent
                heard = self._clock.read()
                self.sending = (sent, heard)
                if self.registered is None:
                    self.registered = heard
                return
        if trouble is not None:
            raise trouble  # it can be read, and does not take what is written
        # Rejected each time: the store works, and others keep writing our record. The next heartbeat tries again.

    def _record(self, sent: Reading, leading: bool, epoch: int, healthy: bool) -> Worker:
        self._last_id = self._draw_id()
        now = time_of_day(sent.wall_ns)
        self._registered_at = self._registered_at or now
        return Worker(
            write_id=self._last_id,
            worker_id=self._who.worker_id,
            uid=self._who.uid,
            ordinal=self._ordinal,
            registered_at=self._registered_at,
            last_heartbeat=now,
            is_coordinator=leading,
            epoch=epoch,
            priority=self._priority,
            eligible=self._eligible,
            healthy=healthy,
            pulse=self._pulse(),
            pad="." * (_PAD_BYTES * (self._ordinal % _PADS)),
        )

    async def remove(self) -> None:
        """On leaving. If it lands late, on a process that started meanwhile under this id, that one writes again."""
        if self.registered is not None:
            await self._store.delete(self._key)

    async def _find_ordinal(self) -> bool:
        """One above the process that had this id before us. False: that one may be alive, and cannot be asked."""
        if self._ordinal:
            return True
        try:
            stored = await self._store.get(self._key)
        except NotFound:
            self._ordinal, self._version = 1, None
            return True
        assert isinstance(stored, Stored)
        record = decode(stored.body, Worker)
        if isinstance(record, TooNew) and not self._is_long_dead(record, stored.version):
            return False
        self._ordinal = _ordinal_in(stored.body) + 1
        self._version = stored.version
        return True

    def _is_long_dead(self, record: TooNew, version: Version) -> bool:
        """A newer tenure's record under our id: was it left behind, for so long that a leader would remove it?

        Until then it is not touched. One that changes is somebody's who lives, and who is not ours to replace: we could
        not even say which of us started later.
        """
        now = self._clock.read()
        if self._newer is None:
            self._newer = (version, now)
            _log.warning(
                "the record of worker %r was written by a newer tenure (schemaVersion %s): this process takes no part "
                "until that was silent for %g s, and stops if it is not; update it, or give it an id of its own",
                *(self._who.worker_id, record.schema_version, forgotten_after(self._timeout)),
            )
        before, since = self._newer
        if not before.matches(version):
            raise self._yields(record)
        return now.follower_elapsed(since) > forgotten_after(self._timeout)

    def _yields(self, record: TooNew) -> WorkerReplaced:
        return WorkerReplaced(
            f"worker id {self._who.worker_id!r} is used by a process of a newer tenure (schemaVersion "
            f"{record.schema_version}): this one has stopped, and has not touched its record; update it, or give each "
            "process an id of its own"
        )

    async def _write(self, body: bytes) -> Outcome:
        if self._version is None:
            return await self._store.create(self._key, body)
        return await self._store.replace(self._key, body, self._version)

    async def _settle(self) -> Outcome:
        """Rejected or unknown: see whose record it is now (E-8)."""
        try:
            stored = await self._store.get(self._key)
        except NotFound:
            self._version = None  # cleaned away while we were silent
            return Rejected()
        except StoreError as error:
            return Unknown(error)
        assert isinstance(stored, Stored)
        record = decode(stored.body, Worker)
        if isinstance(record, TooNew):
            raise self._yields(record)
        if isinstance(record, Worker) and record.uid == self._who.uid:
            self._version = stored.version
            return Applied(stored.version) if record.write_id == self._last_id else Rejected()
        theirs = _ordinal_in(stored.body)
        if self.registered is None:
            self._ordinal = max(self._ordinal, theirs + 1)  # both are starting: the later one goes above
        elif isinstance(record, Worker) and ((theirs, record.uid) > (self._ordinal, self._who.uid) or self._was_away()):
            raise WorkerReplaced(
                f"worker id {self._who.worker_id!r} is used by a process that started later: this one has stopped; "
                "give each process an id of its own"
            )
        self._version = stored.version
        return Rejected()

    def _was_away(self) -> bool:
        """Silent for so long that our record may have been removed, and with it the count of starts under our id."""
        return self.written is None or self._clock.read().leader_elapsed(self.written) > self._timeout


class StampedBeat(msgspec.Struct, frozen=True):
    """A write of our own record, and the time that the store's listing gives it: what the store's clock is told by."""

    sent: Reading
    heard: Reading
    modified: datetime


class Survey(msgspec.Struct, frozen=True):
    """One listing of the fleet."""

    members: tuple[Member, ...]
    gone: tuple[str, ...]
    """Keys of records that are older than the timeout."""
    forgotten: tuple[str, ...]
    """Keys so old that they may be removed."""


class Roster:
    """Who is alive, from one LIST."""

    def __init__(self, store: Store, own: OwnRecord, who: Identity, timeout: float, clock: Clock) -> None:
        self._store = store
        self._own = own
        self._who = who
        self._timeout = timeout
        self._clock = clock
        # By key: the record's size in the listing, and whom it names.
        self._bodies: dict[str, tuple[int, Member | None]] = {}
        self._told_of: dict[str, Member] = {}  # by key: whom a former leader had found there
        self._strangers = Strangers(told=False)
        self._told_too_many = False
        self._lapsed: Entry | None = None
        """The record of a holder that let the lease lapse: it is not alive until it writes that again (E-7)."""
        self.stamped: StampedBeat | None = None
        """The newest."""
        self.ranked: tuple[Member, ...] | None = None
        """The live workers of the last listing that `place` made, as far as their records were read."""
        self.ranked_all = False
        """Every record of that listing was read, or was known."""

    async def survey(self) -> Survey:
        """Raises `StoreError`, also if our own record is not in the listing: nothing could be judged by it."""
        live, age = await self._listing()
        await self._read_bodies(live)
        return Survey(
            members=tuple(member for key in sorted(live) if (member := self._member_at(key)) is not None),
            gone=tuple(sorted(key for key in age if age[key] > self._limit and key != self._own.key)),
            forgotten=tuple(
                sorted(key for key in age if age[key] > forgotten_after(self._timeout) and key != self._own.key)
            ),
        )

    async def place(self, own: Member, listed: tuple[Member, ...], *, but: str | None, most: int) -> int:
        """How many live workers come before `own` in rank, counted up to `most`; the one with the uid `but` is none.

        Whom the last leader listed is taken for what it said of him: when a lease lapses, all of a fleet ask this at
        once, and if each read the record of each, thousands would send more than a store takes. Others' records are
        read, in the order of their names, until enough come before us; most of a fleet is done after a few.
        """
        live, _ = await self._listing()
        self._forget_all_but(live)
        told = by_key(listed)
        unread = [key for key in self._unread(live) if key != self._own.key]
        known = {key: self._member_at(key) for key in live.keys() - unread} | {
            key: told[key] for key in unread if key in told
        }
        before = sum(self._comes_before(member, own, but) for member in known.values())
        left, at_once = [key for key in unread if key not in told][:MAX_BODIES_PER_SURVEY], _FIRST_AT_ONCE
        while left and before < most:
            batch, left, at_once = left[:at_once], left[at_once:], _AT_ONCE
            await self._read(batch, live)
            before += sum(self._comes_before(self._member_at(key), own, but) for key in batch)
        found = {key: self._member_at(key) or told.get(key) for key in live} | {self._own.key: own}
        for key, member in found.items():
            if member is not None and member.uid == but and member.uid != own.uid:
                self._lapsed = live[key]
        self.ranked = tuple(
            member
            for key, member in sorted(found.items())
            if member is not None and (member.uid != but or member.uid == own.uid)
        )
        self.ranked_all = not any(key != self._own.key and key not in told for key in self._unread(live))
        return min(before, most)

    @staticmethod
    def _comes_before(member: Member | None, own: Member, but: str | None) -> bool:
        return member is not None and member.uid not in (own.uid, but) and precedes(member, own)

    @property
    def _limit(self) -> float:
        return _gone_after(self._timeout)

    async def _listing(self) -> tuple[dict[str, Entry], dict[str, float]]:
        """The records that are fresh, and the age of all in seconds."""
        sending = self._own.sending
        # Other tools' files are nobody's records: they are neither counted nor removed, however many there are.
        entries: dict[str, Entry] = {}
        seen = 0
        async with aclosing(ours(self._store, WORKER_NAMES, strangers=self._strangers)) as rows:
            async for entry in rows:
                if seen >= MAX_LISTED:
                    await self._pass_over(entries)
                    break
                seen += 1
                if is_worker_key(entry.key):
                    entries[entry.key] = entry
        now = self._clock.read()
        own = entries.get(self._own.key)
        if own is not None and sending is not None and sending is self._own.sending:
            self.stamped = StampedBeat(*sending, own.modified)
        written = self._own.written
        if own is None or written is None:
            raise StoreUnavailable("our own worker record is not in the listing yet")
        since = now.follower_elapsed(written)
        age = {key: (own.modified - entry.modified).total_seconds() + since for key, entry in entries.items()}
        limit = self._limit
        live = {key: entry for key, entry in entries.items() if age[key] <= limit or key == self._own.key}
        lapsed = self._lapsed
        if lapsed is not None and lapsed.key in live and live[lapsed.key].modified == lapsed.modified:
            del live[lapsed.key]
        return live, age

    async def _pass_over(self, entries: dict[str, Entry]) -> None:
        """There are more than we look at. Nothing can be judged without our own, which may be among them."""
        if not self._told_too_many:
            self._told_too_many = True
            _log.warning(
                "over %s records lie among the workers: those behind %r are not seen; remove what other programs wrote",
                f"{MAX_LISTED:,}",
                max(entries, default=WORKER_NAMES.first),
            )
        key = self._own.key
        if key not in entries:
            # It comes first after a name that is one character shorter, unless somebody has just removed it.
            async with aclosing(ours(self._store, WORKER_NAMES, after=key[:-1])) as rows:
                async for entry in rows:
                    if entry.key == key:
                        entries[key] = entry
                    break

    async def remove(self, keys: tuple[str, ...]) -> None:
        """A worker that was only very late writes its record again: it finds it absent, and says so."""
        if keys:
            await self._store.delete(*keys[:MAX_REMOVALS_PER_SURVEY])

    async def look_at(self, member: Member) -> Worker | None:
        """That worker's record as it is now; `None` if it cannot be read."""
        body = await self._body(worker_key(member.worker_id))
        return body if body is not None and body.uid == member.uid else None

    def begin_anew(self, members: tuple[Member, ...] = ()) -> None:
        """Read every record again: a worker that restarts under its old id may have another priority.

        Reading takes several surveys of a large fleet. Until a record was read, whoever is alive there is taken for the
        one that `members` names: a fleet does not shrink in everybody's eyes because its leader is new.
        """
        self._bodies.clear()
        self._told_of = by_key(members)

    def _member_at(self, key: str) -> Member | None:
        return self._bodies[key][1] if key in self._bodies else self._told_of.get(key)

    async def _read_bodies(self, live: Mapping[str, Entry]) -> None:
        """Once per registration: a record's size tells one start from the next, and healthy from not (`Worker.pad`)."""
        self._forget_all_but(live)
        unread = self._unread(live)[:MAX_BODIES_PER_SURVEY]
        for start in range(0, len(unread), _AT_ONCE):
            await self._read(unread[start : start + _AT_ONCE], live)

    def _forget_all_but(self, live: Mapping[str, Entry]) -> None:
        for known in (self._bodies, self._told_of):
            for key in known.keys() - live.keys():
                del known[key]

    def _unread(self, live: Mapping[str, Entry]) -> list[str]:
        """Those of a size at which they were not read yet, in the order of their names."""
        return [
            key
            for key, entry in sorted(live.items())
            if entry.size <= MAX_RECORD_BYTES and (key not in self._bodies or self._bodies[key][0] != entry.size)
        ]

    async def _read(self, keys: list[str], live: Mapping[str, Entry]) -> None:
        # All are awaited, also if one fails: nobody would hear what became of the others.
        for key, body in zip(keys, await asyncio.gather(*map(self._try_body, keys)), strict=True):
            if isinstance(body, StoreError):
                raise body
            named = None if body is None else Member(body.worker_id, body.uid, body.priority, body.eligible)
            self._bodies[key] = (live[key].size, named)
            self._told_of.pop(key, None)

    async def _try_body(self, key: str) -> Worker | StoreError | None:
        try:
            return await self._body(key)
        except StoreError as error:
            return error

    async def _body(self, key: str) -> Worker | None:
        try:
            stored = await self._store.get(key)
        except NotFound:
            return None
        assert isinstance(stored, Stored)
        record = decode(stored.body, Worker)
        # What does not fit is not a member; its record grows old and is removed like any other.
        return record if isinstance(record, Worker) and is_key_of(record.worker_id, key) else None


class MemberList:
    """`members.json`: written by the leader when the fleet changes, read by the others when the lease says so."""

    def __init__(self, store: Store, draw_id: NewId) -> None:
        self._store = store
        self._draw_id = draw_id
        self._stored: Version | None = None
        self._looked = False
        self.members: tuple[Member, ...] = ()
        self.version = -1
        """As named by the lease; -1: never read."""

    async def read(self, version: int) -> bool:
        """Fetch it because the lease names `version`. True if the members changed. Raises `StoreError`."""
        self.version = version
        try:
            stored = await self._store.get(MEMBERS)
        except (NotFound, BodyTooLarge):
            return False
        except StoreError:
            self.version = -1
            raise
        assert isinstance(stored, Stored)
        record = decode(stored.body, Members, MAX_MEMBERS_BYTES)
        # Of a newer tenure's we keep no version: with one, it would be written over once we lead.
        self._stored, self._looked = stored.version, not isinstance(record, TooNew)
        if not isinstance(record, Members) or record.members == self.members:
            return False
        self.members = record.members
        return True

    async def write(self, members: tuple[Member, ...], epoch: int, version: int) -> bool:
        """As the leader of `epoch`. False: not written; another try comes with the next heartbeat."""
        if not self._looked and not await self._find(epoch):
            return False
        record = Members(write_id=self._draw_id(), epoch=epoch, version=version, members=members)
        body = encode(record)
        if self._stored is None:
            outcome = await self._store.create(MEMBERS, body)
        else:
            outcome = await self._store.replace(MEMBERS, body, self._stored)
        if not isinstance(outcome, Applied):
            self._looked = False
            return False
        self._stored, self.members, self.version = outcome.version, members, version
        return True

    def forget(self) -> None:
        """A new term begins: what is stored may be another leader's."""
        self._looked = False

    async def _find(self, epoch: int) -> bool:
        """False: it is a later leader's, or a newer tenure's."""
        try:
            stored = await self._store.get(MEMBERS)
        except NotFound:
            self._stored, self._looked = None, True
            return True
        except BodyTooLarge:
            return False  # not ours, and not read: nobody writes over it
        assert isinstance(stored, Stored)
        record = decode(stored.body, Members, MAX_MEMBERS_BYTES)
        if isinstance(record, TooNew) or (isinstance(record, Members) and record.epoch > epoch):
            return False
        self._stored, self._looked = stored.version, True
        return True


def _gone_after(timeout: float) -> float:
    return timeout + _LISTED_TO_THE_SECOND


def forgotten_after(timeout: float) -> float:
    """Seconds of silence after which a worker's record may be removed, of whatever version it is."""
    return 2 * _gone_after(timeout)


def by_key(members: Iterable[Member]) -> dict[str, Member]:
    """A list of members comes from the bucket: a name that no key can hold is nobody's."""
    found = {}
    for member in members:
        with contextlib.suppress(InvalidKey):
            found[worker_key(member.worker_id)] = member
    return found


def _ordinal_in(body: bytes) -> int:
    record = decode(body, Worker)
    return record.ordinal if isinstance(record, Worker) else 0
