"""The newest terms of a namespace: one listing when the epoch has changed, and each record read once."""

from __future__ import annotations

import msgspec

from tenure.coordinator.audit import Lease, TermEnd, TermSeen, with_ends
from tenure.coordinator.layout import TERM_NAMES, epoch_of, term_key
from tenure.dashboard.bounds import MAX_TERMS
from tenure.dashboard.sections import TermRow, Terms, perhaps
from tenure.dashboard.times import ms_of
from tenure.election.records import MAX_RECORD_BYTES, Term, decode
from tenure.errors import NotFound
from tenure.ledger.together import all_of
from tenure.store import Entry, Store, Stored, ours

_SAID = {
    TermEnd.RELEASED: "released",
    TermEnd.REPLACED: "replaced",
    TermEnd.DAMAGED: "damaged",
    TermEnd.NEVER_LED: "never-led",
}
_AT_ONCE = 16


class Known(msgspec.Struct, frozen=True):
    start_ms: int
    term: Term | None
    """`None`: what lies there is no record of this epoch."""


class TermBook:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Known] = {}
        self._seen: dict[int, tuple[str, int]] = {}
        """By epoch: how it ended before our eyes, and when."""

    async def look(self, epoch: int) -> None:
        """Read what is new up to `epoch`, of the newest. Raises `StoreError`."""
        lowest = max(0, epoch - MAX_TERMS)
        entries: dict[int, Entry] = {}
        async for entry in ours(self._store, TERM_NAMES, after=term_key(lowest) if lowest else None):
            number = epoch_of(entry.key)
            if number is not None:
                entries[number] = entry  # in the order of their numbers
                if len(entries) > MAX_TERMS:
                    del entries[next(iter(entries))]
        newest = sorted(entries)
        unread = [number for number in newest if number not in self._known]
        for start in range(0, len(unread), _AT_ONCE):
            batch = unread[start : start + _AT_ONCE]
            terms = await all_of(self._read(entries[number], number) for number in batch)
            for number, term in zip(batch, terms, strict=True):
                self._known[number] = Known(ms_of(entries[number].modified), term)
        for number in sorted(self._known)[:-MAX_TERMS]:
            del self._known[number]
        for number in [number for number in self._seen if number not in self._known]:
            del self._seen[number]

    async def _read(self, entry: Entry, epoch: int) -> Term | None:
        if entry.size > MAX_RECORD_BYTES:
            return None
        try:
            stored = await self._store.get(entry.key)
        except NotFound:
            return None
        assert isinstance(stored, Stored)
        term = decode(stored.body, Term)
        return term if isinstance(term, Term) and term.epoch == epoch else None

    @property
    def newest(self) -> int:
        return max(self._known, default=0)

    def start_of(self, epoch: int) -> int | None:
        known = self._known.get(epoch)
        return known.start_ms if known is not None else None

    def ended(self, epoch: int, how: str, at_ms: int) -> None:
        """It was seen to end, which the bucket does not tell of a lease that lapsed."""
        if len(self._seen) < 2 * MAX_TERMS:
            self._seen[epoch] = (how, at_ms)

    def goes_on(self, epoch: int) -> None:
        """It was only late."""
        self._seen.pop(epoch, None)

    def section(self, lease: Lease) -> Terms:
        numbers = sorted(self._known)
        terms = [_seen(number, self._known[number].term) for number in numbers]
        rows = []
        for at, seen in enumerate(with_ends(terms, lease)):
            how, ended = self._seen.get(seen.epoch, (_SAID.get(seen.ended), None))
            following = self._known[numbers[at + 1]].start_ms if at + 1 < len(numbers) else None
            rows.append(
                TermRow(
                    epoch=seen.epoch,
                    leader=perhaps(seen.leader),
                    start_ms=self._known[seen.epoch].start_ms,
                    end_ms=ended if ended is not None else following,
                    how=how,
                    unconfirmed=not seen.confirmed,
                    after_damage=seen.after_damage,
                )
            )
        return Terms(terms=rows)


def _seen(epoch: int, term: Term | None) -> TermSeen:
    if term is None:
        return TermSeen(epoch, None, "", True, False)
    return TermSeen(epoch, term.leader_id, "", not term.unconfirmed, term.after_damage)
