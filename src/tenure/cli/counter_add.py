"""`tenure counter add`: count an amount from a shell.

It is durable when the command returns; a leader need not be alive for that. What is mistyped writes nothing: how a
field is counted is read first, and a field that nobody counts is begun only if that is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import click
import msgspec

from tenure.cli import output
from tenure.cli.counter_place import FIELD, RECORD, Counters, counted, learned, near, plain, shown
from tenure.cli.durations import between
from tenure.cli.queue_look import AS_JSON
from tenure.cli.queue_place import QueueCommand, say_no
from tenure.cli.running import run_until_stopped
from tenure.cli.schedule_change import LONGEST_WAIT
from tenure.cli.settings import Refusal, one_of
from tenure.cli.text import show_json
from tenure.database.core import Database
from tenure.errors import BucketMissing, ConfigError, RequestNotAnswered
from tenure.ledger import ledger_store
from tenure.observe.ledgers import why_nobody
from tenure.observe.printable import printable
from tenure.plugins.counters import Counter, EventualConsistencyPlugin, Kind, Mode, Reducer
from tenure.plugins.counters.looking import read_counters
from tenure.plugins.counters.numbers import Number
from tenure.plugins.counters.plugin import check_op_id
from tenure.plugins.counters.settings import check_zone
from tenure.store import Access, open_store

_NEGATIVE = re.compile(r"-\.?\d")


class AddCommand(QueueCommand):
    """An AMOUNT may be negative, which is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name for each in self.get_params(ctx) if isinstance(each, click.Option) and not each.is_flag
            for name in each.opts
        }  # fmt: skip
        negative = [
            at
            for at, word in enumerate(args)
            if _NEGATIVE.match(word) and "--" not in args and (at == 0 or args[at - 1] not in takes_value)
        ]
        if len(negative) == 1:
            amount = args[negative[0]]
            args = [*args[: negative[0]], *args[negative[0] + 1 :], "--", amount]
        return super().parse_args(ctx, args)


class Given(msgspec.Struct, frozen=True):
    """What `tenure counter add --json` prints. It is durable if it is printed at all."""

    resource: str
    id: str
    field: str
    op: str
    amount: int | float | str
    counted_as: str
    op_id: str | None
    consolidated: bool
    """It is in the record. False: nobody looked, or it was not there in time."""
    total: int | float | str | None
    """In the record; told with --sync."""
    told: str


@click.command("add", cls=AddCommand, short_help="Count an amount.")
@counted
@RECORD
@FIELD
@click.argument("amount", required=False)
@click.option("--sub", is_flag=True, help="Count it backwards.")
@click.option("--set", "total", is_flag=True, help="Have the total be AMOUNT.")
@click.option("--op-id", metavar="TEXT", help="Counted once, however often it is given within an hour.")
@click.option("--sync", is_flag=True, help="Wait until it is in the record, and tell the total.")
@click.option(
    "--timeout", type=between(0.1, LONGEST_WAIT), default="30s", show_default=True, help="How long to wait for that."
)
@click.option("--new", is_flag=True, help="FIELD may be one that nobody counts yet.")
@click.option("--kind", type=click.Choice([each.value for each in Kind]), help="Of a new field.  [default: int]")
@click.option("--reducer", type=click.Choice([each.value for each in Reducer]), help="Of a new field.  [default: sum]")
@click.option("--timezone", metavar="ZONE", help="Of the first field of a resource: where days begin.  [default: UTC]")
@AS_JSON
def add(
    url: str,
    resource: str,
    id: str,
    field: str,
    amount: str | None,
    name: str | None,
    sub: bool,
    total: bool,
    op_id: str | None,
    sync: bool,
    timeout: float,
    new: bool,
    kind: str | None,
    reducer: str | None,
    timezone: str | None,
    as_json: bool,
) -> int:
    """Count AMOUNT (1 unless given) on FIELD of the record ID of RESOURCE at URL.

    It is durable when this returns, and in the record within some seconds if somebody leads who has these counters.
    The record need not be there: totals belong to the id. A field inside another is named with dots: stats.likes.

    How a field is counted is known once it was counted by anybody. A new one needs --new, or --kind, --reducer or
    --timezone, which a program that counts it too has to agree with.

    \b
      tenure counter add s3://bucket/app pages home views
      tenure counter add s3://bucket/app pages home paid 12.50 --new --kind decimal
      tenure counter add s3://bucket/app pages home views 3 --op-id order-7

    Exit code 0: durable, and with --sync in the record; 1: nobody counts that field; 2: asked wrongly, and nothing was
    written; or not clear; or with --sync durable, and not in the record in time.
    """
    op = one_of(*(["sub"] if sub else []), *(["set"] if total else [])) or "add"
    if op_id is not None:
        check_op_id("--op-id", op_id)
    if amount is None and op == "set":
        raise Refusal("--set needs an AMOUNT: what shall the total be?")
    wanted = _Wanted(new or (kind, reducer, timezone) != (None, None, None), kind, reducer, timezone)
    text = "1" if amount is None else amount
    given, code = run_until_stopped(
        _add(
            url,
            resource,
            id,
            field,
            text,
            name,
            op,
            op_id,
            timeout if sync else None,
            wanted,
        )
    )
    output.carried_out(output.DURABLE if code else output.DONE)
    if as_json:
        show_json(given)
    else:
        click.echo(printable(given.told))
    return code


class _Wanted(msgspec.Struct, frozen=True):
    """What the command line says of the field."""

    new: bool
    kind: str | None
    reducer: str | None
    timezone: str | None


async def _add(
    url: str,
    resource: str,
    id: str,
    field: str,
    text: str,
    name: str | None,
    op: str,
    op_id: str | None,
    patience: float | None,
    wanted: _Wanted,
) -> tuple[Given, int]:
    counter, timezone = await _settled(url, resource, name, field, wanted)
    amount = amount_from(text, counter)
    if op == "sub" and counter.reducer is not Reducer.SUM:
        raise Refusal(f"--sub: field {field!r} is counted as {counter.word}, and only a sum can be subtracted from")
    worker = f"tenure counter on {os.uname().nodename}"[:128]
    code, total, why = 0, None, ""
    async with Database(url, worker_id=worker) as database:
        plugin = EventualConsistencyPlugin(resource, {field: counter}, producer_only=True, timezone=timezone)
        counters = await database.use_plugin(plugin, name)
        changes: dict[str, Callable[..., Awaitable[None]]] = {
            "add": counters.add,
            "sub": counters.sub,
            "set": counters.set,
        }
        mode = Mode.ASYNC if patience is None else Mode.SYNC
        try:
            await changes[op](id, field, amount, op_id=op_id, mode=mode, timeout=patience or 1.0)
            total = await counters.get(id, field) if patience is not None else None
        except RequestNotAnswered:
            code, why = 2, await _why(url, counters.name)
    told = _told(op, id, field, shown(amount), patience, total, why)
    is_there = patience is not None and not code
    as_number, as_total = plain(counter, amount), plain(counter, total)
    assert as_number is not None
    return Given(resource, id, field, op, as_number, counter.word, op_id, is_there, as_total, told), code


async def _settled(url: str, resource: str, name: str | None, field: str, wanted: _Wanted) -> tuple[Counter, str]:
    """How the field is counted, and the time zone. Opening for writing makes a directory that is missing: so this is
    known before."""
    try:
        there: Counters | None = await learned(url, resource, name)
    except BucketMissing:
        if not wanted.new or not url.startswith("file:"):
            raise
        there = None
    agreed = there.agreed if there is not None else None
    if there is None or agreed is None or field not in agreed.fields:
        known = agreed.fields if agreed is not None else {}
        if not wanted.new:
            why = near(field, known) + " Or" if known else "nothing of it is: check the URL, or"
            say_no(f"field {field[:100]!r} of {resource!r} is not counted: {why} give --new to begin it")
        counter = Counter(Kind(wanted.kind or "int"), Reducer(wanted.reducer or "sum"))
    else:
        counter = there.fields(field)[field]
        for option, given, right in (
            ("--kind", wanted.kind, counter.kind.value),
            ("--reducer", wanted.reducer, counter.reducer.value),
        ):
            if given not in (None, right):
                raise Refusal(f"{option} is {given}, and field {field!r} is counted as {counter.word}: leave it out")
    zone = agreed.timezone if agreed is not None else "UTC" if wanted.timezone is None else wanted.timezone
    if wanted.timezone not in (None, zone):
        raise Refusal(f"--timezone is {wanted.timezone}, and days of {resource!r} begin in {zone}: leave it out")
    try:
        check_zone(zone)
    except ConfigError as error:
        raise Refusal(f"--{error}") from None
    return counter, zone


def amount_from(text: str, counter: Counter) -> Number:
    """A number of the counter's kind. Refused before anything is written."""
    try:
        found: Any = text
        if counter.kind is Kind.INT:
            found = int(text) if re.fullmatch(r"[+-]?\d{1,30}", text, re.ASCII) else text
        elif counter.kind is Kind.FLOAT:
            found = float(text)
        else:
            found = Decimal(text)
    except (ValueError, InvalidOperation):
        found = text
    try:
        return counter.amount("AMOUNT", found)
    except ConfigError as error:
        raise Refusal(str(error)) from None


async def _why(url: str, name: str) -> str:
    async with open_store(url, access=Access.READ_ONLY) as store:
        state = await read_counters(ledger_store(store, EventualConsistencyPlugin.slug, name))
    return await why_nobody(url, state, "these counters", "their")


def _told(op: str, id: str, field: str, amount: str, patience: float | None, total: Any, why: str) -> str:
    what = {"add": f"{amount} added to", "sub": f"{amount} subtracted from", "set": f"{amount} set as"}[op]
    said = f"{what} {field!r} of {id!r}"
    if patience is None:
        return f"{said}: durable"
    if why:
        return (
            f"{said}: durable, and not in its record after {patience:g} s: {why}. It is counted once somebody leads "
            "who has these counters"
        )
    return f"{said}: its total is {shown(total)}"
