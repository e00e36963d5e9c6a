"""What a queue is, as a function of its log. Pure: no clock, no store, no randomness.

Messages are not kept one by one. A run is messages that lie side by side in a segment and are alike: a million messages
that were enqueued together are a few runs, whatever else happens to them. Whatever sets a message apart (an ordering
key, a failure) makes it a run of its own.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tenure.ledger import Stamp
from tenure.plugins.queue.wire import Piece

VERSION = 1
MAX_HISTORY = 10
_RUNS_PER_CHUNK = 20_000
MAX_DEDUP = 1_000_000
"""Keys that are remembered; the oldest are forgotten early above this."""


class Run(msgspec.Struct, array_like=True, gc=False):
    """Messages `low` up to before `high` of a segment."""

    segment: str
    low: int
    high: int
    at_ms: int
    """When they were enqueued, on the store's clock: with the priority, this is their place in the queue."""
    due_ms: int = 0
    """Not before this."""
    priority: int = 0
    attempt: int = 1
    """Which one the next delivery is."""
    key: str = ""
    visibility_ms: int = 0
    max_attempts: int = 0
    order: int = 0
    """Its place among those of its ordering key."""

    @property
    def count(self) -> int:
        return self.high - self.low

    def part(self, low: int, high: int) -> Run:
        return msgspec.structs.replace(self, low=low, high=high)


class Ticket(msgspec.Struct, array_like=True):
    """Messages that one worker may handle until the deadline."""

    id: str
    uid: str
    seq: int
    """Of the entry that published it: the fencing token."""
    deadline_ms: int
    visibility_ms: int
    runs: list[Run]

    @property
    def count(self) -> int:
        return sum(run.high - run.low for run in self.runs)


class Note(msgspec.Struct, array_like=True, frozen=True):
    """One failed attempt."""

    attempt: int
    at_ms: int
    worker: str
    error: str


class Retry(msgspec.Struct, array_like=True, frozen=True):
    """A message goes back to the queue, to be tried again."""

    segment: str
    index: int
    due_ms: int
    error: str
    counts: bool = True
    """As an attempt."""
    in_place: bool = True
    """Of an ordering key: before those behind it, which wait for it."""


class Bury(msgspec.Struct, array_like=True, frozen=True):
    """A message is dead."""

    segment: str
    index: int
    reason: str
    error: str


class Settled(msgspec.Struct, omit_defaults=True):
    """What was decided on a worker's report, or on a ticket that has lapsed."""

    ticket: str
    all_done: bool = False
    done: list[Piece] = []
    retry: list[Retry] = []
    dead: list[Bury] = []
    back: list[Piece] = []
    lapsed: bool = False
    """Nobody reported: all that is left goes back, as another attempt ..."""
    due_ms: int = 0
    """... not before this, but for those in `dead`."""
    deadline_ms: int = 0
    """Extended until then."""


class Joined(msgspec.Struct, array_like=True, frozen=True):
    uid: str
    name: str
    capacity: int
    since: int = 0
    held: list[str] = []


class Control(msgspec.Struct, array_like=True, frozen=True):
    op: str
    refs: list[str] = []
    by: str = ""


class Work(msgspec.Struct, omit_defaults=True):
    """The events of one entry, in the order in which they are applied."""

    shift: int = 0
    """Deadlines of the entry before this one are so many milliseconds later: it took that long to be written."""
    control: list[Control] = []
    segments: dict[str, int] = {}
    """New ones, and how many messages they hold that count."""
    arrived: list[Run] = []
    dedup: dict[str, int] = {}
    """Digests, and until when (ms)."""
    duplicates: int = 0
    settled: list[Settled] = []
    """By reports ..."""
    joined: list[Joined] = []
    left: list[str] = []
    lapsed: list[Settled] = []
    """... and for want of them."""
    tickets: list[Ticket] = []


class Published(msgspec.Struct):
    """The part of `Work` that a worker reads."""

    shift: int = 0
    settled: list[Settled] = []
    lapsed: list[Settled] = []
    tickets: list[Ticket] = []


class Dead(msgspec.Struct, array_like=True):
    run: Run
    reason: str
    at_ms: int
    history: list[Note]


class KeyQueue:
    """The messages of one ordering key."""

    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Run] = deque()
        self.in_flight = 0


class Worker(msgspec.Struct):
    name: str
    capacity: int
    held: int = 0
    """Messages in its open tickets."""


class Totals(msgspec.Struct):
    enqueued: int = 0
    done: int = 0
    failed: int = 0
    lapsed: int = 0
    died: int = 0
    duplicates: int = 0
    purged: int = 0


class _Frame(msgspec.Struct):
    """The first chunk of a snapshot."""

    paused: bool
    last_seq: int
    orders: int
    segments: dict[str, int]
    totals: Totals
    workers: dict[str, Worker]
    tickets: list[Ticket]
    history: list[tuple[str, int, list[Note]]]
    dead: list[Dead]
    dedup: list[tuple[str, int]]


_work = msgspec.json.Decoder(Work)
_runs = msgspec.json.Decoder(list[Run])


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
        self.key_heap: list[tuple[int, int, str]] = []
        """(place, tie-breaker, key) of keys that may have something to give; checked when taken."""
        self.tickets: dict[str, Ticket] = {}
        self.workers: dict[str, Worker] = {}
        self.history: dict[tuple[str, int], list[Note]] = {}
        self.dead: dict[tuple[str, int], Dead] = {}
        self.dedup: OrderedDict[str, int] = OrderedDict()
        self.totals = Totals()
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
        for ticket in self.tickets.values():
            if ticket.seq == self.last_seq:
                ticket.deadline_ms = max(ticket.deadline_ms, stamp.time_ms + ticket.visibility_ms)

    def enact(self, work: Work, stamp: Stamp) -> None:
        """The same as its parts, in this order; the leader calls the parts while it decides."""
        self.begin(work.shift, stamp)
        for control in work.control:
            self.control(control, stamp)
        self.arrive(work.segments, work.arrived, work.dedup, work.duplicates)
        for settled in work.settled:
            self.settle(settled, stamp)
        for joined in work.joined:
            self.join(joined)
        for uid in work.left:
            self.leave(uid)
        for settled in work.lapsed:
            self.settle(settled, stamp)
        for ticket in work.tickets:
            self.publish(ticket)
        self.last_seq = stamp.seq

    # The parts

    def begin(self, shift: int, stamp: Stamp) -> None:
        if shift:
            for ticket in self.tickets.values():
                if ticket.seq == self.last_seq:
                    ticket.deadline_ms += shift
        self.advance(stamp.time_ms)

    def advance(self, now_ms: int) -> None:
        """Time passes: what is due becomes ready, and old deduplication keys are forgotten."""
        delayed = self.delayed
        while delayed and delayed[0][0] <= now_ms:
            run = heapq.heappop(delayed)[2]
            if run.key and run.count == 0:
                self._offer(run.key)  # only a reminder to look at the key again
            else:
                self.delayed_count -= run.count
                self._make_ready(run)
        dedup = self.dedup
        while dedup:
            first = next(iter(dedup))
            if dedup[first] > now_ms and len(dedup) <= MAX_DEDUP:
                break
            del dedup[first]

    def arrive(self, segments: dict[str, int], runs: Iterable[Run], dedup: dict[str, int], duplicates: int) -> None:
        for segment, count in segments.items():
            self.segments[segment] = count
            self.totals.enqueued += count
            if count == 0:
                self._spend(segment, 0)
        for run in runs:
            if run.key:
                self.orders += 1
                run.order = self.orders
            if run.due_ms:
                self._delay(run)
            else:
                self._make_ready(run)
        for key, until in dedup.items():
            self.dedup[key] = until
        self.totals.duplicates += duplicates

    def join(self, joined: Joined) -> None:
        known = self.workers.get(joined.uid)
        if known is None:
            self.workers[joined.uid] = Worker(joined.name, joined.capacity)
        else:
            known.capacity = joined.capacity
        if joined.since:
            held = set(joined.held)
            for ticket in self.of(joined.uid):
                if ticket.seq < joined.since and ticket.id not in held:
                    self._give_back(ticket, list(ticket.runs))

    def leave(self, uid: str) -> None:
        for ticket in self.of(uid):
            self._give_back(ticket, list(ticket.runs))
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
            ticket.deadline_ms = max(ticket.deadline_ms, settled.deadline_ms)
        if settled.all_done:
            for run in list(ticket.runs):
                self._done(ticket, run.segment, run.low, run.high)
        for piece in settled.done:
            self._done(ticket, piece.segment, piece.low, piece.high)
        for bury in settled.dead:
            for run in self._cut(ticket, bury.segment, bury.index, bury.index + 1):
                self._remember(run, stamp, name, bury.error)
                self._die(run, bury.reason, stamp)
        for retry in settled.retry:
            for run in self._cut(ticket, retry.segment, retry.index, retry.index + 1):
                if retry.counts:
                    self._remember(run, stamp, name, retry.error)
                    run.attempt += 1
                    self.totals.failed += 1
                run.due_ms = retry.due_ms
                self._return(run, retry.in_place)
        for piece in settled.back:
            for run in self._cut(ticket, piece.segment, piece.low, piece.high):
                self._return(run, in_place=True)
        if settled.lapsed:
            for run in list(ticket.runs):
                for cut in self._cut(ticket, run.segment, run.low, run.high):
                    cut.attempt += 1
                    cut.due_ms = settled.due_ms
                    self.totals.lapsed += cut.count
                    self._return(cut, in_place=True)
        if not ticket.runs:
            self.tickets.pop(ticket.id, None)

    def publish(self, ticket: Ticket) -> None:
        for run in ticket.runs:
            self._take(run)
            if run.key:
                self.keys.setdefault(run.key, KeyQueue()).in_flight += run.count
        # Runs are changed as they are settled, and the entry that is being written must not be.
        ticket = Ticket(
            ticket.id,
            ticket.uid,
            ticket.seq,
            ticket.deadline_ms,
            ticket.visibility_ms,
            [run.part(run.low, run.high) for run in ticket.runs],
        )
        self.tickets[ticket.id] = ticket
        count = ticket.count
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
        looked_at: list[tuple[int, int, str]] = []
        nothing: list[Run] = []

        def keyed() -> Iterator[tuple[int, list[Run]]]:
            seen: set[str] = set()
            while self.key_heap:
                entry = heapq.heappop(self.key_heap)
                key = entry[2]
                found = self.keys.get(key)
                if found is None or key in seen or not found.waiting:
                    continue
                seen.add(key)
                looked_at.append(entry)
                room = key_limit - found.in_flight
                if room <= 0:
                    looked_at.pop()  # it is offered again when one of them comes back
                    continue
                runs: list[Run] = []
                for run in found.waiting:
                    if run.due_ms > now_ms or len(runs) >= (chain if key_limit == 1 else room):
                        break
                    runs.append(run)
                if runs:
                    yield place(runs[0]), runs
                else:
                    looked_at.pop()
                    self._remind(key, found.waiting[0].due_ms)

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
            for entry in looked_at:
                heapq.heappush(self.key_heap, entry)

    def oldest_ms(self) -> int | None:
        """When the oldest message that waits was enqueued."""
        found = [queue[0].at_ms for queue in self.ready.values() if queue]
        found += [queue.waiting[0].at_ms for queue in self.keys.values() if queue.waiting]
        return min(found, default=None)

    def next_due_ms(self) -> int | None:
        return self.delayed[0][0] if self.delayed else None

    # Inside

    def _make_ready(self, run: Run) -> None:
        self.ready_count += run.count
        if run.key:
            queue = self.keys.setdefault(run.key, KeyQueue())
            if queue.waiting and queue.waiting[-1].order > run.order:
                ordered = list(queue.waiting)
                insort(ordered, run, key=lambda each: each.order)
                queue.waiting = deque(ordered)
            else:
                queue.waiting.append(run)
            self._offer(run.key)
        else:
            self.ready.setdefault(run.priority, deque()).append(run)

    def _delay(self, run: Run) -> None:
        self._tie += 1
        self.delayed_count += run.count
        heapq.heappush(self.delayed, (run.due_ms, self._tie, run))

    def _remind(self, key: str, due_ms: int) -> None:
        """Look at a key again later."""
        self._tie += 1
        heapq.heappush(self.delayed, (due_ms, self._tie, Run("", 0, 0, 0, due_ms, key=key)))

    def _offer(self, key: str) -> None:
        queue = self.keys.get(key)
        if queue is not None and queue.waiting:
            self._tie += 1
            heapq.heappush(self.key_heap, (queue.waiting[0].at_ms, self._tie, key))

    def _return(self, run: Run, in_place: bool) -> None:
        """From a ticket back to the queue."""
        if run.key and in_place:
            self._make_ready(run)  # its place is by its order, and those behind it wait for it
            if run.due_ms:
                self._remind(run.key, run.due_ms)
        elif run.due_ms:
            if run.key:
                self.orders += 1
                run.order = self.orders
            self._delay(run)
        elif run.key:
            self._make_ready(run)
        else:
            self.ready_count += run.count
            self.ready.setdefault(run.priority, deque()).appendleft(run)

    def _take(self, wanted: Run) -> None:
        """Remove the messages of a run that is given out from among those that are ready."""
        self.ready_count -= wanted.count
        queue: deque[Run] = self.keys[wanted.key].waiting if wanted.key else self.ready[wanted.priority]
        for place, run in enumerate(queue):
            if run.segment == wanted.segment and run.low <= wanted.low and wanted.high <= run.high:
                if wanted.low == run.low and wanted.high == run.high:
                    del queue[place]
                elif wanted.low == run.low:
                    queue[place] = run.part(wanted.high, run.high)
                elif wanted.high == run.high:
                    queue[place] = run.part(run.low, wanted.low)
                else:
                    queue[place] = run.part(run.low, wanted.low)
                    queue.insert(place + 1, run.part(wanted.high, run.high))
                break
        else:
            raise ValueError(f"messages {wanted.low} to {wanted.high} of {wanted.segment} are not ready")
        if not queue and not wanted.key:
            del self.ready[wanted.priority]

    def _cut(self, ticket: Ticket, segment: str, low: int, high: int) -> list[Run]:
        """Remove messages from a ticket, and give them as runs of their own."""
        found: list[Run] = []
        left: list[Run] = []
        for run in ticket.runs:
            if run.segment != segment or run.high <= low or high <= run.low:
                left.append(run)
                continue
            first, last = max(low, run.low), min(high, run.high)
            found.append(run.part(first, last))
            if run.low < first:
                left.append(run.part(run.low, first))
            if last < run.high:
                left.append(run.part(last, run.high))
        ticket.runs = left
        count = sum(run.count for run in found)
        self.in_flight_count -= count
        worker = self.workers.get(ticket.uid)
        if worker is not None:
            worker.held -= count
        for run in found:
            if run.key:
                self.keys[run.key].in_flight -= run.count
                self._offer(run.key)
        if not left:
            self.tickets.pop(ticket.id, None)
        return found

    def _done(self, ticket: Ticket, segment: str, low: int, high: int) -> None:
        for run in self._cut(ticket, segment, low, high):
            self.totals.done += run.count
            self._settle_for_good(run)

    def _give_back(self, ticket: Ticket, runs: Sequence[Run]) -> None:
        for run in runs:
            for cut in self._cut(ticket, run.segment, run.low, run.high):
                cut.due_ms = 0
                self._return(cut, in_place=True)
        self.tickets.pop(ticket.id, None)

    def _remember(self, run: Run, stamp: Stamp, worker: str, error: str) -> None:
        notes = self.history.setdefault((run.segment, run.low), [])
        notes.append(Note(run.attempt, stamp.time_ms, worker, error))
        del notes[:-MAX_HISTORY]

    def _die(self, run: Run, reason: str, stamp: Stamp) -> None:
        ref = (run.segment, run.low)
        self.totals.died += 1
        self.dead[ref] = Dead(run, reason, stamp.time_ms, self.history.pop(ref, []))

    def _settle_for_good(self, run: Run) -> None:
        if self.history:
            for index in range(run.low, run.high):
                self.history.pop((run.segment, index), None)
        if run.key:
            queue = self.keys.get(run.key)
            if queue is not None and not queue.waiting and not queue.in_flight:
                del self.keys[run.key]
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
        self.ready, self.delayed, self.key_heap = {}, [], []
        for queue in self.keys.values():
            queue.waiting.clear()
        self.ready_count = self.delayed_count = 0
        for run in waiting:
            self.totals.purged += run.count
            self._settle_for_good(run)

    # Snapshots

    def snapshot(self) -> list[bytes]:
        frame = _Frame(
            self.paused,
            self.last_seq,
            self.orders,
            self.segments,
            self.totals,
            self.workers,
            list(self.tickets.values()),
            [(segment, index, notes) for (segment, index), notes in self.history.items()],
            list(self.dead.values()),
            list(self.dedup.items()),
        )
        waiting = [run for queue in self.ready.values() for run in queue]
        waiting += [run for queue in self.keys.values() for run in queue.waiting]
        delayed = [run for _, _, run in sorted(self.delayed, key=lambda each: each[:2]) if run.count]
        chunks = [msgspec.json.encode(frame), msgspec.json.encode([len(waiting), len(delayed)])]
        every = waiting + delayed
        chunks += [
            msgspec.json.encode(every[start : start + _RUNS_PER_CHUNK])
            for start in range(0, len(every), _RUNS_PER_CHUNK)
        ]
        return chunks

    def restore(self, chunks: Sequence[bytes]) -> None:
        frame = msgspec.json.decode(chunks[0], type=_Frame)
        waiting, delayed = msgspec.json.decode(chunks[1], type=tuple[int, int])
        runs: list[Run] = [run for chunk in chunks[2:] for run in _runs.decode(chunk)]
        if len(runs) != waiting + delayed:
            raise ValueError(f"{len(runs)} runs, and {waiting + delayed} were written")
        self.__init__()  # type: ignore[misc]
        self.paused, self.last_seq, self.orders = frame.paused, frame.last_seq, frame.orders
        self.segments, self.totals, self.workers = frame.segments, frame.totals, frame.workers
        self.history = {(segment, index): notes for segment, index, notes in frame.history}
        self.dead = {(dead.run.segment, dead.run.low): dead for dead in frame.dead}
        self.dedup = OrderedDict(frame.dedup)
        for ticket in frame.tickets:
            self.tickets[ticket.id] = ticket
            self.in_flight_count += ticket.count
            for run in ticket.runs:
                if run.key:
                    self.keys.setdefault(run.key, KeyQueue()).in_flight += run.count
        for run in runs[:waiting]:
            self._make_ready(run)
            if run.key and run.due_ms:
                self._remind(run.key, run.due_ms)
        for run in runs[waiting:]:
            self._delay(run)


def ref_of(segment: str, index: int) -> str:
    return f"{segment}:{index}"


def parse_ref(ref: str) -> tuple[str, int]:
    segment, _, index = ref.rpartition(":")
    return segment, int(index) if index.isdigit() else -1
