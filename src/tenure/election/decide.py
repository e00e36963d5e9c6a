"""What a process should do next about the lease: a function of what it knows, what it saw, and the time on its clock.

`decide` is asked again after every action and every rest; it keeps nothing. The actions are carried out by
`tenure.coordinator`, in production and in the simulator alike.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from tenure.clock import Reading
from tenure.election.holding import Holding
from tenure.election.records import Damage, Handoff, State, TooNew
from tenure.election.sight import Absent, Sight


class MandateEnd(enum.Enum):
    """What a leader does when `max_epoch_duration` is over."""

    RENEW = "renew"
    """It stays, under the same epoch, for another mandate."""
    HAND_OVER = "hand over"
    """It makes way for a live worker that ranks better, if there is one."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The timing of the lease, in seconds."""

    lease: float
    leads_for: float
    """After the last confirmed renewal was sent; then the term is over (`renew_deadline`)."""
    drift: float
    margin: float
    longest_lease: float
    takeover_delay: float
    looks_every: float = 0.0
    """How often a follower that is not the next in rank looks at the lease."""
    renew_retry: float
    min_mandate: float
    max_mandate: float
    mandate_end: MandateEnd
    drain_timeout: float

    @property
    def lasts(self) -> float:
        """How long a leader may rely on a lease that it wrote (E-1)."""
        return self.lease * (1 - self.drift)

    def lapses_after(self, lease: float) -> float:
        """How long a follower must have watched the same write before that lease is over (E-2)."""
        return lease * (1 + self.drift) + self.margin

    @property
    def damage_lapses_after(self) -> float:
        """The holder of a lease that cannot be read may have been granted the longest one there is (E-9)."""
        return self.lapses_after(self.longest_lease)


class Turn(msgspec.Struct, frozen=True):
    """Our place in the order of takeover, drawn for one state of the lease."""

    mark: str
    delay: float
    """Seconds to let those before us go first."""
    since: Reading
    """When it was drawn: those before us may have begun no earlier."""


class Drain(msgspec.Struct, frozen=True):
    """A leader that is on its way out: it says that it does not lead, and keeps the lease until its work has ended."""

    reason: str
    since: Reading
    to: str | None = None
    pinned: bool = False
    done: bool = False
    """Its hooks have returned: the lease may go."""


class Tenure(msgspec.Struct, frozen=True, kw_only=True):
    """A grant that this process issued to itself, as far as it has got."""

    epoch: int
    holding: Holding
    confirmed: bool
    """The term record is ours: only now does it lead (E-3)."""
    granted: Reading
    mandate_since: Reading
    pinned: bool = False
    request: Handoff | None = None
    outranked_by: str | None = None
    """A live worker of better priority."""
    preceded_by: str | None = None
    """A live worker that ranks better, if only by its id."""
    ended: str | None = None
    """Why it is over, once somebody was told that it is: a term never comes back."""
    drain: Drain | None = None
    leave: str | None = None
    """Why this process wants to stop leading: asked to, unhealthy, stopping."""
    leave_to: str | None = None
    renew_now: bool = False
    """The heartbeat is due."""
    last_try: Reading | None = None
    """When a confirmation or renewal that has not succeeded was last tried."""


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `decide` goes by."""

    rules: Rules
    uid: str
    worker_id: str
    sight: Sight | None = None
    turn: Turn | None = None
    tenure: Tenure | None = None
    may_stand: bool = False
    """Eligible, healthy, registered, and the circuit breaker lets us."""
    look_now: bool = False
    """The heartbeat is due."""
    look_every: float | None = None
    """The standby looks more often than at each heartbeat."""


class Watch(msgspec.Struct, frozen=True):
    """Read the lease."""


class Wait(msgspec.Struct, frozen=True):
    """Nothing is to be done for so many seconds; `None`: until something happens."""

    seconds: float | None


class LookUpHistory(msgspec.Struct, frozen=True):
    """There is no lease, or none that can be read: see what was granted before."""


class Survey(msgspec.Struct, frozen=True):
    """The lease is free: find out whose turn it is."""


class Stand(msgspec.Struct, frozen=True):
    """Take the lease, by compare-and-swap on what is in sight (`over`), or by creating it."""

    epoch: int
    over: State | None
    after_damage: bool = False


class Confirm(msgspec.Struct, frozen=True):
    """Write the term record."""


class Renew(msgspec.Struct, frozen=True):
    """Write the lease again; `mandate`: for another mandate as well."""

    mandate: bool = False


class Refuse(msgspec.Struct, frozen=True):
    """Answer a request from outside with no."""

    request: Handoff
    reason: str


class BeginDrain(msgspec.Struct, frozen=True):
    """Stop leading; keep the lease until the hooks have returned. With `to`, this is a handover."""

    reason: str
    to: str | None = None
    pinned: bool = False


class Release(msgspec.Struct, frozen=True):
    """The hooks have returned: give the lease away."""

    to: str | None
    pinned: bool


class End(msgspec.Struct, frozen=True):
    """The term is over, and the lease is left to lapse."""

    reason: str


Action: TypeAlias = (
    Watch | Wait | LookUpHistory | Survey | Stand | Confirm | Renew | Refuse | BeginDrain | Release | End
)


def decide(knowledge: Knowledge, now: Reading) -> Action:
    if knowledge.tenure is not None:
        return _as_holder(knowledge.rules, knowledge.tenure, now)
    return _as_follower(knowledge, now)


# As a follower


class Opening(msgspec.Struct, frozen=True):
    """When the lease in sight may be taken: `after` seconds of having watched it, in our turn if it is `contested`."""

    after: float
    contested: bool


def opening(rules: Rules, sight: Sight, uid: str, worker_id: str) -> Opening | None:
    """When, if ever, `uid` may take the lease in sight."""
    found = sight.found
    if isinstance(found, TooNew):
        return None
    if isinstance(found, Absent):
        # A namespace without history has no leader who could still believe in its lease.
        return Opening(rules.damage_lapses_after if found.history else 0.0, True)
    if isinstance(found, Damage):
        # Who wrote it may have been allowed a longer lease than we know of: metadata.json can be lost as well.
        return Opening(max(rules.damage_lapses_after, rules.lapses_after(found.lease)), True)
    if found.released:
        return Opening(0.0, found.successor != worker_id)
    if found.uid == uid:
        # Only this process could lead under its own grant (I-3), and it knows that it does not.
        return Opening(0.0, False)
    return Opening(rules.lapses_after(found.lease_seconds), True)


def _as_follower(knowledge: Knowledge, now: Reading) -> Action:
    sight = knowledge.sight
    if sight is None or knowledge.look_now:
        return Watch()
    if isinstance(sight.found, Absent | Damage) and sight.found.history is None:
        return LookUpHistory()
    next_look = None if knowledge.look_every is None else knowledge.look_every - now.follower_elapsed(sight.last)
    if next_look is not None and next_look <= 0:
        return Watch()
    chance = opening(knowledge.rules, sight, knowledge.uid, knowledge.worker_id) if knowledge.may_stand else None
    if chance is None:
        return Wait(next_look)
    watched = now.follower_elapsed(sight.since)
    if watched < chance.after:
        return Wait(_sooner(next_look, chance.after - watched))
    if not chance.contested:
        return _stand(sight)
    if knowledge.turn is None or knowledge.turn.mark != sight.mark:
        return Survey()
    my_turn = knowledge.turn.delay - now.follower_elapsed(knowledge.turn.since)
    return _stand(sight) if my_turn <= 0 else Wait(_sooner(next_look, my_turn))


def _stand(sight: Sight) -> Stand:
    found = sight.found
    if isinstance(found, State):
        return Stand(found.epoch + 1, found)
    # The number is found by whoever acts on it: above the history, which has to be read for that.
    damaged = isinstance(found, Damage) or (isinstance(found, Absent) and bool(found.history))
    return Stand(1, None, after_damage=damaged)


def turn_delay(rules: Rules, sight: Sight, steps: int, jitter: float) -> float:
    """How long the candidate with `steps` others before it waits. A lease that was given away is its successor's
    first, so everyone else comes one step later (E-5). `jitter` is a share of a step, well below one.

    Who is next in rank watches closely, and sees at once that the lease is given away. Whoever was chosen by hand may
    be any worker, and has to have had time to look.
    """
    found = sight.found
    delay = rules.takeover_delay * (steps + jitter)
    if isinstance(found, State) and found.released and found.successor is not None:
        delay += rules.takeover_delay + (rules.looks_every if found.pinned else 0.0)
    return delay


# As the holder


def _as_holder(rules: Rules, tenure: Tenure, now: Reading) -> Action:
    if tenure.drain is not None:
        return _draining(rules, tenure, tenure.drain, now)
    if tenure.ended is not None:
        return End(tenure.ended)
    left = tenure.holding.leading(now)
    if left <= 0:
        return End("renew-deadline")
    if not tenure.confirmed:
        if tenure.leave is not None:
            return Release(None, False)  # nobody has begun to lead: there is nothing to wind up
        pause = _retry_in(rules, tenure, now)
        return Confirm() if pause <= 0 else Wait(min(pause, left))
    if tenure.leave is not None:
        return BeginDrain(tenure.leave, tenure.leave_to, pinned=tenure.leave_to is not None)
    pause = _retry_in(rules, tenure, now)
    if pause > 0:
        return Wait(min(pause, left))  # whatever is to be written, the store has just failed to take it
    if tenure.request is not None:
        return _answer(rules, tenure, tenure.request, now)
    mandate = now.leader_elapsed(tenure.mandate_since)
    if mandate >= rules.max_mandate:
        if rules.mandate_end is MandateEnd.HAND_OVER and tenure.preceded_by is not None:
            return BeginDrain("mandate-ended", tenure.preceded_by)
        return Renew(mandate=True)
    if tenure.outranked_by is not None and not tenure.pinned and mandate >= rules.min_mandate:
        return BeginDrain("better-priority", tenure.outranked_by)
    due = _renewal_due(rules, tenure, now)
    if due is not None and due <= 0:
        return Renew()
    waits = [left, rules.max_mandate - mandate]
    if due is not None:
        waits.append(due)
    if tenure.outranked_by is not None and not tenure.pinned:
        waits.append(rules.min_mandate - mandate)
    return Wait(min(waits))


def _draining(rules: Rules, tenure: Tenure, drain: Drain, now: Reading) -> Action:
    left = tenure.holding.remaining(now)
    if left <= 0:
        return End("lease-lapsed")
    if drain.done:
        return Release(drain.to, drain.pinned)
    patience = rules.drain_timeout - now.leader_elapsed(drain.since)
    if patience <= 0:
        # Work may still be running under this lease: it is not handed to anybody, it lapses.
        return End("drain-timeout")
    due = _renewal_due(rules, tenure, now)
    if due is not None and due <= 0:
        return Renew()
    return Wait(min(left, patience) if due is None else min(left, patience, due))


def _answer(rules: Rules, tenure: Tenure, request: Handoff, now: Reading) -> Action:
    age = now.leader_elapsed(tenure.granted)
    if age < rules.min_mandate and not request.forced:
        left = rules.min_mandate - age
        return Refuse(request, f"elected {age:.0f} s ago; for {left:.0f} s more only a forced request is followed")
    return BeginDrain("transfer" if request.to else "step-down", request.to, pinned=request.to is not None)


def _renewal_due(rules: Rules, tenure: Tenure, now: Reading) -> float | None:
    """Seconds until the lease should be written again; `None`: at the next heartbeat, which will say so."""
    if tenure.last_try is not None:
        return _retry_in(rules, tenure, now)
    return 0.0 if tenure.renew_now else None


def _retry_in(rules: Rules, tenure: Tenure, now: Reading) -> float:
    return 0.0 if tenure.last_try is None else rules.renew_retry - now.leader_elapsed(tenure.last_try)


def _sooner(first: float | None, second: float) -> float:
    return second if first is None else min(first, second)
