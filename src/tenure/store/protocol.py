"""The eight things that tenure asks of a store."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from tenure.store.outcome import Entry, NotModified, Outcome, Stored, Version

MAX_BODY_BYTES = 64 * 1024 * 1024
"""No body over this is sent, and none is read: what lies in a bucket may be another tool's, and of any size."""


class Access(enum.Enum):
    READ_WRITE = "read and write"
    READ_ONLY = "read only"
    """Nothing is written, not even to try the store out: for looking in with credentials that cannot write."""


class StoreInfo(msgspec.Struct, frozen=True):
    """What a store says of itself. `url` is safe to show: secrets are taken out."""

    provider: str
    """`s3`, `gs`, `az`, `file` or `memory`: prices and limits go by it."""
    url: str
    dialect: dict[str, str] = {}
    """What the store does in its own way, as found when it was opened, e.g. `{"if-match": "bare"}`."""
    conditional_delete: bool = False
    """Does it have `discard`? No bucket can be asked for that in one way, so only memory and directories do."""


class Store(Protocol):
    """Objects with versions, and writes that happen only if the version is the expected one.

    `create`, `replace` and `discard` do not raise for what the store or the network did: they say `Unknown`, with the
    error inside. Every method raises `InvalidKey`, `BodyTooLarge` or `ForkedProcess` before anything is sent.
    """

    @property
    def info(self) -> StoreInfo: ...

    async def get(self, key: str, *, unless: Version | None = None) -> Stored | NotModified:
        """The body and its version, from one request; `NotModified` if the version is still `unless`.

        Raises `NotFound` if there is no such key, and another `StoreError` if the store did not say.
        """
        ...

    async def put(self, key: str, body: bytes) -> Version:
        """Write whatever is there. An error means that it may have happened, or may still."""
        ...

    async def create(self, key: str, body: bytes) -> Outcome:
        """Write only if the key is absent."""
        ...

    async def replace(self, key: str, body: bytes, expected: Version) -> Outcome:
        """Write only if the object has the version `expected` (compare-and-swap)."""
        ...

    def list(self, prefix: str = "", *, after: str | None = None) -> AsyncIterator[Entry]:
        """Every key below the folder `prefix`, in the order of their bytes, that comes after the key `after`.

        Objects whose names are no keys of ours (other tools put them there) are left out.
        """
        ...

    async def delete(self, *keys: str) -> None:
        """Remove the keys that exist, unconditionally: only for keys that are never written again.

        A delete that was sent may land late, and would remove what was written meanwhile.
        """
        ...

    async def discard(self, key: str, expected: Version) -> Outcome:
        """Remove the object only if it has the version `expected`; `Applied` gives back that version.

        It may land late as well, and then removes nothing that was written meanwhile: versions of a key never repeat,
        not even when the key is written again. Raises `NoConditionalDelete` where `info.conditional_delete` is false.
        """
        ...

    async def aclose(self) -> None:
        """Give back threads and connections. The store cannot be used afterwards."""
        ...
