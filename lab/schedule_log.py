"""What the files of a schedule say, without a judgement: the bucket's log, and what its processes noted.

The entries of the log are read as the plain JSON that they are, and not by the code that wrote them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.judge import Unjudgeable, text_of


class Defined(msgspec.Struct, frozen=True):
    job: str
    first_ms: int
    period_ms: int
    end_ms: int
    misfire: str
    overlap: str
    interrupted: str
    max_interruptions: int
    grace_ms: int
    window_ms: int
    catch_up: int

    def instants(self) -> range:
        return range(self.first_ms, self.end_ms, self.period_ms)


class Attempt(msgspec.Struct):
    """Of an occurrence, as the log has it."""

    token: int
    epoch: int
    term: int
    """The entry by which the term began."""
    worker: str
    end: str = ""
    """`succeeded`, `failed`, `retried` or `cut-short`; empty: none."""


class Decision(msgspec.Struct):
    """What the log says of one occurrence, or of several in a row that were passed over."""

    number: int
    job: str
    scheduled_ms: int
    outcome: str
    seq: int
    decided_ms: int
    to_ms: int = 0
    count: int = 1
    attempts: list[Attempt] = []
    interruptions: int = 0

    @property
    def is_open(self) -> bool:
        return self.outcome == "fired" and (not self.attempts or self.attempts[-1].end != "succeeded")


class Ran(msgspec.Struct):
    """A run, as its process noted it."""

    began_ns: int
    process: str
    job: str
    scheduled_ms: int
    token: int
    attempt: int
    ended_ns: int | None = None
    how: str = ""

    def __str__(self) -> str:
        return f"{self.job}@{self.scheduled_ms} by {self.process} under token {self.token} (attempt {self.attempt})"


class Log:
    """What the bucket's log says, entry by entry."""

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        self.jobs: dict[str, Defined] = {}
        self.decisions: list[Decision] = []
        self.of_number: dict[int, Decision] = {}
        self.problems: dict[str, list[str]] = defaultdict(list)
        self.terms: list[tuple[int, int]] = []
        """By which entry, and its epoch."""
        self.void = 0
        self.entries = len(entries)
        self.epoch = 0
        for number, entry in enumerate(entries, 1):
            if entry["seq"] != number:
                raise Unjudgeable(f"entry {number} of the log is missing, or trimmed: there is {entry['seq']}")
            if entry["epoch"] < self.epoch:
                self.void += 1
                continue
            if entry.get("kind") == "term":
                self.epoch = entry["epoch"]
                self.terms.append((entry["seq"], entry["epoch"]))
            elif entry["epoch"] != self.epoch:
                raise Unjudgeable(f"entry {number} is of epoch {entry['epoch']}, which has not begun")
            work = entry.get("events") or {"worker": "", "events": []}
            for event in work["events"]:
                self._follow(event, entry, work["worker"])

    def _follow(self, event: list[Any], entry: dict[str, Any], worker: str) -> None:
        seq, now_ms = entry["seq"], entry["timeMs"]
        match event:
            case ["defined", job, anchor_ms, decided_ms, *_]:
                self._define(job, anchor_ms, decided_ms)
            case ["fired", number, job, scheduled_ms, begins, ""]:
                decision = self._decide(Decision(number, job, scheduled_ms, "fired", seq, now_ms))
                if begins:
                    self._begin(decision, seq, worker)
            case ["passed", number, job, scheduled_ms, outcome, to_ms, count, ""]:
                self._decide(Decision(number, job, scheduled_ms, outcome, seq, now_ms, to_ms, count))
            case ["begun", number]:
                self._begin(self._known(number), seq, worker)
            case ["succeeded", number]:
                self._end(self._known(number), "succeeded", seq)
            case ["failed", number, _, retry_ms]:
                decision = self._known(number)
                self._end(decision, "retried" if retry_ms else "failed", seq)
                if not retry_ms:
                    decision.outcome = "failed"
            case ["cut-short", number, again, counts]:
                decision = self._known(number)
                self._end(decision, "cut-short", seq)
                decision.interruptions += bool(counts)
                if not again:
                    decision.outcome = "interrupted"
            case _:
                raise Unjudgeable(f"entry {seq} has an event that cannot be judged: {str(event)[:100]}")

    def _define(self, job: dict[str, Any], anchor_ms: int, decided_ms: int) -> None:
        if job["schedule"]["kind"] != "every" or "startMs" in job or "jitterMs" in job or "endMs" not in job:
            raise Unjudgeable(f"job {job['id']!r} is none that can be judged: {job}")
        if job["id"] in self.jobs:
            self.problems["doubled"].append(f"job {job['id']} is defined again")
            return
        period = job["schedule"]["periodMs"]
        first = anchor_ms + period
        while first <= decided_ms:
            first += period
        self.jobs[job["id"]] = Defined(
            job["id"],
            first,
            period,
            job["endMs"],
            job.get("misfire", "fire-once"),
            job.get("overlap", "skip"),
            job.get("interrupted", "rerun"),
            job.get("maxInterruptions", 3),
            job.get("misfireGraceMs", 30_000),
            job.get("misfireWindowMs", 86_400_000),
            job.get("catchUp", 100),
        )

    def _decide(self, decision: Decision) -> Decision:
        if decision.number in self.of_number:
            self.problems["doubled"].append(f"number {decision.number} is given twice")
        self.of_number[decision.number] = decision
        self.decisions.append(decision)
        return decision

    def _known(self, number: int) -> Decision:
        decision = self.of_number.get(number)
        if decision is None:
            raise Unjudgeable(f"an event is about occurrence {number}, which there is not")
        return decision

    def _begin(self, decision: Decision, seq: int, worker: str) -> None:
        if decision.attempts and not decision.attempts[-1].end:
            self.problems["run_again"].append(f"{told(decision)} is begun by entry {seq}, and runs already")
        decision.attempts = [*decision.attempts, Attempt(seq, self.epoch, self.terms[-1][0], worker)]

    def _end(self, decision: Decision, how: str, seq: int) -> None:
        last = decision.attempts[-1] if decision.attempts else None
        if last is None or last.end:
            self.problems["ends_unfounded"].append(f"{told(decision)} is {how} by entry {seq}, and does not run")
            return
        if (how == "cut-short") != (last.term != self.terms[-1][0]):
            self.problems["ends_unfounded"].append(f"{told(decision)} is {how} by entry {seq}, in the wrong term")
        last.end = how


def told(decision: Decision) -> str:
    return f"{decision.job}@{decision.scheduled_ms} (number {decision.number})"


class Runs:
    """What the processes noted, and what was done to them."""

    def __init__(self) -> None:
        self.runs: list[Ran] = []
        self.killed: dict[str, int] = {}
        self._pauses: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._open: dict[tuple[str, str, int, int], Ran] = {}

    def read(self, path: Path) -> None:
        for number, fields in _lines(path):
            match fields:
                case ["began", at, process, job, scheduled, token, attempt]:
                    run = Ran(int(at), process, job, int(scheduled), int(token), int(attempt))
                    self.runs.append(run)
                    self._open[process, job, run.scheduled_ms, run.token] = run
                case ["ended", at, process, job, scheduled, token, how]:
                    found = self._open.get((process, job, int(scheduled), int(token)))
                    if found is None:
                        raise _not_a_line(path, number, fields)
                    found.ended_ns, found.how = int(at), how
                case _:
                    raise _not_a_line(path, number, fields)

    def read_events(self, path: Path) -> None:
        stopped: dict[str, int] = {}
        for number, fields in _lines(path):
            if len(fields) < 3:
                raise _not_a_line(path, number, fields)
            what, at_ns, process = fields[0], int(fields[1]), fields[2]
            if what == "killed":
                self.killed[process] = at_ns
            elif what == "stopped":
                stopped[process] = at_ns
            if what in ("continued", "killed") and process in stopped:
                self._pauses[process].append((stopped.pop(process), at_ns))
        for process, at_ns in stopped.items():
            self._pauses[process].append((at_ns, 2**62))

    def was_stopped(self, process: str, from_ns: int, until_ns: int) -> bool:
        return any(low <= until_ns and high >= from_ns for low, high in self._pauses[process])

    def over_ns(self, run: Ran) -> int:
        """When it certainly did nothing any more."""
        return run.ended_ns if run.ended_ns is not None else self.killed.get(run.process, 2**62)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    # What is not ended by a newline was cut off by a kill.
    for number, line in enumerate(text_of(path).split("\n")[:-1], 1):
        yield number, line.split(" ")


def _not_a_line(path: Path, number: int, fields: Sequence[str]) -> Unjudgeable:
    return Unjudgeable(f"{path}:{number}: not a line that can be judged: {' '.join(fields)[:100]!r}")
