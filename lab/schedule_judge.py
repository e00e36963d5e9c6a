"""Has every occurrence of a schedule exactly one record, and does every run belong to one? Files alone say.

    python -m lab.schedule_judge --log FOLDER --runs FILE... --events FILE --api FILE

Prints one JSON object. Exits 1 if there is a violation in it, 2 if the files cannot be judged.

`--log` are the entries of the bucket's log from the first one on, a file each. `--runs` are the logs of
`lab.schedule_node`, the events are what `lab.schedule_cluster` did to the processes, and `--api` is what a process that
takes no part was told: `stats` and `history`. Jobs are `every` so many seconds, and none is changed or removed. All of
it is of when everything was over: the jobs had ended, and somebody led for long enough to come to an end with them.

- An occurrence is a job and an instant: one period after another, from the job's definition to its end. Each has one
  record: lost, doubled, phantom and early ones are violations.
- Outcomes add up, and are such as the job's policies allow. What fired has ended, or was given up.
- Tokens are the numbers of entries: none is used twice for an occurrence, or for a job whose runs may not overlap, and
  none goes back, neither in the log nor in the order in which the runs really began.
- Every run that began was decided; a second one of an occurrence is a retry after it failed, or begins after the first
  one's leader's term has ended. What is recorded as a success has ended so.
- Only who was stopped at that time may have run on beside another, or have begun what another had begun since.
- The API says the same as the log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from lab.judge import Unjudgeable
from lab.lock_judge import percentiles
from lab.schedule_log import Decision, Defined, Log, Ran, Runs, told

PASSED = {"skipped-overlap": "skipped_overlap", "missed-window": "missed_window", "coalesced": "coalesced"}
FORBIDDEN = {
    "fire-all": ("missed-window", "coalesced"),
    "fire-once": ("missed-window",),
    "skip": ("coalesced",),
}
"""By misfire policy: outcomes that an occurrence does not have, unless an outage was longer than `_is_too_old` says."""
NOTED = 5.0
"""Seconds, at most, from when a process that was stopped goes on to when it notes what it was told to begin before."""
_NOTED_NS = round(NOTED * 1e9)


class ScheduleVerdict(msgspec.Struct, frozen=True):
    jobs: int
    instants: int
    """From each job's definition to its end."""
    outcomes: dict[str, int]
    """Of instants, each counted once for each of its records."""
    ends: dict[str, int]
    """Of those that fired: `succeeded`, `failed`, `interrupted`, `open`."""
    runs: int
    reruns: int
    retries: int
    never_ran: int
    """Attempts that were decided on and cut short before they really began."""
    kills: int
    terms: int
    entries: int
    void: int
    """Entries of leaders whose term was over."""
    gap: float
    """Seconds, at most, without a decision where the leader changed."""
    lateness: dict[str, float]
    """Seconds from its instant to the entry, of what was decided: p50, p99, p99.9, longest."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    phantoms: tuple[str, ...]
    early: tuple[str, ...]
    sums: tuple[str, ...]
    against_policy: tuple[str, ...]
    tokens_not_rising: tuple[str, ...]
    undecided_runs: tuple[str, ...]
    run_again: tuple[str, ...]
    two_at_once: tuple[str, ...]
    ends_unfounded: tuple[str, ...]
    unended: tuple[str, ...]
    """Fired, and neither ended nor given up: they wait, or run, or are said to, for ever."""
    api_differs: tuple[str, ...]

    @property
    def violations(self) -> list[str]:
        return [name for name in VIOLATIONS if getattr(self, name)]


VIOLATIONS = (
    "lost",
    "doubled",
    "phantoms",
    "early",
    "sums",
    "against_policy",
    "tokens_not_rising",
    "undecided_runs",
    "run_again",
    "two_at_once",
    "ends_unfounded",
    "unended",
    "api_differs",
)


class Judge:
    def __init__(self, log: Log, runs: Runs, api: dict[str, Any] | None) -> None:
        self.log, self.runs, self.api = log, runs, api
        self.found: dict[str, list[str]] = defaultdict(list)
        for kind, problems in log.problems.items():
            self.found[kind] += problems

    def judge(self) -> ScheduleVerdict:
        log = self.log
        records = self._records()
        self._occurrences(records)
        outcomes = Counter(decision.outcome for each in records.values() for decision in each)
        passed = sum(outcomes[name] for name in PASSED)
        ends = self._ends()
        instants = sum(len(job.instants()) for job in log.jobs.values())
        fired = sum(ends.values())
        if fired + passed != instants:
            self.found["sums"].append(f"{fired} fired and {passed} were passed over, of {instants}: {dict(outcomes)}")
        self._tokens()
        self._runs()
        if self.api is not None:
            self._api(records, ends, outcomes, fired)
        attempts = [each for decision in log.decisions for each in decision.attempts]
        ran = {(run.job, run.scheduled_ms, run.token) for run in self.runs.runs}
        decided = [(each, decision) for decision in log.decisions for each in decision.attempts]
        return ScheduleVerdict(
            jobs=len(log.jobs),
            instants=instants,
            outcomes=dict(outcomes),
            ends=ends,
            runs=len(self.runs.runs),
            reruns=sum(each.end == "cut-short" for each in attempts) - outcomes["interrupted"],
            retries=sum(each.end == "retried" for each in attempts),
            never_ran=sum((each.job, each.scheduled_ms, attempt.token) not in ran for attempt, each in decided),
            kills=len(self.runs.killed),
            terms=len(log.terms),
            entries=log.entries,
            void=log.void,
            gap=self._gap(),
            lateness=percentiles([(each.decided_ms - each.scheduled_ms) / 1000 for each in log.decisions]),
            **{kind: _some(self.found[kind]) for kind in VIOLATIONS},
        )

    def _records(self) -> dict[tuple[str, int], list[Decision]]:
        """By occurrence."""
        records: dict[tuple[str, int], list[Decision]] = defaultdict(list)
        for decision in self.log.decisions:
            job = self.log.jobs.get(decision.job)
            if job is None:
                self.found["phantoms"].append(f"{told(decision)}: there is no such job")
                continue
            last = decision.to_ms or decision.scheduled_ms
            instants = range(decision.scheduled_ms, last + 1, job.period_ms)
            if len(instants) != decision.count or instants[-1] != last:
                self.found["sums"].append(f"{told(decision)}: {decision.count} are no instants up to {last}")
            for instant in instants:
                records[decision.job, instant].append(decision)
            if last > decision.decided_ms:
                self.found["early"].append(f"{told(decision)} is decided at {decision.decided_ms}")
        return records

    def _occurrences(self, records: dict[tuple[str, int], list[Decision]]) -> None:
        for job in self.log.jobs.values():
            for instant in job.instants():
                found = records.get((job.job, instant), [])
                if not found:
                    self.found["lost"].append(f"{job.job}@{instant} has no record")
                elif len(found) > 1:
                    entries = ", ".join(str(each.seq) for each in found)
                    self.found["doubled"].append(f"{job.job}@{instant} has {len(found)} records, in entries {entries}")
                for decision in found:
                    self._policy(job, instant, decision)
            known = set(job.instants())
            strays = [instant for name, instant in records if name == job.job and instant not in known]
            self.found["phantoms"] += [f"{job.job}@{instant} is none of its instants" for instant in strays]

    def _policy(self, job: Defined, instant: int, decision: Decision) -> None:
        if (decision.outcome in FORBIDDEN[job.misfire] and not _is_too_old(job, instant, decision)) or (
            decision.outcome == "interrupted"
            and job.interrupted == "rerun"
            and decision.interruptions <= job.max_interruptions
        ):
            self.found["against_policy"].append(f"{told(decision)}, of {instant}, is {decision.outcome}: {job.misfire}")
        if job.interrupted == "abandon" and any(each.end == "cut-short" for each in decision.attempts[:-1]):
            self.found["against_policy"].append(f"{told(decision)} is begun again, and was to be abandoned")

    def _ends(self) -> dict[str, int]:
        found = {"succeeded": 0, "failed": 0, "interrupted": 0, "open": 0}
        for decision in self.log.decisions:
            if decision.outcome == "fired":
                found["open" if decision.is_open else "succeeded"] += 1
                if decision.is_open:
                    last = decision.attempts[-1] if decision.attempts else None
                    state = f"token {last.token} of {last.worker}: {last.end or 'runs'}" if last else "never begun"
                    self.found["unended"].append(f"{told(decision)}, {state}")
            elif decision.outcome in found:
                found[decision.outcome] += 1
        return found

    def _gap(self) -> float:
        longest = last = newest = 0
        starts = [seq for seq, _ in self.log.terms]
        for decision in self.log.decisions:
            term = sum(seq <= decision.seq for seq in starts)
            if term != last and newest:
                longest = max(longest, decision.decided_ms - newest)
            last, newest = term, decision.decided_ms
        return round(longest / 1000, 3)

    # Tokens

    def _tokens(self) -> None:
        begun: dict[str, list[tuple[int, Decision]]] = defaultdict(list)
        for decision in self.log.decisions:
            tokens = [each.token for each in decision.attempts]
            if any(later <= earlier for earlier, later in itertools.pairwise(tokens)):
                self.found["tokens_not_rising"].append(f"{told(decision)} has the tokens {tokens}")
            begun[decision.job] += [(token, decision) for token in tokens]
        for job, tokens_of in begun.items():
            if self._overlaps(job):
                continue  # several may begin by one entry
            counts = Counter(token for token, _ in tokens_of)
            doubled = [token for token, count in counts.items() if count > 1]
            self.found["tokens_not_rising"] += [f"{job} has token {token} more than once" for token in doubled]
        highest: dict[str, Ran] = {}
        for run in sorted(self.runs.runs, key=lambda each: each.began_ns):
            before = highest.get(run.job)
            if before is not None:
                same = run.token == before.token and (
                    not self._overlaps(run.job) or run.scheduled_ms == before.scheduled_ms
                )
                if same or (run.token < before.token and not self._was_held_up(run, before)):
                    self.found["tokens_not_rising"].append(f"{run}, after {before}")
            if before is None or run.token > before.token:
                highest[run.job] = run

    def _overlaps(self, job: str) -> bool:
        known = self.log.jobs.get(job)
        return known is not None and known.overlap == "allow"

    # Runs

    def _runs(self) -> None:
        decided = {
            (decision.job, decision.scheduled_ms, attempt.token): (decision, number, attempt)
            for decision in self.log.decisions
            for number, attempt in enumerate(decision.attempts, 1)
        }
        ran: dict[tuple[str, int, int], Ran] = {}
        for run in self.runs.runs:
            key = (run.job, run.scheduled_ms, run.token)
            known = decided.get(key)
            if known is None or known[1] != run.attempt or known[2].worker != run.process.rpartition(":")[0]:
                self.found["undecided_runs"].append(f"{run}: no entry says so")
            if key in ran:
                self.found["run_again"].append(f"{run}, after {ran[key]}")
            ran[key] = run
        for key, (decision, _, attempt) in decided.items():
            found = ran.get(key)
            how = found.how if found is not None else ""
            if (attempt.end == "succeeded" and how != "ok") or (
                attempt.end in ("failed", "retried") and how != "raised"
            ):
                self.found["ends_unfounded"].append(
                    f"{told(decision)}, token {attempt.token}, is {attempt.end}, and its run: {how or 'not ended'}"
                )
        self._at_once()

    def _at_once(self) -> None:
        """One run of an occurrence after the other, and of a job, unless they may overlap."""
        open: dict[tuple[str, int], list[Ran]] = defaultdict(list)
        for run in sorted(self.runs.runs, key=lambda each: each.began_ns):
            key = (run.job, run.scheduled_ms if self._overlaps(run.job) else 0)
            open[key] = [each for each in open[key] if self.runs.over_ns(each) > run.began_ns]
            for before in open[key]:
                was_stopped = self.runs.was_stopped(before.process, before.began_ns, run.began_ns)
                if not was_stopped and not self._was_held_up(run, before):
                    self.found["two_at_once"].append(f"{run}, while {before}")
            open[key].append(run)

    def _was_held_up(self, run: Ran, before: Ran) -> bool:
        """Its process was told to begin it first, and was stopped until after `before` had begun."""
        patience_ns = _NOTED_NS if run.process != before.process else 0
        return self.runs.was_stopped(run.process, before.began_ns - patience_ns, run.began_ns)

    # The API

    def _api(
        self,
        records: dict[tuple[str, int], list[Decision]],
        ends: dict[str, int],
        outcomes: Counter[str],
        fired: int,
    ) -> None:
        assert self.api is not None
        stats, differs = self.api["stats"], self.found["api_differs"]
        expected = {
            "jobs": len(self.log.jobs),
            "fired": fired,
            **{name: count for name, count in ends.items() if name != "open"},
            **{name: outcomes[outcome] for outcome, name in PASSED.items()},
            "seq": self.log.entries,
        }
        differs += [
            f"stats say {name} {stats[name]}, the log {count}"
            for name, count in expected.items()
            if stats[name] != count
        ]
        shown: Counter[tuple[str, int]] = Counter()
        for record in self.api["history"]:
            job = self.log.jobs.get(record["job"])
            period = job.period_ms if job is not None else 1000
            instants = range(record["scheduled_ms"], (record["to_ms"] or record["scheduled_ms"]) + 1, period)
            if len(instants) != record["count"]:
                differs.append(f"history has {record['count']} instants in {record['run']}")
            for instant in instants:
                shown[record["job"], instant] += 1
                for decision in records.get((record["job"], instant), ())[:1]:
                    differs += self._difference(record, decision)
        differs += [f"history has {job}@{at} {count} times" for (job, at), count in shown.items() if count > 1]
        differs += [f"history has no {job}@{at}" for job, at in records.keys() - shown.keys()]
        differs += [f"history has {job}@{at}, the log has not" for job, at in shown.keys() - records.keys()]

    def _difference(self, record: dict[str, Any], decision: Decision) -> Iterable[str]:
        last = decision.attempts[-1] if decision.attempts else None
        ours = {
            "outcome": decision.outcome,
            "token": last.token if last is not None else 0,
            "attempts": len(decision.attempts),
            "interruptions": decision.interruptions,
        }
        if last is not None:
            ours["epoch"], ours["worker"] = last.epoch, last.worker
        for name, value in ours.items():
            if record[name] != value:
                yield f"history says of {told(decision)} {name} {record[name]}, the log {value}"


def _is_too_old(job: Defined, instant: int, decision: Decision) -> bool:
    """So long before its decision that it does not fire, whatever the policy, or that as many newer ones are late as
    are caught up with. The leader's clock is never ahead of the entry's, so this is no stricter than the leader is."""
    if decision.outcome == "missed-window":
        return instant < decision.decided_ms - job.window_ms
    caught_up = instant + job.catch_up * job.period_ms
    return job.misfire == "fire-all" and caught_up < decision.decided_ms - job.grace_ms


def _some(found: Iterable[str]) -> tuple[str, ...]:
    """Enough to look into; how many there are is told at the end."""
    ordered = sorted(found)
    return (*ordered[:20], *([f"... {len(ordered)} in all"] if len(ordered) > 20 else []))


def judge_files(
    log: Path, runs: Iterable[Path], events: Iterable[Path] = (), api: Path | None = None
) -> ScheduleVerdict:
    entries = [json.loads(path.read_bytes()) for path in sorted(log.iterdir())]
    noted = Runs()
    for path in runs:
        noted.read(path)
    for path in events:
        noted.read_events(path)
    return Judge(Log(entries), noted, json.loads(api.read_bytes()) if api is not None else None).judge()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.schedule_judge", description="Judge the logs of a schedule.")
    parser.add_argument("--log", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--runs", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--events", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--api", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    try:
        verdict = judge_files(arguments.log, arguments.runs, arguments.events, arguments.api)
    except (Unjudgeable, OSError, ValueError, KeyError) as failure:
        print(f"schedule_judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
