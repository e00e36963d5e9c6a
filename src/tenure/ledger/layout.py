"""Where a ledger's objects lie, below `plugin={slug}/name={name}/`."""

from __future__ import annotations

import re

import msgspec

from tenure.coordinator.layout import check_name
from tenure.store import Prefixed, Store, encode_name, numbered

INBOX = "inbox/"
LOG = "log/"
SNAPSHOTS = "snapshots/"
CHUNKS = "chunks/"
SEGMENTS = "seg/"
DAMAGED = "damaged/"

INBOX_NAMES = numbered(INBOX)
LOG_NAMES = numbered(LOG)
SNAPSHOT_NAMES = numbered(SNAPSHOTS)
CHUNK_NAMES = numbered(CHUNKS)

MAX_NAME_CHARACTERS = 64
MAX_SEQ = 10**18
MAX_NUMBER = 2**31 - 1
"""Of a producer's batches; after that it takes another name."""

_INBOX_NAME = re.compile(r"inbox/(\d{20})-([A-Za-z0-9\-]{1,64})-(\d{10})")
_NUMBERED = re.compile(r"(?:log|snapshots)/(\d{20})")


class InboxName(msgspec.Struct, frozen=True, order=True):
    """What the name of an inbox object says: sorted, older ones come first."""

    known: int
    """The highest log number that its producer knew when it first sent this."""
    uid: str
    number: int

    @property
    def key(self) -> str:
        return f"{INBOX}{self.known:020d}-{self.uid}-{self.number:010d}"


def owner_of(uid: str) -> str:
    """A producer's uid begins with that of whoever it writes for."""
    return uid.rpartition("-")[0]


def ledger_folder(slug: str, name: str) -> str:
    check_name("slug", slug, MAX_NAME_CHARACTERS)
    check_name("name", name, MAX_NAME_CHARACTERS)
    return f"plugin={encode_name(slug)}/name={encode_name(name)}/"


def ledger_store(store: Store, slug: str, name: str) -> Store:
    """The store of one plugin instance: no other instance can be seen or touched through it."""
    return Prefixed(store, ledger_folder(slug, name))


def log_key(seq: int) -> str:
    return f"{LOG}{seq:020d}"


def snapshot_key(seq: int) -> str:
    return f"{SNAPSHOTS}{seq:020d}"


def chunks_of(seq: int) -> str:
    """What the names of a snapshot's chunks begin with."""
    return f"{CHUNKS}{seq:020d}-"


def parse_inbox_key(key: str) -> InboxName | None:
    """`None` for what no producer of ours has put there."""
    match = _INBOX_NAME.fullmatch(key)
    if match is None or int(match[3]) < 1 or int(match[1]) > MAX_SEQ:
        return None
    return InboxName(int(match[1]), match[2], int(match[3]))


def parse_number(key: str) -> int | None:
    """The number of a log entry or snapshot; `None` for what no leader has put there."""
    match = _NUMBERED.fullmatch(key)
    number = int(match[1]) if match is not None else 0
    return number if 1 <= number <= MAX_SEQ else None
