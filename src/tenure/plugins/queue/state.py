"""What a queue is, as a function of its log. Pure: no clock, no store, no randomness.

Messages are not kept one by one. A run is messages that lie side by side in a segment and are alike: a million messages
that were enqueued together are a few runs, whatever else happens to them. Whatever sets a message apart (an ordering
key, a failure) makes it a run of its own.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tenure.ledger import Stamp
from tenure.ledger.config import MAX_INBOX_BYTES
from tenure.plugins.queue import image
from tenure.plugins.queue.keyqueue import KeyQueue, Offer
from tenure.plugins.queue.records import (
    MAX_SEGMENT_MESSAGES,
    Control,
    Dead,
    Joined,
    Mark,
    Note,
    Run,
    Settled,
    Ticket,
    Totals,
    Work,
    Worker,
    parse_ref,
)
from tenure.plugins.queue.spans import by_segment, split

VERSION = 1
MAX_HISTORY = 10
NO_REPORT = "no report came"
_STALE_OFFERS = 1000
MAX_DEDUP = 1_000_000
"""Keys that are remembered; the oldest are forgotten early above this."""
MAX_ARRIVED = MAX_INBOX_BYTES // 2
"""Messages that one entry can bring: a leader folds that many bytes at a time, and each takes two."""
MARK_EVERY_MS = 10_000
RATES_OVER_MS = 60_000
_MARKS = 2 + RATES_OVER_MS // MARK_EVERY_MS

_work = msgspec.json.Decoder(Work)


class QueueMachine:
    version = VERSION

    def __init__(self) -> None:
        self.paused = False
        self.last_seq = 0
        self.orders = 0
        self.segments: dict[str, int] = {}
        """How many messages of each are not settled yet."""
        self.ready: dict[int, deque[Run]] = {}
        """By priority, without those of ordering keys."""
        self.delayed: list[tuple[int, int, Run]] = []
        self.keys: dict[str, KeyQueue] = {}
        self.key_heaps: dict[int, list[Offer]] = {}
        """By priority: keys that may have something to give; checked when taken."""
        self.tickets: dict[str, Ticket] = {}
        self.workers: dict[str, Worker] = {}
        self.history: dict[tuple[str, int], list[Note]] = {}
        self.dead: dict[tuple[str, int], Dead] = {}
        self.dedup: OrderedDict[str, int] = OrderedDict()
        self.totals = Totals()
        self.marks: deque[Mark] = deque(maxlen=_MARKS)
        self.spent: list[str] = []
        """Segments of which nothing is needed any more; whoever deletes them empties this."""
        self.ready_count = 0
        self.delayed_count = 0
        self.in_flight_count = 0
        self._tie = 0

    # As the ledger sees it

    def apply(self, events: bytes, stamp: Stamp) -> None:
        self.enact(_work.decode(events), stamp)

    def began(self, stamp: Stamp) -> None:
        """A new leader. What its predecessor published last may have been seen only just now: nobody knows how long it
        took to land, so its tickets count from here."""
        for ticket in self.fresh():
            ticket.deadline_ms = max(ticket.deadline_ms, stamp.time_ms + stamp.doubt_ms + ticket.visibility_ms)

    def fresh(self) -> list[Ticket]:
        """Tickets whose deadline the last entry has set."""
        last = self.last_seq
        return [ticket for ticket in self.tickets.values() if last in (ticket.seq, ticket.extended)]

    def enact(self, work: Work, stamp: Stamp) -> None:
        """The same as its parts, in this order; the leader calls the parts while it decides."""
        self.begin(work.shift, stamp)
        for control in work.control:
            self.control(control, stamp)
        self.purge_arrivals(work.purged)
        self.arrive(work.segments, work.arrived, work.dedup, work.duplicates)
        for settled in work.settled:
            self.settle(settled, stamp)
        for joined in work.joined:
            self.join(joined)
        for uid in work.left:
            self.leave(uid)
        for settled in work.lapsed:
            self.settle(settled, stamp)
        self.publish(work.tickets)
        self.last_seq = stamp.seq

    # The parts

    def begin(self, shift: int, stamp: Stamp) -> None:
        if shift:
            for ticket in self.fresh():
                ticket.deadline_ms += shift
        if not self.marks or stamp.time_ms - self.marks[-1].time_ms >= MARK_EVERY_MS:
            self.marks.append(Mark(stamp.time_ms, self.totals.enqueued, self.totals.done))
        self.advance(stamp.time_ms)

    def advance(self, now_ms: int) -> None:
        """Time passes: what is due becomes ready, and old deduplication keys are forgotten."""
        delayed = self.delayed
        while delayed and delayed[0][0] <= now_ms:
            due_ms, _, run = heapq.heappop(delayed)
            if run.key and run.count == 0:  # only a reminder to look at the key again
                queue = self.keys.get(run.key)
                if queue is not None:
                    queue.reminder = 0 if queue.reminder == due_ms else queue.reminder
                    self._offer(run.key, queue)
            else:
                self.delayed_count -= run.count
                self._make_ready(run)
        dedup = self.dedup
        while dedup:
            first = next(iter(dedup))
            if dedup[first] > now_ms and len(dedup) <= MAX_DEDUP:
                break
            del dedup[first]

    def purge_arrivals(self, count: int) -> None:
        """They came and went in one entry."""
        self.totals.enqueued += count
        self.totals.purged += count

    def arrive(self, segments: dict[str, int], runs: Sequence[Run], dedup: dict[str, int], duplicates: int) -> None:
        _check_arrivals(segments, runs)
        for segment, count in segments.items():
            self.segments[segment] = count
            self.totals.enqueued += count
            if count == 0:
                self._spend(segment, 0)
        for run in runs:
            for each in self._one_by_one(run) if run.key else (run,):
                if each.due_ms:
                    self._delay(each)
                else:
                    self._make_ready(each)
        for key, until in dedup.items():
            self.dedup[key] = until
        self.totals.duplicates += duplicates

    def _one_by_one(self, run: Run) -> Iterator[Run]:
        """Those of an ordering key: each has a place of its own."""
        for index in range(run.low, run.high):
            self.orders += 1
            one = run.part(index, index + 1)
            one.order = self.orders
            yield one

    def join(self, joined: Joined) -> None:
        known = self.workers.get(joined.uid)
        if known is None:
            self.workers[joined.uid] = Worker(joined.name, joined.capacity)
        else:
            known.capacity = joined.capacity
        if joined.since:
            held = set(joined.held)
            for ticket in reversed(self.of(joined.uid)):
                if ticket.seq < joined.since and ticket.id not in held:
                    self._give_back(ticket)

    def leave(self, uid: str) -> None:
        worker = self.workers.get(uid)
        if worker is None or worker.held:
            for ticket in reversed(self.of(uid)):
                self._give_back(ticket)
        self.workers.pop(uid, None)

    def of(self, uid: str) -> list[Ticket]:
        return [ticket for ticket in self.tickets.values() if ticket.uid == uid]

    def settle(self, settled: Settled, stamp: Stamp) -> None:
        ticket = self.tickets.get(settled.ticket)
        if ticket is None:
            return
        worker = self.workers.get(ticket.uid)
        name = worker.name if worker is not None else ticket.uid
        if settled.deadline_ms:
            ticket.deadline_ms, ticket.extended = max(ticket.deadline_ms, settled.deadline_ms), stamp.seq
        if settled.all_done:
            self._done(self._cut(ticket))
        elif settled.done:
            self._done(self._cut(ticket, [(piece.segment, piece.low, piece.high) for piece in settled.done]))
        if settled.dead:
            buried = {(bury.segment, bury.index): bury for bury in reversed(settled.dead)}
            for run in self._cut(ticket, [(segment, index, index + 1) for segment, index in buried]):
                bury = buried[run.segment, run.low]
                self._remember(run, stamp, name, bury.error)
                self._die(run, bury.reason, stamp)
        if settled.retry:
            retried = {(retry.segment, retry.index): retry for retry in reversed(settled.retry)}
            for run in reversed(self._cut(ticket, [(segment, index, index + 1) for segment, index in retried])):
                retry = retried[run.segment, run.low]
                if retry.counts:
                    self._remember(run, stamp, name, retry.error)
                    run.attempt += 1
                    self.totals.failed += 1
                run.due_ms = retry.due_ms
                self._return(run, retry.in_place)
        if settled.back:
            for run in reversed(self._cut(ticket, [(piece.segment, piece.low, piece.high) for piece in settled.back])):
                run.due_ms = 0  # it was due when it was given out
                self._return(run, in_place=True)
        if settled.lapsed:
            for run in reversed(self._cut(ticket)):
                self._remember(run, stamp, name, NO_REPORT)
                run.attempt += 1
                run.due_ms = settled.due_ms
                self.totals.lapsed += run.count
                self._return(run, in_place=True)

    def publish(self, tickets: Sequence[Ticket]) -> None:
        """All of an entry's together: what is ready is gone through once."""
        self._take([run for ticket in tickets for run in ticket.runs])
        for ticket in tickets:
            # Runs are changed as they are settled, and the entry that is being written must not be.
            runs = [run.part(run.low, run.high) for run in ticket.runs]
            self.tickets[ticket.id] = taken = Ticket(
                ticket.id, ticket.uid, ticket.seq, ticket.deadline_ms, ticket.visibility_ms, runs
            )
            count = taken.count
            self.in_flight_count += count
            worker = self.workers.get(ticket.uid)
            if worker is not None:
                worker.held += count

    def control(self, control: Control, stamp: Stamp) -> None:
        if control.op == "pause":
            self.paused = True
        elif control.op == "resume":
            self.paused = False
        elif control.op == "purge":
            self._purge()
        elif control.op in ("redrive", "purge-dead"):
            wanted = {parse_ref(ref) for ref in control.refs} if control.refs else set(self.dead)
            for ref in [ref for ref in self.dead if ref in wanted]:
                letter = self.dead.pop(ref)
                if control.op == "redrive":
                    run = letter.run
                    run.attempt, run.due_ms, run.at_ms = 1, 0, stamp.time_ms
                    self.history.pop(ref, None)
                    if run.key:
                        self.orders += 1
                        run.order = self.orders
                    self._make_ready(run)
                else:
                    self.totals.purged += 1
                    self._settle_for_good(letter.run)

    # What there is to give

    def in_order(self, aging_ms: int, now_ms: int, key_limit: int, chain: int) -> Iterator[list[Run]]:
        """Ready runs, the first to be given first. Nothing is taken; those of one ordering key come as one list."""

        def place(run: Run) -> int:
            return (run.due_ms or run.at_ms) - run.priority * aging_ms

        plain = heapq.merge(*(iter(queue) for queue in self.ready.values() if queue), key=place)
        heaps = self.key_heaps
        looked_at: list[tuple[int, Offer]] = []
        nothing: list[Run] = []

        def keyed() -> Iterator[tuple[int, list[Run]]]:
            firsts: dict[int, int] = {}
            lines: list[tuple[int, int]] = []

            def line_up(priority: int) -> None:
                first = heaps[priority][0][0] - priority * aging_ms
                if firsts.get(priority) != first:
                    firsts[priority] = first
                    heapq.heappush(lines, (first, priority))

            for priority, heap in heaps.items():
                if heap:
                    line_up(priority)
            while lines:
                first, priority = heapq.heappop(lines)
                if firsts.get(priority) != first:
                    continue
                del firsts[priority]
                heap = heaps[priority]
                offer = heapq.heappop(heap)
                found = self.keys.get(offer[2])
                if found is not None and found.offer is offer:  # else it is out of date
                    runs = self._offered(offer[2], found, offer, now_ms, key_limit, chain)
                    if runs:
                        looked_at.append((priority, offer))
                        yield first, runs
                    elif found.offer is not None:
                        line_up(found.offered)
                if heap:
                    line_up(priority)

        try:
            ordered = keyed()
            next_plain, next_keyed = next(plain, None), next(ordered, (0, nothing))
            while next_plain is not None or next_keyed[1]:
                if next_plain is not None and (not next_keyed[1] or place(next_plain) <= next_keyed[0]):
                    yield [next_plain]
                    next_plain = next(plain, None)
                else:
                    yield next_keyed[1]
                    next_keyed = next(ordered, (0, nothing))
        finally:
            for priority, offer in looked_at:
                heapq.heappush(heaps[priority], offer)

    def _offered(self, key: str, queue: KeyQueue, offer: Offer, now_ms: int, limit: int, chain: int) -> list[Run]:
        """What a key can give now. Nothing: its offer is withdrawn, and made again when that changes."""
        first = queue.first
        room = limit - queue.in_flight
        queue.offer = None
        if first is None or room <= 0:
            return []
        if first.due_ms > now_ms:
            self._remind(key, queue, first.due_ms)
            return []
        if (first.due_ms or first.at_ms, first.priority) != (offer[0], queue.offered):
            self._offer(key, queue)  # at the place that it has by now
            return []
        queue.offer = offer
        runs: list[Run] = []
        for run in queue.begin_with(chain if limit == 1 else room):
            # One after the other means in one ticket, and that has one deadline.
            if run.due_ms > now_ms or (limit == 1 and run.visibility_ms != first.visibility_ms):
                break
            runs.append(run)
        return runs

    def oldest_ms(self) -> int | None:
        """When the oldest message that waits was enqueued."""
        found = [queue[0].at_ms for queue in self.ready.values() if queue]
        found += [queue.first.at_ms for queue in self.keys.values() if queue.first is not None]
        return min(found, default=None)

    def rates(self, now_ms: int) -> tuple[float, float]:
        """Messages per second, enqueued and done, over about the last minute."""
        before = [mark for mark in self.marks if now_ms - mark.time_ms >= RATES_OVER_MS]
        mark = before[-1] if before else self.marks[0] if self.marks else None
        if mark is None or now_ms <= mark.time_ms:
            return 0.0, 0.0
        passed = (now_ms - mark.time_ms) / 1000
        return (self.totals.enqueued - mark.enqueued) / passed, (self.totals.done - mark.done) / passed

    def next_due_ms(self) -> int | None:
        return self.delayed[0][0] if self.delayed else None

    # Inside

    def _make_ready(self, run: Run) -> None:
        self.ready_count += run.count
        if run.key:
            queue = self._queue_of(run.key)
            queue.add(run)
            self._offer(run.key, queue)
        else:
            self.ready.setdefault(run.priority, deque()).append(run)

    def _queue_of(self, key: str) -> KeyQueue:
        queue = self.keys.get(key)
        if queue is None:
            queue = self.keys[key] = KeyQueue()
        return queue

    def _drop_if_empty(self, key: str) -> None:
        queue = self.keys.get(key)
        if queue is not None and not queue.in_flight and not len(queue):
            del self.keys[key]

    def _delay(self, run: Run) -> None:
        self._tie += 1
        self.delayed_count += run.count
        heapq.heappush(self.delayed, (run.due_ms, self._tie, run))

    def _remind(self, key: str, queue: KeyQueue, due_ms: int) -> None:
        """Look at a key again later."""
        if not queue.reminder or due_ms < queue.reminder:
            queue.reminder = due_ms
            self._tie += 1
            heapq.heappush(self.delayed, (due_ms, self._tie, Run("", 0, 0, 0, due_ms, key=key)))

    def _offer(self, key: str, queue: KeyQueue) -> None:
        """A key has something to give, or will have. If it is offered already at a place before that, that does."""
        first = queue.first
        if first is None:
            return
        place, priority = first.due_ms or first.at_ms, first.priority
        if queue.offer is not None and queue.offered == priority and queue.offer[0] <= place:
            return
        self._tie += 1
        queue.offer, queue.offered = (place, self._tie, key), priority
        heap = self.key_heaps.setdefault(priority, [])
        heapq.heappush(heap, queue.offer)
        if len(heap) > 2 * len(self.keys) + _STALE_OFFERS:
            queues = self.keys
            heap[:] = [offer for offer in heap if (found := queues.get(offer[2])) is not None and found.offer is offer]
            heapq.heapify(heap)

    def _return(self, run: Run, in_place: bool) -> None:
        """From a ticket back to the queue. Of several, the last is returned first: each goes before the others."""
        if run.key and in_place:
            self._make_ready(run)  # its place is by its order, and those behind it wait for it
            if run.due_ms:
                self._remind(run.key, self.keys[run.key], run.due_ms)
        elif run.due_ms:
            if run.key:
                self.orders += 1
                run.order = self.orders
                self._drop_if_empty(run.key)
            self._delay(run)
        elif run.key:
            self._make_ready(run)
        else:
            self.ready_count += run.count
            self.ready.setdefault(run.priority, deque()).appendleft(run)

    def _take(self, wanted: Sequence[Run]) -> None:
        """Remove the messages of runs that are given out from among those that are ready."""
        plain: dict[int, list[tuple[str, int, int]]] = {}
        for run in wanted:
            self.ready_count -= run.count
            if run.key:
                queue = self.keys.get(run.key)
                if queue is None or not queue.take(run):
                    raise ValueError(f"message {run.low} of {run.segment} is not ready")
                queue.in_flight += run.count
            else:
                plain.setdefault(run.priority, []).append((run.segment, run.low, run.high))
        for priority, pieces in plain.items():
            ready = self.ready.get(priority, deque())
            left = sum(high - low for _, low, high in pieces)
            spans = by_segment(pieces)
            kept: list[Run] = []
            while left and ready:
                run = ready.popleft()
                found, rest = split(run, spans)
                left -= sum(each.count for each in found)
                kept += rest
            if left:
                raise ValueError(f"{left} messages of {min(spans)} and others are not ready")
            ready.extendleft(reversed(kept))
            if not ready:
                self.ready.pop(priority, None)

    def _cut(self, ticket: Ticket, pieces: Sequence[tuple[str, int, int]] | None = None) -> list[Run]:
        """Remove messages from a ticket, all or some, and give them as runs of their own, piece by piece."""
        found: list[Run] = []
        left: list[Run] = []
        if pieces is None:
            found = ticket.runs
        else:
            spans = by_segment(pieces)
            for run in ticket.runs:
                taken, rest = split(run, spans)
                found += taken
                left += rest
        ticket.runs = left
        count = sum(run.count for run in found)
        self.in_flight_count -= count
        worker = self.workers.get(ticket.uid)
        if worker is not None:
            worker.held -= count
        for run in found:
            if run.key:
                queue = self.keys[run.key]
                queue.in_flight -= run.count
                self._offer(run.key, queue)
        if not left:
            self.tickets.pop(ticket.id, None)
        return found

    def _done(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.totals.done += run.count
            self._settle_for_good(run)

    def _give_back(self, ticket: Ticket) -> None:
        for run in reversed(self._cut(ticket)):
            run.due_ms = 0
            self._return(run, in_place=True)

    def _remember(self, run: Run, stamp: Stamp, worker: str, error: str) -> None:
        note = Note(run.attempt, stamp.time_ms, worker, error)
        for index in range(run.low, run.high):
            notes = self.history.setdefault((run.segment, index), [])
            notes.append(note)
            del notes[:-MAX_HISTORY]

    def _die(self, run: Run, reason: str, stamp: Stamp) -> None:
        ref = (run.segment, run.low)
        self.totals.died += 1
        self.dead[ref] = Dead(run, reason, stamp.time_ms, self.history.pop(ref, []))
        if run.key:
            self._drop_if_empty(run.key)

    def _settle_for_good(self, run: Run) -> None:
        if run.count <= len(self.history):
            for index in range(run.low, run.high):
                self.history.pop((run.segment, index), None)
        else:
            for ref in [ref for ref in self.history if ref[0] == run.segment and run.low <= ref[1] < run.high]:
                del self.history[ref]
        if run.key:
            self._drop_if_empty(run.key)
        self._spend(run.segment, run.count)

    def _spend(self, segment: str, count: int) -> None:
        left = self.segments.get(segment, 0) - count
        if left > 0:
            self.segments[segment] = left
        else:
            self.segments.pop(segment, None)
            self.spent.append(segment)

    def _purge(self) -> None:
        """Everything that waits is dropped; what workers hold, and the dead, are not touched."""
        waiting = [run for queue in self.ready.values() for run in queue]
        waiting += [run for queue in self.keys.values() for run in queue.waiting]
        waiting += [run for _, _, run in self.delayed if run.count]
        self.ready, self.delayed, self.key_heaps = {}, [], {}
        for queue in self.keys.values():
            queue.clear()
        self.ready_count = self.delayed_count = 0
        for run in waiting:
            self.totals.purged += run.count
            self._settle_for_good(run)

    # Snapshots

    def snapshot(self) -> list[bytes]:
        frame = image.Frame(self.paused, self.last_seq, self.orders, self.totals, list(self.marks))
        contents = image.Contents(
            segments=list(self.segments.items()),
            workers=list(self.workers.items()),
            tickets=list(self.tickets.values()),
            history=[(segment, index, notes) for (segment, index), notes in self.history.items()],
            dead=list(self.dead.values()),
            dedup=list(self.dedup.items()),
            waiting=[
                *(run for queue in self.ready.values() for run in queue),
                *(run for queue in self.keys.values() for run in queue.waiting),
            ],
            delayed=[run for _, _, run in sorted(self.delayed, key=lambda each: each[:2]) if run.count],
        )
        return image.encode(frame, contents)

    def restore(self, chunks: Sequence[bytes]) -> None:
        frame, contents = image.decode(chunks)
        self.__init__()  # type: ignore[misc]
        self.paused, self.last_seq, self.orders, self.totals = frame.paused, frame.last_seq, frame.orders, frame.totals
        self.marks.extend(frame.marks)
        self.segments.update(contents.segments)
        self.workers.update(contents.workers)
        self.tickets.update((ticket.id, ticket) for ticket in contents.tickets)
        self.history.update(((segment, index), notes) for segment, index, notes in contents.history)
        self.dead.update(((dead.run.segment, dead.run.low), dead) for dead in contents.dead)
        self.dedup.update(contents.dedup)
        for ticket in self.tickets.values():
            self.in_flight_count += ticket.count
            for run in ticket.runs:
                if run.key:
                    self._queue_of(run.key).in_flight += run.count
        for run in (*contents.waiting, *contents.delayed):
            if run.check() > 1 and run.key:
                raise ValueError(f"{run.count:,} messages of an ordering key together: each has a place of its own")
        for run in contents.waiting:
            self._make_ready(run)
            if run.key and run.due_ms:
                self._remind(run.key, self.keys[run.key], run.due_ms)
        for run in contents.delayed:
            self._delay(run)


def _check_arrivals(segments: dict[str, int], runs: Sequence[Run]) -> None:
    """Each segment has as many messages as its runs, and all together no more than an entry can bring."""
    left = dict(segments)
    for run in runs:
        left[run.segment] = left.get(run.segment, 0) - run.check()
    largest, total = max(segments.values(), default=0), sum(segments.values())
    if any(left.values()) or largest > MAX_SEGMENT_MESSAGES or total > MAX_ARRIVED:
        raise ValueError(f"{total:,} messages in {len(segments):,} segments: their runs, or these numbers, cannot be")
