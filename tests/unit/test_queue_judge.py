"""The judge of queues finds what is planted, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.queue_judge import VIOLATIONS, judge_files

SECOND = 1_000_000_000


def line(what: str, at: float, process: str, *fields: object) -> str:
    return " ".join([what, str(round(at * SECOND)), process, *map(str, fields)])


def handling(
    at: float,
    process: str,
    body: str,
    token: int,
    attempt: int = 1,
    *,
    lasts: float | None = 0.1,
    remaining: int = 4000,
) -> list[str]:
    """Began and, unless `lasts` is None, ended."""
    number = body.split(":")[1]
    lines = [line("began", at, process, body, f"u-{number}-0", f"s:{number}", token, attempt)]
    if lasts is not None:
        lines.append(line("ended", at + lasts, process, body, f"u-{number}-0", token, remaining))
    return lines


def acked(at: float, process: str, body: str, token: int) -> list[str]:
    number = int(body.split(":")[1])
    return [line("acked", at, process, token, f"s:{number}:{number + 1}")]


PLAIN, FIRST, SECOND_OF_KEY = "p:1:-", "p:2:k", "p:3:k"
THIRD_OF_KEY = "p:4:k"
"""Only some have it."""
SENT = [line("sending", 1, "p:1", PLAIN, FIRST, SECOND_OF_KEY), line("accepted", 2, "p:1", PLAIN, FIRST, SECOND_OF_KEY)]
SENT_THIRD = [line("sending", 2, "p:1", THIRD_OF_KEY), line("accepted", 2, "p:1", THIRD_OF_KEY)]
ALL_WELL = [*handling(3, "a:1", PLAIN, 5), *handling(3.2, "a:1", FIRST, 5), *handling(3.4, "a:1", SECOND_OF_KEY, 6)]
KILLED = [line("killed", 4, "a:1")]
STOPPED = [line("stopped", 4, "a:1"), line("continued", 14, "a:1")]

PLANTED: dict[str, tuple[list[str], list[str], list[str]]] = {
    "never handled": (["lost"], ALL_WELL[2:], []),
    "begun and cut short, and never again": (
        ["lost", "redelivered_late"],
        [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:]],
        KILLED,
    ),
    "never sent": (["phantoms"], [*ALL_WELL, *handling(4, "a:1", "p:9:-", 7)], []),
    "twice, and nobody was killed": (["unexplained"], [*ALL_WELL, *handling(9, "b:2", PLAIN, 7, 2)], []),
    "twice, and somebody else was killed": (
        ["unexplained"],
        [*ALL_WELL, *handling(9, "b:2", PLAIN, 7, 2)],
        [line("killed", 4, "c:3")],
    ),
    "twice, and its process was killed long after": (
        ["unexplained"],
        [*ALL_WELL, *handling(99, "b:2", PLAIN, 7, 2)],
        [line("killed", 90, "a:1")],
    ),
    "twice, and it was reported before the kill": (
        ["again", "unexplained"],
        [*ALL_WELL, *acked(3.2, "a:1", PLAIN, 5), *handling(9, "b:2", PLAIN, 7, 2)],
        KILLED,
    ),
    "twice, and it was reported before its process was stopped": (
        ["again"],
        [*ALL_WELL, *acked(3.2, "a:1", PLAIN, 5), *handling(9, "b:2", PLAIN, 7, 2)],
        STOPPED,
    ),
    "twice, asked to end": (
        ["unexplained"],
        [*ALL_WELL, *handling(5, "b:2", PLAIN, 7)],
        [line("terminated", 4, "a:1")],
    ),
    "one became two": (
        ["copies"],
        [
            *ALL_WELL,
            line("began", 5, "b:2", PLAIN, "u-7-0", "t:7", 8, 1),
            line("ended", 6, "b:2", PLAIN, "u-7-0", 8, 4000),
        ],
        [],
    ),
    "the second of a key first": (
        ["out_of_order"],
        [*handling(3, "a:1", PLAIN, 5), *handling(3.2, "a:1", SECOND_OF_KEY, 5), *handling(3.4, "a:1", FIRST, 6)],
        [],
    ),
    "two of a key at once": (
        ["two_at_once"],
        [*handling(3, "a:1", PLAIN, 5), *handling(3.2, "a:1", FIRST, 5), *handling(3.25, "b:2", SECOND_OF_KEY, 6)],
        [],
    ),
    "the token is the same": (["tokens_not_rising"], [*ALL_WELL, *handling(9, "b:2", PLAIN, 5, 2)], KILLED),
    "the token is lower": (
        ["tokens_not_rising", "unexplained"],
        [*ALL_WELL, *handling(9, "b:2", PLAIN, 4, 2)],
        [],
    ),
    "the attempt is lower": (
        ["tokens_not_rising"],
        [*handling(3, "a:1", PLAIN, 5, 2), *ALL_WELL[2:], *handling(9, "b:2", PLAIN, 7, 1)],
        KILLED,
    ),
    "again too late": (
        ["redelivered_late"],
        [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:], *handling(60, "b:2", PLAIN, 7, 2)],
        KILLED,
    ),
}

EXPLAINED: dict[str, tuple[str, list[str], list[str]]] = {
    "cut short by a kill": (
        "killed in mid-message",
        [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:], *handling(9, "b:2", PLAIN, 7, 2)],
        KILLED,
    ),
    "killed before it reported": (
        "killed before its report",
        [*ALL_WELL, *handling(9, "b:2", PLAIN, 7, 2)],
        KILLED,
    ),
    "stopped": ("stopped", [*ALL_WELL, *handling(9, "b:2", PLAIN, 7, 2)], STOPPED),
    "it says that it was late": (
        "late",
        [*ALL_WELL, line("late", 8, "a:1", 1, 0), *handling(9, "b:2", PLAIN, 7, 2)],
        [],
    ),
    "it took too long": (
        "late",
        [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:], *handling(12, "b:2", PLAIN, 7, 2)],
        [],
    ),
    "it took too long, and was killed when another had it": (
        "late",
        [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:], *handling(12, "b:2", PLAIN, 7, 2)],
        [line("killed", 20, "a:1")],
    ),
    "asked to end in mid-message": (
        "cut short by SIGTERM",
        [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:], *handling(4, "b:2", PLAIN, 7, 2)],
        [line("terminated", 3.5, "a:1")],
    ),
    "cut off": (
        "cut off",
        [*ALL_WELL, *handling(9, "b:2", PLAIN, 7, 2)],
        [line("cut", 3.05, "a"), line("restored", 4, "a")],
    ),
}


def verdict_on(folder: Path, handled: Sequence[str], events: Sequence[str], sent: Sequence[str] = SENT) -> Any:
    paths = []
    for name, lines in (("sent", sent), ("handled", handled), ("events", events)):
        path = folder / name
        path.write_text("".join(f"{text}\n" for text in lines))
        paths.append(path)
    return judge_files(paths[:1], paths[1:2], paths[2:], within=20.0)


def test_the_judge_finds_nothing_where_all_is_well(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, ALL_WELL, [])
    assert verdict.violations == []
    assert (verdict.accepted, verdict.handled, verdict.duplicates) == (3, 3, 0)


@pytest.mark.parametrize("what", PLANTED)
def test_the_judge_finds_what_is_planted(what: str, tmp_path: Path) -> None:
    expected, handled, events = PLANTED[what]
    assert sorted(verdict_on(tmp_path, handled, events).violations) == expected


def test_everything_that_the_judge_can_find_is_planted() -> None:
    assert {name for expected, _, _ in PLANTED.values() for name in expected} == set(VIOLATIONS)


@pytest.mark.parametrize("what", EXPLAINED)
def test_the_judge_explains_what_can_be_explained(what: str, tmp_path: Path) -> None:
    why, handled, events = EXPLAINED[what]
    verdict = verdict_on(tmp_path, handled, events)
    assert verdict.violations == []
    assert verdict.explained == {why: 1}


# What excuses a second handling, and when


@pytest.mark.parametrize(("what", "over", "who"), [("stopped", "continued", "a:1"), ("cut", "restored", "a")])
@pytest.mark.parametrize(
    ("began", "ended", "excuses"),
    [
        (1, 2.9, False),
        (1, 3.0, True),
        (3.05, 3.06, True),
        (8.1, 20, True),
        (8.2, 20, False),
        (200, 201, False),
        (200, None, False),
        (8, None, True),
    ],
    ids=[
        "before",
        "as it began",
        "meanwhile",
        "unreported",
        "reported",
        "long after",
        "for good",
        "unreported, for good",
    ],
)
def test_who_was_stopped_or_cut_off_before_or_long_after_it_is_no_reason(
    what: str, over: str, who: str, began: float, ended: float | None, excuses: bool, tmp_path: Path
) -> None:
    """It is handled from 3 to 3.1, and again at 300: what happened to its process up to five seconds later counts."""
    events = [line(what, began, who), *([line(over, ended, who)] if ended is not None else [])]
    verdict = verdict_on(tmp_path, [*ALL_WELL, *handling(300, "b:2", PLAIN, 7, 2)], events)
    assert verdict.violations == ([] if excuses else ["unexplained"])


@pytest.mark.parametrize(("what", "who"), [("stopped", "a:1"), ("cut", "a")])
def test_what_happened_after_another_had_it_is_no_reason(what: str, who: str, tmp_path: Path) -> None:
    handled = [*ALL_WELL, *handling(4, "b:2", PLAIN, 7, 2)]
    assert verdict_on(tmp_path, handled, [line(what, 4, who)]).violations == []
    assert verdict_on(tmp_path, handled, [line(what, 4.1, who)]).violations == ["unexplained"]


@pytest.mark.parametrize("event", [("stopped", "continued", "a:1"), ("cut", "restored", "a")])
def test_what_was_never_ended_was_in_hand_all_the_time(event: tuple[str, str, str], tmp_path: Path) -> None:
    what, over, who = event
    handled = [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:], *handling(7, "b:2", PLAIN, 7, 2)]
    assert verdict_on(tmp_path, handled, []).violations == ["unexplained"], "it is not late yet"
    assert verdict_on(tmp_path, handled, [line(what, 6.9, who), line(over, 8, who)]).violations == []
    assert verdict_on(tmp_path, handled, [line(what, 7.1, who), line(over, 8, who)]).violations == ["unexplained"]


@pytest.mark.parametrize("what", ["killed", "terminated"])
@pytest.mark.parametrize("at", [2, 10])
def test_an_end_at_another_time_is_no_reason(what: str, at: float, tmp_path: Path) -> None:
    """Before it began, or after another had it already, though it was not late."""
    ended = [*ALL_WELL, *handling(6, "b:2", PLAIN, 7, 2)]
    assert verdict_on(tmp_path, ended, [line(what, at, "a:1")]).violations == ["unexplained"]
    cut_short = [*handling(3, "a:1", PLAIN, 5, lasts=None), *ALL_WELL[2:], *handling(6, "b:2", PLAIN, 7, 2)]
    assert "unexplained" in verdict_on(tmp_path, cut_short, [line(what, at, "a:1")]).violations


# Two of a key at once


def two_of_a_key(folder: Path, *events: str, at: float = 7, remaining: int = 1, late: Sequence[str] = ()) -> list[str]:
    """One of 3 to 9 that was not late, unless `remaining` says so, and the next from `at` on."""
    handled = [
        *handling(3, "a:1", PLAIN, 5),
        *handling(3, "a:1", FIRST, 5, lasts=6, remaining=remaining),
        *late,
        *handling(at, "b:2", SECOND_OF_KEY, 6),
    ]
    found: list[str] = verdict_on(folder, handled, events).violations
    return found


def test_two_of_a_key_at_once_are_excused_by_what_happened_at_that_time(tmp_path: Path) -> None:
    assert two_of_a_key(tmp_path) == ["two_at_once"]
    assert two_of_a_key(tmp_path, at=8.999) == ["two_at_once"]
    assert two_of_a_key(tmp_path, at=9) == []
    for process in ("a:1", "b:2"):
        stopped = [line("stopped", 4, process), line("continued", 6, process)]
        assert two_of_a_key(tmp_path, *stopped) == [], "it could not know, or it was to begin before"
        before = [line("stopped", 1, process), line("continued", 2, process)]
        assert two_of_a_key(tmp_path, *before) == ["two_at_once"]
        after = [line("stopped", 7.5, process), line("continued", 8, process)]
        assert two_of_a_key(tmp_path, *after) == ["two_at_once"]
    assert two_of_a_key(tmp_path, remaining=-1) == []
    assert two_of_a_key(tmp_path, late=[line("late", 9.5, "a:1", 1, 0)]) == ["two_at_once"], "of another one"
    assert two_of_a_key(tmp_path, at=8.5, late=[line("late", 9.2, "a:1", 1, 0)]) == []


@pytest.mark.parametrize(("third", "found"), [(12.5, ["two_at_once"]), (14, [])])
def test_two_of_a_key_at_once_are_found_beside_one_that_is_frozen(
    third: float, found: list[str], tmp_path: Path
) -> None:
    """The frozen one lasts longest, and may meet either of them; they may not meet each other."""
    handled = [
        *handling(3, "a:1", PLAIN, 5),
        *handling(3, "a:1", FIRST, 5, lasts=12, remaining=-1000),
        *handling(12, "b:2", SECOND_OF_KEY, 7, lasts=2),
        *handling(third, "c:3", THIRD_OF_KEY, 8, lasts=2),
    ]
    events = [line("stopped", 3.5, "a:1"), line("continued", 14.9, "a:1")]
    assert verdict_on(tmp_path, handled, events, [*SENT, *SENT_THIRD]).violations == found


def test_one_of_a_key_that_ended_first_does_not_hide_one_that_goes_on(tmp_path: Path) -> None:
    """The second meets neither, for it was stopped; the third meets the first."""
    handled = [
        *handling(3, "a:1", PLAIN, 5),
        *handling(3, "a:1", FIRST, 5, lasts=10, remaining=1),
        *handling(6, "b:2", SECOND_OF_KEY, 6, lasts=0.5),
        *handling(9, "c:3", THIRD_OF_KEY, 7),
    ]
    events = [line("stopped", 4, "b:2"), line("continued", 5, "b:2")]
    (told,) = verdict_on(tmp_path, handled, events, [*SENT, *SENT_THIRD]).two_at_once
    assert told.startswith(f"{THIRD_OF_KEY} by c:3")
    assert f"while {FIRST} by a:1" in told


# Tokens


def test_a_token_is_compared_with_the_highest_and_not_with_the_one_before(tmp_path: Path) -> None:
    handled = [*ALL_WELL, *handling(9, "b:2", PLAIN, 8, 2), *handling(15, "c:3", PLAIN, 7, 3)]
    assert verdict_on(tmp_path, handled, KILLED).tokens_not_rising
    rising = [*ALL_WELL, *handling(9, "b:2", PLAIN, 8, 2), *handling(15, "c:3", PLAIN, 9, 3)]
    assert verdict_on(tmp_path, rising, KILLED).tokens_not_rising == ()


@pytest.mark.parametrize(("began", "ended", "excused"), [(6, 7, False), (701, 709, True), (696, 697, True)])
def test_who_is_stopped_as_it_is_to_begin_notes_so_late(
    began: float, ended: float, excused: bool, tmp_path: Path
) -> None:
    """Token 9 begins at 700 and token 8 at 710: it was told to begin before. Not if it was stopped at another time."""
    handled = [*ALL_WELL, *handling(700, "a:1", PLAIN, 9, 2), *handling(710, "b:2", PLAIN, 8, 3)]
    events = [line("stopped", began, "b:2"), line("continued", ended, "b:2")]
    assert bool(verdict_on(tmp_path, handled, events).tokens_not_rising) is not excused
