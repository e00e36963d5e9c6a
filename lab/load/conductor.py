"""Starts the processes of a run, finds how much the queue takes, gives it a share of that, and kills whoever leads.

What was done, and when, is in `events` (for the judges) and in `run.json`; the processes' own logs are beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lab.believer import boottime_ns
from lab.ledger_cluster import ROOT
from lab.load.plan import Plan
from lab.process import spawn
from lab.queue_cluster import QueueCluster
from tenure.coordinator.layout import namespace_store
from tenure.coordinator.reading import read_state
from tenure.election.records import State
from tenure.errors import StoreError
from tenure.store import Store, open_store

_LOOK = 0.1
_TELL = 10.0
_ENDING = 60.0
"""Seconds in which all coordinators of a process leave."""
_PATIENCE = 30.0
"""Seconds for a request of this process, which measures nothing by it."""
_STARTING = 120.0
_REST = 3.0
_NEVER = 10**9
_MOST_FAILURES = 20


class Deed(msgspec.Struct, frozen=True):
    """The leader's process was killed, with all that it hosted."""

    at_ns: int
    worker: str
    epoch: int
    node: int


class Run(msgspec.Struct, kw_only=True):
    """What `run.json` says."""

    plan: Plan
    measured_per_second: float = 0.0
    """Messages that the queue took, while it was given all that it could take."""
    rate: float = 0.0
    """Messages a second that it was given then."""
    from_ns: int = 0
    to_ns: int = 0
    """Of the load."""
    settled_ns: int = 0
    """Nothing was left in the queue; 0: it did not come to that."""
    kills: list[Deed] = []
    load_average: list[float] = []
    """Of this machine, over a minute, every ten seconds: other work on it is in there as well."""
    cpu_busy: float = 0.0
    """Share of all processors' time that was used, by anybody, while there was load, ..."""
    cpu_ours: float = 0.0
    """... and by the processes of the run, the server among them."""
    failures: list[str] = []
    """What no log has: a process that ended by itself, or did not end, and waiting in vain."""


@dataclass
class Node:
    index: int
    process: subprocess.Popen[bytes]
    stem: Path
    names: list[str]

    @property
    def identities(self) -> list[str]:
        """As in the logs."""
        return [f"{name}:{self.process.pid}" for name in self.names]

    @property
    def joined(self) -> bool:
        return has_joined(self.stem.with_suffix(".out"))


def has_joined(output: Path) -> bool:
    return output.exists() and b'"said": "joined"' in output.read_bytes()


class EndCount:
    """Handlings that ended, counted from logs as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.count = 0

    def look(self) -> int:
        for path in self._folder.glob("*.handled"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            self.count += whole.count(b"ended ")  # no other field has a blank after these letters
        return self.count


def cpu_ticks() -> tuple[int, int]:
    """Of all processors since the machine was started: busy, and in all."""
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def process_ticks(pid: int) -> int:
    """Of one process that runs; 0 if it does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


class Conductor:
    def __init__(self, url: str, folder: Path, run: Run, server: int, tell: Callable[[str], None]) -> None:
        self.url, self.folder, self.run, self.plan, self.tell = url, folder, run, run.plan, tell
        self.server = server
        self.nodes: dict[int, Node] = {}
        self.producers: list[subprocess.Popen[bytes]] = []
        self.ends = EndCount(folder)
        self._lives = 0
        self._store: Store | None = None
        self._spent: dict[int, int] = {}
        """By process: the ticks that it had used when it was last looked at."""

    async def conduct(self) -> None:
        self.folder.mkdir(parents=True)
        self.plan_file.write_bytes(msgspec.json.encode(self.plan))
        self.events.touch()
        self._store = await open_store(self.url, timeout=_PATIENCE)
        try:
            await self._begin()
            await self._saturate()
            await self._load()
            await self._settle()
            await self._end()
        except (_InVainError, StoreError) as failure:
            self.fail(str(failure))
        finally:
            self.run.to_ns = self.run.to_ns or boottime_ns()
            self.run.from_ns = self.run.from_ns or self.run.to_ns
            for process in [*(node.process for node in self.nodes.values()), *self.producers]:
                process.kill()
                process.wait()
            (self.folder / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.run)))

    @property
    def events(self) -> Path:
        return self.folder / "events"

    @property
    def plan_file(self) -> Path:
        return self.folder / "plan.json"

    def fail(self, why: str) -> None:
        self.tell(why)
        if len(self.run.failures) < _MOST_FAILURES:
            self.run.failures.append(why)

    # Processes

    def start(self, index: int) -> Node:
        self._lives += 1
        stem = self.folder / f"node{index}-{self._lives}"
        command = [
            *(sys.executable, "-m", "lab.load.node", self.url, "--node", str(index)),
            *("--stem", str(stem), "--plan", str(self.plan_file)),
        ]
        node = Node(index, spawn(command, stem.with_suffix(".out"), cwd=ROOT), stem, self.plan.names(index))
        self.nodes[index] = node
        self.note("started", node)
        return node

    def note(self, what: str, node: Node) -> int:
        at_ns = boottime_ns()
        with self.events.open("ab", buffering=0) as file:
            file.write("".join(f"{what} {at_ns} {identity}\n" for identity in node.identities).encode())
        return at_ns

    def produce(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", "lab.queue_producer", self.url, "--name", name),
            *("--log", str(self.folder / f"{name}.sent"), "--call", str(self.plan.call), "--keys", str(self.plan.keys)),
            *options,
        ]
        process = spawn(command, self.folder / f"{name}.out", cwd=ROOT)
        self.producers.append(process)
        return process

    def stop_producers(self) -> None:
        for process in self.producers:
            process.kill()  # what it was not told about may have been accepted or not: so its log says
            process.wait()
        self.producers.clear()

    def check(self) -> None:
        """Nobody ends by itself."""
        for node in list(self.nodes.values()):
            if node.process.poll() is not None:
                said = node.stem.with_suffix(".out").read_text(errors="replace")[-1500:]
                raise _InVainError(f"process {node.index} ended by itself with {node.process.returncode}: {said}")

    async def until(self, condition: Callable[[], object], within: float, what: str) -> None:
        deadline = time.monotonic() + within
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise _InVainError(f"in vain for {within:g} s until {what}")
            await asyncio.sleep(_LOOK)

    async def leader(self) -> tuple[str | None, int]:
        """Who leads, and under which epoch, as the lease says: it may have died since."""
        assert self._store is not None
        with contextlib.suppress(StoreError):
            state = await read_state(namespace_store(self._store, "default"))
            if isinstance(state, State):
                return state.leader_id, state.epoch
        return None, 0

    # A run

    async def _begin(self) -> None:
        for index in range(self.plan.processes):
            node = self.start(index)
            # One after the other: many that start together on a small machine time out.
            await self.until(lambda node=node: node.joined, _STARTING, f"process {index} has started")  # type: ignore[misc]
        within = self.plan.config().worst_case_failover()
        deadline = time.monotonic() + within
        while (leader := (await self.leader())[0]) is None:
            if time.monotonic() > deadline:
                raise _InVainError(f"no leader within {within:g} s")
            await asyncio.sleep(_LOOK)
        # A heartbeat of each, so that the leader knows them all.
        await asyncio.sleep(self.plan.config().heartbeat_interval + self.plan.config().heartbeat_jitter)
        count = f"{self.plan.coordinators} coordinators in {self.plan.processes} processes"
        self.tell(f"{count}; {leader} leads")

    async def _saturate(self) -> None:
        """Give the queue whatever it takes. A bounded number waits, so that no backlog is left to be worked off."""
        plan, permits = self.plan, self.folder / "up-to"
        for number in range(plan.producers):
            self.produce(f"s{number}", "--count", str(_NEVER), "--up-to", str(permits))
        _write(permits, plan.window // plan.producers)
        await self.until(lambda: self.ends.look(), _STARTING, "the first message is handled")
        began = time.monotonic()
        first: tuple[float, int] | None = None
        while (passed := time.monotonic() - began) < plan.saturation:
            self.check()
            ended = self.ends.look()
            _write(permits, (ended + plan.window) // plan.producers)
            if first is None and passed >= plan.warm_up:
                first = (time.monotonic(), ended)
            await asyncio.sleep(_LOOK)
        assert first is not None, "warm_up is less than saturation"
        self.run.measured_per_second = round((self.ends.look() - first[1]) / (time.monotonic() - first[0]), 1)
        self.run.rate = round(plan.share * self.run.measured_per_second, 1)
        self.stop_producers()
        self.tell(f"the queue takes {self.run.measured_per_second:,.0f} messages/s; it is given {self.run.rate:,.0f}")

    async def _load(self) -> None:
        plan, run = self.plan, self.run
        if run.rate <= 0:
            raise _InVainError("the queue took nothing while it was given all that it takes")
        share = run.rate / plan.producers
        for number in range(plan.producers):
            self.produce(f"p{number}", "--count", str(round(share * plan.seconds)), "--rate", f"{share:.3f}")
        outputs = [self.folder / f"p{number}.out" for number in range(plan.producers)]
        await self.until(lambda: all(has_joined(each) for each in outputs), _STARTING, "all producers have started")
        busy, total, _ = *cpu_ticks(), self._ours()
        run.from_ns, began = boottime_ns(), time.monotonic()
        due = plan.kill_times()
        back: list[tuple[float, int]] = []
        told, ours, before = began, 0, self.ends.look()
        while (passed := time.monotonic() - began) < plan.seconds:
            self.check()
            if due and passed >= due[0] and not back and await self._kill_leader():
                due.pop(0)
                back.append((time.monotonic() + plan.away, run.kills[-1].node))
            for at, index in [each for each in back if each[0] <= time.monotonic()]:
                back.remove((at, index))
                self.start(index)
            if time.monotonic() - told >= _TELL:
                now, ended = time.monotonic(), self.ends.look()
                run.load_average.append(round(os.getloadavg()[0], 2))
                ours += self._ours()
                self.tell(
                    f"{(ended - before) / (now - told):,.0f} messages/s handled, {(await self.leader())[0]} leads, "
                    f"{len(run.kills)} killed, load average {run.load_average[-1]:g}"
                )
                told, before = now, ended
            await asyncio.sleep(_LOOK)
        run.to_ns = boottime_ns()
        ours += self._ours()
        busy_then, total_then = cpu_ticks()
        run.cpu_busy = round((busy_then - busy) / max(1, total_then - total), 3)
        run.cpu_ours = round(ours / max(1, total_then - total), 3)
        for _, index in back:
            self.start(index)
        if due:
            self.fail(f"{len(due)} of {plan.kills} kills were not made: nobody led when they were due")

    def _ours(self) -> int:
        """Ticks that the processes of the run have used since the last look."""
        pids = [
            self.server,
            *(node.process.pid for node in self.nodes.values()),
            *(each.pid for each in self.producers),
        ]
        used = {pid: process_ticks(pid) for pid in pids}
        more = sum(max(0, ticks - self._spent.get(pid, 0)) for pid, ticks in used.items())
        self._spent = used
        return more

    async def _kill_leader(self) -> bool:
        """False: nobody is known to lead but who was killed, and it is tried again."""
        name, epoch = await self.leader()
        node = next((each for each in self.nodes.values() if name in each.names), None)
        if name is None or node is None or any(epoch <= deed.epoch for deed in self.run.kills):
            return False
        node.process.kill()
        node.process.wait()
        at_ns = self.note("killed", node)  # it did nothing after this
        self.run.kills.append(Deed(at_ns, name, epoch, node.index))
        del self.nodes[node.index]
        self.tell(f"killed process {node.index} with {name}, who led, and {len(node.names) - 1} others")
        return True

    async def _settle(self) -> None:
        """Until the queue holds nothing: so nothing can be handled again later. What leaders did not do while there
        were none is worked off at the rest of the queue's capacity, so it may take as long as the load."""
        within = self.plan.seconds + 2 * self.plan.config().worst_case_failover()
        await self.until(
            lambda: all(each.poll() is not None for each in self.producers), within, "producers have sent everything"
        )
        for process in self.producers:
            if process.returncode:
                self.fail(f"a producer ended with {process.returncode}")
        await self._rest(within)
        cluster = QueueCluster(self.url, self.folder, _store=self._store)
        deadline = time.monotonic() + within
        while True:
            try:
                await cluster.until_settled(max(0.0, deadline - time.monotonic()))
            except AssertionError as failure:
                raise _InVainError(str(failure)[:400]) from None
            except StoreError:
                if time.monotonic() > deadline:
                    raise
            else:
                break
        self.run.settled_ns = boottime_ns()
        self.tell(f"the queue is empty, {(self.run.settled_ns - self.run.to_ns) / 1e9:.0f} s after the load")

    async def _rest(self, within: float) -> None:
        """Until nothing is handled any more. To look at a long queue is work for the server, which it needs now."""
        seen, since = self.ends.look(), time.monotonic()
        deadline = since + within
        while time.monotonic() < min(deadline, since + _REST):
            self.check()
            await asyncio.sleep(1.0)
            if self.ends.look() != seen:
                seen, since = self.ends.count, time.monotonic()

    async def _end(self) -> None:
        nodes = list(self.nodes.values())
        await self.until(lambda: all(node.joined for node in nodes), _STARTING, "all processes have started")
        self.nodes.clear()
        for node in nodes:
            self.note("terminated", node)
            node.process.terminate()
        try:
            await self.until(
                lambda: all(node.process.poll() is not None for node in nodes), _ENDING, "all processes have ended"
            )
        finally:
            for node in nodes:
                node.process.kill()
                node.process.wait()
        for node in nodes:
            if node.process.returncode:
                self.fail(f"process {node.index} ended with {node.process.returncode} when it was asked to")


class _InVainError(Exception):
    """The run cannot go on; what happened until then is judged all the same."""


def _write(path: Path, number: int) -> None:
    """Whole or not at all: others read it meanwhile."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(str(number))
    fresh.replace(path)
