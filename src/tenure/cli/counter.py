"""`tenure counter`: count from a shell, and look at what was counted."""

from __future__ import annotations

import click

from tenure.cli import counter_add, counter_get, counter_history, counter_top
from tenure.cli.queue import OrderedCommands


@click.group(cls=OrderedCommands, short_help="Count on records, and look at totals, rankings and history.")
def counter() -> None:
    """Counters on the fields of records: each amount counts once, whatever crashes.

    Whoever can write to the bucket can count, and whoever can read it can look; nobody needs to run. An amount is
    durable when `add` returns, and in its record when a leader, one of the processes that have these counters, has
    brought it there.

    \b
      tenure counter add     s3://bucket/app pages home views
      tenure counter get     s3://bucket/app pages home views --consistent
      tenure counter top     s3://bucket/app pages views --period day
      tenure counter history s3://bucket/app pages home views --period hour
    """


_COMMANDS: tuple[click.Command, ...] = (counter_add.add, counter_get.get, counter_top.top, counter_history.history)
for command in _COMMANDS:
    counter.add_command(command)
