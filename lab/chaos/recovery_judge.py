"""Did every part work again, in good time, whenever nothing was wrong any more? Files alone say.

    python -m lab.chaos.recovery_judge FOLDER

Prints one JSON object. Exits 1 if there is a violation in it, 2 if the files cannot be judged.

`run.json` in the folder says from when to when it was calm. A part works again with the first fact of its log after
the calm began: somebody leads, the supervised program runs, the lock was got, a message that was enqueued then was
handled, an amount that was added then was accepted, a job ran, a record that was inserted then was stored.

Bounds are those of the settings that the processes have (`lab.pace`), and no measurements:

- who leads, and so whose children run: `worst_case_failover()`, which allows for a breaker that opened just before;
- the lock: a lease of it that nobody renews any more, the wait between two looks, and one holder that keeps it long;
- what the leader decides (queue, schedule): that of the election, and `_REQUESTS` more, each given up once: to catch
  up, to write the first entry, to give out and to hear of it;
- what only the store decides (counters, expiry): what a caller waits for one that is given up, and one more.

Programs start, and a machine with every process of the run on two cores has its pauses: a lease is added to each.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lab.judge import Unjudgeable
from lab.lock_judge import percentiles
from lab.pace import LEASE, config

_NS = 1_000_000_000
_REQUESTS = 5
_LOCK_TTL = 2 / 3 * LEASE
SLACK = LEASE


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
            "lock": _LOCK_TTL * (1 + settings.drift) + 0.1 + _LOCK_TTL / 8 + 5 / 3 * LEASE,
            "queue": elected + _REQUESTS * request,
            "schedule": elected + _REQUESTS * request,
            "counters": 10 / 3 * LEASE,
            "expiry": 10 / 3 * LEASE,
        }.items()
    }


class Window(msgspec.Struct, frozen=True):
    from_ns: int
    to_ns: int
    seconds: dict[str, float | None]
    """From the beginning of the calm until each part worked; None: it did not."""


class RecoveryVerdict(msgspec.Struct, frozen=True):
    calms: int
    bounds: dict[str, float]
    longest: dict[str, float]
    spread: dict[str, dict[str, float]]
    windows: tuple[Window, ...]
    late: tuple[str, ...]

    @property
    def violations(self) -> list[str]:
        return ["late"] if self.late else []


def lines(folder: Path, part: str) -> Iterator[list[str]]:
    for path in sorted(folder.glob(f"*.{part}")):
        for line in path.read_text().split("\n")[:-1]:
            yield line.split(" ")


def led(folder: Path, part: str) -> list[int]:
    """Instants at which somebody was known to lead, or to run."""
    return sorted(int(fields[1]) for fields in lines(folder, part) if len(fields) == 6 and fields[4] == "1")


def answered(folder: Path, part: str, asking: str, answer: str, at: int, has: int) -> list[tuple[int, int]]:
    """(when something was asked for, when it was answered), by what stands in the field `at` of both."""
    asked: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for fields in lines(folder, part):
        if fields[0] == asking:
            for each in fields[at:]:
                asked[":".join(each.split(":")[:has]) if has else each] = int(fields[1])
        elif fields[0] == answer:
            found += [(asked[each], int(fields[1])) for each in fields[at:] if each in asked]
    return found


def handled(folder: Path) -> list[tuple[int, int]]:
    sent = {body: int(fields[1]) for fields in lines(folder, "sent") if fields[0] == "sending" for body in fields[3:]}
    return [
        (sent[fields[3]], int(fields[1]))
        for fields in lines(folder, "handled")
        if fields[0] == "ended" and fields[3] in sent
    ]


def facts(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """By part: (when it was begun, when it was done)."""
    return {
        "election": [(at, at) for at in led(folder, "belief")],
        "program": [(at, at) for at in led(folder, "program")],
        "lock": [(int(fields[1]), int(fields[1])) for fields in lines(folder, "waits") if len(fields) == 3],
        "queue": handled(folder),
        "schedule": [(int(fields[1]), int(fields[1])) for fields in lines(folder, "runs") if fields[0] == "began"],
        "counters": answered(folder, "notes", "adding", "added", 3, 2),
        "expiry": answered(folder, "expiry", "inserting", "inserted", 3, 0),
    }


def first_after(found: Sequence[tuple[int, int]], from_ns: int, to_ns: int) -> float | None:
    done = [done_ns for begun_ns, done_ns in found if begun_ns >= from_ns and done_ns <= to_ns]
    return round((min(done) - from_ns) / _NS, 3) if done else None


def judge(run: dict[str, Any], found: dict[str, list[tuple[int, int]]], limits: dict[str, float]) -> RecoveryVerdict:
    windows, late = [], []
    if not run["calms"]:
        raise Unjudgeable("it was never calm")
    for calm in run["calms"]:
        from_ns, to_ns = calm["from_ns"], calm["to_ns"]
        seconds = {part: first_after(found[part], from_ns, to_ns) for part in limits}
        windows.append(Window(from_ns, to_ns, seconds))
        for part, took in seconds.items():
            if to_ns - from_ns < limits[part] * _NS:
                raise Unjudgeable(f"it was calm for {(to_ns - from_ns) / _NS:.1f} s only: {part} may take longer")
            if took is None or took > limits[part]:
                told = f"only after {took} s" if took is not None else "not at all"
                late.append(f"{part} worked {told} from {from_ns} on, and may take {limits[part]} s")
    measured = {part: [took for each in windows if (took := each.seconds[part]) is not None] for part in limits}
    return RecoveryVerdict(
        calms=len(windows),
        bounds=limits,
        longest={part: max(found_, default=0.0) for part, found_ in measured.items()},
        spread={part: percentiles(found_) for part, found_ in measured.items()},
        windows=tuple(windows),
        late=tuple(late),
    )


def judge_folder(folder: Path) -> RecoveryVerdict:
    return judge(json.loads((folder / "run.json").read_bytes()), facts(folder), bounds())


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
