"""`make bench-counters`: counters on the directory store and on ministack, beside s3db.js and Redis INCRBY.

Two real processes on this machine add to the same records for so long, of which one leads: it folds what both write and
writes totals to the records meanwhile, as often as it comes (every 5 s). Then everything is consolidated, and the
records must say what was added. "acknowledged" is the rate until the last call has returned, "consolidated" the rate
until all of it stands in the records. Each caller awaits its call before it makes the next.

"requests" are all that both processes send, elections included, as their stores count them; USD are at the list prices
of S3 Standard. A leader's CPU is what is left of its process's when its own calls are taken to cost what those of the
other do. A Redis INCRBY changes a number in the memory of a server and is another thing: it is here for the ratio.

Bars: at least 50,000 adds/s until all is consolidated, in the median run of the best number of callers; at most 0.02
requests an add from 1,000 callers on; requests per touched record the same, within 5 %, with the fewest records stored
and with the most. If one is missed, it exits with 1. Rates are those of a machine that may have other work: its load
average is noted beside each run.

    python -m bench.counters --quick
    python -m bench.counters --only directory --parts load --callers 1000 --runs 5
    python -m bench.counters --only redis --keep

A run of everything, at full counts, is written to bench/results/counters.json; any other to .bench/counters.json,
unless `--keep` says that it replaces what it measured of its subjects in the former.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.counters.figures import limits, missed
from bench.counters.ours import Bench
from bench.counters.plan import PARTS, Plan
from bench.counters.redis import RedisPeer
from bench.counters.s3db import S3dbPeer
from bench.counters.table import show
from bench.form import finish, kept, merged
from bench.queue.__main__ import missing as missing_server
from bench.queue.__main__ import server_of
from lab.buckets import make_bucket

SUBJECTS = ("directory", "ministack", "s3db", "redis")
SCRATCH = Path(__file__).parents[2] / ".bench"
CONDITIONS = "the machine may have other work: runs name the load average before them, and subjects their niceness"
_ON_MINISTACK = ("load", "calls")


def measure(name: str, home: Path, plan: Plan, tell: Callable[[str], None]) -> dict[str, Any]:
    if name == "directory":
        return Bench(name, lambda place: (home / "store" / place).as_uri(), home, plan, tell).run()
    if name == "redis":
        return RedisPeer(home, SCRATCH, plan, tell).run()
    with server_of("ministack", home / "server") as (endpoint, _):
        make_bucket(endpoint, "bench")
        if name == "s3db":
            return S3dbPeer(endpoint, home, SCRATCH, plan, tell).run()
        parts = tuple(part for part in plan.parts if part in _ON_MINISTACK)
        plan = Plan(**{**vars(plan), "parts": parts})
        return Bench(name, lambda place: endpoint.store_url("bench", place), home, plan, tell).run()


def missing(name: str) -> str | None:
    """Why this cannot be measured here."""
    return RedisPeer.missing() if name == "redis" else missing_server(name)


def result_of(subjects: list[dict[str, Any]], left_out: list[str], plan: Plan, *, keep: bool) -> dict[str, Any]:
    result: dict[str, Any] = {
        "seeds": "none: nothing here is drawn at random but ids, backoffs and heartbeat jitter",
        "conditions": CONDITIONS,
        "plan": vars(plan),
        "left_out": left_out,
    }
    result["subjects"] = merged(kept("counters").get("subjects", []), subjects) if keep else subjects
    return result


def main() -> int:
    options = parse()
    plan = plan_of(options)
    console = Console(width=170)
    names = [name for name in SUBJECTS if name in (options.only or SUBJECTS)]
    subjects: list[dict[str, Any]] = []
    left_out: list[str] = []
    began = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    SCRATCH.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="counters-", dir=SCRATCH))
    for name in names:
        if reason := missing(name):
            left_out.append(f"{name} ({reason})")
            continue
        busy = [round(load, 1) for load in os.getloadavg()]
        try:
            subject = measure(name, home / name, plan, tell)
        except (RuntimeError, TimeoutError, OSError) as error:
            # One subject that fails does not cost the others their figures.
            left_out.append(f"{name}: {error}")
            tell(f"{name} failed: {error}")
            continue
        subject["measured_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        subject["load_average_before"] = busy
        subject["nice"] = os.nice(0)
        if name == "directory":
            subject["missed"] = missed(subject)
        subjects.append(subject)
        if "failed" in subject:
            left_out.append(f"{subject['subject']}: {', '.join(subject['failed'])} failed")
        else:
            shutil.rmtree(home / name, ignore_errors=True)
    show(subjects, console)
    is_whole = not options.quick and names == list(SUBJECTS) and plan == Plan() and not left_out
    for reason in left_out:
        console.print(f"left out: {reason}", markup=False)
    result = result_of(subjects, left_out, plan, keep=options.keep)
    code = finish("counters", result, limits(result["subjects"]), console, is_whole=is_whole or options.keep)
    sentences = [sentence for subject in subjects for sentence in subject.get("missed", [])]
    for sentence in sentences:
        console.print(f"[red]missed[/]: {sentence}", highlight=False)
    if left_out:
        console.print(f"logs: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return 1 if sentences else code


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.counters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, metavar="NAME", help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="of our own measurements")
    parser.add_argument("--seconds", type=float, help="for which all processes add")
    parser.add_argument("--callers", type=int, nargs="+", help="in each process, each number measured")
    parser.add_argument("--records", type=int, help="that are added to in turn")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--waiting", type=int, help="records in the leader's memory")
    parser.add_argument("--quick", action="store_true", help="small counts: to see that it works")
    parser.add_argument("--keep", action="store_true", help="replace what is measured in bench/results/counters.json")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan()
    for name in ("seconds", "records", "runs", "waiting"):
        if getattr(options, name) is not None:
            setattr(plan, name, getattr(options, name))
    if options.callers:
        plan.callers = tuple(options.callers)
    plan.parts = tuple(part for part in PARTS if part in options.parts)
    return plan


if __name__ == "__main__":
    sys.exit(main())
