"""The index entry before the record: what every write of a resource has to pass.

Why it holds. A record that expires names the entry that leads to it. The entry was durable before that record was sent,
and serves one write that can land once. It is deleted when a later write, or the leader's, has replaced a record that
names it (then no write that names it can ever land: each was made for a version that is gone), or, if no record names
it, when it is older than the quarantine. A write that keeps the name of the record which it replaces needs no entry of
its own: that record is there until the write lands, so that its entry is. Every other write is sent within a quarter of
the quarantine after its entry was, so that it has the rest of it to land.
"""

from __future__ import annotations

import math
from typing import Any

from tenure.clock import Clock
from tenure.database.expiry import NONE, Expiry, expiry_of, with_expiry
from tenure.database.guarding import Outdated
from tenure.database.records import Envelope
from tenure.database.time import StoreTime
from tenure.errors import InvalidRecord, WriteUnknown
from tenure.plugins.ttl.index import Indexed, IndexWriter, slot_in, slot_of
from tenure.plugins.ttl.rules import BadTime, Now, Rules, Wish

SENT_WITHIN = 0.25
"""Of the quarantine: a record is sent so soon after its entry ..."""
HEARD_WITHIN = 0.5
"""... and if its answer took longer than this, the entry may be gone, and it is written anew."""


class TTLGuard:
    """Of one resource in one process."""

    def __init__(self, resource: str, rules: Rules, index: IndexWriter, *, time: StoreTime, clock: Clock) -> None:
        self.resource = resource
        self.rules = rules
        self.index = index
        self.clock = clock
        self.is_retired = False
        self._time = time

    def check(self, id: str, data: dict[str, Any]) -> None:
        if self.rules.by_field:
            self.at_by_field(id, data)

    def at_by_field(self, id: str, data: dict[str, Any]) -> int | None:
        try:
            return self.rules.at_by_field(data)
        except BadTime as error:
            raise InvalidRecord(
                f"record {id!r} of {self.resource!r} cannot be stored: {error}", resource=self.resource, id=id
            ) from None

    def cover(
        self,
        id: str,
        *,
        wish: Wish = Wish.NOTHING,
        ttl_ms: int | None = None,
        at_ms: int | None = None,
        anew: bool = False,
    ) -> TTLCover:
        """`at_ms`: for a record that has no time yet. `anew`: write an entry also if the record names one."""
        return TTLCover(self, id, wish, ttl_ms, at_ms, anew)

    async def now(self) -> Now:
        now = await self._time.now()
        return Now(int(now * 1000), math.ceil(self._time.uncertainty * 1000) + 1)


class TTLCover:
    """See `tenure.database.guarding.Cover`."""

    def __init__(self, guard: TTLGuard, id: str, wish: Wish, ttl_ms: int | None, at_ms: int | None, anew: bool) -> None:
        self._guard = guard
        self._id = id
        self._wish = wish
        self._ttl_ms = ttl_ms
        self._given_ms = at_ms
        self._anew = anew
        self._chosen_ms: int | None = None
        """Counted from the first attempt of the call, for all of them."""
        self.at_ms: int | None = None
        """When the record expires that was written, or that the last attempt was to write."""
        self._entry: Indexed | None = None
        """Written for this call, and not named by anything that has landed."""
        self._needs_entry = False
        self._landed: Indexed | None = None
        self._former = self._name = ""
        """The entry that the record names which is replaced, and the one that its successor names."""
        self._copies = 0
        self._undecided = False

    async def prepare(
        self, base: Envelope | None, data: dict[str, Any] | None, reserved: dict[str, Any]
    ) -> dict[str, Any]:
        held = self._held(base)
        if self._entry is not None and held.entry == self._entry.stem:
            self._landed, self._entry = self._entry, None  # an attempt that was said to be lost has landed after all
        self._former, self._name, self._needs_entry, self._copies = held.entry, "", False, 0
        if data is None:
            return reserved
        kept = expiry_of(reserved)
        if isinstance(kept, str):
            if not self._guard.rules.by_field and self._wish is Wish.NOTHING:
                return reserved  # when it expires cannot be read, and is not decided here
            kept = NONE
        pending = kept.pending
        is_new = base is None or base.deleted
        at_ms, keep = await self._at(is_new, data, held)
        self.at_ms = at_ms
        if at_ms is None:
            return with_expiry(reserved, Expiry(keep=keep, pending=pending))
        self._name = held.entry if self._may_keep(held, at_ms) else (await self._indexed(at_ms)).stem
        return with_expiry(reserved, Expiry(at_ms, self._name, pending=pending))

    def sending(self) -> None:
        if self._needs_entry and not self._is_fresh(SENT_WITHIN):
            if not self._copies:
                raise Outdated
            raise WriteUnknown(
                f"the write of record {self._id!r} got no decisive answer, and may not be sent again so long after its "
                "index entry was written: read the record to see",
                record_id=self._id,
            )
        self._copies += 1
        self._undecided = True

    def decided(self, applied: bool) -> None:
        self._undecided, self._copies = False, 0
        if not applied:
            return
        if self._needs_entry:
            self._landed, self._entry = self._entry, None
        if self._former and self._former != self._name:
            self._guard.index.spend(self._former, self._id)

    def renewal(self) -> TTLCover | None:
        if self._landed is None or self._age(self._landed) <= HEARD_WITHIN * self._guard.rules.settings.quarantine:
            return None
        return self._guard.cover(self._id, anew=True)

    def close(self) -> None:
        entry, self._entry = self._entry, None
        if entry is not None and not self._undecided:
            self._guard.index.spend(entry.stem, self._id)

    def _held(self, base: Envelope | None) -> Expiry:
        """What is kept with the record that is replaced; a tombstone, or damage, keeps nothing that counts."""
        if base is None or base.deleted:
            return NONE
        held = expiry_of(base.reserved)
        return NONE if isinstance(held, str) else held

    async def _at(self, is_new: bool, data: dict[str, Any], held: Expiry) -> tuple[int | None, bool]:
        """When it expires, and whether it was said that it does not."""
        rules = self._guard.rules
        if rules.by_field:
            return self._guard.at_by_field(self._id, data), False
        if self._wish is Wish.PERSIST:
            return None, True
        if rules.is_soft_deleted(data):
            return None, False
        if is_new or self._wish is Wish.TOUCH:
            if self._chosen_ms is None:
                self._chosen_ms = rules.from_now(await self._guard.now(), self._ttl_ms)
            return self._chosen_ms, False
        if held.at is None and not held.keep and self._given_ms is not None:
            return self._given_ms, False
        return held.at, held.keep

    def _may_keep(self, held: Expiry, at_ms: int) -> bool:
        """May the write name the entry that the record names which it replaces?"""
        slot_ms = slot_in(held.entry)
        return not self._anew and slot_ms is not None and (slot_ms == slot_of(at_ms) or held.at == at_ms)

    async def _indexed(self, at_ms: int) -> Indexed:
        """An entry of this call's own. One that an earlier attempt has not used up, for it is lost, is good enough."""
        slot_ms = slot_of(at_ms)
        entry = self._entry
        if entry is None or slot_in(entry.stem) != slot_ms or not self._is_fresh(SENT_WITHIN):
            self.close()
            entry = self._entry = await self._guard.index.write(self._id, slot_ms)
        self._needs_entry = True
        return entry

    def _is_fresh(self, share: float) -> bool:
        return self._entry is not None and self._age(self._entry) <= share * self._guard.rules.settings.quarantine

    def _age(self, entry: Indexed) -> float:
        return self._guard.clock.read().leader_elapsed(entry.since)
