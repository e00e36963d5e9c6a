"""Who else is there: this worker's own record, the live members, and who ranks better than the leader."""

from __future__ import annotations

from collections.abc import Callable

from tenure.clock import Clock, Reading
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.lead import Lead
from tenure.coordinator.lease import Identity
from tenure.coordinator.membership import MemberList, OwnRecord, Roster, StampedBeat, by_key
from tenure.election.rank import MAX_STEPS, first, precedes, ranked, successor
from tenure.election.records import Member
from tenure.entropy import NewId
from tenure.errors import StoreError
from tenure.store import Store

_MAX_SUCCESSORS_ASKED = 3
_RIVAL_ASKED_EVERY = 12  # heartbeats
_SURELY_LAST = 50
"""Of so many before us some live, whoever went down with the leader: our turn comes last, and nobody need be asked."""


class Fleet:
    """The members of one namespace, as this process sees them. Used on the coordinator's loop alone."""

    def __init__(
        self,
        store: Store,
        who: Identity,
        config: CoordinatorConfig,
        clock: Clock,
        draw_id: NewId,
        *,
        failed: Callable[[StoreError], None],
        pulse: Callable[[], str],
    ) -> None:
        self._who = who
        self._priority = config.priority
        self._eligible = config.eligible
        self._failed = failed
        self._own = OwnRecord(
            *(store, who, config.priority, config.worker_timeout, clock, draw_id),
            eligible=config.eligible,
            pulse=pulse,
        )
        self._roster = Roster(store, self._own, who, config.worker_timeout, clock)
        self._list = MemberList(store, draw_id)
        self.members: tuple[Member, ...] = ()
        self._missed: set[str] = set()
        """Keys of those whom the last leader counted, and an election did not: they left, or will time out."""
        self._surveys = 0
        self._rival = ("", 0, False)
        self._heir: tuple[tuple[tuple[Member, ...], str], bool] = (((), ""), False)

    @property
    def stamped_beat(self) -> StampedBeat | None:
        """The newest record of ours whose time in the store is known. Read from any thread."""
        return self._roster.stamped

    @property
    def registered(self) -> Reading | None:
        """When this worker's record was first stored."""
        return self._own.registered

    async def beat(self, *, leading: bool, epoch: int, healthy: bool) -> None:
        """Rewrite this worker's record. Raises `WorkerReplaced` if a newer process has its id."""
        await self._own.beat(leading=leading, epoch=epoch, healthy=healthy)

    async def deregister(self) -> None:
        await self._own.remove()

    # As a follower

    async def read(self, version: int) -> bool:
        """Learn of the members from the leader's list, if it moved. True: it did."""
        if version == self._list.version or not await self._list.read(version):
            return False
        self.members = self._list.members
        return True

    async def place(self, lapsed_uid: str | None) -> int:
        """How many come before us, now that the lease of `lapsed_uid` is over: as many as matter at most."""
        own = self._self
        # All of a fleet ask at once: in a large one, a listing each would be more than a store takes.
        if sum(member.uid != lapsed_uid and precedes(member, own) for member in self.members) >= _SURELY_LAST:
            return MAX_STEPS
        return await self._roster.place(own, self.members, but=lapsed_uid, most=MAX_STEPS)

    def forget_ranking(self) -> None:
        """That election is over: no listing ranks the candidates of the next one yet."""
        self._roster.ranked, self._roster.ranked_all = None, False

    def present(self, lapsed_uid: str | None) -> tuple[Member, ...]:
        """Who is alive at an election: the listing that ranked us; without one, those known but for `lapsed_uid`."""
        found = self._roster.ranked
        if found is None:
            found = tuple(member for member in self.members if member.uid != lapsed_uid)
        if self.registered is None:
            return found
        known = by_key(found) | by_key((self._self,))
        return tuple(known[key] for key in sorted(known))

    @property
    def is_ranked(self) -> bool:
        """Was there a listing for this election?"""
        return self._roster.ranked is not None

    @property
    def is_known(self) -> bool:
        """Did it name every live worker?"""
        return self._roster.ranked_all

    @property
    def _self(self) -> Member:
        return Member(self._who.worker_id, self._who.uid, self._priority, self._eligible)

    def is_heir_of(self, holder_uid: str) -> bool:
        """Are we next in rank?"""
        asked = (self.members, holder_uid)
        if asked != self._heir[0]:
            heir = successor(*asked)
            self._heir = (asked, heir is not None and heir.uid == self._who.uid)
        return self._heir[1]

    # As the leader

    def begin_to_lead(self, lapsed_uid: str | None) -> None:
        """Over the lease of `lapsed_uid`, if it was not given away."""
        self._list.forget()
        self._roster.begin_anew(self.members)
        self._missed = set(by_key(self.members))
        self.members = self.present(lapsed_uid)

    async def count(self) -> int:
        """Find the members by a listing. Gives how many of those known before timed out; old records are removed."""
        self._surveys += 1
        survey = await self._roster.survey()
        # Whoever left politely has removed its record; only those whose record grew old have timed out.
        gone = (self._missed | by_key(self.members).keys()) & set(survey.gone) if survey.gone else ()
        self._missed.difference_update(gone, by_key(survey.members) if self._missed else ())
        await self._roster.remove(survey.forgotten)
        self.members = survey.members
        return len(gone)

    async def rival(self, *, hand_over: bool) -> tuple[str | None, str | None]:
        """Does a live, healthy worker rank better than we do? (By rank, and by priority.)

        Asked of the record itself, once a candidate appears. By rank alone only if mandates are handed over.
        """
        best = first(self.members)
        if best is None or best.uid == self._who.uid:
            return None, None
        outranks = best.priority > self._priority
        if outranks or hand_over:
            uid, looked, fit = self._rival
            if best.uid != uid or self._surveys - looked >= _RIVAL_ASKED_EVERY:
                worker = await self._roster.look_at(best)
                fit = worker is not None and worker.healthy and worker.priority == best.priority
                self._rival = (best.uid, self._surveys, fit)
            if not fit:
                return None, None
        return best.worker_id, best.worker_id if outranks else None

    async def publish(self, lead: Lead, known_version: int) -> int | None:
        """Write the list of members if it changed; its new version, which the lease is to carry."""
        if self.members == self._list.members and self._list.version >= 1:
            return None
        version = max(self._list.version, known_version) + 1
        return version if await self._list.write(self.members, lead.epoch, version) else None

    async def choose_successor(self) -> str | None:
        """The first in rank whose own record says that it is healthy."""
        others = [member for member in ranked(self.members) if member.uid != self._who.uid]
        for member in others[:_MAX_SUCCESSORS_ASKED]:
            try:
                worker = await self._roster.look_at(member)
            except StoreError as error:
                self._failed(error)
                return member.worker_id
            if worker is not None and worker.healthy:
                return member.worker_id
        return None
