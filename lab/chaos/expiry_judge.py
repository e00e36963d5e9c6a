"""Did a record expire early, come back, stay for too long, or for ever? Files alone say.

    python -m lab.chaos.expiry_judge --left FILE --run FILE LOG...

Prints one JSON object. Exits 1 if there is a violation in it, 2 if the files cannot be judged.

Each line of a log is one `write`, of one process:

    inserting NS PROCESS ID TTL_MS      insert is called; the record is to live for so long
    inserted NS PROCESS ID              it has returned
    touching NS PROCESS ID TTL_MS       touch is called
    touched NS PROCESS ID               it has returned
    gone NS PROCESS ID                  it has raised: there is no such record
    unsure NS PROCESS ID ERROR          either has raised otherwise, and may have happened
    looked NS TOLD_NS PROCESS ID THERE  exists was called, and has returned 1 or 0

A record lives, for certain, from the return of its insert until a ttl after the last call that returned was *made*: the
store counts from an instant that is later than that. Whoever looks within that time and is told that there is none,
found it expired early. One that was gone for certain and is there again came back. `--left` is what the resource held
when all of it should have expired.

It is due, at the latest, a ttl after the last call returned; a call that nobody is sure of may have been held back for
as long as any request is, and landed then. `--run` says when it was calm: whoever looks then and is told that it is
there, later than a sweep may take (`lab.chaos.recovery_judge`) since it was due and since the calm began, found it
late.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from lab.chaos.plan import LATENCY_SECONDS
from lab.chaos.recovery_judge import bounds
from lab.judge import Unjudgeable

_MS = 1_000_000


class Life(msgspec.Struct):
    """Of one record."""

    inserted_ns: int | None = None
    until_ns: int = 0
    """It lives until then, for certain."""
    begun: int | None = None
    """When the call that is under way was made ..."""
    lives_ms: int = 0
    latest_ns: int = 0
    """Its time comes then, at the latest."""
    gone_ns: int | None = None
    """It was certainly gone at that instant."""


class ExpiryVerdict(msgspec.Struct, frozen=True):
    records: int
    inserted: int
    touches: int
    too_late: int
    """Touches that found the record gone."""
    unsure: int
    looks: int
    found_gone: int
    """Looks, after its time."""

    early: tuple[str, ...]
    came_back: tuple[str, ...]
    late: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def violations(self) -> list[str]:
        return [name for name in VIOLATIONS if getattr(self, name)]


VIOLATIONS = ("early", "came_back", "late", "left")


class Judge:
    """Lines of one process must come in order; a record is only ever touched by the process that inserted it."""

    def __init__(self, calms: Iterable[tuple[int, int]] = ()) -> None:
        self.calms = list(calms)
        self.limit_ns = round(bounds()["sweep"] * 1e9)
        self.lives: dict[str, Life] = {}
        self.counts = dict.fromkeys(("inserted", "touches", "too_late", "unsure", "looks", "found_gone"), 0)
        self.early: list[str] = []
        self.came_back: list[str] = []
        self.late: list[str] = []

    def take(self, fields: list[str]) -> bool:
        match fields:
            case ["inserting", at, _, id, ttl]:
                self.lives[id] = Life(begun=int(at), lives_ms=int(ttl))
            case ["touching", at, _, id, ttl] if id in self.lives:
                self.lives[id].begun, self.lives[id].lives_ms = int(at), int(ttl)
                self.counts["touches"] += 1
            case ["inserted" | "touched" as what, at, _, id] if id in self.lives and self.lives[id].begun is not None:
                self._returned(self.lives[id], what, id, int(at))
            case ["gone", at, _, id] if id in self.lives and self.lives[id].begun is not None:
                self.counts["too_late"] += 1
                self._absent(self.lives[id], id, int(at), int(at))
            case ["unsure", at, _, id, _] if id in self.lives:
                self.counts["unsure"] += 1
                life = self.lives[id]
                life.latest_ns = max(life.latest_ns, int(at) + round(LATENCY_SECONDS * 1e9) + life.lives_ms * _MS)
                life.begun = None
            case ["looked", asked, told, _, id, there] if id in self.lives and there in ("0", "1"):
                self.counts["looks"] += 1
                life = self.lives[id]
                if there == "0":
                    self.counts["found_gone"] += 1
                    self._absent(life, id, int(asked), int(told))
                elif life.gone_ns is not None:
                    self.came_back.append(f"{id} was there at {asked}, and gone at {life.gone_ns}")
                else:
                    self._present(life, id, int(asked), int(told))
            case _:
                return False
        return True

    def _returned(self, life: Life, what: str, id: str, at_ns: int) -> None:
        assert life.begun is not None
        if what == "inserted":
            life.inserted_ns = at_ns
            self.counts["inserted"] += 1
        elif life.gone_ns is not None:
            self.came_back.append(f"{id} was touched at {at_ns}, and gone at {life.gone_ns}")
        life.until_ns = max(life.until_ns, life.begun + life.lives_ms * _MS)
        life.latest_ns = max(life.latest_ns, at_ns + life.lives_ms * _MS)
        life.begun = None

    def _absent(self, life: Life, id: str, asked_ns: int, told_ns: int) -> None:
        if life.inserted_ns is None:
            return  # it may never have been there
        if told_ns < life.until_ns and asked_ns > life.inserted_ns:
            self.early.append(f"{id} was gone {(life.until_ns - told_ns) / 1e9:.3f} s before its time, at {told_ns}")
        life.gone_ns, life.begun = told_ns, None

    def _present(self, life: Life, id: str, asked_ns: int, told_ns: int) -> None:
        if life.begun is not None:
            return  # a call is under way that may make it live on
        for from_ns, to_ns in self.calms:
            since_ns = max(life.latest_ns, from_ns)
            if from_ns <= asked_ns and told_ns <= to_ns and asked_ns - since_ns > self.limit_ns:
                self.late.append(
                    f"{id} was there at {asked_ns}, {(asked_ns - since_ns) / 1e9:.3f} s after it was due in a calm"
                )

    def verdict(self, left: Iterable[str]) -> ExpiryVerdict:
        return ExpiryVerdict(
            records=len(self.lives),
            **self.counts,
            early=tuple(self.early[:20]),
            came_back=tuple(self.came_back[:20]),
            late=tuple(self.late[:20]),
            left=tuple(sorted(left)[:20]),
        )


def judge_files(logs: Iterable[Path], left: Path | None, run: Path | None = None) -> ExpiryVerdict:
    calms = json.loads(run.read_bytes())["calms"] if run is not None else []
    judge = Judge((calm["from_ns"], calm["to_ns"]) for calm in calms)
    for path in logs:
        for number, line in enumerate(path.read_text().split("\n")[:-1], 1):
            if not judge.take(line.split(" ")):
                raise Unjudgeable(f"{path}:{number}: not a line that can be judged: {line[:100]!r}")
    return judge.verdict(left.read_text().split() if left is not None else ())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.expiry_judge", description="Judge records that expire.")
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--left", type=Path, metavar="FILE")
    parser.add_argument("--run", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    try:
        verdict = judge_files(arguments.logs, arguments.left, arguments.run)
    except (Unjudgeable, OSError, ValueError, KeyError) as failure:
        print(f"expiry_judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
