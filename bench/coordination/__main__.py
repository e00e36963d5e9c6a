"""`make bench-coordination`: what a fleet asks of its bucket to have a leader, beside s3db.js on the same server.

Fleets of 1, 3, 10 and 100 workers with 1, 4 and 10 plugins each, which have nothing to do, on ministack behind a proxy
that counts (bench/coordination/proxy.py): requests by verb, and USD a month at the list prices of S3 Standard. The
heartbeat is 5 s. Counting begins when a leader has been there for 45 s, and lasts 120 s, or 60 s for a fleet of 100.
Workers are processes, up to 10; the fleets of 100 are four processes with 25 workers each, every one of which has a
database, a connection pool, a coordinator with its thread, and plugins of its own: two cores have no room for 100
interpreters. A fleet that was not at rest meanwhile (its leader changed, requests were lost) is left out.

"election only" is `membership=False`: no worker records, no listings. s3db.js has no such mode. It is measured with the
settings that its documents recommend, which are its defaults, and once with `executorPool: {retries: 0}`, which they do
not; "parallel" are plugins that it starts together. See bench/coordination/subjects.py.

"first leader" is the time from opening a database on an empty bucket until a coordinator without plugins leads, with no
jitter at the start on either side.

Bars: the requests with ten plugins are within 3 % of those with one, from 10 workers on; with 10 workers, our dearest
fleet against the cheapest of s3db.js's: at most 0.58 of the requests and 0.46 of the USD, and 0.10 of the USD for
election only; the first leader within 0.2 of its time. If one is missed, it exits with 1.

    python -m bench.coordination                # about half an hour
    python -m bench.coordination --quick
    python -m bench.coordination --only first --keep

A run of everything is written to bench/results/coordination.json, any other to .bench/coordination.json, unless
`--keep` says that it replaces its parts of the former.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.coordination.figures import limits
from bench.coordination.fleet import Fleets, Subject
from bench.coordination.plan import PARTS, Cell, Plan
from bench.coordination.proxy import CountingProxy
from bench.coordination.subjects import S3db, Tenure, Trial
from bench.coordination.table import show
from bench.form import SCRATCH, finish
from bench.machine import RESULTS
from bench.queue.s3db import VERSION, S3dbPeer
from lab.buckets import make_bucket
from lab.endpoint import S3Endpoint
from lab.ministack import Ministack

SETTINGS = {
    "tenure": "CoordinatorConfig(heartbeat_interval=5), which is its default; election only: membership=False",
    "s3db": f"s3db.js {VERSION}: defaults (executorPool: {{concurrency: 100, retries: 3}}), heartbeatInterval: 5000, "
    "startupJitterMax: 0, a HOSTNAME for each worker, plugins started one after the other, useReckerHandler: false",
}


class Bench:
    def __init__(self, endpoint: S3Endpoint, home: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        self._endpoint, self._home, self._plan, self._tell = endpoint, home, plan, tell
        self._proxy = CountingProxy(endpoint.url)
        self.rows: list[dict[str, Any]] = []
        self.first_leader: dict[str, list[dict[str, Any]]] = {}
        self.left_out: list[str] = []

    def run(self) -> None:
        through = self._proxy.start()
        try:
            ours = Tenure(self._endpoint, through, self._plan)
            theirs = self._peer(through) if {"s3db", "first"} & set(self._plan.parts) else None
            if "ours" in self._plan.parts:
                self._count(ours, self._plan.rounds_of_ours())
            if "s3db" in self._plan.parts and theirs is not None:
                self._count(theirs, self._plan.rounds_of_s3db())
            if "first" in self._plan.parts:
                self._first("tenure", ours.first)
                if theirs is not None:
                    peer = theirs
                    self._first("s3db", peer.first)
                    self._first("s3db no retries", lambda bucket, home: peer.first(bucket, home, retries=0))
        finally:
            self._proxy.stop()

    def _peer(self, through: str) -> S3db | None:
        if reason := S3dbPeer.missing():
            self.left_out.append(f"s3db.js ({reason})")
            return None
        try:
            return S3db(self._endpoint, through, SCRATCH)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            self.left_out.append(f"s3db.js: {error}")
            return None

    def _count(self, subject: Subject, rounds: list[list[Cell]]) -> None:
        fleets = Fleets(self._endpoint, self._proxy, self._home, self._plan, self._tell)
        for cells in rounds:
            try:
                rows = fleets.count(subject, cells)
            except (RuntimeError, TimeoutError, OSError) as error:
                # A round that fails does not cost the others their figures.
                self.left_out.append(f"{', '.join(cell.bucket for cell in cells)}: {error}")
                self._tell(self.left_out[-1])
                continue
            finally:
                self.left_out += fleets.failed
                fleets.failed.clear()
            self.rows += rows
            for row in rows:
                what = f"{row['workers']} workers, {row['plugins']} plugins {row['mode']}".strip()
                self._tell(f"{row['subject']}, {what}: {row['requests_per_minute']:g} requests a minute")

    def _first(self, name: str, trial: Trial) -> None:
        found: list[dict[str, Any]] = []
        for number in range(self._plan.trials):
            bucket = f"first-{name.replace(' ', '-')}-{number}"
            make_bucket(self._endpoint, bucket)
            load = round(os.getloadavg()[0], 1)
            try:
                answer = trial(bucket, self._home / "first")
            except (RuntimeError, TimeoutError, OSError) as error:
                self.left_out.append(f"first leader of {name}: {error}")
                self._tell(self.left_out[-1])
                break
            counts = self._proxy.counts(bucket)
            found.append({**answer, "counts_until_it_ended": dict(counts), "load_average": load})
            self._tell(f"{name}: first leader after {answer['connect']:.3f} + {answer['lead']:.3f} s")
        self.first_leader[name] = found


def main() -> int:
    options = parse()
    parts = tuple(part for part in PARTS if part in (options.only or PARTS))
    plan = Plan.quick(parts) if options.quick else Plan(parts=parts)
    console = Console(width=170)
    began = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    SCRATCH.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="coordination-", dir=SCRATCH))
    server = Ministack(home / "server")
    try:
        bench = Bench(server.start(), home, plan, tell)
        bench.run()
    finally:
        server.stop()
    result: dict[str, Any] = {
        "seeds": "none: nothing here is drawn at random but ids, backoffs and heartbeat jitter",
        "plan": asdict(plan),
        "settings": SETTINGS,
        "node": _node_version(),
        "left_out": bench.left_out,
        "rows": bench.rows,
        "first_leader": bench.first_leader,
    }
    if options.keep:
        result = merged(result)
    show(result, console)
    for reason in bench.left_out:
        console.print(f"left out: {reason}", markup=False)
    if bench.left_out:
        console.print(f"logs: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    is_whole = plan == Plan() and not bench.left_out
    missed = finish("coordination", result, limits(result), console, is_whole=is_whole or options.keep)
    return 1 if missed or bench.left_out else 0


def merged(result: dict[str, Any]) -> dict[str, Any]:
    """With what was kept of other parts before."""
    path = RESULTS / "coordination.json"
    if not path.exists():
        return result
    former = json.loads(path.read_text())
    fresh = {(row["subject"], row["workers"], row["plugins"], row["mode"]) for row in result["rows"]}
    kept = [row for row in former["rows"] if (row["subject"], row["workers"], row["plugins"], row["mode"]) not in fresh]
    rows = sorted([*kept, *result["rows"]], key=lambda row: (row["subject"] != "tenure", row["workers"], row["mode"]))
    return {**result, "rows": rows, "first_leader": {**former["first_leader"], **result["first_leader"]}}


def _node_version() -> str | None:
    if S3dbPeer.missing():
        return None
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.coordination", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer fleets, for a shorter time: to see that it works")
    parser.add_argument("--keep", action="store_true", help="replace these parts in bench/results/coordination.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
