"""`tenure counter history`: what was counted hour by hour, day by day. Only reads, and asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from tenure.cli.counter_place import counted, open_counters, plain, shown, tell
from tenure.cli.counter_top import PERIODS
from tenure.cli.numbers import Whole
from tenure.cli.queue_look import AS_JSON
from tenure.cli.queue_place import QueueCommand
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_text import Line, local, show_lines
from tenure.cli.settings import Refusal
from tenure.cli.text import console_for_output, show_json
from tenure.database.ids import check_id
from tenure.errors import ConfigError
from tenure.observe.printable import printable
from tenure.plugins.counters import Bucket, Counter, Period, Reducer
from tenure.plugins.counters.fields import check_path
from tenure.plugins.counters.looking import MAX_TOP, history_of, looked, rollup_of
from tenure.plugins.counters.state import CountersMachine


class Story(msgspec.Struct, frozen=True):
    resource: str
    id: str | None
    field: str
    counter: Counter
    timezone: str
    buckets: list[Bucket]
    note: str

    def flat(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "id": self.id,
            "field": self.field,
            "counted_as": self.counter.word,
            "timezone": self.timezone,
            "buckets": [
                {
                    "start_ms": each.start_ms,
                    "start": begun(each, self.timezone),
                    "period": each.period,
                    "adds": each.adds,
                    "added": plain(self.counter, each.added),
                    "subs": each.subs,
                    "subbed": plain(self.counter, each.subbed),
                    "net": plain(self.counter, each.net) if self.is_sum else None,
                    "sets": each.sets,
                }
                for each in self.buckets
            ],
        }

    @property
    def is_sum(self) -> bool:
        return self.counter.reducer is Reducer.SUM


def begun(bucket: Bucket, timezone: str) -> str:
    return "before" if bucket.period == Period.ALL.value else local(bucket.start_ms, timezone)


@click.command("history", cls=QueueCommand, short_help="Tell what was counted by hour, day, week or month.")
@counted
@click.argument("words", nargs=-1, required=True, metavar="[ID] FIELD")
@click.option("--period", type=click.Choice(PERIODS), default=Period.DAY.value, show_default=True, help="By what time.")
@click.option("-n", "count", type=Whole(1, MAX_TOP), default=20, show_default=True, help="At most so many of them.")
@AS_JSON
def history(
    url: str, resource: str, words: tuple[str, ...], name: str | None, period: str, count: int, as_json: bool
) -> int:
    """Tell what was added to, subtracted from and set of FIELD by hour, day, week or month, newest first.

    Of the record ID of RESOURCE at URL; without ID of all of them together. Only reads. Old hours are kept as days, and
    old days as months: of one record such longer times are told then. An amount belongs to the time in which a leader
    folded it, in the time zone of the counters.

    \b
      tenure counter history s3://bucket/app pages views
      tenure counter history s3://bucket/app pages home views --period hour

    Exit code 0: here it is, if anything; 1: nothing is counted there, or no such field; 2: asked wrongly, or it could
    not be told.
    """
    if len(words) > 2:
        raise Refusal(f"history takes [ID] FIELD after RESOURCE, and not {len(words)} words")
    *ids, field = words
    try:
        id = check_id(ids[0]) if ids else None
        check_path(field)
    except ConfigError as error:
        raise Refusal(str(error)) from None
    if id is None and period == Period.ALL.value:
        raise Refusal("--period all is for one record: give its ID, or hour, day, week or month")
    found = run_until_stopped(_history(url, resource, id, field, name, Period(period), count))
    if as_json:
        show_json(found.flat())
    elif found.buckets:
        _show(found)
    else:
        what = repr(id) if id is not None else "any record"
        click.echo(printable(f"no leader has counted anything of {field!r} of {what} yet"))
        tell(found.note)
    return 0


async def _history(
    url: str, resource: str, id: str | None, field: str, name: str | None, period: Period, count: int
) -> Story:
    async with open_counters(url, resource, name) as there:
        counter, zone = there.fields(field)[field], there.zone

        async def look(machine: CountersMachine) -> list[Bucket]:
            if field not in machine.counters:
                return []
            if id is None:
                return rollup_of(machine, field, period, zone, count)
            return await history_of(there.store, machine, id, field, period, zone, count)

        buckets = await looked(there.view, look)
        note = "" if buckets else await there.unread()
        return Story(resource, id, field, counter, str(zone), buckets, note)


def _show(found: Story) -> None:
    header = (found.timezone, "", "adds", "added", "subs", "subtracted", "sets", "net")
    lines = [Line(_cells(each, found)) for each in found.buckets]
    show_lines(console_for_output(), header, lines, right=(2, 3, 4, 5, 6, 7))


def _cells(bucket: Bucket, found: Story) -> Sequence[str]:
    def some(count: int, text: str = "") -> str:
        return (text or f"{count:,}") if count else ""

    return (
        begun(bucket, found.timezone),
        bucket.period,
        some(bucket.adds),
        some(bucket.adds, shown(bucket.added)),
        some(bucket.subs),
        some(bucket.subs, shown(bucket.subbed)),
        some(bucket.sets),
        shown(bucket.net) if found.is_sum else "",
    )
