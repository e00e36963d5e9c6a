"""A total that misses nothing which was acknowledged before the question, and counts nothing twice.

Three places hold amounts: the inbox, the log, the record; and amounts move on from each to the next while they are
read. So they are read in this order: what moves on meanwhile is met again further on, and told by its name, or by its
number. A record that is ahead of the log as it was read makes us read the log again: what it holds must be known by
name before anything of the inbox is added to it. So does one whose totals are of a log that is not known, while ours
has said nothing yet: it may be ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tenure.database.resource import Resource
from tenure.errors import NotFound, SchemaTooNew, StoreUnavailable
from tenure.ledger import InboxName, LedgerState, Place, Poison, TooNewLetter
from tenure.ledger.config import MAX_INBOX_BYTES
from tenure.ledger.inbox import Letter as Listed
from tenure.ledger.layout import INBOX_NAMES, parse_inbox_key
from tenure.ledger.together import all_of
from tenure.plugins.counters.cell import Cell
from tenure.plugins.counters.fields import Fields
from tenure.plugins.counters.numbers import Number
from tenure.plugins.counters.shelf import Shelf, Shelved
from tenure.plugins.counters.state import CountersMachine
from tenure.plugins.counters.totals import Key
from tenure.plugins.counters.wire import Letter, read_letter
from tenure.plugins.ledgered import LedgerView
from tenure.store import Store, Stored, ours

_AT_ONCE = 32
_ROUNDS = 10


async def consistent_totals(
    store: Store,
    view: LedgerView,
    resource: Resource[Any],
    name: str,
    id: str,
    fields: Fields,
    *,
    shelf: Shelf | None = None,
) -> dict[str, Number | None]:
    """By field. `store` is the ledger's own; `shelf`: what who asks has read of its inbox before."""
    letters = list(_in_order(await _unfolded(store, shelf if shelf is not None else Shelf(), id)))
    other = ""  # a log that is not ours: ours was read after its totals were, and has no name yet
    for _ in range(_ROUNDS):
        under_way = _under_way(await view.refresh(), letters, id, fields)
        found = await resource.find(id)
        key = Key(found.envelope if found is not None else None, name)
        through = key.through(under_way.ledger)
        if not under_way.ledger and key.held is not None and key.held.ledger != other:
            other = key.held.ledger
            continue
        if through > under_way.seq:
            # The log is read as far as what the record holds was folded: beyond that nothing was, there.
            under_way = _under_way(await view.refresh(through), letters, id, fields)
            if under_way.seq > through:
                continue  # another who asks has read on: what was applied since is in neither
        break
    else:
        raise StoreUnavailable(f"record {id!r} was ahead of its log {_ROUNDS} times: ask again")
    totals = {field: key.total(field, counter) for field, counter in fields.items()}
    for number, cells in under_way.waiting:
        if number > through:
            for field, cell in cells.items():
                totals[field] = cell.applied_to(fields[field], totals[field])
    for letter in under_way.letters:
        _add(letter, id, fields, totals, under_way.op_ids)
    return totals


class _UnderWay(msgspec.Struct, frozen=True):
    """What is on its way to one record, as the log has it up to one entry."""

    seq: int
    ledger: str
    waiting: list[tuple[int, dict[str, Cell]]]
    """Folded: by number, and field."""
    letters: list[Letter]
    """Not folded."""
    op_ids: set[str]
    """Those in the letters that were counted before."""


def _under_way(state: LedgerState, letters: list[tuple[InboxName, Letter]], id: str, fields: Fields) -> _UnderWay:
    """A copy: the state goes on with the next one who asks."""
    machine = state.machine
    assert isinstance(machine, CountersMachine)
    waiting = [
        (offer.number, {field: cell.copy() for field, cell in offer.cells.items() if field in fields})
        for offer in machine.unapplied(id)
    ]
    counters = {**fields, **machine.counters}
    rest = [letter for each, letter in letters if not state.producers.is_done(each) and _is_counted(letter, counters)]
    op_ids = {op_id for letter in rest for op_id, *_ in letter.ops if op_id in machine.op_ids}
    return _UnderWay(state.seq, machine.ledger, waiting, rest, op_ids)


def _in_order(letters: Iterable[tuple[InboxName, Place, Letter]]) -> Iterator[tuple[InboxName, Letter]]:
    """Without what a leader will drop: batches that were given up on, and came after one that says so.

    They would be counted after what their producer did later, and a `set` among them would take that away.
    """
    given_up: set[tuple[str, int]] = set()
    for name, place, letter in letters:
        if (name.uid, name.number) not in given_up:
            given_up.update((name.uid, number) for number in place.skipped)
            yield name, letter


def _is_counted(letter: Letter, counters: Fields) -> bool:
    """One that counts otherwise than everybody does is set aside by the leader."""
    return all(counters.get(field, counter) == counter for field, counter in letter.counters.items())


def _add(letter: Letter, id: str, fields: Fields, totals: dict[str, Number | None], seen: set[str]) -> None:
    for field, counter in fields.items():
        cell = letter.rows.get(field, {}).get(id)
        if cell is not None:
            totals[field] = cell.applied_to(counter, totals[field])
    for op_id, field, record, cell in letter.ops:
        if op_id in seen:
            continue
        seen.add(op_id)
        if record == id and field in fields:
            totals[field] = cell.applied_to(fields[field], totals[field])


async def _unfolded(store: Store, shelf: Shelf, id: str) -> list[tuple[InboxName, Place, Letter]]:
    """Everything in the inbox, in the order in which it would be folded; of the rows, those of one record."""
    listed: list[Listed] = []
    async for entry in ours(store, INBOX_NAMES):
        name = parse_inbox_key(entry.key)
        if name is not None and entry.size <= MAX_INBOX_BYTES:  # what is larger is never folded
            listed.append(Listed(name, entry.size, round(entry.modified.timestamp() * 1000)))
    limit = asyncio.Semaphore(_AT_ONCE)

    async def fetch(each: Listed) -> Shelved | None:
        async with limit:
            try:
                stored = await store.get(each.name.key)
            except NotFound:
                return None  # it was folded since: the log has it
        assert isinstance(stored, Stored)
        try:
            found = Shelved(each.size, *read_letter(stored.body))
        except Poison:
            found = Shelved(each.size, Place(0), None)
        except TooNewLetter as error:
            raise SchemaTooNew(f"{each.name.key}: {error}") from None
        shelf.put(each.name, found)
        return found

    listed.sort(key=lambda each: (each.modified_ms, each.name))
    async with shelf.fetching:
        shelf.keep({each.name for each in listed})
        known = {each.name: shelf.find(each.name) for each in listed}
        unread = [each for each in listed if known[each.name] is None]
        known.update(zip((each.name for each in unread), await all_of(map(fetch, unread)), strict=True))
    return [
        (each.name, found.place, _of_record(found.letter, id))
        for each in listed
        if (found := known[each.name]) is not None and found.letter is not None
    ]


def _of_record(letter: Letter, id: str) -> Letter:
    rows = {field: {id: cells[id]} for field, cells in letter.rows.items() if id in cells}
    return msgspec.structs.replace(letter, rows=rows, requests=[], urgent=[])
