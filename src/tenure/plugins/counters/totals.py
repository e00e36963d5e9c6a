"""The totals of one key, and what amounts make of them. Pure.

A total is what `reserved` says. Where that says nothing of a field yet, the record's own value is what the counting
begins with. What stands in the record is a copy for people who read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tenure.database.counted import Counted, counted_of, with_counted
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

    def __init__(self, envelope: Envelope | None, name: str) -> None:
        """`name`: of the plugin instance. Raises `DamagedRecord`."""
        self._envelope = envelope
        self._name = name
        held = None if envelope is None else counted_of(envelope.reserved, name)
        if isinstance(held, str):
            assert envelope is not None
            raise DamagedRecord(f"record {envelope.id!r} is damaged: {held}", resource="", id=envelope.id)
        self.held = held

    @property
    def is_record(self) -> bool:
        return self._envelope is not None and not self._envelope.deleted

    def through(self, ledger: str) -> int:
        """The watermark: of another ledger it says nothing of this one's numbers."""
        return self.held.through if self.held is not None and self.held.ledger == ledger else 0

    def total(self, field: str, counter: Counter) -> Number | None:
        if self.held is not None and field in self.held.totals:
            found = counter.read(self.held.totals[field])
            return found if found is not None else counter.zero
        return self._own(field, counter)

    def _own(self, field: str, counter: Counter) -> Number | None:
        """What stands in the record."""
        found = None
        if self._envelope is not None and not self._envelope.deleted:
            found = counter.read(value_at(self._envelope.data, field))
        return found if found is not None else counter.zero

    def start(self, field: str, counter: Counter) -> Number | None:
        """What the field held before the first amount."""
        if self.held is not None and field in self.held.starts:
            return counter.read(self.held.starts[field])
        return counter.zero if self.held is not None and field in self.held.totals else self._own(field, counter)

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
        return self.with_totals(totals, counters, ledger, fresh[-1].number)

    def with_totals(
        self, totals: Mapping[str, Number | None], counters: Mapping[str, Counter], ledger: str, through: int
    ) -> Written:
        stored = dict(self.held.totals) if self.held is not None else {}
        starts = dict(self.held.starts) if self.held is not None else {}
        data = dict(self._envelope.data) if self._envelope is not None and not self._envelope.deleted else {}
        hidden = []
        for field, total in totals.items():
            counter = counters[field]
            if field not in stored and (start := self._own(field, counter)) not in (None, counter.zero):
                assert start is not None
                starts[field] = counter.stored(start)
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
                    raise self._invalid(id, f"{field} is {given!r:.80}, and is counted as {counter.kind.value}")
                continue
            if given is not None and counter.read(given) != total and not self._is_blank(key, counter, given):
                self._refuse(id, field, given, total)
            if total is not None and (given is not None or self._stands(key, base, field)):
                data = with_value(data, field, counter.shown(total)) or data
        return data

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
