"""The judge of the failover trials: it finds planted overlaps, and makes none up, wherever a stop falls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from lab.judge import BRIDGE_NS, Sample, Unjudgeable, Verdict, judge, parse

ROOT = Path(__file__).resolve().parents[2]
MS = 1_000_000
SECOND = 1000 * MS
PERIOD = 10 * MS
ASKING = 20_000
"""Nanoseconds between the stamps of a line."""
LINE = 150 * (PERIOD + ASKING)
"""When a line begins, about a second and a half into a log."""
STOPS = [*range(LINE, LINE + ASKING, ASKING // 8), *range(LINE, LINE + PERIOD + ASKING, MS // 2)]
"""Where a stop may begin: inside a line, before and after its answer, and between two lines."""


def log(
    process: str,
    from_ns: int,
    to_ns: int,
    *,
    epoch: int = 0,
    believes: tuple[int, int] | None = None,
    stops: Iterable[tuple[int, int]] = (),
) -> list[Sample]:
    """What a believer writes that is asked every 10 ms and is stopped now and then.

    It believes from `believes[0]` to `believes[1]` by the clock, as `is_leader()` does; the answer is found halfway
    between the stamps.
    """

    def skip(now: int, duration: int) -> int:
        """The time after `duration` of work, with every stop on the way slept through."""
        for begin, end in sorted(stops):
            if now <= begin < now + duration:
                now, duration = end, now + duration - begin
        return now + duration

    samples, now = [], from_ns
    while now < to_ns:
        before = now
        asked = skip(before, ASKING // 2)
        after = skip(asked, ASKING // 2)
        leads = believes is not None and believes[0] <= asked < believes[1]
        samples.append(Sample(before, after, process, epoch if leads else 0, leads, leads))
        now = skip(after, PERIOD)
    return samples


def two_leaders(first_ends: int, second_begins: int, offset: int = 0) -> Verdict:
    return judge(
        [
            *log("a:1", 0, 4 * SECOND, epoch=1, believes=(SECOND, first_ends)),
            *log("b:2", offset, 4 * SECOND + offset, epoch=2, believes=(second_begins, 9 * SECOND)),
        ]
    )


@pytest.mark.parametrize("length", [25 * MS, 40 * MS, 200 * MS, SECOND])
@pytest.mark.parametrize("offset", [0, 3 * MS, 5 * MS, 9 * MS])
def test_finds_a_planted_overlap(length: int, offset: int) -> None:
    verdict = two_leaders(first_ends=2 * SECOND + length, second_begins=2 * SECOND, offset=offset)
    assert len(verdict.overlaps) == 1
    (found,) = verdict.overlaps
    assert set(found.processes) == {"a:1", "b:2"}
    assert set(found.epochs) == {1, 2}
    assert 2 * SECOND <= found.from_ns <= found.to_ns <= 2 * SECOND + length
    assert "overlaps" in verdict.violations


def test_finds_overlaps_of_one_period_wherever_the_samples_fall() -> None:
    """An overlap of 12 ms always has a line of either process in it, and each next to one that the run goes on to."""
    for offset in range(0, 10 * MS, MS // 2):
        verdict = two_leaders(first_ends=2 * SECOND + 12 * MS, second_begins=2 * SECOND - 11 * MS, offset=offset)
        assert verdict.overlaps, f"missed at an offset of {offset / MS} ms"


@pytest.mark.parametrize("gap", [0, 1, MS, 10 * MS, SECOND])
@pytest.mark.parametrize("offset", [0, 3 * MS, 5 * MS, 9 * MS])
def test_one_after_the_other_is_no_overlap(gap: int, offset: int) -> None:
    verdict = two_leaders(first_ends=2 * SECOND, second_begins=2 * SECOND + gap, offset=offset)
    assert verdict.violations == []
    (takeover,) = verdict.takeovers
    assert takeover.from_process == "a:1"
    assert takeover.to_process == "b:2"
    assert gap / SECOND <= takeover.seconds <= gap / SECOND + 0.0302


def test_a_stop_is_not_an_overlap_wherever_it_falls() -> None:
    """The old leader is stopped for three leases, and the new one leads while it is. Its line around the stop is as
    wide as the stop, says true, and must not be counted against the one that took over inside it."""
    successor = log("b:2", 0, 15 * SECOND, epoch=2, believes=(5 * SECOND, 20 * SECOND))
    widest = 0
    for begin in STOPS:
        stopped = log("a:1", 0, 14 * SECOND, epoch=1, believes=(0, 4 * SECOND), stops=[(begin, begin + 10 * SECOND)])
        widest = max(widest, *(s.after_ns - s.before_ns for s in stopped if s.leading))
        verdict = judge([*stopped, *successor])
        assert verdict.violations == [], f"made up with the stop at {begin} ns"
        assert verdict.longest_silence < 11
    assert widest > 10 * SECOND, "no stop fell between the answer and the second stamp"


def test_a_leader_that_wakes_and_still_believes_is_found_wherever_the_stop_falls() -> None:
    """A flag in place of a deadline: true until 60 ms after the stop."""
    successor = log("b:2", 0, 15 * SECOND, epoch=2, believes=(5 * SECOND, 20 * SECOND))
    for begin in STOPS:
        end = begin + 10 * SECOND
        stopped = log("a:1", 0, 14 * SECOND, epoch=1, believes=(0, end + 60 * MS), stops=[(begin, end)])
        (found, *_) = judge([*stopped, *successor]).overlaps
        assert found.from_ns >= end, "only what came after the stop is certain"


def test_one_line_of_belief_after_a_stop_is_enough() -> None:
    successor = log("b:2", 0, 15 * SECOND, epoch=2, believes=(5 * SECOND, 20 * SECOND))
    woken = [
        Sample(2 * SECOND, 2 * SECOND + ASKING, "a:1", 1, True, True),
        Sample(12 * SECOND, 12 * SECOND + ASKING, "a:1", 1, True, True),
        Sample(12 * SECOND + PERIOD, 12 * SECOND + PERIOD + ASKING, "a:1", 0, False, False),
    ]
    (found,) = judge([*woken, *successor]).overlaps
    assert (found.from_ns, found.to_ns) == (12 * SECOND, 12 * SECOND + ASKING)


def test_a_wide_line_counts_if_the_other_believed_during_all_of_it() -> None:
    other = log("b:2", 0, 4 * SECOND, epoch=2, believes=(0, 9 * SECOND))
    wide = Sample(SECOND, 3 * SECOND, "a:1", 1, True, True)
    (found,) = judge([wide, *other]).overlaps
    assert (found.from_ns, found.to_ns) == (SECOND, 3 * SECOND)
    shorter = [sample for sample in other if sample.after_ns < 2 * SECOND]
    assert judge([wide, *shorter]).overlaps == ()


@pytest.mark.parametrize(("quiet", "joined"), [(BRIDGE_NS, True), (BRIDGE_NS + 1, False)])
def test_lines_far_apart_are_not_joined(quiet: int, joined: bool) -> None:
    """Both say true before and after a time in which nobody asked either."""
    a = [Sample(t, t, "a:1", 1, True, True) for t in (0, quiet)]
    b = [Sample(t, t, "b:2", 2, True, True) for t in (5, quiet + 5)]
    assert bool(judge([*a, *b]).overlaps) is joined


def test_random_stops_never_make_up_an_overlap_and_random_overlaps_are_found() -> None:
    dice = Random(15)
    found = 0
    for _ in range(100):
        ends = dice.randrange(2 * SECOND, 4 * SECOND)
        begins = ends + dice.randrange(-200 * MS, 200 * MS)
        stops = {
            name: [(t := dice.randrange(5 * SECOND), t + dice.randrange(2 * SECOND)) for _ in range(dice.randrange(4))]
            for name in "ab"
        }
        a = log("a:1", 0, 7 * SECOND, epoch=1, believes=(0, ends), stops=_apart(stops["a"]))
        b = log(
            "b:2", dice.randrange(PERIOD), 7 * SECOND, epoch=2, believes=(begins, 9 * SECOND), stops=_apart(stops["b"])
        )
        overlaps = judge([*a, *b]).overlaps
        if begins >= ends:
            assert overlaps == ()
        for overlap in overlaps:
            assert overlap.from_ns < ends
            assert overlap.to_ns > begins
        found += bool(overlaps)
        if begins < ends - 25 * MS and not any(stops.values()):
            assert overlaps
    assert found > 15


def _apart(stops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for stop in sorted(stops):
        if not kept or stop[0] > kept[-1][1]:
            kept.append(stop)
    return kept


def test_a_lease_that_is_held_on_past_the_successors_start_is_an_overlap_of_its_own() -> None:
    """`is_leader()` was false in time, but the hooks of the old leader had the lease for longer than there was one."""
    old = [
        Sample(s.before_ns, s.after_ns, s.process, 1, s.leading, s.before_ns < 2500 * MS)
        for s in log("a:1", 0, 4 * SECOND, epoch=1, believes=(0, 2 * SECOND))
    ]
    verdict = judge([*old, *log("b:2", 0, 4 * SECOND, epoch=2, believes=(2100 * MS, 9 * SECOND))])
    assert verdict.overlaps == ()
    assert len(verdict.holding_overlaps) == 1
    assert verdict.epochs_gone_back == ((2, 1),)
    assert verdict.violations == ["holding_overlaps", "epochs_gone_back"]


def test_leading_without_a_lease_or_an_epoch_is_a_violation() -> None:
    line = Sample(0, 1, "a:1", 1, True, False)
    assert judge([line]).leading_not_holding == ("a:1",)
    assert judge([Sample(0, 1, "a:1", 0, True, True)]).nameless == ("a:1",)


def test_one_such_line_among_others_is_enough() -> None:
    named, nameless = Sample(0, 1, "a:1", 1, True, True), Sample(2, 3, "a:1", 0, True, True)
    assert judge([named, nameless]).nameless == ("a:1",)
    assert judge([named, Sample(2, 3, "a:1", 1, True, False)]).leading_not_holding == ("a:1",)
    assert judge([named, Sample(2, 3, "a:1", 0, False, False)]).violations == []


def test_a_line_that_says_no_ends_what_is_certain() -> None:
    """It led again right after, and the other only in between: the lines on either side are near each other."""
    off = Sample(10 * MS, 40 * MS, "a:1", 0, False, False)
    first, again = Sample(0, 1, "a:1", 1, True, True), Sample(50 * MS, 51 * MS, "a:1", 3, True, True)
    between = sparse("b:2", 2, 15 * MS, 35 * MS, PERIOD)
    assert judge([first, off, again, *between]).violations == []
    assert judge([first, Sample(50 * MS, 51 * MS, "a:1", 1, True, True), *between]).overlaps


def test_a_line_that_holds_and_does_not_lead_ends_what_is_certain_of_leading() -> None:
    """Its epoch is the same. That the term is resumed is found, and two that led at once are not made up of it."""
    lines = [Sample(at * MS, at * MS + 1, "a:1", 1, at != 25, True) for at in (0, 25, 50)]
    verdict = judge([*lines, *sparse("b:2", 2, 15 * MS, 36 * MS, PERIOD)])
    assert verdict.overlaps == ()
    assert verdict.terms_resumed == (("a:1", 1),)
    assert verdict.holding_overlaps


def test_an_epoch_that_ends_ends_what_is_certain() -> None:
    """Two terms of one process with nothing noted between them, and another one's there."""
    both = [Sample(0, 1, "a:1", 1, True, True), Sample(50 * MS, 51 * MS, "a:1", 3, True, True)]
    assert judge([*both, *sparse("b:2", 2, 15 * MS, 35 * MS, PERIOD)]).violations == []


def test_one_epoch_led_by_two_processes() -> None:
    verdict = judge(
        [
            *log("a:1", 0, 4 * SECOND, epoch=3, believes=(0, SECOND)),
            *log("a:2", 0, 4 * SECOND, epoch=3, believes=(2 * SECOND, 3 * SECOND)),
        ]
    )
    assert verdict.epochs_led_twice == (3,)
    assert verdict.overlaps == ()


def test_epochs_that_go_back_and_epochs_that_are_skipped() -> None:
    up = judge(
        [
            *log("a:1", 0, 4 * SECOND, epoch=3, believes=(0, SECOND)),
            *log("b:2", 0, 4 * SECOND, epoch=6, believes=(2 * SECOND, 3 * SECOND)),
        ]
    )
    assert (up.epochs_gone_back, up.epochs_skipped, up.violations) == ((), (4, 5), [])
    down = judge(
        [
            *log("a:1", 0, 4 * SECOND, epoch=6, believes=(0, SECOND)),
            *log("b:2", 0, 4 * SECOND, epoch=5, believes=(2 * SECOND, 3 * SECOND)),
        ]
    )
    assert down.epochs_gone_back == ((6, 5),)


def sparse(process: str, epoch: int, from_ns: int, to_ns: int, every_ns: int) -> list[Sample]:
    """True in each line, and the lines are far apart, as on a machine with much else to do."""
    return [Sample(at, at + ASKING, process, epoch, True, True) for at in range(from_ns, to_ns, every_ns)]


@pytest.mark.parametrize("every_ns", [BRIDGE_NS + MS, 2 * BRIDGE_NS, SECOND])
@pytest.mark.parametrize("offset", [5 * MS, 5 * SECOND])
def test_two_leaders_are_found_however_far_apart_their_lines_are(every_ns: int, offset: int) -> None:
    verdict = judge(
        [*sparse("a:1", 1, 0, 10 * SECOND, every_ns), *sparse("b:2", 2, offset, 10 * SECOND, every_ns)],
    )
    assert verdict.overlaps == (), "no lines are near enough to each other"
    assert verdict.epochs_gone_back == ((2, 1),)
    assert verdict.violations == ["epochs_gone_back"]


@pytest.mark.parametrize("every_ns", [BRIDGE_NS + MS, 2 * BRIDGE_NS, SECOND])
def test_leaders_one_after_the_other_are_fine_however_far_apart_their_lines_are(every_ns: int) -> None:
    first, again = sparse("a:1", 1, 0, 3 * SECOND, every_ns), sparse("a:1", 3, 6 * SECOND, 9 * SECOND, every_ns)
    second = sparse("b:2", 2, first[-1].after_ns, 5 * SECOND, every_ns)
    assert judge([*first, *again, *second]).violations == []


def test_a_leader_that_sleeps_through_another_and_believes_on_is_found() -> None:
    """1, 2, 1: no line of either was written while the other believed, and nobody ever said that he leads no more."""
    frozen = [*sparse("a:1", 1, 0, 500 * MS, PERIOD), *sparse("a:1", 1, 5 * SECOND, 5500 * MS, PERIOD)]
    successor = sparse("b:2", 2, 2 * SECOND, 3 * SECOND, PERIOD)
    verdict = judge([*frozen, *successor])
    assert verdict.epochs_gone_back == ((2, 1),)
    assert verdict.violations == ["epochs_gone_back"]
    woken = [*sparse("a:1", 1, 0, 500 * MS, PERIOD), Sample(5 * SECOND, 5 * SECOND + ASKING, "a:1", 0, False, False)]
    assert judge([*woken, *successor]).violations == []


def test_a_lease_that_is_held_on_is_found_however_far_apart_the_lines_are() -> None:
    old = [Sample(at, at + ASKING, "a:1", 1, at < 2 * SECOND, True) for at in range(0, 4 * SECOND, 2 * BRIDGE_NS)]
    held = judge([*old, *sparse("b:2", 2, 2500 * MS, 5 * SECOND, 2 * BRIDGE_NS)])
    assert (held.holding_overlaps, held.epochs_gone_back) == ((), ((2, 1),))
    let_go = [sample for sample in old if sample.leading]
    assert judge([*let_go, *sparse("b:2", 2, 2500 * MS, 5 * SECOND, 2 * BRIDGE_NS)]).violations == []


def test_a_line_around_a_stop_is_no_claim_from_after_it() -> None:
    """The answer may be from before the stop, and so from before the other one led."""
    old = [*sparse("a:1", 1, 0, SECOND, PERIOD), Sample(SECOND, 9 * SECOND, "a:1", 1, True, True)]
    assert judge([*old, *sparse("b:2", 2, 4 * SECOND, 5 * SECOND, PERIOD)]).violations == []


def test_of_each_epoch_that_comes_back_it_is_told_after_which() -> None:
    """After the first of those that are higher, and once, however many there are."""
    samples = [
        *sparse("c:3", 7, 0, SECOND, PERIOD),
        *sparse("b:2", 5, 2 * SECOND, 3 * SECOND, PERIOD),
        *sparse("a:1", 6, 4 * SECOND, 5 * SECOND, PERIOD),
        *sparse("d:4", 8, 6 * SECOND, 7 * SECOND, PERIOD),
    ]
    assert judge(samples).epochs_gone_back == ((7, 6), (7, 5))


def test_a_term_that_ended_and_came_back() -> None:
    first = log("a:1", 0, 2 * SECOND, epoch=1, believes=(0, SECOND))
    again = log("a:1", 3 * SECOND, 4 * SECOND, epoch=1, believes=(0, 9 * SECOND))
    assert judge([*first, *again]).terms_resumed == (("a:1", 1),)
    under_the_next = log("a:1", 3 * SECOND, 4 * SECOND, epoch=2, believes=(0, 9 * SECOND))
    assert judge([*first, *under_the_next]).violations == []


def test_the_reaction_to_an_event_is_the_first_belief_under_a_higher_epoch() -> None:
    samples = [
        *log("a:1", 0, 2 * SECOND, epoch=1, believes=(0, 9 * SECOND)),
        *log("b:2", 0, 8 * SECOND, epoch=2, believes=(5 * SECOND, 9 * SECOND)),
    ]
    kill, nothing = judge(samples, [2 * SECOND, 7 * SECOND]).reactions
    assert (kill.process, kill.epoch) == ("b:2", 2)
    assert 3 <= kill.seconds < 3.02
    assert (nothing.process, nothing.seconds) == (None, None)


def test_a_log_that_a_kill_cut_short_is_read_up_to_there() -> None:
    samples, torn = parse("1 2 a:1 0 0 0\n3 4 a:1 1 1 1\n5 6 a:1 1")
    assert samples == [Sample(1, 2, "a:1", 0, False, False), Sample(3, 4, "a:1", 1, True, True)]
    assert torn == 1
    assert parse("") == ([], 0)


@pytest.mark.parametrize("line", ["hello", "1 2 a:1 0 0", "1 2 a:1 0 2 0", "1 x a:1 0 0 0", ""])
def test_any_other_line_is_not_judged(line: str) -> None:
    with pytest.raises(Unjudgeable, match="log:2"):
        parse(f"1 2 a:1 0 0 0\n{line}\n3 4 a:1 0 0 0\n")


def test_logs_that_cannot_be_judged() -> None:
    with pytest.raises(Unjudgeable, match="not one line"):
        judge([])
    with pytest.raises(Unjudgeable, match="wrong way round"):
        judge([Sample(5, 4, "a:1", 0, False, False)])
    with pytest.raises(Unjudgeable, match="before the one above"):
        judge([Sample(5, 6, "a:1", 0, False, False), Sample(5, 7, "a:1", 0, False, False)])


def test_the_program_prints_json_and_tells_by_its_exit_code(tmp_path: Path) -> None:
    def run(*samples: Sample, event: int = 0) -> subprocess.CompletedProcess[str]:
        paths = []
        for name in {sample.process for sample in samples}:
            paths.append(tmp_path / name)
            lines = [
                f"{s.before_ns} {s.after_ns} {s.process} {s.epoch} {s.leading:d} {s.holding:d}\n"
                for s in samples
                if s.process == name
            ]
            paths[-1].write_text("".join(lines))
        command = [sys.executable, "-m", "lab.judge", *map(str, paths), "--event", str(event)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    a = log("a:1", 0, SECOND, epoch=1, believes=(0, 500 * MS))
    good = run(*a, *log("b:2", 0, SECOND, epoch=2, believes=(600 * MS, SECOND)), event=500 * MS)
    assert good.returncode == 0
    said = json.loads(good.stdout)
    assert said["violations"] == []
    assert said["overlaps"] == []
    assert said["samples"] == 200
    assert 0.1 <= said["reactions"][0]["seconds"] <= 0.12

    bad = run(*a, *log("b:2", 0, SECOND, epoch=2, believes=(400 * MS, SECOND)))
    assert bad.returncode == 1
    assert len(json.loads(bad.stdout)["overlaps"]) == 1

    (tmp_path / "empty").touch()
    empty = subprocess.run(
        [sys.executable, "-m", "lab.judge", str(tmp_path / "empty")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (empty.returncode, empty.stdout) == (2, "")
    assert "not one line" in empty.stderr

    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n")
    no_text = subprocess.run(
        [sys.executable, "-m", "lab.judge", str(tmp_path / "bytes")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (no_text.returncode, no_text.stdout) == (2, "")
    assert "it is no text" in no_text.stderr
