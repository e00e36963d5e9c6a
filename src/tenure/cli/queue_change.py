"""`tenure queue create`, `put`, `pause`, `resume`, `purge`, `dead redrive` and `dead purge`.

What they write is durable when they return. A leader need not be alive for that, and nothing happens until one is.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import click
import msgspec

from tenure.cli import output
from tenure.cli.durations import between, parse_duration
from tenure.cli.numbers import Whole
from tenure.cli.place import placed
from tenure.cli.queue_look import AS_JSON, find_letters
from tenure.cli.queue_place import (
    QueueCommand,
    ensure_there,
    named,
    open_queue,
    queued,
    read_on,
    say_no,
    unread,
)
from tenure.cli.running import run_until_stopped
from tenure.cli.settings import Refusal
from tenure.cli.text import show_json
from tenure.clock import SYSTEM_CLOCK
from tenure.database.core import Database
from tenure.errors import ConfigError
from tenure.observe import queue_orders
from tenure.observe.printable import printable
from tenure.plugins.queue import QueueSettings, S3QueuePlugin
from tenure.plugins.queue.agreed import plain, read_agreed, write_agreed
from tenure.plugins.queue.outgoing import encode_within, options_from
from tenure.plugins.queue.settings import LARGEST_MESSAGE_BYTES
from tenure.plugins.queue.wire import MAX_ATTEMPTS, MAX_DELAY_MS, MAX_PRIORITY, Command
from tenure.store import Access
from tenure.store.url import parse_url

F = TypeVar("F", bound=Callable[..., Any])

MAX_REFS = 10_000
"""Dead letters that one command may name: a leader reads no more of them."""
_READ_BYTES = 1024 * 1024
_READS_UNDER_WAY = 8
_LARGEST_GROWTH = 8
"""A line of JSON that was read and is written again has at most so many times its bytes: `1e9` is 1000000000.0."""
_NOT_DURATIONS = ("rate_limit", "idle_budget")
_LATER = "it takes effect when the queue's leader reads it (--wait waits for that)"


def waiting(command: F) -> F:
    """Gives a command `wait` and `timeout`."""
    for option in (
        click.option(
            "--timeout", type=between(0.1, 3600), default="30s", show_default=True, help="How long --wait waits."
        ),
        click.option("--wait", is_flag=True, help="Wait until a leader has read it: then it has taken effect."),
    ):
        command = option(command)
    return command


# create


@click.command(cls=QueueCommand, short_help="Agree on the settings of a queue.")
@placed
@named
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the queue, e.g. visibility_timeout=60s or max_attempts=3; may be repeated.",
)
@click.option("--change", is_flag=True, help="Also if it was created with others: those named here are changed.")
@AS_JSON
def create(url: str, namespace: str, name: str, settings: tuple[str, ...], change: bool, as_json: bool) -> int:
    """Write down what the queue NAME at URL is set to, for every process that works on it.

    From then on whoever starts to work on it takes these settings from there, and refuses to start if it is told
    something else; the same goes for --namespace, the election whose leader decides on this queue. A queue needs no
    creation: without it the settings of whichever process leads decide. To create it again as it is changes nothing.
    Processes that run already heed a change when they are started again.

    Exit code 0: it is so; 1: it was created with other settings (see --change); 2: it could not be told.
    """
    chosen = plain(_settings(settings))
    answer = run_until_stopped(_create(url, namespace, name, chosen, change))
    output.carried_out()
    if as_json:
        show_json(answer)
    else:
        shown = (
            ", ".join(f"{key}={value}" for key, value in sorted(answer.settings.items())) or "every setting left open"
        )
        click.echo(printable(f"{name!r} {answer.what}: election {answer.namespace!r}, {shown}"))
    return 0


class Created(msgspec.Struct, frozen=True):
    """What `tenure queue create --json` prints."""

    queue: str
    what: str
    """`created`, `changed` or `unchanged`."""
    namespace: str
    settings: dict[str, Any]


async def _create(url: str, namespace: str, name: str, chosen: dict[str, Any], change: bool) -> Created:
    async with open_queue(url, name, Access.READ_WRITE) as store:
        for _ in range(5):
            found = await read_agreed(store)
            if found is None:
                if await write_agreed(store, namespace, chosen, None):
                    return Created(name, "created", namespace, chosen)
                continue
            before = found.agreed
            merged = {**before.settings, **chosen}
            if before.namespace == namespace and merged == before.settings:
                return Created(name, "unchanged", namespace, dict(before.settings))
            if before.namespace != namespace:
                say_no(
                    f"{name!r} was created for the election {before.namespace!r}, and not {namespace!r}: nothing was "
                    "changed, for a queue belongs to one election for good"
                )
            if not change:
                say_no(_difference(name, chosen, before.settings))
            if await write_agreed(store, namespace, merged, found.version):
                return Created(name, "changed", namespace, merged)
    return say_no(f"the settings of {name!r} were changed by others each time: try again")


def _difference(name: str, chosen: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    field = next(key for key, value in chosen.items() if before.get(key) != value)
    old = f"{field}={before[field]}" if field in before else f"{field} left open"
    return f"{name!r} was created with {old}, and not {field}={chosen[field]}: nothing was changed; --change does so"


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    fields = {field.name: field for field in msgspec.structs.fields(QueueSettings)}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise ConfigError(f"--set is {pair[:60]!r}: give NAME=VALUE, such as visibility_timeout=60s")
        if key not in fields:
            close = get_close_matches(key, fields, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(fields))}"
            raise ConfigError(f"{key[:60]!r} is no setting of a queue: {hint}")
        chosen[key] = _value(key, text, fields[key].type)
    return chosen


def _value(key: str, text: str, kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return text
    if kind is float and key not in _NOT_DURATIONS:
        seconds = parse_duration(text)
        if seconds is None:
            raise ConfigError(f"{key} is {text[:60]!r}: give a number and its unit, such as 500ms, 30s or 2m")
        return seconds
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        raise ConfigError(f"{key} is {text[:60]!r}: give a {'whole ' if kind is int else ''}number") from None


# put


class Form(enum.Enum):
    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


@click.command(cls=QueueCommand, short_help="Add messages.")
@queued
@click.argument("body", required=False)
@click.option(
    "--as",
    "form",
    type=click.Choice([each.value for each in Form]),
    default=Form.JSON.value,
    show_default=True,
    help="What BODY is: JSON; text, given to the handler as it is; or bytes.",
)
@click.option("--json-lines", is_flag=True, help="Each line of standard input is a message, as JSON.")
@click.option("--delay", type=between(0, MAX_DELAY_MS / 1000), default="0s", help="Not before so long from now.")
@click.option("--priority", type=Whole(-MAX_PRIORITY, MAX_PRIORITY), default=0, help="Higher comes first.")
@click.option("--dedup-key", help="Dropped if one with this key was added within the queue's window.")
@click.option("--ordering-key", help="Those with the same key are handled one at a time, in order.")
@click.option("--max-attempts", type=Whole(1, MAX_ATTEMPTS), help="Then it is dead.  [default: the queue's]")
@click.option("--visibility", type=between(0.5, 7 * 86400), help="How long a handler has.  [default: the queue's]")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@AS_JSON
def put(
    url: str,
    name: str,
    body: str | None,
    form: str,
    json_lines: bool,
    delay: float,
    priority: int,
    dedup_key: str | None,
    ordering_key: str | None,
    max_attempts: int | None,
    visibility: float | None,
    headers: tuple[str, ...],
    as_json: bool,
) -> int:
    """Add a message to the queue NAME at URL, and print its id once it is durable. No leader need be alive.

    BODY is JSON unless --as says otherwise; - is standard input. With --json-lines standard input holds one message a
    line, and one id a line is printed as they become durable; all have the same options.

    Exit code 0: added; 2: asked wrongly, or it could not be told whether it was (give --dedup-key to repeat it safely).

    \b
      tenure queue put s3://bucket/app emails '{"to": "ada@example.org"}' --delay 5m
      jq -c '.[]' all.json | tenure queue put s3://bucket/app emails --json-lines
    """
    chosen = Form(form)
    if json_lines and (body not in (None, "-") or chosen is not Form.JSON or dedup_key is not None):
        what = "--as" if chosen is not Form.JSON else "--dedup-key" if dedup_key is not None else "a BODY"
        raise Refusal(f"--json-lines and {what}: give one of them; its messages are lines of JSON on standard input")
    if body is None and not json_lines:
        raise Refusal("there is no BODY: give one, or - for standard input, or --json-lines")
    options: dict[str, Any] = {
        "delay": delay,
        "priority": priority,
        "ordering_key": ordering_key,
        "max_attempts": max_attempts,
        "visibility_timeout": visibility,
        "headers": _headers(headers),
    }
    options_from(dedup_key=dedup_key, **options)  # refused before anything is opened
    wrong = None
    if json_lines:
        ids, wrong = run_until_stopped(_put_lines(url, name, options, None if as_json else click.echo))
    else:
        assert body is not None
        content = _content(_standard_input() if body == "-" else os.fsencode(body), chosen)
        ids = [run_until_stopped(_put(url, name, content, {**options, "dedup_key": dedup_key}))]
        output.carried_out(f"the message was added, as {ids[0]}")
        if not as_json:
            click.echo(ids[0])
    if as_json:
        show_json({"queue": name, "count": len(ids), "ids": ids})
    if wrong is not None:
        raise ConfigError(wrong)
    return 0


def _headers(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or key in found:
            why = "it is given twice" if key in found else "give NAME=VALUE, such as trace=7f3a"
            raise Refusal(f"--header is {pair[:60]!r}: {why}")
        found[key] = value
    return found


def _standard_input() -> bytes:
    body = sys.stdin.buffer.read(LARGEST_MESSAGE_BYTES + 1)
    if len(body) > LARGEST_MESSAGE_BYTES:
        raise ConfigError(f"standard input has more than {LARGEST_MESSAGE_BYTES:,} bytes, and no message may")
    return body


def _content(body: bytes, form: Form, where: str = "BODY", hint: str = "; --as text takes it as it is") -> Any:
    if form is Form.BYTES:
        return body
    try:
        return msgspec.json.decode(body) if form is Form.JSON else body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "JSON" if form is Form.JSON else "UTF-8"
        raise ConfigError(f"{where} is no {what} ({str(error)[:100]}){hint}") from None


@contextlib.asynccontextmanager
async def _producing(url: str, name: str) -> AsyncIterator[S3QueuePlugin]:
    async with Database(url) as database:
        yield await database.use_plugin(S3QueuePlugin(name, producer_only=True))


async def _put(url: str, name: str, content: Any, options: dict[str, Any]) -> str:
    async with _producing(url, name) as queue:
        return await queue.enqueue(content, **options)


def _nobody(id: str) -> None:
    """Whom what is added is told when nobody can be told any more."""


async def _put_lines(
    url: str, name: str, options: dict[str, Any], tell: Callable[[str], None] | None
) -> tuple[list[str], str | None]:
    """Several reads are under way at once; what was read is sent, and told of, in order.

    The ids, unless they were told; and what is wrong with the line at which it ended: those before it were added.
    """
    ids: list[str] = []
    count = 0
    under_way: deque[asyncio.Task[list[str]]] = deque()
    tell_of = ids.append if tell is None else tell

    async def finish(most: int) -> None:
        nonlocal count, tell_of
        while len(under_way) > most or (under_way and under_way[0].done()):
            added = await under_way.popleft()
            count += len(added)
            output.carried_out(f"{count:,} message{' was' if count == 1 else 's were'} added")
            try:
                for each in added:
                    tell_of(each)
                sys.stdout.flush()
            except OSError:
                tell_of = _nobody  # the rest is counted nevertheless
                raise

    wrong = None
    async with _producing(url, name) as queue:
        number, rest = 0, b""
        try:
            while True:
                reading = _read_some(sys.stdin.fileno())
                while not reading.done():
                    either: list[asyncio.Future[Any]] = [reading, *list(under_way)[:1]]
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                    await finish(_READS_UNDER_WAY)
                read = await reading
                *lines, rest = (rest + read).split(b"\n") if read else (rest, b"")
                bodies = []
                for line in lines:
                    number += 1
                    try:
                        bodies += _message(line, number, queue.settings.max_message_bytes)
                    except ConfigError as error:
                        wrong = str(error)
                        break
                if wrong is None and len(rest) > LARGEST_MESSAGE_BYTES:
                    wrong = f"line {number + 1} of standard input has over {LARGEST_MESSAGE_BYTES:,} bytes"
                if bodies:
                    under_way.append(asyncio.get_running_loop().create_task(queue.enqueue_many(bodies, **options)))
                if not read or wrong is not None:
                    break
        finally:
            await finish(0)
    if wrong is not None:
        before = f"the {count:,} messages before it were" if count > 1 else "the message before it was"
        wrong += f"; {before} added, and nothing after it" if count else "; nothing was added"
    return ids, wrong


def _message(line: bytes, number: int, most: int) -> list[Any]:
    """None of an empty line. Refuses what `enqueue_many` would, which refuses all others of the same read with it."""
    if not line.strip():
        return []
    where = f"line {number} of standard input"
    content = _content(line, Form.JSON, where, hint="")
    if len(line) * _LARGEST_GROWTH > most:
        try:
            encode_within(content, most)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
    return [content]


def _read_some(descriptor: int) -> asyncio.Future[bytes]:
    """What there is, whenever it comes. A thread that nobody waits for: Ctrl-C is heeded while it reads."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def give(read: bytes | OSError) -> None:
        if not future.done():
            future.set_exception(read) if isinstance(read, OSError) else future.set_result(read)

    def read() -> None:
        try:
            found: bytes | OSError = os.read(descriptor, _READ_BYTES)
        except OSError as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(give, found)

    threading.Thread(target=read, daemon=True).start()
    return future


# pause, resume, purge, dead letters


class Asked(msgspec.Struct, frozen=True):
    """What a command that changes a queue prints with `--json`. It is durable if it is printed at all."""

    queue: str
    op: str
    letters: int | None
    """Dead letters that were named; `None`: all, or not about them."""
    followed: bool
    """A leader has read it: it has taken effect. False without `--wait`: nobody looked."""
    seq: int | None = None
    """Up to which entry of the log it had."""
    epoch: int | None = None


@click.command(cls=QueueCommand, short_help="Hand out no more messages.")
@queued
@waiting
@AS_JSON
def pause(url: str, name: str, wait: bool, timeout: float, as_json: bool) -> int:
    """Have the queue NAME at URL hand out no more messages until `resume`. What workers hold is finished; messages can
    still be put.

    Durable when it returns, and in effect once the queue's leader has read it: --wait waits for that.
    Exit code 0: done; 1: there is no such queue; 2: not clear, or with --wait no leader has read it in time.
    """
    return _ask(url, name, "pause", (), wait, timeout, as_json)


@click.command(cls=QueueCommand, short_help="Hand out messages again.")
@queued
@waiting
@AS_JSON
def resume(url: str, name: str, wait: bool, timeout: float, as_json: bool) -> int:
    """Have the queue NAME at URL hand out messages again, after `pause`.

    Durable when it returns, and in effect once the queue's leader has read it: --wait waits for that.
    Exit code 0: done; 1: there is no such queue; 2: not clear, or with --wait no leader has read it in time.
    """
    return _ask(url, name, "resume", (), wait, timeout, as_json)


@click.command(cls=QueueCommand, short_help="Drop everything that waits.")
@queued
@click.option("--yes", is_flag=True, help="Do not ask.")
@waiting
@AS_JSON
def purge(url: str, name: str, yes: bool, wait: bool, timeout: float, as_json: bool) -> int:
    """Drop every message of the queue NAME at URL that waits or is delayed, for good. What workers hold is finished,
    and dead letters stay.

    Durable when it returns, and in effect once the queue's leader has read it, for what it has counted by then: what
    lies in the inbox at that moment may stay.
    Exit code 0: done; 1: there is no such queue; 2: not clear, or with --wait no leader has read it in time.
    """
    if not yes:
        _confirm(f"every message that waits in {name!r} at {parse_url(url).shown} is dropped for good")
    return _ask(url, name, "purge", (), wait, timeout, as_json)


@click.command("redrive", cls=QueueCommand, short_help="Put them back into the queue.")
@queued
@click.argument("refs", nargs=-1, metavar="[REF]...")
@click.option("--all", "every", is_flag=True, help="All there are when the leader reads it.")
@waiting
@AS_JSON
def dead_redrive(
    url: str, name: str, refs: tuple[str, ...], every: bool, wait: bool, timeout: float, as_json: bool
) -> int:
    """Put dead letters of the queue NAME at URL back into it, to be tried as if they were new.

    REF is a ref, as `dead list` shows it, or the id that `put` printed. Durable when it returns, and in effect once the
    queue's leader has read it: --wait waits for that.

    Exit code 0: done; 1: there is no such dead letter, or queue: nothing was asked; 2: not clear, or with --wait no
    leader has read it in time.
    """
    _either(refs, every)
    return _ask(url, name, "redrive", refs, wait, timeout, as_json)


@click.command("purge", cls=QueueCommand, short_help="Drop them for good.")
@queued
@click.argument("refs", nargs=-1, metavar="[REF]...")
@click.option("--all", "every", is_flag=True, help="All there are when the leader reads it.")
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
@waiting
@AS_JSON
def dead_purge(
    url: str, name: str, refs: tuple[str, ...], every: bool, yes: bool, wait: bool, timeout: float, as_json: bool
) -> int:
    """Drop dead letters of the queue NAME at URL for good.

    REF is a ref, as `dead list` shows it, or the id that `put` printed. Durable when it returns, and in effect once the
    queue's leader has read it: --wait waits for that.

    Exit code 0: done; 1: there is no such dead letter, or queue: nothing was asked; 2: not clear, or with --wait no
    leader has read it in time.
    """
    _either(refs, every)
    if every and not yes:
        _confirm(f"all dead letters of {name!r} at {parse_url(url).shown} are dropped for good")
    return _ask(url, name, "purge-dead", refs, wait, timeout, as_json)


def _either(refs: tuple[str, ...], every: bool) -> None:
    if bool(refs) == every:
        raise Refusal("which dead letters? Name them by REF, or give --all")
    if len(refs) > MAX_REFS:
        raise Refusal(f"{len(refs):,} dead letters are named: give at most {MAX_REFS:,} at a time, or --all")


def _confirm(what: str) -> None:
    if not sys.stdin.isatty():
        raise Refusal(f"{what}: say so with --yes")
    click.echo(printable(f"{what}."), err=True)
    click.confirm("Go on?", abort=True, err=True)


def _ask(url: str, name: str, op: str, refs: tuple[str, ...], wait: bool, timeout: float, as_json: bool) -> int:
    asked = run_until_stopped(_submit(url, name, op, refs, timeout if wait else None))
    output.carried_out(output.DONE if asked.followed else output.DURABLE)
    if as_json:
        show_json(asked)
    else:
        click.echo(printable(_told(asked, wait, timeout)))
    return 2 if wait and not asked.followed else 0


def _told(asked: Asked, wait: bool, timeout: float) -> str:
    about = "" if asked.letters is None else f" of {asked.letters} dead letter{'' if asked.letters == 1 else 's'}"
    what = f"{asked.op}{about} of {asked.queue!r}" if not about else f"{asked.op}{about} in {asked.queue!r}"
    if asked.followed:
        return f"{what}: in effect; the leader of epoch {asked.epoch} has read it, by entry {asked.seq} of its log"
    if wait:
        return (
            f"{what}: durable, and no leader has read it in {timeout:g} s: does anybody work on this queue? It takes "
            "effect when one does"
        )
    return f"{what}: durable; {_LATER}"


async def _submit(url: str, name: str, op: str, refs: tuple[str, ...], timeout: float | None) -> Asked:
    # Opening for writing makes a directory that is missing; to command nobody nothing should be made.
    async with open_queue(url, name, Access.READ_ONLY) as store:
        await ensure_there(store, url, name)
        if refs:
            state = unread()
            machine = await read_on(store, state)
            refs = tuple(letter.ref for letter in await find_letters(store, state, machine, name, refs))
    async with open_queue(url, name, Access.READ_WRITE) as store:
        command = Command(op, list(dict.fromkeys(refs)), f"tenure queue on {os.uname().nodename}"[:256])
        receipt = await queue_orders.send(store, name, command, SYSTEM_CLOCK)
        asked = Asked(name, op, len(command.refs) or None, False)
        if timeout is None:
            return asked
        followed = await queue_orders.follow(store, receipt, timeout, SYSTEM_CLOCK)
        if followed is None:
            return asked
        return msgspec.structs.replace(asked, followed=True, seq=followed.seq, epoch=followed.epoch)
