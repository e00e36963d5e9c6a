"""The totals of one key, and what amounts make of them. Pure.

A total is what `reserved` says. Where that says nothing of a field yet, the record's own value is what the counting
begins with. What stands in the record is a copy for people who read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tenure.database.counted import Counted, Stored, counted_of, with_counted
from tenure.database.records import Envelope
from tenure.errors import DamagedRecord, InvalidRecord
from tenure.plugins.counters.fields import Fields, value_at, with_value
from tenure.plugins.counters.numbers import Counter, Number
from tenure.plugins.counters.settings import OnDirectWrite
from tenure.plugins.counters.state import Offer


class Written(msgspec.Struct, frozen=True):
    """What a record becomes."""

    data: dict[str, Any]
    reserved: dict[str, Any]
    through: int
    totals: dict[str, Number | None]
    hidden: tuple[str, ...] = ()
    """Fields that are counted, and cannot be shown: something on the way to them is no object."""


class Key:
    """One key of a resource, as counters see it."""

    def __init__(self, envelope: Envelope | None, name: str, *, is_mended: bool = False) -> None:
        """`name`: of the plugin instance. Raises `DamagedRecord`; not if it `is_mended`: what cannot be read is put
        right, and taken for nothing."""
        self._envelope = envelope
        self._name = name
        self._is_mended = is_mended
        held = None if envelope is None else counted_of(envelope.reserved, name)
        if isinstance(held, str) and not is_mended:
            raise self._damaged(held)
        self._is_broken = isinstance(held, str)
        self.held = held if isinstance(held, Counted) else None

    @property
    def is_record(self) -> bool:
        return self._envelope is not None and not self._envelope.deleted

    def through(self, ledger: str) -> int:
        """The watermark: of another ledger it says nothing of this one's numbers."""
        return self.held.through if self.held is not None and self.held.ledger == ledger else 0

    def total(self, field: str, counter: Counter) -> Number | None:
        if self.held is not None and field in self.held.totals:
            found = counter.read(self.held.totals[field])
            if found is None and not self._is_mended:
                raise self._damaged(f"its total of {field!r:.80} is {self.held.totals[field]!r:.80}, no {counter.word}")
            return found
        return self._own(field, counter)

    def _own(self, field: str, counter: Counter) -> Number | None:
        """What stands in the record."""
        found = None
        if self._envelope is not None and not self._envelope.deleted:
            found = counter.read(value_at(self._envelope.data, field))
        return found if found is not None else counter.zero

    def start(self, field: str, counter: Counter, ledger: str) -> Number | None:
        """What the field held before the first amount of this ledger.

        If nothing is kept any more of a record that was counted, what stands in it may be a copy of its total: counting
        began with nothing then, or amounts would be there twice.
        """
        held = self.held
        if held is None:
            return counter.zero
        if held.ledger != ledger:
            return self.total(field, counter)
        return counter.read(held.starts[field]) if field in held.starts else counter.zero

    def applied(self, offers: Iterable[Offer], counters: Mapping[str, Counter], ledger: str) -> Written | None:
        """With everything of the offers that is not in it yet; `None`: all of it is."""
        through = self.through(ledger)
        fresh = [offer for offer in offers if offer.number > through]
        if not fresh:
            return None
        totals: dict[str, Number | None] = {}
        for offer in fresh:
            for field, cell in offer.cells.items():
                counter = counters[field]
                before = totals[field] if field in totals else self.total(field, counter)
                totals[field] = cell.applied_to(counter, before)
        starts = self._starts(ledger)
        for field in totals:
            counter = counters[field]
            is_first = self.held is None or field not in self.held.totals
            if is_first and (start := self._own(field, counter)) is not None and start != counter.zero:
                starts[field] = counter.stored(start)
        return self._with(totals, starts, counters, ledger, fresh[-1].number)

    def put_right(
        self, totals: Mapping[str, Number | None], counters: Mapping[str, Counter], ledger: str, through: int
    ) -> Written:
        """With these totals, of everything up to that number."""
        return self._with(totals, self._starts(ledger), counters, ledger, through)

    def lacks(self, totals: Mapping[str, Number | None], ledger: str) -> bool:
        """Is there no watermark that says that these totals are there, or none that can be read? Whoever comes late
        would count them once more."""
        return self._is_broken or (bool(totals) and (self.held is None or self.held.ledger != ledger))

    def _starts(self, ledger: str) -> dict[str, Stored]:
        """As they are kept: for a new ledger it is what a former one counted."""
        if self.held is None:
            return {}
        return dict(self.held.starts if self.held.ledger == ledger else self.held.totals)

    def _with(
        self,
        totals: Mapping[str, Number | None],
        starts: dict[str, Stored],
        counters: Mapping[str, Counter],
        ledger: str,
        through: int,
    ) -> Written:
        stored = dict(self.held.totals) if self.held is not None else {}
        data = dict(self._envelope.data) if self._envelope is not None and not self._envelope.deleted else {}
        hidden = []
        for field, total in totals.items():
            counter = counters[field]
            if total is None:
                stored.pop(field, None)
                continue
            stored[field] = counter.stored(total)
            if self.is_record:
                shown = with_value(data, field, counter.shown(total))
                if shown is None:
                    hidden.append(field)
                else:
                    data = shown
        counted = Counted(ledger, through, stored, starts)
        reserved = with_counted(self._envelope.reserved if self._envelope is not None else {}, self._name, counted)
        return Written(data, reserved, through, dict(totals), tuple(hidden))

    def _damaged(self, why: str) -> DamagedRecord:
        id = self._envelope.id if self._envelope is not None else ""
        return DamagedRecord(f"record {id!r} is damaged: {why}; recalculate puts it right", resource="", id=id)


class CountedShape:
    """Keeps totals in the data of every write of a resource, and refuses other values for them."""

    def __init__(self, resource: str, name: str, fields: Fields, on_direct_write: OnDirectWrite) -> None:
        self._resource = resource
        self._name = name
        self._fields = fields
        self._policy = on_direct_write

    def shaped(self, id: str, base: Envelope | None, data: dict[str, Any]) -> dict[str, Any]:
        key = Key(base, self._name)
        for field, counter in self._fields.items():
            given = value_at(data, field)
            is_known = key.is_record or (key.held is not None and field in key.held.totals)
            total = key.total(field, counter)
            if not is_known:
                if given is not None and counter.read(given) is None:
                    raise self._invalid(
                        id,
                        f"{field} is {given!r:.80}, and is counted as {counter.kind.value}: begin with such a number, "
                        "or leave the field out",
                    )
                continue
            if given is not None and not (self._is_total(counter, given, total) or self._is_blank(key, counter, given)):
                self._refuse(id, field, given, total)
            if total is not None and (given is not None or self._stands(key, base, field)):
                data = with_value(data, field, counter.shown(total)) or data
        return data

    def _is_total(self, counter: Counter, given: object, total: Number | None) -> bool:
        """Is it the total, or as much of it as is shown?"""
        return counter.read(given) == total or (total is not None and given == counter.shown(total))

    def _is_blank(self, key: Key, counter: Counter, given: object) -> bool:
        """A class whose field begins at zero has no other way to insert a record for a key that was counted before."""
        return not key.is_record and counter.read(given) == counter.zero

    def _stands(self, key: Key, base: Envelope | None, field: str) -> bool:
        """Is there something that the write would take away?"""
        held = key.held is not None and field in key.held.totals
        return held or (base is not None and not base.deleted and value_at(base.data, field) is not None)

    def _refuse(self, id: str, field: str, given: object, total: Number | None) -> None:
        if self._policy is OnDirectWrite.REFUSE:
            raise self._invalid(
                id,
                f"{field} is {given!r:.80}, and it is counted: its total is {total}. Leave the field out (`patch` the "
                f"others), and change it with add, sub or set; or give on_direct_write='keep'",
            )

    def _invalid(self, id: str, why: str) -> InvalidRecord:
        return InvalidRecord(
            f"record {id!r} of {self._resource!r} cannot be stored: {why}", resource=self._resource, id=id
        )
