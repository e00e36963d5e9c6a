"""Python queues on Redis, each in the settings that its own guide advises for many short tasks, at least once.

They are installed with pip into an environment of their own, made on first use. Where a worker is a process with
children, "4 workers" are 4 children.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.queue.figures import Throughput, latencies_ms, latency_json, requests_json
from bench.queue.marks import Marks
from bench.queue.obey import ROOT, Node
from bench.queue.plan import Plan
from bench.queue.redis_server import SETTINGS, RedisServer
from bench.queue.tree import cpu_seconds
from lab.process import spawn, stop

PACKAGES = (
    "celery[redis]==5.7.0",
    "dramatiq[redis]==2.2.1",
    "taskiq==0.13.0",
    "taskiq-redis==1.2.4",
    "rq==2.12.0",
    # What makes their clients fast: an event loop, and a parser of what Redis answers.
    "uvloop==0.23.0",
    "hiredis==3.5.0",
)
SLOWEST = 100.0
"""Messages a second: a run that is slower is cut short."""
WARM_UP = 400
RUN_SECONDS = 10.0
"""So long, about, is a run of a peer that is too slow for all the messages."""


@dataclass(frozen=True)
class Peer:
    name: str
    module: str
    package: str
    command: str
    """Of the workers; `{workers}` is how many."""
    settings: str
    env: tuple[tuple[str, str], ...] = ()


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "celery",
            "bench.queue.peer_celery",
            "celery",
            "celery -A bench.queue.peer_celery worker -P prefork -c {workers} -O fair -l WARNING "
            "--without-gossip --without-mingle --without-heartbeat",
            "prefork, acks_late, reject_on_worker_lost, prefetch multiplier 128, results ignored, no gossip, mingle, "
            "heartbeat or events; JSON",
        ),
        Peer(
            "dramatiq",
            "bench.queue.peer_dramatiq",
            "dramatiq",
            "dramatiq bench.queue.peer_dramatiq --processes {workers} --threads 8",
            "8 threads a process, prefetch 1,000, default middleware (retries, age limit, time limit, shutdown, …)",
            env=(("dramatiq_queue_prefetch", "1000"),),
        ),
        Peer(
            "taskiq",
            "bench.queue.peer_taskiq",
            "taskiq",
            "taskiq worker bench.queue.peer_taskiq:broker --workers {workers} --log-level WARNING --no-parse "
            "--ack-type when_executed --max-async-tasks 1000 --max-prefetch 1000",
            "Redis stream broker, xread_count 1,000, ack when executed, retry middleware, uvloop, no pydantic parsing",
        ),
        Peer(
            "rq",
            "bench.queue.peer_rq",
            "rq",
            "rq worker-pool bench -n {workers} --worker-class rq.worker.SimpleWorker -q",
            "SimpleWorker (no fork for each job), Retry(max=5), results not kept, pipelined enqueue_many",
        ),
    )
}


def missing_peers() -> str | None:
    lacks = RedisServer.missing()
    return f"{', '.join(lacks)} missing: apt-get install redis-server" if lacks else None


def environment(scratch: Path, name: str = "peers-venv", packages: Sequence[str] = PACKAGES) -> Path:
    """The bin folder of the peers' environment; made if it is not there, or of other versions."""
    folder, stamp = scratch / name, scratch / name / ".installed"
    if not stamp.exists() or stamp.read_text() != "\n".join(packages):
        scratch.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, timeout=120)
        install = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            *packages,
        ]
        done = subprocess.run(install, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"the peers could not be installed: {done.stderr[-1000:]}")
        stamp.write_text("\n".join(packages))
    return folder / "bin"


class Crew:
    """One peer's producer and workers, on a server that is empty."""

    def __init__(self, peer: Peer, redis: RedisServer, bin: Path, home: Path, workers: int, capacity: int) -> None:
        redis.clear()
        self._redis = redis
        self.marks = Marks(home / "marks", capacity + WARM_UP)
        self.workers = workers
        env = {
            "BENCH_REDIS": redis.url,
            "BENCH_MARKS": str(self.marks.folder),
            "PYTHONPATH": str(ROOT),
            "RQ_REDIS_URL": redis.url,
            "PATH": f"{bin}:{os.environ['PATH']}",
            **dict(peer.env),
        }
        self._workers: subprocess.Popen[bytes] | None = None
        if workers:
            command = peer.command.format(workers=workers).split()
            command[0] = str(bin / command[0])
            self._workers = spawn(command, home / "workers.log", env, cwd=ROOT)
        self.producer = Node(
            [str(bin / "python"), "-m", "bench.queue.produce", peer.module], home / "producer.log", env
        )
        self._home = home

    def __enter__(self) -> Self:
        try:
            self.producer.answer(60)
            if self._workers is not None:
                self.producer.ask(60, do="many", first=0, count=WARM_UP)
                if not self.marks.wait(0, WARM_UP, 60):
                    tail = (self._home / "workers.log").read_text(errors="replace")[-2000:]
                    raise TimeoutError(f"it did not handle {WARM_UP} messages within 60 s: {tail}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self.producer.end()
        if self._workers is not None:
            stop(self._workers, 10)

    def cpu(self) -> float:
        return cpu_seconds([self.producer.pid, *([self._workers.pid] if self._workers is not None else [])])

    def produce(self, first: int, count: int) -> Throughput:
        commands, cpu, server = self._redis.commands(), self.cpu(), cpu_seconds([self._redis.pid])
        within = 30 + count / SLOWEST
        produced = self.producer.ask(within, do="many", first=first, count=count)
        if not self.marks.wait(first, count, within):
            raise TimeoutError(f"{self.marks.missing(first, count):,} messages were not handled within {within:g} s")
        time.sleep(1.0)
        run = Throughput(self.marks, first, count, produced["began"], produced["ended"])
        run.cpu, run.server_cpu = self.cpu() - cpu, cpu_seconds([self._redis.pid]) - server
        run.requests = {"commands": self._redis.commands() - commands}
        return run


class RedisPeer:
    """All measurements of one peer."""

    def __init__(self, peer: Peer, home: Path, scratch: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        self._peer, self._home, self._plan, self._tell = peer, home, plan, tell
        self._bin = environment(scratch)
        self._redis = RedisServer(home / "redis")
        self._crews = 0

    def run(self) -> dict[str, Any]:
        self._redis.start()
        try:
            found: dict[str, Any] = {
                "subject": f"{self._peer.name} + Redis",
                "settings": self._peer.settings,
                "version": self._version(),
                "redis": f"{self._redis.version()}, {SETTINGS}",
            }
            for part in self._plan.parts:
                if part != "growth":
                    try:
                        found.update(getattr(self, f"_{part}")())
                    except (RuntimeError, TimeoutError, OSError) as error:
                        found.setdefault("failed", {})[part] = str(error)[-1000:]
                        self._tell(f"{self._peer.name}, {part} failed: {error}")
            return found
        finally:
            self._redis.stop()

    def _version(self) -> str:
        program = f"import importlib.metadata as m; print(m.version({self._peer.package!r}))"
        done = subprocess.run([self._bin / "python", "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def _crew(self, workers: int, capacity: int) -> Crew:
        self._crews += 1
        return Crew(self._peer, self._redis, self._bin, self._home / str(self._crews), workers, capacity)

    def _throughput(self) -> dict[str, Any]:
        found = {}
        most, tried = self._plan.peer_messages, WARM_UP
        for workers in self._plan.workers:
            with self._crew(workers, tried + most * self._plan.runs) as crew:
                # A first run, which does not count, says how many it can handle in a few seconds.
                rate = crew.produce(WARM_UP, tried).per_second
                count = round(min(most, max(tried, rate * RUN_SECONDS)))
                firsts = [WARM_UP + tried + number * count for number in range(self._plan.runs)]
                runs = [crew.produce(first, count).as_json() for first in firsts]
            found[f"throughput_{workers}"] = runs
            rates = ", ".join(f"{run['per_second']:,.0f}" for run in runs)
            self._tell(f"{self._peer.name}, {workers} workers: {rates} messages/s")
        return found

    def _enqueue(self) -> dict[str, Any]:
        seconds, count = self._plan.enqueue_seconds, min(self._plan.peer_messages, 5_000)
        found = {}
        with self._crew(0, 1) as crew:
            order = {"do": "singles", "first": 0, "count": 1_000_000, "seconds": seconds}
            found["single"] = _rate(crew.producer.ask(seconds + 60, **order))
            found["batched"] = _rate(crew.producer.ask(30 + count / SLOWEST, do="many", first=0, count=count))
        self._tell(
            f"{self._peer.name}, enqueue: " + ", ".join(f"{key} {found[key]['per_second']:,.0f}/s" for key in found)
        )
        return {"enqueue": found}

    def _latency(self) -> dict[str, Any]:
        plan, rows = self._plan, []
        with self._crew(max(plan.workers), sum(plan.paced(rate) for rate in plan.rates)) as crew:
            first = WARM_UP
            for rate in plan.rates:
                count = plan.paced(rate)
                commands, cpu = self._redis.commands(), crew.cpu()
                answer = crew.producer.ask(60 + count / rate, do="paced", first=first, count=count, rate=rate)
                sent = answer["count"]
                if not crew.marks.wait(first, sent, 60):
                    raise TimeoutError(f"at {rate:g} messages/s, not all were handled")
                lag = answer["ended"] - answer["began"] - sent / rate
                row = latency_json(rate, latencies_ms(crew.marks, first, sent), lag)
                row["given_up_after"] = sent if sent < count else None
                row["cpu_us_per_message"] = round((crew.cpu() - cpu) / sent * 1e6, 1)
                row.update(requests_json({"commands": self._redis.commands() - commands}, sent))
                rows.append(row)
                self._tell(f"{self._peer.name}, {rate:g}/s: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms")
                first += count
            time.sleep(3.0)
            seconds = min(10.0, plan.idle_seconds)
            commands, cpu = self._redis.commands(), crew.cpu()
            time.sleep(seconds)
            idle = {
                "workers": crew.workers,
                "seconds": seconds,
                "requests_per_hour": round((self._redis.commands() - commands) / seconds * 3600),
                "cpu_share": round((crew.cpu() - cpu) / seconds, 4),
            }
        return {"latency": rows, "idle": idle}


def _rate(answer: dict[str, Any]) -> dict[str, Any]:
    seconds = answer["ended"] - answer["began"]
    count = answer["count"]
    return {"messages": count, "seconds": round(seconds, 3), "per_second": round(count / seconds, 1)}


__all__ = ["PEERS", "Peer", "RedisPeer", "environment", "missing_peers"]
