"""Where bytes live: objects with versions, on S3, GCS, Azure, a local directory or in memory.

    async with open_store("file:///var/lib/app") as store:
        outcome = await store.create("greeting", b"hello")   # Applied | Rejected | Unknown

Guarantee: of many writers that expect the same version, at most one is told `Applied`, and its body is what is stored.

Assumption: the store honours conditional writes. It is tried out on opening, and `tenure doctor` tries harder.

Not guaranteed: that a write without a decisive answer (`Unknown`) did not happen, or will not still happen. `settle`
finds out, and `commit` sends and settles in one call.
"""

from tenure.store.faulty import Faults, Faulty
from tenure.store.keys import decode_name, encode_name
from tenure.store.metered import Metered, Usage
from tenure.store.opening import open_store
from tenure.store.ours import Names, Strangers, numbered, ours
from tenure.store.outcome import Applied, Entry, NotModified, Outcome, Rejected, Stored, Unknown, Version
from tenure.store.prefixed import Prefixed
from tenure.store.protocol import Access, Store, StoreInfo
from tenure.store.providers import Prices
from tenure.store.settle import Attempt, Remembers, Settled, commit, settle

__all__ = [
    "Access",
    "Applied",
    "Attempt",
    "Entry",
    "Faults",
    "Faulty",
    "Metered",
    "Names",
    "NotModified",
    "Outcome",
    "Prefixed",
    "Prices",
    "Rejected",
    "Remembers",
    "Settled",
    "Store",
    "StoreInfo",
    "Stored",
    "Strangers",
    "Unknown",
    "Usage",
    "Version",
    "commit",
    "decode_name",
    "encode_name",
    "numbered",
    "open_store",
    "ours",
    "settle",
]
