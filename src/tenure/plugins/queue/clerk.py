"""What the leader decides: what is folded, who gets what, what is tried again, what is dead.

Everything is decided in `decide`, which changes the machine as it goes and writes down the same changes as events.
Randomness (of backoffs) is drawn here and its result recorded, so that everybody else needs none.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from tenure.clock import Clock, Reading
from tenure.entropy import Random
from tenure.ledger import InboxName, Item, LogEntry, Place, Poison, Situation, Stamp, TooNewLetter
from tenure.ledger.config import MAX_ENTRY_BYTES
from tenure.ledger.layout import SEGMENTS, owner_of
from tenure.ledger.together import all_of
from tenure.plugins.queue.records import Bury, Control, Joined, Retry, Run, Settled, Ticket, Work
from tenure.plugins.queue.settings import IDLE_PRESENCE, IDLE_PRESENCE_KNOWN, Ordering, QueueSettings
from tenure.plugins.queue.state import NO_REPORT, QueueMachine
from tenure.plugins.queue.wire import (
    MAX_ERROR_CHARACTERS,
    MAX_REFS,
    Command,
    Header,
    Outcome,
    TooNew,
    Unreadable,
    WorkerNote,
    encode_segment,
    read_header,
)
from tenure.store import Applied, Store
from tenure.store.own import create_own

_log = logging.getLogger("tenure.queue")

SEGMENT_BYTES = 1024 * 1024
MAX_TICKET = 2000
"""Messages in one ticket."""
MAX_TICKETED = 50_000
"""Messages in the tickets of one entry."""
MAX_RUNS_TICKETED = 20_000
MAX_TICKETS_BYTES = 6 * 1024 * 1024
"""Of the tickets of one entry, about, less what else is in it: ordering keys may be long ..."""
LEAST_TICKETS_BYTES = 1024 * 1024
"""... but however much comes in, some goes out."""
MAX_ARRIVAL_BYTES = MAX_ENTRY_BYTES - 4 * 1024 * 1024
"""Of one inbox object, in the entry that folds it: twice what a producer can put into one."""
_ARRIVAL_BYTES = 100
_RUN_BYTES = 128
_ESCAPED = 4
"""Bytes that a character may need."""
CHAIN = 16
"""Messages of one ordering key in one ticket."""
SLOW_MS = 1000
"""An entry that takes longer to be written, or a third of `margin`, gives its tickets that much more time."""
FORGET_AFTER = 300.0
"""Seconds, at least, after which a worker that is silent and holds nothing is struck off."""
MAX_BURIED = 20_000
"""Messages that one entry declares dead for want of a report; the others follow in the next ones."""
FEWER = 8
"""What has lapsed may have killed its worker. After each lapse a worker holds so many times fewer of such messages at a
time, and only one whose last attempt it is: whatever kills takes ever fewer with it, and nobody dies in its place."""
_OPS = frozenset({"pause", "resume", "purge", "redrive", "purge-dead"})
_SEGMENT_TRIES = 8


class _Where(msgspec.Struct, frozen=True):
    """Where the messages of an item lie."""

    segment: str
    first: int


class QueueClerk:
    def __init__(
        self,
        store: Store,
        settings: QueueSettings,
        *,
        epoch: int,
        tag: str,
        clock: Clock,
        random: Random,
        is_alive: Callable[[str], bool | None] = lambda name: None,
        on_published: Callable[[LogEntry, Work], None] = lambda entry, work: None,
    ) -> None:
        """`tag`: nobody else has it. `is_alive`: does membership know such a worker? If not, it gets nothing; `None`:
        nobody can tell, and it must be heard of."""
        self.machine = QueueMachine()
        self._store = store
        self._settings = settings
        self._epoch = epoch
        self._tag = tag
        self._clock = clock
        self._random = random
        self._is_alive = is_alive
        self._on_published = on_published
        self._segments = 0
        self._places: dict[InboxName, _Where] = {}
        self._counts: dict[str, int] = {}
        self._heard: dict[str, Reading] = {}
        self._suspect: set[str] = set()
        self._doubt_ms = 0
        self._tokens = 0.0
        self._tokens_at: int | None = None
        self._work: Work | None = None
        self.counts: Counter[str] = Counter()
        """Reports that came too late, and the like; of this term."""

    # Reading

    def read(self, name: InboxName, body: bytes) -> tuple[Place, Header]:
        try:
            header, _ = read_header(body)
        except Unreadable as error:
            raise Poison(str(error)) from None
        except TooNew as error:
            raise TooNewLetter(str(error)) from None
        if (size := _arrival_size(header)) > MAX_ARRIVAL_BYTES:
            raise Poison(f"its messages would take {size:,} bytes of an entry, more than any producer's")
        return Place(header.after, header.skipped, header.ahead), header

    # Preparing

    async def prepare(self, items: Sequence[Item]) -> None:
        """Bodies go to segments, whose names are never used twice, before anything refers to them."""
        self._places, self._counts = {}, {}
        group: list[Item] = []
        size = 0
        writes = []
        for item in items:
            if not item.content.sizes:
                continue
            if group and size + len(item.body) > SEGMENT_BYTES:
                writes.append(self._segment(group))
                group, size = [], 0
            group.append(item)
            size += len(item.body)
        if group:
            writes.append(self._segment(group))
        await all_of(self._write(key, body) for key, body in writes)

    def _segment(self, group: Sequence[Item]) -> tuple[str, bytes]:
        self._segments += 1
        segment = f"{self._epoch}-{self._tag}-{self._segments}"
        first = 0
        for item in group:
            self._places[item.name] = _Where(segment, first)
            first += len(item.content.sizes)
        self._counts[segment] = first
        body = encode_segment(
            (item.name.uid, item.name.number, item.modified_ms, len(item.content.sizes), item.body) for item in group
        )
        return SEGMENTS + segment, body

    async def _write(self, key: str, body: bytes) -> None:
        pause = 0.05
        for last in (*([False] * (_SEGMENT_TRIES - 1)), True):
            outcome = await create_own(self._store, key, body)
            if isinstance(outcome, Applied):
                return
            if last:
                raise outcome.error
            await self._clock.sleep(pause)
            pause = min(1.0, pause * 2)

    # Deciding

    def decide(self, items: Sequence[Item], situation: Situation) -> bytes | None:
        machine, stamp = self.machine, situation.stamp
        work = Work()
        # A third of the margin is for the clock of whoever gives out, one for that of whoever says that it has lapsed,
        # and one for an entry that is written slowly: what is more than that comes on top.
        third_ms = round(self._settings.margin * 1000 / 3)
        self._doubt_ms = max(0, situation.doubt_ms - third_ms)
        if situation.slow_ms > min(SLOW_MS, third_ms) and machine.fresh():
            work.shift = situation.slow_ms
        machine.begin(work.shift, stamp)
        for item in items:
            header: Header = item.content
            for command in header.commands:
                self._command(command, work, stamp)
        purges = [(number, item) for number, item in enumerate(items) if _purges(item)]
        for number, item in enumerate(items):
            if any(number < place and _is_before(item, purge) for place, purge in purges):
                self._fold_purged(item, work)
            else:
                self._fold(item, work, stamp)
        machine.purge_arrivals(work.purged)
        machine.arrive(
            work.segments, [run.part(run.low, run.high) for run in work.arrived], work.dedup, work.duplicates
        )
        for item in items:
            for note in item.content.notes:
                self._note(note, work, stamp)
        self._let_go(work)
        if situation.swept_ms is not None:
            self._lapse(work, stamp, situation.swept_ms, situation.unread)
        self._give_out(work, stamp)
        if work == _NOTHING:
            self._work = None
            return None
        machine.last_seq = stamp.seq
        self._work = work
        return msgspec.json.encode(work)

    def _command(self, command: Command, work: Work, stamp: Stamp) -> None:
        if command.op not in _OPS:
            self.counts["unknown_commands"] += 1
            _log.warning("a command %r is not known here, and was not followed", command.op[:80])
            return
        control = Control(command.op, list(command.refs[:MAX_REFS]), command.by)
        work.control.append(control)
        self.machine.control(control, stamp)

    def _fold_purged(self, item: Item, work: Work) -> None:
        """Messages that were enqueued before a purge, and folded together with it: they are gone at once."""
        if count := len(item.content.sizes):
            segment = self._places[item.name].segment
            work.segments[segment] = work.segments.get(segment, 0)
            work.purged += count

    def _fold(self, item: Item, work: Work, stamp: Stamp) -> None:
        header: Header = item.content
        count = len(header.sizes)
        if not count:
            return
        place = self._places[item.name]
        dropped = 0
        spans = iter(header.spans)
        span = next(spans, None)
        index = 0
        while index < count:
            if span is None or index < span.first:
                end = count if span is None else span.first
                self._add(work, Run(place.segment, place.first + index, place.first + end, item.modified_ms))
                index = end
                continue
            options = span.options
            end = span.first + span.count
            for low, high in self._distinct(span.first, end, options.dedup, work, stamp):
                dropped += (end - span.first) - (high - low)
                due = item.modified_ms + options.delay_ms if options.delay_ms else 0
                run = Run(
                    place.segment,
                    place.first + low,
                    place.first + high,
                    item.modified_ms,
                    due if due > stamp.time_ms else 0,
                    options.priority,
                    1,
                    options.key,
                    options.visibility_ms,
                    options.max_attempts,
                )
                self._add(work, run)
                break
            else:
                dropped += end - span.first
            index = end
            span = next(spans, None)
        work.duplicates += dropped
        work.segments[place.segment] = work.segments.get(place.segment, 0) + count - dropped

    def _distinct(self, low: int, high: int, digest: str, work: Work, stamp: Stamp) -> list[tuple[int, int]]:
        """What is left of messages with one deduplication key: the first, if none was seen within the window."""
        if not digest or not self._settings.dedup_window:
            return [(low, high)]
        if self.machine.dedup.get(digest, 0) > stamp.time_ms or digest in work.dedup:
            return []
        work.dedup[digest] = stamp.time_ms + round(self._settings.dedup_window * 1000)
        return [(low, low + 1)]

    def _add(self, work: Work, run: Run) -> None:
        """To what arrived: side by side with the last run, if they are alike."""
        if work.arrived:
            last = work.arrived[-1]
            if (
                last.segment == run.segment
                and last.high == run.low
                and (last.due_ms, last.priority, last.visibility_ms, last.max_attempts, last.key)
                == (run.due_ms, run.priority, run.visibility_ms, run.max_attempts, run.key)
                and run.at_ms - last.at_ms < 1000
            ):
                last.high = run.high
                return
        work.arrived.append(run)

    # Reports

    def _note(self, note: WorkerNote, work: Work, stamp: Stamp) -> None:
        machine = self.machine
        self._heard[note.uid] = self._clock.read()
        self._suspect.discard(note.uid)
        for outcome in note.outcomes:
            self._outcome(outcome, note, work, stamp)
        if note.leaving:
            if note.uid in machine.workers or any(joined.uid == note.uid for joined in work.joined):
                work.left.append(note.uid)
            return
        known = machine.workers.get(note.uid)
        if known is None or known.capacity != note.capacity or note.since:
            work.joined.append(Joined(note.uid, note.name, note.capacity, note.since, list(note.held)))

    def _outcome(self, outcome: Outcome, note: WorkerNote, work: Work, stamp: Stamp) -> None:
        ticket = self.machine.tickets.get(outcome.ticket)
        if ticket is None or ticket.uid != note.uid:
            self.counts["late_reports"] += 1
            return
        settled = Settled(outcome.ticket, outcome.all_done, list(outcome.done), back=list(outcome.back))
        if outcome.extend:
            settled.deadline_ms = stamp.time_ms + ticket.visibility_ms + self._doubt_ms
        runs = _Lookup(ticket.runs) if outcome.failed else None
        for failure in outcome.failed:
            run = runs.find(failure.segment, failure.index) if runs is not None else None
            if run is None:
                continue
            error = failure.error[:MAX_ERROR_CHARACTERS]
            most = run.max_attempts or self._settings.max_attempts
            if failure.final or run.attempt >= most:
                reason = "refused" if failure.final else f"failed {run.attempt} times"
                settled.dead.append(Bury(failure.segment, failure.index, reason, error))
            else:
                settled.retry.append(
                    Retry(
                        failure.segment,
                        failure.index,
                        stamp.time_ms + self._backoff_ms(run.attempt),
                        error,
                        in_place=self._settings.ordering is Ordering.WAIT,
                    )
                )
        if settled == Settled(outcome.ticket):
            return
        work.settled.append(settled)
        self.machine.settle(settled, stamp)

    def _backoff_ms(self, attempt: int) -> int:
        settings = self._settings
        longest = min(settings.max_backoff, settings.backoff * 2.0 ** min(attempt - 1, 1000))
        return round(longest * 1000 * self._random.uniform(0.5, 1.0))

    def _let_go(self, work: Work) -> None:
        """Apply who came and went, after what they reported; strike off who has been silent for long."""
        machine, now = self.machine, self._clock.read()
        for joined in work.joined:
            machine.join(joined)
        forget_after = max(FORGET_AFTER, 3 * IDLE_PRESENCE_KNOWN * self._settings.presence)
        for uid, worker in machine.workers.items():
            heard = self._heard.setdefault(uid, now)
            if not worker.held and uid not in work.left and now.follower_elapsed(heard) >= forget_after:
                work.left.append(uid)
        for uid in work.left:
            machine.leave(uid)
            self._heard.pop(uid, None)
            self._suspect.discard(uid)

    def _lapse(self, work: Work, stamp: Stamp, swept_ms: int, unread: Collection[str]) -> None:
        """Tickets whose time is over for certain: everything that could have been reported in time was folded."""
        limit = swept_ms - round(self._settings.margin * 1000) - self._doubt_ms
        mute = {owner_of(uid) for uid in unread}
        late = [
            ticket for ticket in self.machine.tickets.values() if ticket.deadline_ms < limit and ticket.uid not in mute
        ]
        buried = 0
        for number, ticket in enumerate(late):
            buried += sum(run.count for run in ticket.runs if self._is_last(run))
            if number and buried > MAX_BURIED:
                late = late[:number]
                break
        for ticket in reversed(late):  # so that the oldest is first again
            settled = Settled(ticket.id, lapsed=True, due_ms=0)
            for run in ticket.runs:
                if self._is_last(run):
                    settled.dead += [
                        Bury(run.segment, index, f"not settled in time {run.attempt} times", NO_REPORT)
                        for index in range(run.low, run.high)
                    ]
            work.lapsed.append(settled)
            self.machine.settle(settled, stamp)
            self._suspect.add(ticket.uid)
            self.counts["lapsed_tickets"] += 1

    def _is_last(self, run: Run) -> bool:
        """Is this attempt its last one?"""
        return run.attempt >= (run.max_attempts or self._settings.max_attempts)

    # Giving out

    def _give_out(self, work: Work, stamp: Stamp) -> None:
        machine, settings = self.machine, self._settings
        if machine.paused or not machine.ready_count:
            return
        rooms = self._rooms()
        room = min(sum(rooms.values()), MAX_TICKETED)
        if settings.max_in_flight:
            room = min(room, settings.max_in_flight - machine.in_flight_count)
        room = min(room, self._allowed(stamp.time_ms))
        if room <= 0:
            return
        suspects = _Suspects(machine, rooms, self._is_last)
        chosen = self._choose(room, max(LEAST_TICKETS_BYTES, MAX_TICKETS_BYTES - _size(work)), stamp, suspects)
        default = round(settings.visibility_timeout * 1000)
        given = [(uid, run.visibility_ms or default, [run]) for uid, run in suspects.given]
        given += self._share(chosen, suspects.rooms)
        for number, (uid, visibility_ms, runs) in enumerate(given):
            deadline_ms = stamp.time_ms + visibility_ms + self._doubt_ms
            ticket = Ticket(f"{stamp.seq}-{number}", uid, stamp.seq, deadline_ms, visibility_ms, runs)
            work.tickets.append(ticket)
        machine.publish(work.tickets)
        if settings.rate_limit:
            self._tokens -= sum(run.count for _, _, runs in given for run in runs)

    def _rooms(self) -> dict[str, int]:
        now, silent_after = self._clock.read(), 2.5 * IDLE_PRESENCE * self._settings.presence
        rooms: dict[str, int] = {}
        names: set[str] = set()
        for uid, worker in reversed(self.machine.workers.items()):
            # Of several starts under one name the newest counts: the others are dead, though the name is alive.
            if worker.name in names:
                continue
            names.add(worker.name)
            alive = self._is_alive(worker.name)
            if alive is None:
                alive = now.follower_elapsed(self._heard.setdefault(uid, now)) < silent_after
            if alive and uid not in self._suspect and worker.capacity > worker.held:
                rooms[uid] = worker.capacity - worker.held
        return rooms

    def _allowed(self, now_ms: int) -> int:
        """By the rate limit: a bucket that holds one second's worth, and is empty when a term begins."""
        rate = self._settings.rate_limit
        if not rate:
            return MAX_TICKETED
        if self._tokens_at is not None:
            self._tokens = min(max(1.0, rate), self._tokens + (now_ms - self._tokens_at) / 1000 * rate)
        self._tokens_at = now_ms
        return int(self._tokens)

    def _choose(self, room: int, most_bytes: int, stamp: Stamp, suspects: _Suspects) -> list[list[Run]]:
        """The first so many messages that are ready: each list goes to one worker."""
        chosen: list[list[Run]] = []
        runs = size = 0
        settings = self._settings
        order = self.machine.in_order(
            round(settings.priority_step * 1000), stamp.time_ms, settings.key_concurrency, CHAIN
        )
        for group in order:
            if room <= 0 or runs >= MAX_RUNS_TICKETED or size >= most_bytes:
                break
            if suspects.limit(group[0]) is not None:
                count = suspects.place(group[0], room)
                room -= count
                runs += 1  # also if it waits for others of its kind, and keeps nobody else waiting
                size += _run_size(group[0]) if count else 0
                continue
            taken: list[Run] = []
            for run in group:
                if taken and suspects.limit(run) is not None:
                    break
                part = run.part(run.low, min(run.high, run.low + room))
                room -= part.count
                taken.append(part)
                runs += 1
                size += _run_size(run)
                if room <= 0:
                    break
            chosen.append(taken)
        order.close()  # type: ignore[attr-defined]
        return chosen

    def _share(self, chosen: list[list[Run]], rooms: dict[str, int]) -> list[tuple[str, int, list[Run]]]:
        """Deal what was chosen to the workers, to each about as much; those with most room are first."""
        quotas = _quotas(sum(run.count for group in chosen for run in group), rooms)
        default = round(self._settings.visibility_timeout * 1000)
        given: list[tuple[str, int, list[Run]]] = []
        left = dict(rooms)
        turns = deque(sorted((uid for uid in rooms if quotas[uid]), key=lambda uid: -rooms[uid]))
        open_tickets: dict[tuple[str, int], list[Run]] = {}
        sizes: Counter[tuple[str, int]] = Counter()

        def begin(uid: str, run: Run) -> int:
            """See that its ticket is not full yet; gives how much that can take."""
            slot = (uid, run.visibility_ms or default)
            if sizes[slot] >= MAX_TICKET:
                given.append((*slot, open_tickets.pop(slot)))
                sizes[slot] = 0
            return MAX_TICKET - sizes[slot]

        def give(uid: str, run: Run, most: int) -> Run | None:
            """As much of a run as that; gives what is left of it."""
            slot = (uid, run.visibility_ms or default)
            part = run if run.count <= most else run.part(run.low, run.low + most)
            open_tickets.setdefault(slot, []).append(part)
            for counted in (left, quotas):
                counted[uid] -= part.count
            sizes[slot] += part.count
            return run.part(part.high, run.high) if part.high < run.high else None

        for group in chosen:
            if not turns:
                break
            if group[0].key:
                uid = turns[0]
                begin(uid, group[0])
                for run in group[: left[uid]]:  # the rest of a chain waits for the next ticket of its key
                    give(uid, run, 1)
                if quotas[uid] <= 0:
                    turns.popleft()
                continue
            for run in group:
                rest: Run | None = run
                while rest is not None and turns:
                    uid = turns[0]
                    rest = give(uid, rest, min(quotas[uid], begin(uid, rest)))
                    if quotas[uid] <= 0:
                        turns.popleft()
        given += [(uid, visibility_ms, runs) for (uid, visibility_ms), runs in open_tickets.items()]
        return given

    # Afterwards

    def committed(self, entry: LogEntry, items: Sequence[Item]) -> list[str]:
        if self._work is not None:
            self._on_published(entry, self._work)
        spent, self.machine.spent = self.machine.spent, []
        return [SEGMENTS + segment for segment in spent]


_NOTHING = Work()


class _Suspects:
    """Who is given how much of what has lapsed: each by itself, before the others are shared out."""

    def __init__(self, machine: QueueMachine, rooms: Mapping[str, int], is_last: Callable[[Run], bool]) -> None:
        self._machine = machine
        self.rooms = dict(rooms)
        """What is left of them."""
        self.given: list[tuple[str, Run]] = []
        self._is_last = is_last
        self._held: dict[str, Counter[int]] | None = None
        """By worker and limit."""
        self._full: set[int] = set()
        """Limits under which nobody can be given more."""

    def limit(self, run: Run) -> int | None:
        """How many like it one worker may hold; `None`: it is like any other."""
        if run.attempt == 1:
            return None
        # Those of one run have come the same way.
        notes = self._machine.history.get((run.segment, run.low), ())
        lapses = sum([note.error == NO_REPORT for note in notes])
        if not lapses:
            return None
        return 1 if self._is_last(run) else max(1, MAX_TICKET // FEWER ** min(lapses, 10))

    def place(self, run: Run, most: int) -> int:
        """Give as much of it as may be, and say how much that was."""
        limit = self.limit(run)
        assert limit is not None
        if limit in self._full:
            return 0
        held = self._of_workers()
        low = run.low
        for uid, room in list(self.rooms.items()):
            of_worker = held.setdefault(uid, Counter())
            allowed = limit - sum(count for each, count in of_worker.items() if each <= limit)
            count = min(room, allowed, run.high - low, most - (low - run.low), MAX_TICKET)
            if count > 0:
                self.given.append((uid, run.part(low, low + count)))
                of_worker[limit] += count
                self.rooms[uid] -= count
                low += count
        if low == run.low:
            self._full.add(limit)
        return low - run.low

    def _of_workers(self) -> dict[str, Counter[int]]:
        if self._held is None:
            self._held = {}
            for ticket in self._machine.tickets.values():
                for run in ticket.runs:
                    if (limit := self.limit(run)) is not None:
                        self._held.setdefault(ticket.uid, Counter())[limit] += run.count
        return self._held


def _purges(item: Item) -> bool:
    return any(command.op == "purge" for command in item.content.commands)


def _quotas(total: int, rooms: Mapping[str, int]) -> dict[str, int]:
    """The same for all, but for those who have less room: what they cannot take is shared by the others."""
    quotas = {}
    for place, (uid, room) in enumerate(sorted(rooms.items(), key=lambda each: each[1])):
        quotas[uid] = min(room, -(-total // (len(rooms) - place)))
        total -= quotas[uid]
    return quotas


def _is_before(item: Item, purge: Item) -> bool:
    """For certain: listings may tell whole seconds, and a message may have been accepted after the purge was."""
    return item.modified_ms < purge.modified_ms or item.name.uid == purge.name.uid


def _arrival_size(header: Header) -> int:
    """About as many bytes as its messages take in an entry: a run for each span, and one for those between two."""
    keys = sum(len(span.options.key.encode()) for span in header.spans)
    return (2 * len(header.spans) + 1) * _ARRIVAL_BYTES + keys


def _run_size(run: Run) -> int:
    """About so many bytes of an entry."""
    return _RUN_BYTES + _ESCAPED * len(run.key)


def _size(work: Work) -> int:
    size = sum([_run_size(run) for run in work.arrived])
    for settled in (*work.settled, *work.lapsed):
        size += _RUN_BYTES * (1 + len(settled.done) + len(settled.back))
        size += sum([_RUN_BYTES + _ESCAPED * len(retry.error) for retry in settled.retry])
        size += sum([_RUN_BYTES + _ESCAPED * len(bury.error) for bury in settled.dead])
    return size


class _Lookup:
    """The runs of a ticket, to be found by their messages."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs: dict[str, list[Run]] = {}
        for run in sorted(runs, key=_low):
            self._runs.setdefault(run.segment, []).append(run)

    def find(self, segment: str, index: int) -> Run | None:
        runs = self._runs.get(segment, [])
        place = bisect_right(runs, index, key=_low) - 1
        return runs[place] if place >= 0 and index < runs[place].high else None


def _low(run: Run) -> int:
    return run.low
