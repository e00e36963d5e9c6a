"""Was all right? Judged from what the processes said, and from the ledger that they left. Pure.

What may escape is an overlap shorter than the time between two reports. Nothing is ever called wrong that was not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

import msgspec

from tenure.demo.candidate import Entry
from tenure.demo.lines import Deed, Outcome, Report


class Span(msgspec.Struct, frozen=True):
    """One process believed throughout, from one time to the other, that it leads: a term that has ended never begins
    again."""

    process: int
    epoch: int
    from_ns: int
    to_ns: int
    """Before `from_ns` if there was one answer only, which proves no instant."""


def spans(said: Iterable[Report]) -> list[Span]:
    """The leaderships, by epoch. The first and the last true answer under one epoch enclose each."""
    terms: defaultdict[tuple[int, int], list[Report]] = defaultdict(list)
    for report in said:
        if report.leads:
            terms[report.epoch, report.process].append(report)
    return [
        Span(process, epoch, min(each.boottime_ns for each in reports), max(each.asked_ns for each in reports))
        for (epoch, process), reports in sorted(terms.items())
    ]


def two_at_once(said: Iterable[Report]) -> int:
    """How many pairs of leaderships overlap for certain."""
    return sum(
        one.process != other.process and max(one.from_ns, other.from_ns) <= min(one.to_ns, other.to_ns)
        for one, other in combinations(spans(said), 2)
    )


class Work(msgspec.Struct, frozen=True):
    """The leader-only work of all processes, compared with the ledger. Every number from `lost` on must be 0."""

    done: int
    """Pieces whose write was acknowledged."""
    refused: int
    """Tries of a process that no longer led, of which nothing was written."""
    in_doubt: int
    """Begun and never answered, mostly because the process was killed: each may be in the ledger, once."""
    in_doubt_written: int
    written: int
    """Entries of the ledger."""
    lost: int
    """Acknowledged, and not in the ledger."""
    twice: int
    """In the ledger more than once."""
    unexplained: int
    """In the ledger, though nobody began it, or its write was refused."""
    out_of_order: int
    """In the ledger behind an entry of a newer epoch."""
    stale: int
    """Acknowledged, though begun after a newer epoch had claimed the ledger."""

    @property
    def ok(self) -> bool:
        return not (self.lost or self.twice or self.unexplained or self.out_of_order or self.stale)


def judge_work(deeds: Iterable[Deed], entries: Sequence[Entry]) -> Work:
    deeds = list(deeds)
    last: dict[Entry, Deed] = {}
    for deed in deeds:
        if deed.serial:
            last[Entry(deed.epoch, deed.process, deed.serial)] = deed
    by_outcome = {outcome: {key for key, deed in last.items() if deed.outcome is outcome} for outcome in Outcome}
    done = by_outcome[Outcome.DONE]
    in_doubt = by_outcome[Outcome.BEGUN] | by_outcome[Outcome.UNKNOWN]
    times = Counter(entries)
    claims = [deed for deed in deeds if deed.outcome is Outcome.CLAIMED]
    return Work(
        done=len(done),
        refused=sum(deed.outcome is Outcome.REFUSED for deed in deeds),
        in_doubt=len(in_doubt),
        in_doubt_written=len(in_doubt & times.keys()),
        written=len(entries),
        lost=len(done - times.keys()),
        twice=sum(count > 1 for count in times.values()),
        unexplained=len(times.keys() - done - in_doubt),
        out_of_order=sum(later.epoch < earlier.epoch for earlier, later in pairwise(entries)),
        stale=sum(
            any(claim.epoch > deed.epoch and claim.boottime_ns < deed.asked_ns for claim in claims)
            for deed in last.values()
            if deed.outcome is Outcome.DONE
        ),
    )


class Thaw(msgspec.Struct, frozen=True):
    """What a process did that was frozen while it led, once it went on."""

    worker: str
    epoch: int
    """Of the leadership in which it was frozen."""
    frozen_seconds: float
    refused: int
    """Writes that it tried under its old leadership, and that were not made."""
    landed: int
    """Writes that it began after the thaw under its old leadership, and that were made. Must be 0."""
    believed: int
    """How often it said after the thaw that it still leads. Must be 0."""

    @property
    def ok(self) -> bool:
        return self.refused > 0 and not self.landed and not self.believed


def judge_thaw(
    worker: str, epoch: int, frozen_ns: int, thawed_ns: int, said: Iterable[Report], deeds: Iterable[Deed]
) -> Thaw:
    """`said` and `deeds` are those of the one process."""
    old = [deed for deed in deeds if deed.epoch == epoch]
    return Thaw(
        worker=worker,
        epoch=epoch,
        frozen_seconds=(thawed_ns - frozen_ns) / 1e9,
        refused=sum(deed.outcome is Outcome.REFUSED and deed.boottime_ns > thawed_ns for deed in old),
        landed=sum(deed.outcome is Outcome.DONE and deed.asked_ns > thawed_ns for deed in old),
        believed=sum(report.leads and report.epoch == epoch and report.asked_ns > thawed_ns for report in said),
    )
