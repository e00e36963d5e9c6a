"""The judge of counters finds what is planted, and nothing where all is well."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.counter_judge import MAX_OPEN, VIOLATIONS, CounterVerdict, judge_files
from lab.counter_log import error_word
from lab.judge import Unjudgeable

ROOT = Path(__file__).resolve().parents[2]

# Two writers, of which the leading one is killed at 50 while two of its calls are under way: one of them has counted.
# Record x has a start, y is counted before it is inserted, z is deleted and inserted again.

NOTES = {
    "a": [
        "adding 10 a:1 a:1:x:views:1003:- a:2:y:views:2011:- a:3:x:stats.score:-3023:-",
        "added 20 a:1 a:1 a:2 a:3",
        "spent 25 a:1 40",
        "adding 40 a:1 a:4:y:views:4057:- a:5:x:views:5087:op a:6:z:views:6101:- a:7:z:views:7129:-",
        "spent 45 a:1 55",
    ],
    "a-again": [
        "adding 60 a:2 a:5:x:views:5087:op a:8:z:stats.score:8161:-",
        "added 70 a:2 a:5 a:8",
        "spent 75 a:2 9",
    ],
    "b": [
        "adding 12 b:3 b:1:z:views:11003:- b:2:x:stats.score:12007:-",
        "unknown 14 b:3 WriteUnknown:no_answer b:2",
        "added 15 b:3 b:1",
        "spent 75 b:3 30",
    ],
    "reader": [
        "read 5 9 r:4 consistent x views 1000",
        "read 11 18 r:4 consistent x views 2003",
        "read 22 24 r:4 consistent x views 2003",
        "read 23 26 r:4 plain x views 1000",
        "read 30 33 r:4 consistent x stats.score -3023",
        "read 45 52 r:4 consistent z views 17104",
        "unread 53 r:4 StoreUnavailable:later",
        "read 72 74 r:4 consistent x views 7090",
        "read 73 74 r:4 plain x views 2003",
    ],
    "changer": [
        "writing 13 c:5 1 y insert 1",
        "wrote 14 c:5 1",
        "writing 15 c:5 2 z delete 2",
        "wrote 16 c:5 2",
        "writing 17 c:5 3 x patch 3",
        "unsure 18 c:5 3 WriteUnknown:no_answer",
        "writing 19 c:5 4 z insert 4",
        "wrote 21 c:5 4",
    ],
}
EVENTS = ["started 1 a:1", "led 8 a:1 1 1", "killed 50 a:1", "started 55 a:2", "led 65 b:3 2 20"]


def told(title: int | None, views: int, score: int, *, sampled: bool = False) -> dict[str, Any]:
    totals = {"views": views, "stats.score": score}
    data = None if title is None else {"title": title, "views": views, "stats": {"score": score}}
    return {"totals": totals, "consistent": dict(totals) if sampled else None, "data": data}


FINAL: dict[str, Any] = {
    "records": {
        "x": told(3, 7090, -3023, sampled=True),
        "y": told(1, 6068, 0),
        "z": told(4, 17104, 8161),
        "w": told(None, 0, 0),
    },
    "starts": {"x": {"views": 1000}},
    "titles": {"x": 0, "z": 0},
    "sums": {
        "views": {"adds": 6, "added": 29262, "subs": 0, "subbed": 0},
        "stats.score": {"adds": 1, "added": 8161, "subs": 1, "subbed": 3023},
    },
    "top": {"views": [["z", 17104], ["x", 6090]], "stats.score": [["z", 8161], ["x", -3023]]},
    "recalculated": {"x": {"totals": {"views": 7090, "stats.score": -3023}, "former": {}}},
}


class Files:
    """All is well in them, until something is planted."""

    def __init__(self) -> None:
        self.notes, self.events, self.final = copy.deepcopy((NOTES, EVENTS, FINAL))

    def count(self, id: str, field: str, amount: int) -> None:
        """Change a total everywhere but in history: in the record, too, and in what consistent reads say of it."""
        record = self.final["records"][id]
        record["totals"][field] += amount
        if record["consistent"] is not None:
            record["consistent"][field] += amount
        inner = record["data"] if field == "views" else record["data"]["stats"]
        inner[field.rpartition(".")[2]] += amount

    def replace(self, name: str, old: str, new: str) -> None:
        assert any(old in line for line in self.notes[name])
        self.notes[name] = [line.replace(old, new) for line in self.notes[name]]

    def write(self, folder: Path) -> list[Path]:
        for name, lines in (*self.notes.items(), ("events", self.events)):
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
        (folder / "final").write_text(json.dumps(self.final))
        return [folder / name for name in self.notes]

    def verdict(self, folder: Path) -> CounterVerdict:
        return judge_files(self.write(folder), [folder / "events"], folder / "final")


# What is planted


def plant_lost(files: Files) -> None:
    files.count("y", "views", -2011)


def plant_lost_of_an_op(files: Files) -> None:
    """It returned when it was given again."""
    files.count("x", "views", -5087)


def plant_lost_subtraction(files: Files) -> None:
    files.count("x", "stats.score", 3023)


def plant_doubled(files: Files) -> None:
    files.count("y", "views", 2011)


def plant_doubled_op(files: Files) -> None:
    """It was given twice, and is to count once."""
    files.count("x", "views", 5087)


def plant_doubled_unknown(files: Files) -> None:
    files.count("z", "views", 6101)


def plant_wrong_record(files: Files) -> None:
    files.count("y", "views", -2011)
    files.count("z", "views", 2011)


def plant_wrong_field(files: Files) -> None:
    files.count("z", "stats.score", 11003)


def plant_amount_of_nobody(files: Files) -> None:
    files.count("y", "views", 1)


def plant_read_that_misses(files: Files) -> None:
    files.replace("reader", "read 22 24 r:4 consistent x views 2003", "read 22 24 r:4 consistent x views 1000")


def plant_read_too_early(files: Files) -> None:
    """The call that it has began only afterwards."""
    files.replace("reader", "read 22 24 r:4 consistent x views 2003", "read 22 24 r:4 consistent x views 7090")


def plant_plain_read_too_early(files: Files) -> None:
    files.replace("reader", "read 23 26 r:4 plain x views 1000", "read 23 26 r:4 plain x views 7090")


def plant_read_in_between(files: Files) -> None:
    files.replace("reader", "consistent z views 17104", "consistent z views 17103")


def plant_total_gone_back(files: Files) -> None:
    """The unknown call is in one read, and not in the next."""
    files.notes["reader"].append("read 80 81 r:4 consistent z views 11003")


def plant_total_gone_back_for_another(files: Files) -> None:
    """One process has the unknown call in a read, and another, that asks when the first was answered, has not."""
    files.notes["reader"].append("read 52 55 s:9 consistent z views 11003")


def plant_total_gone_back_two_reads_later(files: Files) -> None:
    """The one in between, which was asked for before the first was answered, is lower as well, and rightly."""
    files.notes["reader"] += ["read 51 54 s:9 consistent z views 11003", "read 80 81 t:9 consistent z views 11003"]


def plant_plain_total_gone_back(files: Files) -> None:
    files.replace("reader", "read 73 74 r:4 plain x views 2003", "read 73 74 r:4 plain x views 999")


def plant_gone_back_at_the_end(files: Files) -> None:
    """What a read has seen is not in the total when all is over."""
    files.count("z", "views", -6101)


def plant_overwritten_title(files: Files) -> None:
    files.final["records"]["y"]["data"]["title"] = 7


def plant_undeleted(files: Files) -> None:
    files.final["records"]["w"] = told(0, 0, 0)


def plant_vanished(files: Files) -> None:
    files.final["records"]["z"]["data"] = None


def plant_stale_copy(files: Files) -> None:
    files.final["records"]["y"]["data"]["views"] -= 2011


def plant_missing_copy(files: Files) -> None:
    del files.final["records"]["z"]["data"]["stats"]


def plant_other_consistent(files: Files) -> None:
    files.final["records"]["x"]["consistent"]["views"] += 5087


def plant_other_sum(files: Files) -> None:
    files.final["sums"]["views"]["added"] += 1


def plant_other_number_of_calls(files: Files) -> None:
    files.final["sums"]["stats.score"]["subs"] += 1


def plant_other_first(files: Files) -> None:
    files.final["top"]["views"].reverse()


def plant_no_first_at_all(files: Files) -> None:
    files.final["top"]["views"] = []


def plant_history_of_other_totals(files: Files) -> None:
    files.final["recalculated"]["x"]["totals"]["views"] = 2003


def plant_history_that_differs(files: Files) -> None:
    files.final["recalculated"]["x"]["former"] = {"views": 2003}


PLANTED: dict[Callable[[Files], None], set[str]] = {
    plant_lost: {"lost", "history_differs"},
    plant_lost_of_an_op: {"lost", "gone_back", "history_differs"},
    plant_lost_subtraction: {"lost", "history_differs"},
    plant_doubled: {"doubled", "history_differs"},
    plant_doubled_op: {"doubled", "history_differs"},
    plant_doubled_unknown: {"doubled", "history_differs"},
    plant_wrong_record: {"lost", "misplaced", "history_differs"},
    plant_wrong_field: {"misplaced", "history_differs"},
    plant_amount_of_nobody: {"unexplained", "history_differs"},
    plant_read_that_misses: {"read_too_low", "gone_back"},
    plant_read_too_early: {"read_too_high"},
    plant_plain_read_too_early: {"read_too_high", "gone_back"},
    plant_read_in_between: {"read_unexplained"},
    plant_total_gone_back: {"gone_back"},
    plant_total_gone_back_for_another: {"gone_back"},
    plant_total_gone_back_two_reads_later: {"gone_back"},
    plant_plain_total_gone_back: {"read_too_low", "gone_back"},
    plant_gone_back_at_the_end: {"gone_back", "history_differs"},
    plant_overwritten_title: {"fields_differ"},
    plant_undeleted: {"fields_differ"},
    plant_vanished: {"fields_differ"},
    plant_stale_copy: {"copies_differ"},
    plant_missing_copy: {"copies_differ"},
    plant_other_consistent: {"copies_differ"},
    plant_other_sum: {"history_differs"},
    plant_other_number_of_calls: {"history_differs"},
    plant_other_first: {"history_differs"},
    plant_no_first_at_all: {"history_differs"},
    plant_history_of_other_totals: {"history_differs"},
    plant_history_that_differs: {"history_differs"},
}


def test_the_judge_finds_nothing_where_all_is_well(tmp_path: Path) -> None:
    verdict = Files().verdict(tmp_path)
    assert verdict.violations == [], verdict
    assert (verdict.calls, verdict.acknowledged, verdict.unknown, verdict.counted, verdict.again) == (10, 6, 4, 2, 1)
    assert (verdict.counters, verdict.busiest, verdict.changes) == (5, 3, 3)
    assert (verdict.reads, verdict.consistent, verdict.unread, verdict.open_reads) == (8, 6, 1, 3)
    assert (verdict.kills, verdict.terms, verdict.requests) == (1, 2, 94)
    assert verdict.seconds == round(60 / 1e9, 3)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.removeprefix("plant_"))
def test_the_judge_finds_what_is_planted(plant: Callable[[Files], None], tmp_path: Path) -> None:
    files = Files()
    plant(files)
    assert set(files.verdict(tmp_path).violations) == PLANTED[plant]


@pytest.mark.parametrize(
    "reads",
    [
        ["read 51 55 s:9 consistent z views 11003"],
        ["read 52 55 s:9 consistent z views 17104"],
        ["read 53 55 s:9 plain z views 11003"],
        ["read 53 55 r:4 plain z views 11003"],
    ],
    ids=["beside it", "the same", "plain, of another", "plain, of the same"],
)
def test_reads_that_may_differ(reads: list[str], tmp_path: Path) -> None:
    """Of a counter of which a consistent read, from 45 to 52, had the unknown call."""
    files = Files()
    files.notes["reader"] += reads
    assert files.verdict(tmp_path).violations == []


# Of reads and subtractions: -3023 is given at 10 and acknowledged at 20, and further ones are as the tests say.

SCORE = "consistent x stats.score"


def reads_of_score(folder: Path, *reads: str, subtracted: str = "") -> list[str]:
    """What is found in reads alone, told as `asked told process how value`."""
    files = Files()
    files.notes["reader"] = [
        f"read {asked} {told} {process} {how} x stats.score {value}"
        for asked, told, process, how, value in (read.split() for read in reads)
    ]
    if subtracted:
        files.notes["c"] = [subtracted]
    return [name for name in files.verdict(folder).violations if name not in ("lost", "history_differs")]


def test_what_was_subtracted_meanwhile_may_be_missing(tmp_path: Path) -> None:
    """It was given before the second read was answered, and had not returned when the first was asked for."""
    assert reads_of_score(tmp_path, "5 9 r:4 consistent 0", "12 18 s:5 consistent -3023") == []
    assert reads_of_score(tmp_path, "15 17 r:4 consistent 0", "21 22 s:5 consistent -3023") == []
    assert reads_of_score(tmp_path, "5 6 r:4 plain 0", "12 18 r:4 plain -3023") == []
    # Its end was not noted, so that either read may have it: but the second has it once more.
    under_way = "adding 25 c:6 c:1:x:stats.score:-5000:-"
    former = ("30 31 r:4 consistent -3023", "32 33 s:5 consistent -8023")
    assert reads_of_score(tmp_path, *former, subtracted=under_way) == []


def test_what_was_subtracted_before_or_later_may_not(tmp_path: Path) -> None:
    """A sum that was given, and never returned, comes and goes; what was subtracted long ago does not explain it."""
    came = "21 22 r:4 consistent 8984"  # 12007 - 3023
    assert reads_of_score(tmp_path, came, "23 24 s:5 consistent 8984") == ["gone_back"], "it is not in the total"
    assert "gone_back" in reads_of_score(tmp_path, came, "23 24 s:5 consistent -3023")
    files = Files()
    files.count("x", "stats.score", 12007)
    files.final["recalculated"]["x"]["totals"]["stats.score"] += 12007
    files.final["sums"]["stats.score"].update(adds=2, added=8161 + 12007)
    files.final["top"]["stats.score"] = [["x", 8984], ["z", 8161]]
    files.notes["reader"] = [f"read 21 22 r:4 {SCORE} 8984", f"read 23 24 s:5 {SCORE} -3023"]
    assert files.verdict(_folder(tmp_path, "again")).violations == ["gone_back"]
    files.notes["c"] = ["adding 24 c:6 c:1:x:stats.score:-12007:-"]
    assert files.verdict(_folder(tmp_path, "meanwhile")).gone_back == ()
    files.notes["c"] = ["adding 25 c:6 c:1:x:stats.score:-12007:-"]
    assert files.verdict(_folder(tmp_path, "later")).gone_back != ()


def test_a_subtraction_that_the_first_read_had_explains_nothing(tmp_path: Path) -> None:
    """-3023 had returned before either: it does not explain that 2000, which nobody was told about, comes and goes."""
    files = Files()
    files.notes["c"] = ["adding 19 c:6 c:1:x:stats.score:2000:-"]
    files.notes["reader"] = [f"read 21 22 r:4 {SCORE} -1023", f"read 23 24 s:5 {SCORE} -3023"]
    assert any("s:5" in told for told in files.verdict(tmp_path).gone_back)


def test_everything_that_the_judge_can_find_is_planted() -> None:
    assert set().union(*PLANTED.values()) == set(VIOLATIONS)


def test_the_call_that_is_missing_or_too_much_is_named(tmp_path: Path) -> None:
    files = Files()
    plant_wrong_record(files)
    verdict = files.verdict(tmp_path)
    assert verdict.lost[0].startswith("a:2 (+2011 for y views) is not in the total")
    assert verdict.misplaced[0].startswith("a:2 (+2011 for y views) is in this total")


def test_an_unknown_call_counts_or_does_not(tmp_path: Path) -> None:
    """No read has seen it: either is right, as long as history says the same."""
    files = Files()
    files.count("x", "stats.score", 12007)
    files.final["recalculated"]["x"]["totals"]["stats.score"] += 12007
    files.final["sums"]["stats.score"].update(adds=2, added=8161 + 12007)
    files.final["top"]["stats.score"] = [["x", 8984], ["z", 8161]]
    verdict = files.verdict(tmp_path)
    assert (verdict.violations, verdict.counted) == ([], 3)


def test_what_may_have_been_written_may_be_there_or_not(tmp_path: Path) -> None:
    files = Files()
    files.final["records"]["x"]["data"]["title"] = 0
    assert files.verdict(tmp_path).violations == []


# What cannot be judged


def test_a_call_given_again_without_an_op_id(tmp_path: Path) -> None:
    files = Files()
    files.replace("a-again", "adding 60 a:2 ", "adding 60 a:2 a:4:y:views:4057:- ")
    with pytest.raises(Unjudgeable, match="a:4"):
        files.verdict(tmp_path)


@pytest.mark.parametrize("again", ["a:5:x:views:5088:op", "a:5:y:views:5087:op", "a:5:x:stats.score:5087:op"])
def test_another_call_under_the_op_id_of_one(again: str, tmp_path: Path) -> None:
    files = Files()
    files.replace("a-again", "a:5:x:views:5087:op", again)
    with pytest.raises(Unjudgeable, match="given again"):
        files.verdict(tmp_path)


def test_a_call_that_was_given_twice_was_acknowledged_when_it_first_returned(tmp_path: Path) -> None:
    """Whichever file is read first: from then on no consistent read misses it."""
    for name, at in (("later", 90), ("zearlier", 30)):
        twice = Files()
        twice.notes[name] = [f"adding {at} a:9 a:5:x:views:5087:op", f"added {at + 5} a:9 a:5"]
        assert twice.verdict(_folder(tmp_path, name)).violations == []
        twice.notes["reader"].append("read 71 73 r:4 consistent x views 2003")
        assert set(twice.verdict(_folder(tmp_path, f"{name}-missed")).violations) >= {"read_too_low"}


def test_a_call_that_was_given_twice_began_when_it_was_first_given(tmp_path: Path) -> None:
    """A read may have it from then on, whichever file is read first."""
    files = Files()
    files.notes["reader"].append("read 41 42 r:4 consistent x views 7090")
    assert files.verdict(_folder(tmp_path, "then")).violations == []
    files.notes["reader"].append("read 34 35 s:5 consistent x views 7090")
    assert "read_too_high" in files.verdict(_folder(tmp_path, "before")).violations
    files.notes["z"] = ["adding 33 a:9 a:5:x:views:5087:op"]
    assert "read_too_high" not in files.verdict(_folder(tmp_path, "earlier")).violations


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def test_an_answer_to_what_nobody_gave(tmp_path: Path) -> None:
    files = Files()
    files.notes["b"].append("added 90 b:3 b:77")
    with pytest.raises(Unjudgeable, match="not a line"):
        files.verdict(tmp_path)


def test_more_unknown_calls_than_can_be_tried(tmp_path: Path) -> None:
    files = Files()
    files.notes["b"].append(
        " ".join(["adding 90 b:3", *(f"b:{9 + each}:w:views:{each}:-" for each in range(MAX_OPEN + 1))])
    )
    with pytest.raises(Unjudgeable, match="too many"):
        files.verdict(tmp_path)


def test_a_counter_of_which_nothing_is_told(tmp_path: Path) -> None:
    files = Files()
    del files.final["records"]["y"]
    with pytest.raises(Unjudgeable, match="views of y"):
        files.verdict(tmp_path)


def test_a_line_that_was_cut_off_by_a_kill_does_not_count(tmp_path: Path) -> None:
    files = Files()
    notes = files.write(tmp_path)
    with (tmp_path / "b").open("a") as file:
        file.write("adding 99 b:3 b:9:w:vie")
    assert judge_files(notes, [tmp_path / "events"], tmp_path / "final").calls == 10


def test_the_judge_is_a_program(tmp_path: Path) -> None:
    files = Files()
    plant_doubled(files)
    notes = files.write(tmp_path)
    command = [
        sys.executable,
        "-m",
        "lab.counter_judge",
        "--final",
        str(tmp_path / "final"),
        "--notes",
        *map(str, notes),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["violations"] == ["doubled", "history_differs"]
    (tmp_path / "b").write_text("nonsense 1 b:3\n")
    assert subprocess.run(command, capture_output=True, cwd=ROOT, check=False).returncode == 2


def test_an_error_is_one_word() -> None:
    assert error_word(ValueError("no answer\nyet")) == "ValueError:no_answer_yet"
