"""`tenure schedule`: look at jobs and their times, and have them run, pause and go on."""

from __future__ import annotations

import click

from tenure.cli import schedule_change, schedule_history, schedule_list, schedule_times
from tenure.cli.queue import OrderedCommands


@click.group(cls=OrderedCommands, short_help="Look at jobs and their times; run, pause and resume them.")
def schedule() -> None:
    """Jobs that fire at their times: each occurrence is decided once, by the leader of those who have the schedule.

    Whoever can reach the bucket can look and command; jobs themselves are declared in code, or added by it. A command
    is durable once it is written, and followed when the leader reads it, within seconds: it is waited for.

    \b
      tenure schedule list s3://bucket/app
      tenure schedule next s3://bucket/app nightly
      tenure schedule run  s3://bucket/app nightly --wait
      tenure schedule next --cron "30 2 * * *" --timezone Europe/Berlin
    """


_COMMANDS: tuple[click.Command, ...] = (
    schedule_list.list_jobs,
    schedule_times.next_times,
    schedule_history.history,
    schedule_change.run_job,
    schedule_change.pause,
    schedule_change.resume,
)
for command in _COMMANDS:
    schedule.add_command(command)
