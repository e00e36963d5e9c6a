"""The measurements of our own queue, on one store."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.queue.figures import Throughput, difference, latencies_ms, latency_json, requests_json, usd
from bench.queue.marks import Marks
from bench.queue.obey import ROOT, Node
from bench.queue.plan import Plan
from bench.queue.tree import cpu_seconds, memory_bytes

SLOWEST = 500.0
"""Messages a second: a run that is slower is cut short."""


class Fleet:
    """A producer and some workers on a queue of their own, of which one leads."""

    def __init__(
        self, url: str, home: Path, workers: int, capacity: int, server: Sequence[int] = (), **options: Any
    ) -> None:
        self.home = home
        shutil.rmtree(home, ignore_errors=True)
        self.marks = Marks(home / "marks", capacity)
        options = {"url": url, "marks": str(self.marks.folder), **options}
        self.nodes: list[Node] = []
        self.server = list(server)
        self.workers = [self._start("worker", number, options) for number in range(workers)]
        self.producer = self._start("producer", 0, options)

    def _start(self, role: str, number: int, options: dict[str, Any]) -> Node:
        log = self.home / f"{role}-{number}.log"
        chosen = {**options, "worker": f"{role}-{number}"}
        env = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        node = Node([sys.executable, "-m", "bench.queue.node", role, json.dumps(chosen)], log, env)
        self.nodes.append(node)
        return node

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.answer(60)
            if self.workers:
                self._until(lambda: self.leader is not None, "there is no leader")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for node in self.nodes:
            if node.process.stdin is not None:
                node.process.stdin.close()
        for node in self.nodes:
            node.end()
        shutil.rmtree(self.home / "marks", ignore_errors=True)

    def joined(self) -> None:
        """Wait until the leader knows every worker."""
        self._until(lambda: self.producer.ask(do="stats")["workers"] == len(self.workers), "not all workers joined")

    def _until(self, condition: Callable[[], bool], complaint: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{complaint} after {seconds:g} s; see the logs in {self.home}")
            time.sleep(0.2)

    @property
    def leader(self) -> Node | None:
        for worker in self.workers:
            if worker.ask(do="look")["leads"]:
                return worker
        return None

    def requests(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for node in self.nodes:
            total.update(node.ask(do="look")["requests"])
        return dict(total)

    def cpu(self) -> float:
        return cpu_seconds(node.pid for node in self.nodes)

    def produce(self, first: int, count: int) -> Throughput:
        """Enqueue so many, and wait until all were handled. What it took is counted until a second later."""
        requests, cpu, server = self.requests(), self.cpu(), cpu_seconds(self.server)
        within = 30 + count / SLOWEST
        produced = self.producer.ask(within, do="many", first=first, count=count)
        if not self.marks.wait(first, count, within):
            raise TimeoutError(f"{self.marks.missing(first, count):,} messages were not handled within {within:g} s")
        time.sleep(1.0)
        run = Throughput(self.marks, first, count, produced["began"], produced["ended"])
        run.cpu, run.server_cpu = self.cpu() - cpu, cpu_seconds(self.server) - server
        run.requests = difference(self.requests(), requests)
        return run


class Bench:
    """All of it on one store. `url_of`: the URL of a place in it that nobody has used."""

    def __init__(
        self,
        name: str,
        url_of: Callable[[str], str],
        home: Path,
        plan: Plan,
        tell: Callable[[str], None],
        server: Sequence[int] = (),
    ) -> None:
        self.name, self.home, self.plan, self.tell = name, home, plan, tell
        self._url_of = url_of
        self._server = server
        self._fleets = 0

    def fleet(self, workers: int, capacity: int, **options: Any) -> Fleet:
        self._fleets += 1
        place = f"{self.name}-{self._fleets}"
        return Fleet(self._url_of(place), self.home / place, workers, capacity, self._server, **options)

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {"subject": f"tenure on {self.name}", "settings": "as it comes"}
        for part in self.plan.parts:
            if part == "growth" and self.name not in self.plan.growth_on:
                continue
            try:
                found.update(getattr(self, part)())
            except (RuntimeError, TimeoutError, OSError) as error:
                # One part that fails does not cost the others their figures.
                found.setdefault("failed", {})[part] = str(error)[-1000:]
                self.tell(f"{self.name}, {part} failed: {error}")
        return found

    def throughput(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for workers in self.plan.workers:
            found[f"throughput_{workers}"] = [self._once(workers).as_json() for _ in range(self.plan.runs)]
            self._say_rate(f"{workers} workers", found[f"throughput_{workers}"])
        most = max(self.plan.workers)
        if self.plan.dedup:
            found["throughput_dedup_keys"] = [self._once(most, dedup=True).as_json()]
            self._say_rate(f"{most} workers, a dedup key each", found["throughput_dedup_keys"])
        return found

    def _say_rate(self, what: str, runs: list[dict[str, Any]]) -> None:
        rates = ", ".join(f"{run['per_second']:,.0f}" for run in runs)
        self.tell(f"{self.name}, {what}: {rates} messages/s, {runs[-1]['requests_per_message']} requests a message")

    def _once(self, workers: int, **options: Any) -> Throughput:
        count = self.plan.messages
        with self.fleet(workers, count, batch=self.plan.batch, **options) as fleet:
            fleet.joined()
            return fleet.produce(0, count)

    def enqueue(self) -> dict[str, Any]:
        """Without anybody who handles, or leads."""
        seconds, most = self.plan.enqueue_seconds, 1_000_000
        found: dict[str, Any] = {}
        with self.fleet(0, 1, batch=self.plan.batch) as fleet:
            for name, callers in (("single", 1), ("single_100_callers", 100)):
                before = fleet.requests()
                order = {"do": "singles", "first": 0, "count": most, "seconds": seconds, "callers": callers}
                answer = fleet.producer.ask(seconds + 60, **order)
                found[name] = _rate(answer, difference(fleet.requests(), before))
            before, count = fleet.requests(), self.plan.enqueued
            answer = fleet.producer.ask(30 + count / SLOWEST, do="many", first=0, count=count)
            found["batched"] = _rate(answer, difference(fleet.requests(), before))
        self.tell(f"{self.name}, enqueue: " + ", ".join(f"{key} {found[key]['per_second']:,.0f}/s" for key in found))
        return {"enqueue": found}

    def latency(self) -> dict[str, Any]:
        """Then nothing is sent, and what the fleet spends is counted."""
        plan, found = self.plan, []
        capacity = sum(plan.paced(rate) for rate in plan.rates)
        with self.fleet(max(plan.workers), capacity) as fleet:
            fleet.joined()
            first = 0
            for rate in plan.rates:
                count = plan.paced(rate)
                before, cpu = fleet.requests(), fleet.cpu()
                answer = fleet.producer.ask(60 + 3 * count / rate, do="paced", first=first, count=count, rate=rate)
                if not fleet.marks.wait(first, count, 60):
                    raise TimeoutError(f"at {rate:g} messages/s, not all were handled")
                samples = latencies_ms(fleet.marks, first, count)
                row = latency_json(rate, samples, answer["ended"] - answer["began"] - count / rate)
                row["cpu_us_per_message"] = round((fleet.cpu() - cpu) / count * 1e6, 1)
                row.update(requests_json(difference(fleet.requests(), before), count))
                found.append(row)
                self.tell(f"{self.name}, {rate:g}/s: p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms")
                first += count
            idle = self._idle(fleet)
        return {"latency": found, "idle": idle}

    def _idle(self, fleet: Fleet) -> dict[str, Any]:
        time.sleep(self.plan.settle_seconds)
        before, began, cpu = fleet.requests(), time.monotonic(), fleet.cpu()
        time.sleep(self.plan.idle_seconds)
        spent, passed = difference(fleet.requests(), before), time.monotonic() - began
        per_hour = {verb: round(count / passed * 3600) for verb, count in spent.items()}
        idle = {
            "workers": len(fleet.workers),
            "seconds": round(passed, 1),
            "requests_per_hour": sum(per_hour.values()),
            "by_verb": per_hour,
            "usd_per_hour": round(usd(per_hour), 5),
            "cpu_share": round((fleet.cpu() - cpu) / passed, 4),
        }
        self.tell(f"{self.name}, idle: {idle['requests_per_hour']:,} requests/h of {idle['workers']} workers")
        return idle

    def growth(self) -> dict[str, Any]:
        """A backlog that waits, and is then handled."""
        found = []
        for count in self.plan.backlogs:
            with self.fleet(max(self.plan.workers), count, batch=self.plan.batch, handle=False) as fleet:
                found.append(self._backlog(fleet, count))
        return {"growth": found}

    def _backlog(self, fleet: Fleet, count: int) -> dict[str, Any]:
        leader = fleet.leader
        assert leader is not None
        within = 60 + count / SLOWEST
        memory, cpu, requests = memory_bytes(leader.pid), fleet.cpu(), fleet.requests()
        began = time.monotonic()
        sent = fleet.producer.ask(within, do="many", first=0, count=count)
        deadline = time.monotonic() + within
        while (stats := fleet.producer.ask(60, do="stats"))["ready"] < count or stats["inbox"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{stats} of {count:,} messages after {within:g} s")
            time.sleep(0.2)
        folded = time.monotonic() - began
        time.sleep(1.0)
        held = memory_bytes(leader.pid) - memory
        filling_cpu, filling = fleet.cpu() - cpu, difference(fleet.requests(), requests)
        cpu, requests, began = fleet.cpu(), fleet.requests(), time.monotonic()
        for worker in fleet.workers:
            worker.ask(do="handle")
        if not fleet.marks.wait(0, count, within):
            raise TimeoutError(f"{fleet.marks.missing(0, count):,} messages were not handled")
        seconds = max(fleet.marks.times) - began
        time.sleep(1.0)
        row = {
            "backlog": count,
            "enqueue_per_second": round(count / (sent["ended"] - sent["began"])),
            "ready_after_seconds": round(folded, 2),
            "leader_bytes_per_ready_message": round(held / count, 1),
            "drain_seconds": round(seconds, 3),
            "drain_per_second": round(count / seconds),
            "fill_cpu_us_per_message": round(filling_cpu / count * 1e6, 2),
            "fill": requests_json(filling, count),
            "drain_cpu_us_per_message": round((fleet.cpu() - cpu) / count * 1e6, 2),
            "drain": requests_json(difference(fleet.requests(), requests), count),
            "handled_again": fleet.marks.again(0, count),
        }
        self.tell(
            f"{self.name}, backlog {count:,}: {row['drain_per_second']:,}/s, "
            f"{row['drain_cpu_us_per_message']} us CPU a message, "
            f"leader {row['leader_bytes_per_ready_message']} bytes a message"
        )
        return row


def _rate(answer: dict[str, Any], requests: dict[str, int]) -> dict[str, Any]:
    seconds = answer["ended"] - answer["began"]
    return {
        "messages": answer["count"],
        "seconds": round(seconds, 3),
        "per_second": round(answer["count"] / seconds, 1),
        **requests_json(requests, answer["count"]),
    }
