"""The leader's part of the ledger: it folds amounts, and writes down what was applied, asked for and filed away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo

import msgspec

from tenure.entropy import NewId
from tenure.ledger import InboxName, Item, LogEntry, Place, Poison, Situation
from tenure.plugins.counters.calendar import moment_of
from tenure.plugins.counters.cell import Cell, put_together
from tenure.plugins.counters.fields import MAX_KNOWN, overlapping
from tenure.plugins.counters.numbers import Counter
from tenure.plugins.counters.pages import Merge
from tenure.plugins.counters.records import Answer, Asked, Page, Work
from tenure.plugins.counters.settings import CounterSettings
from tenure.plugins.counters.state import MAX_ASKED, CountersMachine
from tenure.plugins.counters.wire import CONSOLIDATE, RECALCULATE, Letter, read_letter

_log = logging.getLogger("tenure.counters")
SEAL_ROWS = 20_000
"""Records: when so many were counted in an hour, what there is becomes a page."""
EXPIRY_MS = 3_900_000
"""Nobody waits longer than an hour for an answer; the rest is for clocks that differ."""
_MAX_OP_IDS_FORGOTTEN = 100_000
_NOTHING = Work()


class CountersClerk:
    def __init__(
        self,
        settings: CounterSettings,
        *,
        draw_id: NewId,
        on_committed: Callable[[LogEntry], None] = lambda entry: None,
        on_urgent: Callable[[Iterable[str]], None] = lambda ids: None,
    ) -> None:
        self.machine = CountersMachine(settings.retention)
        self._window_ms = round(settings.dedup_window * 1000)
        self._zone: tzinfo = settings.zone
        self._draw_id = draw_id
        self._on_committed = on_committed
        self._on_urgent = on_urgent
        self._seen: dict[str, Counter] = {}
        """How fields are counted, by what was read in this term."""
        self._next = Work()
        """What the next entry says, beside what is in the inbox."""
        self._superfluous: list[str] = []
        """Objects of pages that the next entry replaces ..."""
        self._replaced: list[str] = []
        """... and that the entry does which is on its way."""
        self._is_written = True
        self._written = asyncio.Event()

    async def written(self) -> CountersMachine:
        """The state, once all of it is in the log: to be used before the next `await`.

        While an entry is on its way the state is ahead of the log, and if another leader has that number, it is wrong.
        Nothing of that may reach a record: its watermark would stand for amounts that are folded under another number.
        """
        while not self._is_written:
            await self._written.wait()
        return self.machine

    # What others have to say

    def applied(self, id: str, through: int) -> None:
        self._next.applied[id] = through

    def answers(self, answer: Answer) -> None:
        self._next.answered.append(answer)

    def seal(self) -> None:
        self._next.seal = True

    def paged(self, page: Page) -> None:
        self._next.paged.append(page)

    def merged(self, merge: Merge, page: Page) -> None:
        self._next.merged.append(page)
        self._next.replaced.append([each.number for each in merge.pages])
        kept = {chunk.key for chunk in page.chunks}
        self._superfluous += [chunk.key for each in merge.pages for chunk in each.chunks if chunk.key not in kept]

    @property
    def has_news(self) -> bool:
        """Is there something to write, whatever is in the inbox?"""
        return self._next != _NOTHING

    @property
    def is_asked(self) -> bool:
        """Does a request wait until the inbox was looked through?"""
        return any(not asked.through for asked in self.machine.asked.values())

    # As the ledger asks

    def read(self, name: InboxName, body: bytes) -> tuple[Place, Letter]:
        place, letter = read_letter(body)
        fresh: dict[str, Counter] = {}
        for field, counter in letter.counters.items():
            known = self.machine.counters.get(field) or self._seen.get(field)
            if known is None:
                fresh[field] = counter
            elif known != counter:
                raise Poison(f"it counts {field!r:.80} as {counter.word}, and others as {known.word}")
        if fresh:
            together = {**self.machine.counters, **self._seen, **fresh}
            if len(together) > MAX_KNOWN:
                raise Poison(f"with its fields {len(together):,} would be counted, and at most {MAX_KNOWN:,} can be")
            if (pair := overlapping(together)) is not None:
                raise Poison(f"with it {pair[0]!r:.80} and {pair[1]!r:.80} would be counted: one is inside the other")
            self._seen.update(fresh)
        return place, letter

    async def prepare(self, items: Sequence[Item]) -> None:
        pass

    def decide(self, items: Sequence[Item], situation: Situation) -> bytes | None:
        machine, stamp = self.machine, situation.stamp
        work, self._next = self._next, Work()
        # What is put together while this entry is on its way is for the next one: until then the log names the old.
        self._replaced, self._superfluous = [*self._replaced, *self._superfluous], []
        self._fold(items, work)
        self._ask(items, work, stamp.time_ms)
        self._expire(work, stamp.time_ms)
        if situation.swept_ms is not None and not situation.unread:
            certain_ms = situation.swept_ms - situation.doubt_ms
            work.covered = [
                request for request, asked in machine.asked.items() if not asked.through and asked.at_ms < certain_ms
            ]
        moment = moment_of(stamp.time_ms, self._zone)
        if work.rows:
            work.moment = moment
        if machine.tally and machine.moment is not None:
            work.seal = work.seal or len(machine.tally) >= SEAL_ROWS or moment.hour_ms > machine.moment.hour_ms
        if work == _NOTHING:
            return None
        if not machine.ledger:
            work.ledger = self._draw_id()
        work.forgotten = self._forgotten(stamp.time_ms)
        self._is_written = False
        self._written.clear()
        machine.enact(work, stamp)
        return msgspec.json.encode(work)

    def committed(self, entry: LogEntry, items: Sequence[Item]) -> Sequence[str]:
        self._is_written = True
        self._written.set()
        urgent = [id for item in items for id in item.content.urgent]
        if urgent:
            self._on_urgent(urgent)
        self._on_committed(entry)
        gone, self._replaced = self._replaced, []
        return gone

    # Inside

    def _fold(self, items: Sequence[Item], work: Work) -> None:
        """What is in the inbox, put together: one cell for each counter."""
        counters = self.machine.counters
        fresh: dict[str, Counter] = {}
        whole: dict[str, dict[str, Cell]] = {}
        seen: dict[str, None] = {}

        def take(field: str, counter: Counter, rows: dict[str, Cell]) -> None:
            if field not in counters:
                fresh[field] = counter
            put_together(counter, whole.setdefault(field, {}), rows)

        for item in items:
            letter: Letter = item.content
            for field, rows in letter.rows.items():
                if rows:
                    take(field, letter.counters[field], rows)
            for op_id, field, id, cell in letter.ops:
                if op_id in self.machine.op_ids or op_id in seen:
                    work.duplicates += 1
                    continue
                seen[op_id] = None
                take(field, letter.counters[field], {id: cell})
        work.fields = {field: counter.word for field, counter in fresh.items()}
        work.ops = list(seen)
        work.rows = {field: {id: cell.plain() for id, cell in cells.items()} for field, cells in whole.items() if cells}

    def _ask(self, items: Sequence[Item], work: Work, now_ms: int) -> None:
        for item in items:
            for request in item.content.requests:
                if len(self.machine.asked) + len(work.asked) >= MAX_ASKED:
                    full = f"{MAX_ASKED:,} requests wait, and no more can: ask again later"
                    work.answered.append(Answer(request.request, refused=full))
                elif request.op == CONSOLIDATE or (request.op == RECALCULATE and request.id):
                    work.asked[request.request] = Asked(request.op, request.id, now_ms)
                else:
                    work.answered.append(Answer(request.request, refused=f"{request.op[:64]!r} is not known here"))

    def _expire(self, work: Work, now_ms: int) -> None:
        """What cannot be done, since a record cannot be written, would be tried for ever."""
        answered = {answer.request for answer in work.answered}
        for request, asked in self.machine.asked.items():
            if asked.at_ms >= now_ms - EXPIRY_MS:
                break
            if request not in answered:
                work.answered.append(Answer(request, refused="it was not done within an hour"))

    def _forgotten(self, now_ms: int) -> int:
        """How many of the oldest `op_id`s are past their window."""
        count = 0
        for at_ms in self.machine.op_ids.values():
            if at_ms >= now_ms - self._window_ms or count >= _MAX_OP_IDS_FORGOTTEN:
                break
            count += 1
        return count
