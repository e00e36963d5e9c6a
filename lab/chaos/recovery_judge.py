"""Did every part work again, in good time, whenever nothing was wrong any more, and go on? Files alone say.

    python -m lab.chaos.recovery_judge FOLDER

Prints one JSON object. Exits 1 if there is a violation in it, 2 if the files cannot be judged.

`run.json` in the folder says from when to when it was calm. A part works at each fact of its log that was begun and
done within the calm: somebody leads, the supervised program runs, the lock was got, a message was handled, a job ran,
an amount was accepted, the leader wrote totals into records, a record was stored, one whose time came in the calm was
found gone. What each process does by itself is judged of each by itself that lived through the calm, from its joining
on: it enqueues, it adds, it inserts. From the beginning of the calm to its end

- no two facts lie further apart than the part's bound, beginning and end included;
- once the bound is over, everything works, and no two lie further apart than `steady()` allows: time for one leader
  that lost its lease because the machine had no time for it, and no more.

A sweep can only be seen if something is due: of its facts only that time counts in which a record was due and no other
was found gone since.

Bounds are those of the settings that the processes have (`lab.pace`), and no measurements:

- who leads, and so whose children run: `worst_case_failover()`, which allows for a breaker that opened just before;
- the lock: a lease of it that nobody renews any more, the wait between two looks, and one holder that keeps it long;
- what the leader decides (queue, schedule): that of the election, and `_REQUESTS` more, each given up once: to catch
  up, to write the first entry, to give out and to hear of it; of totals, the time between two rounds as well; of a
  sweep, a tick, and a lease for what is not known of the store's clock and until somebody looks;
- what only the store decides (counters, expiry): what a caller waits for one that is given up, and one more. That is
  for the first of all processes; each of them, with whatever it had in hand, has half as long again.

Programs start, and a machine with every process of the run on two cores has its pauses: a lease is added to each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.chaos.node import LOCK_TTL, TICK
from lab.counter_node import INTERVAL
from lab.judge import Unjudgeable
from lab.lock_judge import percentiles
from lab.pace import LEASE, config

_NS = 1_000_000_000
_REQUESTS = 5
SLACK = LEASE
STEADY = 3 * LEASE
"""Seconds between two facts once everything must work: one failover that nothing held up. The load itself pauses for
1.4 s at most."""
OWN = ("enqueue", "add", "insert")
"""What each process does by itself."""
_NEVER = 2**62
_CONSOLIDATED = re.compile(rb"event=Consolidated\(.*\brecords=([1-9]\d*)")

Fact = tuple[int, int]
"""When it was begun, and when it was done."""


def bounds() -> dict[str, float]:
    """Seconds, by part."""
    settings = config()
    request = settings.request_timeout_seconds
    elected = settings.worst_case_failover()
    return {
        part: round(seconds + SLACK, 2)
        for part, seconds in {
            "election": elected,
            "program": elected + request,
            "lock": LOCK_TTL * (1 + settings.drift) + 0.1 + LOCK_TTL / 8 + 5 / 3 * LEASE,
            "queue": elected + _REQUESTS * request,
            "schedule": elected + _REQUESTS * request,
            "counters": 10 / 3 * LEASE,
            "expiry": 10 / 3 * LEASE,
            "consolidation": elected + _REQUESTS * request + INTERVAL,
            "sweep": elected + _REQUESTS * request + TICK + LEASE,
            **dict.fromkeys(OWN, 5 * LEASE),
        }.items()
    }


def steady(limits: dict[str, float]) -> dict[str, float]:
    """Seconds between two facts once the bound is over, by part."""
    # The lock may be held for long, and its holder be lost, at any time. A process by itself has a row of calls to make
    # before it comes to the next of one kind.
    others = {"lock": limits.get("lock", 0.0), **dict.fromkeys(OWN, 4 * LEASE)}
    return {part: others.get(part, STEADY) for part in limits}


def calm_seconds() -> int:
    """So long that every part can be seen to go on as well; sweeps, to begin."""
    limits = bounds()
    return math.ceil(max(limits.pop("sweep"), max(limits.values()) + STEADY))


class Window(msgspec.Struct, frozen=True):
    from_ns: int
    to_ns: int
    seconds: dict[str, float | None]
    """From the beginning of the calm until each part worked, the last of the processes; None: it did not."""


class RecoveryVerdict(msgspec.Struct, frozen=True):
    calms: int
    bounds: dict[str, float]
    longest: dict[str, float]
    spread: dict[str, dict[str, float]]
    gaps: dict[str, float]
    """The longest between two facts in a calm once the bound was over."""
    lives: int
    """Times that a process was judged by itself."""
    windows: tuple[Window, ...]
    late: tuple[str, ...]
    """Not within the bound."""
    ceased: tuple[str, ...]
    """Worked again, and did not go on."""

    @property
    def violations(self) -> list[str]:
        return [name for name in ("late", "ceased") if getattr(self, name)]


class Life(msgspec.Struct, kw_only=True):
    """Of one process, from when it had joined until it was made to end."""

    label: str
    joined_ns: int
    ended_ns: int = _NEVER
    facts: dict[str, list[Fact]]
    dues: list[int]
    """When a record of its own was due at the latest, of those that it was sure of."""


def lines(folder: Path, part: str, label: str = "*") -> Iterator[list[str]]:
    for path in sorted(folder.glob(f"{label}.{part}")):
        for line in path.read_text().split("\n")[:-1]:
            yield line.split(" ")


def led(folder: Path, part: str) -> list[int]:
    """Instants at which somebody was known to lead, or to run."""
    return sorted(int(fields[1]) for fields in lines(folder, part) if len(fields) == 6 and fields[4] == "1")


def answered(
    folder: Path, part: str, asking: str, answer: str, at: int, has: int, label: str = "*"
) -> list[tuple[int, int]]:
    """(when something was asked for, when it was answered), by what stands in the field `at` of both."""
    asked: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for fields in lines(folder, part, label):
        if fields[0] == asking:
            for each in fields[at:]:
                asked[":".join(each.split(":")[:has]) if has else each] = int(fields[1])
        elif fields[0] == answer:
            found += [(asked[each], int(fields[1])) for each in fields[at:] if each in asked]
    return found


def handled(folder: Path) -> list[Fact]:
    sent = {body: int(fields[1]) for fields in lines(folder, "sent") if fields[0] == "sending" for body in fields[3:]}
    return [
        (sent[fields[3]], int(fields[1]))
        for fields in lines(folder, "handled")
        if fields[0] == "ended" and fields[3] in sent
    ]


def consolidated(folder: Path) -> list[Fact]:
    """The leader told that it wrote totals into records, and when."""
    found = []
    for path in sorted(folder.glob("*.out")):
        for line in path.read_bytes().split(b"\n"):
            if b"eventual-consistency:consolidated" in line and _CONSOLIDATED.search(line):
                at_ns = int(json.loads(line)["boottime_ns"])
                found.append((at_ns, at_ns))
    return found


def swept(folder: Path) -> list[Fact]:
    """Records found gone: when each was there for the last time, for certain, and when it was gone.

    It was there until a ttl after the last call that returned was made, and when a look found it.
    """
    found = []
    there: dict[str, int] = {}
    begun: dict[str, tuple[int, int]] = {}
    for fields in lines(folder, "expiry"):
        match fields:
            case ["inserting" | "touching", at, _, id, ttl]:
                begun[id] = (int(at), int(ttl) * 1_000_000)
            case ["inserted" | "touched", _, _, id] if id in begun:
                there[id] = max(there.get(id, 0), sum(begun.pop(id)))
            case ["looked", asked, _, _, id, "1"] if id in there:
                there[id] = max(there[id], int(asked))
            case ["looked", _, told, _, id, "0"] if id in there:
                found.append((there.pop(id), int(told)))
            case ["gone", at, _, id] if id in there:
                found.append((there.pop(id), int(at)))
    return found


def dues_of(folder: Path, label: str) -> list[int]:
    """When each record of this process was due at the latest: a ttl after the last call had returned.

    Of one that was not sure of a call it cannot be told.
    """
    dues: dict[str, int] = {}
    lives: dict[str, int] = {}
    unsure: set[str] = set()
    for fields in lines(folder, "expiry", label):
        match fields:
            case ["inserting" | "touching", _, _, id, ttl]:
                lives[id] = int(ttl) * 1_000_000
            case ["inserted" | "touched", at, _, id] if id in lives:
                dues[id] = int(at) + lives[id]
            case ["unsure", _, _, id, _]:
                unsure.add(id)
    return sorted(due for id, due in dues.items() if id not in unsure)


def lives_of(folder: Path) -> list[Life]:
    """Of everyone that said that it had joined."""
    ended: dict[str, int] = {}
    if (folder / "events").exists():
        for line in (folder / "events").read_text().split("\n")[:-1]:
            what, at, process, *_ = line.split(" ")
            if what in ("killed", "terminated"):
                ended[process] = min(int(at), ended.get(process, _NEVER))
    found = []
    for path in sorted(folder.glob("*.out")):
        said = joined(path)
        if said is None:
            continue
        at_ns, process = said
        own = {
            "enqueue": answered(folder, "sent", "sending", "accepted", 3, 0, path.stem),
            "add": answered(folder, "notes", "adding", "added", 3, 2, path.stem),
            "insert": answered(folder, "expiry", "inserting", "inserted", 3, 0, path.stem),
        }
        ended_ns, dues = ended.get(process, _NEVER), dues_of(folder, path.stem)
        found.append(Life(label=path.stem, joined_ns=at_ns, ended_ns=ended_ns, facts=own, dues=dues))
    return found


def joined(output: Path) -> tuple[int, str] | None:
    """When a process said that it had joined, and its name and pid."""
    for line in output.read_bytes().split(b"\n")[:-1]:
        if line.startswith(b'{"said": "joined"'):
            said = json.loads(line)
            return int(said["boottime_ns"]), f"{said['worker']}:{said['pid']}"
    return None


def facts(folder: Path) -> dict[str, list[Fact]]:
    """By part: (when it was begun, when it was done)."""
    return {
        "election": [(at, at) for at in led(folder, "belief")],
        "program": [(at, at) for at in led(folder, "program")],
        "lock": [(int(fields[1]), int(fields[1])) for fields in lines(folder, "waits") if len(fields) == 3],
        "queue": handled(folder),
        "schedule": [(int(fields[1]), int(fields[1])) for fields in lines(folder, "runs") if fields[0] == "began"],
        "counters": answered(folder, "notes", "adding", "added", 3, 2),
        "expiry": answered(folder, "expiry", "inserting", "inserted", 3, 0),
        "consolidation": consolidated(folder),
        "sweep": swept(folder),
    }


def first_after(found: Sequence[Fact], from_ns: int, to_ns: int) -> float | None:
    done = [done_ns for begun_ns, done_ns in found if begun_ns >= from_ns and done_ns <= to_ns]
    return round((min(done) - from_ns) / _NS, 3) if done else None


class Stretch(msgspec.Struct, frozen=True):
    """Without a fact."""

    from_ns: int
    to_ns: int

    def after(self, at_ns: int) -> float:
        """Seconds of it that lie after an instant."""
        return max(0, self.to_ns - max(self.from_ns, at_ns)) / _NS


def stretches(
    found: Sequence[Fact], from_ns: int, to_ns: int, dues: Sequence[int] | None = None
) -> tuple[Stretch, ...]:
    """What lies between the beginning, each fact that was begun and done in this time, and the end.

    With `dues`, sorted: only from when something was due.
    """
    done = sorted(done_ns for begun_ns, done_ns in found if begun_ns >= from_ns and done_ns <= to_ns)
    all_of_it = [Stretch(one, other) for one, other in itertools.pairwise([from_ns, *done, to_ns])]
    if dues is None:
        return tuple(all_of_it)
    counted = []
    for each in all_of_it:
        at = bisect_left(dues, each.from_ns)
        if at < len(dues) and dues[at] < each.to_ns:
            counted.append(Stretch(dues[at], each.to_ns))
    return tuple(counted)


class _Judge:
    def __init__(self, limits: dict[str, float]) -> None:
        self.limits = limits
        self.steady = steady(limits)
        self.late: list[str] = []
        self.ceased: list[str] = []
        self.gaps: dict[str, float] = dict.fromkeys(limits, 0.0)

    def judge(self, part: str, who: str, found: Sequence[Stretch], from_ns: int, to_ns: int) -> None:
        limit, later_limit = self.limits[part], self.steady[part]
        limit_ns = round(limit * _NS)
        for number, each in enumerate(found):
            is_last = each.to_ns == to_ns
            took = each.after(0)
            later = each.after(found[0].from_ns + limit_ns)
            self.gaps[part] = max(self.gaps[part], round(later, 3))
            if number == 0 and took > limit:
                told = "not at all" if is_last else f"only after {took:.3f} s"
                self.late.append(f"{part}{who} worked {told} from {each.from_ns} on, and may take {limit} s")
            elif took > limit or later > later_limit:
                until = "until the end of the calm" if is_last else "and then again"
                within = limit if took > limit else later_limit
                self.ceased.append(
                    f"{part}{who} worked, and not for {max(took, later):.3f} s from {each.from_ns} on, {until}: "
                    f"{within:g} s are allowed, {(each.from_ns - from_ns) / _NS:.1f} s into a calm"
                )


def judge(
    run: dict[str, Any], found: dict[str, list[Fact]], limits: dict[str, float], lives: Iterable[Life] = ()
) -> RecoveryVerdict:
    """`limits` are of the parts in `found`, and of what each of the `lives` does by itself."""
    windows, judging, judged = [], _Judge(limits), 0
    if not run["calms"]:
        raise Unjudgeable("it was never calm")
    lives = list(lives)
    for calm in run["calms"]:
        from_ns, to_ns = calm["from_ns"], calm["to_ns"]
        up = [life for life in lives if life.joined_ns <= to_ns <= life.ended_ns]
        seconds: dict[str, float | None] = {}
        for part, limit in limits.items():
            if to_ns - from_ns < limit * _NS:
                raise Unjudgeable(f"it was calm for {(to_ns - from_ns) / _NS:.1f} s only: {part} may take longer")
            if part in OWN:
                continue
            # What nobody who could have looked at it was sure of is not waited for.
            dues = sorted(due for life in up for due in life.dues) if part == "sweep" else None
            seconds[part] = first_after(found[part], from_ns, to_ns)
            judging.judge(part, "", stretches(found[part], from_ns, to_ns, dues), from_ns, to_ns)
        for life in up:
            begun_ns = max(from_ns, life.joined_ns)
            for part in OWN:
                if to_ns - begun_ns < limits[part] * _NS:
                    continue
                judged += part == OWN[0]
                took = first_after(life.facts[part], begun_ns, to_ns)
                former = seconds.get(part, 0.0)
                seconds[part] = None if took is None or former is None else max(took, former)
                own = stretches(life.facts[part], begun_ns, to_ns)
                judging.judge(part, f" by {life.label}", own, begun_ns, to_ns)
        windows.append(Window(from_ns, to_ns, seconds))
    measured = {part: [took for each in windows if (took := each.seconds.get(part)) is not None] for part in limits}
    return RecoveryVerdict(
        calms=len(windows),
        bounds=limits,
        longest={part: max(found_, default=0.0) for part, found_ in measured.items()},
        spread={part: percentiles(found_) for part, found_ in measured.items()},
        gaps=judging.gaps,
        lives=judged,
        windows=tuple(windows),
        late=tuple(judging.late),
        ceased=tuple(judging.ceased),
    )


def judge_folder(folder: Path) -> RecoveryVerdict:
    lives = lives_of(folder)
    if not lives:
        raise Unjudgeable("nobody said that it had joined")
    return judge(json.loads((folder / "run.json").read_bytes()), facts(folder), bounds(), lives)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.recovery_judge", description="Judge recoveries.")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        verdict = judge_folder(arguments.folder)
    except (Unjudgeable, OSError, ValueError, KeyError) as failure:
        print(f"recovery_judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
