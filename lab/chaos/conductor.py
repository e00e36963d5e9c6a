"""Starts the processes of a run, does to them what the plan says, and asks at the end what the bucket has to say.

What was done, and when, is in `events` (for the judges) and in `run.json`; the processes' own logs are beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lab.believer import boottime_ns
from lab.chaos.node import JOBS, RECORDS, SESSIONS, TRY_AGAIN
from lab.chaos.plan import LATENCY_SECONDS, Kind, Step, Target, Timing
from lab.chaos.site import Site
from lab.counter_cluster import CounterCluster
from lab.fault_proxy import FaultProxy, Rule
from lab.faults import (
    hang_after_apply,
    hang_before_apply,
    reset_after_apply,
    reset_before_apply,
    slow,
    status_before_apply,
)
from lab.ledger_cluster import ROOT
from lab.pace import LEASE
from lab.process import spawn, state_of
from lab.queue_cluster import Reader
from lab.queue_worker import QUEUE
from lab.schedule_cluster import ScheduleCluster
from tenure import Database
from tenure.errors import StoreError
from tenure.ledger import ledger_store
from tenure.plugins.queue.looking import read_queue
from tenure.plugins.queue.state import QueueMachine
from tenure.store import Store, open_store

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
_LOOK = 0.1
_FRESH_NS = 1_000_000_000
_LAST = 400
_JOINING = 30 * LEASE
_ENDING = 40.0 / 3 * LEASE
_LOOKS_FOR_DOWN = 20
_SETTLING = 60 * LEASE
"""Seconds: a job that fires all that it missed, each for longer than its period, takes longer than it was away."""
_MOST_FAILURES = 50
_SHOWS_WITHIN = 5.0
"""Seconds until a signal has had its effect, on a busy machine."""
_TOPPED_UP = 5
"""Times that a disk is filled again because somebody has deleted something meanwhile."""
_LEAPS_WITHIN = 1.5
"""Seconds: a process looks for its offset once a second."""
_CLOCK_WITHIN_NS = 1_500_000_000
_PROCESS_KINDS = frozenset({Kind.KILL, Kind.RESTART, Kind.FREEZE})
EXCEPT_THE_LEASE = "/state.json"
T = TypeVar("T")
WIPED = "wiped"
"""The folder of what was noted after the wiping."""


class Calm(msgspec.Struct, frozen=True):
    """Nothing was wrong any more from the first instant to the second."""

    from_ns: int
    to_ns: int


class Run(msgspec.Struct, kw_only=True):
    """What `run.json` says."""

    store: str
    seed: int
    seconds: float
    nodes: int
    broken: list[str]
    steps: list[Step]
    wipes: bool = True
    hits: dict[str, int] = {}
    """By kind: faults that began, and that at least one request, process or disk felt."""
    missed: dict[str, int] = {}
    """By kind: faults of the plan that nobody felt."""
    on: dict[str, int] = {}
    """By kind and who was really hit and felt it: `kill leader`; `kill any` if there was no leader at that moment."""
    starts: int = 0
    requests: dict[str, int] = {}
    """Through the proxies, by method."""
    faulted: int = 0
    """Requests that were disturbed; those that a storm lets through are not."""
    calms: list[Calm] = []
    wiped: Calm | None = None
    """The calm after everything but the leases was deleted."""
    wiped_objects: int = 0
    wiped_leader: str = ""
    """Who led then, and was killed."""
    failures: list[str] = []
    """What no log has: a process that ended by itself, or did not end, and waiting in vain."""


@dataclass
class Node:
    name: str
    index: int
    process: subprocess.Popen[bytes] | None = None
    life: int = 0
    stem: Path = Path()
    busy: bool = False
    """Killed, frozen or ending."""
    leaps: list[float] = field(default_factory=list)
    """Of its wall clock, seconds each; the newest counts."""

    @property
    def identity(self) -> str:
        assert self.process is not None
        return f"{self.name}:{self.process.pid}"

    def last(self, part: str) -> list[str]:
        """The fields of the last whole line of a log."""
        try:
            with self.stem.with_suffix(f".{part}").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST))
                lines = file.read().decode(errors="replace").split("\n")[:-1]
        except FileNotFoundError:
            return []
        return lines[-1].split(" ") if lines else []

    def tail(self) -> str:
        output = self.stem.with_suffix(".out")
        return output.read_text(errors="replace")[-600:] if output.exists() else ""

    def said(self, what: str) -> bool:
        output = self.stem.with_suffix(".out")
        return output.exists() and f'{{"said": "{what}"'.encode() in output.read_bytes()


@dataclass
class Conductor:
    site: Site
    folder: Path
    steps: tuple[Step, ...]
    run: Run
    timing: Timing
    tell: Callable[[str], None] = print
    nodes: list[Node] = field(default_factory=list)
    end: float = 0.0
    _place: Path = Path()
    _events: int = -1
    _hits: Counter[str] = field(default_factory=Counter)
    _missed: Counter[str] = field(default_factory=Counter)
    _on: Counter[str] = field(default_factory=Counter)
    _watching: asyncio.Task[None] | None = None
    _leaving: bool = False
    _store: Store | None = None
    _hand: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _serving: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A server that is down is not ended again, nor started twice."""

    # A run

    async def conduct(self) -> Run:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._place = self.folder
        self._events = os.open(self.folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        waves = 1 + max(step.wave for step in self.steps)
        # A schedule needs its end from the beginning on: when the last calm is over, more or less.
        self.end = float(round(time.time() + 20 + waves * (self.timing.wave + self.timing.calm) * 1.1))
        self._store = await self._opened()
        await CounterCluster(self.site.url(), self.folder, records=RECORDS).insert_first()
        self.nodes = [Node(f"n{number}", number - 1) for number in range(1, self.run.nodes + 1)]
        self._watching = asyncio.create_task(self._watch())
        try:
            for node in self.nodes:
                self._start(node)
            await self._until(lambda: all(node.said("joined") for node in self.nodes), _JOINING, "all have joined")
            await self._until(lambda: self._find(Target.LEADER) is not None, _JOINING, "somebody leads")
            for wave in range(waves):
                await self._wave(wave, waves)
            await self._settle()
            await self._leave()
            await self._try("the schedule is told", self._ask_schedule)
            if self.run.wipes:
                await self._wipe()
                await self._leave()
        finally:
            self._leaving = True
            self._watching.cancel()
            self._end_all()
            os.close(self._events)
            self._count()
        return self.run

    async def _opened(self) -> Store:
        for _ in range(5):
            with contextlib.suppress(StoreError):
                return await open_store(self.site.url())
        return await open_store(self.site.url())

    async def _wave(self, wave: int, waves: int) -> None:
        steps = [step for step in self.steps if step.wave == wave]
        self.tell(f"wave {wave + 1} of {waves}: " + ", ".join(step.kind.value for step in steps))
        await asyncio.gather(*(self._step(step) for step in steps))
        from_ns = boottime_ns()
        await asyncio.sleep(self.timing.calm)
        self.run.calms.append(Calm(from_ns, boottime_ns()))

    async def _step(self, step: Step) -> None:
        await asyncio.sleep(step.at)
        node, hit = self._victim(step) if step.target is not Target.STORE else (None, Target.STORE)
        self.tell(f"  {step.kind.value} {node.name if node else 'store'} ({hit.value}) for {step.seconds:.1f} s")
        if step.target is not Target.STORE and node is None:
            self._missed[step.kind.value] += 1
            return
        felt = await self._do(step, node)
        if not felt:
            self.tell(f"  {step.kind.value} was not felt")
            self._missed[step.kind.value] += 1
            return
        self._hits[step.kind.value] += 1
        self._on[f"{step.kind.value} {hit.value}"] += 1

    # Faults

    def _victim(self, step: Step) -> tuple[Node | None, Target]:
        """Who is hit, and as what: anyone, if whoever was meant is not there at this moment."""
        found = self._find(step.target)
        wanted = [(found, step.target)] if found is not None else []
        turned = [self.nodes[(step.index + offset) % len(self.nodes)] for offset in range(len(self.nodes))]
        for node, hit in (*wanted, *((node, Target.ANY) for node in turned)):
            if node.process is not None and not (node.busy and step.kind in _PROCESS_KINDS):
                return node, hit
        return None, Target.ANY

    def _find(self, target: Target) -> Node | None:
        now = boottime_ns()
        running = [node for node in self.nodes if node.process is not None and not node.busy]
        if target in (Target.LEADER, Target.SUPERVISOR):
            part = "belief" if target is Target.LEADER else "service"
            for node in running:
                fields = node.last(part)
                if len(fields) == 6 and fields[4] == "1" and now - int(fields[1]) < _FRESH_NS:
                    return node
        elif target is Target.HOLDER:
            held = [(int(fields[2]), node.index) for node in running if len(fields := node.last("waits")) == 3]
            return self.nodes[max(held)[1]] if held else None
        return None

    async def _do(self, step: Step, node: Node | None) -> bool:
        match step.kind:
            case Kind.KILL if node is not None:
                return await self._kill(node, step.seconds)
            case Kind.RESTART if node is not None:
                return await self._restart(node, step.seconds)
            case Kind.FREEZE if node is not None:
                return await self._freeze(node, step.seconds)
            case Kind.CLOCK if node is not None:
                return await self._leap(node, step)
            case Kind.STORE_RESTART:
                return await self._restart_store(step.seconds)
            case Kind.STORE_FREEZE:
                return await self._freeze_store(step.seconds)
            case Kind.FULL_DISK:
                return await self._fill_disk(step.seconds)
            case _:
                return await self._disturb(step, self.nodes if node is None else [node])

    async def _by_hand(self, deed: Callable[[], T]) -> T:
        """In a thread that lasts as long as the run does: a server is killed when the one that started it ends."""
        return await asyncio.get_running_loop().run_in_executor(self._hand, deed)

    async def _restart_store(self, seconds: float) -> bool:
        """Felt: while it was down nobody accepted a connection, and it came back as another process."""
        async with self._cut(self.nodes), self._serving:
            before = self.site.pids()
            await self._by_hand(self.site.go_down)
            refused = False
            for _ in range(_LOOKS_FOR_DOWN):  # a process that was killed answers until the kernel has taken it down
                refused = await self._by_hand(self.site.refuses)
                if refused:
                    break
                await asyncio.sleep(0.1)
            await asyncio.sleep(seconds)
            await self._by_hand(self.site.come_up)
            after = self.site.pids()
        return refused and bool(before) and bool(after) and set(before) != set(after)

    async def _freeze_store(self, seconds: float) -> bool:
        async with self._cut(self.nodes):
            self.site.freeze()
            try:
                felt = await self._are_stopped(self.site.pids())
                await asyncio.sleep(seconds)
            finally:
                self.site.thaw()
        return felt

    async def _fill_disk(self, seconds: float) -> bool:
        felt = False
        async with self._cut(self.nodes):
            try:
                for _ in range(_TOPPED_UP):
                    await self._by_hand(self.site.fill)
                    felt = await self._by_hand(self.site.is_full)
                    if felt:
                        break
                await asyncio.sleep(seconds)
            finally:
                self.site.free()
        return felt

    async def _are_stopped(self, pids: Sequence[int]) -> bool:
        """As the system says, of each; a signal may take a moment."""
        deadline = time.monotonic() + _SHOWS_WITHIN
        while not all(state_of(pid) in ("T", "t") for pid in pids):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK / 10)
        return bool(pids)

    async def _kill(self, node: Node, seconds: float) -> bool:
        process = node.process
        assert process is not None
        node.busy = True
        process.kill()
        process.wait()
        felt = process.returncode == -signal.SIGKILL
        if not felt:
            self._ended_by_itself(node)
        self._note("killed", node)  # it did nothing after this
        node.process = None
        await asyncio.sleep(seconds)
        self._start(node)
        return felt

    async def _restart(self, node: Node, seconds: float) -> bool:
        process = node.process
        assert process is not None
        node.busy = True
        felt = process.poll() is None
        self._note("terminated", node)
        process.terminate()
        deadline = time.monotonic() + _ENDING
        while process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK)
        if not felt:
            self._ended_by_itself(node)
        elif process.poll() is None:
            self._fail(f"{node.identity} did not end within {_ENDING:g} s of SIGTERM")
            process.kill()
            process.wait()
            self._note("killed", node)
        else:
            self._ended_when_asked(node)
        node.process = None
        await asyncio.sleep(seconds)
        self._start(node)
        return felt

    async def _freeze(self, node: Node, seconds: float) -> bool:
        process = node.process
        assert process is not None
        node.busy = True
        self._note("stopped", node)
        process.send_signal(signal.SIGSTOP)
        try:
            felt = await self._are_stopped([process.pid])
            await asyncio.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)
            self._note("continued", node)
            node.busy = False
        return felt

    async def _leap(self, node: Node, step: Step) -> bool:
        # A store may refuse whose clock is far off: then it is cut off as well.
        began_ns = boottime_ns()
        async with self._cut([node]):
            node.leaps.append(step.amount)
            self._set_clock(node)
            try:
                await asyncio.sleep(step.seconds)
            finally:
                node.leaps.remove(step.amount)
                self._set_clock(node)
                await asyncio.sleep(_LEAPS_WITHIN)
        return self._has_leapt(node, step.amount, began_ns)

    def _has_leapt(self, node: Node, amount: float, since_ns: int) -> bool:
        """By what the process itself noted, or one that was started in its place meanwhile."""
        right_ns = time.time_ns() - boottime_ns() + round(amount * 1e9)
        for path in self._place.glob(f"{node.name}-*.clock"):
            for line in path.read_text().split("\n")[:-1]:
                at_ns, wall_ns = map(int, line.split(" "))
                if at_ns >= since_ns and abs(wall_ns - at_ns - right_ns) < _CLOCK_WITHIN_NS:
                    return True
        return False

    async def _disturb(self, step: Step, nodes: list[Node]) -> bool:
        rules: list[tuple[Node, Rule]] = []
        async with self._cut(nodes):
            for node in nodes:
                rules += [(node, rule) for rule in self._rules(step, self.site.proxies[node.index])]
            try:
                await asyncio.sleep(step.seconds)
            finally:
                for node, rule in rules:
                    self.site.proxies[node.index].remove(rule)
        disturbed = sum(rule.hits for _, rule in rules if rule.fault.disturbs)
        self.run.faulted += disturbed
        return disturbed > 0

    def _rules(self, step: Step, proxy: FaultProxy) -> list[Rule]:
        """Each ahead of what is wrong already, which would hide it otherwise."""
        match step.kind:
            case Kind.CUT_OFF:
                return [proxy.plan(reset_before_apply(), times=None, ahead=True)]
            case Kind.SILENCE:
                return [proxy.plan(hang_before_apply(), times=None, ahead=True)]
            case Kind.LOST_REPLIES:
                # Half of them at once, by a reset; of the others nothing is heard at all.
                rest = proxy.plan(hang_after_apply(), times=None, ahead=True)
                return [rest, proxy.every(2, reset_after_apply(), ahead=True)]
            case Kind.LATENCY:
                return [proxy.plan(slow(LATENCY_SECONDS), times=None, ahead=True)]
            case Kind.STORE_SLOW:
                return [proxy.plan(slow(step.amount), times=None, ahead=True)]
            case _:
                # Four in five: a store in trouble answers now and then.
                rest = proxy.plan(status_before_apply(503), times=None, ahead=True)
                return [rest, proxy.every(5, slow(0.0), ahead=True)]

    @contextlib.asynccontextmanager
    async def _cut(self, nodes: list[Node]) -> Any:
        """Note for whom reports may not get through."""
        for node in nodes:
            self._note_cut("cut", node)
        try:
            yield
        finally:
            for node in nodes:
                self._note_cut("restored", node)

    def _note_cut(self, what: str, node: Node) -> None:
        self._write(f"{what} {boottime_ns()} {node.name}")

    # Processes

    def _offset(self, node: Node) -> Path:
        return self.folder / f"{node.name}.offset"

    def _set_clock(self, node: Node) -> None:
        self._offset(node).write_text(f"{node.leaps[-1] if node.leaps else 0.0:+.0f}\n")

    def _start(self, node: Node) -> None:
        node.life += 1
        node.stem = self._place / f"{node.name}-{node.life}"
        self._set_clock(node)  # a machine whose clock is wrong is no better for whoever starts now
        environment = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset(node)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "NO_FAKE_STAT": "1",
            # Where compiled modules are not kept, each process would compile all that it imports, all at once.
            "PYTHONDONTWRITEBYTECODE": "",
        }
        command = [
            *(sys.executable, "-m", "lab.chaos.node", self.site.url(node.index), "--name", node.name),
            *("--life", str(node.life), "--folder", str(self._place), "--end", str(self.end)),
            *(part for name in self.run.broken for part in ("--broken", name)),
        ]
        node.process = spawn(command, node.stem.with_suffix(".out"), environment, cwd=ROOT)
        node.busy = False
        self.run.starts += 1
        self._note("started", node)

    async def _watch(self) -> None:
        """Nobody ends by himself, but who could not reach the store when he began."""
        while True:
            for node in self.nodes:
                process = node.process
                if process is None or node.busy or process.poll() is None or self._leaving:
                    continue
                self._ended_by_itself(node)
                self._note("killed", node)
                node.process, node.busy = None, True
                await asyncio.sleep(0.5)
                self._start(node)
            await asyncio.sleep(_LOOK)

    def _ended_by_itself(self, node: Node) -> None:
        assert node.process is not None
        if node.process.returncode != TRY_AGAIN:
            self._fail(f"{node.identity} ended by itself with {node.process.returncode}: {node.tail()}")

    def _ended_when_asked(self, node: Node) -> None:
        """With 0; one that had not joined may have known no better, or have given up just then."""
        assert node.process is not None
        self._note("ended", node)
        code = node.process.returncode
        if code != 0 and (node.said("joined") or code not in (TRY_AGAIN, -signal.SIGTERM)):
            self._fail(f"{node.identity} ended with {code} on SIGTERM, and not with 0: {node.tail()}")

    def _note(self, what: str, node: Node) -> None:
        self._write(f"{what} {boottime_ns()} {node.identity}")

    def _write(self, line: str) -> None:
        os.write(self._events, line.encode() + b"\n")

    def _fail(self, what: str) -> None:
        self.run.failures.append(what)
        self.tell(f"  FAILED: {what}")
        if len(self.run.failures) > _MOST_FAILURES:
            raise RuntimeError(f"so much failed that it is no use to go on; the last: {what}")

    async def _until(self, condition: Callable[[], bool], within: float, what: str) -> bool:
        deadline = time.monotonic() + within
        while not condition():
            if time.monotonic() >= deadline:
                self._fail(f"in vain for {within:g} s until {what}")
                return False
            await asyncio.sleep(_LOOK)
        return True

    # The end

    async def _settle(self) -> None:
        """Nothing new is begun; what was begun must come to its end."""
        self.tell("settling: queue, schedule, counters, expiry")
        # Who has not begun would not know what the signal means.
        await self._until(lambda: all(node.said("joined") for node in self.nodes), _JOINING, "all have joined")
        for node in self.nodes:
            if node.process is not None:
                node.process.send_signal(signal.SIGUSR1)
        await self._until(lambda: all(node.said("rested") for node in self.nodes), _SETTLING, "all is given")
        await asyncio.sleep(max(0.0, self.end - time.time()))
        await self._try("the schedule is decided", self._schedule_settled)
        await self._try("the queue is empty", self._queue_settled)
        counters = CounterCluster(self.site.url(), self.folder, records=RECORDS)
        await self._try("the counters are told", lambda: counters.ask(_SETTLING))
        await self._try("expiry is over", self._expiry_settled)

    async def _try(self, what: str, look: Callable[[], Awaitable[None]]) -> None:
        """Until it is so; a look at a store that does not answer is taken again."""
        deadline = time.monotonic() + _SETTLING
        while True:
            try:
                await asyncio.wait_for(look(), max(1.0, deadline - time.monotonic()))
            except StoreError as failure:
                if time.monotonic() < deadline:
                    await asyncio.sleep(1.0)
                    continue
                self._fail(f"in vain until {what}: {type(failure).__name__}: {str(failure)[:1500]}")
            except Exception as failure:
                self._fail(f"in vain until {what}: {type(failure).__name__}: {str(failure)[:1500]}")
            return

    async def _schedule_settled(self) -> None:
        schedule = ScheduleCluster(self.site.url(), self.folder)
        await schedule.open()
        await schedule.until_settled(round(self.end * 1000), _SETTLING - 5)
        machine = await schedule.machine()
        assert len(machine.jobs) == JOBS, sorted(machine.jobs)

    async def _queue_settled(self) -> None:
        assert self._store is not None
        ledger, reader = ledger_store(self._store, "s3-queue", QUEUE), Reader()
        accepted: set[str] = set()
        ended: set[str] = set()
        while True:
            for fields in reader.lines(sorted(self.folder.glob("*.sent"))):
                if fields[0] == "accepted":
                    accepted.update(fields[3:])
            for fields in reader.lines(sorted(self.folder.glob("*.handled"))):
                if fields[0] == "ended":
                    ended.add(fields[3])
            machine = (await read_queue(ledger)).machine
            assert isinstance(machine, QueueMachine)
            left = machine.ready_count + machine.delayed_count + machine.in_flight_count
            # A broken node may have lost some: whether all were handled is for the judge.
            if not left and not [row.key async for row in ledger.list("inbox/")]:
                return
            await asyncio.sleep(0.3)

    async def _expiry_settled(self) -> None:
        """What is left of the records that expire, when all of them should have: into `sessions`."""
        async with Database(self.site.url(), worker_id="onlooker") as database:
            sessions = database.resource(SESSIONS)
            deadline = time.monotonic() + _SETTLING - 5
            while True:
                left, page = [], await sessions.list()
                while True:
                    left += [record.id for record in page.records]
                    if page.next is None:
                        break
                    page = await sessions.list(after=page.next)
                (self.folder / "sessions").write_text("".join(f"{id}\n" for id in left))
                if not left or time.monotonic() > deadline:
                    return
                await asyncio.sleep(0.5)

    async def _leave(self) -> None:
        self._leaving = True
        asked = []
        for node in self.nodes:
            if node.process is None:
                continue
            if node.process.poll() is not None:
                self._ended_by_itself(node)
                self._note("killed", node)
                continue
            self._note("terminated", node)
            node.process.terminate()
            asked.append(node)
        await self._until(
            lambda: all(node.process is None or node.process.poll() is not None for node in self.nodes),
            _ENDING,
            "all have ended",
        )
        for node in asked:
            if node.process is not None and node.process.poll() is not None:
                self._ended_when_asked(node)
        self._end_all()

    async def _ask_schedule(self) -> None:
        schedule = ScheduleCluster(self.site.url(), self.folder)
        await schedule.open()
        await schedule.copy_log()
        await schedule.ask_api()

    async def _wipe(self) -> None:
        """Everything but the leases, under the eyes of all.

        Nobody but tenure may delete what it keeps, so nothing is promised of the data from here on: the processes are
        new ones, and their logs of data lie apart and are not judged. One leader at a time there must be all the same,
        under epochs that rise above all before, and one in good time.
        """
        self.tell("wiping everything but the leases")
        self._place = self.folder / WIPED
        self._place.mkdir()
        self._leaving = False
        for node in self.nodes:
            self._start(node)
        await self._until(lambda: all(node.said("joined") for node in self.nodes), _JOINING, "all have joined again")
        await self._until(lambda: self._find(Target.LEADER) is not None, _JOINING, "somebody leads again")
        await self._try("everything is wiped", self._wiped)
        if not self.run.wiped_objects:
            self._fail("not one object was wiped")
        await self._kill_wiped_leader()
        from_ns = boottime_ns()
        await asyncio.sleep(self.timing.calm)
        self.run.wiped = Calm(from_ns, boottime_ns())

    async def _kill_wiped_leader(self) -> None:
        """Somebody leads, or will: without that nothing is shown."""
        found: list[Node] = []

        def leads() -> bool:
            leader = self._find(Target.LEADER)
            found[:] = [leader] if leader is not None else []
            return bool(found)

        if not await self._until(leads, _JOINING, "somebody leads who can be killed after the wiping"):
            return
        identity = found[0].identity
        if await self._kill(found[0], 0.5):
            self.run.wiped_leader = identity

    async def _wiped(self) -> None:
        assert self._store is not None
        keys = [row.key async for row in self._store.list("") if not row.key.endswith(EXCEPT_THE_LEASE)]
        for at in range(0, len(keys), 500):
            await self._store.delete(*keys[at : at + 500])
            self.run.wiped_objects += len(keys[at : at + 500])

    def _end_all(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                if node.process.poll() is None:
                    node.process.kill()
                    node.process.wait()
                    self._note("killed", node)
                node.process = None

    def _count(self) -> None:
        for kind, hits in self._hits.items():
            self.run.hits[kind] = hits
        self.run.missed = dict(self._missed)
        self.run.on = dict(sorted(self._on.items()))
        counts: Counter[str] = sum((proxy.counts for proxy in self.site.proxies), Counter())
        self.run.requests = dict(counts)
        (self.folder / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.run)))
