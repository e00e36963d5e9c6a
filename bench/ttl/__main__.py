"""`make bench-ttl`: records that expire, on the directory store, with few and with many stored.

So many records are loaded, of which some are due and the others expire in the future; then a leader is started, and
what it takes to clean up is counted. Nobody leads while records are loaded, and what is due has a time in the past, so
that nothing is waited for. A record has 200 bytes; those of one call of insert_many expire in the same second.

"requests" are as S3 bills them: a DELETE costs nothing (a directory has `discard` in its place), and a LIST counts once
for each thousand keys. All that the leader's process sends counts, the election and the ledger included. Time and CPU
are from when the leader has caught up until it has written down that the cleanup has ended. USD are at the list prices
of S3 Standard.

Bars: at most 2.5 requests per expired record; no record is read that does not expire; the requests per expired record
are the same, within 20 %, with the fewest stored and with the most. If one is missed, it exits with 1. CPU and wall
time are shown beside them: they are those of a disk with a million files as well.

    python -m bench.ttl --quick
    python -m bench.ttl --stored 10000 100000 --runs 1 --keep

A run as it comes is written to bench/results/ttl.json (a million records: 4 GB and some ten minutes on two cores); any
other to .bench/ttl.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.form import finish
from bench.ttl.disk import remove
from bench.ttl.figures import limits
from bench.ttl.measure import Bench
from bench.ttl.plan import Plan
from bench.ttl.table import show
from tenure.store.directory.mounts import filesystem_of

SCRATCH = Path(__file__).parents[2] / ".bench"
_BYTES_PER_RECORD = 6_000
"""With its inode, its name and the room that the file system keeps."""
_LINE_EVERY = 15.0


class Voice:
    """A line for what has ended; one that is overwritten, or where that cannot be now and then one, for what runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._last = time.monotonic()

    def tell(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.0f} s[/] {text}", highlight=False)

    def progress(self, text: str) -> None:
        if self._console.is_terminal:
            self._console.print(f"{text:<100}", end="\r", highlight=False, markup=False)
        elif time.monotonic() - self._last >= _LINE_EVERY:
            self._last = time.monotonic()
            self.tell(text)


def main() -> int:
    options = parse()
    plan = plan_of(options)
    console = Console(width=150)
    SCRATCH.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="ttl-", dir=options.folder or SCRATCH))
    try:
        return measure(home, plan, console)
    finally:
        if options.keep:
            console.print(f"kept: {home}")
        else:
            console.print("removing what was loaded")
            remove(home)


def measure(home: Path, plan: Plan, console: Console) -> int:
    check_room(home, max(plan.stored))
    voice = Voice(console)
    result = {
        "seeds": f"{plan.seed}, of the simulated hour; else nothing is drawn at random but ids and heartbeat jitter",
        "plan": vars(plan),
        "file_system": filesystem_of(home),
        "load_average_before": [round(load, 1) for load in os.getloadavg()],
        **Bench(home, plan, voice.tell, voice.progress).run(),
        "load_average_after": [round(load, 1) for load in os.getloadavg()],
    }
    show(result, console)
    code = finish("ttl", result, limits(result["growth"]), console, is_whole=plan == Plan())
    for sentence in result["missed"]:
        console.print(f"[red]missed[/]: {sentence}", highlight=False)
    return 1 if result["missed"] else code


def check_room(folder: Path, records: int) -> None:
    status = os.statvfs(folder)
    needed, free = records * _BYTES_PER_RECORD, status.f_bavail * status.f_frsize
    if free < needed or 0 < status.f_favail < records * 1.1:
        raise SystemExit(
            f"{folder.parent} has {free / 1e9:.1f} GB and {status.f_favail:,} inodes free, and {records:,} records "
            f"take about {needed / 1e9:.1f} GB and as many inodes: name another disk (--folder), or fewer (--stored)"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ttl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stored", type=int, nargs="+", help="records, each count measured, in rising order")
    parser.add_argument("--due", type=int, help="of them, in each cleanup")
    parser.add_argument("--runs", type=int, help="cleanups for each count")
    parser.add_argument("--batch", type=int, help="records in one call of insert_many")
    parser.add_argument("--processes", type=int, help="that load")
    parser.add_argument("--callers", type=int, help="of insert_many, in each of them")
    parser.add_argument("--strategies", type=int, help="records of each other way to expire")
    parser.add_argument("--inserts", type=int, help="records inserted to see what that costs")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured (default: .bench, here)")
    parser.add_argument("--quick", action="store_true", help="small counts: to see that it works")
    parser.add_argument("--keep", action="store_true", help="do not remove what was loaded")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan()
    for name in ("due", "runs", "batch", "processes", "callers", "strategies", "inserts"):
        if getattr(options, name) is not None:
            setattr(plan, name, getattr(options, name))
    if options.stored:
        plan.stored = tuple(sorted(options.stored))
    if min(plan.stored) < plan.due:
        raise SystemExit(
            f"--due is {plan.due:,}, and --stored {min(plan.stored):,}: those that are due are part of them"
        )
    return plan


if __name__ == "__main__":
    sys.exit(main())
