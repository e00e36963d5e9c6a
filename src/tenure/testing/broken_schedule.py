"""Broken builds of the scheduler: each is a patch to a production class, and the judge must catch it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from tenure.database.time import StoreTime
from tenure.ledger import InboxName, Stamp
from tenure.ledger.leader import Item, Situation
from tenure.ledger.producers import Producers, Verdict
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import due as due_module
from tenure.plugins.scheduler.calls import Calls
from tenure.plugins.scheduler.clerk import End, ScheduleClerk, Start
from tenure.plugins.scheduler.due import Course, Due
from tenure.plugins.scheduler.job import Job, Origin, QueueTarget
from tenure.plugins.scheduler.leading import ScheduleLeading
from tenure.plugins.scheduler.records import CutShort, Defined, Fired, JobState, Occurrence, Removed, Resumed, Totals
from tenure.plugins.scheduler.registry import Registry
from tenure.plugins.scheduler.runs import Runs
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.timetable import Timetable, jitter_of, timetable_of
from tenure.plugins.scheduler.wire import Command
from tenure.plugins.supervisor.running import LeasedCoroutine
from tenure.testing.broken import Patch, Variant
from tenure.testing.broken_queue import overwrites_the_log


def _dedup_without_time() -> list[Patch]:
    enqueue = S3QueuePlugin.enqueue

    async def one_for_all(self: S3QueuePlugin, body: Any, *, dedup_key: str | None = None, **options: Any) -> str:
        return await enqueue(self, body, dedup_key=(dedup_key or "").partition("@")[0], **options)

    return [(S3QueuePlugin, "enqueue", one_for_all)]


def _dedup_by_token() -> list[Patch]:
    enqueue = S3QueuePlugin.enqueue

    async def one_for_each(self: S3QueuePlugin, body: Any, *, headers: dict[str, str], **options: Any) -> str:
        options["dedup_key"] += headers["tenure-token"]
        return await enqueue(self, body, headers=headers, **options)

    return [(S3QueuePlugin, "enqueue", one_for_each)]


def _searches_from_now() -> list[Patch]:
    visit = Due._visit

    def hasty(self: Due, job: str, state: JobState, horizon_ms: int) -> int:
        if job not in self._courses:
            course = self._courses[job] = Course(state)
            course.through_ms = max(course.through_ms, horizon_ms)
        return visit(self, job, state, horizon_ms)

    return [(Due, "_visit", hasty)]


def _begins_before_written() -> list[Patch]:
    starting = ScheduleClerk._starting

    def hasty(self: ScheduleClerk, occurrence: Occurrence, job: Job) -> None:
        starting(self, occurrence, job)
        self._begin(self._starts.pop())

    return [(ScheduleClerk, "_starting", hasty)]


def _snapshot_forgets_decided() -> list[Patch]:
    snapshot = ScheduleMachine.snapshot

    def forgetful(self: ScheduleMachine) -> list[bytes]:
        decided = {job: state.decided_ms for job, state in self.jobs.items()}
        try:
            for state in self.jobs.values():
                state.decided_ms = state.changed_ms
            return snapshot(self)
        finally:
            for job, state in self.jobs.items():
                state.decided_ms = decided[job]

    return [(ScheduleMachine, "snapshot", forgetful)]


def _forgets_cut_short() -> list[Patch]:
    def began(self: ScheduleMachine, stamp: Stamp) -> None:
        """Whatever ran goes on to run, it thinks."""

    return [(ScheduleMachine, "began", began)]


def _leaves_cut_short() -> list[Patch]:
    return [(ScheduleClerk, "_take_cut_short", lambda self: None)]


def _without_doubt() -> list[Patch]:
    decide = ScheduleClerk.decide

    def certain(self: ScheduleClerk, items: Sequence[Item], situation: Situation) -> bytes | None:
        return decide(self, items, msgspec.structs.replace(situation, doubt_ms=0))

    async def horizon_ms(self: ScheduleLeading) -> int:
        return int(await self._time.now() * 1000)

    return [(ScheduleClerk, "decide", certain), (ScheduleLeading, "_horizon_ms", horizon_ms)]


def _by_wall_clock() -> list[Patch]:
    async def now(self: StoreTime) -> float:
        self._told = max(self._told, self._clock.read().wall_ns / 1e9)
        return self._told

    return [(StoreTime, "now", now), (StoreTime, "uncertainty", property(lambda self: 0.0))]


def _decides_again() -> list[Patch]:
    take_over = ScheduleClerk.take_over

    def forgetful(self: ScheduleClerk) -> None:
        for state in self.machine.jobs.values():
            state.decided_ms = state.changed_ms
        take_over(self)

    return [(ScheduleClerk, "take_over", forgetful)]


def _change_forgets_due() -> list[Patch]:
    return [(ScheduleClerk, "_decide_up_to_now", lambda self, state: True)]


def _change_counts_anew() -> list[Patch]:
    enact = ScheduleClerk._enact

    def anew(self: ScheduleClerk, event: Any) -> None:
        if isinstance(event, Defined):
            now_ms = self._stamp.time_ms
            event = msgspec.structs.replace(event, anchor_ms=now_ms, decided_ms=now_ms)
        enact(self, event)

    return [(ScheduleClerk, "_enact", anew)]


def _jitter_in_key() -> list[Patch]:
    enact = ScheduleClerk._enact

    def shifted(self: ScheduleClerk, event: Any) -> None:
        if isinstance(event, Fired) and not event.manual:
            put_off = jitter_of(self.machine.jobs[event.job].job, event.scheduled_ms)
            event = msgspec.structs.replace(event, scheduled_ms=event.scheduled_ms + put_off)
        enact(self, event)

    return [(ScheduleClerk, "_enact", shifted)]


def _ignores_jitter() -> list[Patch]:
    def at_once(self: Course) -> int | None:
        if self.passed:
            return self.passed[0].low_ms
        return self.instants[0] if self.instants else None

    return [(Course, "due_ms", at_once)]


def _retries_forgotten() -> list[Patch]:
    take_over = ScheduleClerk.take_over

    def forgetful(self: ScheduleClerk) -> None:
        take_over(self)
        self._retries = []

    return [(ScheduleClerk, "take_over", forgetful)]


def _ignores_overlap() -> list[Patch]:
    occur = ScheduleClerk._occur

    def generous(self: ScheduleClerk, state: JobState, *arguments: Any, **options: Any) -> bool:
        open_of, self.machine.open_of = self.machine.open_of, {}
        try:
            fired = occur(self, state, *arguments, **options)
        finally:
            for job, mine in self.machine.open_of.items():
                open_of.setdefault(job, {}).update(mine)
            self.machine.open_of = open_of
        return fired

    return [(ScheduleClerk, "_occur", generous)]


def _ignores_pause() -> list[Patch]:
    return [(ScheduleMachine, "is_active", lambda self, state: state.job.enabled)]


def _resumes_with_the_past() -> list[Patch]:
    resumed = ScheduleMachine._resumed

    def diligent(self: ScheduleMachine, event: Resumed) -> None:
        resumed(self, msgspec.structs.replace(event, decided_ms=0))

    return [(ScheduleMachine, "_resumed", diligent)]


def _fires_whatever_is_late() -> list[Patch]:
    return [
        (Course, "settle", lambda self, horizon_ms: None),
        (Course, "is_late", lambda self, instant, horizon_ms: False),
        (Course, "_leap", lambda self, table, horizon_ms: None),
    ]


def _reruns_without_end() -> list[Patch]:
    enact = ScheduleClerk._enact

    def stubborn(self: ScheduleClerk, event: Any) -> None:
        if isinstance(event, CutShort) and event.number in self.machine.open:
            event = msgspec.structs.replace(event, again=self.machine.open[event.number].job in self.machine.jobs)
        enact(self, event)

    return [(ScheduleClerk, "_enact", stubborn)]


def _runs_what_it_does_not_have() -> list[Patch]:
    return [(Registry, "unknown", lambda self, job: None)]


def _one_token() -> list[Patch]:
    begin = ScheduleMachine._begin

    def same(self: ScheduleMachine, occurrence: Occurrence, stamp: Stamp, worker: str) -> None:
        before = occurrence.token
        begin(self, occurrence, stamp, worker)
        occurrence.token = before or occurrence.token

    return [(ScheduleMachine, "_begin", same)]


def _ends_unheard() -> list[Patch]:
    ended = ScheduleClerk.ended

    def deaf(self: ScheduleClerk, end: End) -> None:
        if end.error is not None:
            ended(self, end)

    return [(ScheduleClerk, "ended", deaf)]


def _ends_well_anyway() -> list[Patch]:
    ended = ScheduleClerk.ended

    def rosy(self: ScheduleClerk, end: End) -> None:
        ended(self, msgspec.structs.replace(end, error=None))

    return [(ScheduleClerk, "ended", rosy)]


def _answers_before_decided() -> list[Patch]:
    give = Calls.give

    async def hasty(self: Calls, command: Command, timeout: float | None) -> str | None:
        return await give(self, command, None)

    return [(Calls, "give", hasty)]


def _no_timeouts() -> list[Patch]:
    see_to = Runs._see_to

    async def patient(self: Runs, start: Any, *arguments: Any, **options: Any) -> str | None:
        job = msgspec.structs.replace(start.job, timeout_ms=0)
        return await see_to(self, msgspec.structs.replace(start, job=job), *arguments, **options)

    return [(Runs, "_see_to", patient)]


def _endless_retries() -> list[Patch]:
    retry_ms = ScheduleClerk._retry_ms

    def again(self: ScheduleClerk, occurrence: Occurrence) -> int:
        failures, occurrence.failures = occurrence.failures, 0
        try:
            return retry_ms(self, occurrence)
        finally:
            occurrence.failures = failures

    return [(ScheduleClerk, "_retry_ms", again)]


def _drops_messages() -> list[Patch]:
    def once_only(self: ScheduleClerk) -> None:
        for number in list(self.machine.cut_short):
            occurrence = self.machine.open[number]
            state = self.machine.jobs.get(occurrence.job)
            again = state is not None and not isinstance(state.job.target, QueueTarget)
            self._enact(CutShort(number, again=again))

    return [(ScheduleClerk, "_take_cut_short", once_only)]


def _sends_afterwards() -> list[Patch]:
    send = Runs._send

    async def hasty(self: Runs, start: Start, target: QueueTarget) -> None:
        asyncio.get_running_loop().create_task(send(self, start, target)).add_done_callback(_retrieved)

    return [(Runs, "_send", hasty)]


def _refusals_unheard() -> list[Patch]:
    give = Calls.give

    async def content(self: Calls, command: Command, timeout: float | None) -> str | None:
        await give(self, command, timeout)
        return None

    return [(Calls, "give", content)]


def _begins_twice() -> list[Patch]:
    begin = Runs.begin

    def eager(self: Runs, start: Start) -> None:
        begin(self, start)
        begin(self, start)

    return [(Runs, "begin", eager)]


def _declares_at_old_times() -> list[Patch]:
    redefine = ScheduleClerk._redefine

    def lazy(self: ScheduleClerk, state: JobState, job: Job, by: str) -> bool:
        if job.origin is Origin.CODE:
            job = msgspec.structs.replace(job, schedule=state.job.schedule)
        return redefine(self, state, job, by)

    return [(ScheduleClerk, "_redefine", lazy)]


def _commands_folded_again() -> list[Patch]:
    judge = Producers.judge

    def forgetful(self: Producers, name: InboxName, *arguments: Any) -> Verdict:
        verdict = judge(self, name, *arguments)
        return Verdict.FOLD if verdict is Verdict.DUPLICATE else verdict

    return [(Producers, "judge", forgetful), (Producers, "is_done", lambda self, name: False)]


def _keeps_half_the_history() -> list[Patch]:
    forget_of = ScheduleMachine._forget_of

    def brief(self: ScheduleMachine, job: str, most: int) -> None:
        forget_of(self, job, most // 2)

    return [(ScheduleMachine, "_forget_of", brief)]


def _ignores_start() -> list[Patch]:
    def from_its_anchor(job: Job, anchor_ms: int) -> Timetable:
        return timetable_of(msgspec.structs.replace(job, start_ms=None), anchor_ms)

    return [(due_module, "timetable_of", from_its_anchor)]


def _decides_late() -> list[Patch]:
    next_ms = Due.next_ms

    def later(self: Due) -> int | None:
        due = next_ms(self)
        return None if due is None else due + 20_000

    return [(Due, "next_ms", later)]


def _runs_past_lease() -> list[Patch]:
    begin = LeasedCoroutine.__init__

    def unbound(self: LeasedCoroutine, coroutine: Any, may_go_on: Any) -> None:
        begin(self, coroutine, lambda: True)

    return [(LeasedCoroutine, "__init__", unbound), (Runs, "_check_lease", lambda self: None)]


def _snapshot_forgets_numbers() -> list[Patch]:
    snapshot = ScheduleMachine.snapshot

    def forgetful(self: ScheduleMachine) -> list[bytes]:
        last, self.last = self.last, 0
        try:
            return snapshot(self)
        finally:
            self.last = last

    return [(ScheduleMachine, "snapshot", forgetful)]


def _snapshot_forgets_sums() -> list[Patch]:
    restore = ScheduleMachine.restore

    def forgetful(self: ScheduleMachine, chunks: Sequence[bytes]) -> None:
        restore(self, chunks)
        self.totals = Totals()

    return [(ScheduleMachine, "restore", forgetful)]


def _removes_what_is_not_there() -> list[Patch]:
    refusal = ScheduleClerk._refusal

    def willing(self: ScheduleClerk, command: Command) -> str | None:
        if command.op == "remove" and command.id not in self.machine.jobs:
            self._enact(Removed(command.id, command.by))
            return None
        return refusal(self, command)

    return [(ScheduleClerk, "_refusal", willing)]


def _leaves_waiting() -> list[Patch]:
    return [(ScheduleClerk, "_ready_first", lambda self: [])]


def _retrieved(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


SCHEDULE_VARIANTS = (
    Variant("dedup-without-time", "the messages of all occurrences of a job are one", "message", _dedup_without_time),
    Variant("dedup-by-token", "a message that is sent again is another one", "message", _dedup_by_token),
    Variant("searches-from-now", "what is due is searched from now on", "lost", _searches_from_now),
    Variant("begins-before-written", "a run begins before its entry is written", "not written", _begins_before_written),
    Variant("snapshot-forgets-decided", "snapshots do not say what was decided", "twice", _snapshot_forgets_decided),
    Variant(
        "forgets-cut-short", "runs of a leader that is gone are taken for running", "forgotten", _forgets_cut_short
    ),
    Variant("leaves-cut-short", "nobody decides on the runs of a leader that is gone", "forgotten", _leaves_cut_short),
    Variant("without-doubt", "what the leader takes for the time is the time", "early", _without_doubt),
    Variant("by-wall-clock", "the leader goes by its host's clock", "clock", _by_wall_clock),
    Variant("decides-again", "a new leader decides on what was decided", "twice", _decides_again),
    Variant("change-forgets-due", "a change drops what was due before it", "lost", _change_forgets_due),
    Variant("change-counts-anew", "every change begins to count anew", "defined", _change_counts_anew),
    Variant("jitter-in-key", "an occurrence is known by its time with jitter", "lost", _jitter_in_key),
    Variant("ignores-jitter", "jitter delays nothing", "early", _ignores_jitter),
    Variant("retries-forgotten", "a new leader forgets what is to be tried again", "liveness", _retries_forgotten),
    Variant("ignores-overlap", "runs of a job overlap, whatever its policy", "overlap", _ignores_overlap),
    Variant("runs-while-paused", "a paused job goes on", "paused", _ignores_pause),
    Variant("resumes-with-the-past", "what passed during a pause is made up for", "twice", _resumes_with_the_past),
    Variant("fires-whatever-is-late", "how late it is decides nothing", "policy", _fires_whatever_is_late),
    Variant("reruns-without-end", "what was cut short is always begun again", "interrupted", _reruns_without_end),
    Variant(
        "runs-what-it-has-not",
        "a leader decides on jobs that it does not have",
        "undeclared",
        _runs_what_it_does_not_have,
    ),
    Variant("one-token", "every attempt has the token of the first", "token", _one_token),
    Variant("ends-unheard", "a run that succeeded is not recorded", "not recorded", _ends_unheard),
    Variant("ends-well-anyway", "whatever fails is recorded as a success", "not run", _ends_well_anyway),
    Variant(
        "answers-before-decided",
        "a command returns before the leader has followed it",
        "command",
        _answers_before_decided,
    ),
    Variant("no-timeouts", "a run may take as long as it likes", "liveness", _no_timeouts),
    Variant(
        "drops-messages", "a message is not sent again if its leader was cut short", "interrupted", _drops_messages
    ),
    Variant("sends-afterwards", "a message counts as sent before the queue has it", "message", _sends_afterwards),
    Variant("refusals-unheard", "who gave a command is not told that it was refused", "command", _refusals_unheard),
    Variant("endless-retries", "what fails is tried again without end", "retries", _endless_retries),
    Variant("begins-twice", "one entry begins a run twice", "begun twice", _begins_twice),
    Variant(
        "declares-at-old-times",
        "a job whose times changed in code keeps those it had",
        "declared",
        _declares_at_old_times,
    ),
    Variant(
        "commands-folded-again", "commands that were folded are folded again", "folded twice", _commands_folded_again
    ),
    Variant("keeps-half-the-history", "fewer records are kept than a job says", "history", _keeps_half_the_history),
    Variant("ignores-start", "a job fires before its start", "instant", _ignores_start),
    Variant("decides-late", "what is due is decided 20 s later", "late", _decides_late),
    Variant("runs-past-lease", "a run goes on when the lease is over", "lease", _runs_past_lease),
    Variant("overwrites-the-schedule", "an entry is written over one that has its number", "log", overwrites_the_log),
    Variant(
        "snapshot-forgets-numbers", "a new leader gives numbers that were given", "number", _snapshot_forgets_numbers
    ),
    Variant("snapshot-forgets-sums", "a snapshot does not say how much there was", "state", _snapshot_forgets_sums),
    Variant(
        "removes-what-is-not-there", "a job that does not exist can be removed", "unknown", _removes_what_is_not_there
    ),
    Variant("leaves-waiting", "an occurrence that waits for its turn is not begun", "waits", _leaves_waiting),
)
