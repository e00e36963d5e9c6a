"""`tenure run`: somebody else's program, on at most one machine."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import Any

import click

from tenure.cli import trace
from tenure.cli.durations import between
from tenure.cli.numbers import Whole
from tenure.cli.place import placed
from tenure.cli.settings import Refusal
from tenure.cli.timing import config_from, timed
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.config import MAX_PRIORITY
from tenure.coordinator.layout import folder_of
from tenure.entropy import new_id
from tenure.errors import ConfigError, TenureError
from tenure.plugins.supervisor.command import Background
from tenure.plugins.supervisor.restarts import RestartPolicy
from tenure.run.plan import EXIT_FAILED, OnLost, RunPlan, When
from tenure.run.readiness import Systemd
from tenure.run.session import RunSession
from tenure.run.telling import Teller, Voice, to_standard_error

_COMMAND = "tenure.run.command"
_NO_PROGRAM = "there is no CMD: give it after --, as in `tenure run URL -- CMD [ARGUMENT]...`"
_MAX_HOST = 60


class _RunCommand(click.Command):
    """What stands after `--` is the program's own, whatever it looks like; before it stand our options and URL."""

    asked_wrongly = EXIT_FAILED
    """2, as of the other commands, might be the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, program = args[:at], args[at + 1 :]
        else:
            program = []
        ctx.meta[_COMMAND] = tuple(program)
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # which click leaves out for some, and the exit code is that of this command
            if not program and "unexpected extra" in error.message:
                raise Refusal(_NO_PROGRAM, ctx) from None
            raise
        if not program and not ctx.resilient_parsing:
            raise Refusal(_NO_PROGRAM, ctx)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- CMD [ARGUMENT]..."]


@click.command(cls=_RunCommand, short_help="Run a program on one machine at most.")
@placed
@timed
@click.option("--worker-id", envvar="TENURE_WORKER_ID", help="The name of this machine here.  [default: made up]")
@click.option(
    "--membership/--no-membership",
    default=False,
    show_default=True,
    help="Keep a record of every machine, for `tenure workers` and --priority; costs more requests.",
)
@click.option("--priority", type=Whole(-MAX_PRIORITY, MAX_PRIORITY), help="Higher is elected first; with --membership.")
@click.option(
    "--restart",
    "when",
    type=click.Choice([each.value for each in When]),
    default=When.NEVER.value,
    show_default=True,
    help="When CMD is started again here. never: its end gives the lease back, and its exit code is ours.",
)
@click.option("--max-restarts", type=Whole(0, 1000), default=5, show_default=True, help="Within a minute.")
@click.option(
    "--stop-within",
    type=between(0.1, 3600),
    default="10s",
    show_default=True,
    help="From SIGTERM to SIGKILL; less where the lease leaves less.",
)
@click.option(
    "--on-lost",
    type=click.Choice([each.value for each in OnLost]),
    default=OnLost.STAND.value,
    show_default=True,
    help="When leadership ended, and CMD with it: stand by again, or exit with 75.",
)
@click.option(
    "--background",
    type=click.Choice([each.value for each in Background]),
    default=Background.FOLLOW.value,
    show_default=True,
    help="When CMD has exited with 0 and left processes: end them, or follow them as CMD.",
)
@click.option("--health-cmd", metavar="SHELL", help="A machine on which this shell command fails does not lead.")
@click.option(
    "--health-interval", type=between(0.2, 3600), default="5s", show_default=True, help="How often it is run."
)
@click.option(
    "--health-timeout",
    type=between(0.1, 600),
    help="Longer counts as failed.  [default: 3s, or 0.6 of a shorter interval]",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Is there, with epoch and pid as JSON, while CMD runs here.",
)
@click.option("--quiet", is_flag=True, help="Say only what is wrong.")
@click.option("--json", "as_json", is_flag=True, help="Say what happens as JSON, one object a line, on standard error.")
@click.pass_context
def run(
    context: click.Context,
    url: str,
    namespace: str,
    preset: str | None,
    lease: float | None,
    settings: tuple[str, ...],
    worker_id: str | None,
    membership: bool,
    priority: int | None,
    when: str,
    max_restarts: int,
    stop_within: float,
    on_lost: str,
    background: str,
    health_cmd: str | None,
    health_interval: float,
    health_timeout: float | None,
    ready_file: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run CMD on at most one of all the machines that run this, and on another one when this one fails.

    CMD and all that it started have ended before another machine may start it, also if this process is frozen or
    killed. It is given TENURE_EPOCH, TENURE_TOKEN, TENURE_NAMESPACE and TENURE_WORKER_ID. SIGTERM, SIGINT and SIGQUIT
    end it and then us; SIGHUP, SIGUSR1, SIGUSR2 and SIGWINCH are passed on.

    Exit code: that of CMD (128 + n if signal n ended it); 0 if we were told to end while it did not run; 75 with
    --on-lost exit; 125 if tenure failed; 126 if CMD cannot be executed; 127 if it was not found.

    \b
      tenure run s3://bucket/app -- celery -A proj beat
      tenure run s3://bucket/app --lease 3s --restart on-failure -- ./consumer --verbose
    """
    argv: tuple[str, ...] = context.meta[_COMMAND]
    voice = Voice.JSON if as_json else Voice.QUIET if quiet else Voice.LINES
    tell = Teller(voice, SYSTEM_CLOCK, to_standard_error)
    systemd = Systemd(os.environ, os.getpid())
    try:
        folder_of(namespace)
        changes: dict[str, Any] = {} if priority is None else {"priority": priority}
        if priority is not None and not membership:
            raise ConfigError("--priority is only heeded with --membership: nobody ranks who is not on record")
        if health_cmd is not None:
            _check_shell(health_cmd)
            if health_timeout is not None and health_timeout >= health_interval:
                raise ConfigError(
                    f"--health-timeout is {health_timeout:g}s: it must be under --health-interval, {health_interval:g}s"
                )
            changes["health_check_interval"] = health_interval
        config = config_from(
            preset,
            lease,
            settings,
            membership=membership,
            worker_id=_made_up() if worker_id is None else worker_id,
            **changes,
        )
        plan = RunPlan(
            argv=argv,
            when=When(when),
            restarts=RestartPolicy(max_restarts=max_restarts),
            stop_within=stop_within,
            on_lost=OnLost(on_lost),
            background=Background(background),
            ready_file=ready_file,
            health_cmd=health_cmd,
            health_within=health_timeout if health_timeout is not None else min(3.0, 0.6 * health_interval),
            has_terminal=any(os.isatty(stream) for stream in (0, 1, 2)),
        )
        session = RunSession(
            plan, url, namespace, config, tell=tell, systemd=systemd, show_health_output=trace.is_wanted()
        )
        return asyncio.run(session.run())
    except TenureError as error:
        trace.show()
        tell("failed", str(error), wrong=True)
        return EXIT_FAILED


def _made_up() -> str:
    """For people, who look for the machine."""
    host = os.uname().nodename[:_MAX_HOST]
    return f"{host if host.isprintable() and host.strip() else 'host'}-{new_id()[:6]}"


def _check_shell(line: str) -> None:
    try:
        empty = not shlex.split(line, comments=True)
    except ValueError as error:
        raise ConfigError(f"--health-cmd is {line!r}: {error}") from None
    if empty:
        raise ConfigError(f"--health-cmd is {line!r}: give a shell command, such as 'curl -fs localhost:8080/healthz'")
