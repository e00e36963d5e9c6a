"""What somebody who watches a namespace has seen of it, and what has changed: the pure core of `tenure watch`
and of the dashboard.

Guarantee: a change is told once. Time is this host's elapsed time since a write was first seen; wall clocks of other
hosts are shown and never compared.

Not guaranteed: what happens between two looks and is undone is not seen.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from tenure.clock import Reading
from tenure.coordinator.reading import DEFAULT_WORKER_TIMEOUT, WorkerStatus, too_new, with_ranks
from tenure.election.records import Damage, State, TooNew, Worker, time_of_day
from tenure.election.sight import Absent, Found, Known, Sight, judge, observe
from tenure.store.outcome import Version

_WORST_DRIFT = 0.1
_MARGIN_SECONDS = 0.2
_LONGEST_GAP = 60.0
MAX_CHANGES_OF_A_KIND = 20
_NAMED = 5


class Phase(enum.Enum):
    STARTING = "looking"
    LEADING = "leads"
    LAPSED = "lapsed"
    RELEASED = "released"
    EMPTY = "no lease"
    DAMAGED = "damaged"
    TOO_NEW = "written by a newer tenure"


class Kind(enum.Enum):
    WATCHING = "watching"
    """What was found at first."""
    ELECTED = "elected"
    RENEWED = "renewed"
    """The first renewal that was seen, at the start or after a lapse: its holder is alive."""
    LAPSED = "lapsed"
    STEPPED_DOWN = "stepped-down"
    ASKED = "asked"
    """Somebody asked the leader to hand over."""
    REFUSED = "refused"
    DAMAGED = "damaged"
    LEASE_GONE = "lease-gone"
    JOINED = "worker-joined"
    LEFT = "worker-left"
    SILENT = "worker-silent"
    BACK = "worker-back"
    RESTARTED = "worker-restarted"
    UNHEALTHY = "worker-unhealthy"
    HEALTHY = "worker-healthy"
    UNREADABLE = "worker-unreadable"
    """Something among the records of workers is none."""
    STORE_ERROR = "store-error"
    STORE_BACK = "store-back"


class Change(msgspec.Struct, frozen=True):
    """Something that happened. `at` is this host's time of day."""

    at: str
    kind: Kind
    leader: str | None
    epoch: int
    detail: str
    worker: str | None = None


class WorkerSeen(msgspec.Struct, frozen=True):
    """A worker's record, and since when it is as it is."""

    worker: Worker
    mark: str
    """Another mark: it was written again."""
    changed: Reading
    age_before: float
    """How old it was when it was first seen so, by the store's clock."""
    silent: bool

    def age(self, now: Reading) -> float:
        return self.age_before + max(0.0, now.follower_elapsed(self.changed))


class WorkerRow(msgspec.Struct, frozen=True):
    """One row of a listing, with the record in it."""

    worker: Worker
    mark: str
    age: float
    """Against the newest row, by the store's clock."""


class View(msgspec.Struct, frozen=True):
    """All that is known. Each look gives another one."""

    namespace: str
    worker_timeout: float = DEFAULT_WORKER_TIMEOUT
    phase: Phase = Phase.STARTING
    sight: Sight | None = None
    known: Known = Known()
    renewal_seen: bool = False
    """False: the lease is as it was when we came, so its holder may be dead."""
    workers: Mapping[str, WorkerSeen] | None = None
    listed: Reading | None = None
    """When the workers were last looked at: their ages are of then."""
    workers_left_out: int = 0
    unreadable: tuple[str, ...] = ()
    """The keys of what lies among the worker records and is none."""
    failures: int = 0
    """In a row."""
    error: str | None = None

    @property
    def state(self) -> State | None:
        return self.sight.found if self.sight is not None and isinstance(self.sight.found, State) else None

    @property
    def leader(self) -> str | None:
        state = self.state
        return state.leader_id if state is not None and self.phase is Phase.LEADING else None

    @property
    def epoch(self) -> int:
        return self.known.epoch

    def lease_left(self, now: Reading) -> float:
        """At most so many seconds, as seen from here; 0 if nobody holds one."""
        state, sight = self.state, self.sight
        if state is None or sight is None or state.released:
            return 0.0
        return max(0.0, state.lease_seconds - now.follower_elapsed(sight.since))

    def since_renewal(self, now: Reading) -> float | None:
        return max(0.0, now.follower_elapsed(self.sight.since)) if self.state is not None and self.sight else None

    def ranked(self) -> tuple[WorkerStatus, ...]:
        """The workers as a table shows them: the leader, then the order of succession."""
        state = self.state
        lapsed = state.uid if state is not None and self.phase is Phase.LAPSED else None
        return with_ranks(
            (
                WorkerStatus(
                    worker_id=seen.worker.worker_id,
                    age_seconds=seen.age(self.listed or seen.changed),
                    active=not seen.silent,
                    priority=seen.worker.priority,
                    healthy=seen.worker.healthy,
                    is_leader=seen.worker.worker_id == self.leader,
                    eligible=seen.worker.eligible,
                    started_at=seen.worker.registered_at,
                    uid=seen.worker.uid,
                )
                for seen in (self.workers or {}).values()
            ),
            lapsed_uid=lapsed,
        )


Seen = tuple[View, tuple[Change, ...]]


def see_lease(view: View, found: Found, version: Version | None, now: Reading) -> Seen:
    """Fold a look at the lease, whose answer came before `now`."""
    judged = judge(found, version, view.known, view.sight)
    return _with_sight(view, observe(view.sight, judged, version, now, max_gap=_max_gap(judged)), now)


def see_same_lease(view: View, now: Reading) -> Seen:
    """The store said that nothing was written since the last look."""
    assert view.sight is not None
    sight = view.sight
    return _with_sight(
        view, observe(sight, sight.found, sight.version, now, max_gap=_max_gap(sight.found)), now, written=False
    )


def see_workers(
    view: View, rows: Iterable[WorkerRow], left_out: int, now: Reading, unreadable: tuple[str, ...] = ()
) -> Seen:
    """Fold a listing. Whoever is not in it has left."""
    first, before = view.workers is None, view.workers or {}
    seen: dict[str, WorkerSeen] = {}
    told: list[tuple[Kind, str, str]] = []
    for row in rows:
        name = row.worker.worker_id
        old = before.get(name)
        if old is None or old.mark != row.mark:
            new = WorkerSeen(row.worker, row.mark, now, row.age, row.age > view.worker_timeout)
        else:
            new = msgspec.structs.replace(old, worker=row.worker, silent=old.age(now) > view.worker_timeout)
        seen[name] = new
        if not first:
            told += [(kind, name, detail) for kind, detail in _worker_changes(old, new, now)]
    told += [(Kind.LEFT, name, "left: its record was removed") for name in before if name not in seen]
    after = msgspec.structs.replace(view, workers=seen, workers_left_out=left_out, unreadable=unreadable, listed=now)
    known = frozenset(view.unreadable)
    told += [(Kind.UNREADABLE, key, "is no record of a worker") for key in unreadable if key not in known]
    return after, tuple(_bounded(after, told, now))


def see_failure(view: View, error: str, now: Reading) -> Seen:
    """The store did not answer. Told once, until it does."""
    after = msgspec.structs.replace(view, failures=view.failures + 1, error=error)
    return after, (_change(after, Kind.STORE_ERROR, error, now),) if view.error is None else ()


def see_answer(view: View, now: Reading) -> Seen:
    """The store answers (again)."""
    if view.error is None:
        return view, ()
    after = msgspec.structs.replace(view, failures=0, error=None)
    return after, (_change(after, Kind.STORE_BACK, f"the store answers again, after {view.failures} failures", now),)


def lasts(state: State) -> float:
    """How long a lease may be unrenewed before it has lapsed by anybody's clock."""
    return state.lease_seconds * (1 + _WORST_DRIFT) + _MARGIN_SECONDS


def _max_gap(found: Found) -> float:
    return max(_LONGEST_GAP, lasts(found)) if isinstance(found, State) else _LONGEST_GAP


def _phase(sight: Sight) -> Phase:
    match sight.found:
        case Absent():
            return Phase.EMPTY
        case Damage():
            return Phase.DAMAGED
        case TooNew():
            return Phase.TOO_NEW
        case State() as state if state.released:
            return Phase.RELEASED
        case State() as state:
            unrenewed = sight.last.follower_elapsed(sight.since)
            return Phase.LAPSED if unrenewed > lasts(state) else Phase.LEADING


def _with_sight(view: View, sight: Sight, now: Reading, *, written: bool = True) -> Seen:
    found, phase = sight.found, _phase(sight)
    old = view.state
    is_same_grant = isinstance(found, State) and found.grant_id == view.known.grant_id
    is_renewed = (
        isinstance(found, State) and old is not None and is_same_grant and old.leader_write_id != found.leader_write_id
    )
    after = msgspec.structs.replace(
        view,
        sight=sight,
        phase=phase,
        known=view.known.with_state(found) if isinstance(found, State) else view.known,
        # A new grant was seen to be written; one that was there when we came has to show itself.
        renewal_seen=view.phase is not Phase.STARTING
        and (view.renewal_seen if is_same_grant and not is_renewed else isinstance(found, State)),
    )
    if view.phase is Phase.STARTING:
        return after, (_change(after, Kind.WATCHING, _found(after), now),)
    return after, tuple(_lease_changes(view, after, is_renewed, now)) if written or phase is not view.phase else ()


def _lease_changes(before: View, after: View, is_renewed: bool, now: Reading) -> Iterable[Change]:
    assert after.sight is not None
    found = after.sight.found
    if isinstance(found, State):
        yield from _state_changes(before, after, found, is_renewed, now)
    elif isinstance(found, Damage | TooNew):
        reason = _reason(found)
        if before.sight is None or before.phase is not after.phase or _reason(before.sight.found) != reason:
            yield _change(after, Kind.DAMAGED, f"the lease cannot be used: {reason}", now)
    elif before.phase is not Phase.EMPTY:
        yield _change(after, Kind.LEASE_GONE, f"the lease is gone; epoch {before.epoch} was seen", now)


def _state_changes(before: View, after: View, found: State, is_renewed: bool, now: Reading) -> Iterable[Change]:
    is_new = found.grant_id != before.known.grant_id
    if is_new and found.leader_id is not None:
        yield _change(after, Kind.ELECTED, _elected(before, found), now)
    elif is_new or (found.released and before.phase is not Phase.RELEASED):
        heir = f", for {found.successor} to take" if found.successor else ""
        yield _change(after, Kind.STEPPED_DOWN, f"{found.previous_leader} released epoch {found.epoch}{heir}", now)
    elif after.phase is Phase.LAPSED and before.phase is not Phase.LAPSED:
        detail = f"{found.leader_id} has not renewed epoch {found.epoch} for {lasts(found):.1f} s"
        yield _change(after, Kind.LAPSED, detail, now)
    elif after.phase is Phase.LEADING and before.phase is not Phase.LEADING:
        yield _change(after, Kind.RENEWED, f"{found.leader_id} holds the lease of epoch {found.epoch} again", now)
    elif after.phase is Phase.LEADING and is_renewed and not before.renewal_seen:
        yield _change(after, Kind.RENEWED, f"{found.leader_id} is alive: it renewed epoch {found.epoch}", now)
    old = before.state
    request = found.request()
    if request is not None and (old is None or old.handoff is None or old.handoff.request_id != request.request_id):
        heir = f" to {request.to}" if request.to else ""
        yield _change(after, Kind.ASKED, f"{request.by} asks {found.leader_id} to hand over{heir}", now)
    refusal = found.refusal
    if refusal is not None and not found.released and (old is None or old.refusal != refusal):
        yield _change(after, Kind.REFUSED, f"{found.leader_id} says no: {refusal.reason}", now)


def _elected(before: View, found: State) -> str:
    missed = found.epoch - before.known.epoch - 1
    gap = f"; {missed} {'epoch' if missed == 1 else 'epochs'} before it went by unseen" if missed > 0 else ""
    if found.previous_leader is None:
        return f"{found.leader_id} leads, epoch {found.epoch}{gap}"
    return f"{found.leader_id} leads, epoch {found.epoch}, after {found.previous_leader}{gap}"


def _found(view: View) -> str:
    assert view.sight is not None
    match view.sight.found:
        case State() as state if state.released:
            return f"nobody leads: epoch {state.epoch} was released"
        case State() as state:
            return f"{state.leader_id} holds the lease of epoch {state.epoch}; not seen to renew it yet"
        case Absent():
            return "there is no lease: is a coordinator running with this URL and this namespace?"
        case other:
            return f"the lease cannot be used: {_reason(other)}"


def _reason(found: Found) -> str:
    if isinstance(found, TooNew):
        return too_new(found)
    return found.reason if isinstance(found, Damage) else ""


def _worker_changes(old: WorkerSeen | None, new: WorkerSeen, now: Reading) -> Iterable[tuple[Kind, str]]:
    if old is None:
        if not new.silent:
            yield Kind.JOINED, f"joined, with priority {new.worker.priority}"
        return
    if new.silent and not old.silent:
        yield Kind.SILENT, f"has sent no heartbeat for {new.age(now):.0f} s"
    if old.silent and not new.silent and old.worker.uid == new.worker.uid:
        yield Kind.BACK, "sends heartbeats again"
    if old.worker.uid != new.worker.uid:
        yield Kind.RESTARTED, "was started anew"
    if old.worker.healthy != new.worker.healthy:
        yield (Kind.HEALTHY, "is healthy again") if new.worker.healthy else (Kind.UNHEALTHY, "says it is not healthy")


def _bounded(view: View, told: list[tuple[Kind, str, str]], now: Reading) -> Iterable[Change]:
    """A thousand workers that start at once are one line."""
    by_kind: dict[Kind, list[tuple[str, str]]] = {}
    for kind, name, detail in told:
        by_kind.setdefault(kind, []).append((name, detail))
    for kind, each in by_kind.items():
        if len(each) <= MAX_CHANGES_OF_A_KIND:
            for name, detail in each:
                worker = name if kind is not Kind.UNREADABLE else None
                yield _change(view, kind, f"{name} {detail}", now, worker=worker)
        else:
            some = ", ".join(name for name, _ in each[:_NAMED])
            what = "workers" if kind is not Kind.UNREADABLE else "objects"
            yield _change(view, kind, f"{len(each)} {what}: {some}, …", now)


def _change(view: View, kind: Kind, detail: str, now: Reading, worker: str | None = None) -> Change:
    state = view.state
    holder = state.leader_id if kind is Kind.WATCHING and state is not None else view.leader
    return Change(time_of_day(now.wall_ns), kind, holder, view.epoch, detail, worker)
