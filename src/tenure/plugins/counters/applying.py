"""Writing totals to their records: each with its watermark, in one compare-and-swap.

Why it holds. An amount is folded under a number that never changes. A record's totals and the number up to which they
hold everything are one object, and change together, on the version that was read. So it does not matter who applies:
a former leader, this one, or both at once, and after any crash. Who comes second finds the number, and has nothing left
to do.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from tenure.database.resource import Resource
from tenure.database.writing import Found
from tenure.errors import DamagedRecord, RecordConflict, StoreError, WriteUnknown
from tenure.plugins.counters.numbers import Number
from tenure.plugins.counters.state import CountersMachine, Offer
from tenure.plugins.counters.totals import Key, Written

_log = logging.getLogger("tenure.counters")
_TRIES = 8
MAX_REMEMBERED = 10_000
"""Records that were written last: their next write needs no read before it, unless somebody else wrote."""
MAX_REMEMBERED_BYTES = 4096
"""Of a record's data; larger ones are read again."""


class Applied(msgspec.Struct, frozen=True):
    id: str
    through: int
    """What the record holds now; at least what it was to hold."""
    wrote: bool
    hidden: tuple[str, ...] = ()


class Applier:
    """For one term of one leader."""

    def __init__(self, resource: Resource[Any], name: str, ensure: Callable[[], None]) -> None:
        self._resource = resource
        self._name = name
        self._ensure = ensure
        self._remembered: OrderedDict[str, Found] = OrderedDict()
        self.reads = self.writes = 0

    async def apply(self, machine: CountersMachine, id: str, offers: list[Offer]) -> Applied | None:
        """Bring one record up to date with what was offered, all of which is in the log; `None`: nothing was.

        Raises `StoreError` (try again), `DamagedRecord`, and `LeadershipLost`.
        """
        if not offers:
            return None
        ledger, counters = machine.ledger, machine.counters

        def change(key: Key) -> Written | None:
            if (through := key.through(ledger)) > machine.seq:
                self._ensure()  # a later leader's, perhaps
                raise DamagedRecord(
                    f"record {id!r} of {self._resource.name!r} holds amounts up to entry {through} of a log that has "
                    f"{machine.seq}: was an older log put back? Put the newer one back, or amounts are lost",
                    resource=self._resource.name,
                    id=id,
                )
            return key.applied(offers, counters, ledger)

        written = await self._change(id, change)
        return Applied(id, offers[-1].number, written is not None, written.hidden if written is not None else ())

    async def put_right(
        self, machine: CountersMachine, id: str, through: int, expected: Callable[[Key], dict[str, Number | None]]
    ) -> tuple[dict[str, Number | None], dict[str, Number | None]]:
        """Give a record the totals that it should have: those, and what they were where they were not right.

        `expected` are the totals of everything that was folded up to `through`. What of that still waits is passed over
        afterwards by whoever applies it: so the watermark is written also if nothing else differs.
        """
        offers = machine.offered(id)
        offered = offers[-1].number if offers else 0
        former: dict[str, Number | None] = {}
        right: dict[str, Number | None] = {}

        def change(key: Key) -> Written | None:
            right.clear()
            former.clear()
            right.update(expected(key))
            former.update(
                {
                    field: total
                    for field in right
                    if not machine.counters[field].same(
                        total := key.total(field, machine.counters[field]), right[field]
                    )
                }
            )
            is_covered = key.through(machine.ledger) >= offered
            if not former and is_covered and not key.lacks(right, machine.ledger):
                return None
            return key.put_right(right, machine.counters, machine.ledger, through)

        self._remembered.pop(id, None)  # somebody may have changed it by other means
        await self._change(id, change, is_mended=True)
        return right, former

    async def _change(
        self, id: str, change: Callable[[Key], Written | None], *, is_mended: bool = False
    ) -> Written | None:
        """Read, change, swap, until it is done; `None`: there is nothing to change."""
        found = self._remembered.get(id)
        for _ in range(_TRIES):
            if found is None:
                self.reads += 1
                found = await self._resource.find(id)
            written = change(Key(found.envelope if found is not None else None, self._name, is_mended=is_mended))
            if written is None:
                return None
            self._ensure()
            self.writes += 1
            self._remembered.pop(id, None)  # its version is used up, whatever comes of it
            try:
                if await self._write(id, found, written):
                    return written
            except WriteUnknown:
                pass  # the next look tells: the watermark is in what was written, or it is not there
            found = None
        raise RecordConflict(
            f"record {id!r} of {self._resource.name!r} was written by others {_TRIES} times meanwhile: it is tried "
            "again later",
            resource=self._resource.name,
            id=id,
        )

    async def _write(self, id: str, found: Found | None, change: Written) -> bool:
        if found is None:
            return await self._resource.keep(id, change.reserved) is not None
        if found.envelope.deleted:
            written = await self._resource.swap(found, reserved=change.reserved)
        else:
            written = await self._resource.swap(found, data=change.data, reserved=change.reserved)
        if written is None:
            return False
        if written.version is not None and _is_small(change.data):
            self._remember(id, Found(written.envelope, written.version))
        return True

    def _remember(self, id: str, found: Found) -> None:
        self._remembered[id] = found
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)


def _is_small(data: dict[str, Any]) -> bool:
    return len(msgspec.json.encode(data)) <= MAX_REMEMBERED_BYTES


Failures = (StoreError, DamagedRecord, RecordConflict)
"""What applying one record may raise, and no other suffers from."""
