"""The lease, the workers and their pulses: what a look at one namespace shows."""

from __future__ import annotations

from collections import deque

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.layout import worker_key
from tenure.coordinator.pulse import Pulse, read_pulse
from tenure.coordinator.reading import WorkerStatus, too_new
from tenure.dashboard.bounds import LONGEST_TEXT, MAX_CHANGES, MAX_WORKERS, PULSES_PER_LISTING
from tenure.dashboard.points import Points
from tenure.dashboard.sections import (
    Asked,
    ChangeRow,
    Changes,
    FleetPage,
    FleetRow,
    Latency,
    Lease,
    OwnUsage,
    Usage,
    Workers,
    name_of,
    perhaps,
    shown,
)
from tenure.dashboard.terms import TermBook
from tenure.dashboard.times import parsed_ms, wall_ms
from tenure.election.records import Damage, TooNew, Worker, decode
from tenure.errors import InvalidKey, NotFound
from tenure.ledger.together import all_of
from tenure.observe.view import Change, Kind, Phase, View
from tenure.observe.watcher import Watcher
from tenure.store import Stored
from tenure.store.metered import Metered

_SECONDS_BEFORE_RATES = 10.0
_PHASES = {
    Phase.STARTING: "starting",
    Phase.LEADING: "leading",
    Phase.LAPSED: "lapsed",
    Phase.RELEASED: "released",
    Phase.EMPTY: "empty",
    Phase.DAMAGED: "damaged",
    Phase.TOO_NEW: "too-new",
}
STATES = ("all", "active", "silent", "unhealthy")
SORTS = ("rank", "age", "id", "latency")


class Felt(msgspec.Struct, frozen=True):
    """A worker's pulse, and when it was read."""

    uid: str
    pulse: Pulse
    read: Reading


class Fleet:
    """Not safe for two looks of a kind at once: each has one loop."""

    def __init__(self, store: Metered, namespace: str, interval: float, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.watcher = Watcher(store, namespace, interval, clock, self._tell, max_workers=MAX_WORKERS)
        self.terms = TermBook(store)
        self.revision = 0
        """Counts listings of workers."""
        self._changes: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._pulses: dict[str, Felt] = {}
        self._plotted: Pulse | None = None
        """The leader's, of which the chart has a point."""
        self._turn = 0
        self._ranked: tuple[int, Phase, tuple[WorkerStatus, ...]] = (-1, Phase.STARTING, ())
        self._leader_points = Points()
        self._store_points = Points()

    @property
    def view(self) -> View:
        return self.watcher.view

    def _tell(self, change: Change) -> None:
        self._changes.append(change)
        if change.kind is Kind.LAPSED:
            self._lapsed(self.view)
        elif change.kind is Kind.STEPPED_DOWN:
            self.terms.ended(change.epoch, "released", wall_ms(self._clock.read()))
        elif change.kind is Kind.RENEWED:
            self.terms.goes_on(change.epoch)

    def _lapsed(self, view: View) -> None:
        """When its leader died is not known: what is known is when it was last seen to renew, or first seen."""
        if view.sight is not None and view.state is not None:
            self.terms.ended(view.state.epoch, "lapsed", wall_ms(view.sight.since))

    # Looks

    async def look_at_lease(self) -> None:
        began = self._clock.read()
        before = self.view
        await self.watcher.look_at_lease()
        now = self._clock.read()
        if self.view.epoch > before.epoch and _was_silent(before, now):
            # The next one took over before we had seen the lease lapse, as a quick one does.
            self._lapsed(before)
        self._store_points.add(wall_ms(now), [max(0.0, now.leader_elapsed(began))])

    async def look_at_workers(self) -> None:
        if self.view.workers is None:
            await self.watcher.look_at_timeout()
        await self.watcher.look_at_workers()
        self.revision += 1
        now = self._clock.read()
        workers = self.view.workers or {}
        for name in [name for name in self._pulses if name not in workers]:
            del self._pulses[name]
        for name, seen in workers.items():
            felt = self._pulses.get(name)
            if felt is None or felt.uid != seen.worker.uid:
                self._feel(seen.worker, now)
        await self._feel_some(list(workers))

    async def _feel_some(self, names: list[str]) -> None:
        """The leader's pulse, and those of some others in their turn."""
        leader = self.view.leader
        others = [name for name in names if name != leader]
        chosen = [others[(self._turn + at) % len(others)] for at in range(min(PULSES_PER_LISTING, len(others)))]
        self._turn = (self._turn + len(chosen)) % max(1, len(others))
        wanted = [*([leader] if leader in (self.view.workers or {}) else []), *chosen]
        for worker in await all_of(self._read(name) for name in wanted if name is not None):
            if worker is None:
                continue
            now = self._clock.read()
            felt = self._feel(worker, now)
            if worker.worker_id == leader and felt is not None and felt != self._plotted:
                self._plotted = felt
                latencies = (felt.latency_last, felt.latency_p50, felt.latency_p95, felt.latency_p99)
                self._leader_points.add(wall_ms(now), latencies)

    def _feel(self, worker: Worker, now: Reading) -> Pulse | None:
        pulse = read_pulse(worker.pulse)
        if pulse is not None and len(self._pulses) < MAX_WORKERS:
            self._pulses[worker.worker_id] = Felt(worker.uid, pulse, now)
        return pulse

    async def _read(self, name: str) -> Worker | None:
        try:
            stored = await self._store.get(worker_key(name))
        except (NotFound, InvalidKey):
            return None
        assert isinstance(stored, Stored)
        worker = decode(stored.body, Worker)
        return worker if isinstance(worker, Worker) and worker.worker_id == name else None

    # What was seen

    def ranked(self) -> tuple[WorkerStatus, ...]:
        view = self.view
        revision, phase, found = self._ranked
        if revision != self.revision or phase is not view.phase:
            found = view.ranked()
            self._ranked = (self.revision, view.phase, found)
        return found

    @property
    def election_only(self) -> bool:
        view = self.view
        return view.workers == {} and not view.unreadable and view.state is not None and not view.state.released

    def lease(self) -> Lease:
        view = self.view
        state, sight = view.state, view.sight
        problem = None
        if sight is not None and isinstance(sight.found, Damage):
            problem = shown(sight.found.reason)
        elif sight is not None and isinstance(sight.found, TooNew):
            problem = too_new(sight.found)
        if state is None or sight is None:
            return Lease(phase=_PHASES[view.phase], epoch=view.epoch, problem=problem)
        request = state.request()
        return Lease(
            phase=_PHASES[view.phase],
            leader=perhaps(state.leader_id),
            epoch=state.epoch,
            since_ms=self.terms.start_of(state.epoch) or parsed_ms(state.elected_at),
            lease_seconds=state.lease_seconds,
            renewals=state.renewals,
            last_renewal_ms=wall_ms(sight.since),
            successor=perhaps(state.successor),
            mandate_ends_ms=parsed_ms(state.mandate_ends_at),
            handoff=None if request is None else Asked(by=shown(request.by), to=perhaps(request.to)),
            problem=problem,
        )

    def workers(self) -> Workers:
        found = self.ranked()
        return Workers(
            total=len(found),
            active=sum(worker.active for worker in found),
            silent=sum(not worker.active for worker in found),
            unhealthy=sum(not worker.healthy for worker in found),
            never_stands=sum(not worker.eligible for worker in found),
            left_out=self.view.workers_left_out,
            unreadable=len(self.view.unreadable),
            revision=self.revision,
        )

    def page(self, *, offset: int, limit: int, filter: str, state: str, sort: str) -> FleetPage:
        wanted = filter.casefold()
        chosen = [
            worker
            for worker in self.ranked()
            if (not wanted or wanted in worker.worker_id.casefold()) and _is_in(worker, state)
        ]
        if sort == "age":
            chosen.sort(key=lambda worker: -worker.age_seconds)
        elif sort == "id":
            chosen.sort(key=lambda worker: worker.worker_id)
        elif sort == "latency":
            chosen.sort(key=lambda worker: -(self._p95(worker) or -1.0))
        now = self._clock.read()
        rows = [self._row(worker, now) for worker in chosen[offset : offset + limit]]
        return FleetPage(matched=len(chosen), offset=offset, rows=rows)

    def _felt(self, worker: WorkerStatus) -> Felt | None:
        felt = self._pulses.get(worker.worker_id)
        return felt if felt is not None and felt.uid == worker.uid else None

    def _p95(self, worker: WorkerStatus) -> float | None:
        felt = self._felt(worker)
        return felt.pulse.latency_p95 if felt is not None else None

    def _row(self, worker: WorkerStatus, now: Reading) -> FleetRow:
        row = FleetRow(
            id=name_of(worker.worker_id),
            state="active" if worker.active else "silent",
            is_leader=worker.is_leader,
            rank=worker.rank,
            age_seconds=round(worker.age_seconds, 1),
            priority=worker.priority,
            healthy=worker.healthy,
            eligible=worker.eligible,
            started_at=shown(worker.started_at, 64),
        )
        felt = self._felt(worker)
        if felt is None:
            return row
        pulse = felt.pulse
        requests, usd = _rates(pulse)
        return msgspec.structs.replace(
            row,
            latency_p50_ms=_ms(pulse.latency_p50),
            latency_p95_ms=_ms(pulse.latency_p95),
            latency_p99_ms=_ms(pulse.latency_p99),
            requests_per_hour=requests,
            usd_per_day=usd,
            breaker=pulse.breaker,
            store_errors=pulse.store_errors,
            pulse_age_seconds=round(max(0.0, now.follower_elapsed(felt.read)), 1),
        )

    def latency(self) -> Latency:
        return Latency(leader=self._leader_points.all, store=self._store_points.all)

    def usage(self, own: OwnUsage) -> Usage:
        """Of the fleet: the leader as it says itself, and the others by those of them that were asked."""
        leader: list[tuple[float, float]] = []
        others: list[tuple[float, float]] = []
        active = 0
        for worker in self.ranked():
            if not worker.active:
                continue
            active += 1
            felt = self._felt(worker)
            requests, usd = _rates(felt.pulse) if felt is not None else (None, None)
            if requests is not None and usd is not None:
                (leader if worker.is_leader else others).append((requests, usd))
        sampled = len(leader) + len(others)
        if not sampled:
            return Usage(workers=active, dashboard=own)
        rest = active - len(leader)
        basis = others or leader
        figures = [
            sum(rates[at] for rates in leader) + rest * sum(rates[at] for rates in basis) / len(basis) for at in (0, 1)
        ]
        return Usage(
            requests_per_hour=round(figures[0], 1),
            usd_per_day=round(figures[1], 6),
            sampled=sampled,
            workers=active,
            dashboard=own,
        )

    def changes(self) -> Changes:
        return Changes(
            rows=[
                ChangeRow(
                    at=change.at,
                    kind=change.kind.value,
                    leader=perhaps(change.leader),
                    epoch=change.epoch,
                    detail=shown(change.detail, 2 * LONGEST_TEXT),
                    worker=perhaps(change.worker),
                )
                for change in self._changes
            ]
        )


def _was_silent(view: View, now: Reading) -> bool:
    """Whoever hands over or restarts does so soon after a renewal; a dead one's lease must run out."""
    if view.phase is not Phase.LEADING or view.state is None or view.sight is None:
        return False
    return now.follower_elapsed(view.sight.since) > view.state.lease_seconds / 2


def _is_in(worker: WorkerStatus, state: str) -> bool:
    match state:
        case "active":
            return worker.active
        case "silent":
            return not worker.active
        case "unhealthy":
            return not worker.healthy
        case _:
            return True


def _rates(pulse: Pulse) -> tuple[float | None, float | None]:
    """Requests an hour, and USD a day."""
    if pulse.seconds < _SECONDS_BEFORE_RATES:
        return None, None
    return round(pulse.requests / pulse.seconds * 3600, 1), round(pulse.usd / pulse.seconds * 86400, 6)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
