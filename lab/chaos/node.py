"""A process that takes part in everything: election, supervised children, queue, schedule, counters, expiry and a lock.

    python -m lab.chaos.node URL --name n1 --life 1 --folder FOLDER --end SECONDS

Each part has a file of its own in FOLDER, `NAME-LIFE.PART`, in the form that its judge reads; every instant in it is of
CLOCK_BOOTTIME:

    belief            `lab.judge`: is_leader() and Lead.holds(), a hundred times a second
    service, program  `lab.judge`: an async child and an OS command
    lock, waits       `lab.lock_judge`
    sent, handled     `lab.queue_judge`
    notes             `lab.counter_judge`
    runs              `lab.schedule_judge`
    expiry            `lab.chaos.expiry_judge`
    clock             CLOCK_BOOTTIME and the wall clock, at first and after each leap: for the conductor

SIGUSR1 ends the load: what was begun is ended, nothing more is. SIGTERM ends the process gracefully. A process that
cannot reach its store when it starts exits with 75, as a program that is to be started again. `--broken NAME` makes it
misbehave in one way, so that whoever judges can be seen to notice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from lab.believer import BREAKS, PERIOD, BeliefLog, boottime_ns, say, sleep
from lab.counter_log import NoteFile, error_word
from lab.counter_node import counting
from lab.counter_node import read as read_counters
from lab.counter_node import write as write_counters
from lab.lock_holder import HoldingLog
from lab.pace import LEASE, config
from lab.process import die_with_parent
from lab.queue_producer import body_of, outgoing
from lab.queue_worker import QUEUE, HandlingLog, note_lateness
from lab.queue_worker import SETTINGS as QUEUE_SETTINGS
from lab.schedule_node import KEPT, RunLog, declare_many
from tenure import Database, GlobalCoordinatorService, TTLPlugin
from tenure.coordinator.lock import DistributedLock
from tenure.errors import LockLost, RecordNotFound, StoreError, TenureError
from tenure.plugins.counters import EventualConsistencyPlugin
from tenure.plugins.queue import Message, S3QueuePlugin
from tenure.plugins.scheduler import SchedulerPlugin
from tenure.plugins.supervisor.candidate import CoordinatorCandidate
from tenure.plugins.supervisor.child import Child, Command, Context
from tenure.store import open_store

TRY_AGAIN = 75
"""sysexits.h has it for: try again later."""
RECORDS = 400
JOBS = 8
"""Every second each. One more would be a job that fires all that it missed and takes longer than its period: it would
never be done with what it missed."""
SESSIONS = "sessions"
LIVES = 12.0
"""Seconds for which a record lives that is not touched."""
TICK = 2.0
LOCK_TTL = 2 / 3 * LEASE
LEAPT = 2.0
"""Seconds: by so much no wall clock moves by itself between two looks."""
TICKER = Path(__file__).resolve().parent.parent / "ticker.py"
BROKEN = {
    "believes-on": "is_leader() is a flag that follows the truth, and not a deadline",
    "holds-on": "a holder of the lock believes until it has released it",
    "acks-unhandled": "every tenth message is acknowledged and not handled",
    "loses-enqueue": "every third call of enqueue says that it was accepted, and was not made",
    "counts-twice": "every tenth amount is given twice, and told once",
    "fires-twice": "every tenth run is run twice",
    "expires-early": "a record is deleted before its time",
    "leaves-program": "a program is started beside the supervisor, and nobody ends it",
    "gives-up": "whoever enqueues stops for good once a call has failed, or come a lease later than it should",
}


class Node:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.name: str = arguments.name
        self.label = f"{self.name}-{arguments.life}"
        """Of one life: whoever is started again is another producer."""
        self.folder: Path = arguments.folder
        self.url: str = arguments.url
        self.end = datetime.fromtimestamp(arguments.end, UTC)
        self.broken: frozenset[str] = frozenset(arguments.broken)
        self.dice = Random(self.label)
        self.resting = asyncio.Event()
        """No new load any more."""
        self.ended = asyncio.Event()

    def file(self, part: str) -> Path:
        return self.folder / f"{self.label}.{part}"

    async def pause(self, seconds: float) -> bool:
        """False: it is time to rest."""
        try:
            async with asyncio.timeout(seconds):
                await self.resting.wait()
        except TimeoutError:
            return True
        return False

    # Queue

    def queue(self) -> S3QueuePlugin:
        log, queue = (
            HandlingLog(self.name, self.file("handled")),
            S3QueuePlugin(resource=QUEUE, config=config(), shutdown_timeout=5.0, **QUEUE_SETTINGS),
        )
        queue.acked = log.acked
        handled = 0

        async def handle(message: Message) -> None:
            nonlocal handled
            handled += 1
            if "acks-unhandled" in self.broken and handled % 10 == 0:
                return
            log.began(message)
            await asyncio.sleep(self.dice.uniform(0.0, 0.1))
            log.ended(message)

        queue.on_message(handle, concurrency=10)
        self.queue_log = log
        return queue

    async def produce(self, queue: S3QueuePlugin) -> None:
        file = os.open(self.file("sent"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

        def note(what: str, *fields: str) -> None:
            line = " ".join([what, str(boottime_ns()), f"{self.label}:{os.getpid()}", *fields])
            os.write(file, line.encode() + b"\n")

        number = calls = 0
        before_ns = boottime_ns()
        while await self.pause(self.dice.uniform(0.6, 1.4)):
            bodies = [body_of(self.label, number + each, 4) for each in range(1, 5)]
            number, calls = number + len(bodies), calls + 1
            note("sending", *bodies)
            try:
                if "loses-enqueue" not in self.broken or calls % 3:
                    await queue.enqueue_many(map(outgoing, bodies))
            except TenureError as error:
                note("unknown", error_word(error))
                failed = True
            else:
                note("accepted", *bodies)
                # From the end of the last: a process is seldom stopped in the middle of a call.
                failed = boottime_ns() - before_ns > (LEASE + 1.4) * 1e9
            before_ns = boottime_ns()
            if failed and "gives-up" in self.broken:
                return

    # Schedule

    def scheduler(self) -> SchedulerPlugin:
        scheduler = SchedulerPlugin(config=config(), ledger=KEPT)
        log = RunLog(self.name, self.file("runs"))
        if "fires-twice" in self.broken:
            honest, begun = log.write, 0

            def write(what: str, run: Any, last: object) -> None:
                nonlocal begun
                honest(what, run, last)
                begun += what == "began"
                if what == "began" and begun % 10 == 0:
                    honest(what, run, last)

            log.write = write  # type: ignore[method-assign]
        declare_many(scheduler, log, self.dice, JOBS, self.end)
        return scheduler

    # Counters

    def counters(self) -> EventualConsistencyPlugin:
        return counting(takes_part=True)

    async def count(self, counters: Any) -> None:
        """With so many of its calls having an `op_id`, few remain unknown, and totals can be judged."""
        settings = argparse.Namespace(
            **{"worker_id": self.name, "log": self.file("notes"), "records": RECORDS, "share": 10**9},
            **{"burst": 3, "rate": 3.0, "ops": 4, "pause": 0.5},
        )
        notes = NoteFile(self.name, settings.log)
        given: Any = _Doubling(counters) if "counts-twice" in self.broken else counters
        writing = asyncio.create_task(write_counters(given, notes, settings))
        reading = asyncio.create_task(read_counters(counters, notes, settings))
        resting = asyncio.create_task(self.resting.wait())
        try:
            await asyncio.wait([writing, reading, resting], return_when=asyncio.FIRST_COMPLETED)
            settings.share = 0  # it goes on until everything that has an op_id was accepted
            await asyncio.wait([writing, reading], return_when=asyncio.FIRST_COMPLETED)
            for task in (writing, reading):
                if task.done():
                    task.result()
        finally:
            for each in (writing, reading, resting):
                each.cancel()

    # Expiry

    def sessions(self) -> TTLPlugin:
        return TTLPlugin(SESSIONS, ttl=LIVES, tick=TICK, config=config())

    async def keep_sessions(self, database: Database, ttl: TTLPlugin) -> None:
        """Insert, look, and touch at the last moment."""
        records, notes = database.resource(SESSIONS), NoteFile(self.name, self.file("expiry"))
        known: dict[str, float] = {}
        """When each is over at the earliest, by this process's clock."""
        loop = asyncio.get_running_loop()
        number = 0
        while await self.pause(self.dice.uniform(0.4, 0.8)):
            number += 1
            id = f"{self.label}.{number}"
            notes.write("inserting", id, round(LIVES * 1000))
            began = loop.time()
            try:
                await records.insert({"by": self.name}, id=id)
            except TenureError as error:
                notes.write("unsure", id, error_word(error))
            else:
                notes.write("inserted", id)
                known[id] = began + LIVES
            for each, until in list(known.items()):
                if until < loop.time() - 3 * LIVES:
                    del known[each]
                elif self.dice.random() < 0.1:
                    await self._look(records, each, notes)
                elif 0.0 < until - loop.time() < 1.0 and self.dice.random() < 0.5:
                    await self._touch(ttl, each, notes, known)
            if "expires-early" in self.broken and number % 5 == 0 and known:
                early = next(iter(known))
                with contextlib.suppress(TenureError):
                    await records.delete(early)
                    await self._look(records, early, notes)

    async def _look(self, records: Any, id: str, notes: NoteFile) -> None:
        asked_ns = boottime_ns()
        try:
            there = await records.exists(id)
        except TenureError:
            return
        notes.write_read("looked", asked_ns, boottime_ns(), id, int(there))

    async def _touch(self, ttl: TTLPlugin, id: str, notes: NoteFile, known: dict[str, float]) -> None:
        began = asyncio.get_running_loop().time()
        notes.write("touching", id, round(LIVES * 1000))
        try:
            await ttl.touch(id)
        except RecordNotFound:
            notes.write("gone", id)
        except TenureError as error:
            notes.write("unsure", id, error_word(error))
        else:
            notes.write("touched", id)
            known[id] = began + LIVES

    # Lock

    async def take_lock(self) -> None:
        breaks = "holds-on" in self.broken
        store = None
        while store is None:
            try:
                store = await open_store(self.url)
            except StoreError as error:
                say("no-lock", error=error_word(error))
                if not await self.pause(0.5):
                    return
        lock = DistributedLock(store, "job", ttl=LOCK_TTL, owner=self.name)
        log = HoldingLog(self.name, self.file("lock"), breaks)
        waits = os.open(self.file("waits"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        asked_ns = boottime_ns()
        while await self.pause(self.dice.uniform(0.2, 1.0)):
            try:
                held = await lock.acquire(timeout=5 / 3 * LEASE)
            except TenureError as error:
                say("no-lock", error=error_word(error))
                continue
            got_ns = boottime_ns()
            log.held = held
            log.note()
            os.write(waits, f"{asked_ns} {got_ns} {held.token}\n".encode())
            until_ns = boottime_ns() + int(self.dice.choice((0.0, 0.05, 0.3, 0.4 * LOCK_TTL, 1.5 * LOCK_TTL)) * 1e9)
            try:
                while boottime_ns() < until_ns and not self.resting.is_set():
                    if not breaks:
                        held.ensure()
                    await asyncio.sleep(0.02)
            except LockLost:
                say("lock-lost", token=held.token)
            log.note()
            log.held = None
            try:
                await held.release()
            except TenureError as error:
                say("not-released", token=held.token, error=error_word(error))
            asked_ns = boottime_ns()
        await lock.aclose()

    # Children

    async def serve_under(self, context: Context) -> None:
        """A child that asks before each step, as one must that may be stopped between two of them."""
        assert context.lead is not None
        process = f"{self.name}:{os.getpid()}"
        file = os.open(self.file("service"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            while True:
                before_ns = boottime_ns()
                runs = context.lead.holds()
                after_ns = boottime_ns()
                os.write(file, f"{before_ns} {after_ns} {process} {context.epoch * runs} {runs:d} {runs:d}\n".encode())
                await asyncio.sleep(PERIOD)
        finally:
            os.close(file)

    async def leave_program(self, context: Context) -> None:
        environment = {**os.environ, "LD_PRELOAD": "", "TENURE_EPOCH": str(context.epoch)}
        # Nobody ends it while this process lives: a run leaves nothing behind all the same.
        subprocess.Popen(self._ticker(), env={**environment, "TENURE_WORKER_ID": self.name}, preexec_fn=die_with_parent)
        await asyncio.Event().wait()

    def _ticker(self) -> list[str]:
        return [sys.executable, "-S", str(TICKER), str(self.file("program"))]

    def candidate(self) -> CoordinatorCandidate:
        # libfaketime makes every sleep of a Python program fail: the program has no need of it.
        program: Any = Command(*self._ticker(), env={"LD_PRELOAD": ""})
        if "leaves-program" in self.broken:
            program = self.leave_program
        children = [Child("service", self.serve_under), Child("program", program)]
        return CoordinatorCandidate(children, config=config())

    # All of it

    def believe(self, coordinator: GlobalCoordinatorService) -> None:
        BeliefLog(coordinator, self.name, self.file("belief")).start()

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.ended.set)
        loop.add_signal_handler(signal.SIGUSR1, self.resting.set)
        watching = asyncio.create_task(self.note_clock())
        try:
            return await self._take_part()
        finally:
            watching.cancel()

    async def _take_part(self) -> int:
        database = Database(self.url, worker_id=self.name)
        try:
            await database.connect()
            coordinator = await database.get_global_coordinator("default", config=config())
            coordinator.on("*", _tell)
            if "believes-on" in self.broken:
                flag = asyncio.create_task(BREAKS["flag-not-deadline"](coordinator))
                flag.add_done_callback(lambda _: None)
            queue, scheduler, counters, ttl = self.queue(), self.scheduler(), self.counters(), self.sessions()
            for plugin in (queue, scheduler, counters, ttl):
                await database.use_plugin(plugin)
            self.believe(coordinator)
            await database.use_plugin(self.candidate())
        except StoreError as error:
            say("unreachable", error=error_word(error))
            return TRY_AGAIN
        say("joined", worker=self.name, pid=os.getpid())
        lateness = asyncio.create_task(note_lateness(queue, self.queue_log))
        await self._work(self.produce(queue), self.count(counters), self.keep_sessions(database, ttl), self.take_lock())
        lateness.cancel()
        say("stopping")
        await database.disconnect()
        say("stopped")
        return 0

    async def note_clock(self) -> None:
        """What the wall clock says, once and after every leap: whoever makes it leap can see that it did."""
        file = os.open(self.file("clock"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        noted_ns: int | None = None
        while True:
            now_ns = boottime_ns()
            wall_ns = time.time_ns()
            if noted_ns is None or abs(wall_ns - now_ns - noted_ns) > LEAPT * 1e9:
                os.write(file, f"{now_ns} {wall_ns}\n".encode())
                noted_ns = wall_ns - now_ns
            await asyncio.sleep(0.2)

    async def _work(self, *parts: Coroutine[Any, Any, None]) -> None:
        tasks = [asyncio.create_task(part) for part in parts]
        ending = asyncio.create_task(self.ended.wait())
        try:
            waiting = {*tasks, ending}
            while not ending.done():
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # a part that fails ends the process: whoever watches it will see
                if waiting == {ending} and self.resting.is_set():
                    say("rested")
        finally:
            for task in tasks:
                task.cancel()


class _Doubling:
    """Counters that are given some amounts twice."""

    def __init__(self, counters: Any) -> None:
        self._counters, self._calls = counters, 0

    async def add(self, id: str, field: str, amount: int, op_id: str | None = None) -> None:
        self._calls += 1
        await self._counters.add(id, field, amount, op_id=op_id)
        if self._calls % 10 == 0:
            await self._counters.add(id, field, amount)

    async def sub(self, id: str, field: str, amount: int, op_id: str | None = None) -> None:
        await self._counters.sub(id, field, amount, op_id=op_id)


def _tell(event: Any) -> None:
    if not event.name.endswith("worker-heartbeat"):
        say(event.name, told=repr(event))


def arguments_parser(program: str, what: str, broken: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=what)
    parser.add_argument("url")
    parser.add_argument("--name", required=True)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--end", type=float, required=True, metavar="SECONDS", help="of the schedule, since 1970")
    parser.add_argument("--broken", action="append", default=[], choices=sorted(broken), help="be wrong in this way")
    return parser


def parse_arguments() -> argparse.Namespace:
    return arguments_parser("python -m lab.chaos.node", "Take part in everything.", BROKEN).parse_args()


if __name__ == "__main__":
    if "libfaketime" in os.environ.get("LD_PRELOAD", ""):
        time.sleep = sleep
    code = 1
    try:
        code = asyncio.run(Node(parse_arguments()).serve())
    except Exception as failure:
        say("failed", error=f"{type(failure).__name__}: {failure}")
        raise
    finally:
        # obstore's threads may abort the process if they are busy while the interpreter is being taken down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if sys.exc_info()[0] else code)
