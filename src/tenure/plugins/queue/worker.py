"""The side of a queue that handles messages.

It reads the log along, takes the tickets that are meant for it, fetches the segments that they name, has the messages
handled, and reports in batches. Its deadline for a ticket is counted from the sending of its last poll that did not see
the ticket yet: never later than the leader's. What it reports after that is `late`: it may be handled again.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import msgspec

from tenure.clock import Clock, Reading
from tenure.coordinator.seldom import Seldom
from tenure.database.tracing import UNTRACED, Tracer, Tracing
from tenure.errors import StoreError, TenureError
from tenure.ledger import LedgerConfig, LogEntry, Producer, Resync, Tail
from tenure.plugins.failure import text_of
from tenure.plugins.ledgered import either
from tenure.plugins.queue.calling import Caller, is_async
from tenure.plugins.queue.experience import Experience
from tenure.plugins.queue.hand import Hand, HeldMessage, pieces_of, size_of, ticket_lost
from tenure.plugins.queue.message import BatchHandler, Handler, Message, Reject
from tenure.plugins.queue.records import Published, Run, Ticket
from tenure.plugins.queue.segments import FetchedSegments
from tenure.plugins.queue.settings import IDLE_PRESENCE, IDLE_PRESENCE_KNOWN, Blocking, Delivery, QueueSettings
from tenure.plugins.queue.wire import (
    MAX_ERROR_CHARACTERS,
    Failure,
    Held,
    Outcome,
    Segment,
    TooNew,
    Unreadable,
    WorkerNote,
)
from tenure.store import Store

_log = logging.getLogger("tenure.queue")

REPORT_WITHIN = 0.05
"""Seconds for which outcomes are gathered."""
REPORT_WITHIN_IDLE = 0.1
"""The same, for one who can be given more meanwhile."""
_CHECK_EVERY = 0.01
_DEAF_AFTER = 15.0
_NOTE_BYTES = 256 * 1024
_FAILURES = 500
"""Of one ticket in one report: each may have a long error."""
_SOON = 0.003
_REPORTS_AT_ONCE = 4
_LOOK_AGAIN = 0.02
_LATELY = 1.0
"""Seconds after something happened for which it looks often."""
_TICKETS_REMEMBERED = 2000
_TURN = 0.005
"""Seconds after which a runner lets others have the loop."""
_WINDS_UP = 2.0
"""Seconds that handlers have, at least, from their cancellation until they are no longer waited for."""

_published = msgspec.json.Decoder(Published)


class QueueWorker:
    def __init__(
        self,
        store: Store,
        producer: Producer,
        *,
        name: str,
        settings: QueueSettings,
        ledger: LedgerConfig,
        clock: Clock,
        handler: Handler | None = None,
        batch_handler: BatchHandler | None = None,
        batch_size: int = 100,
        concurrency: int = 10,
        prefetch: int | None = None,
        auto_extend: bool = False,
        blocking: Blocking = Blocking.THREAD,
        new_executor: Callable[[], Executor] | None = None,
        is_member: bool = False,
        decode: Callable[[bytes], Any] | None = None,
        on_result: Callable[[Message, Any], Any] | None = None,
        on_acked: Callable[[Hand, Outcome], None] | None = None,
        on_idle: Callable[[], None] = lambda: None,
        queue: str = "",
        tracing: Tracing = UNTRACED,
    ) -> None:
        """`queue`: what it is called by whoever follows what is handled."""
        self.store = store
        self.uid = producer.owner
        self.clock = clock
        self._seldom = Seldom(_log)
        self.drift = ledger.drift
        self._producer = producer
        self._name = name
        self._settings = settings
        self._handler = handler
        self._batch_handler = batch_handler
        self._batch_size = batch_size
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._auto_extend = auto_extend
        self._caller = Caller(blocking, new_executor)
        quieter = IDLE_PRESENCE_KNOWN if is_member else IDLE_PRESENCE
        self._idle_presence = quieter * settings.presence
        self._decode = decode if decode is not None else msgspec.json.Decoder().decode
        self._on_result = on_result
        self._on_acked = on_acked
        self._on_idle = on_idle
        self._queue = queue
        self._tracing = tracing
        called = handler if handler is not None else batch_handler
        assert called is not None
        self._plain = not is_async(called)
        self.tail = Tail(store, config=ledger, clock=clock)
        self._hands: dict[str, Hand] = {}
        self._ready: deque[list[HeldMessage]] = deque()
        """Groups of messages that are handled one after the other; most are of one."""
        self._ready_messages = 0
        self._running: dict[asyncio.Task[Any], list[HeldMessage]] = {}
        self._idle: deque[asyncio.Future[None]] = deque()
        """Runners that wait for something to do."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._fetching: set[asyncio.Task[None]] = set()
        self._changed: set[str] = set()
        """Tickets with something to report."""
        self._report_due = asyncio.Event()
        self._unsettled: Counter[str] = Counter()
        """Tickets whose reports are under way."""
        self._settling: set[asyncio.Task[None]] = set()
        self._settling_first = False
        """At most once: some messages are being settled now, and others wait ..."""
        self._settled = 0
        """... and these were, and are not handled yet."""
        self._taken: OrderedDict[str, None] = OrderedDict()
        """Tickets that were its own, the last ones."""
        self._rejoin = False
        self._lost_in_a_row = 0
        """Reports."""
        first = prefetch if prefetch is not None else 2 * concurrency
        self._experience = Experience(concurrency, settings.visibility_timeout, clock.read(), first)
        self._last_sent: Reading | None = None
        self._segments = FetchedSegments(store, clock)
        self._draining = False
        self._ending = False
        """From just before its tasks are cancelled."""
        self._poll_now = asyncio.Event()
        idle = min(7200.0 / settings.idle_budget, settings.visibility_timeout / 4)
        self._idle_poll = max(settings.poll_interval, idle)
        self._tickets_seen = False
        """Somebody was given something since the last look: there is work."""
        self._polled = clock.read()
        self._last_activity = clock.read()
        self.counts: Counter[str] = Counter()

    # Life

    async def start(self) -> None:
        await self.tail.start()
        assert self.tail.absent_since is not None
        self._producer.learn(self.tail.position - 1, self.tail.absent_since)
        self._rejoin = True
        spawn = asyncio.get_running_loop().create_task
        self._tasks = [spawn(_for_ever()), spawn(self._follow()), spawn(self._report_on())]
        self._tasks += [spawn(self._run()) for _ in range(self._concurrency)]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def stop(self, within: float) -> None:
        """Finish what runs, give back the rest, and say goodbye; all of it within so many seconds."""
        self._draining = True
        began = self.clock.read()
        # At most once: what was settled can only be handled, or is lost.
        kept = [group for group in self._ready if group[0].settled]
        for group in self._ready:
            for held in group:
                if not held.settled:
                    self._finish(held, "back")
        self._ready.clear()
        self._ready.extend(kept)
        self._ready_messages = sum(map(len, kept))

        def left() -> float:
            return within - self.clock.read().leader_elapsed(began)

        at_most_once = self._settings.delivery is Delivery.AT_MOST_ONCE
        while (self._running or self._ready or (at_most_once and self._fetching)) and left() > 0:
            await self.clock.sleep(min(0.02, max(0.0, left())))
        self._ending = True
        for task in [*self._tasks, *self._fetching]:
            task.cancel()
        if self._tasks:
            _, running = await asyncio.wait([*self._tasks, *self._fetching], timeout=max(_WINDS_UP, left()))
            if running:
                _log.warning("%d handlers of worker %r go on though they were cancelled", len(running), self._name)
        for group in self._running.values():
            for held in group:
                if not held.closed:
                    self._finish(held, "interrupted" if held.begun else "back")
        self._running.clear()
        if self._settling:
            await asyncio.wait(list(self._settling), timeout=max(0.5, left()))
        if self._settling:
            # Whoever said goodbye now would give back what these reports, still under way, say was done.
            _log.warning("worker %r left without saying goodbye: its last reports are not through", self._name)
            return
        try:
            async with asyncio.timeout(max(1.0, left())):
                await self._send(*self._collect(leaving=True))
        except TimeoutError:
            _log.warning("worker %r could not say goodbye, and its tickets lapse", self._name)

    async def abandon(self) -> None:
        """Stop at once, telling nobody: what is in hand lapses."""
        self._ending = True
        for task in [*self._tasks, *self._fetching, *self._settling]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_WINDS_UP)

    # Reading along

    def nudge(self) -> None:
        """Something may have happened."""
        self._poll_now.set()

    def take(self, entry: LogEntry) -> None:
        """An entry that this process wrote itself: no poll is needed, if it is the next one.

        Its tickets count from the last poll that saw nothing, as everybody's do: when it landed is not known.
        """
        base = self.tail.absent_since
        if base is not None and entry.seq == self.tail.position and not self._draining:
            self._took(entry, base)

    def _took(self, entry: LogEntry, base: Reading) -> None:
        published = entry.decided_as(_published.decode)  # first: one that is mended is read then
        self._producer.learn(entry.seq, base)
        if self.tail.took(entry) and published is not None:
            self._heed(published, base)

    async def _follow(self) -> None:
        pause = self._settings.poll_interval
        failures = 0
        told = ""
        while True:
            try:
                found = await self._poll()
                failures, told = 0, ""
            except StoreError as error:
                failures += 1
                self.counts["store_errors"] += 1
                self._seldom.warning(self.clock.read(), "the log of a queue could not be read: %s", error)
                await self.clock.sleep(min(5.0, 0.2 * 2.0 ** min(failures, 5)))
                continue
            except TenureError as error:
                level = logging.DEBUG if str(error) == told else logging.ERROR  # it is tried again, and told once
                told = str(error)
                _log.log(level, "the log of a queue cannot be followed: %s", error)
                await self.clock.sleep(10.0)
                continue
            self._polled = self.clock.read()
            if found:
                continue  # there may be more; how soon it looks after that is decided by what was in them
            self._on_idle()
            lately = self._tickets_seen or self.clock.read().leader_elapsed(self._last_activity) < _LATELY
            pause = self._settings.poll_interval if lately else min(self._longest_pause(), pause * 1.5)
            self._tickets_seen = False
            await either(self._poll_now, pause)
            self._poll_now.clear()

    def _longest_pause(self) -> float:
        """Whoever holds messages and asks for more time for them must see the answer before it is over."""
        shortest = min((hand.visibility for hand in self._hands.values()), default=None)
        if shortest is None:
            return self._idle_poll
        return min(self._idle_poll, max(self._settings.poll_interval, shortest / 8))

    async def _poll(self) -> bool:
        base = self.tail.absent_since
        assert base is not None
        entry = await self.tail.poll()
        if entry is Resync.LOST:
            self.counts["resyncs"] += 1
            _log.warning("worker %r fell behind the log, and begins anew at its end", self._name)
            await self.tail.start()
            self._begin_anew()
            return True
        if entry is None:
            return False
        assert isinstance(entry, LogEntry)
        self._took(entry, base)
        return True

    def _heed(self, published: Published, base: Reading) -> None:
        # `shift` gives a worker more time than it counts on: nothing to do.
        for settled in published.settled:
            hand = self._hands.get(settled.ticket)
            if hand is not None and settled.deadline_ms:
                hand.base = base
                hand.extend_asked = None
                if hand.extending is not None and not hand.extending.done():
                    hand.extending.set_result(None)
        for lapsed in published.lapsed:
            if lapsed.ticket in self._taken:
                self._begin_anew()  # whoever lets a ticket lapse is given nothing until it is heard of
            hand = self._hands.get(lapsed.ticket)
            if hand is not None:
                hand.lost = True
                self._refuse_extension(hand)
        self._tickets_seen = self._tickets_seen or bool(published.tickets)
        for ticket in published.tickets:
            if ticket.uid == self.uid and ticket.id not in self._hands:
                self._accept(ticket, base)

    def _accept(self, ticket: Ticket, base: Reading) -> None:
        hand = Hand(self, ticket, base)
        self._hands[ticket.id] = hand
        self._taken[ticket.id] = None
        if len(self._taken) > _TICKETS_REMEMBERED:
            self._taken.popitem(last=False)
        self._last_activity = self.clock.read()
        self.counts["tickets"] += 1
        task = asyncio.get_running_loop().create_task(self._fetch(hand))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    # Fetching

    async def _fetch(self, hand: Hand) -> None:
        chains: dict[str, list[HeldMessage]] = {}
        groups: list[list[HeldMessage]] = []
        broken: set[str] = set()
        unread: dict[str, Exception] = {}
        doubtful: set[str] = set()
        ordered = self._settings.key_concurrency == 1
        for run in hand.runs:
            if run.key in broken:
                for index in range(run.low, run.high):
                    self._give_back(hand, run.segment, index)
                continue
            try:
                segment = await self._segment_of(run, unread)
                messages = list(self._open(hand, run, segment))
            except (StoreError, Unreadable, TooNew) as error:
                # An attempt that failed, whatever the store says: at the next one it may say something else.
                doubtful.add(run.segment)
                for index in range(run.low, run.high):
                    self._fail(hand, run.segment, index, f"its body cannot be read: {error}", False)
                if run.key and ordered:
                    broken.add(run.key)  # those behind it must not pass it
                continue
            if not run.key or not ordered:
                groups.extend([held] for held in messages)
            elif run.key in chains:
                chains[run.key].extend(messages)
            else:
                chains[run.key] = messages
                groups.append(messages)
        for name in doubtful:
            self._segments.forget(name)
        if self._settings.delivery is Delivery.AT_MOST_ONCE:
            await self._settle_first(hand, groups)
        else:
            self._make_ready(groups)

    async def _segment_of(self, run: Run, unread: dict[str, Exception]) -> Segment:
        """`unread`: those that could not be had for this ticket; they are asked for once."""
        if run.segment in unread:
            raise unread[run.segment]
        try:
            return await self._segments.get(run.segment)
        except (StoreError, Unreadable, TooNew) as error:
            unread[run.segment] = error
            raise

    def _make_ready(self, groups: list[list[HeldMessage]]) -> None:
        """All at once: a runner that has taken a chain must have all of it."""
        if self._draining and not (groups and groups[0][0].settled):
            for group in groups:
                for held in group:
                    self._finish(held, "back")
            return
        self._ready.extend(groups)
        self._ready_messages += sum(map(len, groups))
        for _ in range(min(len(groups), len(self._idle))):  # no more than there is work for: there may be thousands
            runner = self._idle.popleft()
            if not runner.done():
                runner.set_result(None)

    async def _settle_first(self, hand: Hand, groups: list[list[HeldMessage]]) -> None:
        """At most once: what cannot be settled in time is not begun. Some at a time, and only as these are handled:
        what was settled and not begun when this process ends is lost."""
        most = max(2 * self._concurrency, self._batch_size if self._batch_handler is not None else 1)
        while groups:
            portion: list[list[HeldMessage]] = []
            while groups and (not portion or sum(map(len, portion)) + len(groups[0]) <= most):
                portion.append(groups.pop(0))
            while self._settling_first or self._ready_messages >= max(1, most // 2):
                if self._draining or hand.remaining() < hand.visibility / 8:
                    break
                await self.clock.sleep(_LOOK_AGAIN)
            if self._draining or hand.remaining() < hand.visibility / 8:
                for group in (*portion, *groups):
                    for held in group:
                        self._finish(held, "back")
                return
            places = [(held.segment, held.index) for group in portion for held in group]
            outcome = Outcome(hand.id, done=pieces_of(places))
            note = WorkerNote(self.uid, self._name, self._now_capacity(), outcomes=[outcome])
            self._settling_first = True
            try:
                await self._producer.submit(note, 200 + size_of(outcome))
            except TenureError as error:
                text = "some messages were given up, since they could not be settled first: %s"
                self._seldom.warning(self.clock.read(), text, error)
                self._let_go(hand)
                return
            finally:
                self._settling_first = False
            if hand.remaining() <= 0:
                self.counts["late"] += 1
                self._let_go(hand)
                return
            self._settled += len(places)
            for group in portion:
                for held in group:
                    held.settled = True
            hand.settled_first = not groups
            self._make_ready(portion)

    def _let_go(self, hand: Hand) -> None:
        """Of a ticket, saying so: what it holds that is not settled goes back."""
        self._hands.pop(hand.id, None)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Tell the leader what is in hand, and that it can have more."""
        self._rejoin = True
        self._report_due.set()

    def _open(self, hand: Hand, run: Run, segment: Segment) -> list[HeldMessage]:
        found = []
        attempt, name, key = run.attempt, run.segment, run.key or None
        index = run.low
        for held in segment.messages(run.low, run.high):
            body: Any = held.body
            options = held.options
            if not options.raw:
                try:
                    body = self._decode(body)
                except Exception as error:
                    why = text_of(error, MAX_ERROR_CHARACTERS, name=False)  # a schema is users' code
                    self._fail(hand, name, index, f"its body cannot be read: {why}", final=True)
                    index += 1
                    continue
            message = Message(_id(held), body, attempt, options.headers, key, held.modified_ms, hand, name, index)
            found.append(HeldMessage(hand, message, name, index))
            index += 1
        return found

    # Handling

    async def _run(self) -> None:
        """One of `concurrency` runners."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            try:
                await self._handle_what_is_ready(task)
            except asyncio.CancelledError:
                await self._go_on(task)  # between two messages: a handler that has ended had left its timeout behind

    async def _handle_what_is_ready(self, task: asyncio.Task[Any]) -> None:
        """Take it, and let others have the loop now and then."""
        ready, running, handler = self._ready, self._running, self._handler
        turn = self.clock.read()
        handled = 0
        monotonic = asyncio.get_running_loop().time
        checked: Hand | None = None
        checked_at = 0.0
        while True:
            if task.cancelling() or self._ending:
                await self._go_on(task)
            if not ready:
                waiting = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                try:
                    await waiting
                except asyncio.CancelledError:
                    if waiting in self._idle:
                        self._idle.remove(waiting)  # whoever looks for one that waits must find one that does
                    raise
                turn = self.clock.read()
                continue
            if self._batch_handler is not None:
                await self._run_batch(task)
                continue
            group = ready.popleft()
            running[task] = group
            assert handler is not None
            for place, held in enumerate(group):
                self._ready_messages -= 1
                message = held.message
                hand = held.hand
                now = monotonic()
                # Reading all clocks takes as long as a quick handler. Where order matters it is done each time.
                if hand is not checked or now - checked_at > _CHECK_EVERY or message.ordering_key is not None:
                    checked, checked_at = hand, now
                    # At most once: what was settled is given to nobody else, however late it is.
                    if hand.remaining() <= 0 and not held.settled:
                        self._finish(held, "back")
                        checked = None
                        continue
                held.begun = True
                tracer = self._tracing.tracer
                try:
                    if tracer is not None:
                        result = await self._traced(tracer, handler, message, [message])
                    elif self._plain:
                        result = await self._caller.call(handler, message)
                    else:
                        result = await handler(message)
                    if self._on_result is not None:
                        await self._on_result(message, result)
                except BaseException as error:
                    self._let_through(error)
                    self._failed(held, error)
                    rest = group[place + 1 :]
                    if rest and message.ordering_key is not None:
                        self._ready_messages -= len(rest)
                        for other in rest:
                            self._finish(other, "back")
                        break
                else:
                    if held.closed:
                        raise asyncio.CancelledError  # it was given up on meanwhile
                    self._finish(held, "done")
                if task.cancelling() or self._ending:
                    await self._go_on(task)
                handled += 1
            running.pop(task, None)
            if handled % 16 == 0:
                read = self.clock.read()
                if read.leader_elapsed(turn) >= _TURN:
                    await self.clock.sleep(0)
                    turn = self.clock.read()

    async def _run_batch(self, task: asyncio.Task[Any]) -> None:
        batch: list[HeldMessage] = []
        while self._ready and len(batch) < self._batch_size:
            group = self._ready[0]
            if batch and len(batch) + len(group) > self._batch_size:
                break
            batch += self._ready.popleft()
        self._ready_messages -= len(batch)
        batch = [held for held in batch if not self._drop_if_lost(held)]
        if not batch:
            return
        self._running[task] = batch
        for held in batch:
            held.begun = True
        messages = [held.message for held in batch]
        assert self._batch_handler is not None
        tracer = self._tracing.tracer
        try:
            if tracer is not None:
                await self._traced(tracer, self._batch_handler, messages, messages)
            elif self._plain:
                await self._caller.call(self._batch_handler, messages)
            else:
                await self._batch_handler(messages)
        except BaseException as error:
            self._let_through(error)
            for held in batch:
                self._failed(held, error)
        else:
            if batch[0].closed:
                raise asyncio.CancelledError  # it was given up on meanwhile
            for held in batch:
                self._finish(held, "done")
        self._running.pop(task, None)
        await self.clock.sleep(0)

    def _let_through(self, error: BaseException) -> None:
        """What is no failure of a handler. All else is one, also if it is no `Exception`: a panic of a library in Rust,
        or the end of a program whose main function is called. It would end the runner, or stop the loop and all that
        this process does."""
        if self._is_told_to_end():
            raise asyncio.CancelledError from error
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise error

    def _is_told_to_end(self) -> bool:
        """By us, or with the whole loop, as `asyncio.run` ends it. A runner that is cancelled alone was so by its
        handler: a timeout that cancels the task it is in, and of which the handler made something else.

        The first of the tasks has no timeout of its own. Any other is being cancelled, for a moment, also when one of
        its timeouts has come, and many come at once where the store does not answer.
        """
        first = self._tasks[0] if self._tasks else None
        return self._ending or first is None or first.done() or first.cancelling() > 0

    async def _go_on(self, task: asyncio.Task[Any]) -> None:
        """Take back a cancellation that a handler has left behind; raise if it is meant."""
        if self._is_told_to_end():
            raise asyncio.CancelledError
        while task.cancelling():
            task.uncancel()
        try:
            await self.clock.sleep(0)  # one that is not delivered yet comes here; up to Python 3.12 it comes anyhow
        except asyncio.CancelledError:
            if self._is_told_to_end():
                raise

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """None of these ends by itself."""
        error = None if task.cancelled() else task.exception()
        if error is None and self._is_told_to_end():
            return
        _log.error("a worker of a queue does not go on, by a defect of tenure: restart it", exc_info=error)
        if self._ending:
            return  # whoever stops it tells what became of its messages
        for held in self._running.pop(task, ()):
            if held.closed:
                continue
            self._ready_messages -= not held.begun
            self._finish(held, "interrupted" if held.begun else "back")

    async def _traced(
        self, tracer: Tracer, handler: Callable[[Any], Any], argument: Any, messages: list[Message]
    ) -> Any:
        with tracer.handling(self._queue, messages):
            if self._plain:
                return await self._caller.call(handler, argument, contextvars.copy_context())
            return await handler(argument)

    def _drop_if_lost(self, held: HeldMessage) -> bool:
        if held.settled or held.hand.remaining() > 0:
            return False
        self._finish(held, "back")
        return True

    def _failed(self, held: HeldMessage, error: BaseException) -> None:
        held.closed = True
        text = text_of(error, MAX_ERROR_CHARACTERS)
        if held.settled:
            _log.warning("message %s failed, and is not tried again (at most once): %.300s", held.message.id, text)
            self.counts["failed"] += 1
            self._settled -= 1
            self._closed(held.hand)
            return
        self._fail(held.hand, held.segment, held.index, text, isinstance(error, Reject))

    def _fail(self, hand: Hand, segment: str, index: int, error: str, final: bool) -> None:
        self.counts["failed"] += 1
        hand.failed.append(Failure(segment, index, error[:MAX_ERROR_CHARACTERS], final))
        self._closed(hand)

    def _finish(self, held: HeldMessage, how: str) -> None:
        held.closed = True
        hand = held.hand
        self.counts[how] += 1
        if held.settled:
            self._settled -= 1
            self._experience.handled += how == "done"
        elif how == "done":
            self._experience.handled += 1
            hand.done.append((held.segment, held.index))
        elif how == "back":
            hand.back.append((held.segment, held.index))
        elif how == "interrupted":
            hand.failed.append(Failure(held.segment, held.index, "its worker was stopped before it was done"))
        self._closed(hand)

    def _give_back(self, hand: Hand, segment: str, index: int) -> None:
        hand.back.append((segment, index))
        self._closed(hand)

    def _closed(self, hand: Hand) -> None:
        hand.open -= 1
        if hand.id in self._hands and hand.id not in self._changed:
            self._changed.add(hand.id)
            self._report_due.set()

    # Reporting

    async def _report_on(self) -> None:
        """Gather outcomes for a moment, and send them; several reports may be under way."""
        while True:
            await self._wait_for_outcomes()
            task = asyncio.get_running_loop().create_task(self._send(*self._collect()))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            if len(self._settling) >= _REPORTS_AT_ONCE:
                await asyncio.wait(list(self._settling), return_when=asyncio.FIRST_COMPLETED)
            if self._lost_in_a_row:
                # A store that refuses at once would else be asked again and again, without a pause.
                await self.clock.sleep(min(5.0, 0.1 * 2.0 ** min(self._lost_in_a_row, 6)))

    async def _wait_for_outcomes(self) -> None:
        while not self._rejoin:
            if self._changed:
                await self.clock.sleep(self._report_within())
                return
            silent = self._settings.presence if self._hands else self._idle_presence
            if self._last_sent is not None:
                silent -= self.clock.read().follower_elapsed(self._last_sent)
            if silent <= 0 or any(self._runs_out(hand) for hand in self._hands.values()):
                return
            self._return_unbegun()
            if self._changed:
                continue
            shortest = min((hand.visibility for hand in self._hands.values()), default=40.0)
            await either(self._report_due, min(silent, shortest / 8))
            self._report_due.clear()

    def _return_unbegun(self) -> None:
        """What will not be begun in time is given back while that can still be reported in time."""
        if self._auto_extend:
            return
        short = {hand.id for hand in self._hands.values() if hand.remaining() < hand.visibility / 8}
        if not short or not any(group[0].hand.id in short for group in self._ready):
            return
        kept: list[list[HeldMessage]] = []
        for group in self._ready:
            if group[0].hand.id not in short or group[0].settled:
                kept.append(group)
                continue
            self._ready_messages -= len(group)
            for held in group:
                self._finish(held, "back")
        self._ready.clear()
        self._ready.extend(kept)

    def _report_within(self) -> float:
        """With nothing left to do, the leader should know soon, if it can give more only then."""
        if self._ready_messages or self._running:
            return REPORT_WITHIN
        held = sum(hand.total for hand in self._hands.values())
        waits = (
            2 * held >= self._experience.capacity
            or self._settings.max_in_flight
            or any(self._hands[id].keyed for id in self._changed if id in self._hands)
        )
        return _SOON if waits else REPORT_WITHIN_IDLE

    def _runs_out(self, hand: Hand) -> bool:
        """Is it time to ask for more time?"""
        if not self._auto_extend or not hand.open or hand.lost or hand.settled_first:
            return False
        return hand.extend_asked is None and hand.remaining() < hand.visibility / 2

    def _collect(self, leaving: bool = False) -> tuple[WorkerNote, list[tuple[Hand, Outcome]]]:
        """Everything that there is to report, as one note."""
        self._changed.intersection_update(self._hands)
        reported: list[tuple[Hand, Outcome]] = []
        now, size = self.clock.read(), 0
        for hand in list(self._hands.values()):
            if hand.extend_asked is not None and now.leader_elapsed(hand.extend_asked) > hand.visibility / 4:
                hand.extend_asked = None  # no answer came: ask again
            asked = hand.extending is not None and not hand.extending.done()
            if asked and hand.remaining() <= 0:
                self._refuse_extension(hand)
                asked = False
            wanted = self._runs_out(hand) or (asked and hand.extend_asked is None)
            if wanted:
                hand.extend_asked = now
            if (wanted or hand.id in self._changed) and size < _NOTE_BYTES:
                self._changed.discard(hand.id)
                outcome = self._outcome(hand, wanted)
                size += size_of(outcome)
                reported.append((hand, outcome))
        if self._changed:
            self._report_due.set()  # the rest goes into the next one
        since = self.tail.position if self._rejoin else 0
        held = [*self._hands, *self._unsettled] if self._rejoin else []
        self._rejoin = False
        self._last_sent = now
        outcomes = [outcome for _, outcome in reported]
        capacity = 0 if leaving else self._now_capacity()
        return WorkerNote(self.uid, self._name, capacity, leaving, since, held, outcomes), reported

    def _outcome(self, hand: Hand, extend: bool) -> Outcome:
        done, failed, back = hand.done, hand.failed[:_FAILURES], hand.back
        hand.done, hand.failed, hand.back = [], hand.failed[_FAILURES:], []
        if hand.failed:
            self._changed.add(hand.id)
        elif hand.open <= 0:
            del self._hands[hand.id]
            self._refuse_extension(hand)
        if len(done) == hand.total:
            return Outcome(hand.id, all_done=True)
        return Outcome(hand.id, False, pieces_of(done), failed, pieces_of(back), extend)

    def _now_capacity(self) -> int:
        """How much it can hold."""
        if self._draining or self.clock.read().leader_elapsed(self._polled) > _DEAF_AFTER + 3 * self._idle_poll:
            return 0  # who cannot see its tickets asks for none
        if self._prefetch is not None:
            return max(0, self._prefetch - self._settled)
        capacity = self._experience.learn(self.clock.read())
        return max(0, capacity - self._settled)  # what is settled is in hand, though the leader counts it as done

    async def _send(self, note: WorkerNote, reported: list[tuple[Hand, Outcome]]) -> None:
        for hand, _ in reported:
            self._unsettled[hand.id] += 1
        try:
            while self._producer.is_full:
                await self._producer.room()
            await self._producer.submit(note, 200 + sum(map(size_of, note.outcomes)))
        except TenureError as error:
            # The tickets lapse, and their messages are handled again.
            self.counts["reports_lost"] += 1
            self._lost_in_a_row += 1
            text = "what became of some messages could not be reported, and they will come again: %s"
            self._seldom.warning(self.clock.read(), text, error)
            self._begin_anew()
            return
        finally:
            for hand, _ in reported:
                self._unsettled[hand.id] -= 1
                if not self._unsettled[hand.id]:
                    del self._unsettled[hand.id]
        self.counts["reports"] += 1
        self._lost_in_a_row = 0
        if reported:
            now = self.clock.read()
            if now.leader_elapsed(self._last_activity) >= _LATELY:
                self._poll_now.set()  # its pauses may have become long, and the leader may have more, or an answer
            self._last_activity = now
        for hand, outcome in reported:
            if hand.remaining() <= 0:
                self.counts["late"] += 1
            elif self._on_acked is not None:
                self._on_acked(hand, outcome)

    def _refuse_extension(self, hand: Hand) -> None:
        if hand.extending is not None and not hand.extending.done():
            hand.extending.set_exception(ticket_lost(hand))
            hand.extending.exception()

    async def extend(self, hand: Hand) -> None:
        if hand.remaining() <= 0 or hand.id not in self._hands:
            raise ticket_lost(hand)
        if hand.extending is None or hand.extending.done():
            hand.extending = asyncio.get_running_loop().create_future()
            hand.extend_asked = None
            self._changed.add(hand.id)
            self._report_due.set()
        await asyncio.shield(hand.extending)

    def shut_down(self) -> None:
        """Once it has stopped."""
        self._caller.close()

    @property
    def holding(self) -> int:
        """Messages in hand without an outcome."""
        return sum(hand.open for hand in self._hands.values())


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def _id(held: Held) -> str:
    return f"{held.uid}-{held.number}-{held.index}"
