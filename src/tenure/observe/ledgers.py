"""Which queues, schedules and counters there are, and who decides on one. To name them, no object is read.

A queue has as many objects as it has work to do, so that not all of them are listed: after a page of one ledger the
listing begins anew behind it.
"""

from __future__ import annotations

import contextlib
from contextlib import aclosing

import msgspec

from tenure.coordinator.layout import check_name, namespace_store
from tenure.coordinator.reading import read_state
from tenure.election.records import State
from tenure.errors import TenureError
from tenure.ledger import LedgerState
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.plugins.queue import S3QueuePlugin
from tenure.store import Access, Names, Store, Strangers, decode_name, encode_name, open_store, ours
from tenure.store.keys import MAX_SEGMENT_BYTES

PAGE = 1000
"""Keys that come with one request: so many of one ledger are read at no cost."""
READS_FROM_THE_START = ("az",)
"""Providers whose listings cannot begin in the middle: beginning anew would read everything again."""
_BEHIND = "~" * MAX_SEGMENT_BYTES
"""Comes after every key of a folder: no character of a key is higher."""
_KEYS_READ = 2000
"""Of the folder where the ledgers of a kind lie, to name some of them."""


class Ledgers(msgspec.Struct, frozen=True):
    """The ledgers of one kind."""

    names: list[str]
    unreadable: list[str]
    """Folders and objects where ledgers lie, whose names are none of a ledger's."""
    more: bool
    """There are others."""


class Queues(msgspec.Struct, frozen=True):
    """What `tenure queue list --json` prints."""

    queues: list[str]
    unreadable: list[str]
    """Folders and objects where queues lie, whose names are none of a queue's."""
    more: bool
    """There are others; see `--limit`."""


def folder_of(slug: str) -> str:
    """Where the ledgers of a kind lie."""
    return f"plugin={encode_name(slug)}/"


async def queues_at(store: Store, limit: int, *, begins_anew: bool = True) -> Queues:
    """The first `limit` folders, in the order of their keys."""
    found = await ledgers_at(store, S3QueuePlugin.slug, limit, begins_anew=begins_anew)
    return Queues(found.names, found.unreadable, found.more)


async def ledgers_at(store: Store, slug: str, limit: int, *, begins_anew: bool = True) -> Ledgers:
    """The first `limit` folders of a kind, in the order of their keys; `begins_anew` where that is not dear."""
    names: list[str] = []
    unreadable: list[str] = []
    root = folder_of(slug)
    strangers = Strangers()
    last, after, rows = "", None, 0
    while True:
        is_over = True
        async with aclosing(ours(store, _names_in(root), after=after, strangers=strangers)) as entries:
            async for entry in entries:
                folder = _folder_in(entry.key, root)
                if folder != last:
                    if len(names) + len(unreadable) >= limit:
                        return Ledgers(sorted(names), unreadable, more=True)
                    ledger = _name_in(folder)
                    names.append(ledger) if ledger is not None else unreadable.append(folder)
                    last, rows = folder, 0
                rows += 1
                if rows >= PAGE and begins_anew:
                    # The key itself, if it comes after everything that we would have put there: so this ends.
                    after, rows, is_over = max(f"{root}{folder.removesuffix('/')}/{_BEHIND}", entry.key), 0, False
                    break
        if is_over:
            others = dict.fromkeys(_folder_in(key, root) for key in strangers.met)
            shown = list(others)[: max(0, limit - len(names) - len(unreadable))]
            return Ledgers(sorted(names), [*unreadable, *shown], more=strangers.leapt or len(shown) < len(others))


def _names_in(root: str) -> Names:
    return Names(root, f"{root}name=", f"{root}name>")


def _folder_in(key: str, root: str) -> str:
    """With its slash; an object that lies there has none."""
    name, slash, _ = key.removeprefix(root).partition("/")
    return name + slash


async def names_of(store: Store, slug: str) -> list[str]:
    """Some of the ledgers of a kind that there are."""
    kind = folder_of(slug)
    names: dict[str, None] = {}
    read = 0
    async with aclosing(ours(store, _names_in(kind))) as entries:
        async for entry in entries:
            folder = entry.key.removeprefix(kind).partition("/")[0]
            read += 1
            with contextlib.suppress(TenureError):
                if folder.startswith("name="):
                    names[check_name("name", decode_name(folder[len("name=") :]), MAX_NAME_CHARACTERS)] = None
            if read >= _KEYS_READ:
                break
    return sorted(names)


async def why_nobody(url: str, state: LedgerState, what: str = "this schedule", whose: str = "its") -> str:
    """Why nobody may be deciding on a ledger, as far as a look at the lease tells."""
    namespace = state.namespace
    if not namespace:
        return f"no process has led {what} yet"
    try:
        async with open_store(url, access=Access.READ_ONLY) as store:
            lease = await read_state(namespace_store(store, namespace))
    except TenureError as error:
        return f"who leads {whose} namespace cannot be told ({error})"
    if not isinstance(lease, State) or lease.leader_id is None or lease.released:
        return f"nobody leads {whose} namespace {namespace!r}"
    return (
        f"{lease.leader_id!r} holds the lease of {whose} namespace {namespace!r}, and is dead, or does not have {what} "
        "(see `tenure status`)"
    )


def _name_in(folder: str) -> str | None:
    """`None` for what no ledger of ours has put there."""
    if not folder.startswith("name=") or not folder.endswith("/"):
        return None
    try:
        return check_name("name", decode_name(folder[len("name=") : -1]), MAX_NAME_CHARACTERS)
    except TenureError:
        return None
