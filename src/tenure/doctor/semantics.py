"""One question after the other, each of which a store that is fit answers in one way only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from tenure.doctor.report import Check
from tenure.entropy import NewId
from tenure.errors import NotFound, StoreError
from tenure.store import Applied, NotModified, Outcome, Rejected, Store, Stored, Unknown, Version


class DoctorRecord(msgspec.Struct, frozen=True, rename="camel"):
    """What the doctor writes."""

    write_id: str
    purpose: str = "tenure doctor examines this store; safe to delete"
    schema_version: int = 1


async def question(store: Store, folder: str, draw_id: NewId) -> AsyncIterator[Check]:
    """Ask; the caller removes what lies below `folder` afterwards."""
    key, missing = f"{folder}lease", f"{folder}missing"

    def body() -> bytes:
        return msgspec.json.encode(DoctorRecord(write_id=draw_id()))

    first = body()
    yield _applied("creates a key that is absent", await store.create(key, first))
    yield _rejected("refuses to create a key that exists", await store.create(key, body()))
    found = await store.get(key)
    assert isinstance(found, Stored)
    yield Check("gives back what was written", found.body == first)
    yield _applied("replaces the version that it has", await store.replace(key, second := body(), found.version))
    yield _rejected("refuses to replace an old version", await store.replace(key, body(), found.version))
    made_up = Version(e_tag="0123456789abcdef0123456789abcdef", generation=found.version.generation and "1")
    yield _rejected("refuses to replace a version that never was", await store.replace(key, body(), made_up))
    yield _rejected("refuses to replace a key that is absent", await store.replace(missing, body(), found.version))
    found = await store.get(key)
    assert isinstance(found, Stored)
    yield Check("keeps what was written when it refuses", found.body == second)
    unchanged = await store.get(key, unless=found.version)
    detail = "" if isinstance(unchanged, NotModified) else "ignored: the body is sent each time, which costs a little"
    yield Check("spares the body of what did not change", True, detail)
    yield await _says_missing(store, missing)
    listed = [entry async for entry in store.list(folder)]
    seen = [entry for entry in listed if entry.key == key]
    yield Check("lists a key as soon as it is written", bool(seen))
    if seen:
        yield Check("lists the version that it has", seen[0].version.matches(found.version))


def _applied(name: str, outcome: Outcome) -> Check:
    if isinstance(outcome, Unknown):
        return Check(name, None, str(outcome.error))
    return Check(name, isinstance(outcome, Applied), "" if isinstance(outcome, Applied) else "it was refused")


def _rejected(name: str, outcome: Outcome) -> Check:
    if isinstance(outcome, Unknown):
        return Check(name, None, str(outcome.error))
    return Check(name, isinstance(outcome, Rejected), "" if isinstance(outcome, Rejected) else "it was written")


async def _says_missing(store: Store, missing: str) -> Check:
    name = "says plainly that a key is missing"
    try:
        await store.get(missing)
    except NotFound:
        return Check(name, True)
    except StoreError as error:
        return Check(name, False, str(error))
    return Check(name, False, "it answers for a key that was never written")
