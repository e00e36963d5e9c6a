"""`tenure gc`: remove what deleted records and storage entries have left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import click
from rich.console import Console

from tenure.cli import output
from tenure.cli.place import located
from tenure.cli.running import run_until_stopped
from tenure.cli.text import marked, show_json
from tenure.database.gc import Collected, OnProgress, collect
from tenure.errors import ConfigError
from tenure.store import Access, open_store
from tenure.store.url import parse_url

_SAFE_ONLINE = ("file", "memory")
_EVERY = 100


@click.command(short_help="Remove what deleted records have left.")
@located
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed. Writes nothing.")
@click.option("--yes", is_flag=True, help="Do not ask: no process is writing to resources or storages at URL.")
def gc(url: str, as_json: bool, dry_run: bool, yes: bool) -> int:
    """Remove what deleted records have left at URL; and, if over a day old, deleted and expired entries of plugin
    storages and what an interrupted doctor has left.

    On a bucket NO PROCESS MAY BE WRITING to resources or plugin storages meanwhile: what is written again while its
    tombstone is removed would be lost. On file:// it is safe at any time. Tombstones on which a plugin relies are kept.
    Exit code 0: done; 1: something could not be removed, or is damaged and named; 2: it could not be told or was asked
    wrongly.
    """
    safe = parse_url(url).scheme in _SAFE_ONLINE
    if not dry_run and not yes and not safe:
        _ask(url)
    with _progress() as progress:
        result = run_until_stopped(_collect(url, dry_run, progress))
    if result.ok and not dry_run:
        output.carried_out()
    if as_json:
        show_json(result)
    else:
        show(result, Console(highlight=False))
    return 0 if result.ok else 1


async def _collect(url: str, dry_run: bool, progress: OnProgress) -> Collected:
    if parse_url(url).path is not None:
        # Opening for writing makes a directory that is missing. Where there is none the name is wrong.
        async with open_store(url, access=Access.READ_ONLY):
            pass
    async with open_store(url, access=Access.READ_ONLY if dry_run else Access.READ_WRITE) as store:
        return await collect(store, dry_run=dry_run, progress=progress)


def _ask(url: str) -> None:
    shown = parse_url(url).shown
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{shown} cannot remove an object only if nobody wrote it meanwhile: stop every process that writes to its "
            "resources and plugin storages, and say so with --yes (--dry-run only looks)"
        )
    click.echo(f"{shown}: what is written while this runs may be lost.", err=True)
    click.confirm(
        "Has every process that writes to its resources or plugin storages been stopped?", abort=True, err=True
    )


def show(result: Collected, console: Console) -> None:
    """Print the result for a person."""
    verb = "would be removed" if result.dry_run else "removed"
    console.print(f"[bold]{marked(result.url)}[/]", soft_wrap=True)
    console.print(f"{result.removed} of {result.tombstones} tombstones {verb}; {result.records} records left alone")
    if result.kept:
        console.print(f"{result.kept} tombstones kept: a plugin relies on them, or somebody wrote there meanwhile")
    if result.storage_leftovers:
        what = "deleted or expired entries of plugin storages"
        console.print(f"{result.storage_removed} of {result.storage_leftovers} {what} {verb}", soft_wrap=True)
    if result.scratch_removed:
        console.print(f"{result.scratch_removed} scratch objects {verb}")
    if result.failed:
        console.print(f"[red]{result.failed} objects could not be removed[/]: run it again", soft_wrap=True)
    for key in result.damaged:
        console.print(f"[red]damaged[/] {marked(key)}: no record, and left as it is", soft_wrap=True)


@contextlib.contextmanager
def _progress() -> Iterator[OnProgress]:
    """A count on a terminal, nothing elsewhere; always on standard error."""
    if not sys.stderr.isatty():
        yield lambda step, seen: None
        return
    with Console(stderr=True).status("looking") as status:

        def update(step: str, seen: int) -> None:
            if seen % _EVERY == 0:
                status.update(f"{step}: {seen} seen")

        yield update
