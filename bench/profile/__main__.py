"""`make bench-profile`: where the time goes, and what it was before a change, in one run.

The same work is done with these sources and with those of another revision (`--before`, any name that git knows), which
are taken out of git into .bench. Both take turns, or run side by side, so that whatever else the machine does meets
both; the ratios are the result.

- cycle: an idle leader and an idle follower of each version, real processes on a directory, all at the same time: CPU
  seconds an hour, and wake-ups a second.
- queue: leader, worker and producer of a queue in one process, messages enqueued one by one at a steady rate, on a
  directory: CPU microseconds a message.
- requests: CPU microseconds of single requests to a directory.
- lapse: a simulated fleet of 1,000 loses its leader: requests of all in the busiest second.
- where: the functions of these sources that take the most time of their own in the queue's loops, by cProfile.

    python -m bench.profile --before HEAD~1 --quick
    python -m bench.profile --before v0.1.0 --only requests lapse

A full run is written to bench/results/profile.json, any other to .bench/profile.json.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.form import SCRATCH, Limit, finish, kept
from bench.idle.process import figures, look
from bench.profile.plan import MOST_OF_BEFORE, PARTS, Plan
from bench.queue.obey import ROOT, Node

VERSIONS = ("before", "after")
_ROLES = {"leader": "a-leader", "follower": "b-follower"}

Tell = Callable[[str], None]


def sources_of(revision: str) -> tuple[str, Path]:
    """The whole name of a revision, and its sources, taken out of git."""
    name = _git("rev-parse", "--verify", f"{revision}^{{commit}}").decode().strip()
    place = SCRATCH / f"sources-{name[:12]}"
    if not (place / "src").is_dir():
        packed = _git("archive", name, "src")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
    return name, place / "src"


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.decode().strip()}; name a revision with --before")
    return done.stdout


class Bench:
    def __init__(self, sources: dict[str, Path], home: Path, plan: Plan, tell: Tell) -> None:
        self._sources, self._home, self._plan, self._tell = sources, home, plan, tell

    def run(self) -> dict[str, Any]:
        return {part: getattr(self, part)() for part in self._plan.parts}

    def cycle(self) -> dict[str, Any]:
        """All four at the same time."""
        with contextlib.ExitStack() as stack:
            nodes = {}
            for version in VERSIONS:
                url = (self._home / f"idle-{version}").as_uri()
                for role, name in _ROLES.items():
                    command = [sys.executable, "-m", "bench.idle.worker", url, name]
                    node = Node(command, self._home / f"{version}-{role}.log", self._environment(version))
                    stack.callback(node.end)
                    if node.answer(120)["leads"] != (role == "leader"):
                        raise RuntimeError(f"{name} was to be the {role}, and is not")
                    nodes[version, role] = node
            time.sleep(10.0)
            looked = {who: [look(node.pid)] for who, node in nodes.items()}
            time.sleep(self._plan.idle_seconds)
            for who, node in nodes.items():
                looked[who].append(look(node.pid))
        found: dict[str, Any] = {version: {} for version in VERSIONS}
        for (version, role), samples in looked.items():
            row = figures(samples)
            found[version][role] = {key: row[key] for key in ("cpu_seconds_per_hour", "wakeups_per_second", "seconds")}
            self._tell(f"{version}, idle {role}: {row['cpu_seconds_per_hour']} CPU s an hour")
        return found

    def queue(self) -> dict[str, Any]:
        return self._in_turn("queue", count=self._plan.messages, rate=self._plan.rate)

    def requests(self) -> dict[str, Any]:
        return self._in_turn("requests", count=self._plan.requests)

    def lapse(self) -> dict[str, Any]:
        """Simulated, and so the same each time."""
        order = {"workers": self._plan.workers, "crashes": self._plan.crashes}
        found = {version: [self._work(version, "lapse", order)] for version in VERSIONS}
        self._tell(f"a lease that lapsed: {found}")
        return found

    def where(self) -> dict[str, Any]:
        order = {"count": self._plan.messages, "rate": self._plan.rate, "profiled": True}
        return {version: self._work(version, "queue", order | self._place())["where"] for version in VERSIONS}

    def _in_turn(self, name: str, **order: Any) -> dict[str, Any]:
        found: dict[str, list[dict[str, Any]]] = {version: [] for version in VERSIONS}
        for number in range(self._plan.rounds):
            for version in VERSIONS if number % 2 else VERSIONS[::-1]:
                found[version].append(self._work(version, name, order | self._place()))
        self._tell(f"{name}: {found}")
        return found

    def _place(self) -> dict[str, str]:
        return {"url": Path(tempfile.mkdtemp(dir=self._home)).as_uri()}

    def _work(self, version: str, name: str, order: dict[str, Any]) -> dict[str, Any]:
        command = [sys.executable, "-m", "bench.profile.work", name, json.dumps(order)]
        environment = {**os.environ, **self._environment(version)}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1800)
        if done.returncode:
            raise RuntimeError(f"{name}, {version}: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        if Path(found.pop("sources")) != self._sources[version]:
            raise RuntimeError(f"{name}: the sources of {version} were not used")
        return found

    def _environment(self, version: str) -> dict[str, str]:
        return {"PYTHONPATH": f"{self._sources[version]}:{ROOT}", "PYTHONDONTWRITEBYTECODE": ""}


def rows_of(result: dict[str, Any]) -> list[tuple[str, float, float]]:
    """(figure, before, after), of what was measured."""
    values: dict[str, list[float]] = {}
    for version in VERSIONS:
        for what, value in _figures(result, version):
            values.setdefault(what, []).append(value)
    return [(what, before, after) for what, (before, after) in values.items()]


def _figures(result: dict[str, Any], version: str) -> Iterator[tuple[str, float]]:
    if "cycle" in result:
        for role in _ROLES:
            yield f"idle {role}, CPU seconds an hour", result["cycle"][version][role]["cpu_seconds_per_hour"]
            yield f"idle {role}, wake-ups a second", result["cycle"][version][role]["wakeups_per_second"]
    if "queue" in result:
        yield "queue, CPU µs a message", median(each["message_us"] for each in result["queue"][version])
        yield "queue, requests a message", median(each["requests_each"] for each in result["queue"][version])
    if "requests" in result:
        for verb in ("get", "create"):
            yield (
                f"`{verb}` on a directory, CPU µs",
                median(each[f"{verb}_us"] for each in result["requests"][version]),
            )
    if "lapse" in result:
        found = result["lapse"][version][0]
        yield "leader crashed, requests in the busiest second", found["busiest_second"]
        yield "all start together, likewise", found["cold_start_busiest_second"]


def limits_of(result: dict[str, Any]) -> list[Limit]:
    shares = {what: after / before for what, before, after in rows_of(result) if before}
    names = {
        "idle leader, CPU seconds an hour": "CPU of an idle leader",
        "`get` on a directory, CPU µs": "CPU of a read from a directory",
        "leader crashed, requests in the busiest second": (
            "requests in the busiest second after the leader of 1,000 crashed"
        ),
    }
    return [
        Limit(f"{bar}, as a share of what it was before", round(shares[figure], 4), MOST_OF_BEFORE[bar])
        for figure, bar in names.items()
        if figure in shares
    ]


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("", "before", "after", "of it", title="the same work with two versions")
    for column in table.columns[1:]:
        column.justify = "right"
    for what, before, after in rows_of(result):
        table.add_row(what, f"{before:,.2f}", f"{after:,.2f}", f"{after / before:.2f}" if before else "")
    console.print(table)
    for version, functions in result.get("where", {}).items():
        table = Table("function", "own time", "calls", title=f"where the time goes in a queue's loops, {version}")
        for row in functions:
            table.add_row(row["function"], f"{row['share']:.1%}", f"{row['calls']:,}")
        console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--before",
        default=kept("profile").get("before"),
        metavar="REV",
        help="the revision to compare with; as it comes, that of bench/results/profile.json",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a first look")
    options = parser.parse_args()
    if options.before is None:
        parser.error("there are no results yet that name a revision to compare with: give one with --before")
    parts = tuple(part for part in PARTS if part in options.only)
    plan = Plan.quick(parts) if options.quick else Plan(parts)
    console, began = Console(width=150), time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {what}", highlight=False)

    SCRATCH.mkdir(exist_ok=True)
    name, before = sources_of(options.before)
    home = Path(tempfile.mkdtemp(prefix="profile-", dir=SCRATCH))
    load = os.getloadavg()
    try:
        found = Bench({"before": before, "after": ROOT / "src"}, home, plan, tell).run()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    result = {
        "plan": asdict(plan),
        "before": name,
        "load_averages": [[round(each, 1) for each in loads] for loads in (load, os.getloadavg())],
        **found,
    }
    show(result, console)
    return finish("profile", result, limits_of(result), console, is_whole=parts == PARTS and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
