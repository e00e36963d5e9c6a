"""A judge who knows everything that was promised about a schedule, and what became of it.

It reads the bucket's own history: every command, and every entry of the log as it was first created, whoever deleted or
re-created it since. From the entries that count it keeps a book of its own (`schedule_book`). What functions did, and
what callers were told, is said by the processes at that moment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from tenure.election.records import decode
from tenure.errors import LedgerHalted
from tenure.ledger import LedgerState, LogEntry
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import ledger_folder, parse_inbox_key, parse_number
from tenure.ledger.records import Kind
from tenure.plugins.queue import S3QueuePlugin
from tenure.plugins.scheduler import OccurrenceRecord, Run, SchedulerPlugin
from tenure.plugins.scheduler.records import Event, Failed, Outcome, State, Succeeded, decode_work
from tenure.plugins.scheduler.state import ScheduleMachine
from tenure.plugins.scheduler.wire import Batch
from tenure.simulate.schedule_book import REMOVED_JOBS_RECORDS, Book
from tenure.simulate.schedule_commands import Commands, Given
from tenure.simulate.schedule_post import Post
from tenure.simulate.schedule_records import Code, Moment, Ran
from tenure.simulate.schedule_rules import LEAST_DOUBT_MS, first_after, jitter
from tenure.testing.bucket import Write
from tenure.testing.checkers import Checkers
from tenure.testing.cluster import SimulatedCluster
from tenure.testing.machine import EPOCH_SECONDS

_STALE_AFTER = 10.0
_FOLDED_AFTER = 30.0
"""A queue that has been silent looks into its inbox every 20 s (`idle_budget`)."""
_TIMER_TOLERANCE = 0.9
"""Clocks of hosts run up to nine percent fast."""

_RAN = ("fired", "failed", "interrupted")

_batch = msgspec.json.Decoder(Batch)


class Judge:
    def __init__(
        self, cluster: SimulatedCluster, checkers: Checkers, name: str, queue: str, code: dict[str, Code]
    ) -> None:
        """The names of a schedule, and of the queue that it puts messages on; `code`: by host, what its code has."""
        self._cluster = cluster
        self._report = checkers.report
        self._name = name
        self._folder = ledger_folder(SchedulerPlugin.slug, name)
        self._code = code
        self.book = Book(checkers.report, code)
        self.book.on_end = self._check_end
        self.commands = Commands(self.book, code, checkers.report)
        self.post = Post(ledger_folder(S3QueuePlugin.slug, queue))
        self.counts = self.book.counts
        self.entries: dict[int, bytes] = {}
        """The log, as it was first written."""
        self.ghosts = 0
        self._created: dict[int, float] = {}
        """By entry: the true time."""
        self._highest_epoch = 0
        self._doubt_ms = LEAST_DOUBT_MS
        """By how much the leader's idea of the store's clock may be off, at worst, in the term that the log is in."""
        self._folded: dict[tuple[str, int], int] = {}
        self._batches: dict[tuple[str, int], Batch] = {}
        self._posted: dict[str, float] = {}
        # What processes did and were told
        self._began: set[tuple[int, int]] = set()
        """By number and token: functions that were called."""
        self._ended: dict[tuple[int, int], str] = {}
        self._unrecorded: dict[tuple[int, int], float] = {}
        """Ended well, when, and no entry says so yet."""
        self._under_way: dict[tuple[object, str], str] = {}
        """By process and job: the run whose function has not ended, of those that end when they are told to."""
        cluster.bucket.watchers.append(self._written)
        cluster.bucket.watchers.append(self.post.written)

    def store_ms(self, at: float | None = None) -> int:
        """The store's clock."""
        now = self._cluster.world.now if at is None else at
        return int((EPOCH_SECONDS + self._cluster.bucket.clock_offset + now) * 1000)

    # The bucket

    def _written(self, write: Write) -> None:
        if not write.key.startswith(self._folder):
            return
        key = write.key.removeprefix(self._folder)
        if key.startswith("log/"):
            self._log_written(key, write)
        elif key.startswith("inbox/"):
            self._inbox_written(key, write)
        elif key.startswith("snapshots/"):
            self.counts["snapshots"] += write.new is not None

    def _inbox_written(self, key: str, write: Write) -> None:
        name = parse_inbox_key(key)
        if name is None:
            return
        if write.new is not None:
            self._posted.setdefault(key, write.at)
            self._batches.setdefault((name.uid, name.number), _batch.decode(write.new))
            return
        self._posted.pop(key, None)
        if (name.uid, name.number) not in self._folded:
            self._report("lost", f"{key} was removed from the inbox before an entry had folded it")

    def _log_written(self, key: str, write: Write) -> None:
        number = parse_number(key)
        if number is None:
            return
        if write.new is None:
            self.counts["trimmed"] += 1
            return
        if number in self.entries:
            if write.old is not None:
                self._report("log", f"entry {number} was written over by {write.host}")
            elif write.new != self.entries[number]:
                self.ghosts += 1
            return
        self.entries[number], self._created[number] = write.new, write.at
        if number > 1 and number - 1 not in self.entries:
            self._report("log", f"entry {number} was written before entry {number - 1}")
        entry = decode(write.new, LogEntry, MAX_ENTRY_BYTES)
        if not isinstance(entry, LogEntry) or entry.seq != number:
            self._report("log", f"entry {number} is not readable: {entry}")
        elif entry.epoch < self._highest_epoch:
            self.counts["void entries"] += 1
        else:
            if entry.epoch > self._highest_epoch or entry.kind is Kind.TERM:
                self.book.begin_term(self.store_ms(write.at))
                self._doubt_ms = max(LEAST_DOUBT_MS, entry.doubt_ms + LEAST_DOUBT_MS - 1000)
            self._highest_epoch = entry.epoch
            self._enter(entry, write)

    def _enter(self, entry: LogEntry, write: Write) -> None:
        given = self._fold(entry)
        if entry.time_ms > self.store_ms(write.at) + self._doubt_ms:
            self._report("clock", f"entry {entry.seq} has the time {entry.time_ms}, {self.store_ms(write.at)}")
        events: tuple[Event, ...] = ()
        before = {name: booked.job for name, booked in self.book.jobs.items()}
        if (decided := entry.decided) is not None:
            work = decode_work(decided)
            events = work.events
            if work.worker != write.host:
                self._report("log", f"entry {entry.seq} of {write.host} says that {work.worker} leads")
            now_ms, certain_ms = self.store_ms(write.at), entry.time_ms - self._doubt_ms
            self.book.enter(events, Moment(entry.seq, entry.epoch, entry.time_ms, certain_ms, now_ms, write.host))
        self.commands.match(entry, events, given, before, write.host)
        self._check_recorded(entry)

    def _fold(self, entry: LogEntry) -> list[Given]:
        given = []
        for uid, numbers in entry.folded.items():
            for each in numbers:
                before = self._folded.setdefault((uid, each), entry.seq)
                if before != entry.seq:
                    self._report("folded twice", f"batch {each} of {uid}: by entries {before} and {entry.seq}")
                batch = self._batches.get((uid, each))
                if batch is None:
                    self._report("log", f"entry {entry.seq} folds batch {each} of {uid}, which nobody wrote")
                    continue
                given += [Given(uid, each, index, command) for index, command in enumerate(batch.commands)]
        for uid, numbers in entry.skipped.items():
            for each in numbers:
                self._folded.setdefault((uid, each), entry.seq)
        for rejection in entry.rejected:
            self._report("rejected", f"entry {entry.seq} rejects {rejection.key}: {rejection.reason}")
        return given

    def _check_recorded(self, entry: LogEntry) -> None:
        """What ended well while its leader led is recorded by the next entry of that leader, or one soon after."""
        for place, at in list(self._unrecorded.items()):
            ran = self.book.runs[place[0]]
            if ran.state is not State.RUNNING or ran.token != place[1] or entry.epoch > ran.epoch:
                del self._unrecorded[place]
            elif entry.time_ms > self.store_ms(at) + self._doubt_ms:
                late = (entry.time_ms - self.store_ms(at)) / 1000
                self._report("not recorded", f"{ran.name} ended well {late:.1f} s before entry {entry.seq}")
                del self._unrecorded[place]

    def looked(self, records: Sequence[OccurrenceRecord]) -> None:
        """Somebody has read what became of occurrences: as it is now, or was a little before."""
        for record in records:
            ran = self.book.by_name.get(record.run)
            if record.outcome in _RAN and ran is None:
                self._report("history", f"{record} never fired")
            elif ran is not None and record.state == "done" and ran.outcome.value != record.outcome:
                self._report("history", f"{record} is {ran.outcome.value}")
            elif ran is not None and len(ran.tokens) < record.attempts:
                self._report("history", f"{record} has the tokens {ran.tokens}")
        self.counts["looks"] += 1

    # Told by the functions

    def began(self, run: Run, process: Any, host: str, *, obedient: bool) -> None:
        ran = self.book.by_name.get(run.id)
        if ran is None:
            self._report("not written", f"{run} begins at {host}, and no entry says that it fired")
            return
        self._check_lease(run, host, "begins")
        now_ms = self.store_ms()
        if run.token not in ran.tokens:
            self._report("not written", f"{run} begins at {host}, and the log has begun it by {ran.tokens}")
            return
        place = (ran.number, run.token)
        attempt = ran.tokens.index(run.token)
        if ran.workers[attempt] != host:
            self._report("leader", f"{run} begins at {host}, and is {ran.workers[attempt]}'s")
        if run.attempt != attempt + 1:
            self._report("token", f"{run} begins, and is attempt {attempt + 1}")
        if place in self._began:
            self._report("begun twice", f"{run} begins at {host}, for the second time")
        booked = self.book.jobs.get(run.job)
        if ran.instant > now_ms and not ran.manual:  # which has the time that its leader saw
            self._report("early", f"{run} begins {ran.instant - now_ms} ms before its time")
        self._began.add(place)
        self.counts["begun"] += 1
        self.counts["begun late"] += run.token != ran.token
        if obedient and booked is not None and not ran.manual and booked.job.overlap.value != "allow":
            other = self._under_way.get((process, run.job))
            if other is not None and not booked.crowded:
                self._report("overlap", f"{run} begins at {host}, where {other} has not ended")
        if obedient:
            self._under_way[process, run.job] = run.id

    def _check_lease(self, run: Run, host: str, what: str) -> None:
        lead = self._cluster.workers[host].lead
        if lead is None or lead.epoch != run.epoch or not lead.holds():
            self._report("lease", f"{run} {what} at {host}, whose lease of epoch {run.epoch} is over")

    def ended(self, run: Run, process: Any, host: str, how: str, *, obedient: bool) -> None:
        """`how`: well, raised, cancelled, or gone: its process is."""
        if obedient and how == "well":
            self._check_lease(run, host, "ends")
        self._under_way.pop((process, run.job), None)
        ran = self.book.by_name.get(run.id)
        if ran is None or how == "gone":
            return
        place = (ran.number, run.token)
        self._ended[place] = how
        self.counts[f"ended {how}"] += 1
        if how == "well" and ran.state is State.RUNNING and ran.token == run.token:
            self._unrecorded[place] = self._cluster.world.now

    def _check_end(self, ran: Ran, event: Succeeded | Failed, moment: Moment) -> None:
        """What the log says of a run is what became of it."""
        if moment.epoch != ran.epoch or moment.worker != ran.workers[-1]:
            self._report("leader", f"{ran.name} of {ran.workers[-1]} is ended by {moment.worker} in entry {moment.seq}")
        self._unrecorded.pop((ran.number, ran.token), None)
        if ran.sends:
            if isinstance(event, Failed):
                self._report("not run", f"{ran.name} is given up on by entry {moment.seq}: {event.error}")
            elif self._key(ran) not in self.post.posted:
                self._report("message", f"{ran.name} was sent by entry {moment.seq}, and nothing is in the inbox")
            return
        how = self._ended.get((ran.number, ran.token), "")
        if isinstance(event, Succeeded):
            if how != "well":
                self._report("not run", f"{ran.name} succeeded by entry {moment.seq}, and its function ended {how!r}")
            return
        limit, lasted = ran.timeouts[-1] / 1000, self._cluster.world.now - self._created[ran.token]
        timed_out = bool(limit) and lasted >= limit * _TIMER_TOLERANCE
        self.counts["timed out"] += timed_out and "timeout" in event.error
        self.counts["left behind"] += "did not end" in event.error
        if how != "raised" and not timed_out:
            self._report("not run", f"{ran.name} failed by entry {moment.seq} ({event.error}): it ended {how!r}")

    # At the end

    def unfinished(self, mark_ms: int, host: str) -> list[str]:
        """What was due by then and is not decided, though the leader has it, or fired before that and is open."""
        found = []
        for booked in self.book.jobs.values():
            due = first_after(booked.job, booked.anchor, booked.decided) if self.book.active(booked) else None
            if due is not None and due + jitter(booked.job, due) <= mark_ms and self._code[host].has(booked.job):
                found.append(f"{booked.job.id}@{due} is not decided")
        for ran in self.book.open():
            other = self.book.jobs.get(ran.job)
            idle = other is not None and (not self.book.active(other) or not self._code[host].has(other.job))
            if ran.fired <= mark_ms and not (idle and ran.state is not State.RUNNING):
                found.append(f"{ran.name} is {ran.state.value}")
        return found

    def stale(self) -> list[str]:
        """What lies in an inbox, and should have been folded by now."""
        limit = self._cluster.world.now - _STALE_AFTER
        return [key for key, at in self._posted.items() if at < limit] + self.post.stale(limit)

    def conclude(self, state: LedgerState) -> None:
        """`state`: of a process that has just begun to look, from a snapshot and what follows it."""
        self.commands.conclude()
        self._check_messages()
        self._compare(state)

    def _key(self, ran: Ran) -> str:
        """What a queue remembers of the deduplication key of an occurrence."""
        return hashlib.blake2b(f"{self._name}/{ran.name}".encode(), digest_size=16).hexdigest()

    def _check_messages(self) -> None:
        known = set()
        ripe_ms = self.store_ms(self._cluster.world.now - _FOLDED_AFTER)
        for ran in self.book.runs.values():
            key = self._key(ran)
            known.add(key)
            found, headers = self.post.messages[key], self.post.headers.get(key, {})
            if found > 1:
                self._report("message", f"{ran.name} has {found} messages in the queue")
            elif found and (
                headers.get("tenure-job") != ran.job
                or headers.get("tenure-scheduled") != datetime.fromtimestamp(ran.instant / 1000, UTC).isoformat()
                or int(headers.get("tenure-token", 0)) not in ran.tokens
            ):
                self._report("message", f"{ran.name}, of {ran.tokens}, has the message {headers}")
            elif ran.sends and 0 < ran.finished < ripe_ms and ran.outcome is Outcome.FIRED and not found:
                self._report("message", f"{ran.name} was sent, and the queue has no message of it")
        for key in self.post.messages.keys() - known:
            self._report("message", f"the queue has a message of what never fired: {self.post.headers[key]}")

    def _compare(self, state: LedgerState) -> None:
        """What production makes of snapshot and tail is what it makes of all entries, and what the book says."""
        full = LedgerState(ScheduleMachine())
        try:
            for number in sorted(self.entries):
                entry = decode(self.entries[number], LogEntry, MAX_ENTRY_BYTES)
                assert isinstance(entry, LogEntry)
                full.apply(entry)
                if number == state.seq and _plain(full.machine) != _plain(state.machine):
                    self._report("state", f"snapshot and tail of entry {number} add up to another state than all do")
        except LedgerHalted as error:
            self._report("state", f"all entries do not add up: {error}")
            return
        machine = full.machine
        assert isinstance(machine, ScheduleMachine)
        self._compare_jobs(machine)
        self._compare_runs(machine)
        for job in self.book.over:
            self._compare_history(machine, job)

    def _compare_jobs(self, machine: ScheduleMachine) -> None:
        said: dict[str, Any] = {
            name: (each.job, each.anchor_ms, each.decided_ms, each.paused) for name, each in machine.jobs.items()
        }
        booked: dict[str, Any] = {
            name: (each.job, each.anchor, each.decided, each.paused) for name, each in self.book.jobs.items()
        }
        if said != booked or machine.paused != self.book.paused:
            wrong = [name for name in said.keys() | booked.keys() if said.get(name) != booked.get(name)]
            self._report("state", f"of {sorted(wrong)} the log says another thing than the book")

    def _compare_runs(self, machine: ScheduleMachine) -> None:
        said = {
            number: (each.run, each.state, each.token, each.attempts, each.failures, each.interruptions)
            for number, each in machine.open.items()
        }
        booked = {
            ran.number: (
                *(ran.name, ran.state, ran.tokens[-1] if ran.tokens else 0, len(ran.tokens)),
                *(ran.failures, ran.interruptions),
            )
            for ran in self.book.open()
        }
        if said != booked:
            self._report("state", f"open are {said}, and by the book {booked}")
        totals, counts = machine.totals, self.counts
        sums = {
            "fired": totals.fired,
            "succeeded": totals.succeeded,
            "failed": totals.failed,
            "missed-window": totals.missed_window,
            "coalesced": totals.coalesced,
            "skipped-overlap": totals.skipped_overlap,
        }
        if any(counts[name] != count for name, count in sums.items()):
            self._report("state", f"totals are {sums}, and by the book { {name: counts[name] for name in sums} }")

    def _compare_history(self, machine: ScheduleMachine, job: str) -> None:
        """The newest records are all there, and say what happened; those in a row may be one."""
        records = [machine.history[number] for number in machine.history_of.get(job, ())]
        booked, kept = self.book.jobs.get(job), self.book.kept[job]
        most = booked.job.history if booked is not None else REMOVED_JOBS_RECORDS
        if len(records) > most:
            self._report("history", f"{len(records)} records of {job} are kept, and not {most}")
        singles = {each.number: each for each in records}
        ranges = [each for each in records if each.count > 1]
        newest = {finished.number for finished in self.book.over[job][-kept:]}
        for finished in self.book.over[job][-kept:]:
            if finished.head not in newest:
                continue  # it belongs to a record that was made before those
            single = singles.get(finished.number)
            if single is not None and single.count == finished.count:
                fits = (single.scheduled_ms, single.outcome) == (finished.first, finished.outcome)
            else:
                fits = any(
                    each.outcome is finished.outcome
                    and each.scheduled_ms <= finished.first <= finished.last <= each.last_ms
                    for each in ranges
                )
            if not fits:
                self._report("history", f"of {job}@{finished.first} ({finished.outcome.value}) there is {single}")
                return


def _plain(machine: object) -> list[bytes]:
    assert isinstance(machine, ScheduleMachine)
    return machine.snapshot()
