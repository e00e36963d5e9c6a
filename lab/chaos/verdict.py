"""Has every judge look at a run, each a program of its own that sees nothing but files; and sums up what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.chaos.conductor import WIPED, Run
from lab.chaos.plan import Target
from lab.chaos.recovery_judge import bounds, first_after, led
from lab.ledger_cluster import ROOT

OF_PROGRAMS = ("overlaps", "epochs_gone_back")
"""A supervisor may start a program again in one term: only this is promised of programs."""


AIMED = 3
"""With so many faults that are meant for whoever leads, at least one must hit one."""


_OF_LOGS = ("lives", "joined", "lines", "longest_silence", "unjudged")


class Judged(msgspec.Struct, frozen=True):
    part: str
    violations: list[str]
    """Each with what was found."""
    figures: dict[str, Any]


class Verdict(msgspec.Struct, frozen=True):
    run: Run
    judged: list[Judged]
    unfelt: list[str]
    """Kinds of the plan of which not one was felt: then the run proves nothing about them."""

    @property
    def violations(self) -> list[str]:
        found = [f"{each.part}: {text}" for each in self.judged for text in each.violations]
        found += [f"run: {text[:400]}" for text in self.run.failures]
        found += [f"plan: no {kind} was felt by anybody" for kind in self.unfelt]
        aimed = sum(step.target is Target.LEADER for step in self.run.steps)
        if aimed >= AIMED and not any(name.endswith(f" {Target.LEADER.value}") for name in self.run.on):
            found.append(f"plan: {aimed} faults were meant for the leader, and none hit one")
        return found


def judge_run(folder: Path, run: Run) -> Verdict:
    def logs(part: str, *more: Path) -> list[str]:
        found = [path for each in (folder, *more) for path in sorted(each.glob(f"*.{part}"))]
        return [str(path) for path in found if path.stat().st_size]

    wiped = folder / WIPED
    events = ["--events", str(folder / "events")]
    judged = [
        # Leaders are judged from the first process to the last, the wiping included.
        _beliefs("election", logs("belief", wiped)),
        _beliefs("service", logs("service", wiped)),
        _beliefs("program", logs("program", wiped), only=OF_PROGRAMS),
        _ask(
            "lock",
            "lab.lock_judge",
            [*logs("lock"), *(part for path in logs("waits") for part in ("--waits", path))],
            ("grants", "acquisitions", "waits"),
        ),
        _ask(
            "queue",
            "lab.queue_judge",
            ["--sent", *logs("sent"), "--handled", *logs("handled"), *events, "--visibility", "5"],
            ("accepted", "not_accepted", "handled", "handlings", "duplicates", "explained", "kills"),
        ),
        _ask(
            "schedule",
            "lab.schedule_judge",
            ["--log", str(folder / "log"), "--runs", *logs("runs"), *events, "--api", str(folder / "api.json")],
            ("jobs", "instants", "outcomes", "ends", "runs", "reruns", "terms", "entries", "void", "lateness"),
        ),
        _ask(
            "counters",
            "lab.counter_judge",
            ["--notes", *logs("notes"), *events, "--final", str(folder / "final.json")],
            ("calls", "acknowledged", "unknown", "counted", "again", "reads", "consistent", "open_reads"),
        ),
        _ask(
            "expiry",
            "lab.chaos.expiry_judge",
            [*logs("expiry"), "--left", str(folder / "sessions"), "--run", str(folder / "run.json")],
            ("records", "inserted", "touches", "too_late", "unsure", "looks", "found_gone"),
        ),
        _ask("recovery", "lab.chaos.recovery_judge", [str(folder)], ("calms", "lives", "longest", "gaps", "bounds")),
        *([_after_wiping(wiped, run)] if run.wipes else []),
        halted(folder),
    ]
    kinds = {step.kind.value for step in run.steps}
    judged = _with_logs(judged, _ask("logs", "lab.chaos.log_judge", [str(folder)], _OF_LOGS))
    return Verdict(run, judged, sorted(kind for kind in kinds if not run.hits.get(kind)))


def _with_logs(judged: Sequence[Judged], logs: Judged) -> list[Judged]:
    """A part whose logs say nothing is not right: that it cannot be judged is a violation of that part."""
    unjudged = logs.figures.pop("unjudged", {})
    found = [
        Judged(each.part, [*each.violations, f"cannot be judged: {json.dumps(why)[:1000]}"], each.figures)
        if (why := unjudged.get(each.part))
        else each
        for each in judged
    ]
    return [*found, Judged("logs", [] if unjudged else logs.violations, logs.figures)]


def _beliefs(part: str, logs: Sequence[str], only: Sequence[str] = ()) -> Judged:
    asked = _ask(part, "lab.judge", logs, ("samples", "terms", "longest_silence", "epochs_skipped"), only)
    if "terms" not in asked.figures:
        return asked
    terms = asked.figures["terms"]
    figures = {**asked.figures, "terms": len(terms), "highest": max((each["epoch"] for each in terms), default=0)}
    return Judged(part, asked.violations, {**figures, "epochs_skipped": len(figures["epochs_skipped"])})


def _ask(part: str, module: str, arguments: Sequence[str], figures: Sequence[str], only: Sequence[str] = ()) -> Judged:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    # A judge that fails ends with 1 as well, and has said nothing.
    if done.returncode not in (0, 1) or not done.stdout.strip():
        return Judged(part, [f"cannot be judged: {done.stderr.strip()[-500:]}"], {})
    said: dict[str, Any] = json.loads(done.stdout)
    counted = [name for name in said["violations"] if not only or name in only]
    return Judged(
        part,
        [f"{name}: {json.dumps(said[name])[:1000]}" for name in counted],
        {name: said[name] for name in figures},
    )


def _after_wiping(folder: Path, run: Run) -> Judged:
    """Somebody leads in good time, and its children run: nothing else is promised.

    It shows nothing if nothing was deleted, or if the one that led before lived on.
    """
    if run.wiped is None:
        return Judged("wiping", ["it did not come to it"], {})
    found: list[str] = []
    if not run.wiped_objects:
        found.append("nothing was deleted")
    if not run.wiped_leader:
        found.append("no leader was killed")
    seconds: dict[str, float | None] = {}
    for part, log in (("election", "belief"), ("program", "program")):
        took = first_after([(at, at) for at in led(folder, log)], run.wiped.from_ns, run.wiped.to_ns)
        seconds[part] = took
        if took is None or took > bounds()[part]:
            found.append(f"late: {part} worked after {took} s, and may take {bounds()[part]} s")
    return Judged("wiping", found, {"objects": run.wiped_objects, "seconds": seconds})


def halted(folder: Path) -> Judged:
    """No plugin stops for good while nobody but tenure touches its data; and no message is given up."""
    said: Counter[str] = Counter()
    found = []
    for path in sorted(folder.glob("*.out")):
        for line in path.read_bytes().split(b"\n"):
            if not line.startswith(b'{"said"'):
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # cut short by a kill
            name = entry["said"].rpartition(":")[2]
            said[name] += 1
            if entry["said"] == "failed" or name in ("halted", "messages-dead", "job-unknown"):
                found.append(f"{name}: {path.name}: {line.decode(errors='replace')[:400]}")
    return Judged("processes", found[:20], dict(said.most_common(30)))


def table(verdict: Verdict) -> list[str]:
    """For people."""
    run = verdict.run
    rows = [f"{'part':<10} {'verdict':<10} what was seen"]
    for each in verdict.judged:
        shown = ", ".join(f"{name} {_short(value)}" for name, value in each.figures.items())
        rows.append(f"{each.part:<10} {'VIOLATED' if each.violations else 'ok':<10} {shown[:230]}")
    rows.append("")
    rows.append("faults     " + ", ".join(f"{kind} {count}" for kind, count in sorted(run.hits.items())))
    if run.missed:
        rows.append("unfelt     " + ", ".join(f"{kind} {count}" for kind, count in sorted(run.missed.items())))
    rows.append(f"requests   {sum(run.requests.values()):,} through proxies, {run.faulted:,} of them disturbed")
    rows.append(f"processes  {run.starts} started")
    rows += [f"VIOLATION  {text}" for text in verdict.violations]
    verdict_word = "VIOLATED" if verdict.violations else "no violation"
    rows.append(f"{run.store}, seed {run.seed}, {run.seconds / 60:g} min, {run.nodes} processes: {verdict_word}")
    return rows


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} {_short(each)}" for name, each in value.items()) + "}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
