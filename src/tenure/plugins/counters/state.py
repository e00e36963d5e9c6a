"""The state of counters, as a function of their log. Pure: no clock, no store, no randomness.

Totals are not in it: they are with the records. In it is what is folded and not known to be in its record yet, under
the number of the entry that folded it. A record names the number up to which it holds everything (its watermark), in
the same write as its totals. So whoever applies, and however often, counts each number once.

Of one record at most `MAX_OFFERED` numbers are offered to be applied. What is folded beyond that is put together, and
offered, under its highest number, once those before it are applied: nobody can have applied a part of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, overload

import msgspec

from tenure.ledger import Stamp
from tenure.plugins.counters.cell import Cell, cell_from, cells_from
from tenure.plugins.counters.image import Contents, Frame, OfferImage, WaitingImage, joined, shared_out
from tenure.plugins.counters.numbers import Counter, counter_of, plus, written
from tenure.plugins.counters.records import Asked, Level, Moment, Page, Rows, Sealed, Sum, Work, decode_work
from tenure.plugins.counters.settings import Retention
from tenure.plugins.ledgered import image

VERSION = 1
MAX_OFFERED = 32
MAX_ASKED = 10_000
MAX_OP_IDS = 1_000_000

Cells = dict[str, Cell]
"""By field."""


class Offer(msgspec.Struct, gc=False):
    """What an entry, or several of them, gave to one record."""

    number: int
    cells: Cells
    first: int = 0
    """The lowest number that was put together here; 0: there is only one."""

    @property
    def oldest(self) -> int:
        return self.first or self.number


class Waiting(msgspec.Struct, gc=False):
    """Of one record."""

    since_ms: int
    offered: list[Offer]
    rest: Offer | None = None
    """Not offered yet."""


class Totals(msgspec.Struct):
    """Since the beginning."""

    calls: int = 0
    applied: int = 0
    """Records that were written, counted each time."""
    duplicates: int = 0
    """Calls whose `op_id` had been seen."""


class CountersMachine:
    version = VERSION

    def __init__(self, retention: Retention | None = None) -> None:
        self.ledger = ""
        self.counters: dict[str, Counter] = {}
        self.waiting: dict[str, Waiting] = {}
        self.op_ids: OrderedDict[str, int] = OrderedDict()
        """And when they were folded."""
        self.asked: OrderedDict[str, Asked] = OrderedDict()
        self.moment: Moment | None = None
        self.tally: dict[str, dict[str, Cell]] = {}
        """By record and field: what was folded in this hour, and is in no page yet."""
        self.sealed: list[Sealed] = []
        self.pages: list[Page] = []
        """Oldest first."""
        self.sums: dict[Level, OrderedDict[int, dict[str, Sum]]] = {
            level: OrderedDict() for level in (Level.HOUR, Level.DAY, Level.MONTH)
        }
        self.totals = Totals()
        self.seq = 0
        self.time_ms = 0
        self.epoch = 0
        self.retention = retention if retention is not None else Retention()
        """How much of `sums` this process keeps; it changes nothing else."""

    # The ledger's side

    def apply(self, events: bytes, stamp: Stamp) -> None:
        self.enact(decode_work(events), stamp)

    def began(self, stamp: Stamp) -> None:
        self.epoch = stamp.epoch
        self.seq, self.time_ms = stamp.seq, max(self.time_ms, stamp.time_ms)

    def enact(self, work: Work, stamp: Stamp) -> None:
        self.seq, self.time_ms = stamp.seq, max(self.time_ms, stamp.time_ms)
        self.ledger = self.ledger or work.ledger
        for field, word in work.fields.items():
            counter = counter_of(word)
            if counter is None:
                raise ValueError(f"field {field!r:.80} is counted as {word!r:.80}, which is not known here")
            self.counters.setdefault(field, counter)
        for id, number in work.applied.items():
            self._applied(id, number)
        if work.seal:
            self._seal(stamp.seq)
        if work.moment is not None:
            self._move_on(work.moment, stamp.seq)
        for _ in range(min(work.forgotten, len(self.op_ids))):
            self.op_ids.popitem(last=False)
        for op_id in work.ops:
            self.op_ids[op_id] = self.time_ms
        while len(self.op_ids) > MAX_OP_IDS:
            self.op_ids.popitem(last=False)
        self.totals.duplicates += work.duplicates
        self._fold(work.rows, stamp)
        for request, asked in work.asked.items():
            if len(self.asked) < MAX_ASKED:
                self.asked[request] = asked
        for request in work.covered:
            if (found := self.asked.get(request)) is not None:
                self.asked[request] = msgspec.structs.replace(found, through=stamp.seq)
        for answer in work.answered:
            self.asked.pop(answer.request, None)
        self._turn_pages(work)

    # Amounts

    def _fold(self, rows: Rows, stamp: Stamp) -> None:
        for field, cells in rows.items():
            counter = self.counters[field]
            whole = Sum()
            for id, cell in cells_from(counter, cells).items():
                _count(whole, cell)
                self._wait(id, field, cell, stamp)
                tally = self.tally.get(id)
                if tally is None:
                    tally = self.tally[id] = {}
                if (known := tally.get(field)) is not None:
                    known.followed_by(counter, cell)
                else:
                    tally[field] = cell.copy()
            if cells:
                self.totals.calls += whole.adds + whole.subs + whole.sets
                for level in self.sums:
                    _count(self._sum(level, field), whole)

    def _wait(self, id: str, field: str, cell: Cell, stamp: Stamp) -> None:
        waiting = self.waiting.get(id)
        if waiting is None:
            self.waiting[id] = Waiting(stamp.time_ms, [Offer(stamp.seq, {field: cell})])
            return
        if waiting.rest is None:
            newest = waiting.offered[-1]
            if newest.number == stamp.seq:
                newest.cells[field] = cell
                return
            if len(waiting.offered) < MAX_OFFERED:
                waiting.offered.append(Offer(stamp.seq, {field: cell}))
                return
            waiting.rest = Offer(stamp.seq, {field: cell})
            return
        if waiting.rest.number != stamp.seq:
            waiting.rest.first, waiting.rest.number = waiting.rest.oldest, stamp.seq
        if (known := waiting.rest.cells.get(field)) is not None:
            known.followed_by(self.counters[field], cell)
        else:
            waiting.rest.cells[field] = cell

    def _applied(self, id: str, number: int) -> None:
        waiting = self.waiting.get(id)
        if waiting is None:
            return
        self.totals.applied += 1
        waiting.offered = [offer for offer in waiting.offered if offer.number > number]
        if not waiting.offered and waiting.rest is not None:
            waiting.offered, waiting.rest = [waiting.rest], None
            waiting.since_ms = self.time_ms
        if not waiting.offered:
            del self.waiting[id]

    def offered(self, id: str) -> list[Offer]:
        """What may be applied to this record now, oldest first."""
        waiting = self.waiting.get(id)
        return list(waiting.offered) if waiting is not None else []

    def unapplied(self, id: str) -> list[Offer]:
        """Everything that was folded for this record and is not known to be in it, oldest first."""
        waiting = self.waiting.get(id)
        if waiting is None:
            return []
        return [*waiting.offered, *((waiting.rest,) if waiting.rest is not None else ())]

    def is_consolidated(self, through: int, id: str = "") -> bool:
        """Is everything up to this entry known to be in its record?"""
        among: Iterable[Waiting] = self.waiting.values() if not id else filter(None, [self.waiting.get(id)])
        return all(waiting.offered[0].oldest > through for waiting in among)  # the rest is younger

    # History

    def _move_on(self, moment: Moment, seq: int) -> None:
        """Time does not go back in a ledger: who says an earlier hour has an older calendar."""
        if self.moment is not None and moment.hour_ms > self.moment.hour_ms and self.tally:
            self._seal(seq)
        if self.moment is None or moment.hour_ms > self.moment.hour_ms:
            self.moment = moment

    def _seal(self, seq: int) -> None:
        if not self.tally or self.moment is None:
            return
        self.sealed.append(Sealed(seq, self.moment, rows_of(self.tally)))
        self.tally = {}

    def _turn_pages(self, work: Work) -> None:
        for page in work.paged:
            before = len(self.sealed)
            self.sealed = [each for each in self.sealed if each.number != page.number]
            if len(self.sealed) < before:
                self.pages.append(page)
                self.pages.sort(key=lambda each: each.number)
        for page, numbers in zip(work.merged, work.replaced, strict=True):
            gone = set(numbers)
            places = [index for index, each in enumerate(self.pages) if each.number in gone]
            if len(places) != len(gone) or places[-1] - places[0] + 1 != len(places):
                raise ValueError(f"pages {numbers} were merged, and are not all there")
            self.pages[places[0] : places[-1] + 1] = [page]

    def _sum(self, level: Level, field: str) -> Sum:
        assert self.moment is not None
        moment = self.moment
        start = {Level.HOUR: moment.hour_ms, Level.DAY: moment.day_ms, Level.MONTH: moment.month_ms}[level]
        table = self.sums[level]
        row = table.get(start)
        if row is None:
            row = table[start] = {}
            while len(table) > self.retention.of(level):
                table.popitem(last=False)
        if field not in row:
            row[field] = Sum()
        return row[field]

    # Snapshots

    def snapshot(self) -> list[bytes]:
        frame = Frame(
            ledger=self.ledger,
            counters={field: counter.word for field, counter in self.counters.items()},
            moment=self.moment,
            calls=self.totals.calls,
            applied=self.totals.applied,
            duplicates=self.totals.duplicates,
            seq=self.seq,
            time_ms=self.time_ms,
            epoch=self.epoch,
        )
        whole, pieces = shared_out(self.sealed)
        contents = Contents(
            [
                WaitingImage(id, each.since_ms, [_image(offer) for offer in each.offered], _image(each.rest))
                for id, each in self.waiting.items()
            ],
            list(self.op_ids.items()),
            list(self.asked.items()),
            [(id, {field: cell.plain() for field, cell in cells.items()}) for id, cells in self.tally.items()],
            whole,
            self.pages,
            [
                (level, start, {field: _written(sum) for field, sum in row.items()})
                for level, table in self.sums.items()
                for start, row in table.items()
            ],
            pieces,
        )
        return image.encode(frame, contents)

    def restore(self, chunks: Sequence[bytes]) -> None:
        frame, contents = image.decode(chunks, Frame, Contents)
        self.__init__(self.retention)  # type: ignore[misc]
        self.ledger, self.moment = frame.ledger, frame.moment
        self.seq, self.time_ms, self.epoch = frame.seq, frame.time_ms, frame.epoch
        self.totals = Totals(frame.calls, frame.applied, frame.duplicates)
        for field, word in frame.counters.items():
            if (counter := counter_of(word)) is None:
                raise ValueError(f"field {field!r:.80} is counted as {word!r:.80}, which is not known here")
            self.counters[field] = counter
        for waiting in contents.waiting:
            offered = [self._offer(offer) for offer in waiting.offered]
            rest = self._offer(waiting.rest) if waiting.rest is not None else None
            self.waiting[waiting.id] = Waiting(waiting.since_ms, offered, rest)
        self.op_ids = OrderedDict(contents.op_ids)
        self.asked = OrderedDict(contents.asked)
        self.tally = {id: self._cells(cells) for id, cells in contents.tally}
        self.sealed, self.pages = joined([*contents.sealed, *contents.pieces]), contents.pages
        for level, start, row in contents.sums:
            self.sums[level][start] = {field: self._read_sum(field, sum) for field, sum in row.items()}

    def _offer(self, offer: OfferImage) -> Offer:
        return Offer(offer.number, self._cells(offer.cells), offer.first)

    def _cells(self, rows: dict[str, list[Any]]) -> Cells:
        return {field: cell_from(self.counters[field], row) for field, row in rows.items()}

    def _read_sum(self, field: str, sum: Sum) -> Sum:
        """Decimals are text until here."""
        counter = self.counters[field]
        added, subbed = counter.read(sum.added), counter.read(sum.subbed)
        if added is None or subbed is None:
            raise ValueError(f"{sum!r:.200} is no sum of {counter.word}")
        return Sum(sum.adds, added, sum.subs, subbed, sum.sets)


@overload
def _image(offer: Offer) -> OfferImage: ...
@overload
def _image(offer: None) -> None: ...
@overload
def _image(offer: Offer | None) -> OfferImage | None: ...
def _image(offer: Offer | None) -> OfferImage | None:
    if offer is None:
        return None
    return OfferImage(offer.number, {field: cell.plain() for field, cell in offer.cells.items()}, offer.first)


def rows_of(tally: dict[str, dict[str, Cell]]) -> Rows:
    """By field, as they are written."""
    rows: Rows = {}
    for id, cells in tally.items():
        for field, cell in cells.items():
            rows.setdefault(field, {})[id] = cell.plain()
    return rows


def _written(sum: Sum) -> Sum:
    return Sum(sum.adds, written(sum.added), sum.subs, written(sum.subbed), sum.sets)


def _count(sum: Sum, more: Cell | Sum) -> None:
    sum.adds += more.adds
    sum.subs += more.subs
    sum.sets += more.sets
    if more.adds:
        sum.added = plus(sum.added, more.added)
    if more.subs:
        sum.subbed = plus(sum.subbed, more.subbed)
