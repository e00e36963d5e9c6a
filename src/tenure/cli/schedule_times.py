"""`tenure schedule next`: when a job, or any cron expression, fires, with clock changes spelled out. Only reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console

from tenure.cli.numbers import Whole
from tenure.cli.place import NO_URL
from tenure.cli.queue_look import AS_JSON
from tenure.cli.queue_place import QueueCommand
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_place import ensure_known, now_ms, open_schedule, perhaps_scheduled, read_on, unread, wall_ms
from tenure.cli.schedule_text import Line, lasting, local, show_lines, utc, utc_beside, when
from tenure.cli.settings import Refusal
from tenure.cli.text import console_for_output, show_json
from tenure.observe.printable import printable
from tenure.plugins.scheduler import Dst, Fire, Job, cron
from tenure.plugins.scheduler.job import Cron, FunctionTarget
from tenure.plugins.scheduler.looking import fires_of
from tenure.plugins.scheduler.schedule import zone_of
from tenure.plugins.scheduler.timetable import MAX_FIRES, timetable_of


@click.command("next", cls=QueueCommand, short_help="Tell a job's next times, clock changes spelled out.")
@perhaps_scheduled
@click.argument("job", required=False)
@click.option("-n", "--count", type=Whole(1, MAX_FIRES), default=10, show_default=True, help="So many.")
@click.option("--after", metavar="TIME", help="From then on, such as 2026-03-28 or 2026-03-28T12:00Z.  [default: now]")
@click.option("--cron", "text", metavar="TEXT", help="No job, but an expression: needs no store.")
@click.option("--timezone", metavar="ZONE", help="Of --cron, such as Europe/Berlin.  [default: UTC]")
@click.option(
    "--dst",
    type=click.Choice([each.value for each in Dst]),
    help="Of --cron: what a time does that does not exist, or comes twice.  [default: once]",
)
@AS_JSON
@click.pass_context
def next_times(
    context: click.Context,
    url: str | None,
    job: str | None,
    name: str,
    count: int,
    after: str | None,
    text: str | None,
    timezone: str | None,
    dst: str | None,
    as_json: bool,
) -> int:
    """Tell when JOB of the schedule at URL fires next: local time, UTC, and what a change of the clocks does to it.

    Only reads. Times are without jitter, and as if the job were neither paused nor disabled. With --cron it is a
    preview of an expression, and no store is needed.

    \b
      tenure schedule next s3://bucket/app nightly
      tenure schedule next --cron "30 2 * * *" --timezone Europe/Berlin --after 2026-03-28 -n 3

    Exit code 0: here they are, if any; 1: there is no such job, or schedule; 2: asked wrongly, or it could not be told.
    """
    if text is not None:
        typed = context.get_parameter_source("url") is ParameterSource.COMMANDLINE
        if job is not None or (typed and url is not None):
            raise Refusal("--cron and a JOB or URL: give one of them; --cron is a preview that needs no store")
        found = _preview(cron(text, "UTC" if timezone is None else timezone, dst or Dst.ONCE), count, after)
    else:
        for option, value in (("--timezone", timezone), ("--dst", dst)):
            if value is not None:
                raise Refusal(f"{option} goes with --cron, and a job has its own: leave it out")
        if job is None:
            raise Refusal("which job? Give URL and JOB, or an expression by --cron")
        if url is None:
            raise Refusal(NO_URL)
        found = run_until_stopped(_next(url, name, job, count, after))
    if as_json:
        show_json(found.flat())
    else:
        found.show(console_for_output())
    return 0


class Times(msgspec.Struct, frozen=True):
    """What `tenure schedule next` tells."""

    schedule: str | None
    job: str | None
    when: str
    timezone: str
    remark: str
    fires: list[Fire]
    now_ms: int

    def flat(self) -> dict[str, Any]:
        fires = [
            {"at_ms": each.at_ms, "utc": utc(each.at_ms, exact=True), "local": each.local, "note": each.note}
            for each in self.fires
        ]
        return {
            "schedule": self.schedule,
            "job": self.job,
            "when": self.when,
            "timezone": self.timezone,
            "remark": self.remark,
            "fires": fires,
        }

    def show(self, console: Console) -> None:
        if self.remark:
            click.echo(printable(f"tenure: {self.remark}"), err=True)
        if not self.fires:
            click.echo("it does not fire any more")
            return
        in_utc = self.timezone == "UTC"
        header = ("UTC", "", "in") if in_utc else (self.timezone, "UTC", "in")
        lines = [
            Line(
                (
                    f"{_weekday(each.at_ms, self.timezone)} {local(each.at_ms, self.timezone, exact=True)}",
                    utc_beside(each.at_ms, self.timezone, exact=True),
                    lasting(each.at_ms - self.now_ms) if each.at_ms >= self.now_ms else "",
                ),
                each.note,
                {1: "dim", 2: "dim"},
            )
            for each in self.fires
        ]
        show_lines(console, header, lines)


def _weekday(at_ms: int, timezone: str) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, zone_of(timezone)):%a}"


def _preview(schedule: Cron, count: int, after: str | None) -> Times:
    now = wall_ms()
    job = Job(id="preview", schedule=schedule, target=FunctionTarget("preview"))
    fires = timetable_of(job, 0).fires(now if after is None else _moment(after, schedule.timezone), count)
    return Times(None, None, schedule.text, schedule.timezone, "", fires, now)


async def _next(url: str, name: str, id: str, count: int, after: str | None) -> Times:
    async with open_schedule(url, name) as store:
        state = unread()
        machine = await read_on(store, state)
    ensure_known(id, machine.jobs, name)
    known = machine.jobs[id]
    schedule = known.job.schedule
    zone = schedule.timezone if isinstance(schedule, Cron) else "UTC"
    now = now_ms(state)
    if after is None:
        fires = fires_of(state, id, count, now)
    else:
        fires = timetable_of(known.job, known.anchor_ms).fires(_moment(after, zone), count)
    remark = ""
    if not machine.is_active(known):
        why = "not enabled" if not known.job.enabled else "paused" if known.paused else "paused, as everything is"
        remark = f"{id!r} is {why}: these are its times if it were not"
    return Times(name, id, when(schedule), zone, remark, fires, now)


def _moment(text: str, timezone: str) -> int:
    return max(0, moment_from("--after", text, timezone) - 1)  # one at that very time is among those after it


def moment_from(option: str, text: str, timezone: str) -> int:
    """Milliseconds. Without an offset it is local time of that zone."""
    try:
        found = datetime.fromisoformat(text.strip())
        placed = found if found.utcoffset() is not None else found.replace(tzinfo=zone_of(timezone))
        return int(placed.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Refusal(
            f"{option} is {text[:60]!r}: give a day or a time, such as 2026-03-28 or 2026-03-28T12:00Z"
        ) from None
