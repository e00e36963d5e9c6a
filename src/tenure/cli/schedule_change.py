"""`tenure schedule run`, `pause` and `resume`: a command for the leader, and what it decides.

What they write is durable when they return. A leader need not be alive for that, and nothing happens until one is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable

import click
import msgspec

from tenure.cli import output
from tenure.cli.durations import between
from tenure.cli.queue_look import AS_JSON
from tenure.cli.queue_place import QueueCommand, say_no
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_place import ensure_known, open_schedule, read_on, scheduled, unread
from tenure.cli.schedule_text import lasting, local, utc, word_of
from tenure.cli.settings import Refusal
from tenure.cli.text import show_json
from tenure.clock import SYSTEM_CLOCK
from tenure.errors import RequestNotAnswered, RequestRefused
from tenure.ledger import LedgerState
from tenure.observe.ledgers import why_nobody
from tenure.observe.printable import printable
from tenure.observe.schedule_orders import asking
from tenure.plugins.scheduler import OccurrenceRecord, SchedulerPlugin, State
from tenure.plugins.scheduler.looking import job_of, record_of
from tenure.plugins.scheduler.state import ScheduleMachine

DECIDED_WITHIN = 30.0
ENDED_WITHIN = 3600.0
LONGEST_WAIT = 7 * 86400.0
_POLL = 0.1
_LONGEST_POLL = 1.0

TIMEOUT = click.option(
    "--timeout", type=between(0.1, LONGEST_WAIT), default="30s", show_default=True, help="How long to wait for that."
)
NO_WAIT = click.option("--no-wait", is_flag=True, help="Do not wait for the leader's decision: it is durable.")


class Asked(msgspec.Struct, frozen=True):
    """What a command that asks something of a schedule prints with `--json`. It is durable if it is printed at all."""

    schedule: str
    op: str
    job: str | None
    """`None`: all of them."""
    decided: bool
    """The leader has followed it. False: nobody looked (`--no-wait`), or nobody has decided in time."""
    told: str
    """The same in words."""
    run: str | None = None
    record: OccurrenceRecord | None = None
    """Of a run: how far it has come."""


# run


@click.command("run", cls=QueueCommand, short_help="Run a job now, whatever its times are.")
@scheduled
@click.argument("job")
@click.option(
    "--wait/--no-wait",
    "wait",
    default=None,
    help="Wait until the run has ended; or not even until it is decided on.  [default: until it has begun]",
)
@click.option(
    "--timeout",
    type=between(0.1, LONGEST_WAIT),
    metavar="DURATION",
    help="How long to wait in all.  [default: 30s; with --wait 1h]",
)
@AS_JSON
def run_job(url: str, name: str, job: str, wait: bool | None, timeout: float | None, as_json: bool) -> int:
    """Have JOB of the schedule at URL run once, now, whatever its times are and also if it is paused or disabled.

    Whoever leads runs it as at any of its times, with its timeout and its retries. Printed is the id of the run, which
    is `Run.id` in the job itself. Refused if a run of the job is open, unless its overlap policy allows another.

    Exit code 0: it runs, or with --wait it has succeeded; 1: refused, or with --wait it failed, or there is no such
    job; 2: not clear: nobody has decided in time, or with --wait it has not ended in time.
    """
    patience = timeout if timeout is not None else ENDED_WITHIN if wait else DECIDED_WITHIN
    asked, code = run_until_stopped(_run(url, name, job, wait, patience))
    return _say(asked, code, as_json)


async def _run(url: str, name: str, job: str, wait: bool | None, timeout: float) -> tuple[Asked, int]:
    began = SYSTEM_CLOCK.read()
    await _look_first(url, name, job)
    drawn: list[str] = []

    async def ask(schedule: SchedulerPlugin) -> None:
        drawn.append(await schedule.run_now(job, wait=wait is not False, within=timeout))

    asked = Asked(name, "run", job, False, "")
    unanswered = await _ask(url, name, ask, timeout, asked)
    if unanswered is not None:
        return unanswered, 2
    asked = msgspec.structs.replace(asked, run=drawn[0])
    if wait is False:
        told = f"{job!r} is run once the schedule's leader reads it: durable, as {drawn[0]}"
        return msgspec.structs.replace(asked, told=told), 0
    left = timeout - SYSTEM_CLOCK.read().leader_elapsed(began)
    record = await _follow(url, name, drawn[0], max(0.0, left) if wait else 0.0)
    asked = msgspec.structs.replace(asked, decided=True, record=record)
    told, code = _came_of(job, record, drawn[0], bool(wait), timeout)
    return msgspec.structs.replace(asked, told=told), code


async def _follow(url: str, name: str, run: str, timeout: float) -> OccurrenceRecord | None:
    """The record of a run, as soon as it is over or so much time has passed; `None`: it is forgotten already."""
    clock, state = SYSTEM_CLOCK, unread()
    began, pause = clock.read(), _POLL
    async with open_schedule(url, name) as store:
        while True:
            machine = await read_on(store, state)
            found = machine.records_of(run.partition("#")[0])
            record = next((record_of(each) for each in found if each.run == run), None)
            left = timeout - clock.read().leader_elapsed(began)
            if record is None or record.state == State.DONE.value or left <= 0:
                return record
            await clock.sleep(min(pause, left))
            pause = min(_LONGEST_POLL, pause * 1.3)


def _came_of(job: str, record: OccurrenceRecord | None, run: str, waited: bool, timeout: float) -> tuple[str, int]:
    if record is None:
        return f"{job!r} has run, as {run}, and its record is gone already", 2 if waited else 0
    where = f"on {record.worker}, token {record.token}"
    if record.state != State.DONE.value:
        how = "runs" if record.state == State.RUNNING.value else f"is {record.state}"
        where = where if record.token else "begun as soon as what runs has ended"
        told = f"{job!r} {how}, {where}, as {run}"
        return (f"{told}: not over after {timeout:g} s, and goes on", 2) if waited else (told, 0)
    took = lasting(record.finished_ms - record.started_ms)
    if record.outcome == "fired":
        return f"{job!r} succeeded after {took}, {where}, as {run}", 0
    attempts = f" after {record.attempts} attempts" if record.attempts > 1 else ""
    return f"{job!r} {word_of(record)}{attempts}, {where}, as {run}: {record.error}", 1 if waited else 0


# pause and resume


@click.command(cls=QueueCommand, short_help="Have a job, or all, not fire until `resume`.")
@scheduled
@click.argument("job", required=False)
@click.option("--all", "every", is_flag=True, help="Everything, whatever is added meanwhile too.")
@NO_WAIT
@TIMEOUT
@AS_JSON
def pause(url: str, name: str, job: str | None, every: bool, no_wait: bool, timeout: float, as_json: bool) -> int:
    """Have JOB of the schedule at URL, or with --all every job, not fire until `resume`. What runs goes on to its end.

    Times that pass meanwhile are no occurrences: nothing is made up for. What was due before is decided before.

    Exit code 0: done; 1: there is no such job, or schedule; 2: not clear, or no leader has decided on it in time.
    """
    return _pause_or_resume("pause", url, name, job, every, no_wait, timeout, as_json)


@click.command(cls=QueueCommand, short_help="Have a job, or all, fire again.")
@scheduled
@click.argument("job", required=False)
@click.option("--all", "every", is_flag=True, help="After `pause --all`; jobs that are paused by themselves stay so.")
@NO_WAIT
@TIMEOUT
@AS_JSON
def resume(url: str, name: str, job: str | None, every: bool, no_wait: bool, timeout: float, as_json: bool) -> int:
    """Have JOB of the schedule at URL fire again after `pause`, from its next time on; with --all after `pause --all`.

    Exit code 0: done; 1: there is no such job, or schedule; 2: not clear, or no leader has decided on it in time.
    """
    return _pause_or_resume("resume", url, name, job, every, no_wait, timeout, as_json)


def _pause_or_resume(
    op: str, url: str, name: str, job: str | None, every: bool, no_wait: bool, timeout: float, as_json: bool
) -> int:
    if (job is not None) == every:
        raise Refusal("which job? Name it, or give --all for everything")
    asked, code = run_until_stopped(_change(op, url, name, job, not no_wait, timeout))
    return _say(asked, code, as_json)


async def _change(op: str, url: str, name: str, job: str | None, wait: bool, timeout: float) -> tuple[Asked, int]:
    await _look_first(url, name, job)

    async def ask(schedule: SchedulerPlugin) -> None:
        change = schedule.pause if op == "pause" else schedule.resume
        await change(job, wait=wait, within=timeout)

    asked = Asked(name, op, job, False, "")
    unanswered = await _ask(url, name, ask, timeout, asked)
    if unanswered is not None:
        return unanswered, 2
    if not wait:
        told = f"{op} of {_what(asked)}: durable; it takes effect when the schedule's leader reads it"
        return msgspec.structs.replace(asked, told=told), 0
    state = unread()
    async with open_schedule(url, name) as store:
        machine = await read_on(store, state)
    told = _paused(asked, machine) if op == "pause" else _resumed(asked, machine, state)
    return msgspec.structs.replace(asked, decided=True, told=told), 0


def _what(asked: Asked) -> str:
    return repr(asked.job) if asked.job is not None else f"everything in {asked.schedule!r}"


def _paused(asked: Asked, machine: ScheduleMachine) -> str:
    runs = len(list(machine.of(asked.job))) if asked.job is not None else len(machine.open)
    rest = f"; {runs:,} {'run goes' if runs == 1 else 'runs go'} on" if runs else ""
    if asked.job is not None:
        return f"{_what(asked)} is paused: nothing of it fires until `tenure schedule resume`{rest}"
    return f"{_what(asked)} is paused: nothing fires until `tenure schedule resume --all`{rest}"


def _resumed(asked: Asked, machine: ScheduleMachine, state: LedgerState) -> str:
    if asked.job is None:
        left = sum(each.paused for each in machine.jobs.values())
        rest = f"; {left:,} {'job is' if left == 1 else 'jobs are'} paused by {'itself' if left == 1 else 'themselves'}"
        return f"{_what(asked)} fires again{rest if left else ''}"
    if machine.paused:
        return f"{asked.job!r} is resumed, and everything is paused: `tenure schedule resume --all` goes on"
    if asked.job not in machine.jobs:
        return f"{asked.job!r} was resumed, and has been removed meanwhile"
    view = job_of(state, asked.job, state.time_ms)
    if view.next_ms is None:
        return f"{asked.job!r} is resumed, and will not fire any more"
    return f"{asked.job!r} is resumed: next at {local(view.next_ms, view.timezone)} ({utc(view.next_ms)})"


# Asking


async def _look_first(url: str, name: str, job: str | None) -> None:
    """Opening for writing makes a directory that is missing; to command nobody nothing should be made."""
    async with open_schedule(url, name) as store:
        machine = await read_on(store, unread())
    if job is not None:
        ensure_known(job, machine.jobs, name)


async def _ask(
    url: str, name: str, ask: Callable[[SchedulerPlugin], Awaitable[None]], timeout: float, asked: Asked
) -> Asked | None:
    """`None`: it was followed, or is not waited for. Says no if the leader does."""
    if sys.stderr.isatty():
        click.echo(f"waiting for the leader of the schedule to read it ({timeout:g} s at most)", err=True)
    async with asking(url, name, f"tenure schedule on {os.uname().nodename}") as schedule:
        try:
            await ask(schedule)
        except RequestNotAnswered:
            why = await _why(url, name)
            told = (
                f"{asked.op} of {_what(asked)}: durable, and nobody has decided on it in {timeout:g} s: {why}. It is "
                "followed once somebody leads who has this schedule"
            )
            return msgspec.structs.replace(asked, told=told)
        except RequestRefused as refused:
            say_no(f"refused: {refused}")
    return None


async def _why(url: str, name: str) -> str:
    state = unread()
    async with open_schedule(url, name) as store:
        await read_on(store, state)
    return await why_nobody(url, state)


def _say(asked: Asked, code: int, as_json: bool) -> int:
    output.carried_out(output.DONE if asked.decided else output.DURABLE)
    if as_json:
        show_json(asked)
    else:
        click.echo(printable(asked.told))
    return code
