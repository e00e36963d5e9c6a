"""`make load`: see the package's own text.

python -m lab.load --minutes 5
python -m lab.load --minutes 1 --coordinators 40 --processes 2 --broken slow-heartbeats     # must end with a violation
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from lab.buckets import make_bucket
from lab.ledger_cluster import ROOT
from lab.load.conductor import Conductor, Run
from lab.load.node import BROKEN
from lab.load.plan import Plan
from lab.load.verdict import Verdict, as_json, judge_folder, table
from lab.ministack import Ministack

BUCKET = "load"


def main() -> int:
    arguments = parse_arguments()
    if lacking := Ministack.missing():
        print(f"not installed: {', '.join(lacking)}; run tools/install-servers", file=sys.stderr)
        return 2
    try:
        plan = plan_from(arguments)
    except ValueError as refused:
        print(f"load: {refused}", file=sys.stderr)
        return 2
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", file=sys.stderr, flush=True)

    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    folder = arguments.logs or ROOT / ".reports" / "load" / stamp
    tell(f"{plan.seconds:g} s of load, lease {plan.lease:g} s; logs in {folder}")
    try:
        verdict = asyncio.run(run(plan, folder, tell))
    except asyncio.CancelledError:
        tell("ended before it was over: nothing is judged")
        return 2
    report = folder.with_suffix(".json")
    report.write_bytes(as_json(verdict))
    if arguments.json:
        print(as_json(verdict).decode())
    else:
        print("\n".join(table(verdict)))
    if not verdict.violations and arguments.logs is None:
        shutil.rmtree(folder)  # a line for everything that happened to every message: nobody needs it any more
    tell(f"in {report}")
    return 1 if verdict.violations else 0


async def run(plan: Plan, folder: Path, tell: Callable[[str], None]) -> Verdict:
    # Whoever ends it early leaves nothing behind.
    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, current.cancel)
    noted = Run(plan=plan)
    with tempfile.TemporaryDirectory(prefix="tenure-load-", ignore_cleanup_errors=True) as home:
        server = Ministack(Path(home))
        try:
            endpoint = server.start()
            make_bucket(endpoint, BUCKET)
            await Conductor(endpoint.store_url(BUCKET, "run"), folder, noted, server.pid, tell).conduct()
        finally:
            server.stop()
    tell("judging")
    return judge_folder(folder)


def plan_from(arguments: argparse.Namespace) -> Plan:
    given = {name: value for name, value in vars(arguments).items() if name in Plan.__struct_fields__}
    chosen = {name: value for name, value in given.items() if value is not None}
    return Plan(**{**chosen, "seconds": arguments.minutes * 60, "broken": tuple(arguments.broken)})


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.load", description="Many coordinators, a queue near its limit, and leaders that are killed."
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of load; starting, measuring, settling come on top")
    for name, kind, what in OPTIONS:
        default = getattr(Plan(), name)
        parser.add_argument(f"--{name}", type=kind, help=f"{what} (default: {default:g})")
    parser.add_argument(
        "--broken", action="append", default=[], choices=sorted(BROKEN), help="every process is wrong so"
    )
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="a new one, which is kept in any case")
    parser.add_argument("--json", action="store_true", help="the verdict as one JSON object")
    return parser.parse_args()


OPTIONS: tuple[tuple[str, Callable[[str], float], str], ...] = (
    ("coordinators", int, "in all processes together"),
    ("processes", int, "that host them"),
    ("handlers", int, "coordinators that also handle messages"),
    ("kills", int, "of the process that hosts the leader"),
    ("lease", float, "seconds; with another one than the default, all intervals are in proportion to it"),
    ("saturation", float, "seconds for which the queue's maximum is measured"),
    ("share", float, "of that maximum that it is given"),
    ("concurrency", int, "messages that one handler has in hand"),
    ("hold", float, "seconds for which it has each, on average"),
    ("producers", int, "processes that enqueue"),
)


if __name__ == "__main__":
    sys.exit(main())
