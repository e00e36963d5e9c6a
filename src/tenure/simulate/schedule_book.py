"""The judge's own book of a schedule: jobs, occurrences and runs by the log alone, and whether each step was right.

None of the scheduler's code is used but the form of its records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice

from tenure.plugins.scheduler.job import At, Interrupted, Misfire, Overlap, QueueTarget
from tenure.plugins.scheduler.records import (
    Begun,
    CutShort,
    Defined,
    Event,
    Failed,
    Fired,
    Outcome,
    Passed,
    Paused,
    Refused,
    Removed,
    Resumed,
    State,
    Succeeded,
)
from tenure.simulate.schedule_records import Booked, Code, Finished, Moment, Ran
from tenure.simulate.schedule_rules import Decision, Report, check_misfires, instants, jitter

REMOVED_JOBS_RECORDS = 100
LATE_MS = 15_000
"""In calm: two entries a second are written, but for requests without an answer."""


class Book:
    def __init__(self, report: Report, code: dict[str, Code]) -> None:
        self.jobs: dict[str, Booked] = {}
        self.runs: dict[int, Ran] = {}
        self.by_name: dict[str, Ran] = {}
        self.open_of: dict[str, dict[int, Ran]] = defaultdict(dict)
        self.over: dict[str, list[Finished]] = defaultdict(list)
        """By job, in the order in which they came to be over."""
        self.kept: dict[str, int] = {}
        """By job: how many records of it were kept at all times."""
        self.paused = False
        self.last = 0
        self.counts: Counter[str] = Counter()
        self.manuals: set[str] = set()
        self.calm_ms = 2**62
        """The store's clock when trouble was over: from then on everything is on time."""
        self.roomy = True
        """A leader runs as many at once as there are."""
        self.on_end: Callable[[Ran, Succeeded | Failed, Moment], None] = lambda ran, event, moment: None
        self._report = report
        self._code = code
        self._decided: dict[str, set[int]] = defaultdict(set)
        self._latest: dict[str, Finished] = {}
        """By job: what was decided last, if that was passed over."""
        self._moment = Moment(0, 0, 0, 0, 0, "")
        self._term_ms = 0
        self._changed: set[str] = set()
        """Jobs that this entry changes: before that all of their instants are decided, jitter or not."""

    # Entries

    def begin_term(self, true_ms: int) -> None:
        self._term_ms = true_ms
        for ran in self.open():
            if ran.state is State.RUNNING:
                ran.state = State.CUT_SHORT

    def open(self) -> Iterator[Ran]:
        return (ran for mine in self.open_of.values() for ran in mine.values())

    def active(self, booked: Booked) -> bool:
        return booked.job.enabled and not booked.paused and not self.paused

    def enter(self, events: tuple[Event, ...], moment: Moment) -> None:
        self._moment = moment
        self._changed = set()
        for event in events:
            if isinstance(event, Defined):
                self._changed.add(event.job.id)
            elif isinstance(event, Removed | Paused):
                self._changed.add(event.job)
        for event in events:
            self._follow(event)
        for booked in self.jobs.values():
            self._settle(booked)
        self._check_rest()

    def _follow(self, event: Event) -> None:
        match event:
            case Fired():
                self._fired(event)
            case Passed():
                self._passed(event)
            case Begun() | Succeeded() | Failed() | CutShort():
                ran = self.runs.get(event.number)
                if ran is None or ran.state is State.DONE:
                    what = "unknown" if ran is None else f"over ({ran.outcome.value})"
                    self._report("state", f"entry {self._moment.seq} has {event}, and run {event.number} is {what}")
                else:
                    self._of_run(ran, event)
            case Defined():
                self._defined(event)
            case Removed():
                self._removed(event)
            case Paused():
                self._paused(event)
            case Resumed():
                self._resumed(event)
            case Refused():
                self.counts["refused"] += 1

    def _settle(self, booked: Booked) -> None:
        if booked.decisions:
            moment = self._moment
            check_misfires(booked.job, booked.decisions, moment.time_ms, moment.certain_ms, self._report)
            booked.decisions = []

    def _check_rest(self) -> None:
        """What a leader must not leave as it is when it decides at all."""
        moment = self._moment
        for job, mine in self.open_of.items():
            if not mine:
                continue
            waiting = 0
            for ran in mine.values():
                waiting += ran.state is State.WAITING
                if ran.state is State.CUT_SHORT:
                    self._report("forgotten", f"{ran.name} was cut short, and entry {moment.seq} does not decide on it")
            booked = self.jobs.get(job)
            if not waiting or booked is None or not self.roomy:
                continue
            limit = booked.job.max_running if booked.job.overlap is Overlap.ALLOW else 1
            ready = [ran for ran in mine.values() if ran.state is State.WAITING and self._may_run(booked, ran.manual)]
            if ready and len(mine) - waiting < limit and self._code[moment.worker].has(booked.job):
                self._report("waits", f"{ready[0].name} waits after entry {moment.seq}, and nothing is in its way")

    # Occurrences

    def _number(self, number: int) -> None:
        if number <= self.last:
            self._report("number", f"entry {self._moment.seq} gives number {number} again, after {self.last}")
        self.last = max(self.last, number)

    def _may_run(self, booked: Booked, manual: str) -> bool:
        return bool(manual) or self.active(booked)

    def _decide(self, booked: Booked, decision: Decision) -> None:
        """These are the next instants of the job, none left out, none early, none while there are none."""
        job, moment = booked.job, self._moment
        first, last, count = decision.first, decision.last, decision.count
        where = f"entry {moment.seq}: {job.id}@{first}" + (f" to {last}" if count > 1 else "")
        expected = list(islice(instants(job, booked.anchor, booked.decided), count))
        if first in self._decided[job.id]:
            self._report("twice", f"{where} was decided before")
        elif expected[:1] != [first] or len(expected) < count or expected[-1] != last:
            what = f"{where} ({count}) is decided, and those after {booked.decided} are {expected[:3]}"
            self._report("lost" if expected and expected[0] < first else "instant", what)
        self._decided[job.id].update(expected)
        booked.decided = max(booked.decided, last)
        changed = job.id in self._changed or "" in self._changed
        due = last if changed else last + jitter(job, last)
        if due > moment.true_ms:
            early = (due - moment.true_ms) / 1000
            self._report("early", f"{where} is decided {early:.3f} s before its time")
        if not self.active(booked):
            self._report("paused", f"{where} is decided, and the job is paused")
        if not changed and not self._code[moment.worker].has(job):
            self._report("undeclared", f"{where} is decided by {moment.worker}, which does not have it")
        booked.decisions.append(decision)
        self.counts["decided"] += count
        late_ms = moment.true_ms - (first + job.jitter_ms)
        if late_ms > LATE_MS and first > max(self.calm_ms, self._term_ms, booked.since) and not changed:
            self._report("late", f"{where} is decided {late_ms / 1000:.1f} s after its time, and all is well")

    def _fired(self, event: Fired) -> None:
        moment = self._moment
        self._number(event.number)
        ran = self.runs[event.number] = Ran(event, moment)
        booked = self.jobs.get(event.job)
        self.counts["fired"] += 1
        if event.manual:
            self.counts["by hand"] += 1
            self.manuals.add(event.manual)
        if ran.name in self.by_name:
            self._report("twice", f"{ran.name} fires in entry {moment.seq}, and did before")
        self.by_name[ran.name] = ran
        if booked is None:
            self._report("unknown", f"{ran.name} fires in entry {moment.seq}, and there is no such job")
            return
        if not event.manual:
            self._latest.pop(event.job, None)
            self._decide(booked, Decision(ran.instant, ran.instant, 1, Outcome.FIRED))
        obstacle = self._obstacle(booked)
        if obstacle and not self._may_wait(booked, ran.instant, ran.manual):
            self._report("overlap", f"{ran.name} fires in entry {moment.seq}, and {obstacle}")
        self.counts["queued"] += bool(obstacle)
        self.open_of[event.job][event.number] = ran
        if event.begins:
            self._begin(ran, booked)

    def _obstacle(self, booked: Booked) -> str:
        """Why an occurrence cannot begin at once."""
        mine = self.open_of[booked.job.id]
        limit = booked.job.max_running if booked.job.overlap is Overlap.ALLOW else 1
        return f"{len(mine)} are open: {next(iter(mine.values())).name}" if len(mine) >= limit else ""

    def _may_wait(self, booked: Booked, instant: int, manual: str, *, surely: bool = False) -> bool:
        """May (or, surely: must) one that cannot begin at once wait?"""
        job = booked.job
        waiting = sum(ran.state is State.WAITING for ran in self.open_of[job.id].values())
        if job.overlap is Overlap.QUEUE_ONE and not waiting:
            return True
        now = self._moment.certain_ms if surely else self._moment.time_ms
        late = now - job.jitter_ms - job.misfire_grace_ms
        return job.misfire is Misfire.FIRE_ALL and not manual and instant < late and waiting < job.catch_up

    def _passed(self, event: Passed) -> None:
        self._number(event.number)
        booked = self.jobs.get(event.job)
        first, last, count, outcome = event.scheduled_ms, event.to_ms or event.scheduled_ms, event.count, event.outcome
        self.counts[outcome.value] += count
        before, head = self._latest.get(event.job), event.number
        if before is not None and before.outcome is outcome is not Outcome.SKIPPED_OVERLAP and before.last < first:
            head = before.head
        finished = Finished(event.number, first, last, count, outcome, head)
        self.over[event.job].append(finished)
        if event.manual:
            self.manuals.add(event.manual)
        else:
            self._latest[event.job] = finished
        if booked is None:
            self._report("unknown", f"entry {self._moment.seq} has {event}, and there is no such job")
            return
        if not event.manual:
            self._decide(booked, Decision(first, last, count, outcome))
        if outcome is Outcome.SKIPPED_OVERLAP:
            name = f"{event.job}@{first}"
            if not self._obstacle(booked):
                self._report("overlap", f"{name} is skipped by entry {self._moment.seq}, and nothing is in its way")
            elif self._may_wait(booked, first, event.manual, surely=True):
                self._report("overlap", f"{name} is skipped by entry {self._moment.seq}, and could wait")

    # Runs

    def _begin(self, ran: Ran, booked: Booked) -> None:
        moment = self._moment
        job = booked.job
        mine = self.open_of[ran.job].values()
        busy = sum(other.state is not State.WAITING for other in mine if other is not ran)
        limit = job.max_running if job.overlap is Overlap.ALLOW else 1
        booked.crowded = booked.crowded and busy >= limit
        if busy >= limit and not booked.crowded:
            self._report("overlap", f"{ran.name} begins in entry {moment.seq}, and {busy} others of the job are open")
        if not self._code[moment.worker].has(job):
            self._report("undeclared", f"{ran.name} begins in entry {moment.seq}, and {moment.worker} does not have it")
        if not self._may_run(booked, ran.manual):
            self._report("paused", f"{ran.name} begins in entry {moment.seq}, and its job is paused")
        if ran.tokens and ran.token >= moment.seq:
            self._report("token", f"{ran.name} begins in entry {moment.seq}, and had token {ran.token}")
        ran.state, ran.epoch, ran.retry = State.RUNNING, moment.epoch, 0
        ran.sends = isinstance(job.target, QueueTarget)
        ran.tokens.append(moment.seq)
        ran.workers.append(moment.worker)
        ran.timeouts.append(job.timeout_ms)

    def _of_run(self, ran: Ran, event: Begun | Succeeded | Failed | CutShort) -> None:
        moment, booked = self._moment, self.jobs.get(ran.job)
        wanted = {Begun: (State.WAITING, State.BACKING_OFF), CutShort: (State.CUT_SHORT,)}.get(
            type(event), (State.RUNNING,)
        )
        if ran.state not in wanted:
            self._report("state", f"entry {moment.seq} has {event}, and {ran.name} is {ran.state.value}")
            return
        if isinstance(event, CutShort):
            self._cut_short(ran, booked, event)
        elif isinstance(event, Begun):
            if ran.retry > moment.true_ms:
                self._report("early", f"{ran.name} begins {ran.retry - moment.true_ms} ms before its retry")
            if booked is None:
                self._report("unknown", f"{ran.name} begins in entry {moment.seq}, and its job was removed")
            else:
                self.counts["retried"] += ran.state is State.BACKING_OFF
                self._begin(ran, booked)
        elif isinstance(event, Succeeded):
            self.on_end(ran, event, moment)
            self.counts["succeeded"] += 1
            self._over(ran, Outcome.FIRED)
        else:
            self.on_end(ran, event, moment)
            self._failed(ran, booked, event)

    def _failed(self, ran: Ran, booked: Booked | None, event: Failed) -> None:
        ran.failures += 1
        again = booked is not None and not ran.orphaned and ran.failures <= booked.job.retries
        if bool(event.retry_ms) != again:
            self._report("retries", f"{ran.name} failed {ran.failures} times, and is tried again: {event.retry_ms}")
        if not event.retry_ms:
            self.counts["failed"] += 1
            self._over(ran, Outcome.FAILED)
            return
        ran.state, ran.retry = State.BACKING_OFF, event.retry_ms
        if booked is not None:
            job = booked.job
            pause = min(job.max_backoff_ms, job.backoff_ms * 2 ** (ran.failures - 1))
            waits = event.retry_ms - self._moment.time_ms
            if not pause // 2 <= waits <= pause + 1:
                self._report("retries", f"{ran.name} failed {ran.failures} times, and waits {waits} of {pause} ms")

    def _cut_short(self, ran: Ran, booked: Booked | None, event: CutShort) -> None:
        sends = booked is not None and isinstance(booked.job.target, QueueTarget)
        if booked is None or ran.orphaned:
            again = False
        elif sends:
            again = True
        else:
            again = booked.job.interrupted is Interrupted.RERUN and ran.interruptions < booked.job.max_interruptions
        if event.again is not again or event.counts is (sends and not ran.orphaned):
            self._report("interrupted", f"{ran.name}, interrupted {ran.interruptions} times before, has {event}")
        ran.interruptions += event.counts
        self.counts["sent again" if sends and event.again else "rerun" if event.again else "abandoned"] += 1
        self.counts["interrupted"] += 1
        if event.again:
            ran.state = State.WAITING
        else:
            self._over(ran, Outcome.INTERRUPTED)

    def _over(self, ran: Ran, outcome: Outcome) -> None:
        ran.state, ran.outcome, ran.finished = State.DONE, outcome, self._moment.true_ms
        del self.open_of[ran.job][ran.number]
        self.over[ran.job].append(Finished(ran.number, ran.instant, ran.instant, 1, outcome, ran.number))

    # Jobs

    def _check_all_decided(self, booked: Booked, through: int, what: str) -> None:
        due = booked.undecided() if self.active(booked) else None
        if due is not None and due <= through:
            late = (self._moment.time_ms - due) / 1000
            self._report("lost", f"{booked.job.id}@{due} was due {late:.1f} s before entry {self._moment.seq} {what}")

    def _defined(self, event: Defined) -> None:
        moment, job = self._moment, event.job
        self.kept[job.id] = min(self.kept.get(job.id, REMOVED_JOBS_RECORDS), job.history)
        booked = self.jobs.get(job.id)
        if booked is None:
            decided = moment.time_ms
            if isinstance(job.schedule, At):
                decided = min(decided, job.schedule.at_ms - 1)
            if (event.anchor_ms, event.decided_ms) != (moment.time_ms, decided):
                self._report("defined", f"{job.id} is added by entry {moment.seq} at {moment.time_ms}: {event}")
            self.jobs[job.id] = Booked(job, event.anchor_ms, event.decided_ms, moment.true_ms)
            return
        before = booked.job
        same = (before.schedule, before.start_ms, before.end_ms) == (job.schedule, job.start_ms, job.end_ms)
        if same:
            if event.anchor_ms != booked.anchor:
                self._report("defined", f"entry {moment.seq} moves the anchor of {job.id}, whose times are the same")
            if not job.enabled:
                self._check_all_decided(booked, moment.certain_ms, "disables it")
            if before.enabled and event.decided_ms != booked.decided:
                self._report("lost", f"entry {moment.seq} leaves out what {job.id} has after {booked.decided}: {event}")
        else:
            self._redefined(booked, event)
        self._settle(booked)
        if before.overlap is Overlap.ALLOW or job.overlap is Overlap.ALLOW:
            booked.crowded = True
        booked.job, booked.anchor, booked.decided = job, event.anchor_ms, event.decided_ms
        booked.since = moment.true_ms

    def _redefined(self, booked: Booked, event: Defined) -> None:
        """All of the old timetable up to an instant that is about now, and the new one from there."""
        moment, schedule = self._moment, event.job.schedule
        cut = max(booked.decided, moment.certain_ms)
        is_back = isinstance(schedule, At) and event.decided_ms == schedule.at_ms - 1
        if is_back and isinstance(schedule, At) and schedule.at_ms in self._decided[event.job.id]:
            self._report("twice", f"{event.job.id}@{schedule.at_ms} was decided, and entry {moment.seq} goes back")
        if event.anchor_ms != moment.time_ms or not (cut <= event.decided_ms <= moment.time_ms or is_back):
            self._report("defined", f"{booked.job.id}, decided up to {booked.decided}, is another: {event}")
        through = moment.certain_ms if is_back else event.decided_ms
        self._check_all_decided(booked, through, "changes its times")

    def _removed(self, event: Removed) -> None:
        booked = self.jobs.pop(event.job, None)
        if booked is None:
            self._report("unknown", f"entry {self._moment.seq} removes {event.job}, which is not there")
            return
        self._settle(booked)
        self._latest.pop(event.job, None)
        self._check_all_decided(booked, self._moment.certain_ms, "removes it")
        for ran in list(self.open_of[event.job].values()):
            ran.orphaned = True
            if ran.state is not State.RUNNING:
                self._over(ran, Outcome.INTERRUPTED)

    def _paused(self, event: Paused) -> None:
        for booked in self.jobs.values():
            if event.job in ("", booked.job.id):
                self._settle(booked)
                self._check_all_decided(booked, self._moment.certain_ms, "pauses it")
        if not event.job:
            self.paused = True
        elif event.job in self.jobs:
            self.jobs[event.job].paused = True

    def _resumed(self, event: Resumed) -> None:
        if not self._moment.certain_ms <= event.decided_ms <= self._moment.time_ms:
            self._report("defined", f"entry {self._moment.seq}, of {self._moment.time_ms}, has {event}")
        if not event.job:
            self.paused = False
        for booked in self.jobs.values():
            if event.job == booked.job.id:
                self._check_all_decided(booked, event.decided_ms, "resumes it")
                booked.paused, booked.since = False, self._moment.true_ms
                booked.decided = max(booked.decided, event.decided_ms)
            elif not event.job and self.active(booked):
                booked.decided = max(booked.decided, event.decided_ms)
