"""`make bench-scheduler`: the scheduler on a directory store, one process leading, beside APScheduler 3.

Every subject is a process of its own, with the same jobs, and all are measured at the same time: each has the same
machine, whatever else that does, and together they take a fraction of one core. Lateness is from the instant that a job
was due to the first line of its function, by the machine's wall clock. A tick is a decision on what is due: ours writes
an entry of the log before anything runs, at most about two a second; APScheduler wakes for every instant. CPU is that
of the whole process, heartbeats and the jobs themselves included. The longest gap of a 5 ms ticker on the same event
loop says for how long anything kept that loop from others. USD are at the list prices of S3 Standard.

What is compared is not the same thing: APScheduler decides in one process, has no failover and keeps no record of what
ran; ours decides through any failover, with a durable record of every occurrence.

    python -m bench.scheduler --quick
    python -m bench.scheduler --only tenure --jobs 50000

A run of everything, at full counts, is written to bench/results/scheduler.json; any other to .bench/scheduler.json.
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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.form import finish
from bench.queue.obey import ROOT, Node
from bench.queue.peers import environment
from bench.scheduler.figures import row_of
from bench.scheduler.plan import Plan
from bench.scheduler.table import show

SCRATCH = ROOT / ".bench"
PACKAGES = ("apscheduler==3.11.3", "sqlalchemy==2.1.8", "tzdata")
OURS = "as it comes: lease 15 s, decided by an elected leader; misfire FIRE_ONCE after a grace of 30 s, overlap SKIP"
PEER = "AsyncIOScheduler, AsyncIOExecutor, coalesce, max_instances 1, misfire_grace_time 30 s"
SETTINGS = {
    "tenure": OURS,
    "apscheduler-memory": f"{PEER}; MemoryJobStore: nothing is kept",
    "apscheduler-sqlite": f"{PEER}; SQLAlchemyJobStore on SQLite, journal WAL, synchronous NORMAL",
}
TITLES = {
    "tenure": "tenure on a directory",
    "apscheduler-memory": "APScheduler, memory",
    "apscheduler-sqlite": "APScheduler, SQLite",
}


def command_of(name: str, part: str, home: Path, plan: Plan) -> tuple[list[str], dict[str, str]]:
    """What is run, and in which environment."""
    options: dict[str, Any] = {"settle": plan.settle_seconds}
    if part == "busy":
        options |= {"busy": plan.busy_jobs, "seconds": plan.busy_seconds, "cpu_seconds": plan.busy_cpu_seconds}
    else:
        options |= {"jobs": plan.jobs, "seconds": plan.seconds, "cpu_seconds": plan.cpu_seconds}
    if name == "tenure":
        options["url"] = (home / "store").as_uri()
        program, path = [sys.executable, "-m", "bench.scheduler.ours"], f"{ROOT / 'src'}:{ROOT}"
    else:
        options |= {"store": name.removeprefix("apscheduler-"), "file": str(home / "jobs.sqlite")}
        python = environment(SCRATCH, "scheduler-venv", PACKAGES) / "python"
        program, path = [str(python), "-m", "bench.scheduler.peer_apscheduler"], str(ROOT)
    return [*program, json.dumps(options)], {"PYTHONPATH": path}


def measure(names: Sequence[str], part: str, home: Path, plan: Plan) -> dict[str, dict[str, Any]]:
    """Of all subjects at the same time, so that each has the same machine; they are started one after the other."""
    nodes: dict[str, Node] = {}
    try:
        for name in names:
            (home / name).mkdir(parents=True)
            command, env = command_of(name, part, home / name, plan)
            nodes[name] = Node(command, home / name / "log", env)
            nodes[name].answer(300)
        load = os.getloadavg()[0]
        for node in nodes.values():
            node.tell(go=True)
        rows = {name: row_of(node.answer(120 + 2 * (plan.seconds + plan.cpu_seconds))) for name, node in nodes.items()}
    finally:
        for node in nodes.values():
            node.end()
    return {name: {**row, "load": [round(load, 2), round(os.getloadavg()[0], 2)]} for name, row in rows.items()}


def version_of(name: str) -> dict[str, str]:
    if name == "tenure":
        return {}
    python = environment(SCRATCH, "scheduler-venv", PACKAGES) / "python"
    program = (
        "import json, importlib.metadata as m; "
        "print(json.dumps({name: m.version(name) for name in ('apscheduler', 'sqlalchemy')}))"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def told(name: str, part: str, row: dict[str, Any]) -> str:
    late, start = row["lateness_ms"], row["start_seconds"]["all_next_fires_known"]
    return (
        f"{TITLES[name]}, {part}: all known after {start:.2f} s, {row['runs']:,} runs, late by p50 {late['p50']} ms, "
        f"p99 {late['p99']} ms, CPU {row['cpu']['share']:.1%}"
    )


def main() -> None:
    console = Console(width=150)
    options = parse()
    plan = plan_of(options)
    names = [name for name in SETTINGS if name in (options.only or SETTINGS)]
    left_out: list[str] = []
    began = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    home = Path(tempfile.mkdtemp(prefix="bench-scheduler-"))
    found: dict[str, dict[str, Any]] = {
        name: {"subject": TITLES[name], "settings": SETTINGS[name], "versions": version_of(name)} for name in names
    }
    for part in ("many", "busy"):
        try:
            for name, row in measure(names, part, home / part, plan).items():
                found[name][part] = row
                tell(told(name, part, row))
        except (RuntimeError, TimeoutError, OSError) as error:
            # One part that fails does not cost the other its figures.
            left_out.append(f"{part}: {error}")
            tell(f"{part} failed: {error}")
    subjects = list(found.values())
    show(subjects, asdict(plan), console)
    for reason in left_out:
        console.print(f"left out: {reason}", markup=False)
    result: dict[str, Any] = {
        "seeds": "none: the jobs are always the same, and nothing else is drawn at random but ids and heartbeat jitter",
        "plan": asdict(plan),
        "left_out": left_out,
        "subjects": subjects,
    }
    is_whole = names == list(SETTINGS) and plan == Plan() and not left_out
    finish("scheduler", result, [], console, is_whole=is_whole)
    if left_out:
        console.print(f"logs: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduler", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SETTINGS, metavar="NAME", help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seconds", type=float, help="for which lateness is measured")
    parser.add_argument("--quick", action="store_true", help="small counts: to see that it works")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    plan = Plan.quick() if options.quick else Plan()
    for name in ("jobs", "seconds"):
        if getattr(options, name) is not None:
            setattr(plan, name, getattr(options, name))
    return plan


if __name__ == "__main__":
    main()
