"""Every request to one lock's record, for one contender; each write has three outcomes."""

from __future__ import annotations

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.lock.records import LockRecord, decode_lock, lock_key
from tenure.coordinator.lock.rules import Absent, Found, Known, LockRules, Sight, Take, judge, observe
from tenure.election.records import Damage, TooNew, encode
from tenure.entropy import NewId
from tenure.errors import NotFound, StoreError
from tenure.store import Applied, Outcome, Store, Stored, Unknown, Version

MAX_REMEMBERED_WRITES = 32
_RELEASE_TRIES = 3
_WITHDRAW_TRIES = 6


class Watch(msgspec.Struct):
    """What one watcher has seen. Kept from one acquisition to the next, so that short ones add up to a long watch."""

    sight: Sight | None = None
    known: Known = Known()


class Grant(msgspec.Struct, frozen=True):
    """A compare-and-swap that we won, and when its sending began."""

    record: LockRecord
    sent: Reading


class Ours(msgspec.Struct, frozen=True):
    """The record is ours. `sent`: when the write that is in force was sent; `None`: nothing new was confirmed."""

    sent: Reading | None
    moved: bool = False
    """Its version is another than we knew, though nothing of ours was confirmed: somebody else touched it."""


class Taken(msgspec.Struct, frozen=True):
    """Somebody else was granted it. `after_release`: over our release, or not (`None`: not known)."""

    by: str
    after_release: bool | None


class Spoilt(msgspec.Struct, frozen=True):
    """The record is gone or unreadable."""

    reason: str


class Unsure(msgspec.Struct, frozen=True):
    """The store did not say."""

    error: StoreError


Standing = Ours | Taken | Spoilt | Unsure


class _Open(msgspec.Struct, frozen=True):
    """A write that may still land: its condition, and the grant that it would be."""

    expected: Version | None
    action: Take


class LockDesk:
    """Looks at, takes, renews and releases one lock on behalf of one acquisition."""

    def __init__(
        self, store: Store, name: str, uid: str, owner: str, rules: LockRules, clock: Clock, draw_id: NewId
    ) -> None:
        self._store = store
        self._name = name
        self._key = lock_key(name)
        self._owner = owner
        self._rules = rules
        self._clock = clock
        self._draw_id = draw_id
        self._sent: dict[str, Reading] = {}
        self._open: _Open | None = None
        self._mine_version: Version | None = None
        self.uid = uid
        self.watch = Watch()
        self.mine: LockRecord | None = None
        """The record as we last wrote or saw it, while it is ours."""

    # Looking and taking

    async def look(self) -> Sight:
        """One look, folded into what was seen. The clock is read after the answer (E-2). Raises `StoreError`."""
        before, known = self.watch.sight, self.watch.known
        unless = before.version if before is not None and isinstance(before.found, LockRecord) else None
        found: Found
        version: Version | None
        try:
            answer = await self._store.get(self._key, unless=unless)
        except NotFound:
            found, version = Absent(), None
        else:
            if isinstance(answer, Stored):
                found, version = decode_lock(answer.body, self._name), answer.version
            else:
                assert before is not None
                found, version = before.found, before.version
        return self._see(judge(found, known), version, self._clock.read())

    def _see(self, found: Found, version: Version | None, now: Reading) -> Sight:
        if isinstance(found, LockRecord) and found.token >= self.watch.known.token:
            self.watch.known = Known(found.token, found.uid)
        self.watch.sight = observe(self.watch.sight, found, version, now)
        if self._open is not None and not _same(self._open.expected, version):
            self._open = None  # its condition holds no more; if it has landed, what is in sight says so
        return self.watch.sight

    def won(self) -> Grant | None:
        """Is the record in sight one of ours, whose answer was lost or which was told to have failed?"""
        sight = self.watch.sight
        if sight is None or not isinstance(sight.found, LockRecord) or sight.version is None:
            return None
        record = sight.found
        sent = self._sent.get(record.holder_write_id)
        if record.uid != self.uid or record.released or sent is None:
            return None
        self.mine, self._mine_version = record, sight.version
        return Grant(record, sent)

    async def take(self, action: Take) -> Grant | Outcome:
        """Try to take what is in sight. Anything but a grant: look again, and see what became of it."""
        sight = self.watch.sight
        assert sight is not None
        record = self._granted(action)
        sent = self._clock.read()  # before sending (E-1)
        self._open = _Open(sight.version, action)
        outcome = await self._write(record, sight.version, sent)
        if not isinstance(outcome, Applied):
            return outcome
        self._open = None
        self.mine, self._mine_version = record, outcome.version
        self._see(record, outcome.version, self._clock.read())
        return Grant(record, sent)

    def _granted(self, action: Take, *, released: bool = False) -> LockRecord:
        write_id = self._draw_id()
        return LockRecord(
            write_id=write_id,
            name=self._name,
            uid=self.uid,
            owner=self._owner,
            token=action.token,
            holder_write_id=write_id,
            ttl_ms=round(self._rules.ttl * 1000),
            released=released,
            over_lapsed=action.over_lapsed,
        )

    @property
    def may_have_landed(self) -> bool:
        """Did this contender send a write that may be, or may yet become, the lock's record?"""
        found = self.watch.sight.found if self.watch.sight is not None else None
        return self._open is not None or (isinstance(found, LockRecord) and found.uid == self.uid)

    async def withdraw(self) -> bool:
        """Nobody wants the lock any more that we tried to take: see to it that it is free. False: it must lapse.

        A write that may still land is kept from landing by moving the version that it depends on: the grant is
        written once more, as one that is released.
        """
        for attempt in range(_WITHDRAW_TRIES):
            if attempt:
                await self._clock.sleep(self._rules.renew_retry * 2.0 ** (attempt - 1))
            try:
                await self.look()
            except StoreError:
                continue
            if self.won() is not None:
                if await self.release() is not None:
                    return True
                continue
            pending, sight = self._open, self.watch.sight
            if pending is None or sight is None:
                return True
            closed = self._granted(pending.action, released=True)
            if isinstance(await self._write(closed, pending.expected, self._clock.read()), Applied):
                self._open = None
                return True
        return False

    # Keeping

    async def renew(self, sent: Reading) -> Standing:
        """Write the record again: one request and no read, unless it does not go through. `sent`: read before."""
        assert self.mine is not None
        write_id = self._draw_id()
        record = msgspec.structs.replace(self.mine, write_id=write_id, holder_write_id=write_id)
        outcome = await self._write(record, self._mine_version, sent)
        if isinstance(outcome, Applied):
            self.mine, self._mine_version = record, outcome.version
            return Ours(sent)
        return await self._settle(outcome)

    async def release(self) -> bool | None:
        """Give it back. True: it was ours until then. False: it was not. `None`: not known."""
        unanswered = False
        for attempt in range(_RELEASE_TRIES):
            if attempt:
                await self._clock.sleep(self._rules.renew_retry)
            assert self.mine is not None
            write_id = self._draw_id()
            record = msgspec.structs.replace(self.mine, write_id=write_id, holder_write_id=write_id, released=True)
            outcome = await self._write(record, self._mine_version, self._clock.read())
            if isinstance(outcome, Applied):
                return True
            unanswered = unanswered or isinstance(outcome, Unknown)
            standing = await self._settle(outcome)
            if isinstance(standing, Taken):
                # Where every release was turned down, hardly one of them is what the others came after.
                return standing.after_release if unanswered else bool(standing.after_release)
            if isinstance(standing, Spoilt):
                return False
            if self.mine.released:
                return True
        return None

    async def _settle(self, outcome: Outcome) -> Standing:
        """What became of a write that was not plainly applied: read back, and compared with all that were sent.

        A rejection too: something between us and the store may have sent the write twice.
        """
        try:
            stored = await self._store.get(self._key)
        except NotFound:
            return Spoilt("its record is gone")
        except StoreError as error:
            return Unsure(outcome.error if isinstance(outcome, Unknown) else error)
        assert isinstance(stored, Stored)
        found = decode_lock(stored.body, self._name)
        if isinstance(found, Damage):
            return Spoilt(f"its record is damaged: {found.reason}")
        if isinstance(found, TooNew):
            return Spoilt(f"its record was written by a newer tenure, schemaVersion {found.schema_version}")
        mine = self.mine
        assert mine is not None
        if found.uid != self.uid or found.token != mine.token:
            next_grant = found.token == mine.token + 1
            return Taken(found.owner, not found.over_lapsed if next_grant else None)
        sent = self._sent.get(found.holder_write_id)
        is_news = found.holder_write_id != mine.holder_write_id
        moved = not _same(self._mine_version, stored.version)
        self.mine, self._mine_version = found, stored.version
        if sent is not None and is_news:
            return Ours(sent)
        if moved:
            return Ours(None, moved=True)
        return Unsure(outcome.error) if isinstance(outcome, Unknown) else Ours(None)

    async def _write(self, record: LockRecord, expected: Version | None, sent: Reading) -> Outcome:
        self._sent[record.write_id] = sent  # before sending: a cancelled call may have been sent
        while len(self._sent) > MAX_REMEMBERED_WRITES:
            del self._sent[next(iter(self._sent))]
        body = encode(record)
        try:
            if expected is None:
                return await self._store.create(self._key, body)
            return await self._store.replace(self._key, body, expected)
        except StoreError as error:
            return Unknown(error)  # a store that is closed says so by raising


def _same(one: Version | None, other: Version | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.matches(other)
