"""Did every heart beat, and fast enough? Was every change of leader one that a kill explains? Files alone say.

`beats` are the files of `lab.load.watch`; `events` says which process was started, killed or asked to end, and when.
All instants are of CLOCK_BOOTTIME, which is one clock for all processes of a machine.

- Slow: 99 of 100 heartbeats took less than a third of the lease. What is taken for the duration of a heartbeat is never
  too short: if several were counted between two looks, each is taken for as long as all of them together.
- Too few beats: not half as many as there should have been. Then how long they took says little.
- Too few alive: at some second a coordinator had had no heartbeat for `worker_timeout`, though its process ran, and had
  been started long enough before.
- Unforced: somebody else came to lead, and the leader before had not been killed.
- Late: after a leader was killed nobody led within `worst_case_failover()`.
- No failover: not one leader was killed and followed by another. Then the run proves nothing about it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from lab.judge import Term, Unjudgeable, text_of
from lab.load.plan import Plan
from lab.lock_judge import percentiles

_NS = 1_000_000_000
_SHOWN = 10


class Beat(NamedTuple):
    at_ns: int
    number: int
    sum_us: int
    requests: int


class Life(msgspec.Struct):
    """One coordinator in one process."""

    name: str
    started_ns: int
    ended_ns: int = 2**62
    killed: bool = False
    beats: list[Beat] = []


class Window(NamedTuple):
    """The load."""

    from_ns: int
    to_ns: int

    @property
    def seconds(self) -> float:
        return (self.to_ns - self.from_ns) / _NS


class BeatVerdict(msgspec.Struct, frozen=True):
    heartbeats: int
    """That ended while there was load."""
    expected: int
    heartbeat: dict[str, float]
    """Seconds that one took: p50, p99, p99.9, longest."""
    between: dict[str, float]
    """Seconds from one heartbeat of a coordinator to its next, to a second."""
    renewals: int
    renewal: dict[str, float]
    """Seconds from one renewal of a leader to its next, as its lease was extended."""
    least_alive: int
    """Coordinators, at any second."""
    samples: int
    requests: int
    """Of all coordinators and their queues."""
    failovers: dict[str, float]
    """Seconds from a kill to the first belief of the next leader."""

    slow: tuple[str, ...]
    too_few_beats: tuple[str, ...]
    too_few_alive: tuple[str, ...]
    unforced: tuple[str, ...]
    late: tuple[str, ...]
    no_failover: tuple[str, ...]

    @property
    def violations(self) -> list[str]:
        return [name for name in VIOLATIONS if getattr(self, name)]


VIOLATIONS = ("slow", "too_few_beats", "too_few_alive", "unforced", "late", "no_failover")


class Files:
    """What the files say, without a judgement."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        """By process, as `name:pid`."""
        self.renewals: dict[tuple[str, int], list[int]] = defaultdict(list)
        """By process and epoch: until when the lease was known to hold."""

    def read_events(self, path: Path) -> None:
        for number, fields in _lines(path):
            match fields:
                case ["started", at, process]:
                    self.lives[process] = Life(process.rpartition(":")[0], int(at))
                case ["killed" | "terminated" as what, at, process] if process in self.lives:
                    self.lives[process].ended_ns = int(at)
                    self.lives[process].killed = what == "killed"
                case _:
                    raise _not_a_line(path, number, fields)

    def read_beats(self, path: Path) -> None:
        """After the events."""
        for number, fields in _lines(path):
            match fields:
                case ["beat", at, process, count, sum_us, requests] if process in self.lives:
                    self.lives[process].beats.append(Beat(int(at), int(count), int(sum_us), int(requests)))
                case ["renewed", _, process, epoch, until]:
                    self.renewals[process, int(epoch)].append(int(until))
                case _:
                    raise _not_a_line(path, number, fields)


def _lines(path: Path) -> Iterable[tuple[int, list[str]]]:
    # What is not ended by a newline was cut off by a kill.
    for number, line in enumerate(text_of(path).split("\n")[:-1], 1):
        yield number, line.split(" ")


def _not_a_line(path: Path, number: int, fields: Sequence[str]) -> Unjudgeable:
    return Unjudgeable(f"{path}:{number}: not a line that can be judged: {' '.join(fields)[:100]!r}")


def durations(life: Life, window: Window) -> list[float]:
    """Seconds that each heartbeat took that ended in the window; never too short."""
    found: list[float] = []
    for before, after in itertools.pairwise([Beat(life.started_ns, 0, 0, 0), *life.beats]):
        if window.from_ns <= after.at_ns <= window.to_ns:
            found += [(after.sum_us - before.sum_us) / 1e6] * (after.number - before.number)
    return found


def intervals(life: Life, window: Window) -> list[float]:
    return [
        (after.at_ns - before.at_ns) / _NS / (after.number - before.number)
        for before, after in itertools.pairwise(life.beats)
        if window.from_ns <= after.at_ns <= window.to_ns
    ]


def requests(life: Life, window: Window) -> int:
    inside = [beat.requests for beat in life.beats if window.from_ns <= beat.at_ns <= window.to_ns]
    before = [beat.requests for beat in life.beats if beat.at_ns < window.from_ns]
    return max(inside, default=0) - max(before, default=0) if inside else 0


def alive_at(life: Life, at_ns: int, timeout: float) -> bool:
    """It had a heartbeat lately."""
    return any(at_ns - timeout * _NS < beat.at_ns <= at_ns for beat in reversed(life.beats))


def silent(lives: Iterable[Life], window: Window, timeout: float, start_within: float) -> tuple[list[str], int, int]:
    """What is wrong at which second, how few were alive at any, and how many seconds were looked at."""
    found: list[str] = []
    least, samples = 2**62, 0
    everybody = list(lives)
    for at_ns in range(window.from_ns, window.to_ns, _NS):
        running = [life for life in everybody if life.started_ns <= at_ns < life.ended_ns]
        alive = {life.name for life in running if alive_at(life, at_ns, timeout)}
        due = {life.name for life in running if at_ns - life.started_ns > start_within * _NS}
        least, samples = min(least, len(alive)), samples + 1
        if missing := sorted(due - alive):
            second = (at_ns - window.from_ns) // _NS
            found.append(f"second {second}: {len(missing)} without a heartbeat, {', '.join(missing[:5])}")
    return found, least if samples else 0, samples


def unforced(terms: Sequence[Term], lives: dict[str, Life], until_ns: int) -> list[str]:
    """`terms` in the order in which they began."""
    found = []
    for old, new in itertools.pairwise(terms):
        life = lives.get(old.process)
        killed = life is not None and life.killed and life.ended_ns <= new.first.after_ns
        if not killed and new.first.after_ns <= until_ns:
            found.append(f"epoch {new.epoch} of {new.process} after {old.epoch} of {old.process}, who was not killed")
    return found


def failover_seconds(kill_ns: int, terms: Sequence[Term]) -> float | None:
    """From a kill to the first belief under a higher epoch than any before it; None: there was none."""
    known = max((term.epoch for term in terms if term.first.before_ns <= kill_ns), default=0)
    after = [term.first.after_ns for term in terms if term.epoch > known]
    return (min(after) - kill_ns) / _NS if after else None


def judge(
    files: Files, terms: Sequence[Term], kills_ns: Sequence[int], plan: Plan, window: Window, until_ns: int
) -> BeatVerdict:
    """`until_ns`: the end of what is judged of leaders, which is after the load if a failover took longer."""
    lives, config = files.lives, plan.config()
    took = [each for life in lives.values() for each in durations(life, window)]
    between = [each for life in lives.values() for each in intervals(life, window)]
    gaps = [
        (after - before) / _NS for untils in files.renewals.values() for before, after in itertools.pairwise(untils)
    ]
    expected = round(plan.coordinators * window.seconds / (config.heartbeat_interval + config.heartbeat_jitter))
    heartbeat = percentiles(took)
    silences, least, samples = silent(lives.values(), window, config.worker_timeout, plan.start_within)
    if least < plan.coordinators - len(plan.names(0)):
        silences.append(f"only {least} of {plan.coordinators} were alive at once, and one process at a time is killed")
    reactions = [failover_seconds(each, terms) for each in kills_ns]
    bound = config.worst_case_failover()
    late = [
        f"{seconds if seconds is not None else 'never'}, and {bound:g} s are promised"
        for seconds in reactions
        if seconds is None or seconds > bound
    ]
    done = [seconds for seconds in reactions if seconds is not None]
    return BeatVerdict(
        heartbeats=len(took),
        expected=expected,
        heartbeat=heartbeat,
        between=percentiles(between),
        renewals=sum(map(len, files.renewals.values())),
        renewal=percentiles(gaps),
        least_alive=least,
        samples=samples,
        requests=sum(requests(life, window) for life in lives.values()),
        failovers=percentiles(done),
        slow=(f"p99 is {heartbeat['p99']:g} s, and a third of the lease {plan.longest_p99:g} s",)
        if took and heartbeat["p99"] >= plan.longest_p99
        else (),
        too_few_beats=(f"{len(took)} heartbeats, and there should be {expected}",) if 2 * len(took) < expected else (),
        too_few_alive=tuple(silences[:_SHOWN]),
        unforced=tuple(unforced(terms, lives, until_ns)[:_SHOWN]),
        late=tuple(late),
        no_failover=() if done else ("not one leader was killed and followed by another",),
    )
