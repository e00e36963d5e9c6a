"""`tenure counter get`: the totals of one record. Only reads, and asks nobody."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from tenure.cli.counter_place import RECORD, argument, counted, open_counters, plain, shown, tell
from tenure.cli.queue_look import AS_JSON
from tenure.cli.queue_place import QueueCommand
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_text import Line, show_lines
from tenure.cli.text import console_for_output, show_json
from tenure.plugins.counters import Counter
from tenure.plugins.counters.consistent import consistent_totals
from tenure.plugins.counters.fields import check_path
from tenure.plugins.counters.numbers import Number
from tenure.plugins.counters.totals import Key


class Found(msgspec.Struct, frozen=True):
    resource: str
    id: str
    consistent: bool
    counters: dict[str, Counter]
    totals: dict[str, Number | None]
    is_record: bool
    note: str
    """Where there is no record, and nothing was counted for one: what may be the reason."""

    def flat(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "id": self.id,
            "record": self.is_record,
            "consistent": self.consistent,
            "totals": {field: plain(self.counters[field], total) for field, total in self.totals.items()},
            "counted_as": {field: counter.word for field, counter in self.counters.items()},
        }


@click.command("get", cls=QueueCommand, short_help="Tell the totals of a record.")
@counted
@RECORD
@argument("field", check_path, required=False)
@click.option("--consistent", is_flag=True, help="With everything that was acknowledged before, wherever it is.")
@AS_JSON
def get(url: str, resource: str, id: str, field: str | None, name: str | None, consistent: bool, as_json: bool) -> int:
    """Tell the total of FIELD of the record ID of RESOURCE at URL; without FIELD, of every field that is counted.

    Only reads. Without --consistent it is what stands in the record, which a leader brings up to date every few
    seconds. With FIELD the number alone is printed; `none` for a min, max or last of nothing.

    \b
      tenure counter get s3://bucket/app pages home
      tenure counter get s3://bucket/app pages home views --consistent

    Exit code 0: here it is; 1: nothing is counted there, or no such field; 2: it could not be told.
    """
    found = run_until_stopped(_get(url, resource, id, field, name, consistent))
    if as_json:
        show_json(found.flat())
    elif field is not None:
        click.echo(shown(found.totals[field]))
    else:
        lines = [Line((each, shown(total), found.counters[each].word)) for each, total in found.totals.items()]
        show_lines(console_for_output(), ("field", "total", "counted as"), lines, right=(1,))
    if not as_json:
        tell(found.note)
    return 0


async def _get(url: str, resource: str, id: str, field: str | None, name: str | None, consistent: bool) -> Found:
    async with open_counters(url, resource, name) as there:
        fields = there.fields(field)
        found = await there.records.find(id)
        key = Key(found.envelope if found is not None else None, there.name)
        totals = {each: key.total(each, counter) for each, counter in fields.items()}
        if consistent:
            totals = await consistent_totals(there.store, there.view, there.records, there.name, id, fields)
        note = ""
        if found is None and all(total == fields[each].zero for each, total in totals.items()):
            why = "" if consistent else await there.unread()
            note = f"there is no record {id!r}, and nothing in its totals" + (f"; {why}" if why else "")
        return Found(resource, id, consistent, fields, totals, key.is_record, note)
