"""Processes that count: one that adds and may lead, one that reads, one that changes the records meanwhile.

    python -m lab.counter_node URL --worker-id ID --log FILE --role writer --share 12500 --rate 250
    python -m lab.counter_node URL --worker-id ID --log FILE --role reader
    python -m lab.counter_node URL --worker-id ID --log FILE --role changer

What they note is said in `lab.counter_log`, and judged by `lab.counter_judge`. A writer gives its calls in bursts, with
amounts that are random and large, so that a sum tells what is in it. One that is started again under a name goes on
after the last number in the files of that name. What it was not told about is not given again, but for calls that have
an `op_id`: those are given until they return, and some once more. SIGTERM ends a process gracefully.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from lab.believer import boottime_ns, say
from lab.counter_log import Call, NoteFile, Notes, error_word
from lab.pace import LEASE, config
from tenure import Database
from tenure.errors import StoreUnavailable, TenureError
from tenure.ledger import LedgerConfig
from tenure.plugins.counters import EventualConsistencyPlugin

PAGES = "pages"
VIEWS, SCORE = "views", "stats.score"
FIELDS = (VIEWS, SCORE)
LEDGER = LedgerConfig(snapshot_every=100, trim_delay=8 / 3 * LEASE)
"""Snapshots and trimmed entries are a part of what is tried."""
INTERVAL = 1.0
HOT = 10
"""Records that a fifth of all calls are for."""
LARGEST = 10**12
SPENT_EVERY = 0.5


def counting(*, takes_part: bool) -> EventualConsistencyPlugin:
    return EventualConsistencyPlugin(
        PAGES, FIELDS, producer_only=not takes_part, config=config(), ledger=LEDGER, interval=INTERVAL
    )


# Records: what becomes of each is in its number


def page_id(number: int) -> str:
    return f"page{number:04}"


def is_there_at_first(number: int) -> bool:
    """The others are counted before they are inserted, or never are."""
    return number % 10 not in (7, 8)


def start_of(number: int) -> dict[str, Any]:
    """What the record of this number is inserted with; counting goes on from its `views`."""
    return {"title": 0, VIEWS: 1000 + number} if number % 10 == 9 else {"title": 0}


def is_changed(number: int) -> bool:
    return number % 10 in (5, 6, 8)


def next_change(number: int, exists: bool, dice: Random) -> str:
    """Those on 5 are changed; those on 6 and 8 are deleted and inserted again as well."""
    if not exists:
        return "insert"
    if number % 10 != 5 and dice.random() < 0.5:
        return "delete"
    return dice.choice(("update", "patch"))


# Calls


def call_text(writer: str, number: int, records: int, ops: int = 1) -> str:
    """The same for the same number: as `lab.counter_log` has it. Of five, `ops` have an `op_id`."""
    dice = Random(f"{writer}:{number}")
    record = dice.randrange(min(HOT, records)) if dice.random() < 0.2 else dice.randrange(records)
    amount = dice.randint(1, LARGEST)
    field = SCORE if dice.random() < 0.25 else VIEWS
    if field == SCORE and dice.random() < 0.5:
        amount = -amount
    return f"{writer}:{number}:{page_id(record)}:{field}:{amount}:{'op' if number % 5 < ops else '-'}"


def text_of(call: Call) -> str:
    return f"{call.name}:{call.counter[0]}:{call.counter[1]}:{call.amount}:op"


def is_given_twice(text: str) -> bool:
    """Also though it returned: as by a caller who was not told."""
    return int(text.split(":")[1]) % 50 == 0


async def give(counters: EventualConsistencyPlugin, text: str) -> None:
    writer, number, id, field, amount, kind = text.split(":")
    op_id = f"{writer}:{number}" if kind == "op" else None
    if int(amount) < 0:
        await counters.sub(id, field, -int(amount), op_id=op_id)
    else:
        await counters.add(id, field, int(amount), op_id=op_id)


def known_before(log: Path, writer: str) -> tuple[int, list[str]]:
    """The next number, and what is to be given again, by the files of those who had this name before."""
    notes = Notes()
    for path in sorted(log.parent.glob(f"{writer}-*.notes")):
        notes.read(path)
    numbers = [int(name.partition(":")[2]) for name in notes.calls]
    again = [text_of(call) for call in notes.calls.values() if call.is_op and call.acked_ns is None]
    return max(numbers, default=0) + 1, again


async def write(counters: EventualConsistencyPlugin, notes: NoteFile, arguments: argparse.Namespace) -> None:
    number, again = known_before(arguments.log, arguments.worker_id)
    loop = asyncio.get_running_loop()
    given, began, twice = 0, loop.time(), set(again)
    while number <= arguments.share or again:
        texts, again = again, []
        for _ in range(min(arguments.burst, arguments.share + 1 - number)):
            texts.append(call_text(arguments.worker_id, number, arguments.records, arguments.ops))
            number += 1
        notes.write("adding", *texts)
        outcomes = await asyncio.gather(*(give(counters, text) for text in texts), return_exceptions=True)
        returned = [":".join(t.split(":")[:2]) for t, o in zip(texts, outcomes, strict=True) if o is None]
        if returned:
            notes.write("added", *returned)
        for text, outcome in zip(texts, outcomes, strict=True):
            if isinstance(outcome, Exception):
                if not isinstance(outcome, TenureError):
                    raise outcome
                notes.write("unknown", error_word(outcome), ":".join(text.split(":")[:2]))
                if text.endswith(":op"):
                    again.append(text)
            elif is_given_twice(text) and text not in twice:
                twice.add(text)
                again.append(text)
        given += len(texts)
        await asyncio.sleep(max(0.0, began + given / arguments.rate - loop.time()))
    say("done", worker=arguments.worker_id, last=number - 1)


# Reading


async def read(counters: EventualConsistencyPlugin, notes: NoteFile, arguments: argparse.Namespace) -> None:
    """Half of the reads are of those that are counted most; every fourth is a plain one."""
    dice = Random(arguments.worker_id)
    for turn in itertools.count():
        records = min(HOT, arguments.records) if dice.random() < 0.5 else arguments.records
        id, field = page_id(dice.randrange(records)), dice.choice(FIELDS)
        how = "plain" if turn % 4 == 3 else "consistent"
        asked_ns = boottime_ns()
        try:
            value = await counters.get(id, field, consistent=how == "consistent")
        except TenureError as error:
            notes.write("unread", error_word(error))
        else:
            notes.write_read("read", asked_ns, boottime_ns(), how, id, field, value)
        await asyncio.sleep(arguments.pause)


# Changing


async def change(database: Database, notes: NoteFile, arguments: argparse.Namespace) -> None:
    """The only one that changes other fields. What it is not sure of it leaves alone from then on."""
    pages, dice = database.resource(PAGES), Random(arguments.worker_id)
    mine = [number for number in range(arguments.records) if is_changed(number)]
    exists = {number: is_there_at_first(number) for number in mine}
    for title in itertools.count(1):
        number = dice.choice(mine)
        id, what = page_id(number), next_change(number, exists[number], dice)
        notes.write("writing", title, id, what, title)
        try:
            if what == "insert":
                await pages.insert({"title": title}, id=id)
            elif what == "update":
                await pages.update(id, {"title": title, "by": arguments.worker_id})
            elif what == "patch":
                await pages.patch(id, {"title": title})
            else:
                await pages.delete(id)
        except StoreUnavailable as error:
            notes.write("unsure", title, error_word(error))
            mine.remove(number)
        else:
            notes.write("wrote", title)
            exists[number] = what != "delete"
        await asyncio.sleep(arguments.pause)


# The process


@asynccontextmanager
async def beside(work: Callable[[], Awaitable[None]]) -> AsyncIterator[asyncio.Task[None]]:
    async def run() -> None:
        await work()

    task = asyncio.create_task(run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def note_requests(database: Database, notes: NoteFile) -> None:
    """So often that of one which is killed little is missing."""
    while True:
        await asyncio.sleep(SPENT_EVERY)
        notes.write("spent", database.usage().total)


async def serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    notes = NoteFile(arguments.worker_id, arguments.log)
    counters = counting(takes_part=arguments.role == "writer")
    async with Database(arguments.url, worker_id=arguments.worker_id) as database:
        await database.use_plugin(counters)
        if arguments.role == "writer":
            for event in ("leading", "halted", "not-led", "apply-failed", "field-hidden"):
                counters.on(f"plg:eventual-consistency:{event}", lambda told: say(told.name, told=repr(told)))
        say("joined", worker=arguments.worker_id, pid=os.getpid())

        async def work() -> None:
            if arguments.role == "writer":
                await write(counters, notes, arguments)
            elif arguments.role == "reader":
                await read(counters, notes, arguments)
            else:
                await change(database, notes, arguments)

        async with beside(lambda: note_requests(database, notes)), beside(work) as working:
            waiting = asyncio.create_task(ended.wait())
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            await waiting  # a writer that is done may still lead
        notes.write("spent", database.usage().total)
        say("stopping")
    say("stopped")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.counter_node", description="Count, read or change, and note it."
    )
    parser.add_argument("url")
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--role", choices=("writer", "reader", "changer"), default="writer")
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--share", type=int, default=1000, help="a writer's last number")
    parser.add_argument("--rate", type=float, default=250.0, help="a writer's calls a second")
    parser.add_argument("--burst", type=int, default=25, help="of these, so many at a time")
    parser.add_argument("--ops", type=int, default=1, help="of five calls of a writer, so many have an op_id")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds after each read or change")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(serve(parse_arguments()))
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else 0)
