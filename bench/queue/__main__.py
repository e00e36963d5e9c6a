"""`make bench-queue`: the queue on the directory store, ministack and Ceph RGW, beside others on Redis and on S3.

Every process is a real one, on this machine. "end to end" is from the first call to enqueue until the last handler has
returned, with the producer, a process of its own, running at the same time. Messages have 200 bytes. Latency counts
from when a message was due to be enqueued. CPU is that of producer and workers; the server's is given apart. USD are at
the list prices of S3 Standard, whatever the store.

    python -m bench.queue --quick
    python -m bench.queue --only directory --parts throughput --messages 200000 --runs 3
    python -m bench.queue --only celery dramatiq --keep

A run of everything, at full counts, is written to bench/results/queue.json; any other to .bench/queue.json, unless
`--keep` says that it replaces what it measured of its subjects in the former.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.form import finish, kept, merged
from bench.queue.ours import Bench
from bench.queue.peers import PEERS, RedisPeer, missing_peers
from bench.queue.plan import PARTS, Plan
from bench.queue.s3db import S3dbPeer
from bench.queue.table import show
from lab.buckets import make_bucket
from lab.ceph import Ceph
from lab.endpoint import S3Endpoint
from lab.ministack import Ministack

STORES = ("directory", "ministack", "ceph")
SCRATCH = Path(__file__).parents[2] / ".bench"


@contextlib.contextmanager
def server_of(name: str, home: Path) -> Iterator[tuple[S3Endpoint, list[int]]]:
    """A server that listens, and its processes."""
    if name == "ministack":
        ministack = Ministack(home)
        try:
            endpoint = ministack.start()
            assert ministack._process is not None
            yield endpoint, [ministack._process.pid]
        finally:
            ministack.stop()
        return
    ceph = Ceph(home)
    try:
        endpoint = ceph.start()
        yield endpoint, [int(file.read_text()) for file in sorted(home.glob("*/run/*.pid"))]
    finally:
        ceph.stop()


def measure_store(name: str, home: Path, plan: Plan, tell: Callable[[str], None]) -> dict[str, Any]:
    if name == "directory":
        return Bench(name, lambda place: (home / "store" / place).as_uri(), home, plan, tell).run()
    with server_of(name, home / "server") as (endpoint, pids):
        make_bucket(endpoint, "bench")
        found = Bench(name, lambda place: endpoint.store_url("bench", place), home, plan, tell, pids).run()
    if name == "ceph":
        shown = subprocess.run(["ceph", "--version"], capture_output=True, text=True, timeout=30)
        found["server"] = shown.stdout.strip()
    return found


def measure(name: str, home: Path, plan: Plan, tell: Callable[[str], None]) -> dict[str, Any]:
    if name in STORES:
        return measure_store(name, home, plan, tell)
    if name == "s3db":
        with server_of("ministack", home / "server") as (endpoint, _):
            make_bucket(endpoint, "bench")
            return S3dbPeer(endpoint, home, SCRATCH, plan, tell).run()
    return RedisPeer(PEERS[name], home, SCRATCH, plan, tell).run()


def missing(name: str) -> str | None:
    """Why this cannot be measured here."""
    if name == "directory":
        return None
    if name in ("ministack", "ceph"):
        server: type[Ministack] | type[Ceph] = Ministack if name == "ministack" else Ceph
        lacks = server.missing()
        return f"{', '.join(lacks)} missing: `make servers`" if lacks else None
    return S3dbPeer.missing() if name == "s3db" else missing_peers()


def result_of(subjects: list[dict[str, Any]], left_out: list[str], plan: Plan, *, keep: bool) -> dict[str, Any]:
    for subject in subjects:
        subject["measured_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    fields = {name: value for name, value in vars(plan).items() if name != "rate_seconds"}
    result: dict[str, Any] = {
        "seeds": "none: nothing here is drawn at random but ids, backoffs and heartbeat jitter",
        "plan": fields,
        "left_out": left_out,
    }
    result["subjects"] = merged(kept("queue").get("subjects", []), subjects) if keep else subjects
    return result


def main() -> None:
    console = Console(width=150)
    everything = [*STORES, *PEERS, "s3db"]
    options = parse(everything)
    plan = plan_of(options)
    names = [name for name in everything if name in (options.only or everything)]
    if options.peers is not None:
        wanted = [] if options.peers == "none" else options.peers.split(",")
        names = [name for name in names if name in STORES or name in wanted]
    subjects: list[dict[str, Any]] = []
    left_out: list[str] = []
    began = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    home = Path(tempfile.mkdtemp(prefix="bench-queue-"))
    for name in names:
        if reason := missing(name):
            left_out.append(f"{name} ({reason})")
            continue
        try:
            subjects.append(measure(name, home / name, plan, tell))
        except (RuntimeError, TimeoutError, OSError) as error:
            # One subject that fails does not cost the others their figures.
            left_out.append(f"{name}: {error}")
            tell(f"{name} failed: {error}")
        else:
            if "failed" not in subjects[-1]:
                shutil.rmtree(home / name, ignore_errors=True)
    show(subjects, console)
    left_out += [f"{each['subject']}: {', '.join(each['failed'])} failed" for each in subjects if "failed" in each]
    is_whole = not options.quick and names == everything and plan == Plan() and not left_out
    for reason in left_out:
        console.print(f"left out: {reason}", markup=False)
    result = result_of(subjects, left_out, plan, keep=options.keep)
    finish("queue", result, [], console, is_whole=is_whole or options.keep)
    if left_out:
        console.print(f"logs: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)


def parse(everything: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.queue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=everything, metavar="NAME", help=f"of {', '.join(everything)}")
    parser.add_argument("--peers", help="comma-separated, or 'none'; the stores are measured all the same")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--messages", type=int, help="of one throughput run (peers: --peer-messages)")
    parser.add_argument("--peer-messages", type=int)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--workers", type=int, nargs="+", help="worker processes, each measured")
    parser.add_argument("--batch", type=int, help="messages in one call of enqueue_many")
    parser.add_argument("--growth-on", nargs="+", choices=STORES)
    parser.add_argument("--quick", action="store_true", help="small counts: to see that it works")
    parser.add_argument("--keep", action="store_true", help="replace what is measured in bench/results/queue.json")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan()
    for name in ("messages", "peer_messages", "runs", "batch"):
        if getattr(options, name) is not None:
            setattr(plan, name, getattr(options, name))
    for name in ("workers", "growth_on"):
        if getattr(options, name):
            setattr(plan, name, tuple(getattr(options, name)))
    plan.parts = tuple(part for part in PARTS if part in options.parts)
    return plan


if __name__ == "__main__":
    main()
