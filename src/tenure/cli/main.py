"""The `tenure` command and what all of its parts share: errors, exit codes, output.

Exit codes: 0 as hoped, 1 the answer is no (unfit, a violation found), 2 it could not be told or was asked wrongly.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

import click

from tenure._version import __version__
from tenure.cli.demo import demo
from tenure.cli.doctor import doctor
from tenure.errors import TenureError

EXIT_UNCLEAR = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="tenure")
@click.option("--debug", is_flag=True, help="Show the whole stack trace of an error.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """One leader for a fleet of processes, on nothing but a bucket.

    A store is named by a URL: file:///dir, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix. Exit codes: 0
    as hoped, 1 the answer is no, 2 it could not be told or was asked wrongly.
    """
    context.obj = {"debug": debug}


cli.add_command(doctor)
cli.add_command(demo)


def run(arguments: list[str]) -> int:
    """Run the command, print errors as one sentence, and give the exit code."""
    debug = "--debug" in arguments[:1] or os.environ.get("TENURE_DEBUG") == "1"
    try:
        code = cli.main(arguments, prog_name="tenure", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return EXIT_UNCLEAR
    except TenureError as error:
        if debug:
            raise
        click.echo(f"tenure: {error}", err=True)
        return EXIT_UNCLEAR
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    code = run(sys.argv[1:])
    # The interpreter is not taken down: obstore's threads may abort the process if they are busy meanwhile, and the
    # exit code would be lost.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError, ValueError):
            stream.flush()
    os._exit(code)
