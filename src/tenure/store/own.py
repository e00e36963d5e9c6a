"""Creating an object under a name that nobody else uses."""

from __future__ import annotations

from tenure.errors import NotFound, StoreError, StoreUnavailable
from tenure.store.outcome import Applied, Rejected, Stored, Unknown
from tenure.store.protocol import Store


async def create_own(store: Store, key: str, body: bytes) -> Applied | Unknown:
    """Create what only we create, and nobody writes over; `Unknown`: send it again, under the same name.

    "Rejected" should say that an earlier copy of ours has landed. But what stands before the store may have answered
    without asking it, so that is believed only of an object that can be read back. What is not there may have been
    there, and been deleted by its reader: whoever sends it again must not mind.
    """
    outcome = await store.create(key, body)
    if not isinstance(outcome, Rejected):
        return outcome
    try:
        stored = await store.get(key)
    except NotFound:
        why = f"a create of {key!r} was answered that it is there already, and it is not: does a proxy answer for it?"
        return Unknown(StoreUnavailable(why))
    except StoreError as error:
        return Unknown(error)
    assert isinstance(stored, Stored)
    return Applied(stored.version)
