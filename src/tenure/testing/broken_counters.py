"""Broken builds of counters: each is a patch to a production class, and the judge must catch it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tenure.database import counted as counted_module
from tenure.database import expiry as expiry_module
from tenure.database import resource as resource_module
from tenure.database import writing as writing_module
from tenure.database.counted import COUNTERS, Counted, with_counted
from tenure.database.ids import key_of
from tenure.database.records import Envelope, encode
from tenure.database.resource import Resource
from tenure.database.writing import Found
from tenure.database.writing import Written as RecordWritten
from tenure.errors import RecordConflict, WriteUnknown
from tenure.ledger import Item, LedgerTerm, Poison, Receipt, Stamp
from tenure.plugins.counters import calls as calls_module
from tenure.plugins.counters import consistent as consistent_module
from tenure.plugins.counters import looking as looking_module
from tenure.plugins.counters import plugin as plugin_module
from tenure.plugins.counters import rounds as rounds_module
from tenure.plugins.counters.applying import Applied, Applier
from tenure.plugins.counters.calls import Calls
from tenure.plugins.counters.cell import Cell
from tenure.plugins.counters.clerk import CountersClerk
from tenure.plugins.counters.group import Group
from tenure.plugins.counters.history import recorded
from tenure.plugins.counters.pages import PageBook
from tenure.plugins.counters.plugin import EventualConsistencyPlugin
from tenure.plugins.counters.records import Sealed, Work
from tenure.plugins.counters.rounds import Rounds
from tenure.plugins.counters.state import CountersMachine, Offer, Waiting
from tenure.plugins.counters.totals import CountedShape, Key, Written
from tenure.store import Applied as Landed
from tenure.store import Attempt, Rejected
from tenure.testing.broken import Patch, Variant
from tenure.testing.broken_ttl import log_is_not_trimmed, unknown_end_is_lost, unknown_update_is_lost


def _counted(reserved: dict[str, Any], name: str) -> Counted:
    counted: Counted = msgspec.convert(reserved[COUNTERS][name], Counted)
    return counted


def _mark_after_apply() -> list[Patch]:
    """As two writes: a crash, or another leader, comes in between."""
    write = Applier._write

    async def twice(self: Applier, id: str, found: Found | None, change: Written) -> bool:
        counted = _counted(change.reserved, self._name)
        former = 0
        if found is not None and self._name in found.envelope.reserved.get(COUNTERS, {}):
            former = _counted(found.envelope.reserved, self._name).through
        unmarked = with_counted(change.reserved, self._name, msgspec.structs.replace(counted, through=former))
        if not await write(self, id, found, msgspec.structs.replace(change, reserved=unmarked)):
            return False
        self._remembered.pop(id, None)
        again = await self._resource.find(id)
        return again is not None and await write(self, id, again, change)

    return [(Applier, "_write", twice)]


def _watermark_in_memory() -> list[Patch]:
    """Each leader knows what it has applied itself, and from the log what others said."""
    marks: dict[tuple[int, str], int] = {}

    async def apply(self: Applier, machine: CountersMachine, id: str, offers: list[Offer]) -> Applied | None:
        fresh = [offer for offer in offers if offer.number > marks.get((_of(self), id), 0)]
        if not offers:
            return None
        if fresh:
            await self._change(id, lambda key: key.applied(fresh, machine.counters, machine.ledger))
            marks[_of(self), id] = fresh[-1].number
        return Applied(id, offers[-1].number, bool(fresh))

    complete = Key._with

    def unmarked(self: Key, *arguments: Any) -> Written:
        written = complete(self, *arguments)
        counted = msgspec.structs.replace(_counted(written.reserved, self._name), through=0)
        return msgspec.structs.replace(written, reserved=with_counted(written.reserved, self._name, counted))

    numbers: dict[int, Applier] = {}

    def _of(applier: Applier) -> int:
        numbers[id(applier)] = applier  # kept, so that no other has its number
        return id(applier)

    return [(Applier, "apply", apply), (Key, "_with", unmarked)]


def _watermark_lost() -> list[Patch]:
    ended, still_counted = expiry_module.ended, counted_module.still_counted
    lost: list[dict[str, Any]] = []

    def forgetful(reserved: dict[str, Any]) -> dict[str, Any]:
        kept = ended({name: value for name, value in reserved.items() if name != COUNTERS})
        lost[:] = [kept]
        return kept

    def carry(former: dict[str, Any], reserved: dict[str, Any]) -> dict[str, Any]:
        return reserved if lost and reserved is lost[0] else still_counted(former, reserved)

    return [(resource_module, "ended", forgetful), (resource_module, "still_counted", carry)]


def _applied_before_written() -> list[Patch]:
    one = Rounds._one

    async def hasty(self: Rounds, id: str, offers: list[Offer], done: dict[str, int]) -> None:
        if offers:
            self._clerk.applied(id, offers[-1].number)
            self._stir()
        await one(self, id, offers, done)

    return [(Rounds, "_one", hasty)]


def _applies_unwritten() -> list[Patch]:
    async def at_once(self: CountersClerk) -> CountersMachine:
        return self.machine

    return [(CountersClerk, "written", at_once)]


async def _sent_once(resource: Resource[Any], found: Found, **changes: Any) -> tuple[Any, Envelope]:
    """A swap of which nobody finds out what became of it."""

    def draft(write_id: str) -> Envelope:
        return found.envelope.followed_by(write_id, resource._now(), **changes)

    drafts = writing_module._Drafts(draft)
    outcome = await resource._writer._send(Attempt(key_of(resource.name, found.envelope.id), found.version), drafts)
    return outcome, drafts.last


def _unknown_is_counted() -> list[Patch]:
    async def hopeful(self: Resource[Any], found: Found, **changes: Any) -> RecordWritten | None:
        outcome, envelope = await _sent_once(self, found, **changes)
        if isinstance(outcome, Rejected):
            return None
        return RecordWritten(envelope, outcome.version if isinstance(outcome, Landed) else None)

    return [(Resource, "swap", hopeful)]


def _counts_unknown_again() -> list[Patch]:
    """After a swap without an answer the amounts are added to whatever total is there."""

    async def raw(self: Resource[Any], found: Found, **changes: Any) -> RecordWritten | None:
        outcome, envelope = await _sent_once(self, found, **changes)
        if isinstance(outcome, Landed):
            return RecordWritten(envelope, outcome.version)
        if isinstance(outcome, Rejected):
            return None
        raise WriteUnknown("no answer")

    async def change(self: Applier, id: str, change: Callable[[Key], Written | None], **options: Any) -> Written | None:
        found = self._remembered.pop(id, None)
        again = False
        while True:
            found = found if found is not None else await self._resource.find(id)
            key = Key(found.envelope if found is not None else None, self._name, **options)
            if again:
                key.through = lambda ledger: 0  # type: ignore[method-assign]
            written = change(key)
            if written is None:
                return None
            self._ensure()
            try:
                if await self._write(id, found, written):
                    return written
            except WriteUnknown:
                again = True
            found = None

    return [(Resource, "swap", raw), (Applier, "_change", change)]


def _blind_write() -> list[Patch]:
    async def put(self: Resource[Any], found: Found, **changes: Any) -> RecordWritten:
        envelope = found.envelope.followed_by(self._draw_id(), self._now(), **changes)
        version = await self._store.put(key_of(self.name, envelope.id), encode(envelope))
        return RecordWritten(envelope, version)

    return [(Resource, "swap", put)]


def _record_first() -> list[Patch]:
    consistent_totals = consistent_module.consistent_totals

    async def hasty(store: Any, view: Any, resource: Resource[Any], *arguments: Any, shelf: Any) -> Any:
        read = await _Read.of(resource, arguments[1])
        return await consistent_totals(store, view, read, *arguments, shelf=shelf)  # type: ignore[arg-type]

    return [(plugin_module, "consistent_totals", hasty)]


class _Read:
    """A record as it was read before anything else."""

    def __init__(self, found: Found | None) -> None:
        self._found = found

    @classmethod
    async def of(cls, resource: Resource[Any], id: str) -> _Read:
        return cls(await resource.find(id))

    async def find(self, id: str) -> Found | None:
        return self._found


def _without_inbox() -> list[Patch]:
    async def nothing(store: Any, shelf: Any, id: str) -> list[Any]:
        return []

    return [(consistent_module, "_unfolded", nothing)]


def _inbox_last() -> list[Patch]:
    """Amounts that are folded between the two looks are in neither."""
    totals = consistent_module.consistent_totals

    async def hasty(store: Any, view: Any, *arguments: Any, shelf: Any) -> Any:
        state = await view.refresh()
        return await totals(store, _Stale(state), *arguments, shelf=shelf)  # type: ignore[arg-type]

    return [(plugin_module, "consistent_totals", hasty)]


class _Stale:
    """A view of the log as it was."""

    def __init__(self, state: Any) -> None:
        self._state = state

    async def refresh(self, *options: Any) -> Any:
        return self._state


def _counts_folded() -> list[Patch]:
    """What is in the inbox is added, whether or not the log has it."""
    unfolded = consistent_module._unfolded

    async def nameless(store: Any, shelf: Any, id: str) -> list[Any]:
        found = await unfolded(store, shelf, id)
        return [(msgspec.structs.replace(name, number=2**31), *rest) for name, *rest in found]

    return [(consistent_module, "_unfolded", nameless)]


def _rest_offered_early() -> list[Patch]:
    return [(CountersMachine, "offered", CountersMachine.unapplied)]


def _puts_offered_together() -> list[Patch]:
    """What was offered under one number is put together with more, and offered under another."""
    wait = CountersMachine._wait

    def greedy(self: CountersMachine, id: str, field: str, cell: Cell, stamp: Stamp) -> None:
        waiting: Waiting | None = self.waiting.get(id)
        if waiting is None or waiting.offered[-1].number == stamp.seq:
            wait(self, id, field, cell, stamp)
            return
        newest = waiting.offered[-1]
        newest.number = stamp.seq
        if (known := newest.cells.get(field)) is not None:
            known.followed_by(self.counters[field], cell)
        else:
            newest.cells[field] = cell

    def same_entry(self: CountersMachine, id: str, field: str, cell: Cell, stamp: Stamp) -> None:
        waiting = self.waiting.get(id)
        if waiting is not None and waiting.offered[-1].number == stamp.seq and field in waiting.offered[-1].cells:
            waiting.offered[-1].cells[field].followed_by(self.counters[field], cell)
            return
        greedy(self, id, field, cell, stamp)

    return [(CountersMachine, "_wait", same_entry)]


def _forgets_op_ids() -> list[Patch]:
    enact = CountersMachine.enact

    def forgetful(self: CountersMachine, work: Work, stamp: Stamp) -> None:
        enact(self, msgspec.structs.replace(work, ops=[]), stamp)

    return [(CountersMachine, "enact", forgetful)]


def _returns_before_written() -> list[Patch]:
    durable = Group.durable

    async def hopeful(self: Group) -> Receipt:
        return await durable(self) if self.urgent else Receipt("", 0, 0)

    return [(Group, "durable", hopeful)]


def _set_by_clock() -> list[Patch]:
    """Of two sets the one counts whose process's wall clock says that it was later."""
    give, fold = EventualConsistencyPlugin.set, CountersClerk._fold
    stamped: dict[tuple[str, str, Any], int] = {}
    newest: dict[tuple[str, str], int] = {}

    async def stamp(self: EventualConsistencyPlugin, id: str, field: str, value: Any, **options: Any) -> None:
        host: Any = self._attached()
        stamped.setdefault((id, field, value), host.clock.read().wall_ns)
        await give(self, id, field, value, **options)

    def by_clock(self: CountersClerk, items: Sequence[Item], work: Work) -> None:
        for item in items:
            rows = [(field, id, cell) for field, cells in item.content.rows.items() for id, cell in cells.items()]
            for field, id, cell in [*rows, *((field, id, cell) for _, field, id, cell in item.content.ops)]:
                at = stamped.get((id, field, cell.base))
                if cell.base is None or at is None:
                    continue
                if at < newest.get((id, field), at):
                    cell.base = None
                else:
                    newest[id, field] = at
        fold(self, items, work)

    return [(EventualConsistencyPlugin, "set", stamp), (CountersClerk, "_fold", by_clock)]


def _pages_overwrite() -> list[Patch]:
    """Of two pages that are put together, a record's cells in the older one are lost."""

    async def merged(self: PageBook, pages: Sequence[Any], counters: Any) -> Any:
        whole: dict[str, Any] = {}
        for page in pages:
            whole |= {id: cells async for id, cells in self.rows(page)}
        for row in sorted(whole.items()):
            yield row

    return [(PageBook, "_merged", merged)]


def _seals_without_page() -> list[Patch]:
    """What was sealed is gone when the page of the next hour is written."""

    def write(self: PageBook, sealed: Sealed) -> Any:
        rows = {field: dict(list(cells.items())[:1]) for field, cells in sealed.rows.items()}
        return original(self, msgspec.structs.replace(sealed, rows=rows))

    original = PageBook.write
    return [(PageBook, "write", write)]


def _answers_when_folded() -> list[Patch]:
    """Whoever asks is answered as soon as everything is folded."""

    def hasty(self: CountersMachine, through: int, id: str = "") -> bool:
        return True

    return [(CountersMachine, "is_consolidated", hasty)]


def _counted_fields_alone() -> list[Patch]:
    complete = Key._with

    def bare(self: Key, totals: Any, *arguments: Any) -> Written:
        written = complete(self, totals, *arguments)
        shown = {field.partition(".")[0] for field in totals}
        return msgspec.structs.replace(written, data={name: written.data[name] for name in shown & written.data.keys()})

    return [(Key, "_with", bare)]


def _folded_totals_alone() -> list[Patch]:
    complete = Key._with

    def forgetful(self: Key, totals: Any, *arguments: Any) -> Written:
        written = complete(self, totals, *arguments)
        counted = _counted(written.reserved, self._name)
        fresh = {field: total for field, total in counted.totals.items() if field in totals}
        reserved = with_counted(written.reserved, self._name, msgspec.structs.replace(counted, totals=fresh))
        return msgspec.structs.replace(written, reserved=reserved)

    return [(Key, "_with", forgetful)]


def _totals_not_shown() -> list[Patch]:
    complete = Key._with

    def silent(self: Key, *arguments: Any) -> Written:
        written = complete(self, *arguments)
        return msgspec.structs.replace(written, data=dict(self._envelope.data) if self._envelope is not None else {})

    return [(Key, "_with", silent)]


def _unshaped() -> list[Patch]:
    return [(CountedShape, "shaped", lambda self, id, base, data: data)]


def _former_fields_stay() -> list[Patch]:
    shaped = CountedShape.shaped

    def stubborn(self: CountedShape, id: str, base: Any, data: dict[str, Any]) -> dict[str, Any]:
        former = base.data if base is not None and not base.deleted else {}
        return shaped(self, id, base, {**data, **former})

    return [(CountedShape, "shaped", stubborn)]


def _rest_is_dropped() -> list[Patch]:
    applied = CountersMachine._applied

    def forgetful(self: CountersMachine, id: str, number: int) -> None:
        waiting: Waiting | None = self.waiting.get(id)
        if waiting is not None and waiting.offered[-1].number <= number:
            waiting.rest = None
        applied(self, id, number)

    return [(CountersMachine, "_applied", forgetful)]


def _keeps_the_inbox() -> list[Patch]:
    async def forget(self: LedgerTerm) -> None:
        self._doomed = []

    return [(LedgerTerm, "_delete", forget)]


def _remembers_looks() -> list[Patch]:
    get = EventualConsistencyPlugin.get

    async def remembered(self: EventualConsistencyPlugin, id: str, field: Any = None, **options: Any) -> Any:
        if field is not None or options.get("consistent"):
            return await get(self, id, field, **options)
        looks = vars(self).setdefault("looks", {})
        if id not in looks:
            looks[id] = await get(self, id)
        return looks[id]

    return [(EventualConsistencyPlugin, "get", remembered)]


def _recalculates_from_pages() -> list[Patch]:
    async def filed(book: PageBook, machine: CountersMachine, id: str) -> Any:
        pages = copy.copy(machine)
        pages.tally = {}
        return await recorded(book, pages, id)

    return [(rounds_module, "recorded", filed)]


def _top_without_subs() -> list[Patch]:
    return [(looking_module, "_worth", lambda counter, cell: cell.added)]


def _rejects_new_fields() -> list[Patch]:
    read = CountersClerk.read

    def strict(self: CountersClerk, name: Any, body: bytes) -> Any:
        place, letter = read(self, name, body)
        if self.machine.counters and (unknown := letter.counters.keys() - self.machine.counters.keys()):
            raise Poison(f"the log does not say how {sorted(unknown)} are counted")
        return place, letter

    return [(CountersClerk, "read", strict)]


def _removes_counted() -> list[Patch]:
    remove = Resource._remove

    async def careless(self: Resource[Any], id: str, written: RecordWritten) -> None:
        envelope = msgspec.structs.replace(written.envelope, reserved={})
        await remove(self, id, msgspec.structs.replace(written, envelope=envelope))

    return [(Resource, "_remove", careless)]


def _makes_records() -> list[Patch]:
    write = Applier._write

    async def generous(self: Applier, id: str, found: Found | None, change: Written) -> bool:
        if found is not None:
            return await write(self, id, found, change)
        with contextlib.suppress(RecordConflict):
            await self._resource.insert({}, id)
        return False

    return [(Applier, "_write", generous)]


def _synced_when_folded() -> list[Patch]:
    def hasty(self: Calls, wait: Any, seq: int, has_duplicates: bool) -> None:
        wait.folded_at = seq
        calls_module._done(wait)

    return [(Calls, "_is_folded", hasty)]


COUNTERS_VARIANTS = (
    Variant(
        "mark-after-apply",
        "totals are written first, and their watermark in a second write",
        "watermark",
        _mark_after_apply,
    ),
    Variant(
        "watermark-in-memory",
        "what a record holds is known to its leader alone",
        "watermark",
        _watermark_in_memory,
    ),
    Variant("watermark-lost-with-record", "deletion and insertion forget what is counted", "carried", _watermark_lost),
    Variant(
        "applied-before-written", "the log says what a record holds before it does", "applied", _applied_before_written
    ),
    Variant(
        "applies-what-is-not-written",
        "records hold an entry before the log does",
        "watermark",
        _applies_unwritten,
    ),
    Variant("unknown-is-counted", "a swap of totals without an answer counts as done", "applied", _unknown_is_counted),
    Variant(
        "unknown-is-counted-again",
        "after a swap without an answer amounts are added anew",
        "total",
        _counts_unknown_again,
    ),
    Variant("blind-totals", "totals are written over whatever is there by then", "overwritten", _blind_write),
    Variant(
        "record-first",
        "a consistent read looks at the record before the inbox and the log",
        "consistent",
        _record_first,
    ),
    Variant("without-inbox", "a consistent read leaves the inbox out", "consistent", _without_inbox),
    Variant("inbox-last", "a consistent read looks into the log before the inbox", "consistent", _inbox_last),
    Variant("counts-folded-again", "a consistent read adds what was folded as well", "consistent", _counts_folded),
    Variant(
        "rest-offered-early", "what is put together is offered while more may come to it", "total", _rest_offered_early
    ),
    Variant("puts-offered-together", "what was offered is put together with more", "total", _puts_offered_together),
    Variant("forgets-op-ids", "an op_id is not remembered", "total", _forgets_op_ids),
    Variant(
        "returns-before-written", "a call returns before its batch is written", "consistent", _returns_before_written
    ),
    Variant("set-by-clock", "of two sets that with the later wall clock counts", "total", _set_by_clock),
    Variant("pages-overwrite", "pages that are put together keep the newer cells alone", "history", _pages_overwrite),
    Variant("pages-cut-short", "a page of history leaves out most of what was sealed", "history", _seals_without_page),
    Variant(
        "consolidated-when-folded",
        "who waits is answered when all is folded",
        "consolidated",
        _answers_when_folded,
    ),
    Variant(
        "counted-fields-alone",
        "the leader drops the other fields of a record that it counts for",
        "changed",
        _counted_fields_alone,
    ),
    Variant(
        "folded-totals-alone",
        "the leader drops totals for which nothing was folded this time",
        "lost",
        _folded_totals_alone,
    ),
    Variant("totals-not-shown", "a total is not copied into its record", "shown", _totals_not_shown),
    Variant("unshaped-writes", "whoever writes a record may take its totals out of it", "shown", _unshaped),
    Variant("former-fields-stay", "a write of a record keeps what its fields held", "user", _former_fields_stay),
    Variant("rest-is-dropped", "what was put together behind the offers is not offered", "final", _rest_is_dropped),
    Variant("keeps-the-inbox", "what is folded stays in the inbox", "liveness", _keeps_the_inbox),
    Variant("remembers-looks", "a look at a record gives what an earlier one found", "look", _remembers_looks),
    Variant(
        "recalculates-from-pages",
        "totals are worked out without what is in no page yet",
        "recalculated",
        _recalculates_from_pages,
    ),
    Variant("top-without-subs", "the largest amounts leave out what was subtracted", "top", _top_without_subs),
    Variant(
        "rejects-new-fields",
        "a batch with a new field is set aside",
        "rejected",
        _rejects_new_fields,
    ),
    Variant("removes-counted", "a tombstone is removed with what is counted in it", "removed", _removes_counted),
    Variant("makes-records", "an amount for an id without a record inserts one", "resurrected", _makes_records),
    Variant("synced-when-folded", "who waits for the record is answered by the log", "sync", _synced_when_folded),
    Variant(
        "record-end-is-lost",
        "a delete, or an insert after one, without an answer counts as lost to another",
        "told",
        unknown_end_is_lost,
    ),
    Variant(
        "record-update-is-lost",
        "an update without an answer counts as lost to another, and is made again",
        "twice",
        unknown_update_is_lost,
    ),
    Variant("counters-log-grows", "the log is never trimmed", "bounds", log_is_not_trimmed),
)
