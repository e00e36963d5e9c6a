"""Three acts: an election, a leader that is killed, a leader that leaves; then the verdicts on what they did."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

import msgspec

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.coordinator.audit import Audit, audit
from tenure.coordinator.layout import namespace_store
from tenure.demo.candidate import CONFIG, NAMESPACE, Report
from tenure.doctor import Report as DoctorReport
from tenure.doctor import examine
from tenure.errors import TenureError
from tenure.store import Access, open_store

WORKERS = ("ada", "ben", "cyd")
RACES = 10
_PATIENCE_SECONDS = 30.0
_REST_SECONDS = 2.0
"""So that the next in rank has seen the fleet: a leader is hardly ever lost in its first second."""
_POLL_SECONDS = 0.01

Say = Callable[[str], None]


class Change(msgspec.Struct, frozen=True):
    """A new leader, and how long the fleet was without one."""

    leader: str
    epoch: int
    seconds: float


class Result(msgspec.Struct, frozen=True):
    """What happened."""

    elected: Change
    after_kill: Change
    after_stop: Change
    reports: int
    """How often a process was asked whether it leads."""
    two_at_once: int
    """Pairs of processes that believed to lead at the same instant."""
    audit: Audit
    doctor: DoctorReport

    @property
    def right(self) -> bool:
        epochs = [change.epoch for change in (self.elected, self.after_kill, self.after_stop)]
        return epochs == [1, 2, 3] and self.two_at_once == 0 and self.audit.ok and self.doctor.fit is True


class Candidate:
    """A process that stands for election, and everything that it said."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.said: list[Report] = []
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, url: str, name: str) -> Candidate:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenure.demo.candidate", url, name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the story, which ends its processes itself
        )
        return cls(name, process)

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            # A process that is killed may leave half a line, which says nothing.
            if line.endswith(b"\n"):
                self.said.append(msgspec.json.decode(line, type=Report))

    @property
    def leads(self) -> bool:
        return self.process.returncode is None and bool(self.said) and self.said[-1].leads

    async def end(self, number: signal.Signals) -> None:
        """Send the signal, wait for its end, and hear all that it said before."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self.process.wait()
        await self._listening


async def tell(directory: Path, say: Say, clock: Clock = SYSTEM_CLOCK) -> Result:
    url = directory.as_uri()
    everyone: list[Candidate] = []
    try:
        elected = await _elect(url, everyone, say, clock)
        await clock.sleep(_REST_SECONDS)
        after_kill = await _replace(everyone, elected, signal.SIGKILL, say, clock)
        await clock.sleep(_REST_SECONDS)
        after_stop = await _replace(everyone, after_kill, signal.SIGTERM, say, clock)
    finally:
        await asyncio.gather(*(candidate.end(signal.SIGKILL) for candidate in everyone))
    said = [report for candidate in everyone for report in candidate.said]
    overlaps = two_at_once(said)
    history, doctor = await _verdicts(url, len(said), overlaps, say, clock)
    return Result(elected, after_kill, after_stop, len(said), overlaps, history, doctor)


async def _elect(url: str, everyone: list[Candidate], say: Say, clock: Clock) -> Change:
    say(f"1. Three processes, {', '.join(WORKERS)}, want to lead. All that they share is a directory.")
    began = clock.read()
    everyone += await asyncio.gather(*(Candidate.start(url, name) for name in WORKERS))
    leader = await _leader(everyone, clock, all_joined=True)
    change = Change(leader.name, leader.said[-1].epoch, clock.read().leader_elapsed(began))
    say(f"   {change.leader} leads. This is epoch {change.epoch}: each leadership has a number of its own.")
    return change


async def _replace(everyone: list[Candidate], old: Change, number: signal.Signals, say: Say, clock: Clock) -> Change:
    candidate = next(candidate for candidate in everyone if candidate.name == old.leader)
    if number is signal.SIGKILL:
        say(f"2. {old.leader} is killed (SIGKILL), and cannot tell anybody.")
    else:
        say(f"3. {old.leader} is asked to stop (SIGTERM), as in every deployment.")
    began = clock.read()
    ending = asyncio.create_task(candidate.end(number))
    others = [other for other in everyone if other is not candidate and other.process.returncode is None]
    leader = await _leader(others, clock)
    await ending
    change = Change(leader.name, leader.said[-1].epoch, clock.read().leader_elapsed(began))
    if number is signal.SIGKILL:
        say(
            f"   {change.leader} leads after {change.seconds:.1f} s, epoch {change.epoch}: it had to wait until the "
            f"lease of {CONFIG.lease_timeout:g} s ran out, because the dead cannot be told from the slow."
        )
    else:
        say(f"   {change.leader} leads after {change.seconds:.1f} s, epoch {change.epoch}: the lease was handed on.")
    return change


async def _leader(candidates: list[Candidate], clock: Clock, *, all_joined: bool = False) -> Candidate:
    """Whoever leads, as soon as somebody does (and all have said something)."""
    began = clock.read()
    while clock.read().leader_elapsed(began) < _PATIENCE_SECONDS:
        for candidate in candidates:
            if candidate.leads and (not all_joined or all(each.said for each in candidates)):
                return candidate
            if candidate.process.returncode is not None:
                raise TenureError(f"the process {candidate.name} ended by itself: its error is above")
        await clock.sleep(_POLL_SECONDS)
    raise TenureError(
        f"nobody led within {_PATIENCE_SECONDS:g} s: this machine may be very busy; try again, or report it"
    )


async def _verdicts(url: str, asked: int, overlaps: int, say: Say, clock: Clock) -> tuple[Audit, DoctorReport]:
    say("The verdicts:")
    often = f"asked {asked:,} times in all, "
    say(f"   {often}{'never two of them said at once that they lead' if not overlaps else 'TWO OF THEM LED AT ONCE'};")
    async with open_store(url, access=Access.READ_ONLY) as store:
        history = await audit(namespace_store(store, NAMESPACE), NAMESPACE, clock)
    found = "one leader each, no number missing" if history.ok else history.findings[0].detail.upper()
    say(f"   the record that they left behind (tenure audit): {history.terms} terms, {found};")
    doctor = await examine(url, rounds=RACES)
    won = sum(race.winners for race in doctor.races.values())
    rounds = sum(race.rounds for race in doctor.races.values())
    say(
        f"   the directory itself (tenure doctor): {'fit' if doctor.fit else 'NOT FIT'}, {won} of {rounds} races "
        "between processes had exactly one winner."
    )
    return history, doctor


def two_at_once(said: Iterable[Report]) -> int:
    """How many pairs of leaderships overlap for certain.

    The first and the last true answer under one epoch enclose a time in which that process believed throughout: a term
    that has ended never begins again.
    """
    terms: defaultdict[tuple[str, int], list[Report]] = defaultdict(list)
    for report in said:
        if report.leads:
            terms[report.worker, report.epoch].append(report)
    spans = [
        (worker, min(report.boottime_ns for report in reports), max(report.asked_ns for report in reports))
        for (worker, _), reports in terms.items()
    ]
    return sum(
        one != other and max(start, other_start) <= min(end, other_end)
        for (one, start, end), (other, other_start, other_end) in combinations(spans, 2)
    )
