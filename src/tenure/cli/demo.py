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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what was counted as one JSON object.")
def demo(as_json: bool) -> int:
    """Show what tenure stands on, with real processes, in a temporary directory. Exit code 0 only if all is right."""
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as directory:
        result = run_until_stopped(tell(Path(directory), lambda line: click.echo(line, err=as_json)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
    elif result.right:
        click.echo("All is right: nothing lost, nothing counted twice, never two winners.")
        command = Path(sys.argv[0]).name if shutil.which("tenure") else f"{sys.executable} -m tenure"
        click.echo(f"Next, try the store that you mean to use:  {command} doctor s3://your-bucket/some-prefix")
    else:
        click.echo("Something is wrong; the lines above say what. Please report it with this machine's file system.")
    return 0 if result.right else 1
