"""Did two processes believe at the same instant that they lead? Judged from the logs of `lab.believer` alone.

    python -m lab.judge LOG... [--event BOOTTIME_NS]...

Prints one JSON object, a `Verdict`. Exits 1 if there is a violation in it, 2 if the logs cannot be judged.

A log has a line for every time the process was asked, in the order of asking:

    before_ns after_ns process epoch leading holding

The stamps are CLOCK_BOOTTIME before and after the question, which one clock answers for every process of a host.
`process` is one process and not one worker id, since two processes may have been given the same id. `epoch` is that of
its `Lead`, 0 if neither of what follows is true. `holding` is `Lead.holds()` and `leading` is `is_leader()`, asked in
this order, both 0 or 1: so a process that led held its lease at the earlier of the two instants as well.

What a line proves, and no more: **at some instant between its stamps** the answer was given. A process can be stopped
anywhere: between the lines, and between the stamps of one line, before or after the answer was found. So:

- A stop between the stamps makes a wide window. The belief in it is attributed to no instant of it, because the answer
  may be from before the stop. It counts against another process only if that one believed during *all* of the window,
  for then they overlapped whichever instant it was.
- Two consecutive lines of one process that say true under one epoch prove belief from the `after` of the first to the
  `before` of the second, if no more than `BRIDGE_NS` lie between the outermost of their stamps. A stop between them,
  or inside either, makes that longer, and then nothing is concluded about the time between. Lines that are joined so
  are a `Run`.
- Two processes overlap if their runs do, or if the window of a line of one lies inside a run of the other.
- A line that says true, and begins after one that said so under a higher epoch has ended, is of somebody who was
  followed already and has not noticed (`epochs_gone_back`). That needs no run: it is seen however far apart the lines
  are, and whether the higher one is still believed in or not.

Hence nothing here is ever an overlap that was not one, provided that a process which ended a term never leads under
the same epoch again (which is checked: `terms_resumed`).

What escapes is what no line was written about. Two that lead at once are found if their epochs are the same, or if the
one with the lower writes a line, saying true, after the first such line of the other. So of two that go on asking an
overlap escapes only if it is shorter than the silence between two lines of the one and that between two lines of the
other together, and `longest_silence` bounds both. While a process writes nothing (it is stopped, or its log is not
given) it is not judged, whatever it does.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

BRIDGE_NS = 100_000_000
_NS = 1_000_000_000

T = TypeVar("T", bound=Hashable)


class Unjudgeable(ValueError):
    """The logs do not say enough, or not what a log of a believer says."""


class Sample(msgspec.Struct, frozen=True):
    """One line of a log."""

    before_ns: int
    after_ns: int
    process: str
    epoch: int
    leading: bool
    holding: bool


class Run(msgspec.Struct, frozen=True):
    """Belief without a gap: true in every line from `first` to `last`, all of one process and one epoch."""

    process: str
    epoch: int
    samples: tuple[Sample, ...]

    @property
    def certain_from_ns(self) -> int:
        return self.samples[0].after_ns

    @property
    def certain_to_ns(self) -> int:
        """Before `certain_from_ns` in a run of one line, which proves no instant."""
        return self.samples[-1].before_ns


class Term(msgspec.Struct, frozen=True):
    """What one process claimed under one epoch: from the first true line to the last."""

    process: str
    epoch: int
    first: Sample
    last: Sample


class Overlap(msgspec.Struct, frozen=True):
    processes: tuple[str, str]
    epochs: tuple[int, int]
    from_ns: int
    to_ns: int


class Takeover(msgspec.Struct, frozen=True):
    """From the last line in which the old leader believed to the first in which the new one did, never too short."""

    from_process: str
    to_process: str
    from_epoch: int
    to_epoch: int
    seconds: float


class Reaction(msgspec.Struct, frozen=True):
    """What followed an event: the first belief under a higher epoch than any before it. None: there was none."""

    event_ns: int
    process: str | None
    epoch: int | None
    seconds: float | None


class Verdict(msgspec.Struct, frozen=True):
    samples: int
    processes: tuple[str, ...]
    terms: tuple[Term, ...]
    takeovers: tuple[Takeover, ...]
    reactions: tuple[Reaction, ...]
    longest_silence: float
    """Seconds between two lines of one process, at most: a stop shows here, and so does a machine out of breath."""
    median_silence: float
    epochs_skipped: tuple[int, ...]
    """Epochs between two that were led and that nobody was seen to lead: no violation, such a term may be short."""
    torn_lines: int
    """Last lines of logs that a kill cut short."""

    overlaps: tuple[Overlap, ...]
    holding_overlaps: tuple[Overlap, ...]
    epochs_led_twice: tuple[int, ...]
    epochs_gone_back: tuple[tuple[int, int], ...]
    """(higher, lower): the lower was claimed, or its lease held, after the higher was. For each lower the first one."""
    terms_resumed: tuple[tuple[str, int], ...]
    """(process, epoch): it said no longer to lead, and then again to lead, under one epoch."""
    nameless: tuple[str, ...]
    """Processes that said they led, under no epoch."""
    leading_not_holding: tuple[str, ...]
    """Processes that said they led without a valid lease."""

    @property
    def violations(self) -> list[str]:
        return [name for name in _VIOLATIONS if getattr(self, name)]


_VIOLATIONS = (
    "overlaps",
    "holding_overlaps",
    "epochs_led_twice",
    "epochs_gone_back",
    "terms_resumed",
    "nameless",
    "leading_not_holding",
)

Claim = Callable[[Sample], bool]


def _leads(sample: Sample) -> bool:
    return sample.leading


def _holds(sample: Sample) -> bool:
    return sample.holding


def judge(samples: Iterable[Sample], events_ns: Sequence[int] = (), *, torn_lines: int = 0) -> Verdict:
    """The samples of each process must come in the order in which they were taken; processes may be mixed."""
    logs: dict[str, list[Sample]] = {}
    for sample in samples:
        logs.setdefault(sample.process, []).append(sample)
    if not logs:
        raise Unjudgeable("there is not one line to judge")
    for log in logs.values():
        _check_order(log)
    terms = sorted(
        (term for log in logs.values() for term in _terms(log, _leads)), key=lambda term: term.first.after_ns
    )
    holdings = [term for log in logs.values() for term in _terms(log, _holds)]
    silences = sorted(b.before_ns - a.after_ns for log in logs.values() for a, b in itertools.pairwise(log)) or [0]
    led = sorted({term.epoch for term in terms if term.epoch})
    return Verdict(
        samples=sum(map(len, logs.values())),
        processes=tuple(logs),
        terms=tuple(terms),
        takeovers=tuple(_takeovers(terms)),
        reactions=tuple(_reaction(event_ns, terms) for event_ns in events_ns),
        longest_silence=silences[-1] / _NS,
        median_silence=silences[len(silences) // 2] / _NS,
        epochs_skipped=tuple(sorted(set(range(led[0], led[-1])) - set(led))) if led else (),
        torn_lines=torn_lines,
        overlaps=tuple(_overlaps(logs, _leads)),
        holding_overlaps=tuple(_overlaps(logs, _holds)),
        epochs_led_twice=tuple(sorted(_twice(term.epoch for term in terms if term.epoch))),
        epochs_gone_back=tuple(sorted({*gone_back(terms), *gone_back(holdings)}, reverse=True)),
        terms_resumed=tuple(resumed for log in logs.values() for resumed in _resumed(log)),
        nameless=tuple(name for name, log in logs.items() if any(s.leading and not s.epoch for s in log)),
        leading_not_holding=tuple(name for name, log in logs.items() if any(s.leading and not s.holding for s in log)),
    )


def judge_logs(paths: Iterable[Path], events_ns: Sequence[int] = ()) -> Verdict:
    logs = [parse(text_of(path), str(path)) for path in paths]
    return judge(
        (sample for samples, _ in logs for sample in samples), events_ns, torn_lines=sum(torn for _, torn in logs)
    )


def text_of(path: Path) -> str:
    """Of any log: what is no text is no log that can be judged, as little as a line that nobody wrote so."""
    try:
        return path.read_text()
    except ValueError as failure:
        raise Unjudgeable(f"{path}: not a log, for it is no text: {failure}") from None


def parse(text: str, name: str = "log") -> tuple[list[Sample], int]:
    """The lines of a log, and the number of torn ones at its end (0 or 1)."""
    *lines, rest = text.split("\n")
    return [_parse_line(line, f"{name}:{number}") for number, line in enumerate(lines, 1)], 1 if rest else 0


def _parse_line(line: str, where: str) -> Sample:
    try:
        before, after, process, epoch, leading, holding = line.split(" ")
        flags = {"0": False, "1": True}
        return Sample(int(before), int(after), process, int(epoch), flags[leading], flags[holding])
    except (ValueError, KeyError):
        raise Unjudgeable(f"{where}: not a line of a believer: {line[:100]!r}") from None


def _check_order(log: Sequence[Sample]) -> None:
    for sample in log:
        if sample.after_ns < sample.before_ns:
            raise Unjudgeable(f"{sample.process}: the stamps of a line are the wrong way round: {sample}")
    for earlier, later in itertools.pairwise(log):
        if later.before_ns < earlier.after_ns:
            raise Unjudgeable(f"{earlier.process}: a line was taken before the one above it had ended: {later}")


def _terms(log: Iterable[Sample], claim: Claim) -> list[Term]:
    terms: dict[int, Term] = {}
    for sample in log:
        if claim(sample):
            begun = terms.get(sample.epoch)
            first = begun.first if begun else sample
            terms[sample.epoch] = Term(sample.process, sample.epoch, first, sample)
    return list(terms.values())


def _resumed(log: Iterable[Sample]) -> list[tuple[str, int]]:
    """Epochs of a process whose true lines have a line of another answer between them."""
    changes = [(s.process, s.epoch) if s.leading else None for s in log]
    begun = [claim for claim, _ in itertools.groupby(changes) if claim is not None]
    return sorted(_twice(begun))


def _runs(log: Iterable[Sample], claim: Claim) -> Iterator[Run]:
    run: list[Sample] = []
    for sample in log:
        if run and not (
            claim(sample) and sample.epoch == run[-1].epoch and sample.after_ns - run[-1].before_ns <= BRIDGE_NS
        ):
            yield Run(run[0].process, run[0].epoch, tuple(run))
            run = []
        if claim(sample):
            run.append(sample)
    if run:
        yield Run(run[0].process, run[0].epoch, tuple(run))


def _overlaps(logs: dict[str, list[Sample]], claim: Claim) -> Iterator[Overlap]:
    runs = {process: list(_runs(log, claim)) for process, log in logs.items()}
    for a, b in itertools.combinations(runs, 2):
        for run_a, run_b in itertools.product(runs[a], runs[b]):
            yield from _overlap_of_runs(run_a, run_b)


def _overlap_of_runs(a: Run, b: Run) -> Iterator[Overlap]:
    from_ns = max(a.certain_from_ns, b.certain_from_ns)
    to_ns = min(a.certain_to_ns, b.certain_to_ns)
    if from_ns < to_ns:
        yield Overlap((a.process, b.process), (a.epoch, b.epoch), from_ns, to_ns)
        return
    for one, other in ((a, b), (b, a)):
        # Those between the first and the last are inside the run itself, and were compared above.
        for sample in {one.samples[0], one.samples[-1]}:
            if other.certain_from_ns <= sample.before_ns and sample.after_ns <= other.certain_to_ns:
                epochs = (one.epoch, other.epoch)
                yield Overlap((one.process, other.process), epochs, sample.before_ns, sample.after_ns)


def _takeovers(terms: Sequence[Term]) -> Iterator[Takeover]:
    for old, new in itertools.pairwise(terms):
        seconds = (new.first.after_ns - old.last.before_ns) / _NS
        yield Takeover(old.process, new.process, old.epoch, new.epoch, seconds)


def _reaction(event_ns: int, terms: Sequence[Term]) -> Reaction:
    known = max((term.epoch for term in terms if term.first.before_ns <= event_ns), default=0)
    for term in terms:
        if term.epoch > known:
            return Reaction(event_ns, term.process, term.epoch, (term.first.after_ns - event_ns) / _NS)
    return Reaction(event_ns, None, None, None)


def gone_back(terms: Sequence[Term]) -> Iterator[tuple[int, int]]:
    """Not the first claims alone: the last one of an epoch may be of somebody who slept meanwhile."""
    earliest: Term | None = None
    """Of all that are higher."""
    descending = sorted(terms, key=lambda term: term.epoch, reverse=True)
    for epoch, group in itertools.groupby(descending, key=lambda term: term.epoch):
        of_epoch = list(group)
        if earliest is not None and any(earliest.first.after_ns < term.last.before_ns for term in of_epoch):
            yield earliest.epoch, epoch
        earliest = min((*of_epoch, *((earliest,) if earliest else ())), key=lambda term: term.first.after_ns)


def _twice(things: Iterable[T]) -> set[T]:
    seen: set[T] = set()
    twice: set[T] = set()
    for thing in things:
        (twice if thing in seen else seen).add(thing)
    return twice


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.judge", description="Judge the logs of lab.believer.")
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--event", action="append", type=int, default=[], metavar="BOOTTIME_NS", help="time a reaction")
    arguments = parser.parse_args()
    try:
        verdict = judge_logs(arguments.logs, arguments.event)
    except (Unjudgeable, OSError) as failure:
        print(f"judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
