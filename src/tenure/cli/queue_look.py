"""`tenure queue stats`, `peek`, `dead list` and `dead show`: only read, and ask nobody.

Ages are by this host's clock against the store's: for people, and nothing is decided by them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tenure.cli.durations import between
from tenure.cli.numbers import Whole
from tenure.cli.queue_place import QueueCommand, ensure_there, open_queue, queued, read_on, say_no, unread
from tenure.cli.running import run_until_stopped
from tenure.cli.text import console_for_output, marked, show_json
from tenure.clock import SYSTEM_CLOCK, Clock, Reading
from tenure.errors import NotFound, StoreError
from tenure.ledger import LedgerState
from tenure.ledger.config import MAX_INBOX_BYTES
from tenure.ledger.layout import INBOX_NAMES, InboxName, parse_inbox_key
from tenure.observe.printable import json_text, printable
from tenure.plugins.queue import DeadLetter, QueueStats
from tenure.plugins.queue import looking as queue_looking
from tenure.plugins.queue.records import parse_ref
from tenure.plugins.queue.state import QueueMachine
from tenure.plugins.queue.wire import PLAIN, Held, Options, TooNew, Unreadable, read_header
from tenure.store import Access, Store, Stored, ours

MAX_DEAD_SEARCHED = 10_000
MAX_INBOX_READ = 100
_BODY_SHOWN = 100
_LONGEST_PAUSE = 30.0
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def watchable(command: F) -> F:
    """Gives a command the options --watch, --interval, --for and --json."""
    for option in reversed(
        (
            click.option("--watch", is_flag=True, help="Look again and again: a live view on a terminal."),
            click.option(
                "--interval",
                type=between(0.1, 3600),
                default="1s",
                show_default=True,
                metavar="DURATION",
                help="With --watch.",
            ),
            click.option(
                "--for",
                "lasting",
                type=between(0.1, 7 * 86400),
                metavar="DURATION",
                help="End --watch after so long.",
            ),
            click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch one on each line."),
        )
    ):
        command = option(command)
    return command


# stats


class Shown(msgspec.Struct, frozen=True):
    """What `tenure queue stats --json` prints."""

    queue: str
    stats: QueueStats
    enqueued_per_second: float | None = None
    done_per_second: float | None = None

    def flat(self) -> dict[str, Any]:
        rates = {"enqueued_per_second": self.enqueued_per_second, "done_per_second": self.done_per_second}
        return {
            "queue": self.queue,
            **msgspec.structs.asdict(self.stats),
            **{name: round(rate, 3) for name, rate in rates.items() if rate is not None},
        }


@click.command(cls=QueueCommand, short_help="Count what waits, is in flight, is dead.")
@queued
@watchable
def stats(url: str, name: str, watch: bool, interval: float, lasting: float | None, as_json: bool) -> int:
    """Count what is in the queue NAME at URL.

    Only reads: the snapshot and the log of the queue's leader, from which everything is counted. What lies in the inbox
    is durable, and not counted yet by any leader; if that does not go down, nobody works on the queue.

    Exit code 0: here it is; 1: there is no such queue; 2: it could not be told.
    """
    if not watch:
        shown = run_until_stopped(_stats(url, name))
        if as_json:
            show_json(shown.flat())
        else:
            console_for_output().print(_overview(shown))
        return 0
    try:
        run_until_stopped(_watch(url, name, interval, lasting, as_json))
    except click.Abort:
        pass  # how a view ends
    return 0


async def _stats(url: str, name: str) -> Shown:
    async with open_queue(url, name, Access.READ_ONLY) as store:
        await ensure_there(store, url, name)
        return await Looker(store, name, SYSTEM_CLOCK).look()


class Looker:
    """Counts again and again; each look reads only what is new."""

    def __init__(self, store: Store, name: str, clock: Clock) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._state = unread()
        self._before: tuple[Reading, QueueStats] | None = None

    async def look(self) -> Shown:
        await read_on(self._store, self._state)
        now = self._clock.read()
        found = await queue_looking.stats_of(self._store, self._state, _now_ms(self._clock, self._state))
        rates: tuple[float | None, float | None] = (None, None)
        if self._before is not None:
            at, stats = self._before
            seconds = max(0.001, now.leader_elapsed(at))
            rates = ((found.enqueued - stats.enqueued) / seconds, (found.done - stats.done) / seconds)
        self._before = (now, found)
        return Shown(self._name, found, *rates)


def _now_ms(clock: Clock, state: LedgerState) -> int:
    return max(state.time_ms, clock.read().wall_ns // 1_000_000)


async def _watch(url: str, name: str, interval: float, lasting: float | None, as_json: bool) -> None:
    async with open_queue(url, name, Access.READ_ONLY) as store:
        await ensure_there(store, url, name)
        with _view(as_json) as show:
            await look_again(Looker(store, name, SYSTEM_CLOCK).look, show, interval, lasting)


async def look_again(
    look: Callable[[], Awaitable[T]], show: Callable[[T], None], interval: float, lasting: float | None
) -> None:
    """Again and again, and ever more rarely while the store does not answer. Raises if the first look fails."""
    clock = SYSTEM_CLOCK
    started = clock.read()
    failures, looks = 0, 0
    while True:
        try:
            show(await look())
            failures, looks = 0, looks + 1
        except StoreError as error:
            if not looks:
                raise
            failures += 1
            click.echo(printable(f"tenure: not looked at, and tried again: {error}"), err=True)
        pause = min(max(interval, _LONGEST_PAUSE), interval * 2.0 ** min(failures, 10))
        if lasting is not None:
            pause = min(pause, lasting - clock.read().leader_elapsed(started))
            if pause <= 0:
                return
        await clock.sleep(pause)


@contextlib.contextmanager
def _view(as_json: bool) -> Iterator[Callable[[Shown], None]]:
    if as_json:
        yield lambda shown: _say(json_text(shown.flat(), indent=None))
    elif sys.stdout.isatty():
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            yield lambda shown: live.update(_overview(shown), refresh=True)
    else:
        last: list[str] = []

        def show(shown: Shown) -> None:
            line = _line(shown.stats)
            if last != [line]:
                last[:] = [line]
                _say(line)

        yield show


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _line(found: QueueStats) -> str:
    return (
        f"ready {found.ready}  delayed {found.delayed}  in flight {found.in_flight}  dead {found.dead}  "
        f"inbox {found.inbox}  done {found.done}  workers {found.workers}{'  paused' if found.paused else ''}"
    )


def _overview(shown: Shown) -> Table:
    found = shown.stats
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")

    def row(what: str, count: object, note: str = "") -> None:
        table.add_row(what, str(count), note)

    state = "[yellow]paused[/]" if found.paused else ""
    row("queue", f"[bold]{marked(shown.queue)}[/]", state)
    row("ready", found.ready, f"the first has waited {_age(found.oldest_age)}" if found.oldest_age is not None else "")
    row("delayed", found.delayed)
    row("in flight", found.in_flight, f"with {_counted(found.workers, 'worker')}")
    row("dead", f"[red]{found.dead}[/]" if found.dead else 0, "see `tenure queue dead list`" if found.dead else "")
    row("inbox", found.inbox, "objects that no leader has counted yet" if found.inbox else "")
    row("enqueued", found.enqueued, _rate(shown.enqueued_per_second))
    row("done", found.done, _rate(shown.done_per_second))
    row("failed", found.failed, "attempts, which were tried again" if found.failed else "")
    row("lapsed", found.lapsed, "not reported on in time, and handed out again" if found.lapsed else "")
    row("duplicates", found.duplicates, "dropped" if found.duplicates else "")
    row("log", found.seq, f"entries; epoch {found.epoch}")
    return table


def _rate(per_second: float | None) -> str:
    return f"{per_second:,.1f} a second" if per_second is not None else ""


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# peek


class Waiting(msgspec.Struct, frozen=True):
    """One message that waits."""

    id: str
    ref: str | None
    """`None` for one that lies in the inbox still: no leader has counted it yet."""
    body: Any
    attempt: int
    priority: int
    ordering_key: str | None
    enqueued_ms: int
    headers: dict[str, str]


@click.command(cls=QueueCommand, short_help="Show the first messages that wait.")
@queued
@click.option("--limit", type=Whole(1, 1000), default=10, show_default=True, help="At most so many.")
@AS_JSON
def peek(url: str, name: str, limit: int, as_json: bool) -> int:
    """Show the first messages of the queue NAME at URL that wait for a worker, without taking them.

    Only reads. Those that lie in the inbox, and that no leader has counted yet, come last. Not shown: what is delayed,
    in flight or dead.

    Exit code 0: here they are, if any; 1: there is no such queue; 2: it could not be told.
    """
    found = run_until_stopped(_peek(url, name, limit))
    if as_json:
        show_json({"queue": name, "messages": found})
    elif not found:
        click.echo(printable(f"nothing waits in {name!r}"))
    else:
        _show_waiting(found)
    return 0


async def _peek(url: str, name: str, limit: int) -> list[Waiting]:
    async with open_queue(url, name, Access.READ_ONLY) as store:
        await ensure_there(store, url, name)
        state = unread()
        await read_on(store, state)
        now_ms = _now_ms(SYSTEM_CLOCK, state)
        found = [
            Waiting(
                each.id,
                each.ref,
                each.body,
                each.attempt,
                each.priority,
                each.ordering_key,
                each.enqueued_ms,
                each.headers,
            )
            for each in await queue_looking.peek(store, state, limit, now_ms)
        ]
        if len(found) < limit:
            found += await _in_the_inbox(store, state, limit - len(found), now_ms)
        return found


async def _in_the_inbox(store: Store, state: LedgerState, limit: int, now_ms: int) -> list[Waiting]:
    """What was put there and not folded, oldest first; of the first objects alone."""
    found: list[Waiting] = []
    rows: list[tuple[datetime, InboxName]] = []
    async for row in ours(store, INBOX_NAMES):
        name = parse_inbox_key(row.key)
        if name is None or row.size > MAX_INBOX_BYTES or state.producers.is_done(name):
            continue
        rows.append((row.modified, name))
        if len(rows) >= 2 * MAX_INBOX_READ:
            rows = sorted(rows)[:MAX_INBOX_READ]
    for modified, name in sorted(rows)[:MAX_INBOX_READ]:
        if len(found) >= limit:
            break
        found += await _letter(store, name, round(modified.timestamp() * 1000), limit - len(found), now_ms)
    return found


async def _letter(store: Store, name: InboxName, at_ms: int, limit: int, now_ms: int) -> list[Waiting]:
    try:
        stored = await store.get(name.key)
        assert isinstance(stored, Stored)
        header, start = read_header(stored.body)
    except (NotFound, Unreadable, TooNew):
        return []  # folded meanwhile; or not for us to judge
    options: dict[int, Options] = {}
    for span in header.spans:
        for index in range(span.first, span.first + span.count):
            options[index] = span.options
    found = []
    for index, size in enumerate(header.sizes):
        chosen = options.get(index, PLAIN)
        body, start = stored.body[start : start + size], start + size
        if chosen.delay_ms and at_ms + chosen.delay_ms > now_ms:
            continue
        held = Held(name.uid, name.number, index, at_ms, body, chosen)
        shown = queue_looking.shown_body(held)
        found.append(Waiting(held.id, None, shown, 1, chosen.priority, chosen.key or None, at_ms, chosen.headers))
        if len(found) >= limit:
            break
    return found


def _show_waiting(found: list[Waiting]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("id", "attempt", "priority", "key", "enqueued", "body"):
        table.add_column(column, no_wrap=column != "body", overflow="fold")
    for each in found:
        table.add_row(
            marked(each.id),
            str(each.attempt) if each.ref is not None else "inbox",
            str(each.priority),
            marked(each.ordering_key or ""),
            _time(each.enqueued_ms),
            _short(each.body),
        )
    console_for_output().print(table)


def _short(body: Any) -> str:
    text = body if isinstance(body, str) else json_text(body, indent=None)
    text = printable(text)
    return marked(text if len(text) <= _BODY_SHOWN else f"{text[:_BODY_SHOWN]}…")


def _time(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


# dead letters


@click.command("list", cls=QueueCommand, short_help="List them, oldest first.")
@queued
@click.option("--limit", type=Whole(1, MAX_DEAD_SEARCHED), default=100, show_default=True)
@AS_JSON
def dead_list(url: str, name: str, limit: int, as_json: bool) -> int:
    """List the dead letters of the queue NAME at URL, those that died first at the top. Only reads.

    Exit code 0: here they are, if any; 1: there is no such queue; 2: it could not be told.
    """
    letters, total = run_until_stopped(_dead(url, name, limit))
    if as_json:
        show_json({"queue": name, "dead": total, "letters": letters})
        return 0
    if not letters:
        click.echo(printable(f"{name!r} has no dead letters"))
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("ref", "id", "died", "attempts", "reason", "last error"):
        table.add_column(column, no_wrap=column in ("ref", "id", "died"), overflow="fold")
    for letter in letters:
        error = str(letter.history[-1]["error"]) if letter.history else ""
        table.add_row(
            marked(letter.ref),
            marked(letter.id or "?"),
            _time(letter.at_ms),
            str(letter.attempts),
            marked(letter.reason),
            _short(error),
        )
    console_for_output().print(table)
    if total > len(letters):
        click.echo(f"{total - len(letters)} more: see --limit")
    return 0


async def _dead(url: str, name: str, limit: int) -> tuple[list[DeadLetter], int]:
    async with open_queue(url, name, Access.READ_ONLY) as store:
        await ensure_there(store, url, name)
        state = unread()
        machine = await read_on(store, state)
        return await queue_looking.dead_letters(store, state, limit), len(machine.dead)


@click.command("show", cls=QueueCommand, short_help="Show one with its history and body.")
@queued
@click.argument("ref")
@AS_JSON
def dead_show(url: str, name: str, ref: str, as_json: bool) -> int:
    """Show a dead letter of the queue NAME at URL: why it died, what was tried, and its body. Only reads.

    REF is its ref, as `dead list` shows it, or the id that `put` printed.

    Exit code 0: here it is; 1: there is no such dead letter, or queue; 2: it could not be told.
    """
    letter = run_until_stopped(_one(url, name, ref))
    if as_json:
        show_json(letter)
    else:
        _show_letter(letter)
    return 0


async def _one(url: str, name: str, ref: str) -> DeadLetter:
    async with open_queue(url, name, Access.READ_ONLY) as store:
        await ensure_there(store, url, name)
        state = unread()
        machine = await read_on(store, state)
        (found,) = await find_letters(store, state, machine, name, (ref,))
        return found


async def find_letters(
    store: Store, state: LedgerState, machine: QueueMachine, queue: str, wanted: tuple[str, ...]
) -> list[DeadLetter]:
    """By ref or by id, in this order. Says no if one is not there."""
    by_name: dict[str, DeadLetter] = {}
    every = machine.dead
    try:
        machine.dead = {key: every[key] for key in map(parse_ref, wanted) if key in every}
        letters = await queue_looking.dead_letters(store, state, len(wanted))
        if len(letters) < len(wanted):
            machine.dead = every
            letters += await queue_looking.dead_letters(store, state, MAX_DEAD_SEARCHED)
    finally:
        machine.dead = every
    for letter in letters:
        by_name[letter.ref] = letter
        if letter.id is not None:
            by_name[letter.id] = letter
    for each in wanted:
        if each not in by_name:
            say_no(f"the queue {queue!r} has no dead letter {each[:100]!r}: see `tenure queue dead list`")
    return [by_name[each] for each in wanted]


def _show_letter(letter: DeadLetter) -> None:
    lines = [
        ("ref", letter.ref),
        ("id", letter.id or "? (its body is gone)"),
        ("died", f"{_time(letter.at_ms)}: {letter.reason}"),
        ("attempts", str(letter.attempts)),
    ]
    if letter.ordering_key is not None:
        lines.append(("ordering key", letter.ordering_key))
    lines += [("header", f"{key}={value}") for key, value in letter.headers.items()]
    lines += [
        (f"attempt {note['attempt']}", f"{_time(note['at_ms'])}, {note['worker']}: {note['error']}")
        for note in letter.history
    ]
    for what, text in lines:
        click.echo(f"{what:<13} {printable(text)}")
    click.echo("body")
    click.echo(json_text(letter.body))
