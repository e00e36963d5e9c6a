"""Is the history of a namespace what it must be? Read from the bucket alone, and judged without asking any worker.

Guarantee: nothing is written. A grant is recorded some requests after it was made, so what may only be late is reported
if it was still missing at a second look.

Assumption: nobody removes records from `terms/`. There is no trimming, so the numbers begin with 1.

Not guaranteed: that a history without findings is the true one. Whoever can write to the bucket can write a consistent
lie. In particular: a record that says that it came after damage excuses the numbers missing below it, whoever wrote
that; a record of another namespace passes, if the names of the leaders fit; and a record whose successor never led has
no witness, since only winners note whose the lease was. If the lease, the newest terms and `members.json` were all put
back to the same moment, the bucket has nothing left that could tell. The newest term is not missed if its leader
released it before the first renewal, to nobody in particular: a winner that never led leaves the same.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec

from tenure.clock import Clock
from tenure.coordinator.layout import MEMBERS, METADATA, STATE, TERM_NAMES, epoch_of, term_key
from tenure.coordinator.reading import read_state
from tenure.election.records import (
    MAX_MEMBERS_BYTES,
    MAX_RECORD_BYTES,
    Damage,
    Members,
    State,
    Term,
    TooNew,
    decode,
)
from tenure.errors import NotFound, SchemaTooNew
from tenure.store import Entry, Store, Stored, Strangers, ours

MAX_FINDINGS = 1000
MAX_TIMELINE = 1000
MAX_UNCONFIRMED = 1000
MAX_GRANTS_REMEMBERED = 100_000
_AT_ONCE = 16
_SECOND_LOOK_AFTER = 3.0


class FindingKind(enum.Enum):
    MISSING = "missing"
    """A number has no record, and the record after it does not say that the lease was rebuilt; or nothing comes after
    it, and the lease or the list of members shows that it was led."""
    MISMATCH = "mismatch"
    """A record lies under the number of another epoch: two leaders may claim one of them."""
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"
    """Something in `terms/` that tenure did not put there."""
    NOBODY = "nobody"
    """A confirmed term without a leader."""
    SAME_GRANT = "same-grant"
    """Two epochs under one grant: a record was copied."""
    LEASE_MISSING = "lease-missing"
    LEASE_UNREADABLE = "lease-unreadable"
    LEASE_BEHIND = "lease-behind"
    """The lease is of an epoch below the newest term or list of members: it was put back."""
    LEASE_AHEAD = "lease-ahead"
    """The lease is two or more epochs above the newest term: records were removed, or never written."""
    LEASE_DIFFERS = "lease-differs"
    """The lease and the term of its epoch name two grants or two leaders: the epoch was granted twice."""
    TWO_LEADERS = "two-leaders"
    """The record of an epoch names one leader, and the record or lease after it another: one of them was replaced."""


MAY_BE_LATE = frozenset({FindingKind.MISSING, FindingKind.LEASE_AHEAD})


class Finding(msgspec.Struct, frozen=True):
    """Something that cannot be, in the object `key`."""

    kind: FindingKind
    key: str
    detail: str


class TermEnd(enum.Enum):
    """How a term ended, as far as the bucket knows: a lease that lapsed and one that was handed over look alike."""

    HOLDS = "holds"
    """It has not: the lease is of this epoch. Whether its holder is alive, only watching can tell."""
    RELEASED = "released"
    REPLACED = "replaced"
    """The next epoch was granted."""
    DAMAGED = "damaged"
    """The lease was lost or damaged, and rebuilt by the next leader."""
    NEVER_LED = "never-led"
    UNKNOWN = "unknown"


class TermSeen(msgspec.Struct, frozen=True):
    """One leadership of the history. Times of day are for people."""

    epoch: int
    leader: str | None
    elected_at: str
    confirmed: bool
    """False: its winner never recorded it, and so never led."""
    after_damage: bool
    ended: TermEnd = TermEnd.UNKNOWN
    held_seconds: float | None = None
    """About: from its own time of day to that of the next. Those are clocks of two hosts, so it is for people."""


class Audit(msgspec.Struct, frozen=True):
    """What the history says; true if it is `ok`.

    At most `MAX_FINDINGS` findings are kept, and the newest `MAX_TIMELINE` terms.
    """

    ok: bool
    namespace: str
    founded: bool
    """False: there is nothing at all of such a namespace."""
    terms: int
    """Records that could be read."""
    lease_epoch: int | None
    unconfirmed: tuple[int, ...]
    """Epochs that were granted, and whose winner never led. Not a fault: it crashed, or was too slow."""
    findings: tuple[Finding, ...]
    findings_left_out: int
    timeline: tuple[TermSeen, ...]

    def __bool__(self) -> bool:
        return self.ok


Lease = State | Damage | TooNew | None
OnProgress = Callable[[int], None]
"""Told how many records were read, after each batch."""


class History:
    """Folds the records of `terms/`, in the order of their keys. Pure: what was read is handed in."""

    def __init__(self) -> None:
        self.terms = 0
        self.highest = 0
        """The highest number of any record, readable or not."""
        self.findings: list[Finding] = []
        self.left_out = 0
        self.unconfirmed: deque[int] = deque(maxlen=MAX_UNCONFIRMED)
        self.timeline: deque[TermSeen] = deque(maxlen=MAX_TIMELINE)
        self._grants: dict[str, int] = {}
        self._newest: deque[tuple[str, Term]] = deque(maxlen=2)

    def add(self, key: str, body: bytes | Damage) -> None:
        """The next object, or why its body was not read. Raises `SchemaTooNew`: then nothing can be judged."""
        if not is_term_key(key):
            self._report(FindingKind.FOREIGN, key, "no term record has such a name")
            return
        epoch = epoch_of(key)
        assert epoch is not None
        assert epoch > self.highest, "in the order of keys"
        first, self.highest = self.highest + 1, epoch
        term = body if isinstance(body, Damage) else decode(body, Term)
        if isinstance(term, TooNew):
            raise _too_new(key, term)
        if first < epoch and not (isinstance(term, Term) and term.after_damage):
            detail = (
                f"{_epochs(first, epoch - 1)} not on record, and epoch {epoch} does not say that it came after damage"
            )
            self._report(FindingKind.MISSING, term_key(first), detail)
        if isinstance(term, Damage):
            self._report(FindingKind.UNREADABLE, key, term.reason)
        elif term.epoch != epoch:
            self._report(FindingKind.MISMATCH, key, f"the record in it is of epoch {term.epoch}, by {term.leader_id!r}")
        else:
            self._add_term(key, term)

    def _add_term(self, key: str, term: Term) -> None:
        self.terms += 1
        if term.unconfirmed:
            self.unconfirmed.append(term.epoch)
        elif term.leader_id is None or term.uid is None:
            self._report(FindingKind.NOBODY, key, f"epoch {term.epoch} is confirmed, and names no leader")
        if not _is_known_by_number_alone(term):
            self._add_grant(key, term)
        if not term.after_damage and self._newest:
            self._compare_leaders(*self._newest[-1], f"epoch {term.epoch}", term.epoch, term.previous_leader)
        self._newest.append((key, term))
        self.timeline.append(
            TermSeen(term.epoch, term.leader_id, term.elected_at, not term.unconfirmed, term.after_damage)
        )

    def _compare_leaders(self, key: str, before: Term, witness: str, epoch: int, previous_leader: str | None) -> None:
        """Whoever takes a lease over notes whose it was. After damage, and for those who never led, nobody may have."""
        if before.epoch != epoch - 1 or before.leader_id is None or previous_leader is None:
            return
        if before.leader_id != previous_leader:
            detail = (
                f"epoch {before.epoch} is {before.leader_id!r}'s here, and was {previous_leader!r}'s says {witness}: "
                "one of the two was replaced"
            )
            self._report(FindingKind.TWO_LEADERS, key, detail)

    def _add_grant(self, key: str, term: Term) -> None:
        before = self._grants.get(term.grant_id)
        if before is not None:
            self._report(FindingKind.SAME_GRANT, key, f"epoch {term.epoch} has the grant of epoch {before}")
        self._grants[term.grant_id] = term.epoch
        if len(self._grants) > MAX_GRANTS_REMEMBERED:
            del self._grants[next(iter(self._grants))]

    def compare(self, lease: Lease, recorded_before: int, term: Term | None, led_before: int = 0) -> None:
        """Judge the lease and the end of the history, once all of it has been added.

        `recorded_before` is the highest number that was on record *before* the lease was read: a term is recorded after
        its lease was written, so the lease cannot be below it. `term` is the record of the lease's own epoch.
        `led_before` is the epoch of `members.json`, read before all else; 0: nothing is known. A leader writes that
        once its term is recorded.
        """
        if isinstance(lease, TooNew):
            raise _too_new(STATE, lease)
        granted = max(recorded_before, led_before)
        where = "on record" if granted <= recorded_before else f"in {MEMBERS}"
        if lease is None:
            if granted:
                detail = f"it is gone, and epoch {granted} was once granted: it is {where}"
                self._report(FindingKind.LEASE_MISSING, STATE, detail)
        elif isinstance(lease, Damage):
            self._report(FindingKind.LEASE_UNREADABLE, STATE, lease.reason)
        elif lease.epoch < granted:
            detail = f"it is of epoch {lease.epoch}, and epoch {granted} is {where}: an old lease was put back"
            self._report(FindingKind.LEASE_BEHIND, STATE, detail)
        elif lease.epoch > self.highest + 1:
            absent = lease.epoch if term is None and _led(lease, led_before) else lease.epoch - 1
            missing = _epochs(self.highest + 1, absent)
            self._report(FindingKind.LEASE_AHEAD, STATE, f"it is of epoch {lease.epoch}, and {missing} not on record")
            return
        elif term is not None and not _is_known_by_number_alone(term):
            self._compare_grant(lease, term)
        if isinstance(lease, State):
            self._compare_previous(lease, term)
        self._compare_end(lease if term is None and isinstance(lease, State) else None, led_before)

    def _compare_grant(self, lease: State, term: Term) -> None:
        here = lease.leader_id or lease.previous_leader  # a released lease names its last holder
        whose = f"epoch {lease.epoch} was granted twice: it is {here!r}'s here, and {term.leader_id!r}'s on record"
        if lease.grant_id != term.grant_id:
            self._report(FindingKind.LEASE_DIFFERS, STATE, f"{whose}, under another grant")
        elif term.leader_id is not None and here != term.leader_id:
            self._report(FindingKind.LEASE_DIFFERS, STATE, whose)
        elif term.uid is not None and not lease.released and lease.uid != term.uid:
            self._report(FindingKind.LEASE_DIFFERS, STATE, f"{whose}, of another start")

    def _compare_previous(self, lease: State, term: Term | None) -> None:
        """Where the winner has not noted whose the lease was, the lease still does, until it is released."""
        if lease.released or (term is not None and term.previous_leader is not None):
            return
        for key, before in self._newest:
            self._compare_leaders(key, before, "the lease", lease.epoch, lease.previous_leader)

    def _compare_end(self, unrecorded: State | None, led_before: int) -> None:
        """Are the newest terms on record? `unrecorded`: the lease, if its own term is not."""
        led = led_before
        why = f"{MEMBERS} is of epoch {led_before}"
        if unrecorded is not None and unrecorded.epoch >= led_before and _led(unrecorded, led_before):
            led = unrecorded.epoch
            why = f"the lease, and what its holder wrote, show that epoch {led} was led"
        if led > self.highest:
            detail = f"{_epochs(self.highest + 1, led)} not on record, and {why}"
            self._report(FindingKind.MISSING, term_key(self.highest + 1), detail)

    def _report(self, kind: FindingKind, key: str, detail: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(kind, key, detail))
        else:
            self.left_out += 1


async def audit(store: Store, namespace: str, clock: Clock, *, progress: OnProgress = lambda records: None) -> Audit:
    """Read all of `terms/`, the lease and the list of members, and judge them. `store` is the namespace's.

    A listing, and a GET for each term and a few more; all of it twice if something seems to be missing. Raises
    `StoreError` if the store did not say, and `SchemaTooNew`.
    """
    result = await _look(store, namespace, progress)
    if any(finding.kind in MAY_BE_LATE for finding in result.findings):
        await clock.sleep(_SECOND_LOOK_AFTER)
        result = await _look(store, namespace, progress)
    return result


async def _look(store: Store, namespace: str, progress: OnProgress) -> Audit:
    history = History()
    led_before = await _led_before(store)  # before all else: whatever it names must be in what is read after it
    records = 0
    async for key, body in _records(store):
        history.add(key, body)
        records += 1
        if records % _AT_ONCE == 0:
            progress(records)
    recorded_before = history.highest
    lease = await read_state(store)
    term = None
    if isinstance(lease, State):
        if lease.epoch > history.highest:
            # Granted while the history was read: go on from there.
            async for key, body in _records(store, after=term_key(history.highest)):
                if is_term_key(key):
                    history.add(key, body)
        term = await _term(store, lease.epoch)
    history.compare(lease, recorded_before, term, led_before)
    founded = history.highest > 0 or lease is not None or bool(history.findings) or await _is_founded(store)
    return Audit(
        ok=not history.findings,
        namespace=namespace,
        founded=founded,
        terms=history.terms,
        lease_epoch=lease.epoch if isinstance(lease, State) else None,
        unconfirmed=tuple(history.unconfirmed),
        findings=tuple(history.findings),
        findings_left_out=history.left_out,
        timeline=with_ends(history.timeline, lease),
    )


def with_ends(terms: Sequence[TermSeen], lease: Lease) -> tuple[TermSeen, ...]:
    """How each term ended, by what came after it."""
    return tuple(
        _with_end(term, terms[index + 1] if index + 1 < len(terms) else None, lease) for index, term in enumerate(terms)
    )


def _with_end(term: TermSeen, after: TermSeen | None, lease: Lease) -> TermSeen:
    if not term.confirmed:
        return msgspec.structs.replace(term, ended=TermEnd.NEVER_LED)
    if after is not None:
        ended = TermEnd.DAMAGED if after.after_damage else TermEnd.REPLACED
        # A number that is missing between them may have been anybody's for any time.
        held = _seconds_between(term.elected_at, after.elected_at) if after.epoch == term.epoch + 1 else None
        return msgspec.structs.replace(term, ended=ended, held_seconds=held)
    if not isinstance(lease, State) or lease.epoch < term.epoch:
        return term
    if lease.epoch > term.epoch:
        return msgspec.structs.replace(term, ended=TermEnd.REPLACED)
    return msgspec.structs.replace(term, ended=TermEnd.RELEASED if lease.released else TermEnd.HOLDS)


def _seconds_between(first: str, second: str) -> float | None:
    """`None` where one is no time of day, or the clocks of the two hosts disagree about which came first."""
    try:
        seconds = (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if seconds >= 0 else None


async def _records(store: Store, after: str | None = None) -> AsyncIterator[tuple[str, bytes | Damage]]:
    """What lies in `terms/`, ours in the order of keys; some are read at once, and no more than those are held."""
    batch: list[Entry] = []
    strangers = Strangers()
    async for entry in ours(store, TERM_NAMES, after=after, strangers=strangers):
        batch.append(entry)
        if len(batch) == _AT_ONCE:
            for record in await _read(store, batch):
                yield record
            batch.clear()
    for record in await _read(store, batch):
        yield record
    for key in strangers.met:
        yield key, b""


async def _read(store: Store, batch: list[Entry]) -> list[tuple[str, bytes | Damage]]:
    bodies = await asyncio.gather(*(_body(store, entry) for entry in batch))
    return [(entry.key, body) for entry, body in zip(batch, bodies, strict=True)]


async def _body(store: Store, entry: Entry) -> bytes | Damage:
    if not is_term_key(entry.key):
        return b""
    if entry.size > MAX_RECORD_BYTES:
        return Damage(f"{entry.size:,} bytes, and no record of ours is over {MAX_RECORD_BYTES:,}")
    try:
        stored = await store.get(entry.key)
    except NotFound:
        return Damage("it was listed, and is gone: somebody removes records")
    assert isinstance(stored, Stored)
    return stored.body


async def _term(store: Store, epoch: int) -> Term | None:
    """The record of that epoch, if it can be read; one that cannot is reported from the listing."""
    try:
        stored = await store.get(term_key(epoch))
    except NotFound:
        return None
    assert isinstance(stored, Stored)
    term = decode(stored.body, Term)
    return term if isinstance(term, Term) and term.epoch == epoch else None


async def _led_before(store: Store) -> int:
    """The epoch of the list of members; 0 if there is none, or it cannot be read: it is a witness, not the history."""
    try:
        stored = await store.get(MEMBERS)
    except NotFound:
        return 0
    assert isinstance(stored, Stored)
    members = decode(stored.body, Members, MAX_MEMBERS_BYTES)
    if isinstance(members, TooNew):
        raise _too_new(MEMBERS, members)
    return members.epoch if isinstance(members, Members) else 0


async def _is_founded(store: Store) -> bool:
    try:
        await store.get(METADATA)
    except NotFound:
        return False
    return True


def _led(lease: State, led_before: int) -> bool:
    """Had the holder of this lease confirmed its term? Only then does it renew, or write the list of members.

    A winner that has not may give the lease away, once and to nobody in particular, and that counts as a renewal too.
    """
    if lease.released and lease.renewals < 2:
        return lease.successor is not None or led_before == lease.epoch
    return lease.renewals >= 1 or led_before == lease.epoch


def _is_known_by_number_alone(term: Term) -> bool:
    """Granted, and replaced before anybody saw whose it was: a later winner recorded the number."""
    return term.unconfirmed and term.leader_id is None


def is_term_key(key: str) -> bool:
    epoch = epoch_of(key)
    return epoch is not None and epoch > 0 and key == term_key(epoch)


def _too_new(key: str, found: TooNew) -> SchemaTooNew:
    return SchemaTooNew(
        f"{key} was written by a newer tenure (schemaVersion {found.schema_version}): update this command"
    )


def _epochs(first: int, last: int) -> str:
    return f"epoch {first} is" if first == last else f"epochs {first} to {last} are"
