"""What a queue was created with: settings that hold for every process, whoever leads.

They lie in `settings.json` beside the ledger, which is changed by compare-and-swap alone. A process that is told
something else refuses to start, and one that is told nothing takes them from there. A queue without such a record
behaves as its leader is set.

Not guaranteed: that processes which run already heed a change. They read it when they start.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.election.records import Damage, Name, Record, TooNew, decode, encode
from tenure.entropy import NewId, new_id
from tenure.errors import ConfigConflict, ConfigError, Damaged, NotFound, SchemaTooNew, WriteUnknown
from tenure.plugins.queue.settings import QueueSettings, settings_from
from tenure.store import Applied, Attempt, Rejected, Remembers, Store, Stored, Version, commit

SETTINGS = "settings.json"
_MAX_SETTINGS = 100
Value = str | int | float


class Agreed(Record, frozen=True, kw_only=True, rename="camel", tag_field="tenure", tag="queue"):
    namespace: Name
    """The election whose leader decides on this queue: two would contradict each other."""
    settings: Annotated[dict[str, Value], msgspec.Meta(max_length=_MAX_SETTINGS)] = msgspec.field(default_factory=dict)
    """Those that were named; durations are seconds."""


class Found(msgspec.Struct, frozen=True):
    agreed: Agreed
    version: Version


async def read_agreed(store: Store) -> Found | None:
    """`None`: this queue was never created, which is no fault. Raises if what is there cannot be used."""
    try:
        stored = await store.get(SETTINGS)
    except NotFound:
        return None
    assert isinstance(stored, Stored)
    agreed = decode(stored.body, Agreed)
    if isinstance(agreed, TooNew):
        raise SchemaTooNew(
            f"{SETTINGS} of this queue was written by a newer tenure (schemaVersion {agreed.schema_version}): "
            "update this process"
        )
    if isinstance(agreed, Damage):
        raise Damaged(f"{SETTINGS} of this queue is damaged ({agreed.reason}): put it back from a backup")
    try:
        settings_from(dict(agreed.settings))
    except ConfigError as error:
        raise Damaged(
            f"{SETTINGS} of this queue holds what this tenure cannot use ({error}): update it, or mend that"
        ) from None
    return Found(agreed, stored.version)


def plain(given: Mapping[str, Any]) -> dict[str, Value]:
    """Checked, and as they are written: words for enums, seconds for durations."""
    chosen = settings_from(dict(given))
    values = {name: getattr(chosen, name) for name in given}
    return {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}


def agree(given: Mapping[str, Any], agreed: Agreed | None, *, queue: str, namespace: str | None) -> QueueSettings:
    """What a process is told, and what the queue was created with, together. Raises `ConfigConflict` naming the field.

    `namespace`: `None` for a process that takes no part in the election.
    """
    if agreed is None:
        return settings_from(dict(given))
    if namespace is not None and namespace != agreed.namespace:
        raise ConfigConflict(
            f"namespace is {namespace!r} here, and the queue {queue!r} was created for {agreed.namespace!r}: a queue "
            "belongs to one election; use that one"
        )
    for name, value in plain(given).items():
        theirs = agreed.settings.get(name)
        if theirs is not None and theirs != value:
            raise ConfigConflict(
                f"{name} is {value!r} here, and the queue {queue!r} was created with {theirs!r}: leave it out here, or "
                "change the queue with `tenure queue create --change`"
            )
    return settings_from({**given, **agreed.settings})


async def agreed_settings(
    store: Store, given: Mapping[str, Any], *, queue: str, namespace: str | None
) -> QueueSettings:
    found = await read_agreed(store)
    return agree(given, found.agreed if found is not None else None, queue=queue, namespace=namespace)


async def write_agreed(
    store: Store,
    namespace: str,
    settings: Mapping[str, Value],
    expected: Version | None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    draw_id: NewId = new_id,
) -> bool:
    """Write it, if what is there is still `expected`. False: somebody else was first."""

    def body(write_id: str) -> bytes:
        return encode(Agreed(write_id=write_id, namespace=namespace, settings=dict(settings)))

    # Of a record that may be changed again only its creation leaves a trace that lasts.
    remembers = Remembers.EVERY_WRITE if expected is None else Remembers.LAST_WRITE
    done = await commit(
        store,
        Attempt(SETTINGS, expected),
        body,
        write_ids=_write_ids,
        remembers=remembers,
        clock=clock,
        draw_id=draw_id,
    )
    if isinstance(done.outcome, Applied):
        return True
    if isinstance(done.outcome, Rejected):
        return False
    raise WriteUnknown(f"it is not known whether {SETTINGS} was written ({done.outcome.error}): create it again")


def _write_ids(body: bytes) -> Collection[str]:
    agreed = decode(body, Agreed)
    return (agreed.write_id,) if isinstance(agreed, Agreed) else ()
