"""Was anything lost, and why was anything handled twice? Files alone say.

    python -m lab.queue_judge --sent FILE... --handled FILE... --events FILE [--within SECONDS] [--visibility SECONDS]

Prints one JSON object. Exits 1 if there is a violation in it, 2 if the files cannot be judged.

`--sent` are the logs of `lab.queue_producer`, `--handled` those of `lab.queue_worker`, and the events are what
`lab.queue_cluster` did to them: `killed`, `stopped`, `continued`, `terminated`, each with the instant and the process,
and `cut`, `restored`, for a worker by its name alone, while what it sends may not get through.
All instants are of CLOCK_BOOTTIME, which is one clock for all processes of a machine.

- Lost: accepted, and no handling of it has ended.
- Again: handled once more under a higher token, though a report on an earlier handling was durable in time.
- Unexplained: handled once more, and the process that had it before was not killed meanwhile, was not stopped and was
  not cut off from the store (while it handled, or so shortly after that it cannot have reported: `UNREPORTED`), was not
  late, and was not stopped short by SIGTERM.
- Of an ordering key: first handlings are in the order of sending, and no two at once, but for a process that was
  stopped or late at that time.
- Tokens rise from each handling of a message to the next, and no two have the same. Only who was stopped as it was to
  begin may have noted so too late.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from lab.judge import Unjudgeable, text_of
from lab.lock_judge import percentiles

_NS = 1_000_000_000
UNREPORTED = 5.0
"""Seconds that the report on a handling may take. Who is killed, stopped or cut off later than this had reported it."""
_UNREPORTED_NS = round(UNREPORTED * _NS)


class Handling(msgspec.Struct):
    began_ns: int
    process: str
    body: str
    id: str
    place: str
    token: int
    attempt: int
    ended_ns: int | None = None
    remaining_ms: int = 0
    acked_ns: int | None = None

    @property
    def key(self) -> str:
        return self.body.split(":")[2]


class Deed(msgspec.Struct, frozen=True):
    at_ns: int
    what: str
    process: str


class Redelivery(msgspec.Struct, frozen=True):
    """A message that a process had begun, and not ended, when it was killed."""

    body: str
    killed: str
    seconds: float | None
    """From the kill to the next handling; None: there was none."""


class QueueVerdict(msgspec.Struct, frozen=True):
    accepted: int
    not_accepted: int
    """Sent, and their producer was never told: they may have been handled or not."""
    handled: int
    """Messages, of those accepted."""
    handlings: int
    duplicates: int
    """Handlings beyond the first of each message."""
    explained: dict[str, int]
    longest_unreported: float
    """Seconds from the end of a handling to the kill that kept it from being reported, at most."""
    kills: int
    redelivery: dict[str, float]
    """Seconds from a kill to the next handling of what was cut short: p50, p99, p99.9, longest."""
    in_vain: int
    """Attempts that no handler was called for: what a killed process had in hand, or was given after its death."""
    seconds: float
    """From the first call to the last end of a handling."""

    lost: tuple[str, ...]
    phantoms: tuple[str, ...]
    """Handled, and never sent."""
    unexplained: tuple[str, ...]
    again: tuple[str, ...]
    copies: tuple[str, ...]
    """Bodies that were sent once, and became two messages."""
    out_of_order: tuple[str, ...]
    two_at_once: tuple[str, ...]
    tokens_not_rising: tuple[str, ...]
    redelivered_late: tuple[str, ...]

    @property
    def violations(self) -> list[str]:
        return [name for name in VIOLATIONS if getattr(self, name)]


VIOLATIONS = (
    "lost",
    "phantoms",
    "unexplained",
    "again",
    "copies",
    "out_of_order",
    "two_at_once",
    "tokens_not_rising",
    "redelivered_late",
)


class Files:
    """What the files say, without a judgement."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, str, str]] = []
        """When, by whom, what; in the order of sending."""
        self.accepted: dict[str, int] = {}
        self.handlings: list[Handling] = []
        self.deeds: list[Deed] = []
        self.late: dict[str, list[int]] = defaultdict(list)
        self._open: dict[tuple[str, str, int], Handling] = {}
        self._acks: list[tuple[int, str, int, str]] = []

    def read_sent(self, path: Path) -> None:
        for number, fields in _lines(path):
            match fields:
                case ["sending", at, process, *bodies]:
                    self.sent += [(int(at), process, body) for body in bodies]
                case ["accepted", at, _, *bodies]:
                    self.accepted.update((body, int(at)) for body in bodies)
                case ["unknown", _, _, _]:
                    pass
                case _:
                    raise _not_a_line(path, number, fields)

    def read_handled(self, path: Path) -> None:
        for number, fields in _lines(path):
            match fields:
                case ["began", at, process, body, id, place, token, attempt]:
                    handling = Handling(int(at), process, body, id, place, int(token), int(attempt))
                    self.handlings.append(handling)
                    self._open[process, id, handling.token] = handling
                case ["ended", at, process, _, id, token, remaining]:
                    found = self._open.get((process, id, int(token)))
                    if found is None:
                        raise _not_a_line(path, number, fields)
                    found.ended_ns, found.remaining_ms = int(at), int(remaining)
                case ["acked", at, process, token, places]:
                    self._acks.append((int(at), process, int(token), places))
                case ["late", at, process, _, _]:
                    self.late[process].append(int(at))
                case _:
                    raise _not_a_line(path, number, fields)

    def read_events(self, path: Path) -> None:
        for number, fields in _lines(path):
            if len(fields) < 3:
                raise _not_a_line(path, number, fields)
            self.deeds.append(Deed(int(fields[1]), fields[0], fields[2]))

    def settle(self) -> None:
        """Know of each handling whether it was reported in time."""
        acked: dict[tuple[str, int, str], int] = {}
        for at_ns, process, token, places in self._acks:
            for piece in places.split(","):
                segment, low, high = piece.rsplit(":", 2)
                for index in range(int(low), int(high)):
                    acked[process, token, f"{segment}:{index}"] = at_ns
        for handling in self.handlings:
            handling.acked_ns = acked.get((handling.process, handling.token, handling.place))
        self.handlings.sort(key=lambda each: each.began_ns)


def _lines(path: Path) -> Iterable[tuple[int, list[str]]]:
    # What is not ended by a newline was cut off by a kill.
    for number, line in enumerate(text_of(path).split("\n")[:-1], 1):
        yield number, line.split(" ")


def _not_a_line(path: Path, number: int, fields: Sequence[str]) -> Unjudgeable:
    return Unjudgeable(f"{path}:{number}: not a line that can be judged: {' '.join(fields)[:100]!r}")


class Judge:
    def __init__(self, files: Files, visibility: float) -> None:
        self.files = files
        self._visibility_ns = round(visibility * _NS)
        self.explained: Counter[str] = Counter()
        self.longest_unreported = 0.0
        self._ended: dict[str, tuple[int, str]] = {}
        self._pauses: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._cuts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        stopped: dict[str, int] = {}
        cut: dict[str, list[int]] = defaultdict(list)
        for deed in sorted(files.deeds, key=lambda each: each.at_ns):
            if deed.what in ("killed", "terminated"):
                # Who was asked to end, and then killed, was killed.
                self._ended[deed.process] = (deed.at_ns, deed.what)
            elif deed.what == "stopped":
                stopped[deed.process] = deed.at_ns
            elif deed.what == "cut":
                cut[deed.process].append(deed.at_ns)
            elif deed.what == "restored" and cut[deed.process]:
                # Several may overlap: whichever of them has ended, all that began lasted until now.
                self._cuts[deed.process].append((cut[deed.process].pop(), deed.at_ns))
            if deed.what in ("continued", "killed") and deed.process in stopped:
                self._pauses[deed.process].append((stopped.pop(deed.process), deed.at_ns))
        for process, at_ns in stopped.items():
            self._pauses[process].append((at_ns, 2**62))
        for name, begun in cut.items():
            self._cuts[name] += [(at_ns, 2**62) for at_ns in begun]

    def killed_ns(self, process: str) -> int | None:
        at_ns, what = self._ended.get(process, (0, ""))
        return at_ns if what == "killed" else None

    def was_stopped(self, process: str, from_ns: int, until_ns: int) -> bool:
        return any(low <= until_ns and high >= from_ns for low, high in self._pauses[process])

    def was_cut(self, process: str, from_ns: int, until_ns: int) -> bool:
        return any(low <= until_ns and high >= from_ns for low, high in self._cuts[process.rpartition(":")[0]])

    def was_late(self, handling: Handling, until_ns: int) -> bool:
        """Its time was over before it ended, or it told itself that a report came late."""
        if handling.ended_ns is None:
            return until_ns - handling.began_ns >= self._visibility_ns
        if handling.remaining_ms <= 0:
            return True
        return any(handling.ended_ns <= at_ns <= until_ns + _NS for at_ns in self.files.late[handling.process])

    def why_again(self, before: Handling, after: Handling) -> str | None:
        """What kept `before` from being the last handling."""
        ended_ns, how = self._ended.get(before.process, (2**62, ""))
        if how == "killed" and before.began_ns <= ended_ns <= after.began_ns:
            if before.ended_ns is None:
                return "killed in mid-message"
            unreported = (ended_ns - before.ended_ns) / _NS
            if unreported <= UNREPORTED and before.acked_ns is None:
                self.longest_unreported = max(self.longest_unreported, unreported)
                return "killed before its report"
        until_ns = after.began_ns
        if before.ended_ns is not None:
            until_ns = min(until_ns, before.ended_ns + _UNREPORTED_NS)
        if self.was_stopped(before.process, before.began_ns, until_ns):
            return "stopped"
        if self.was_late(before, after.began_ns):
            return "late"
        if self.was_cut(before.process, before.began_ns, until_ns):
            return "cut off"
        if before.ended_ns is None and before.began_ns <= ended_ns <= after.began_ns:
            return "cut short by SIGTERM"  # a kill was told above
        return None

    def judge(self, within: float | None) -> QueueVerdict:
        files = self.files
        sendings = Counter(body for _, _, body in files.sent)
        by_id: dict[str, list[Handling]] = defaultdict(list)
        ids: dict[str, set[str]] = defaultdict(set)
        for handling in files.handlings:
            by_id[handling.id].append(handling)
            ids[handling.body].add(handling.id)
        done = {handling.body for handling in files.handlings if handling.ended_ns is not None}
        unexplained: list[str] = []
        again: list[str] = []
        tokens: list[str] = []
        for handlings in by_id.values():
            tokens += self._tokens(handlings)
            ordered = sorted(handlings, key=lambda each: each.token)
            for before, after in itertools.pairwise(ordered):
                if before.acked_ns is not None:
                    again.append(f"{_told(after)}, and {_told(before)} was reported")
                why = self.why_again(before, after)
                if why is None:
                    unexplained.append(f"{_told(after)}, after {_told(before)}")
                else:
                    self.explained[why] += 1
        redeliveries = self._redeliveries(by_id)
        ends = [each.ended_ns for each in files.handlings if each.ended_ns is not None]
        first = min((at_ns for at_ns, _, _ in files.sent), default=0)
        return QueueVerdict(
            accepted=len(files.accepted),
            not_accepted=len(sendings.keys() - files.accepted.keys()),
            handled=len(done & files.accepted.keys()),
            handlings=len(files.handlings),
            duplicates=len(files.handlings) - len(by_id),
            explained=dict(self.explained),
            longest_unreported=round(self.longest_unreported, 3),
            kills=sum(what == "killed" for _, what in self._ended.values()),
            redelivery=percentiles([each.seconds for each in redeliveries if each.seconds is not None]),
            in_vain=sum(max(0, max(each.attempt for each in found) - len(found)) for found in by_id.values()),
            seconds=round((max(ends, default=first) - first) / _NS, 3),
            lost=_some(files.accepted.keys() - done),
            phantoms=_some(ids.keys() - sendings.keys()),
            unexplained=_some(unexplained),
            again=_some(again),
            copies=_some(f"{body}: {sorted(found)}" for body, found in ids.items() if len(found) > sendings[body] > 0),
            out_of_order=_some(self._out_of_order(sendings)),
            two_at_once=_some(self._two_at_once()),
            tokens_not_rising=_some(tokens),
            redelivered_late=_some(
                f"{each.body}: {each.seconds} s after {each.killed} was killed"
                for each in redeliveries
                if within is not None and each.body in files.accepted and (each.seconds or 2**62) > within
            ),
        )

    def _tokens(self, handlings: Sequence[Handling]) -> Iterable[str]:
        """In the order of their beginnings; who was stopped between being told to begin and noting it is late."""
        highest: Handling | None = None
        for handling in handlings:
            if highest is not None:
                same = handling.token == highest.token
                was_paused = self.was_stopped(handling.process, highest.began_ns - _UNREPORTED_NS, handling.began_ns)
                if same or (handling.token < highest.token and not was_paused):
                    yield f"{_told(handling)}, after {_told(highest)}"
                elif handling.token > highest.token and handling.attempt < highest.attempt:
                    yield f"{_told(handling)}, after {_told(highest)}: the attempt went back"
            if highest is None or handling.token > highest.token:
                highest = handling

    def _redeliveries(self, by_id: dict[str, list[Handling]]) -> list[Redelivery]:
        found = []
        for handlings in by_id.values():
            for handling in handlings:
                killed_ns = self.killed_ns(handling.process)
                if killed_ns is None or handling.ended_ns is not None:
                    continue
                later = [each.began_ns for each in handlings if each.token > handling.token]
                seconds = round((min(later) - killed_ns) / _NS, 3) if later else None
                found.append(Redelivery(handling.body, handling.process, seconds))
        return found

    def _out_of_order(self, sendings: Counter[str]) -> Iterable[str]:
        """Of one producer and one key: what was accepted is first handled in the order in which it was sent."""
        first: dict[str, int] = {}
        for handling in self.files.handlings:
            first.setdefault(handling.body, handling.began_ns)
        chains: dict[tuple[str, str], list[str]] = defaultdict(list)
        for _, process, body in self.files.sent:
            key = body.split(":")[2]
            if key != "-" and body in self.files.accepted and sendings[body] == 1 and body in first:
                chains[process.partition(":")[0], key].append(body)
        for bodies in chains.values():
            latest = bodies[0] if bodies else ""
            for body in bodies[1:]:
                if first[body] < first[latest]:
                    yield f"{body} before {latest}, by {(first[latest] - first[body]) / _NS:.3f} s"
                else:
                    latest = body

    def _two_at_once(self) -> Iterable[str]:
        by_key: dict[str, list[Handling]] = defaultdict(list)
        for handling in self.files.handlings:
            if handling.key != "-":
                by_key[handling.key].append(handling)
        for handlings in by_key.values():
            open: list[Handling] = []
            for handling in handlings:
                open = [each for each in open if self._until(each) > handling.began_ns]
                for each in open:
                    if not self._may_meet(each, handling):
                        yield f"{_told(handling)} while {_told(each)}"
                open.append(handling)

    def _may_meet(self, before: Handling, after: Handling) -> bool:
        """`before` had lost its ticket and could not know it, or `after` had, and began all the same."""
        return (
            self.was_stopped(before.process, before.began_ns, after.began_ns)
            or self.was_late(before, after.began_ns)
            or self.was_stopped(after.process, before.began_ns, after.began_ns)
        )

    def _until(self, handling: Handling) -> int:
        """The handling lasted at least until then."""
        if handling.ended_ns is not None:
            return handling.ended_ns
        ended_ns, _ = self._ended.get(handling.process, (handling.began_ns, ""))
        return max(handling.began_ns, ended_ns)


def _told(handling: Handling) -> str:
    return f"{handling.body} by {handling.process} under token {handling.token} (attempt {handling.attempt})"


def _some(found: Iterable[str]) -> tuple[str, ...]:
    """Enough to look into; how many there are is told at the end."""
    ordered = sorted(found)
    return (*ordered[:20], *([f"... {len(ordered)} in all"] if len(ordered) > 20 else []))


def judge_files(
    sent: Iterable[Path],
    handled: Iterable[Path],
    events: Iterable[Path] = (),
    *,
    visibility: float = 5.0,
    within: float | None = None,
) -> QueueVerdict:
    files = Files()
    for path in sent:
        files.read_sent(path)
    for path in handled:
        files.read_handled(path)
    for path in events:
        files.read_events(path)
    files.settle()
    return Judge(files, visibility).judge(within)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.queue_judge", description="Judge the logs of a queue.")
    parser.add_argument("--sent", nargs="+", type=Path, required=True, metavar="FILE")
    parser.add_argument("--handled", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--events", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--visibility", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="what was cut short is handled again by then")
    arguments = parser.parse_args()
    try:
        verdict = judge_files(
            arguments.sent,
            arguments.handled,
            arguments.events,
            visibility=arguments.visibility,
            within=arguments.within,
        )
    except (Unjudgeable, OSError, ValueError) as failure:
        print(f"queue_judge: {failure}", file=sys.stderr)
        return 2
    fields = {**msgspec.structs.asdict(verdict), "violations": verdict.violations}
    print(msgspec.json.format(msgspec.json.encode(fields)).decode())
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
