"""`tenure queue list`: which queues there are. Reads names of objects, and no object.

A queue has as many objects as it has work to do, so that not all of them are listed: after a page of one queue the
listing begins anew behind it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import click
import msgspec

from tenure.cli.place import located
from tenure.cli.queue_look import AS_JSON
from tenure.cli.queue_place import Whole
from tenure.cli.running import run_until_stopped
from tenure.cli.text import printable, show_json
from tenure.coordinator.layout import check_name
from tenure.errors import TenureError
from tenure.ledger.layout import MAX_NAME_CHARACTERS
from tenure.plugins.queue import S3QueuePlugin
from tenure.store import Access, Entry, Store, decode_name, encode_name, open_store
from tenure.store.keys import MAX_SEGMENT_BYTES
from tenure.store.url import parse_url

MOST_QUEUES = 10_000
PAGE = 1000
"""Keys that come with one request: so many of one queue are read at no cost."""
_FOLDER = f"plugin={encode_name(S3QueuePlugin.slug)}/"
_BEHIND = "~" * MAX_SEGMENT_BYTES
"""Comes after every key of a folder: no character of a key is higher."""
_READS_FROM_THE_START = ("az",)
"""Where a listing cannot begin in the middle, beginning anew would read everything again."""


class Queues(msgspec.Struct, frozen=True):
    """What `tenure queue list --json` prints."""

    queues: list[str]
    unreadable: list[str]
    """Folders and objects where queues lie, whose names are none of a queue's."""
    more: bool
    """There are others; see `--limit`."""


@click.command("list", short_help="Name the queues that there are.")
@located
@click.option("--limit", type=Whole(1, MOST_QUEUES), default=1000, show_default=True, help="At most so many.")
@AS_JSON
def list_queues(url: str, limit: int, as_json: bool) -> int:
    """Name the queues at URL, one on each line. Only reads, and not what is in them.

    Exit code 0: here they are, if any; 2: it could not be told.
    """
    found = run_until_stopped(_list(url, limit))
    if as_json:
        show_json(found)
        return 0
    for name in found.queues:
        click.echo(printable(name))
    if not found.queues:
        click.echo(f"tenure: there are no queues at {printable(parse_url(url).shown)}", err=True)
    for each in found.unreadable:
        click.echo(f"tenure: {printable(each)} in {_FOLDER} is no queue: its name was not made by tenure", err=True)
    if found.more:
        click.echo(f"tenure: there are more than {limit:,}: see --limit", err=True)
    return 0


async def _list(url: str, limit: int) -> Queues:
    async with open_store(url, access=Access.READ_ONLY) as store:
        return await queues_at(store, limit, begins_anew=parse_url(url).scheme not in _READS_FROM_THE_START)


async def queues_at(store: Store, limit: int, *, begins_anew: bool = True) -> Queues:
    """The first `limit` folders, in the order of their keys."""
    queues: list[str] = []
    unreadable: list[str] = []
    last, after, rows = "", None, 0
    while True:
        is_over = True
        async with aclosing(cast("AsyncGenerator[Entry, None]", store.list(_FOLDER, after=after))) as entries:
            async for entry in entries:
                name, slash, _ = entry.key.removeprefix(_FOLDER).partition("/")
                folder = name + slash
                if folder != last:
                    if len(queues) + len(unreadable) >= limit:
                        return Queues(sorted(queues), unreadable, more=True)
                    queue = _queue_in(folder)
                    queues.append(queue) if queue is not None else unreadable.append(folder)
                    last, rows = folder, 0
                rows += 1
                if rows >= PAGE and begins_anew:
                    # The key itself, if it comes after everything that we would have put there: so this ends.
                    after, rows, is_over = max(f"{_FOLDER}{name}/{_BEHIND}", entry.key), 0, False
                    break
        if is_over:
            return Queues(sorted(queues), unreadable, more=False)


def _queue_in(folder: str) -> str | None:
    """`None` for what no queue of ours has put there."""
    if not folder.startswith("name=") or not folder.endswith("/"):
        return None
    try:
        return check_name("name", decode_name(folder[len("name=") : -1]), MAX_NAME_CHARACTERS)
    except TenureError:
        return None
