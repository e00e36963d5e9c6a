"""`tenure demo`: see it work on this machine."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from contextlib import nullcontext

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tenure.cli.running import run_until_stopped
from tenure.cli.text import printable, show_json
from tenure.demo.panel import can_show, showing
from tenure.demo.place import Place, demo_place
from tenure.demo.story import Result, Stage, WentWrong, tell

_EXAMPLE = """\
import asyncio
import tenure

async def main():
    async with tenure.lead("file:///tmp/my-first-election") as lead:
        print("this process leads, epoch", lead.epoch)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@click.command(short_help="Watch an election among real processes.")
@click.option("--store", metavar="URL", help="Where to play it instead: below this URL, in a place of its own.")
@click.option("--json", "as_json", is_flag=True, help="Print what happened as one JSON object.")
def demo(store: str | None, as_json: bool) -> int:
    """Watch an election among real processes: one leads and works, is killed, frozen, or leaves; another takes over.

    Takes about half a minute, in a temporary directory, or below the URL given with --store; what it writes is removed
    at the end. Exit code 0 only if all is right; 1 if not, with a sentence that says what was seen.
    """
    console = Console(highlight=False)
    live = not as_json and can_show(console)
    problem = ""
    result: Result | None = None
    try:
        result = run_until_stopped(_play(store, console if live else None, as_json))
    except WentWrong as wrong:
        problem = str(wrong)
    if as_json:
        show_json(result or {"right": False, "problem": problem})
    if result is not None and live:
        _show_verdicts(result, console)
    if result is None:
        click.echo(printable(f"tenure: the demo went wrong: {problem}"), err=True)
    elif not as_json:
        _say_what_next(result)
    return 0 if result is not None and result.right else 1


async def _play(store: str | None, console: Console | None, as_json: bool) -> Result:
    task = asyncio.current_task()
    assert task is not None
    # A terminal that is closed is another way to be stopped.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, task.cancel)

    def say(line: str) -> None:
        if console is None:
            click.echo(line, err=as_json)

    place: Place | None = None
    try:
        async with demo_place(store) as place:
            stage = Stage(say)
            async with showing(stage, console) if console is not None else nullcontext():
                return await tell(place, stage)
    finally:
        if place is not None and place.left_behind:
            click.echo(f"tenure: {place.left_behind}", err=True)


def _show_verdicts(result: Result, console: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for verdict in result.verdicts:
        mark = Text("✓", style="green") if verdict.ok else Text("✗", style="bold red")
        table.add_row(mark, Text(verdict.says, style="" if verdict.ok else "bold red"))
    console.print(table)


def _say_what_next(result: Result) -> None:
    if not result.right:
        click.echo("Something is wrong; the lines above say what. Please report it with this machine's file system.")
        return
    command = "tenure" if shutil.which("tenure") else f"{sys.executable} -m tenure"
    click.echo(f"All is right, in {result.seconds:.0f} s: never two leaders, and never long without one.\n")
    click.echo("Next, lead with a program of your own. Start this in two terminals, and stop one of them:\n")
    click.echo(_EXAMPLE)
    click.echo("Or have a program run in one place only, whatever it is written in:")
    click.echo(f"    {command} run file:///tmp/my-first-election -- your-program\n")
    click.echo("In production it is a bucket that they share; this proves that yours will do:")
    click.echo(f"    {command} doctor s3://your-bucket/some-prefix")
