"""What was asked of a schedule: every effect has a command, every command its effect, and callers hear the truth."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from tenure.ledger import LogEntry
from tenure.plugins.scheduler.job import Job, Origin, encode_job
from tenure.plugins.scheduler.records import (
    Defined,
    Event,
    Fired,
    Passed,
    Paused,
    Refused,
    Removed,
    Resumed,
)
from tenure.plugins.scheduler.wire import Command
from tenure.simulate.schedule_book import Book
from tenure.simulate.schedule_records import Code
from tenure.simulate.schedule_rules import Report

Mark = tuple[str, str, str]
"""Operation, job, and what sets the call apart."""


class Given(msgspec.Struct, frozen=True):
    """A command in a batch."""

    uid: str
    number: int
    index: int
    command: Command


class Commands:
    def __init__(self, book: Book, code: dict[str, Code], report: Report) -> None:
        self._book = book
        self._code = code
        self._report = report
        self._followed: Counter[Mark] = Counter()
        """By an entry ..."""
        self._refused: Counter[Mark] = Counter()
        """... or not."""
        self._sent: Counter[Mark] = Counter()
        self._acknowledged: Counter[Mark] = Counter()
        """Calls that have returned: the leader had followed them, or they were durable."""

    # Entries

    def match(
        self, entry: LogEntry, events: tuple[Event, ...], given: list[Given], before: dict[str, Job], host: str
    ) -> None:
        """Every effect has a command, and every command its effect: in the same entry, and once."""
        refusals = [event for event in events if isinstance(event, Refused)]
        refused = {(event.uid, event.number, event.index) for event in refusals}
        rests = {(event.uid, event.number): event.index for event in refusals if event.rest}
        refused |= {
            (each.uid, each.number, each.index)
            for each in given
            if each.index >= rests.get((each.uid, each.number), each.index + 1)
        }
        pending = [each for each in given if (each.uid, each.number, each.index) not in refused]
        crowd = Counter(each.command.id for each in given)
        for each in given:
            if each not in pending:
                self._refused[_mark(each.command)] += 1
                self._check_refusal(entry, each.command, events, before, host, crowd)
            else:
                self._followed[_mark(each.command)] += 1
                self._book.counts[f"command {each.command.op}"] += 1
        if len(refused) != len(given) - len(pending):
            self._report("command", f"entry {entry.seq} refuses what it does not fold: {refused}")
        for event in events:
            if not isinstance(event, Defined | Removed | Paused | Resumed) and not getattr(event, "manual", ""):
                continue
            cause = next((each for each in pending if _brings(each.command, event)), None)
            if cause is not None:
                pending.remove(cause)
            elif isinstance(event, Defined) and event.job.origin is Origin.CODE:
                declared = self._code[host].jobs.get(event.job.id, [])
                self._book.counts["declared"] += 1
                if not any(encode_job(job) == encode_job(event.job) for job in declared):
                    self._report("declared", f"entry {entry.seq} declares {event.job}, which {host} does not have")
            elif not isinstance(event, Passed):
                self._report("command", f"entry {entry.seq} has {event}, and nobody asked for it")
        for each in pending:
            if crowd[each.command.id] == 1 and not crowd[""] and not self._is_idle(each.command):
                self._report("command", f"entry {entry.seq} folds {each.command}, and it has no effect")

    def _is_idle(self, command: Command) -> bool:
        """Everything is as it asks for already."""
        booked = self._book.jobs.get(command.id)
        match command.op:
            case "pause":
                return booked.paused if booked is not None else self._book.paused
            case "resume":
                return not (booked.paused if booked is not None else self._book.paused)
            case "update":
                return booked is not None and _says(booked.job, command)
        return False

    def _check_refusal(
        self,
        entry: LogEntry,
        command: Command,
        events: tuple[Event, ...],
        before: dict[str, Job],
        host: str,
        crowd: Counter[str],
    ) -> None:
        job = before.get(command.id)
        if crowd[command.id] > 1:
            return  # one may have been refused because of the other
        match command.op:
            case "add":
                right = job is not None and (not command.replace or job.origin is Origin.CODE)
            case "update":
                right = job is None or job.origin is Origin.CODE
            case "remove":
                right = job is None or command.id in self._code[host].jobs
            case "run-now":
                passed = any(isinstance(event, Passed) and event.manual == command.run for event in events)
                right = job is None or passed or not self._code[host].has(job)
            case _:
                right = job is None and bool(command.id)
        if not right:
            self._report("command", f"entry {entry.seq} refuses {command}, and need not")

    # Callers

    def sends(self, op: str, job: str, mark: str = "") -> None:
        self._sent[op, job, mark] += 1

    def heeded(self, op: str, job: str, mark: str = "", *, decided: bool = True) -> None:
        """A call has returned; `decided`: it waited for the leader."""
        self._acknowledged[op, job, mark] += 1
        if decided and self._followed[op, job, mark] < 1:
            self._report("command", f"{op} of {job} ({mark}) has returned, and no entry has followed it")

    def turned_down(self, op: str, job: str, mark: str = "") -> None:
        if self._refused[op, job, mark] < 1:
            self._report("command", f"{op} of {job} ({mark}) was refused, and no entry says so")

    def conclude(self) -> None:
        """What was acknowledged has been decided, and nothing was decided more often than it was sent."""
        for mark, acknowledged in self._acknowledged.items():
            if not acknowledged <= self._followed[mark] + self._refused[mark] <= self._sent[mark]:
                self._report(
                    "command",
                    f"{mark} was sent {self._sent[mark]} times and acknowledged {acknowledged} times, followed "
                    f"{self._followed[mark]} times and refused {self._refused[mark]} times",
                )


def _mark(command: Command) -> tuple[str, str, str]:
    """What a call is known by: those that add and update have a number in the payload, runs by hand an id."""
    if command.op == "add":
        return (command.op, command.id, _tag(msgspec.json.decode(command.job).get("target", {})))
    if command.op == "update":
        return (command.op, command.id, _tag(command.changes.get("target", {})))
    return (command.op, command.id, command.run)


def _tag(target: dict[str, Any]) -> str:
    payload = target.get("payload") or target.get("body") or {}
    return str(payload.get("n", ""))


def _brings(command: Command, event: Event) -> bool:
    """Could this command have had this effect?"""
    match event:
        case Defined():
            if command.op == "add":
                return command.id == event.job.id and bytes(command.job) == encode_job(event.job)
            return command.op == "update" and command.id == event.job.id and _says(event.job, command)
        case Removed():
            return command.op == "remove" and command.id == event.job
        case Paused():
            return command.op == "pause" and command.id == event.job
        case Resumed():
            return command.op == "resume" and command.id == event.job
        case Fired() | Passed():
            return command.op == "run-now" and command.run == event.manual and command.id == event.job
    return False


def _says(job: Job, command: Command) -> bool:
    """Is the job what an update wants it to be?"""
    changed = msgspec.convert({**msgspec.to_builtins(job), **command.changes}, Job)
    return encode_job(changed) == encode_job(job)
