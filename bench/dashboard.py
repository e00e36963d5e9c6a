"""What the dashboard takes: 2,000 live workers, 100 queues, one of which holds a million messages.

make bench-dashboard                          # some three minutes
make bench-dashboard ARGS="--quick"           # a first look

A directory holds the fleet. The workers' records are written as the production encoder does, each of them every ten
seconds, by one process; a real coordinator leads; the queues are filled and led by the plugin, and some of them are at
work while it is measured. Watched is the real `tenure dashboard` process, by one client of its events: its processor
time and memory are read from /proc. The browser's side is measured by the tests in Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.form import Limit, finish
from tenure import CoordinatorConfig, Database, Message, S3QueuePlugin
from tenure.clock import SYSTEM_CLOCK
from tenure.coordinator.layout import namespace_store, worker_key
from tenure.coordinator.metrics import Latencies
from tenure.coordinator.pulse import write_pulse
from tenure.election.records import Worker, encode, time_of_day
from tenure.entropy import new_id
from tenure.store import open_store

WORKERS = 2000
QUEUES = 100
MESSAGES = 1_000_000
BEAT_SECONDS = 10.0
BUSY_QUEUES = 5
SECONDS = 120.0
CPU_MS = 200.0
RSS_MIB = 400.0
_TICKS = os.sysconf("SC_CLK_TCK")
_BATCH = 10_000
_PATIENCE = 120.0


async def beat(url: str, count: int, ready: Any) -> None:
    """Keep the records of so many workers fresh."""
    uids = [new_id() for _ in range(count)]
    registered = time_of_day(SYSTEM_CLOCK.read().wall_ns)
    beats = 0
    async with open_store(url) as store:
        own = namespace_store(store, "default")

        async def write(number: int) -> None:
            pulse = write_pulse(
                Latencies(0.004, 0.004, 0.009, 0.02), 3 * beats + 5, 0.0, BEAT_SECONDS * beats, 0, "closed"
            )
            record = Worker(
                write_id=new_id(),
                worker_id=f"worker-{number:04}",
                uid=uids[number],
                ordinal=1,
                registered_at=registered,
                last_heartbeat=time_of_day(SYSTEM_CLOCK.read().wall_ns),
                epoch=1,
                pad="." * 16,
                pulse=pulse,
            )
            await own.put(worker_key(record.worker_id), encode(record))

        while True:
            began = time.monotonic()
            for start in range(0, count, 20):
                await asyncio.gather(*(write(number) for number in range(start, min(count, start + 20))))
                if beats:  # the first time all at once, and then evenly
                    await asyncio.sleep(max(0.0, began + BEAT_SECONDS * start / count - time.monotonic()))
            beats += 1
            ready.set()


def beating(url: str, count: int, ready: Any) -> None:
    asyncio.run(beat(url, count, ready))


async def fill(url: str, queues: int, messages: int, console: Console) -> None:
    """Queues with something in each; the first has the million."""
    config = CoordinatorConfig.fast(startup_jitter_max=0.0)
    async with Database(url, worker_id="filler") as db:
        big = await db.use_plugin(S3QueuePlugin("orders", namespace="filling", config=config))
        began = time.monotonic()
        for start in range(0, messages, _BATCH):
            await big.enqueue_many([{"order": n} for n in range(start, min(messages, start + _BATCH))])
        for number in range(1, queues):
            one = await db.use_plugin(S3QueuePlugin(f"queue-{number:03}", namespace="filling", config=config))
            await one.enqueue_many([{"n": n} for n in range(number)])
        while (stats := await big.stats()).ready < messages:
            await asyncio.sleep(0.5)
            if time.monotonic() - began > 600:
                raise TimeoutError(f"{stats.ready:,} of {messages:,} messages are counted")
        console.print(f"filled in {time.monotonic() - began:.0f} s", highlight=False)


async def work(stack: AsyncExitStack, url: str) -> None:
    """A leader, and some queues at work."""
    config = CoordinatorConfig(startup_jitter_max=0.0, worker_timeout=30.0)
    db = await stack.enter_async_context(Database(url, worker_id="worker-leader"))
    coordinator = await db.get_global_coordinator("default", config=config)
    await coordinator.start()
    for number in range(1, BUSY_QUEUES + 1):
        queue = await db.use_plugin(S3QueuePlugin(f"busy-{number}", namespace="default", config=config))

        @queue.handler
        async def handle(message: Message) -> None:
            await asyncio.sleep(0.01)

        async def produce(queue: S3QueuePlugin = queue) -> None:
            while True:
                await queue.enqueue_many([{"n": n} for n in range(10)])
                await asyncio.sleep(0.5)

        task = asyncio.ensure_future(produce())
        stack.callback(task.cancel)


class Server:
    """The `tenure dashboard` process."""

    def __init__(self, url: str) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tenure", "dashboard", url, "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += self.process.stdout.readline()
        self.url = json.loads(text)["url"]
        self.listening_after = time.monotonic() - self.began

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=60) as response:
            return bytes(response.read())

    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("api/snapshot"))
        return found

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)


async def until_complete(server: Server, workers: int, queues: int) -> float:
    """Seconds from the start of the process until everything is shown."""
    while time.monotonic() - server.began < _PATIENCE:
        found = await asyncio.to_thread(server.snapshot)
        rows = found["queues"]["rows"]
        if found["workers"]["active"] >= workers and len(rows) >= queues and all(row["lookedMs"] for row in rows):
            return time.monotonic() - server.began
        await asyncio.sleep(0.1)
    raise TimeoutError(f"not complete: {found['workers']}, {len(rows)} queues")


async def watch(server: Server, seconds: float) -> dict[str, Any]:
    """One client of the events, and what the server takes meanwhile."""
    host, port = server.url.removeprefix("http://").rstrip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    writer.write(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    await asyncio.sleep(5)  # everything comes at first
    first = len(await reader.read(2**24))
    received, sections = 0, Counter[str]()
    cpu: list[float] = []
    rss: list[float] = []
    before = server.snapshot()["usage"]["dashboard"]["requests"]
    began = time.monotonic()

    async def read() -> None:
        nonlocal received
        rest = b""
        while data := await reader.read(2**16):
            received += len(data)
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"event: "):
                    sections[line[7:].strip().decode()] += 1

    reading = asyncio.ensure_future(read())
    last = server.cpu_seconds()
    while time.monotonic() - began < seconds:
        await asyncio.sleep(5)
        now = server.cpu_seconds()
        cpu.append((now - last) / 5)
        last = now
        rss.append(server.rss_mib())
    elapsed = time.monotonic() - began
    requests = server.snapshot()["usage"]["dashboard"]["requests"] - before
    reading.cancel()
    writer.close()
    return {
        "seconds": round(elapsed, 1),
        "first_bytes": first,
        "cpu_ms_per_second": [round(each * 1000, 1) for each in cpu],
        "rss_mib": [round(each, 1) for each in rss],
        "sse_bytes_per_second": round(received / elapsed),
        "messages": dict(sections.most_common()),
        "requests_per_hour": round(requests / elapsed * 3600),
    }


def timed(server: Server, path: str, times: int = 10) -> dict[str, Any]:
    samples, size = [], 0
    for _ in range(times):
        began = time.monotonic()
        size = len(server.get(path))
        samples.append(round((time.monotonic() - began) * 1000, 1))
    return {"path": f"/{path}", "bytes": size, "ms": samples}


async def measure(
    url: str, workers: int, queues: int, messages: int, seconds: float, console: Console
) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    await fill(url, queues, messages, console)
    beater = context.Process(target=beating, args=(url, workers - 1, ready), daemon=True)
    beater.start()
    await asyncio.to_thread(ready.wait)
    try:
        async with AsyncExitStack() as stack:
            await work(stack, url)
            await asyncio.sleep(10)
            server = await asyncio.to_thread(Server, url)
            try:
                complete = await until_complete(server, workers, queues)
                console.print(f"complete after {complete:.1f} s", highlight=False)
                pages = [
                    await asyncio.to_thread(timed, server, path) for path in ("", "api/workers?limit=200", "metrics")
                ]
                watched = await watch(server, seconds)
                found = server.snapshot()
            finally:
                await asyncio.to_thread(server.close)
    finally:
        beater.terminate()
        beater.join(10)
    big = next(row for row in found["queues"]["rows"] if row["name"] == "orders")
    return {
        "workers": found["workers"]["total"],
        "queues": found["queues"]["total"],
        "largest_queue": big["ready"],
        "listening_seconds": round(server.listening_after, 2),
        "complete_seconds": round(complete, 2),
        "pages": pages,
        **watched,
    }


def show(result: dict[str, Any], console: Console) -> None:
    table = Table(title="tenure dashboard", box=None, pad_edge=False, header_style="dim")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for what, value in (
        ("workers", f"{result['workers']:,}"),
        ("queues", f"{result['queues']:,}"),
        ("messages in the largest", f"{result['largest_queue']:,}"),
        ("listens after", f"{result['listening_seconds']:.2f} s"),
        ("everything is shown after", f"{result['complete_seconds']:.2f} s"),
        *((f"GET {page['path']}", f"{median(page['ms']):.1f} ms, {page['bytes']:,} bytes") for page in result["pages"]),
        ("CPU while one page watches", f"{mean(result['cpu_ms_per_second']):.0f} ms a second"),
        ("  in the worst five seconds", f"{max(result['cpu_ms_per_second']):.0f} ms a second"),
        ("memory at the end", f"{result['rss_mib'][-1]:.0f} MiB"),
        ("events", f"{result['sse_bytes_per_second']:,} bytes a second"),
        ("requests to the store", f"{result['requests_per_hour']:,} an hour"),
    ):
        table.add_row(what, value)
    console.print(table)


def mean(samples: list[float]) -> float:
    return sum(samples) / len(samples)


def median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]


def limits(result: dict[str, Any]) -> list[Limit]:
    return [
        Limit("CPU of the server while one page watches, ms a second", mean(result["cpu_ms_per_second"]), CPU_MS),
        Limit("memory of the server at the end, MiB", result["rss_mib"][-1], RSS_MIB),
        Limit("the page, ms", median(result["pages"][0]["ms"]), 1000.0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, for half a minute")
    parser.add_argument("--seconds", type=float, help="how long it is watched")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    seconds = options.seconds or (20.0 if options.quick else SECONDS)
    console = Console()
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # a disk is not what is measured
    folder = tempfile.mkdtemp(prefix="tenure-bench-", dir=root)
    try:
        url = f"file://{folder}"
        result = asyncio.run(measure(url, WORKERS // share, QUEUES // share, MESSAGES // share, seconds, console))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(result, console)
    return finish("dashboard", result, limits(result), console, is_whole=share == 1 and options.seconds is None)


if __name__ == "__main__":
    sys.exit(main())
