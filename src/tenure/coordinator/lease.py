"""The lease of one namespace as this process handles it: every request to `state.json` and `terms/` is made here.

What to do is decided in `tenure.election`; here it is done, with three outcomes for every write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.layout import DAMAGED, STATE, TERM_NAMES, epoch_of, term_key
from tenure.election.decide import Rules, Stand
from tenure.election.records import (
    MAX_EPOCH,
    Damage,
    Record,
    State,
    Term,
    TooNew,
    decode,
    decode_state,
    encode,
    time_of_day,
)
from tenure.election.sight import Absent, Found, Known, Sight, judge, observe
from tenure.entropy import NewId
from tenure.errors import BodyTooLarge, NotFound, StoreError
from tenure.store import Applied, Attempt, Outcome, Remembers, Store, Stored, Strangers, Unknown, Version, commit, ours

MAX_REMEMBERED_WRITES = 32
MAX_GAP = 20
"""So many numbers below ours are looked at for terms that nobody recorded."""
_MS = 1_000_000


class Identity(msgspec.Struct, frozen=True):
    """This process start, under the name that people know it by."""

    worker_id: str
    uid: str


class Sent(msgspec.Struct, frozen=True):
    """A write of the lease: when its sending began, and under which grant."""

    at: Reading
    grant_id: str


class Grant(msgspec.Struct, frozen=True):
    """A compare-and-swap that we won. It is not leadership yet: the term record decides (E-3)."""

    state: State
    sent: Reading
    over: State | None
    after_damage: bool


class Held(msgspec.Struct, frozen=True):
    """The lease is ours. `sent`: when the write that is in force was sent; `None`: nothing new was confirmed."""

    sent: Reading | None
    landed: bool = False
    """It is the write that was just sent, with what it changed."""


class Taken(msgspec.Struct, frozen=True):
    """Somebody else was granted it."""

    by: str | None


class Spoilt(msgspec.Struct, frozen=True):
    """The lease is gone or unreadable."""

    reason: str


class Unsure(msgspec.Struct, frozen=True):
    """The store did not say."""

    error: StoreError


Standing = Held | Taken | Spoilt | Unsure


class LeaseDesk:
    """Reads, takes, renews and releases one lease."""

    def __init__(self, store: Store, who: Identity, rules: Rules, clock: Clock, draw_id: NewId) -> None:
        self._store = store
        self._who = who
        self._rules = rules
        self._clock = clock
        self._draw_id = draw_id
        self._sent: dict[str, Sent] = {}
        self._strangers = Strangers(told=False)
        self._renewals = 0
        self._term_attempt: Attempt | None = None
        self._mine_version: Version | None = None
        self.sight: Sight | None = None
        self.known = Known()
        self.mine: State | None = None
        """The lease as we last wrote or saw it, while it is ours."""
        self.trouble: StoreError | None = None
        """What the store said to the last write, if that was not decisive. Reading back may work all the same."""

    # Looking

    async def read(self) -> Sight:
        """One look, folded into what was seen. The clock is read after the answer (E-2). Raises `StoreError`."""
        found, version, body = await self._look()
        now = self._clock.read()
        return self._see(found, version, now, body)

    async def look_up_history(self) -> None:
        """There is no lease to go by: a new namespace, or one that lost it? Raises `StoreError`."""
        self._learn_history(max(await self._highest_term(), self.known.epoch))

    def _learn_history(self, history: int) -> None:
        """What cannot be read is watched together with the history: the watch begins anew when that has grown."""
        sight = self.sight
        if sight is not None and isinstance(sight.found, Absent | Damage):
            found = msgspec.structs.replace(sight.found, history=history)
            self._see(found, sight.version, self._clock.read(), sight.body)

    async def _look(self) -> tuple[Found, Version | None, bytes]:
        before = self.sight
        unless = before.version if before is not None and isinstance(before.found, State | Damage) else None
        try:
            answer = await self._store.get(STATE, unless=unless)
        except NotFound:
            found = before.found if before is not None and isinstance(before.found, Absent) else Absent()
            return found, None, b""
        if isinstance(answer, Stored):
            return decode_state(answer.body), answer.version, answer.body
        assert before is not None
        return before.found, before.version, before.body

    def _see(self, found: Found, version: Version | None, now: Reading, body: bytes = b"") -> Sight:
        before = self.sight
        found = judge(found, version, self.known, before, longest_lease=self._rules.longest_lease)
        if isinstance(found, State):
            self.known = self.known.with_state(found)
        gap = found.lease_seconds if isinstance(found, State) else self._rules.longest_lease
        self.sight = observe(before, found, version, now, body=body, max_gap=gap)
        return self.sight

    async def _highest_term(self) -> int:
        highest = 0
        async for entry in ours(self._store, TERM_NAMES, strangers=self._strangers):
            highest = max(highest, epoch_of(entry.key) or 0)
        return highest

    # Taking

    async def stand(self, action: Stand) -> Grant | None:
        """Try to take the lease in sight. `None`: we did not get it, or cannot know. Raises `StoreError`."""
        sight = self.sight
        assert sight is not None
        self.trouble = None  # whatever an earlier write met
        epoch = action.epoch
        if action.after_damage:
            above = await self.rebuild(sight)
            if above is None:
                return None
            epoch = above
        elif not await self._is_news(sight, epoch):
            return None
        over = action.over
        sent = self._clock.read()  # before sending (E-1)
        grant_id = self._draw_id()
        state = self._granted(epoch, over, grant_id, sent)
        outcome = await self._write(state, sight.version, sent)
        if isinstance(outcome, Applied):
            self._hold(state, outcome.version)
            return Grant(state, sent, over, action.after_damage)
        if (await self.read()).version != sight.version:
            self.trouble = None  # a write was taken: another's, to which ours lost, or ours
        return self._won(over, action.after_damage)

    async def _is_news(self, sight: Sight, epoch: int) -> bool:
        """Was neither `epoch` nor any above it ever granted? If one was, the lease in sight is an old one (E-9).

        One listing, since numbers below may be missing: a look at `epoch` alone would take a gap for the end.
        """
        oldest = max(1, epoch - MAX_GAP)
        highest = 0
        async for entry in ours(self._store, TERM_NAMES, after=term_key(oldest - 1), strangers=self._strangers):
            highest = max(highest, epoch_of(entry.key) or 0)
        if highest < epoch:
            if not isinstance(sight.found, State):
                return True
            return await self._record_previous(sight.found, range(max(highest + 1, oldest), epoch))
        # A term is recorded after its lease was written, so a lease that is read now shows at least that epoch.
        self.known = self.known.with_history(highest)
        self.sight = None  # the whole lease again, not "not modified"
        await self.read()
        return False

    async def _record_previous(self, over: State, unrecorded: range) -> bool:
        """Every grant is recorded, by its winner or by its successor (EL-18), and before ours is even taken.

        Afterwards would be too late: a lease that was put back meanwhile could be taken under the same number, and
        both winners would find their own term unrecorded. False: that epoch is another's. Raises `StoreError`.
        """
        for epoch in unrecorded:
            # Grants that were replaced before anybody else saw them are known by their numbers alone.
            known = epoch == over.epoch
            term = Term(
                write_id=self._draw_id(),
                epoch=epoch,
                leader_id=(over.leader_id or over.previous_leader) if known else None,  # if released: its last holder
                uid=over.uid if known else None,
                grant_id=over.grant_id if known else "unknown",
                elected_at=over.elected_at if known else "",
                unconfirmed=True,
            )
            outcome = await self._store.create(term_key(epoch), encode(term))
            if isinstance(outcome, Unknown):
                raise outcome.error
        return not await self._is_anothers(over)

    async def _is_anothers(self, state: State) -> bool:
        """Does the record of its epoch name another grant? Then that one may lead, and be granted more time."""
        try:
            stored = await self._store.get(term_key(state.epoch))
        except BodyTooLarge:
            return False  # as with any other record that cannot be read: nobody can have led by it
        assert isinstance(stored, Stored)
        term = decode(stored.body, Term)
        if not isinstance(term, Term) or term.unconfirmed or term.grant_id == state.grant_id:
            return False  # the grant in sight led, or nobody did
        self.known = Known(state.epoch, term.grant_id)
        self.sight = None
        await self.read()
        return True

    async def rebuild(self, sight: Sight) -> int | None:
        """Set what is damaged aside, and find the number above all history. Raises `StoreError`.

        `None`: somebody was granted the lease since we began to watch, so the watch begins anew.
        """
        history = await self._highest_term()
        assert isinstance(sight.found, Absent | Damage)
        if history > (sight.found.history or 0):
            self._learn_history(history)
            return None
        if sight.version is not None and sight.body:
            digest = hashlib.sha256(sight.body).hexdigest()[:32]
            outcome = await self._store.create(f"{DAMAGED}state-{digest}.json", sight.body)
            if isinstance(outcome, Unknown):
                raise outcome.error
        claimed = decode_state(sight.body) if sight.body else None
        said = claimed.epoch if isinstance(claimed, State) and claimed.epoch < MAX_EPOCH // 2 else 0
        return max(history, self.known.epoch, said) + 1

    def _granted(self, epoch: int, over: State | None, grant_id: str, sent: Reading) -> State:
        write_id = self._draw_id()
        by_transfer = over is not None and over.released and over.successor == self._who.worker_id
        return State(
            write_id=write_id,
            leader_id=self._who.worker_id,
            uid=self._who.uid,
            epoch=epoch,
            grant_id=grant_id,
            leader_write_id=write_id,
            lease_duration_ms=round(self._rules.lease * 1000),
            renewals=0,
            lease_expires_at=_in(sent, self._rules.lease),
            elected_at=time_of_day(sent.wall_ns),
            mandate_ends_at=_in(sent, self._rules.max_mandate),
            previous_leader=None if over is None else over.leader_id or over.previous_leader,
            pinned=by_transfer and over is not None and over.pinned,
            members_version=0 if over is None else over.members_version,
        )

    def _won(self, over: State | None, after_damage: bool) -> Grant | None:
        """Is the lease in sight one of ours, whose answer was lost or which was told to have failed?"""
        sight = self.sight
        if sight is None or not isinstance(sight.found, State) or sight.version is None:
            return None
        state = sight.found
        sent = self._sent.get(state.leader_write_id)
        if state.uid != self._who.uid or sent is None or sent.grant_id != state.grant_id:
            return None
        if over is not None and over.epoch + 1 != state.epoch:
            return None  # an earlier attempt of ours, over something else: taken anew rather than pieced together
        self._hold(state, sight.version)
        return Grant(state, sent.at, over, after_damage)

    def _hold(self, state: State, version: Version) -> None:
        self.mine, self._mine_version = state, version
        self.known = self.known.with_state(state)
        self._renewals = state.renewals
        self._term_attempt = None

    # Confirming

    async def confirm(self, grant: Grant, within: float) -> bool | None:
        """Record the term. True: it is ours. False: another's, and we must not lead. `None`: not known yet."""
        epoch = grant.state.epoch
        if self._term_attempt is None:
            self._term_attempt = Attempt(term_key(epoch), None)
        attempt = self._term_attempt

        def compose(write_id: str) -> bytes:
            return encode(_term(grant.state, write_id, after_damage=grant.after_damage))

        settled = await commit(
            self._store,
            attempt,
            compose,
            write_ids=lambda body: _write_id(body, Term),
            remembers=Remembers.EVERY_WRITE,
            draw_id=self._draw_id,
            clock=self._clock,
            tries=2,
            within=within,
        )
        if isinstance(settled.outcome, Unknown):
            return None
        if isinstance(settled.outcome, Applied) and settled.stored is not None:
            return True
        # A proxy's page may pass for a success; what leads to leadership is read back from the store itself.
        stored = settled.stored
        if stored is None:
            try:
                found = await self._store.get(term_key(epoch))
            except StoreError:
                return None
            assert isinstance(found, Stored)
            stored = found
        term = decode(stored.body, Term)
        if isinstance(term, Term) and term.write_id in attempt.ids:
            return True
        # The epoch is another's, who may lead: our own lease must not be taken for a free one.
        self.known = Known(epoch, term.grant_id if isinstance(term, Term) else "unreadable")
        return False

    # Keeping

    async def renew(self, sent: Reading, still_ours: Callable[[], bool], **changes: object) -> Standing:
        """Write the lease again: one request and no read, unless it does not go through. `sent`: read before."""
        for _ in range(2):
            assert self.mine is not None
            state = self._renewed(self.mine, sent, changes)
            outcome = await self._write(state, self._mine_version, sent)
            if isinstance(outcome, Applied):
                self._keep(state, outcome.version)
                return Held(sent, landed=True)
            before = self.mine.write_id
            standing = await self.settle(outcome)
            moved = self.mine is not None and self.mine.write_id != before
            if isinstance(standing, Held) and self.mine is not None and self.mine.leader_write_id == state.write_id:
                return Held(standing.sent, landed=True)
            if not (isinstance(standing, Held) and standing.sent is None and moved and still_ours()):
                return standing
            # An outsider's request came between (E-6): the lease is ours, only its version had moved.
            sent = self._clock.read()
        return Held(None)

    async def settle(self, outcome: Outcome) -> Standing:
        """What became of a write that was not plainly applied: read back, and compared with all that were sent."""
        try:
            stored = await self._store.get(STATE)
        except NotFound:
            return Spoilt("it is gone")
        except StoreError as error:
            return Unsure(outcome.error if isinstance(outcome, Unknown) else error)
        assert isinstance(stored, Stored)
        found = decode_state(stored.body)
        if isinstance(found, Damage):
            return Spoilt(found.reason)
        if isinstance(found, TooNew):
            return Spoilt(f"schemaVersion {found.schema_version}")
        assert self.mine is not None
        if found.grant_id != self.mine.grant_id:
            return Taken(found.leader_id)
        sent = self._sent.get(found.leader_write_id)
        is_news = found.leader_write_id != self.mine.leader_write_id
        self._keep(found, stored.version)
        return Held(sent.at if sent is not None and is_news else None)

    async def release(self, successor: str | None, pinned: bool) -> bool | None:
        """Give the lease away. True: it is given. False: it was not ours any more. `None`: not known."""
        for _ in range(2):
            mine = self.mine
            assert mine is not None
            sent = self._clock.read()
            write_id = self._draw_id()
            state = msgspec.structs.replace(
                mine,
                write_id=write_id,
                leader_write_id=write_id,
                leader_id=None,
                uid=None,
                renewals=self._renewals + 1,
                previous_leader=mine.leader_id or mine.previous_leader,
                successor=successor,
                pinned=pinned,
                handoff=None,
                lease_expires_at=time_of_day(sent.wall_ns),
            )
            outcome = await self._write(state, self._mine_version, sent)
            if isinstance(outcome, Applied):
                return True
            standing = await self.settle(outcome)
            if not isinstance(standing, Held):
                return None if isinstance(standing, Unsure) else False
            if self.mine is not None and self.mine.released:
                return True
        return None

    def let_go(self) -> None:
        """The term is over. What was seen meanwhile is seen anew."""
        self.mine = self._mine_version = self._term_attempt = None
        self.sight = None

    def _renewed(self, mine: State, sent: Reading, changes: dict[str, object]) -> State:
        write_id = self._draw_id()
        return msgspec.structs.replace(
            mine,
            write_id=write_id,
            leader_write_id=write_id,
            renewals=self._renewals + 1,
            lease_duration_ms=round(self._rules.lease * 1000),
            lease_expires_at=_in(sent, self._rules.lease),
            **changes,
        )

    def _keep(self, state: State, version: Version) -> None:
        self.mine, self._mine_version = state, version
        # A lease that was put back has an older count; going on from ours keeps followers from calling it rolled back.
        self._renewals = max(self._renewals, state.renewals)
        if state.renewals >= self.known.renewals:
            self.known = self.known.with_state(state)

    async def _write(self, state: State, expected: Version | None, sent: Reading) -> Outcome:
        self._sent[state.write_id] = Sent(sent, state.grant_id)  # before sending: a cancelled call may have been sent
        while len(self._sent) > MAX_REMEMBERED_WRITES:
            del self._sent[next(iter(self._sent))]
        body = encode(state)
        self.trouble = None
        if expected is None:
            outcome = await self._store.create(STATE, body)
        else:
            outcome = await self._store.replace(STATE, body, expected)
        if isinstance(outcome, Unknown):
            self.trouble = outcome.error
        return outcome


def _term(state: State, write_id: str, *, after_damage: bool) -> Term:
    return Term(
        write_id=write_id,
        epoch=state.epoch,
        leader_id=state.leader_id,
        uid=state.uid,
        grant_id=state.grant_id,
        elected_at=state.elected_at,
        previous_leader=state.previous_leader,
        after_damage=after_damage,
    )


def _write_id(body: bytes, kind: type[Record]) -> tuple[str, ...]:
    record = decode(body, kind)
    return (record.write_id,) if isinstance(record, kind) else ()


def _in(sent: Reading, seconds: float) -> str:
    return time_of_day(sent.wall_ns + round(seconds * 1000) * _MS)
