"""Judges a run by its files alone, and sums up what was found.

    python -m lab.load.verdict FOLDER [--json]

Exits 1 if there is a violation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.chaos.verdict import Judged, halted
from lab.judge import Term, Unjudgeable
from lab.judge import judge_logs as judge_beliefs
from lab.load.beat_judge import Files, Window
from lab.load.beat_judge import judge as judge_beats
from lab.load.conductor import Run
from lab.queue_judge import judge_files as judge_queue

ENOUGH_LOAD = 0.95
"""Of the messages that the plan gives the queue, so many must have been accepted while there was load."""
_NS = 1_000_000_000


class Verdict(msgspec.Struct, frozen=True):
    run: Run
    judged: list[Judged]

    @property
    def violations(self) -> list[str]:
        found = [f"{each.part}: {text}" for each in self.judged for text in each.violations]
        return found + [f"run: {text[:400]}" for text in self.run.failures]


def judge_folder(folder: Path) -> Verdict:
    run = msgspec.json.decode((folder / "run.json").read_bytes(), type=Run)
    leaders, terms = _leaders(folder)
    return Verdict(run, [leaders, _beats(folder, run, terms), _queue(folder, run), _given(folder, run), halted(folder)])


def _leaders(folder: Path) -> tuple[Judged, Sequence[Term]]:
    try:
        verdict = judge_beliefs(_logs(folder, "belief"))
    except Unjudgeable as failure:
        return Judged("election", [f"cannot be judged: {failure}"], {}), ()
    figures = {"samples": verdict.samples, "coordinators": len(verdict.processes), "terms": len(verdict.terms)}
    return Judged("election", _named(verdict), figures), verdict.terms


def _beats(folder: Path, run: Run, terms: Sequence[Term]) -> Judged:
    files = Files()
    try:
        files.read_events(folder / "events")
        for path in _logs(folder, "beats"):
            files.read_beats(path)
    except Unjudgeable as failure:
        return Judged("heartbeats", [f"cannot be judged: {failure}"], {})
    window = Window(run.from_ns, run.to_ns)
    until_ns = max(run.to_ns, run.settled_ns)
    verdict = judge_beats(files, terms, [deed.at_ns for deed in run.kills], run.plan, window, until_ns)
    shown = ("heartbeats", "heartbeat", "between", "renewals", "renewal", "least_alive", "requests", "failovers")
    return Judged("heartbeats", _named(verdict), {name: getattr(verdict, name) for name in shown})


def _queue(folder: Path, run: Run) -> Judged:
    try:
        verdict = judge_queue(
            _logs(folder, "sent"),
            _logs(folder, "handled"),
            [folder / "events"],
            visibility=run.plan.queue()["visibility_timeout"],
        )
    except Unjudgeable as failure:
        return Judged("queue", [f"cannot be judged: {failure}"], {})
    shown = ("accepted", "not_accepted", "handled", "handlings", "duplicates", "explained", "redelivery")
    return Judged("queue", _named(verdict), {name: getattr(verdict, name) for name in shown})


def _given(folder: Path, run: Run) -> Judged:
    """Was there load at all? What the queue was given while the plan says that it was."""
    accepted = 0
    for path in _logs(folder, "sent"):
        for line in path.read_text().split("\n")[:-1]:
            what, at, _, *bodies = line.split(" ")
            if what == "accepted" and run.from_ns <= int(at) <= run.to_ns:
                accepted += len(bodies)
    return judge_given(run, accepted)


def judge_given(run: Run, accepted: int) -> Judged:
    seconds = (run.to_ns - run.from_ns) / _NS if run.from_ns else 0.0
    rate = accepted / seconds if seconds else 0.0
    found = []
    if not run.rate or rate < ENOUGH_LOAD * run.rate:
        found.append(f"too little: {rate:.1f} messages/s were accepted, and {run.rate:g} were to be given")
    if not run.settled_ns:
        found.append("not settled: the queue was not empty at the end")
    settled = (run.settled_ns - run.to_ns) / _NS if run.settled_ns else None
    figures = {"measured_per_second": run.measured_per_second, "accepted_per_second": rate, "settled_after": settled}
    return Judged("load", found, figures)


def _logs(folder: Path, part: str) -> list[Path]:
    return [path for path in sorted(folder.glob(f"*.{part}")) if path.stat().st_size]


def _named(verdict: Any) -> list[str]:
    return [f"{name}: {str(getattr(verdict, name))[:1000]}" for name in verdict.violations]


def as_json(verdict: Verdict) -> bytes:
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    return msgspec.json.format(msgspec.json.encode(fields)) + b"\n"


def table(verdict: Verdict) -> list[str]:
    """For people."""
    run, plan = verdict.run, verdict.run.plan
    rows = [f"{'part':<11} {'verdict':<9} what was seen"]
    for each in verdict.judged:
        shown = ", ".join(f"{name} {_short(value)}" for name, value in each.figures.items())
        rows.append(f"{each.part:<11} {'VIOLATED' if each.violations else 'ok':<9} {shown}")
    rows.append("")
    rows.append(
        f"machine     load average {min(run.load_average, default=0):g} to {max(run.load_average, default=0):g}; "
        f"{run.cpu_busy:.0%} of all processors busy, {run.cpu_ours:.0%} by this run"
    )
    rows += [f"VIOLATION   {text}" for text in verdict.violations]
    rows.append(
        f"{plan.coordinators} coordinators in {plan.processes} processes, lease {plan.lease:g} s, "
        f"{plan.seconds / 60:g} min at {run.rate:,.0f} messages/s, {len(run.kills)} leaders killed: "
        f"{'VIOLATED' if verdict.violations else 'no violation'}"
    )
    return rows


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} {_short(each)}" for name, each in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.load.verdict", description="Judge a run by its files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    verdict = judge_folder(arguments.folder)
    print(as_json(verdict).decode() if arguments.json else "\n".join(table(verdict)))
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
