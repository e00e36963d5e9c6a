"""The `tenure` command and what all of its parts share: errors, exit codes, output.

Exit codes: 0 as hoped, 1 the answer is no (unfit, a violation found), 2 it could not be told or was asked wrongly.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import NoReturn

import click

from tenure._version import __version__
from tenure.cli.audit import audit_command
from tenure.cli.demo import demo
from tenure.cli.doctor import doctor
from tenure.cli.gc import gc
from tenure.cli.simulate import simulate
from tenure.cli.status import status
from tenure.cli.step_down import step_down
from tenure.cli.transfer import transfer
from tenure.errors import TenureError

EXIT_UNCLEAR = 2
_settings = {"debug": False}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="tenure")
@click.option("--debug", is_flag=True, envvar="TENURE_DEBUG", help="Show the whole stack trace of an error.")
def cli(debug: bool) -> None:
    """One leader for a fleet of processes, on nothing but a bucket.

    A store is named by a URL: file:///dir, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix; it may come
    from the environment variable TENURE_URL. Exit codes: 0 as hoped, 1 the answer is no, 2 it could not be told or was
    asked wrongly.
    """
    _settings["debug"] = debug
    if not debug:
        logging.getLogger("tenure").addHandler(logging.NullHandler())  # a command says what matters by itself


for command in (doctor, demo, status, step_down, transfer, audit_command, simulate, gc):
    cli.add_command(command)


def run(arguments: list[str]) -> int:
    """Run the command, print errors as one sentence, and give the exit code."""
    _settings["debug"] = False
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
        return _failed(f"tenure: {error}")
    except BrokenPipeError:
        return EXIT_UNCLEAR  # whoever read our output has gone, and would not read a complaint either
    except OSError as error:
        return _failed(f"tenure: {error.strerror or error}")
    except Exception as error:
        return _failed(f"tenure: this is a defect of tenure ({type(error).__name__}: {error}): report it with --debug")
    return code if isinstance(code, int) else 0


def _failed(sentence: str) -> int:
    """Say it in one sentence, with the stack trace only if it was asked for."""
    if _settings["debug"]:
        traceback.print_exc()
    click.echo(sentence, err=True)
    return EXIT_UNCLEAR


def main() -> NoReturn:
    code = run(sys.argv[1:])
    # The interpreter is not taken down: obstore's threads may abort the process if they are busy meanwhile, and the
    # exit code would be lost.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or EXIT_UNCLEAR  # what was to be said was not
    os._exit(code)
