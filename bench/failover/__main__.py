"""`make bench-failover`: how soon another leads, and whether two ever believe that they do, beside what others use.

Three processes of each system stand for election. Their leader is killed (crash: SIGKILL), asked to end (stop: SIGTERM,
which the program handles as the system's documentation says) or frozen for three leases and continued (freeze: SIGSTOP,
SIGCONT), in an order and at instants drawn from a seed. Each process notes a hundred times a second whether it believes
that it leads, on a clock that all share. A takeover lasts from the signal to the first note of another process that it
leads. Two led at once if the notes of two processes prove it (`lab.judge`); a process counts only while it runs.

All systems and leases run side by side, each on a server of its own: they wait for most of the time. s3db.js takes no
lease under 5 s, and has that where others have 3 s; it is held against ours at 15 s alone.

Bars: in no trial of ours do two believe at once; after a crash the mean takeover at 15 s is at most 0.65 of s3db.js's,
and after a stop at most 0.25; after a crash it is at most 1.15 of etcd's and of ZooKeeper's, at both leases. If one is
missed, it exits with 1.

    python -m bench.failover --quick
    python -m bench.failover --only tenure etcd --leases 3 --trials 5

A run of everything, at full counts, is written to bench/results/failover.json; any other to .bench/failover.json,
unless `--keep` says that it replaces its subjects' figures in the former.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.failover.contest import Contest
from bench.failover.figures import limits_of, samples_of, summary
from bench.failover.plan import KINDS, Plan
from bench.failover.systems import SYSTEMS, System
from bench.failover.table import failed, show
from bench.form import SCRATCH, finish
from bench.machine import RESULTS

_TOGETHER = 2 * len(SYSTEMS)

Tell = Callable[[str], None]


async def measure(
    systems: Sequence[tuple[System, str]], plan: Plan, together: int, home: Path, tell: Tell
) -> tuple[list[dict[str, Any]], list[str]]:
    """The subjects, and what is lacking of them. One contest that fails does not cost the others their figures."""
    places = asyncio.Semaphore(together)

    async def held(system: System, lease: float) -> dict[str, Any] | str:
        folder = home / f"{system.name}-{lease:g}"
        async with places:
            try:
                return await Contest(system, lease, plan.trials[lease], plan.seed, folder, tell).run()
            except (AssertionError, RuntimeError, ValueError, OSError) as error:
                tell(f"{system.label}, lease {lease:g} s failed: {error}")
                return f"{system.name}, lease {lease:g} s: {str(error)[:500]}"

    pairs = [(system, lease) for system, _ in systems for lease in plan.leases]
    answers = await asyncio.gather(*(held(system, lease) for system, lease in pairs))
    lacking = [answer for answer in answers if isinstance(answer, str)]
    subjects = []
    for system, version in systems:
        contests = [
            {**answer, "summary": {kind: summary(samples_of(answer, kind)) for kind in KINDS}}
            for (other, _), answer in zip(pairs, answers, strict=True)
            if other is system and not isinstance(answer, str)
        ]
        if contests:
            fields = {"system": system.name, "label": system.label, "version": version, "belief": system.belief}
            subjects.append({**fields, "contests": contests})
            lacking += [f"{system.name}: {failed(each)} trials without a figure" for each in contests if failed(each)]
    return subjects, lacking


def started(names: Sequence[str], home: Path, tell: Tell) -> tuple[list[tuple[System, str]], list[str]]:
    """The servers that could be started, with their versions, and why the others could not."""
    systems: list[tuple[System, str]] = []
    left_out = []
    for name in names:
        if lacks := SYSTEMS[name].missing():
            left_out.append(f"{name} (missing {', '.join(lacks)}: make bench-failover installs it)")
            continue
        system = SYSTEMS[name](home / name, SCRATCH)
        try:
            systems.append((system, system.start()))
            tell(f"{system.label}: {systems[-1][1]}")
        except (RuntimeError, OSError) as error:
            system.stop()
            left_out.append(f"{name}: {error}")
            tell(f"{name} failed: {error}")
    return systems, left_out


def main() -> int:
    options = parse()
    plan = plan_of(options)
    console = Console(width=170)
    names = [name for name in SYSTEMS if name in (options.only or SYSTEMS)]
    began = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    SCRATCH.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="failover-", dir=SCRATCH))
    loads = [os.getloadavg()]
    systems, left_out = started(names, home, tell)
    try:
        subjects, lacking = asyncio.run(measure(systems, plan, options.together, home, tell))
    finally:
        for system, _ in systems:
            system.stop()
    left_out += lacking
    loads.append(os.getloadavg())
    measured_at = datetime.now(UTC).isoformat(timespec="seconds")
    for subject in subjects:
        subject["measured_at"] = measured_at
        subject["load_averages"] = [[round(load, 1) for load in each] for each in loads]
    show(subjects, plan.leases, console)
    for reason in left_out:
        console.print(f"left out: {reason}", markup=False)
    is_whole = names == list(SYSTEMS) and plan.trials == Plan.full().trials and not left_out
    if options.keep:
        subjects = with_former(subjects)
    result: dict[str, Any] = {
        "seed": plan.seed,
        "trials": {f"{lease:g}": each for lease, each in plan.trials.items()},
        "together": options.together,
    }
    result |= {"left_out": left_out, "subjects": subjects}
    code = finish("failover", result, limits_of(subjects), console, is_whole=is_whole or options.keep)
    if left_out:
        console.print(f"logs: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return code


def with_former(subjects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These, and what the file of results says of the others."""
    path = RESULTS / "failover.json"
    if path.exists():
        fresh = {subject["system"] for subject in subjects}
        former = json.loads(path.read_text())["subjects"]
        subjects = [*subjects, *(each for each in former if each["system"] not in fresh)]
    order = list(SYSTEMS)
    return sorted(subjects, key=lambda subject: order.index(subject["system"]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), metavar="NAME", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--leases", type=float, nargs="+", choices=(3.0, 15.0), help="in seconds")
    parser.add_argument("--trials", type=int, help="of each kind, at each lease and of each system")
    parser.add_argument("--seed", type=int, default=1, help="of the order of trials and of their instants")
    parser.add_argument("--together", type=int, default=_TOGETHER, help="contests at once: one is a system at a lease")
    parser.add_argument("--quick", action="store_true", help="one trial of each kind, lease 3 s: to see that it works")
    parser.add_argument("--keep", action="store_true", help="replace these subjects in bench/results/failover.json")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan.full()
    if options.leases:
        counts = Plan.full().trials if not options.quick else dict.fromkeys(options.leases, Plan.quick().trials[3.0])
        plan.trials = {lease: counts[lease] for lease in sorted(options.leases)}
    if options.trials:
        plan.trials = {lease: dict.fromkeys(KINDS, options.trials) for lease in plan.trials}
    plan.seed = options.seed
    return plan


if __name__ == "__main__":
    sys.exit(main())
