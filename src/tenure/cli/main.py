"""The `tenure` command and what all of its parts share: errors, exit codes, output.

Exit codes: 0 as hoped, 1 the answer is no (unfit, a violation found), 2 it could not be told or was asked wrongly.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import click

from tenure._version import __version__
from tenure.cli import output, settings, trace
from tenure.errors import ConfigError, TenureError
from tenure.observe.printable import printable
from tenure.store.url import redact

EXIT_UNCLEAR = 2
EXIT_INTERRUPTED = 130
_LONGEST_WORD = 300
_MAX_SHOWN = 80
_quiet = logging.NullHandler()

_EPILOG = """\b
Exit codes:
  0    as hoped
  1    the answer is no: unfit, nobody leads, refused, damage found
  2    it could not be told or was asked wrongly, or nobody reads the output
  130  interrupted

\b
Environment (below the command line, above tenure.toml):
  TENURE_URL         the store
  TENURE_NAMESPACE   which election on it
  TENURE_WORKER_ID   this machine's name in it, for `run` and `queue work`
  TENURE_CONFIG      the file to read instead of ./tenure.toml
  TENURE_DEBUG       1: stack traces
"""


SECTIONS = {
    "Try": {"demo": "demo:demo", "doctor": "doctor:doctor", "plan": "plan:plan", "simulate": "simulate:simulate"},
    "Look": {
        "status": "status:status",
        "watch": "watch:watch",
        "workers": "workers:workers",
        "dashboard": "dashboard:dashboard",
        "audit": "audit:audit_command",
    },
    "Act": {"run": "run:run", "step-down": "step_down:step_down", "transfer": "transfer:transfer", "gc": "gc:gc"},
    "Work": {"queue": "queue:queue", "schedule": "schedule:schedule", "counter": "counter:counter"},
}
"""By name: the module of `tenure.cli`, and the command in it. A command is imported when it is asked for: to import all
of them takes longer than most of them do."""


class Commands(click.Group):
    """The commands by what they are for, in the order in which somebody meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            place = next((section[cmd_name] for section in SECTIONS.values() if cmd_name in section), None)
            if place is None:
                return None
            module, _, name = place.partition(":")
            command: click.Command = getattr(import_module(f"tenure.cli.{module}"), name)
            _take_debug(command)
            self.add_command(command, cmd_name)
        return self.commands[cmd_name]

    def all_commands(self, ctx: click.Context) -> dict[str, click.Command]:
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {name: command for name, command in found.items() if command is not None}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = self.all_commands(ctx)
        longest = max(map(len, commands))
        limit = formatter.width - longest - 6
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), commands[name].get_short_help_str(limit)) for name in names])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(self.list_commands(ctx))}"
            ctx.fail(f"there is no command {args[0][:60]!r}: {hint}")
        return super().resolve_command(ctx, args)


def _take_debug(command: click.Command) -> None:
    """`--debug` is added once something went wrong, and then at the end of the line."""

    def callback(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            _set_debug(True)

    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _take_debug(inner)

    command.params.append(
        click.Option(["--debug"], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=callback)
    )


@click.group(
    cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="tenure")
@click.option(
    "--config",
    envvar="TENURE_CONFIG",
    metavar="FILE",
    help="Settings to read.  [default: tenure.toml in the working directory, if there]",
)
@click.option("--debug", is_flag=True, envvar="TENURE_DEBUG", help="Show the whole stack trace of an error.")
@click.pass_context
def cli(context: click.Context, config: str | None, debug: bool) -> None:
    """One leader for a fleet of processes, on nothing but a bucket.

    A store is named by a URL: file:///dir, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix. It is given
    on the command line, by TENURE_URL, or as url in tenure.toml.
    """
    _set_debug(debug)
    _read_settings(context, config)


def _read_settings(context: click.Context, config: str | None) -> None:
    group = context.command
    assert isinstance(group, Commands)
    path = settings.find(config)
    if path is None:
        return
    commands = group.all_commands(context)  # every key of the file is checked against what they take
    try:
        found = settings.load(path, commands)
    except ConfigError as error:
        # Not yet: the command may be one that takes nothing from it, or be asked for its help.
        context.default_map = {
            name: settings.Broken(error, command) for name, command in commands.items() if settings.uses_file(command)
        }
        return
    context.default_map = found.default_map(commands)
    context.meta[settings.FILE_READ] = found.file
    context.meta[settings.COORDINATOR_TABLE] = found.coordinator


def _set_debug(debug: bool) -> None:
    trace.want(debug)
    logger = logging.getLogger("tenure")
    if debug:
        logger.removeHandler(_quiet)
    else:
        logger.addHandler(_quiet)  # a command says what matters by itself


def run(arguments: list[str]) -> int:
    """Run the command, print errors as one sentence, and give the exit code."""
    trace.want(False)
    output.begin()
    try:
        code = cli.main(arguments, prog_name="tenure", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except SystemExit:
        return EXIT_UNCLEAR  # so click and rich say that whoever read our output has gone; nobody else raises it
    except click.Abort:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        return _asked_wrongly(error)
    except click.ClickException as error:
        return _failed(f"tenure: {_on_one_line(error.format_message())}")
    except TenureError as error:
        return _failed(f"tenure: {error}")
    except BrokenPipeError:
        return EXIT_UNCLEAR  # whoever read our output has gone, and would not read a complaint either
    except OSError as error:
        if error.filename == output.NAME:
            return _failed(f"tenure: {output.complaint(error)}")
        place = f"{error.filename}: " if error.filename else ""
        return _failed(f"tenure: {place}{error.strerror or error}")
    except Exception as error:
        return _failed(f"tenure: this is a defect of tenure ({type(error).__name__}: {error}): report it with --debug")
    return code if isinstance(code, int) else 0


def _asked_wrongly(error: click.UsageError) -> int:
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())) or not error.format_message():
        error.show()  # the help itself
        return EXIT_UNCLEAR
    code: int = getattr(error.ctx.command if error.ctx is not None else None, "asked_wrongly", EXIT_UNCLEAR)
    if isinstance(error, settings.Refusal):
        return _failed(f"tenure: {error.message}", code)
    origin = settings.where_from(error.ctx, getattr(error, "param", None))
    sentence = f"tenure: {_on_one_line(redact(error.format_message()))}" + (f" ({origin})" if origin else "")
    hint = f"Try '{error.ctx.command_path} --help'." if error.ctx is not None else ""
    return _failed(sentence, code, hint)


def _on_one_line(message: str) -> str:
    """click lists what may be chosen on lines of their own, and repeats all that it was given."""
    return " ".join(word if len(word) <= _LONGEST_WORD else word[:_MAX_SHOWN] + "…" for word in message.split())


def _failed(sentence: str, code: int = EXIT_UNCLEAR, hint: str = "") -> int:
    """Say it in one sentence, with the stack trace only if it was asked for."""
    trace.show()
    click.echo(printable(sentence), err=True)  # it may hold what somebody wrote to the bucket
    if hint:
        click.echo(hint, err=True)
    return code


def _open_what_is_closed() -> None:
    """Whoever started us may have closed 0, 1 or 2. What we open would take their numbers, and be written to."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(descriptor, True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - until the process ends


def main() -> NoReturn:
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that cannot be shown is no reason to show nothing
    output.name_it()
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    # The interpreter is not taken down: obstore's threads may abort the process if they are busy meanwhile, and the
    # exit code would be lost.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.filename == output.NAME and error.errno != errno.EPIPE and not code:
                _failed(f"tenure: {output.complaint(error)}")
            code = code or EXIT_UNCLEAR  # what was to be said was not
    os._exit(code)
