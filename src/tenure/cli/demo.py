"""`tenure demo`: see it work on this machine."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from tenure.cli.running import run_until_stopped
from tenure.demo.story import tell

_EXAMPLE = """\
import asyncio
import tenure

async def main():
    async with tenure.lead("file:///tmp/my-first-election") as lead:
        print("this process leads, epoch", lead.epoch)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what happened as one JSON object.")
def demo(as_json: bool) -> int:
    """Watch an election among real processes: one leader, one that is killed, one that leaves.

    Takes some seconds, in a temporary directory. Exit code 0 only if all is right.
    """
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as directory:
        result = run_until_stopped(tell(Path(directory), lambda line: click.echo(line, err=as_json)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
    elif result.right:
        command = Path(sys.argv[0]).name if shutil.which("tenure") else f"{sys.executable} -m tenure"
        click.echo("All is right: never two leaders, and never long without one.\n")
        click.echo("Next, lead with a program of your own. Start this in two terminals, and stop one of them:\n")
        click.echo(_EXAMPLE)
        click.echo("In production it is a bucket that they share; this proves that yours will do:")
        click.echo(f"    {command} doctor s3://your-bucket/some-prefix")
    else:
        click.echo("Something is wrong; the lines above say what. Please report it with this machine's file system.")
    return 0 if result.right else 1
