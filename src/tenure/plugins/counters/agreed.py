"""What all processes must have in common: how each field is counted, and where days begin.

It lies in `settings.json` beside the ledger, which is changed by compare-and-swap alone. A process that counts a field
otherwise than another does is refused; one that has more fields adds them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import msgspec

from tenure.clock import Clock
from tenure.election.records import Record, decode, encode
from tenure.entropy import NewId
from tenure.errors import ConfigConflict, StoreUnavailable
from tenure.ledger.agreed import first_written, read_agreed
from tenure.plugins.counters.fields import MAX_KNOWN, Fields, overlapping
from tenure.store import Applied, Attempt, Remembers, Store, Stored, commit

SETTINGS = "settings.json"
_TRIES = 20


class Agreed(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="counters"):
    timezone: Annotated[str, msgspec.Meta(max_length=200)]
    fields: Annotated[dict[str, str], msgspec.Meta(max_length=MAX_KNOWN)]


async def agree(
    store: Store, fields: Fields, timezone: str, *, resource: str, clock: Clock, draw_id: NewId
) -> dict[str, str]:
    """All fields that are counted, by name. Raises `ConfigConflict` naming the field, and `StoreError`."""
    words = {field: counter.word for field, counter in fields.items()}
    what = f"the counters of {resource!r}"
    await first_written(store, SETTINGS, Agreed(write_id=draw_id(), timezone=timezone, fields=words), what=what)
    for _ in range(_TRIES):
        found = await read_agreed(store, SETTINGS, Agreed, what)
        if found is None:
            break
        theirs, stored = found
        _compare(theirs, words, timezone, resource)
        if words.keys() <= theirs.fields.keys():
            return theirs.fields
        together = {**theirs.fields, **words}
        if len(together) > MAX_KNOWN:
            raise ConfigConflict(f"{len(together):,} fields of {resource!r} were counted: at most {MAX_KNOWN:,} can be")
        if (pair := overlapping(together)) is not None:
            raise ConfigConflict(
                f"{pair[0]!r} and {pair[1]!r} of {resource!r} are counted, one of them here and one elsewhere: a "
                "number holds no other field; count one of them"
            )
        if await _write(store, stored, together, timezone, clock, draw_id):
            return together
    raise StoreUnavailable(f"{SETTINGS} of {what} comes and goes, or is changed all the time: by whom?")


def _compare(theirs: Agreed, words: dict[str, str], timezone: str, resource: str) -> None:
    if theirs.timezone != timezone:
        raise ConfigConflict(
            f"timezone is {timezone!r} here, and {theirs.timezone!r} where the counters of {resource!r} were used "
            "first: give the same in every process"
        )
    for field, word in words.items():
        if theirs.fields.get(field, word) != word:
            raise ConfigConflict(
                f"field {field!r} of {resource!r} is counted as {word} here, and as {theirs.fields[field]} where it "
                "was used first: give the same in every process, or the field another name"
            )


async def _write(
    store: Store, stored: Stored, fields: dict[str, str], timezone: str, clock: Clock, draw_id: NewId
) -> bool:
    def body(write_id: str) -> bytes:
        return encode(Agreed(write_id=write_id, timezone=timezone, fields=fields))

    done = await commit(
        store,
        Attempt(SETTINGS, stored.version),
        body,
        write_ids=_write_ids,
        remembers=Remembers.LAST_WRITE,
        clock=clock,
        draw_id=draw_id,
    )
    return isinstance(done.outcome, Applied)  # otherwise what is there is read again: it may be ours


def _write_ids(body: bytes) -> Collection[str]:
    agreed = decode(body, Agreed)
    return (agreed.write_id,) if isinstance(agreed, Agreed) else ()
