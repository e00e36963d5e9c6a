"""`tenure counter top`: the records that were counted most. Only reads, and asks nobody."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tenure.cli.counter_place import FIELD, Counters, counted, open_counters, plain, shown, tell
from tenure.cli.numbers import Whole
from tenure.cli.queue_look import look_again, watchable
from tenure.cli.queue_place import QueueCommand
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_text import local
from tenure.cli.schedule_times import moment_from
from tenure.cli.settings import Refusal
from tenure.cli.text import console_for_output, marked, show_json
from tenure.observe.printable import json_text, printable
from tenure.plugins.counters import Counter, Period, Top
from tenure.plugins.counters.looking import MAX_TOP, looked, top_of
from tenure.plugins.counters.state import CountersMachine

_LATEST_MS = 253_370_764_800_000
PERIODS = tuple(each.value for each in Period)


class Ranking(msgspec.Struct, frozen=True):
    resource: str
    field: str
    counter: Counter
    period: str
    at_ms: int
    timezone: str
    top: list[Top]

    def flat(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "field": self.field,
            "counted_as": self.counter.word,
            "period": self.period,
            "at_ms": None if self.period == Period.ALL.value else self.at_ms,
            "timezone": self.timezone,
            "top": [
                {"id": each.id, "value": plain(self.counter, each.value), "calls": each.calls} for each in self.top
            ],
        }

    def words(self) -> str:
        """Of what time it tells."""
        if self.period == Period.ALL.value:
            return "yet"
        return f"in the {self.period} of {local(self.at_ms, self.timezone)}"

    def table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for title, justify in (("", "right"), ("record", "left"), (marked(self.field), "right"), ("calls", "right")):
            table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for place, each in enumerate(self.top, 1):
            table.add_row(str(place), f"[bold]{marked(each.id)}[/]", marked(shown(each.value)), f"[dim]{each.calls}[/]")
        return table


@click.command("top", cls=QueueCommand, short_help="Rank the records by what was counted.")
@counted
@FIELD
@click.option("-n", "count", type=Whole(1, MAX_TOP), default=10, show_default=True, help="So many records.")
@click.option(
    "--period", type=click.Choice(PERIODS), default=Period.ALL.value, show_default=True, help="Counted in which time."
)
@click.option("--at", metavar="TIME", help="In which hour, day, week or month.  [default: this one]")
@watchable
def top(
    url: str,
    resource: str,
    field: str,
    name: str | None,
    count: int,
    period: str,
    at: str | None,
    watch: bool,
    interval: float,
    lasting: float | None,
    as_json: bool,
) -> int:
    """Rank the records of RESOURCE at URL by what was counted of FIELD: ever, or in an hour, day, week or month.

    Only reads: what leaders have folded, within some seconds of what was added. An amount belongs to the time in which
    it was folded. TIME is a day or a time, such as 2026-03-28 or 2026-03-28T12:00Z; without an offset in the time zone
    of the counters.

    \b
      tenure counter top s3://bucket/app pages views -n 20 --period day
      tenure counter top s3://bucket/app pages views --period hour --watch

    Exit code 0: here they are, if any; 1: nothing is counted there, or no such field; 2: it could not be told.
    """
    chosen = Period(period)
    if at is not None and chosen is Period.ALL:
        raise Refusal("--at goes with --period hour, day, week or month")
    try:
        run_until_stopped(_top(url, resource, field, name, count, chosen, at, (interval, lasting, watch), as_json))
    except click.Abort:
        if not watch:
            raise
    return 0


async def _top(
    url: str,
    resource: str,
    field: str,
    name: str | None,
    count: int,
    period: Period,
    at: str | None,
    watching: tuple[float, float | None, bool],
    as_json: bool,
) -> None:
    interval, lasting, watch = watching
    async with open_counters(url, resource, name) as there:
        counter = there.fields(field)[field]
        timezone = str(there.zone)
        at_ms = moment_from("--at", at, timezone) if at is not None else None
        if at_ms is not None and not 0 <= at_ms < _LATEST_MS:
            raise Refusal(f"--at is {at!r:.60}: give a time from 1970 to 9998")

        async def look() -> Ranking:
            when, found = await _ranked(there, field, count, period, at_ms)
            return Ranking(resource, field, counter, period.value, when, timezone, found)

        if not watch:
            ranking = await look()
            _show(ranking, as_json)
            if not ranking.top and not as_json:
                tell(await there.unread())
            return
        with _view(as_json) as show:
            await look_again(look, show, interval, lasting)


async def _ranked(there: Counters, field: str, count: int, period: Period, at_ms: int | None) -> tuple[int, list[Top]]:
    when = at_ms if at_ms is not None else there.now_ms(await there.view.refresh())

    async def rank(machine: CountersMachine) -> list[Top]:
        if field not in machine.counters:
            return []
        return await top_of(there.store, machine, field, count, period, when, there.zone)

    return when, await looked(there.view, rank)


def _show(found: Ranking, as_json: bool) -> None:
    if as_json:
        show_json(found.flat())
    elif found.top:
        console_for_output().print(found.table())
    else:
        click.echo(printable(f"no leader has counted anything of {found.field!r} {found.words()}"))


@contextlib.contextmanager
def _view(as_json: bool) -> Iterator[Callable[[Ranking], None]]:
    if not as_json and sys.stdout.isatty():
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            yield lambda found: live.update(found.table(), refresh=True)
        return
    last: list[object] = []

    def show(found: Ranking) -> None:
        if as_json:
            click.echo(json_text(found.flat(), indent=None))
        elif last != [found.top]:
            last[:] = [found.top]
            _show(found, False)
        sys.stdout.flush()

    yield show
