"""Did two processes hold one lock at the same instant, and did its tokens rise? The logs of `lab.lock_holder` say.

    python -m lab.lock_judge LOG... [--waits FILE]... [--killed BOOTTIME_NS]...

Prints one JSON object. Exits 1 if there is a violation in it, 2 if the logs cannot be judged.

What a line proves is what `lab.judge` says that it proves, with the token in the place of the epoch: an overlap that is
found was one. Tokens must rise from each holder to the next, and none may come twice. That holds of the waits as well,
where there are holders too short to be in a log: a token was given between the asking for it and the having it, so one
that was asked for when a higher one had been given already has gone back.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from lab.judge import Overlap, Reaction, Sample, Term, Unjudgeable, gone_back, judge, parse, text_of

_NS = 1_000_000_000


class LockVerdict(msgspec.Struct, frozen=True):
    samples: int
    holders: int
    """Processes that ever held it."""
    grants: int
    """Tokens that were seen to be held."""
    acquisitions: int
    """Those that a caller got, also if too short to be in the logs."""
    takeovers: tuple[Reaction, ...]
    """What followed each killing."""
    waits: dict[str, float]
    """Seconds from asking to having it: p50, p99, p99.9, longest."""
    longest_silence: float

    overlaps: tuple[Overlap, ...]
    """Two at once believed that they hold it."""
    entitled_overlaps: tuple[Overlap, ...]
    """Two at once might have been at work under it."""
    tokens_held_twice: tuple[int, ...]
    tokens_gone_back: tuple[tuple[int, int], ...]
    tokens_resumed: tuple[tuple[str, int], ...]
    acquired_twice: tuple[int, ...]
    without_token: tuple[str, ...]
    """Processes that believed that they hold it, under no token."""

    @property
    def violations(self) -> list[str]:
        return [name for name in _VIOLATIONS if getattr(self, name)]


_VIOLATIONS = (
    "overlaps",
    "entitled_overlaps",
    "tokens_held_twice",
    "tokens_gone_back",
    "tokens_resumed",
    "acquired_twice",
    "without_token",
)


class Acquisition(msgspec.Struct, frozen=True):
    asked_ns: int
    got_ns: int
    token: int

    def as_term(self) -> Term:
        """Given at some instant between the two, as a line of a log is true at one between its stamps."""
        sample = Sample(self.asked_ns, self.got_ns, "", self.token, True, True)
        return Term("", self.token, sample, sample)


def judge_locks(logs: Iterable[Path], waits: Iterable[Path] = (), killed_ns: Sequence[int] = ()) -> LockVerdict:
    samples = [sample for path in logs for sample in parse(text_of(path), str(path))[0]]
    verdict = judge(samples, killed_ns)
    acquisitions = [each for path in waits for each in read_waits(text_of(path), str(path))]
    tokens = Counter(each.token for each in acquisitions)
    back = {*verdict.epochs_gone_back, *gone_back([*verdict.terms, *(each.as_term() for each in acquisitions)])}
    return LockVerdict(
        samples=verdict.samples,
        holders=len(verdict.processes),
        grants=len(verdict.terms),
        acquisitions=len(acquisitions),
        takeovers=verdict.reactions,
        waits=percentiles([(each.got_ns - each.asked_ns) / _NS for each in acquisitions]),
        longest_silence=verdict.longest_silence,
        overlaps=verdict.overlaps,
        entitled_overlaps=verdict.holding_overlaps,
        tokens_held_twice=verdict.epochs_led_twice,
        tokens_gone_back=tuple(sorted(back, reverse=True)),
        tokens_resumed=verdict.terms_resumed,
        acquired_twice=tuple(sorted(token for token, count in tokens.items() if count > 1)),
        without_token=verdict.nameless,
    )


def read_waits(text: str, name: str = "waits") -> list[Acquisition]:
    found = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            asked, got, token = map(int, line.split(" "))
        except ValueError:
            raise Unjudgeable(f"{name}:{number}: not a line of a lock_holder: {line[:100]!r}") from None
        found.append(Acquisition(asked, got, token))
    return found


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return {"p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "longest": round(ordered[-1], 3)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.lock_judge", description="Judge the logs of lab.lock_holder.")
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--waits", action="append", type=Path, default=[], metavar="FILE")
    parser.add_argument("--killed", action="append", type=int, default=[], metavar="BOOTTIME_NS")
    arguments = parser.parse_args()
    try:
        verdict = judge_locks(arguments.logs, arguments.waits, arguments.killed)
    except (Unjudgeable, OSError) as failure:
        print(f"lock_judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
