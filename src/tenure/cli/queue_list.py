"""`tenure queue list`: which queues there are. Reads names of objects, and no object."""

from __future__ import annotations

import click

from tenure.cli.numbers import Whole
from tenure.cli.place import located
from tenure.cli.queue_look import AS_JSON
from tenure.cli.running import run_until_stopped
from tenure.cli.text import show_json
from tenure.observe.ledgers import READS_FROM_THE_START, Queues, folder_of, queues_at
from tenure.observe.printable import printable
from tenure.plugins.queue import S3QueuePlugin
from tenure.store import Access, open_store
from tenure.store.url import parse_url

MOST_QUEUES = 10_000
_FOLDER = folder_of(S3QueuePlugin.slug)


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
        return await queues_at(store, limit, begins_anew=parse_url(url).scheme not in READS_FROM_THE_START)
