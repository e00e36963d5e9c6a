"""`tenure queue`: look at queues, fill them, and work on them."""

from __future__ import annotations

from difflib import get_close_matches

import click

from tenure.cli import queue_change, queue_list, queue_look, queue_work


class OrderedCommands(click.Group):
    """In the order in which somebody meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            close = get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(self.commands)}"
            ctx.fail(f"{ctx.command_path} has no command {args[0][:60]!r}: {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=OrderedCommands, short_help="Look at queues, fill them, and work on them.")
def queue() -> None:
    """Queues on a bucket: messages are durable once `put` returns, and handled at least once by those who `work`.

    Whoever can reach the bucket can look, fill and command; nobody needs to run. What is asked for is durable when a
    command returns, and takes effect when the queue's leader, one of those who work on it, reads it: --wait waits.

    \b
      tenure queue put s3://bucket/app emails '{"to": "ada@example.org"}'
      tenure queue work s3://bucket/app emails mailer:send
      tenure queue stats s3://bucket/app emails
    """


@click.group(cls=OrderedCommands, short_help="Dead letters: list, show, redrive, purge.")
def dead() -> None:
    """Messages that failed too often, or that their handler rejected. They stay until somebody decides on them."""


for each in (queue_look.dead_list, queue_look.dead_show, queue_change.dead_redrive, queue_change.dead_purge):
    dead.add_command(each)
_COMMANDS: tuple[click.Command, ...] = (
    queue_change.create,
    queue_change.put,
    queue_list.list_queues,
    queue_look.peek,
    queue_look.stats,
    dead,
    queue_change.pause,
    queue_change.resume,
    queue_change.purge,
    queue_work.work,
)
for command in _COMMANDS:
    queue.add_command(command)
