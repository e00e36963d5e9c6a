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
    at: float, process: str, body: str, token: int, attempt: int = 1, *, lasts: float | None = 0.1
) -> list[str]:
    """Began and, unless `lasts` is None, ended."""
    number = body.split(":")[1]
    lines = [line("began", at, process, body, f"u-{number}-0", f"s:{number}", token, attempt)]
    if lasts is not None:
        lines.append(line("ended", at + lasts, process, body, f"u-{number}-0", token, 4000))
    return lines


def acked(at: float, process: str, body: str, token: int) -> list[str]:
    number = int(body.split(":")[1])
    return [line("acked", at, process, token, f"s:{number}:{number + 1}")]


PLAIN, FIRST, SECOND_OF_KEY = "p:1:-", "p:2:k", "p:3:k"
SENT = [line("sending", 1, "p:1", PLAIN, FIRST, SECOND_OF_KEY), line("accepted", 2, "p:1", PLAIN, FIRST, SECOND_OF_KEY)]
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
}


def verdict_on(folder: Path, handled: Sequence[str], events: Sequence[str]) -> Any:
    paths = []
    for name, lines in (("sent", SENT), ("handled", handled), ("events", events)):
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
