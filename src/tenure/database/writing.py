"""One conditional write of one record, and what became of it.

The rules, each of which answers a failure:

- An update, a tombstone and an insert over a tombstone are compare-and-swaps, sent again while they are pending, as
  `settle` does: none of the copies can land on a key that is absent.
- An insert on an absent key is a create. Where tombstones are removed, it is sent *once*: a second copy could land when
  the record was deleted and its tombstone removed, and would bring it back; and a record that is not there when it is
  read back may have been there, and been deleted. So what cannot be seen is `WriteUnknown` there.
- A record names its first write and its last ones. One of ours that others have overwritten is found among them; one
  that is not among them was not applied if it was a create, or if they reach back to the version on which it was based.
- "Rejected" is confirmed by reading back, because something on the way may have sent our request twice. What is not to
  be found there did not happen on stores that nothing stands before (those with a conditional delete: memory and
  directory); on others it may have happened, and its record been deleted and removed since.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenure.clock import Clock
from tenure.database.records import Envelope, decode, encode, write_ids
from tenure.entropy import NewId
from tenure.errors import WriteUnknown
from tenure.store import Applied, Attempt, Outcome, Rejected, Settled, Store, Stored, Unknown, Version, settle

Draft = Callable[[str], Envelope]
"""What to write, under the write id that it is given."""

_TRIES = 5
_PAUSE = 0.05


class Found(msgspec.Struct, frozen=True):
    """An object as it was read."""

    envelope: Envelope
    version: Version


class Written(msgspec.Struct, frozen=True):
    """A write of ours that happened."""

    envelope: Envelope
    version: Version | None
    """The store's version of it; `None` if others have written since."""


class Writer:
    """Writes the records of one store."""

    def __init__(self, store: Store, *, clock: Clock, draw_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._draw_id = draw_id
        self._believes_rejections = store.info.conditional_delete

    async def replace(self, key: str, base: Found, draft: Draft) -> Written | None:
        """Write over `base`; `None`: another was first. Raises `WriteUnknown`."""
        attempt, drafts = Attempt(key, base.version), _Drafts(draft)
        outcome = await self._send(attempt, drafts)
        if isinstance(outcome, Applied):
            return Written(drafts.last, outcome.version)
        if isinstance(outcome, Rejected) and self._believes_rejections:
            settled = await settle(self._store, attempt, write_ids=write_ids, clock=self._clock, tries=1)
            return drafts.written(settled) if isinstance(settled.outcome, Applied) else None
        settled = await self._insist(attempt, drafts)
        if isinstance(settled.outcome, Applied):
            return drafts.written(settled)
        if settled.stored is not None:
            now = decode(settled.stored.body, base.envelope.id)
            # The condition held for `base` alone, so that what is not among the later writes never shall be.
            if (
                isinstance(now, Envelope)
                and now.version > base.envelope.version
                and now.remembers_all_since(base.envelope.version)
            ):
                return None
        raise self._unknown(base.envelope.id, settled)

    async def create(self, key: str, id: str, draft: Draft, *, once: bool) -> Written | None:
        """Write where nothing is; `None`: something is there. Raises `WriteUnknown`. `once`: see above."""
        attempt, drafts = Attempt(key, None), _Drafts(draft)
        outcome = await self._send(attempt, drafts)
        if isinstance(outcome, Applied):
            return Written(drafts.last, outcome.version)
        settled = await self._look_again(attempt) if once else await self._insist(attempt, drafts)
        if isinstance(settled.outcome, Applied):
            return drafts.written(settled)
        in_doubt = any(isinstance(answer, Unknown) for answer in attempt.answers)
        if settled.stored is not None:
            now = decode(settled.stored.body, id)
            remembered = isinstance(now, Envelope) and now.remembers_its_creation
            # With tombstones removed, ours may have come and gone before this one was made.
            if not in_doubt or (remembered and not once):
                return None
        elif not in_doubt and self._believes_rejections:
            return None  # another was there, and is gone since
        raise self._unknown(id, settled)

    async def _insist(self, attempt: Attempt, drafts: _Drafts) -> Settled:
        return await settle(
            self._store,
            attempt,
            write_ids=write_ids,
            resend=drafts.compose,
            draw_id=self._draw_id,
            clock=self._clock,
            tries=_TRIES,
        )

    async def _look_again(self, attempt: Attempt) -> Settled:
        """Read until it is there, for as long as a late request may take to be worth waiting for."""
        for round_number in range(_TRIES):
            if round_number:
                await self._clock.sleep(_PAUSE * 2.0**round_number)
            settled = await settle(self._store, attempt, write_ids=write_ids, clock=self._clock, tries=1)
            if isinstance(settled.outcome, Applied) or settled.stored is not None:
                break
            if all(isinstance(answer, Rejected) for answer in attempt.answers):
                break
        return settled

    async def _send(self, attempt: Attempt, drafts: _Drafts) -> Outcome:
        write_id = self._draw_id()
        attempt.ids.append(write_id)
        body = drafts.compose(write_id)
        if attempt.expected is None:
            outcome = await self._store.create(attempt.key, body)
        else:
            outcome = await self._store.replace(attempt.key, body, attempt.expected)
        attempt.answers.append(outcome)
        return outcome

    def _unknown(self, id: str, settled: Settled) -> WriteUnknown:
        error = settled.outcome.error if isinstance(settled.outcome, Unknown) else None
        unknown = WriteUnknown(
            f"the write of record {id!r} got no decisive answer ({error or 'others have written since'}): it may have "
            "happened, or may still; read the record to see",
            record_id=id,
        )
        unknown.__cause__ = error
        return unknown


class _Drafts:
    """Every copy of one write, by its id: the one that landed may be an earlier one."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._made: dict[str, Envelope] = {}

    def compose(self, write_id: str) -> bytes:
        self._made[write_id] = self._draft(write_id)
        return encode(self._made[write_id])

    @property
    def last(self) -> Envelope:
        return next(reversed(self._made.values()))

    def written(self, settled: Settled) -> Written:
        assert settled.write_id is not None
        assert isinstance(settled.outcome, Applied)
        envelope = self._made[settled.write_id]
        newest = settled.stored is None or _newest(settled.stored) == settled.write_id
        return Written(envelope, settled.outcome.version if newest else None)


def _newest(stored: Stored) -> str:
    return write_ids(stored.body)[-1]
