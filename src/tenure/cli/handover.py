"""What `tenure step-down` and `tenure transfer` share: ask the leader from outside, and say what came of it."""

from __future__ import annotations

import os

import click

from tenure.cli import output
from tenure.cli.durations import between
from tenure.cli.running import run_until_stopped
from tenure.cli.text import show_json
from tenure.clock import SYSTEM_CLOCK
from tenure.observe.handover import Verdict, ask, told
from tenure.observe.printable import printable

TIMEOUT = click.option(
    "--timeout",
    type=between(0.1, 3600),
    default="30s",
    show_default=True,
    help="How long to wait for it (500ms, 30s, 2m). The request itself stays with the leader.",
)
FORCE = click.option(
    "--force",
    is_flag=True,
    help="Also while the leader is inside its min_epoch_duration, or to a worker that is on no record.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print what happened as one JSON object.")


_EXIT = {Verdict.DONE: 0, Verdict.REFUSED: 1, Verdict.UNCLEAR: 2}


def hand_over(
    command: str, url: str, namespace: str, to: str | None, force: bool, timeout: float, as_json: bool
) -> int:
    by = f"tenure {command} on {os.uname().nodename}"
    answer = run_until_stopped(ask(url, namespace, by=by, to=to, force=force, timeout=timeout, clock=SYSTEM_CLOCK))
    if answer.verdict is Verdict.DONE:
        output.carried_out()
    if as_json:
        show_json(answer)
    elif answer.handover is not None:
        click.echo(printable(told(answer.handover)))
    else:
        click.echo(printable(f"tenure: {answer.verdict.value}: {answer.reason}"), err=True)
    return _EXIT[answer.verdict]
