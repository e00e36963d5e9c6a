"""The heartbeat of one namespace in one process, on one event loop: carries out what `tenure.election` decides.

Two things go on: the *lease loop* asks `decide` what to do and does it; the *beats* come at every heartbeat interval,
write this worker's record, and tell the lease loop that a look or a renewal is due. Neither waits for user code.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.apart import apart
from tenure.coordinator.breaker import CircuitBreaker
from tenure.coordinator.cold_start import ColdStart, ColdStartPlan, Phase
from tenure.coordinator.config import CoordinatorConfig
from tenure.coordinator.contention import ContentionDetector
from tenure.coordinator.events import (
    CircuitBreakerOpen,
    ClockSkew,
    ColdStartPhaseChanged,
    CoordinatorDemoted,
    CoordinatorElected,
    CoordinatorPromoted,
    EpochRenewed,
    EventBus,
    LeaderChanged,
    LeaseDamaged,
    WorkerHeartbeat,
    WorkersUpdated,
    WorkerWasReplaced,
)
from tenure.coordinator.fleet import Fleet
from tenure.coordinator.health import HealthGate
from tenure.coordinator.hooks import Seat, settle_quietly
from tenure.coordinator.layout import namespace_store
from tenure.coordinator.lead import Lead
from tenure.coordinator.lease import Grant, Held, Identity, LeaseDesk, Spoilt, Taken
from tenure.coordinator.lease_watch import LeaseWatch
from tenure.coordinator.metrics import Metrics
from tenure.coordinator.overrun import Hooks, OverrunWatch, all_returned, pending
from tenure.coordinator.pulse import write_pulse
from tenure.coordinator.seldom import Seldom
from tenure.election.decide import (
    BeginDrain,
    Confirm,
    Drain,
    End,
    Knowledge,
    LookUpHistory,
    MandateEnd,
    Refuse,
    Release,
    Renew,
    Rules,
    Stand,
    Survey,
    Tenure,
    Turn,
    Wait,
    Watch,
    decide,
    opening,
    turn_delay,
)
from tenure.election.holding import Holding
from tenure.election.rank import MAX_STEPS
from tenure.election.records import Damage, Member, Refusal, State, TooNew, time_of_day
from tenure.election.sight import Absent, Sight
from tenure.entropy import NewId, Random
from tenure.errors import BodyTooLarge, ClockSkewed, StoreError, StoreUnavailable, WorkerReplaced
from tenure.store import Store, Version
from tenure.store.limited import TimeLimited
from tenure.store.metered import Usage

_log = logging.getLogger("tenure.coordinator")

_LONGEST_REST = 3600.0
_MAX_DOUBLINGS = 4
"""Whoever cannot do its work tries again after at most 15 more heartbeats: somebody may hand leadership to it."""
_HOLDER_RESTS = (0.25, 1.0)
"""Timers stand still while a machine sleeps: a leader that wakes up must notice soon that its term is over. It rests
for a fifth of the time that hooks have to wind up in, within these seconds."""

RunHealthCheck = Callable[[], Awaitable[bool]]


def rules_of(config: CoordinatorConfig, longest_lease: float) -> Rules:
    return Rules(
        lease=round(config.lease_timeout * 1000) / 1000,  # as the record says it
        leads_for=config.renew_deadline_seconds,
        drift=config.drift,
        margin=config.takeover_margin,
        longest_lease=longest_lease,
        takeover_delay=config.takeover_delay,
        looks_every=config.heartbeat_interval,
        renew_retry=min(max(1.0, config.heartbeat_interval / 12), config.request_timeout_seconds / 2),
        min_mandate=config.min_epoch_duration,
        max_mandate=config.max_epoch_duration,
        mandate_end=config.mandate_end,
        drain_timeout=config.drain_timeout,
    )


def _lapsed(over: State | None) -> str | None:
    """The uid of the holder of a lease that was not given away."""
    return None if over is None or over.released else over.uid


class Engine:
    """Everything that happens on the coordinator's loop. `GlobalCoordinatorService` is its face to the user."""

    def __init__(
        self,
        *,
        store: Store,
        namespace: str,
        config: CoordinatorConfig,
        longest_lease: float,
        who: Identity,
        watch: LeaseWatch,
        clock: Clock,
        random: Random,
        draw_id: NewId,
        bus: EventBus,
        metrics: Metrics,
        usage: Callable[[], Usage] | None = None,
        run_health_check: RunHealthCheck | None = None,
        cold_start: ColdStartPlan | None = None,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._root = store
        self._namespace = namespace
        self._config = config
        self._who = who
        self._lease_watch = watch
        self._clock = clock
        self._random = random
        self._draw_id = draw_id
        self._bus = bus
        self._metrics = metrics
        self._run_health_check = run_health_check
        self._cold_start = ColdStart(cold_start) if cold_start is not None else None
        self.rules = rules_of(config, longest_lease)
        least, most = _HOLDER_RESTS
        self._holder_rests = min(most, max(least, (self.rules.lasts - self.rules.leads_for) / 5))
        limited = TimeLimited(namespace_store(store, namespace), config.request_timeout_seconds, config.lease_timeout)
        self.desk = LeaseDesk(limited, who, self.rules, clock, draw_id)
        self.fleet = Fleet(limited, who, config, clock, draw_id, failed=self._failed, pulse=self._pulse)
        self._usage = usage
        self.breaker = CircuitBreaker(config.circuit_breaker)
        self.contention = ContentionDetector(namespace, config.heartbeat_interval, config.contention)
        self._health = HealthGate(config.unhealthy_after, config.healthy_after, known=run_health_check is None)
        self.seats: list[Seat] = []
        # The lease
        self._tenure: Tenure | None = None
        self._grant: Grant | None = None
        self.lead: Lead | None = None
        """The current or the last term of this process."""
        self._turn: Turn | None = None
        self._look_now = False
        self._not_before: tuple[Reading, float] | None = None
        self._gave_way: Lead | None = None
        self._gave_way_in_a_row = 0
        self._candidacy: tuple[str, Reading] | None = None
        """For which state of the lease this process stands, and since when."""
        self._renewal_changes: dict[str, object] = {}
        self._announced: tuple[str | None, int] = (None, 0)
        self._reported_damage: tuple[Version | None, str] | None = None
        self._told_too_large: str | None = None
        self._told_cannot_stand: str | None = None
        self._seldom = Seldom(_log)
        self._trouble: str | None = None
        """What the store said last, until a heartbeat went well."""
        self._told_members: tuple[Member, ...] = ()
        self._told_gone: str | None = None
        self._told_elected = 0
        # Running
        self._poke = asyncio.Event()
        self._beat: asyncio.Future[bool] | None = None
        self._stopping = False
        self._user_loop_stalled = False
        self.defects = 0
        """Exceptions that nobody foresaw; each ended a term, or a heartbeat, and was logged."""
        self._replaced: WorkerReplaced | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._finishing: Hooks = []
        self._leaving: Hooks = []
        self._overruns = OverrunWatch(namespace, bus.emit, self._spawn, exit_process)
        self._changed = asyncio.Event()

    # What the service asks

    @property
    def epoch(self) -> int:
        """The highest that was seen."""
        return self._announced[1]

    @property
    def leader(self) -> str | None:
        """Who leads, as may be said at this instant. This worker's own id stands for its current term alone: it knows
        better than a lease that has not lapsed yet. Read from any thread."""
        lead = self.lead
        if lead is not None and lead.is_current():
            return self._who.worker_id
        seen = self._lease_watch.leader(self._clock.read())
        return None if seen == self._who.worker_id else seen

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is alive, as last observed, without a leader that died and was not replaced. Read from any thread."""
        members, gone = self.fleet.members, self._gone()
        return members if gone is None else tuple(member for member in members if member.uid != gone)

    def _gone(self) -> str | None:
        gone = self._lease_watch.gone(self._clock.read(), self._config.worker_timeout)
        return None if gone == self._who.uid else gone  # we let ours lapse, and live

    def remember(self, epoch: int) -> None:
        """An earlier start of this process has seen `epoch`."""
        self._announced = (None, epoch)

    @property
    def replaced(self) -> WorkerReplaced | None:
        return self._replaced

    def user_loop_stalled(self, stalled: bool) -> None:
        """A process whose work does not get on neither stays nor stands."""
        if stalled != self._user_loop_stalled:
            self._user_loop_stalled = stalled
            self._poke.set()

    def leave(self, reason: str, to: str | None = None) -> bool:
        """Stop leading, politely. False: this process does not lead."""
        if self._tenure is None or self._tenure.drain is not None:
            return self._tenure is not None
        self._update(leave=reason, leave_to=to)
        self._poke.set()
        return True

    def give_way(self, lead: Lead) -> None:
        """Whoever works under `lead` cannot: stop leading, and let others first, for longer each time in a row."""
        if lead is not self.lead or self._gave_way is lead or not lead.is_current():
            return
        self._gave_way = lead
        self._gave_way_in_a_row += 1
        self.leave("hook-failed")

    async def until_not_leading(self) -> None:
        while self._tenure is not None:
            await self._changed.wait()

    def plan_cold_start(self, plan: ColdStartPlan) -> None:
        """A plugin wants the first election of a new namespace to be taken slowly. Too late once something was seen."""
        if self._cold_start is None and self.desk.sight is None:
            self._cold_start = ColdStart(plan)
        elif self._cold_start is not None and self._cold_start.phase is None:
            self._cold_start.plan = self._cold_start.plan.at_least(plan)

    def add_seat(self, seat: Seat) -> None:
        self.seats.append(seat)
        lead = self.lead
        if lead is None or self._tenure is None or not self._tenure.confirmed or not lead.is_current():
            return
        if not (seat.prepares and self._is_preparing()):
            seat.begin(lead)

    def remove_seat(self, seat: Seat, done: Future[None] | None = None) -> None:
        """Have a subscriber wind up; `done` is set when it has. The lease is not given away before that."""
        leaving: asyncio.Future[None] | None = None
        if seat in self.seats:
            self.seats.remove(seat)
            if self.lead is not None:
                leaving = self._watched(seat, self.lead)
                self._leaving = [(other, hook) for other, hook in self._leaving if not hook.done()]
                self._leaving.append((seat, leaving))
        if done is not None and leaving is not None:
            leaving.add_done_callback(lambda _: settle_quietly(done))
        elif done is not None:
            settle_quietly(done)

    def await_first(self, seats: list[Seat]) -> None:
        """These still wind up what an earlier start of this coordinator began."""
        self._leaving += [(seat, self._poking(asyncio.wrap_future(seat.idle()))) for seat in seats]

    def forget_hooks(self) -> None:
        """At the end of the interpreter: the user's loops do not run any more, and nothing on them does."""
        self.seats.clear()
        self._leaving.clear()
        self._finishing.clear()

    def _watched(self, seat: Seat, lead: Lead) -> asyncio.Future[None]:
        """What the subscriber has left to do for this term; its end may change what we decide."""
        return self._poking(asyncio.wrap_future(seat.finish(lead)))

    def _poking(self, hook: asyncio.Future[None]) -> asyncio.Future[None]:
        hook.add_done_callback(lambda _: self._poke.set())
        return hook

    async def run(self) -> None:
        """Until `request_stop()`, or until a newer process has our id."""
        try:
            await self._hold_back()
            self._spawn(self._beats())
            if self._run_health_check is not None:
                self._spawn(self._check_health(self._run_health_check))
            while not self._is_done():
                await self._survive(self._next_action())
            await self._overruns.settled()
            self._cancel_tasks()
            await self._deregister()
        finally:
            self._cancel_tasks()
            if self.lead is not None:
                self.lead.end("stopped")
            self._tenure = None
            self._signal()

    async def _hold_back(self) -> None:
        """Workers that start together spread their first heartbeats."""
        jitter = self._random.uniform(self._config.startup_jitter_min, self._config.startup_jitter_max)
        try:
            async with asyncio.timeout(jitter):
                while not self._stopping:
                    await self._poke.wait()
                    self._poke.clear()
        except TimeoutError:
            pass

    async def _survive(self, action: Awaitable[None]) -> None:
        """A defect must not end the loop, and a term in which one showed is not to be trusted."""
        try:
            await action
        except Exception:
            self.defects += 1
            _log.exception("a defect of tenure in the lease loop of %r: this process stops leading", self._namespace)
            if self._tenure is not None:
                self._end_term("defect")
            await self._rest(self._config.heartbeat_interval, self._clock.read())

    def request_stop(self) -> None:
        """Leave politely: wind up, release, deregister; then `run` ends, within `drain_timeout` and a few requests."""
        self._stopping = True
        self._poke.set()

    async def _deregister(self) -> None:
        if self._config.membership and self._replaced is None:
            try:
                await self.fleet.deregister()
            except StoreError as error:
                self._failed(error)

    def _is_done(self) -> bool:
        return (self._stopping or self._replaced is not None) and self._tenure is None

    # The lease loop

    async def _next_action(self) -> None:
        now = self._clock.read()
        self._advance_cold_start(now)
        self._tell_what_lapsed()
        if self._tenure is None and self._reason_to_leave() is not None:
            self._end_candidacy()  # it has withdrawn; if it stands again later, that is another election
        action = decide(self._knowledge(now), now)
        if isinstance(action, Wait):
            await self._rest(action.seconds, now)
            return
        try:
            good = await self._do(action)
        except StoreError as error:
            self._failed(error)
            good = False
        if isinstance(action, Watch | Renew | Refuse):
            self._look_now = False
            if self._beat is not None and not self._beat.done():
                self._beat.set_result(good)
        if not good and self._tenure is None:
            # Nothing else paces a follower whose requests fail.
            await self._rest(self.rules.renew_retry, self._clock.read())

    async def _do(self, action: object) -> bool:
        """True: as hoped, or at least the store answered."""
        match action:
            case Watch():
                await self._watch()
            case LookUpHistory():
                await self.desk.look_up_history()
            case Survey():
                await self._survey()
            case Stand():
                return await self._stand(action)
            case Confirm():
                return await self._confirm()
            case Renew(mandate=mandate):
                return await self._renew(mandate)
            case Refuse(request=request, reason=reason):
                self._renewal_changes |= {
                    "handoff": None,
                    "refusal": Refusal(request_id=request.request_id, reason=reason),
                }
                return await self._renew(False)
            case BeginDrain(reason=reason, to=to, pinned=pinned):
                self._begin_drain(reason, to, pinned)
            case Release(to=to, pinned=pinned):
                await self._release(to, pinned)
            case End(reason=reason):
                self._end_term(reason)
        return True

    def _knowledge(self, now: Reading) -> Knowledge:
        return Knowledge(
            rules=self.rules,
            uid=self._who.uid,
            worker_id=self._who.worker_id,
            sight=self.desk.sight,
            turn=self._turn,
            tenure=self._current_tenure(),
            may_stand=self._may_stand(now),
            look_now=self._look_now,
            look_every=self._config.standby_watch_interval if self._is_standby() else None,
        )

    def _current_tenure(self) -> Tenure | None:
        """Our term, with what may have come up since it was written down, whatever was being waited for then."""
        tenure, lead = self._tenure, self.lead
        if tenure is None or tenure.drain is not None:
            return tenure
        if tenure.confirmed and lead is not None and lead.ended is not None:
            return msgspec.structs.replace(tenure, ended=lead.ended)
        if tenure.leave is None and (reason := self._reason_to_leave()) is not None:
            return msgspec.structs.replace(tenure, leave=reason)
        return tenure

    def _reason_to_leave(self) -> str | None:
        if self._stopping:
            return "stopped"
        if self._replaced is not None:
            return "replaced"
        if not self._health.healthy:
            return "unhealthy"
        return "loop-stalled" if self._user_loop_stalled else None

    def _is_winding_up(self) -> bool:
        """Work of an earlier term still runs here. Who cannot do the new work does not take the office for it."""
        return self._tenure is None and bool(pending(self._finishing) or pending(self._leaving))

    def _may_stand(self, now: Reading) -> bool:
        if self._is_winding_up() or not self._config.eligible or self._reason_to_leave() is not None:
            return False
        return self._ready_in(now) <= 0 and self.breaker.status().state != "open"

    def _ready_in(self, now: Reading) -> float:
        """Seconds until this process may stand at all; those who start together wait for each other (EL-3)."""
        # Work of our own last term may still be winding up, for as long as its lease is valid.
        waits = [0.0 if self.lead is None else self.lead.time_to_wind_up()]
        if self._cold_start is not None:
            waits.append(self._cold_start.held_back_for(now))
        if self._not_before is not None:
            waits.append(self._not_before[1] - now.follower_elapsed(self._not_before[0]))
        if self._config.membership:
            registered = self.fleet.registered
            waits.append(
                _LONGEST_REST if registered is None else self.rules.takeover_delay - now.follower_elapsed(registered)
            )
        return max(waits)

    def _is_standby(self) -> bool:
        """Are we next in rank? Only that one looks more often than at each heartbeat."""
        sight = self.desk.sight
        if sight is None or not isinstance(sight.found, State) or sight.found.uid is None:
            return False
        return self.breaker.status().state != "open" and self.fleet.is_heir_of(sight.found.uid)

    async def _rest(self, seconds: float | None, now: Reading) -> None:
        """Until it is time, or something happens that may change the decision."""
        if self._poke.is_set():
            self._poke.clear()
            return
        ready = self._ready_in(now)
        limit = _LONGEST_REST if seconds is None else seconds
        if self._tenure is None and 0 < ready < limit:
            limit = ready
        elif self._tenure is not None:
            limit = min(limit, self._holder_rests)
        # A hair late rather than early: an early look would find that it is not time yet, and rest again.
        alarm = asyncio.get_running_loop().call_later(max(limit, 0.0) + 0.001, self._poke.set)
        try:
            await self._poke.wait()
        finally:
            alarm.cancel()
        self._poke.clear()

    # As a follower

    async def _watch(self) -> None:
        before = self.desk.sight
        try:
            sight = await self.desk.read()
        except BodyTooLarge as error:
            # Too large to be kept, so it is not rebuilt over either: whoever put it there has to move it away.
            self._report_damage(None, str(error))
            raise
        found = sight.found
        if isinstance(found, State):
            self._reported_damage = None
            self._lease_watch.saw(found, sight.last)
            moved = False
            try:
                if self._config.membership and found.members_version:
                    moved = await self.fleet.read(found.members_version)
            finally:
                self._announce(self.leader, found.epoch, self._lapsed_since(before, sight))
                others = found.uid not in (None, self._who.uid)
                if others and self._candidacy is not None and self._candidacy[0] != sight.mark:
                    self._end_candidacy()
            if moved:
                self._tell_members()
        elif isinstance(found, Damage):
            self._report_damage(sight, found.reason)
        elif isinstance(found, TooNew):
            self._report_damage(sight, f"written by a newer tenure (schemaVersion {found.schema_version})")
        elif isinstance(found, Absent) and found.history:
            self._report_damage(sight, f"state.json is gone, and epoch {found.history} was once granted")

    async def _survey(self) -> None:
        sight = self.desk.sight
        assert sight is not None
        self._begin_to_stand(sight)
        if not self._config.membership:
            delay = turn_delay(self.rules, sight, 0, self._random.random())
            self._turn = Turn(sight.mark, delay, self._clock.read())
            return
        lapsed = sight.found.uid if isinstance(sight.found, State) else None
        try:
            place = await self.fleet.place(lapsed)
        except StoreError as error:
            # Whose turn it is decides only who goes first: without a listing, chance does.
            self._failed(error)
            delay = turn_delay(self.rules, sight, 0, self._random.random() * MAX_STEPS)
            self._turn = Turn(sight.mark, delay, self._clock.read())
            return
        jitter = self._random.random() / 4 if place else 0.0
        self._turn = Turn(sight.mark, turn_delay(self.rules, sight, place, jitter), self._clock.read())

    def _begin_to_stand(self, sight: Sight) -> None:
        """The election is timed from here, for as long as the same lease is free.

        Our own grant that did not become a term changes the lease, and the election goes on. Another's ends it.
        """
        began = self._candidacy
        if began is not None and began[0] == sight.mark:
            return
        ours = isinstance(sight.found, State) and sight.found.uid == self._who.uid
        if began is not None and ours:
            self._candidacy = (sight.mark, began[1])
        else:
            self.fleet.forget_ranking()
            self._candidacy = (sight.mark, self._clock.read())

    def _end_candidacy(self) -> None:
        self._candidacy = None
        self.fleet.forget_ranking()

    async def _stand(self, action: Stand) -> bool:
        if self.desk.sight is not None:
            self._begin_to_stand(self.desk.sight)
        turn, self._turn = self._turn, None
        if turn is None and self._config.membership and not self.fleet.is_ranked:
            self._spawn(self._list_workers(_lapsed(action.over)))  # given to us: nobody had to be ranked
        grant = await self.desk.stand(action)
        if grant is None:
            if self.desk.trouble is not None:
                self._cannot_stand(self.desk.trouble)
            return False
        holding = Holding(grant.sent, self.rules.lasts, self.rules.leads_for)
        self._grant = grant
        self._tenure = Tenure(
            epoch=grant.state.epoch,
            holding=holding,
            confirmed=False,
            granted=grant.sent,
            mandate_since=grant.sent,
            pinned=grant.state.pinned,
            renew_now=self._look_now,  # a heartbeat that came meanwhile waits for an answer
        )
        self._look_now = False
        return True

    async def _list_workers(self, lapsed: str | None) -> None:
        """For whoever stands without having waited for its turn. The lease does not wait for it."""
        candidacy = self._candidacy
        try:
            await self.fleet.place(lapsed)
        except StoreError as error:
            self._failed(error)
        if self._candidacy is not candidacy:
            self.fleet.forget_ranking()  # it came too late

    async def _count_at_once(self) -> None:
        """The listing that ranked us did not name everybody: do not wait for the next heartbeat."""
        try:
            await self._count()
        except StoreError as error:
            self._failed(error)

    async def _confirm(self) -> bool:
        tenure, grant = self._tenure, self._grant
        assert tenure is not None
        assert grant is not None
        started = self._clock.read()
        confirmed = await self.desk.confirm(grant, within=tenure.holding.leading(started))
        if confirmed is None:
            self._update(last_try=started)
            return False
        if not confirmed:
            self._end_term("term-taken")
            return True
        lead = Lead(
            namespace=self._namespace,
            worker_id=self._who.worker_id,
            epoch=tenure.epoch,
            grant_id=grant.state.grant_id,
            holding=tenure.holding,
            clock=self._clock,
            store=self._root,
            draw_id=self._draw_id,
        )
        if lead.is_current():
            self._promote(lead)
        else:
            self._end_term("too-late")
        return True

    def _promote(self, lead: Lead) -> None:
        now = self._clock.read()
        self.lead = lead
        self._lease_watch.forget()  # whoever led before us does not lead after us
        self._not_before = None
        self._update(confirmed=True, last_try=None)
        listed = not self._config.membership or self.fleet.is_known
        if self._config.membership:
            self.fleet.begin_to_lead(_lapsed(self._grant.over if self._grant is not None else None))
        self._metrics.election(now.leader_elapsed(self._candidacy[1] if self._candidacy is not None else now))
        self._end_candidacy()
        facts = self._facts("leading", epoch=lead.epoch)
        _log.info("%s leads %r, epoch %d", self._who.worker_id, self._namespace, lead.epoch, extra=facts)
        self._announce(self._who.worker_id, lead.epoch)
        if self._config.membership:
            self._tell_members()
        if not listed:
            self._spawn(self._count_at_once())
        self._bus.emit(CoordinatorPromoted(self._who.worker_id, lead.epoch, now.wall_ns / 1e9))
        self._advance_cold_start(now)
        preparing = self._is_preparing()
        for seat in self.seats:
            if not (seat.prepares and preparing):
                seat.begin(lead)
        if preparing:
            self._spawn(self._prepare(lead))
        self._signal()

    # The cold start

    def _advance_cold_start(self, now: Reading) -> None:
        if self._cold_start is None or self._cold_start.is_over:
            return
        sight, lead = self.desk.sight, self.lead
        leading = self._tenure is not None and self._tenure.confirmed and lead is not None and lead.is_current()
        found = sight.found if sight is not None else None
        if isinstance(found, State) and found.uid == self._who.uid:
            found = None  # our own grant, on its way to being confirmed
        changed = self._cold_start.advance(found, leading, now)
        if changed is not None:
            phase, took = changed
            _log.info("cold start of %r: %s", self._namespace, phase.value)
            self._bus.emit(ColdStartPhaseChanged(self._namespace, phase.value, took))

    def _is_preparing(self) -> bool:
        return self._cold_start is not None and self._cold_start.phase is Phase.PREPARATION

    async def _prepare(self, lead: Lead) -> None:
        """Give the fleet a moment before the first leader's plugins go to work."""
        assert self._cold_start is not None
        while self._is_preparing() and lead.is_current():
            await self._clock.sleep(min(1.0, self._cold_start.plan.preparation_delay))
            self._advance_cold_start(self._clock.read())
        for seat in self.seats:
            if seat.prepares and lead.is_current():
                seat.begin(lead)

    # As the leader

    async def _renew(self, mandate: bool) -> bool:
        lead = self.lead
        tenure = self._tenure
        assert lead is not None
        assert tenure is not None
        sent = self._clock.read()  # before anything is sent (E-1)
        changes = dict(self._renewal_changes)
        if mandate:
            ends_at = sent.wall_ns + round(self.rules.max_mandate * 1e9)
            changes |= {"mandate_ends_at": time_of_day(ends_at), "pinned": False}
        lead.sending(sent, self.rules.lasts)
        left = tenure.holding.leading(sent) if tenure.drain is None else tenure.holding.remaining(sent)
        try:
            # Never past the deadline: hooks must hear of the end in time.
            async with asyncio.timeout(max(left, 0.0)):
                standing = await self.desk.renew(sent, lead.holds, **changes)
        except TimeoutError:
            self._failed(StoreUnavailable("the lease was not renewed: there was no answer in time"))
            self._update(last_try=sent)
            return False
        if isinstance(standing, Taken | Spoilt):
            if isinstance(standing, Taken):
                lead.sending(self._clock.read(), 0.0)  # another's lease is in force, whatever is left of ours
            self._end_term("taken" if isinstance(standing, Taken) else "damaged")
            return True
        if isinstance(standing, Held) and standing.sent is not None:
            lead.confirmed(standing.sent, self.rules.lasts, self.rules.leads_for)
            # What was confirmed may be an earlier write than the one just sent, without its changes.
            landed = standing.landed
            self._update(holding=lead.holding, last_try=None if landed else sent, renew_now=not landed)
            if landed:
                self._renewed(changes, mandate, sent)
        else:
            self._update(last_try=sent)
        mine = self.desk.mine
        if mine is not None:
            self._update(request=mine.request())
        if self.desk.trouble is not None and not (isinstance(standing, Held) and standing.landed):
            self._failed(self.desk.trouble)  # a store that is read and does not take writes has failed
            return False
        return isinstance(standing, Held)

    def _renewed(self, changes: dict[str, object], mandate: bool, sent: Reading) -> None:
        for name in changes:
            if self._renewal_changes.get(name) is changes[name]:
                del self._renewal_changes[name]
        if mandate:
            self._update(mandate_since=sent, pinned=False)
            ends_at = sent.wall_ns / 1e9 + self.rules.max_mandate
            assert self._tenure is not None
            self._bus.emit(EpochRenewed(self._who.worker_id, self._tenure.epoch, ends_at))

    def _begin_drain(self, reason: str, to: str | None, pinned: bool) -> None:
        lead = self.lead
        assert lead is not None
        lead.end(reason)
        self._update(drain=Drain(reason, self._clock.read(), to, pinned), leave=None, request=None)
        self._demoted(lead, reason)
        self._spawn(self._wind_up(lead))

    def _finish_seats(self, lead: Lead) -> Hooks:
        self._finishing = [(seat, self._watched(seat, lead)) for seat in self.seats]
        # Who unsubscribed, and is still winding up, works under this lease as well.
        self._finishing += [(seat, hook) for seat, hook in self._leaving if not hook.done()]
        return self._finishing

    async def _wind_up(self, lead: Lead) -> None:
        """Wait for every hook to return; only then may the lease go."""
        await all_returned(self._finish_seats(lead))
        tenure = self._tenure
        if tenure is None or tenure.drain is None or tenure.epoch != lead.epoch:
            return
        to = tenure.drain.to
        if to is None and self._config.membership:
            to = await self.fleet.choose_successor()
        tenure = self._tenure
        if tenure is not None and tenure.drain is not None and tenure.epoch == lead.epoch:
            self._update(drain=msgspec.structs.replace(tenure.drain, to=to, done=True))
            self._poke.set()

    async def _release(self, to: str | None, pinned: bool) -> None:
        tenure = self._tenure
        assert tenure is not None
        if tenure.confirmed and self.lead is not None:
            self.lead.sending(self._clock.read(), 0.0)
        await self.desk.release(to, pinned)
        self._let_others_first(self._rest_after_giving_way() if tenure.confirmed else 0.0)
        self._finish_term()

    def _let_others_first(self, after: float) -> None:
        """Others look at the lease at each heartbeat; whoever has just left lets them have it first."""
        wait = self._config.heartbeat_interval + self._config.heartbeat_jitter + 2 * self.rules.takeover_delay
        self._not_before = (self._clock.read(), after + wait)

    def _rest_after_giving_way(self) -> float:
        """Who leads for a moment at every heartbeat keeps others from it, and uses up epochs."""
        if self._gave_way is not self.lead:
            return 0.0
        doublings = min(self._gave_way_in_a_row, _MAX_DOUBLINGS)
        return self._config.heartbeat_interval * float(2**doublings - 1)

    def _end_term(self, reason: str) -> None:
        """The lease is left to lapse. Hooks are told, and have until it does."""
        lead = self.lead
        tenure = self._tenure
        assert tenure is not None
        if tenure.confirmed and lead is not None:
            if tenure.drain is None:
                lead.end(reason)
                self._demoted(lead, reason)
                self._overruns.watch(lead, self._finish_seats(lead))
            elif not tenure.drain.done:
                # Work that does not end must not keep its process in office either.
                self._let_others_first(self.rules.lapses_after(self.rules.lease))
                self._overruns.overran(lead, "hooks that had not returned")
                _log.warning(
                    "epoch %d of %r ended (%s) before its hooks had returned", lead.epoch, self._namespace, reason
                )
                self._overruns.watch(lead, self._finishing, told=True)
        self._finish_term()

    def _finish_term(self) -> None:
        if self._tenure is not None and self._tenure.confirmed and self._gave_way is not self.lead:
            self._gave_way_in_a_row = 0
        self._tenure = self._grant = None
        self._renewal_changes.clear()
        self._turn = None
        self.desk.let_go()
        self._signal()

    def _demoted(self, lead: Lead, reason: str) -> None:
        who, facts = self._who.worker_id, self._facts("no-longer-leading", epoch=lead.epoch, reason=reason)
        if reason == "renew-deadline":
            _log.warning(
                "%s no longer leads %r, epoch %d: its lease was not renewed in time (%s)",
                *(who, self._namespace, lead.epoch, self._trouble or "this process, or the store, was too slow"),
                extra=facts,
            )
        else:
            _log.info("%s no longer leads %r, epoch %d: %s", who, self._namespace, lead.epoch, reason, extra=facts)
        self._bus.emit(CoordinatorDemoted(self._who.worker_id, lead.epoch, reason))
        self._announce(None, lead.epoch)

    # Heartbeats

    async def _beats(self) -> None:
        """The lease comes first: whatever else a heartbeat does, and however long, the next renewal is not delayed."""
        beating: asyncio.Task[None] | None = None
        while True:
            free = beating is None or beating.done()
            if free:
                self._beat = asyncio.get_running_loop().create_future()
            self._ask_lease()
            if free:
                beating = self._spawn(self._one_beat(self._clock.read()))
            await self._clock.sleep(
                self._config.heartbeat_interval + self._random.uniform(0, self._config.heartbeat_jitter)
            )

    def _ask_lease(self) -> None:
        """Have the lease loop look or renew."""
        if self._tenure is not None:
            self._update(renew_now=True)
        else:
            self._look_now = True
        self._poke.set()

    async def _one_beat(self, began: Reading) -> None:
        before = self.breaker.status().state
        allowed = self.breaker.allows(began)
        if allowed:
            self.breaker.begin(began)
        lease_good, members_good = await asyncio.gather(self._lease_beat(), self._member_beat(allowed))
        now = self._clock.read()
        took = now.leader_elapsed(began)
        self._metrics.heartbeat(took, now.wall_ns / 1e9)
        contention = self.contention.observe(took, now)
        if contention is not None:
            _log.warning(
                "a heartbeat of %r took %.1f s, and they come every %g s",
                *(self._namespace, took, contention.expected),
                extra=self._facts("contention", seconds=took),
            )
            self._bus.emit(contention)
        if lease_good and members_good:
            self._trouble = None
            if allowed:
                self.breaker.succeeded(now)
            self._bus.emit(WorkerHeartbeat(self._who.worker_id, now.wall_ns / 1e9))
        elif self.breaker.failed(now):
            count = self.breaker.status().failure_count
            self._seldom.warning(
                now,
                "the store failed %d heartbeats of %r in a row: it gets a rest (%s)",
                *(count, self._namespace, self._trouble or "it gave no answer in time"),
                extra=self._facts("circuit-breaker-open", failures=count),
            )
            self._bus.emit(CircuitBreakerOpen(self._namespace, count))
        if self.breaker.status().state != before:
            self._poke.set()  # it may let us stand now

    async def _lease_beat(self) -> bool:
        """Wait until the lease loop has looked or renewed, as it was asked to."""
        beat = self._beat
        assert beat is not None
        try:
            async with asyncio.timeout(self._config.lease_timeout):
                return await beat
        except TimeoutError:
            return False
        finally:
            if self._beat is beat:  # not that of the next heartbeat, if this one outlived its own
                self._beat = None

    async def _member_beat(self, allowed: bool) -> bool:
        if not allowed or not self._config.membership:
            return True
        tenure, lead = self._tenure, self.lead
        leading = tenure is not None and tenure.confirmed and lead is not None and lead.is_current()
        first = self.fleet.registered is None
        try:
            await self.fleet.beat(leading=leading, epoch=self._announced[1], healthy=self._health.healthy)
            if first and self.fleet.registered is not None:
                self._metrics.worker_registered()
                self._poke.set()
            if leading and lead is not None:
                await self._lead_fleet(lead)
        except WorkerReplaced as replaced:
            self._was_replaced(replaced)
        except StoreError as error:
            self._failed(error)
            return False
        return True

    async def _count(self) -> None:
        timed_out = await self.fleet.count()
        if timed_out:
            self._metrics.worker_timed_out(timed_out)
        self._tell_members()

    async def _lead_fleet(self, lead: Lead) -> None:
        await self._count()
        if self._tenure is not None:
            hand_over = self.rules.mandate_end is MandateEnd.HAND_OVER
            preceded_by, outranked_by = await self.fleet.rival(hand_over=hand_over)
            tenure = self._tenure
            if tenure is not None and (tenure.preceded_by, tenure.outranked_by) != (preceded_by, outranked_by):
                self._update(outranked_by=outranked_by, preceded_by=preceded_by)
                self._poke.set()
        if lead.is_current():
            version = await self.fleet.publish(lead, self.desk.mine.members_version if self.desk.mine else 0)
            if version is not None:
                self._renewal_changes["members_version"] = version

    def _pulse(self) -> str:
        usage = self._usage() if self._usage is not None else None
        return write_pulse(
            self._metrics.latencies(),
            requests=usage.total if usage is not None else 0,
            usd=usage.usd if usage is not None else 0.0,
            seconds=usage.seconds if usage is not None else 0.0,
            errors=self._metrics.store_errors,
            breaker=self.breaker.status().state,
        )

    def _tell_members(self) -> None:
        members = self.members
        if members != self._told_members:
            self._told_members = members
            if not self._bus.is_heard:
                return  # a list of thousands is not sorted for nobody
            self._bus.emit(WorkersUpdated(self._namespace, tuple(sorted(member.worker_id for member in members))))

    def _was_replaced(self, replaced: WorkerReplaced) -> None:
        if self._replaced is not None:
            return
        self._replaced = replaced
        _log.warning("%s", replaced, extra=self._facts("worker-replaced"))
        self._bus.emit(WorkerWasReplaced(self._namespace, self._who.worker_id))
        self._poke.set()

    async def _check_health(self, check: RunHealthCheck) -> None:
        while True:
            try:
                async with asyncio.timeout(self._config.health_check_interval):
                    answer = bool(await apart(check()))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                answer = False  # the check waited for something that was cancelled: that is its answer
            except Exception as error:
                _log.debug("the health check of %r failed: %r", self._namespace, error)
                answer = False
            before = self._health.healthy
            if self._health.observe(answer):
                _log.warning("%s is %s", self._who.worker_id, "healthy again" if answer else "unhealthy")
            if self._health.healthy != before:
                self._poke.set()
            await self._clock.sleep(self._config.health_check_interval)

    # Telling

    def _announce(self, leader: str | None, epoch: int, lapsed: str | None = None) -> None:
        previous, known = self._announced
        if (leader, epoch) == self._announced or epoch < known:
            return
        self._announced = (leader, epoch)
        if (leader or previous) != self._who.worker_id:  # our own terms are told of anyway
            facts = self._facts("leader-changed", leader=leader, previous=previous)
            who = "nobody" if leader is None else repr(leader)  # from the bucket: it may hold a line of its own
            _log.info("%s leads %r, as seen here, epoch %d", who, self._namespace, epoch, extra=facts)
        self._bus.emit(LeaderChanged(self._namespace, previous, leader, epoch))
        if leader is not None:
            self._told_cannot_stand = None  # if it happens after this, it is news
        self._signal()
        if leader is None or epoch <= self._told_elected:
            return  # found again after a while without an answer, it was not elected again
        self._told_elected = epoch
        self._metrics.leader_changed()
        if not self._bus.is_heard:
            return
        workers = {leader, *(member.worker_id for member in self._present(lapsed))} if self._config.membership else ()
        self._bus.emit(CoordinatorElected(leader, epoch, tuple(sorted(workers))))

    def _present(self, lapsed: str | None) -> tuple[Member, ...]:
        leading = self._tenure is not None and self._tenure.confirmed
        return self.fleet.members if leading else self.fleet.present(lapsed)

    def _lapsed_since(self, before: Sight | None, sight: Sight) -> str | None:
        """The uid of the holder that was in sight before, if it was silent for so long that its lease was over."""
        uid = _lapsed(before.found) if before is not None and isinstance(before.found, State) else None
        if uid is None or before is None or uid == self._who.uid or sight.mark == before.mark:
            return None
        assert isinstance(before.found, State)
        # Another's watch may have begun a heartbeat before ours.
        least = self.rules.lapses_after(before.found.lease_seconds) - self.rules.looks_every
        return uid if sight.last.follower_elapsed(before.since) >= least else None

    def _tell_what_lapsed(self) -> None:
        """A leader that is gone is told of when its lease is over, and not only when somebody takes it."""
        if self._tenure is not None:
            return
        if self._announced[0] is not None and self.leader is None:
            self._announce(None, self._announced[1])
        gone = self._gone()
        if gone != self._told_gone:
            self._told_gone = gone
            if gone is not None:
                self._tell_members()

    def _report_damage(self, sight: Sight | None, reason: str) -> None:
        mark = (sight.version if sight is not None else None, reason)
        if self._reported_damage == mark:
            return
        self._reported_damage = mark
        facts = self._facts("lease-damaged", reason=reason)
        wait = opening(self.rules, sight, self._who.uid, self._who.worker_id) if sight is not None else None
        then = "" if wait is None else f"; it is rebuilt once nobody has written it for {wait.after:.0f} s"
        _log.warning("the lease of %r is damaged: %s%s", self._namespace, reason, then, extra=facts)
        self._bus.emit(LeaseDamaged(self._namespace, reason))

    def _cannot_stand(self, error: StoreError) -> None:
        self._failed(error)
        if str(error) != self._told_cannot_stand:
            self._told_cannot_stand = str(error)  # it is tried again and again: said once
            _log.warning("%s cannot take the lease of %r: %s", self._who.worker_id, self._namespace, error)

    def _failed(self, error: StoreError) -> None:
        self._metrics.store_failed(str(error))
        self._trouble = str(error)
        if isinstance(error, ClockSkewed):
            self._seldom.warning(self._clock.read(), "%s", error, key="clock-skew")
            self._bus.emit(ClockSkew(self._namespace, str(error)))
        elif isinstance(error, BodyTooLarge) and str(error) != self._told_too_large:
            self._told_too_large = str(error)  # it fails every heartbeat until somebody acts: said once
            _log.warning("%r: %s", self._namespace, error)
        else:
            _log.debug("%r: %s", self._namespace, error)

    def _facts(self, event: str, **more: object) -> dict[str, object]:
        """For what is logged: fields that tools can search for."""
        known = {"namespace": self._namespace, "worker": self._who.worker_id, "epoch": self._announced[1]}
        return {"event": event, **known, **more}

    def _update(self, **changes: object) -> None:
        """Change what is known of our term. Whoever is not the lease loop itself pokes it then."""
        if self._tenure is not None:
            self._tenure = msgspec.structs.replace(self._tenure, **changes)

    def _signal(self) -> None:
        """Wake whoever waits for a change of leadership."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _cancel_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.defects += 1
            _log.error("a defect of tenure in a task of %r", self._namespace, exc_info=error)
