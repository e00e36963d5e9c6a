"""`make soak`: see the package's own text.

python -m lab.soak --store directory --minutes 60
python -m lab.soak --minutes 3 --broken leaks-files        # must end with 1
python -m lab.soak --days 8                                # in simulated time
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from lab.arguments import minutes, whole
from lab.chaos.site import home_for
from lab.ledger_cluster import ROOT
from lab.ministack import Ministack
from lab.soak import simulated
from lab.soak.fleet import Fleet, Report, place
from lab.soak.judge import table
from lab.soak.node import BROKEN
from lab.soak.simulated import DAYS, WORKERS, SimulatedSoak

_WARM_UP = 0.3
"""Of the run; what is remembered for a while has to have been forgotten once."""


def main() -> int:
    arguments = parse_arguments()
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", file=sys.stderr, flush=True)

    if arguments.store == "ministack" and Ministack.missing():
        print("not installed: ministack; run make venv", file=sys.stderr)
        return 2
    known = simulated.BROKEN if arguments.days else BROKEN
    if not set(arguments.broken) <= set(known):
        print(f"--broken {' '.join(arguments.broken)}: here there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    kind = "simulated" if arguments.days else arguments.store
    folder = arguments.logs or ROOT / ".reports" / "soak" / kind
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        report = simulate(arguments, tell) if arguments.days else asyncio.run(run(arguments, folder, tell))
    except asyncio.CancelledError:
        tell("ended before it was over: nothing is judged")
        return 2
    (folder / "soak.json").write_bytes(msgspec.json.encode(report))
    print("\n".join([*table(report.rows), *report.failures]))
    print(f"{report.terms} leaderships, {len(report.turns)} handovers and restarts; {folder / 'soak.json'}")
    return 0 if report.is_flat else 1


def simulate(arguments: argparse.Namespace, tell: Callable[[str], None]) -> Report:
    pace = msgspec.structs.replace(DAYS, length=arguments.days * 86400, warm_up=min(1.0, arguments.days / 4) * 86400)
    tell(f"{arguments.days:g} simulated days, {WORKERS} processes, seed {arguments.seed}")
    return SimulatedSoak(pace, seed=arguments.seed, broken=tuple(arguments.broken)).run(tell)


async def run(arguments: argparse.Namespace, folder: Path, tell: Callable[[str], None]) -> Report:
    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, current.cancel)
    seconds = arguments.minutes * 60
    report = Report(
        store=arguments.store,
        minutes=arguments.minutes,
        warm_up=arguments.warm_up if arguments.warm_up is not None else _WARM_UP * seconds,
        nodes=arguments.nodes,
        broken=arguments.broken,
    )
    tell(f"{arguments.store}, {arguments.minutes:g} min, {arguments.nodes} processes; {folder}")
    with home_for("soak") as home:
        async with place(arguments.store, Path(home)) as url:
            fleet = Fleet(url, folder, report, arguments.turn, arguments.sample, arguments.trims, tell)
            return await fleet.run()


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.soak", description="Does anything grow that should not?")
    parser.add_argument("--store", choices=["directory", "ministack"], default="directory")
    parser.add_argument("--minutes", type=minutes, default=60.0)
    parser.add_argument("--days", type=float, default=0.0, help="so many days in simulated time, instead")
    parser.add_argument("--seed", type=int, default=1, help="of the simulated days")
    parser.add_argument(
        "--nodes", type=whole(2, 12), default=4, help="processes, 2 to 12; the first half of them is never restarted"
    )
    parser.add_argument("--turn", type=float, default=90.0, metavar="SECONDS", help="between two restarts or handovers")
    parser.add_argument("--sample", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", help="instead of three tenths of the run")
    parser.add_argument("--trims", action="store_true", help="every process gives free memory back before each sample")
    leaks = sorted({*BROKEN, *simulated.BROKEN})
    parser.add_argument("--broken", action="append", default=[], choices=leaks, help="every process does this")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="instead of .reports/soak/STORE")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
