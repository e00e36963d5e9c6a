"""Can the logs of a run be judged at all? Files alone say.

    python -m lab.chaos.log_judge FOLDER

Prints one JSON object. Exits 1 if there is a violation in it, 2 if nothing can be told.

A log that is empty, that ends early, or that is stamped by another clock has no violation in it, whatever its process
did. `events` says when each process was started, stopped, continued and ended; its own output, when it had joined. So:

- every stamp in a log lies between the start and the end of its process, give or take `GRACE`;
- whoever had joined believes, or not, until it is asked to end: no two lines of `belief` lie further apart than
  `GRACE`, but for the time for which it was stopped;
- whenever it got the lock, it noted at once what it believes of that;
- if it was there for longer than `GRACE`, it has begun to enqueue, to count and to insert.

The n-th `started` of a name is its life n, and has the files `NAME-n.*`, here or in the folder of what was noted after
the wiping, where only leaders and their children are judged.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from lab.chaos.recovery_judge import joined
from lab.judge import Unjudgeable
from lab.pace import LEASE

_NS = 1_000_000_000
GRACE = 5 * LEASE
"""Seconds for which a busy machine may keep a process waiting, at most; a line is written every 10 ms."""
_GRACE_NS = round(GRACE * _NS)
_NEVER = 2**62
WIPED = "wiped"
BELIEFS = {"belief": "election", "service": "service", "program": "program"}
PARTS = {
    **BELIEFS,
    "lock": "lock",
    "waits": "lock",
    "sent": "queue",
    "handled": "queue",
    "runs": "schedule",
    "notes": "counters",
    "expiry": "expiry",
}
"""The part of the verdict that each log is judged for."""
_OF_ITSELF = frozenset({"belief", "service", "lock"})
"""Whose lines carry the process itself; a program is another one."""
_TWO_STAMPS = frozenset({*BELIEFS, "lock", "waits"})
"""Lines that begin with two instants; the others have one, after a word."""
_BEGUN = ("sent", "notes", "expiry")


class Life(msgspec.Struct):
    process: str
    started_ns: int
    asked_ns: int = _NEVER
    """It was killed then, or asked to end."""
    ended_ns: int = _NEVER
    stops: list[tuple[int, int]] = []
    joined_ns: int | None = None

    def silence(self, from_ns: int, to_ns: int) -> int:
        """What lies between two instants, without the time for which it was stopped."""
        stopped = sum(max(0, min(to_ns, high) - max(from_ns, low)) for low, high in self.stops)
        return to_ns - from_ns - stopped


class LogVerdict(msgspec.Struct, frozen=True):
    lives: int
    joined: int
    lines: int
    longest_silence: float
    """Between two lines of belief, of a process that was not stopped: seconds."""
    unjudged: dict[str, list[str]]
    """By part: why it cannot be judged."""

    @property
    def violations(self) -> list[str]:
        return ["unjudged"] if self.unjudged else []


def read_events(path: Path) -> dict[str, Life]:
    """By label: `n1-3` is the third life of n1."""
    lives: dict[str, Life] = {}
    by_process: dict[str, Life] = {}
    started: Counter[str] = Counter()
    stopped: dict[str, int] = {}
    for line in path.read_text().split("\n")[:-1]:
        what, at, process, *_ = line.split(" ")
        name, at_ns = process.partition(":")[0], int(at)
        if what == "started":
            started[name] += 1
            life = lives[f"{name}-{started[name]}"] = by_process[process] = Life(process, at_ns, stops=[])
        elif process in by_process:
            life = by_process[process]
            if what in ("killed", "terminated"):
                life.asked_ns = min(life.asked_ns, at_ns)
            if what in ("killed", "ended"):
                life.ended_ns = min(life.ended_ns, at_ns)
            if what == "stopped":
                stopped[process] = at_ns
            elif what in ("continued", "killed") and process in stopped:
                life.stops.append((stopped.pop(process), at_ns))
    return lives


class Judge:
    def __init__(self, lives: dict[str, Life]) -> None:
        self.lives = lives
        self.lines = 0
        self.longest_ns = 0
        self.unjudged: dict[str, list[str]] = defaultdict(list)

    def read(self, folder: Path, parts: Sequence[str]) -> None:
        for output in sorted(folder.glob("*.out")):
            self._joined(output)
        for part in parts:
            for path in sorted(folder.glob(f"*.{part}")):
                if path.stem in self.lives:
                    self._stamps(path, part, self.lives[path.stem])
                elif path.stat().st_size:
                    self._cannot(part, f"{path.name}: no such process was started")
        for output in sorted(folder.glob("*.out")):
            life = self.lives.get(output.stem)
            if life is not None and life.joined_ns is not None:
                self._goes_on(output, life, life.joined_ns, parts)

    def _joined(self, output: Path) -> None:
        said, life = joined(output), self.lives.get(output.stem)
        if said is None:
            return
        if life is None or life.process != said[1]:
            self._cannot("belief", f"{output.name}: {said[1]} has joined, and was not started")
            return
        life.joined_ns = said[0]

    def _cannot(self, part: str, why: str) -> None:
        self.unjudged[PARTS[part]].append(why)

    def _stamps(self, path: Path, part: str, life: Life) -> None:
        """All of its own process, and while that lived."""
        late_ns = life.ended_ns + _GRACE_NS
        for number, fields in enumerate(_lines(path), 1):
            self.lines += 1
            stamps = fields[:2] if part in _TWO_STAMPS else fields[1:2]
            try:
                outside = [at for at in map(int, stamps) if not life.started_ns - _GRACE_NS <= at <= late_ns]
            except ValueError:
                return  # its own judge tells
            if outside:
                why = f"{outside[0]} is not between start and end ({life.started_ns}, {life.ended_ns})"
            elif part in _OF_ITSELF and len(fields) > 2 and fields[2] != life.process:
                why = f"{fields[2]} is not {life.process}"
            else:
                continue
            self._cannot(part, f"{path.name}:{number}: {why}")
            return

    def _goes_on(self, output: Path, life: Life, joined_ns: int, parts: Sequence[str]) -> None:
        belief = output.with_suffix(".belief")
        ats = [joined_ns, *(at for at in _instants(belief) if at > joined_ns)]
        # What was written while it was ending is there as well.
        ats += [life.asked_ns] if ats[-1] < life.asked_ns < _NEVER else []
        for before_ns, after_ns in itertools.pairwise(ats):
            silence = life.silence(before_ns, after_ns)
            self.longest_ns = max(self.longest_ns, silence)
            if silence > _GRACE_NS:
                what = "ends" if after_ns == life.asked_ns else "is silent"
                self._cannot(
                    "belief", f"{belief.name} {what} at {before_ns}, and its process went on: {silence / _NS:.1f} s"
                )
                break
        if "lock" in parts:
            self._notes_its_locks(output, life)
        was_there = life.asked_ns < _NEVER and life.silence(joined_ns, life.asked_ns) > _GRACE_NS
        for part in _BEGUN:
            path = output.with_suffix(f".{part}")
            if part in parts and was_there and not (path.exists() and path.stat().st_size):
                self._cannot(part, f"{path.name} is empty, and {life.process} had joined")

    def _notes_its_locks(self, output: Path, life: Life) -> None:
        noted = sorted(_instants(output.with_suffix(".lock")))
        for fields in _lines(output.with_suffix(".waits")):
            got_ns = int(fields[1])
            at = bisect.bisect_left(noted, got_ns)
            if at == len(noted) or life.silence(got_ns, noted[at]) > _GRACE_NS:
                self._cannot("lock", f"{output.stem}.lock says nothing of what was got at {got_ns}: {' '.join(fields)}")
                return

    def verdict(self) -> LogVerdict:
        return LogVerdict(
            lives=len(self.lives),
            joined=sum(life.joined_ns is not None for life in self.lives.values()),
            lines=self.lines,
            longest_silence=round(self.longest_ns / _NS, 3),
            unjudged={part: found[:10] for part, found in sorted(self.unjudged.items())},
        )


def _lines(path: Path) -> Iterator[list[str]]:
    if path.exists():
        for line in path.read_text(errors="replace").split("\n")[:-1]:
            yield line.split(" ")


def _instants(path: Path) -> Iterator[int]:
    """When each line of a belief was ended."""
    for fields in _lines(path):
        if len(fields) == 6 and fields[1].isdecimal():
            yield int(fields[1])


def judge_folder(folder: Path) -> LogVerdict:
    judge = Judge(read_events(folder / "events"))
    judge.read(folder, list(PARTS))
    judge.read(folder / WIPED, list(BELIEFS))
    verdict = judge.verdict()
    if not verdict.joined:
        raise Unjudgeable("nobody said that it had joined")
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.log_judge", description="Can these logs be judged?")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        verdict = judge_folder(arguments.folder)
    except (Unjudgeable, OSError, ValueError, KeyError) as failure:
        print(f"log_judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
