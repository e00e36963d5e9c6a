"""Was every amount counted exactly once, in its own record, and did no read say otherwise? Files alone say.

    python -m lab.counter_judge --notes FILE... --events FILE --final FILE

Prints one JSON object. Exits 1 if there is a violation in it, 2 if the files cannot be judged.

`lab.counter_log` says what the notes are. `--final` is what was told when all was over: totals of every counter, the
records themselves, history and roll-ups (`lab.counter_cluster`).

- A total is what its counting began with, and all acknowledged amounts, and of the others each zero or one times.
  Amounts are random and large, so that what is missing or too much tells which call it was: lost, doubled, or another
  record's.
- A consistent read misses nothing that was acknowledged before it was asked for, and has nothing that was not given
  before it was answered. No total goes back, but for what was subtracted: what one consistent read has, every one has
  that is asked for after it was answered, by whichever process; what a plain read has, every later one of the same
  process; and what any has is in the total when all is over.
- The other fields of a record are what was written last, whoever counted meanwhile; and the copy of a total that stands
  in a record is the total.
- History, roll-ups and the first ten agree with the totals.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.counter_log import Call, Counter, Notes, Read
from lab.judge import Unjudgeable
from lab.lock_judge import percentiles

_NS = 1_000_000_000
MAX_OPEN = 20
"""Calls of one counter of which it is not known whether they count: with more, its total cannot be judged ..."""
MAX_READ_OPEN = 12
"""... and of a read with more, only whether it is too low or too high."""


class CounterVerdict(msgspec.Struct, frozen=True):
    calls: int
    acknowledged: int
    unknown: int
    """Calls that did not return, or raised ..."""
    counted: int
    """... and were counted all the same."""
    again: int
    """Times that a call was given again, under its `op_id`."""
    counters: int
    """Ids and fields that anything was given to."""
    busiest: int
    """Calls for one counter, at most."""
    reads: int
    consistent: int
    unread: int
    """Reads that raised."""
    open_reads: int
    """Consistent reads while something was under way that they might have, or not."""
    changes: int
    """Of records, by others."""
    kills: int
    terms: int
    requests: int
    seconds: float
    """From the first call to the last acknowledgement."""
    read_seconds: dict[str, float]
    """That a consistent read took: p50, p99, p99.9, longest."""

    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    misplaced: tuple[str, ...]
    """Amounts of another counter."""
    unexplained: tuple[str, ...]
    read_too_low: tuple[str, ...]
    read_too_high: tuple[str, ...]
    read_unexplained: tuple[str, ...]
    gone_back: tuple[str, ...]
    fields_differ: tuple[str, ...]
    copies_differ: tuple[str, ...]
    history_differs: tuple[str, ...]

    @property
    def violations(self) -> list[str]:
        return [name for name in VIOLATIONS if getattr(self, name)]


VIOLATIONS = (
    "lost",
    "doubled",
    "misplaced",
    "unexplained",
    "read_too_low",
    "read_too_high",
    "read_unexplained",
    "gone_back",
    "fields_differ",
    "copies_differ",
    "history_differs",
)


class Judge:
    def __init__(self, notes: Notes, final: dict[str, Any]) -> None:
        self.notes, self.final = notes, final
        self.by_counter = notes.by_counter()
        self.found: dict[str, list[str]] = defaultdict(list)
        self.counted: dict[Counter, list[Call]] = {}
        """What is in each total, as far as that can be told."""
        self.open_reads = 0

    def judge(self) -> CounterVerdict:
        notes = self.notes
        counters = {
            (id, field) for id, record in self.final["records"].items() for field in record["totals"]
        } | self.by_counter.keys()
        for counter in sorted(counters):
            self._total(counter)
        self._reads()
        self._records()
        self._history()
        calls = list(notes.calls.values())
        unknown = [call for call in calls if call.acked_ns is None]
        acks = [call.acked_ns for call in calls if call.acked_ns is not None]
        first = min((call.began_ns for call in calls), default=0)
        consistent = [read for read in notes.reads if read.how == "consistent"]
        return CounterVerdict(
            calls=len(calls),
            acknowledged=len(acks),
            unknown=len(unknown),
            counted=sum(call.acked_ns is None for counted in self.counted.values() for call in counted),
            again=notes.again,
            counters=len(self.by_counter),
            busiest=max(map(len, self.by_counter.values()), default=0),
            reads=len(notes.reads),
            consistent=len(consistent),
            unread=notes.unread,
            open_reads=self.open_reads,
            changes=sum(change.done for change in notes.changes.values()),
            kills=len(notes.killed),
            terms=len(notes.led),
            requests=notes.requests,
            seconds=round((max(acks, default=first) - first) / _NS, 3),
            read_seconds=percentiles([(read.told_ns - read.asked_ns) / _NS for read in consistent]),
            **{name: _some(self.found[name]) for name in VIOLATIONS},
        )

    # Totals

    def _start(self, counter: Counter) -> int:
        """What the record held before anything was counted."""
        id, field = counter
        return int(self.final["starts"].get(id, {}).get(field, 0))

    def _told(self, counter: Counter) -> int:
        id, field = counter
        record = self.final["records"].get(id)
        if record is None or field not in record["totals"]:
            raise Unjudgeable(f"nothing is told of {field} of {id} when all is over")
        return int(record["totals"][field])

    def _total(self, counter: Counter) -> None:
        calls = self.by_counter.get(counter, [])
        acked = [call for call in calls if call.acked_ns is not None]
        unknown = [call for call in calls if call.acked_ns is None]
        if len(unknown) > MAX_OPEN:
            raise Unjudgeable(f"of {counter} {len(unknown)} calls are unknown: too many to try what they add up to")
        rest = self._told(counter) - self._start(counter) - sum(call.amount for call in acked)
        sums = subset_sums(unknown)
        if rest in sums:
            self.counted[counter] = [*acked, *sums[rest]]
            return
        where = f"{' '.join(counter)}: {rest:+} beside what was acknowledged, of {len(unknown)} unknown"
        if (call := _by_which(acked, rest, sums, sign=-1)) is not None:
            self.found["lost"].append(f"{call} is not in the total; {where}")
        elif (call := _by_which(calls, rest, sums, sign=1)) is not None:
            self.found["doubled"].append(f"{call} is in the total twice; {where}")
        elif (call := self._of_another(counter, rest, sums)) is not None:
            self.found["misplaced"].append(f"{call} is in this total; {where}")
        else:
            self.found["unexplained"].append(where)

    def _of_another(self, counter: Counter, rest: int, sums: dict[int, list[Call]]) -> Call | None:
        others = (call for call in self.notes.calls.values() if call.counter != counter)
        return _by_which(others, rest, sums, sign=1)

    # Reads

    def _reads(self) -> None:
        series: dict[tuple[str, Counter], list[Read]] = defaultdict(list)
        for read in self.notes.reads:
            self._read(read, self.by_counter.get(read.counter, []))
            # A plain one may say what its process looked at last. A consistent one asks the store, whoever asks.
            series["" if read.how == "consistent" else read.process, read.counter].append(read)
        for (_, counter), reads in series.items():
            over = Read(2**62, 2**62, "all over", reads[0].how, counter, self._told(counter))
            self._rises([*reads, over], self.by_counter.get(counter, []))

    def _read(self, read: Read, calls: Sequence[Call]) -> None:
        is_consistent = read.how == "consistent"
        certain = _certain(read, calls)
        known = {call.name for call in certain}
        maybe = [call for call in calls if call.began_ns <= read.told_ns and call.name not in known]
        self.open_reads += is_consistent and bool(maybe)
        rest = read.value - self._start(read.counter) - sum(call.amount for call in certain)
        least, most = _least(maybe), sum(call.amount for call in maybe if call.amount > 0)
        where = f"{_shown(read)}: {rest:+} beside {len(certain)} calls that had returned, of {len(maybe)} others"
        if rest < least:
            self.found["read_too_low"].append(where)
        elif rest > most:
            self.found["read_too_high"].append(where)
        elif is_consistent and len(maybe) <= MAX_READ_OPEN and rest not in subset_sums(maybe):
            self.found["read_unexplained"].append(where)

    def _rises(self, reads: Sequence[Read], calls: Sequence[Call]) -> None:
        """What was in a total is in every one that is asked for after that was answered.

        Of two reads that are beside each other either may be the newer one. What lies between two others is what was
        given by the end of the second, but for what the first has for certain; as far as it was subtracted, the second
        may be lower by it. So every read has a mark that no later one may fall below, and the highest one counts.
        """
        subtractions = [call for call in calls if call.amount < 0]
        answered = sorted(reads, key=lambda each: each.told_ns)
        highest: Read | None = None
        mark = passed = 0
        for read in sorted(reads, key=lambda each: each.asked_ns):
            while passed < len(answered) and answered[passed].told_ns <= read.asked_ns:
                former = answered[passed]
                passed += 1
                least = former.value - _least(_certain(former, subtractions))
                if highest is None or least > mark:
                    highest, mark = former, least
            given = [call for call in subtractions if call.began_ns <= read.told_ns]
            if highest is not None and read.value < mark + _least(given):
                self.found["gone_back"].append(f"{_shown(read)}, after {_shown(highest)}")

    # Records

    def _records(self) -> None:
        expected: dict[str, set[int | None]] = {id: {title} for id, title in self.final["titles"].items()}
        for change in self.notes.changes.values():
            after = None if change.what == "delete" else change.title
            former = expected.get(change.id, {None})
            expected[change.id] = {after} if change.done else former | {after}
        for id, record in self.final["records"].items():
            data = record["data"]
            title = data.get("title") if data is not None else None
            possible = expected.get(id, {None})
            if title not in possible or (data is None) != (title is None):
                self.found["fields_differ"].append(f"{id}: {data}, and the title should be one of {possible}")
            if record["consistent"] is not None and record["consistent"] != record["totals"]:
                self.found["copies_differ"].append(f"{id}: {record['consistent']} and {record['totals']} are told")
            for field, total in record["totals"].items():
                shown = _value_at(data, field) if data is not None else None
                is_counted = (id, field) in self.by_counter
                if data is not None and shown != total and (is_counted or shown is not None):
                    self.found["copies_differ"].append(f"{id}: {field} is {shown} in the record, and {total}")

    # History

    def _history(self) -> None:
        for field, told in self.final["sums"].items():
            counted = [call for counter, calls in self.counted.items() if counter[1] == field for call in calls]
            added = [call.amount for call in counted if call.amount >= 0]
            subbed = [-call.amount for call in counted if call.amount < 0]
            right = {"adds": len(added), "added": sum(added), "subs": len(subbed), "subbed": sum(subbed)}
            if told != right:
                self.found["history_differs"].append(f"{field}: {told} is told, and {right} was counted")
        for field, told in self.final["top"].items():
            nets = [
                (sum(call.amount for call in calls), id)
                for (id, each), calls in self.counted.items()
                if each == field and calls
            ]
            best = sorted(nets, reverse=True)
            if [[id, net] for net, id in best[: len(told)]] != told or not told:
                self.found["history_differs"].append(f"the first of {field} are {told}, and should be {best[:10]}")
        for id, told in self.final["recalculated"].items():
            record = self.final["records"][id]
            totals = {field: total for field, total in record["totals"].items() if (id, field) in self.by_counter}
            if told["former"] or told["totals"] != totals:
                self.found["history_differs"].append(f"{id}: history gives {told}, and the totals are {totals}")


def subset_sums(calls: Sequence[Call]) -> dict[int, list[Call]]:
    """Everything that some of them, or none, add up to."""
    sums: dict[int, list[Call]] = {0: []}
    for call in calls:
        sums.update({total + call.amount: [*taken, call] for total, taken in sums.items()})
    return sums


def _by_which(calls: Iterable[Call], rest: int, sums: dict[int, list[Call]], *, sign: int) -> Call | None:
    """The call whose amount, once more or once less, makes it right."""
    return next((call for call in calls if rest - sign * call.amount in sums), None)


def _certain(read: Read, calls: Iterable[Call]) -> list[Call]:
    """What a read has, whatever happened: nothing, if it is a plain one."""
    if read.how != "consistent":
        return []
    return [call for call in calls if call.acked_ns is not None and call.acked_ns <= read.asked_ns]


def _least(calls: Iterable[Call]) -> int:
    return sum(call.amount for call in calls if call.amount < 0)


def _shown(read: Read) -> str:
    return f"{read.value} for {' '.join(read.counter)} ({read.how}, {read.process}, asked at {read.asked_ns})"


def _value_at(data: dict[str, Any], path: str) -> Any:
    found: Any = data
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _some(found: Iterable[str]) -> tuple[str, ...]:
    """Enough to look into; how many there are is told at the end."""
    ordered = sorted(found)
    return (*ordered[:20], *([f"... {len(ordered)} in all"] if len(ordered) > 20 else []))


def judge_files(notes: Iterable[Path], events: Iterable[Path], final: Path) -> CounterVerdict:
    noted = Notes()
    for path in notes:
        noted.read(path)
    for path in events:
        noted.read_events(path)
    return Judge(noted, json.loads(final.read_bytes())).judge()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.counter_judge", description="Judge the logs of counters.")
    parser.add_argument("--notes", nargs="+", type=Path, required=True, metavar="FILE")
    parser.add_argument("--events", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--final", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    try:
        verdict = judge_files(arguments.notes, arguments.events, arguments.final)
    except (Unjudgeable, OSError, ValueError, KeyError) as failure:
        print(f"counter_judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
