"""From the notes of all processes to what is compared: how long nobody led, and how long two believed that they did.

The judge is `lab.judge`, which sees no overlap that was not one. A process that is frozen notes nothing, and what it
would have answered counts for nothing: only the time is counted in which both were running, and believed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.failover.plan import COMPARED_LEASE, KINDS, MOST_OF_CONSENSUS, MOST_OF_S3DB
from bench.form import Limit
from lab.judge import Overlap, Sample, judge, parse

_NS = 1_000_000_000
_JUST_BEFORE_NS = _NS // 10


@dataclass(frozen=True)
class Trial:
    kind: str
    victim: str
    """The process, as it is named in its notes."""
    at_ns: int
    """Of the signal, on CLOCK_BOOTTIME."""
    quiet: float
    """Seconds for which it had led alone before, and all copies ran."""


def judged(trials: Sequence[Trial], logs: Iterable[Path]) -> dict[str, Any]:
    """What came of the trials."""
    read = [parse(log.read_text(), log.name) for log in logs]
    samples = [sample for log, _ in read for sample in log]
    verdict = judge(samples, torn_lines=sum(torn for _, torn in read))
    ordered = sorted(trials, key=lambda trial: trial.at_ns)
    beliefs = Beliefs(samples)
    overlaps, owned = by_trial(ordered, verdict.overlaps), by_trial(ordered, verdict.holding_overlaps)
    first = ordered[0].at_ns if ordered else 0
    return {
        "trials": [
            {
                "kind": trial.kind,
                "at": round((trial.at_ns - first) / _NS, 3),
                "quiet": round(trial.quiet, 3),
                **beliefs.takeover(trial),
                "overlaps": len(overlaps[number]),
                "overlap_seconds": lasted(overlaps[number]),
                "overlap_seconds_if_asked": lasted(owned[number]),
            }
            for number, trial in enumerate(ordered)
        ],
        # Before the first trial, when leaders were found for the first time.
        "overlap_seconds_at_start": lasted(overlaps[-1]),
        "overlaps": len(verdict.overlaps),
        "overlap_seconds": lasted(verdict.overlaps),
        "overlap_seconds_if_asked": lasted(verdict.holding_overlaps),
        "violations": verdict.violations,
        "notes": verdict.samples,
        "longest_silence": round(verdict.longest_silence, 3),
        "median_silence": round(verdict.median_silence, 4),
        "events": [asdict(trial) for trial in ordered],
    }


class Beliefs:
    """When which process noted that it leads."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._led: dict[str, tuple[list[int], list[int]]] = {}
        for sample in samples:
            if sample.leading:
                befores, afters = self._led.setdefault(sample.process, ([], []))
                befores.append(sample.before_ns)
                afters.append(sample.after_ns)

    def takeover(self, trial: Trial) -> dict[str, Any]:
        """From the signal to the first note of another process that it leads; never too short."""
        firsts = []
        for process, (befores, afters) in self._led.items():
            if process != trial.victim:
                place = bisect_right(befores, trial.at_ns)
                if place and befores[place - 1] > trial.at_ns - _JUST_BEFORE_NS:
                    return {"seconds": None, "note": "another one led already"}
                if place < len(afters):
                    firsts.append((afters[place], process))
        if not firsts:
            return {"seconds": None, "note": "nobody led any more"}
        at_ns, process = min(firsts)
        return {"seconds": round((at_ns - trial.at_ns) / _NS, 4), "successor": process}


def by_trial(trials: Sequence[Trial], overlaps: Iterable[Overlap]) -> dict[int, list[Overlap]]:
    """The overlaps that began after each trial and before the next; those before the first under -1."""
    found: dict[int, list[Overlap]] = {number: [] for number in range(-1, len(trials))}
    starts = [trial.at_ns for trial in trials]
    for overlap in overlaps:
        found[bisect_right(starts, overlap.from_ns) - 1].append(overlap)
    return found


def lasted(overlaps: Iterable[Overlap]) -> float:
    """Seconds in which at least two believed: what several pairs share counts once."""
    total, until = 0, 0
    for overlap in sorted(overlaps, key=lambda each: each.from_ns):
        total += max(0, overlap.to_ns - max(overlap.from_ns, until))
        until = max(until, overlap.to_ns)
    return round(total / _NS, 6)


def samples_of(contest: Mapping[str, Any], kind: str) -> list[float]:
    return [trial["seconds"] for trial in contest["trials"] if trial["kind"] == kind and trial["seconds"] is not None]


def overlap_of(contest: Mapping[str, Any], kind: str) -> float:
    return float(sum(trial["overlap_seconds"] for trial in contest["trials"] if trial["kind"] == kind))


def quantile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that so many of them do not exceed: with few samples a high one is the greatest."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def summary(samples: Sequence[float]) -> dict[str, float]:
    if not samples:
        return {}
    return {
        "trials": len(samples),
        "p50": round(quantile(samples, 0.5), 3),
        "p99": round(quantile(samples, 0.99), 3),
        "mean": round(fmean(samples), 3),
    }


def contests_of(subjects: Iterable[Mapping[str, Any]]) -> dict[tuple[str, float], Mapping[str, Any]]:
    return {
        (subject["system"], contest["asked_lease"]): contest
        for subject in subjects
        for contest in subject.get("contests", [])
    }


def limits_of(subjects: Sequence[Mapping[str, Any]]) -> list[Limit]:
    """The bars that can be held against these figures; those of a peer that is not among them are left out."""
    contests = contests_of(subjects)
    found = []
    for subject in subjects:
        if subject["system"].startswith("tenure"):
            own = subject["contests"]
            where = f"{subject['label']}, all trials"
            found.append(Limit(f"{where}: times that two led at once", sum(each["overlaps"] for each in own), 0))
            found.append(Limit(f"{where}: rules broken", sum(len(each["violations"]) for each in own), 0))

    def ratio(kind: str, lease: float, peer: str, label: str, most: float) -> None:
        ours, theirs = (contests.get((name, lease)) for name in ("tenure", peer))
        if ours and theirs and (a := samples_of(ours, kind)) and (b := samples_of(theirs, kind)):
            what = f"mean takeover after a {kind}, lease {lease:g} s, as a share of {label}'s"
            found.append(Limit(what, fmean(a) / fmean(b), most))

    for kind, most in MOST_OF_S3DB.items():
        ratio(kind, COMPARED_LEASE, "s3db", "s3db.js", most)
    for lease in sorted({lease for _, lease in contests}):
        for peer, label in (("etcd", "etcd"), ("zookeeper", "ZooKeeper")):
            ratio("crash", lease, peer, label, MOST_OF_CONSENSUS)
    return found


def rows_of(subjects: Iterable[Mapping[str, Any]], lease: float) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(subject, contest) of those that were measured at this lease, or at the shortest that they have above it."""
    return [
        (subject, contest)
        for subject in subjects
        for contest in subject.get("contests", [])
        if contest["asked_lease"] == lease
    ]


__all__ = [
    "KINDS",
    "Beliefs",
    "Trial",
    "by_trial",
    "contests_of",
    "judged",
    "lasted",
    "limits_of",
    "overlap_of",
    "quantile",
    "rows_of",
    "samples_of",
    "summary",
]
