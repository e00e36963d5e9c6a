"""The judge of locks fails on what it must fail on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.judge import Unjudgeable
from lab.lock_judge import judge_locks, percentiles, read_waits

MS = 1_000_000
ROOT = Path(__file__).resolve().parents[2]


def log(path: Path, process: str, token: int, from_ms: int, to_ms: int) -> Path:
    lines = [f"{at * MS} {at * MS + 1000} {process} {token} 1 1" for at in range(from_ms, to_ms, 10)]
    with path.open("a") as file:
        file.write("".join(line + "\n" for line in lines))
    return path


def test_holders_one_after_the_other_are_fine(tmp_path: Path) -> None:
    logs = [log(tmp_path / "a", "a:1", 1, 0, 100), log(tmp_path / "b", "b:2", 2, 110, 200)]
    verdict = judge_locks(logs, killed_ns=[95 * MS])
    assert verdict.violations == []
    assert verdict.grants == 2
    assert verdict.takeovers[0].seconds == pytest.approx(0.015, abs=1e-3)


def test_a_planted_overlap_is_found(tmp_path: Path) -> None:
    logs = [log(tmp_path / "a", "a:1", 1, 0, 100), log(tmp_path / "b", "b:2", 2, 60, 200)]
    assert {"overlaps", "entitled_overlaps"} <= set(judge_locks(logs).violations)


def test_a_token_that_goes_back_or_comes_twice_is_found(tmp_path: Path) -> None:
    back = [log(tmp_path / "a", "a:1", 5, 0, 100), log(tmp_path / "b", "b:2", 4, 110, 200)]
    assert judge_locks(back).violations == ["tokens_gone_back"]
    twice = [log(tmp_path / "c", "c:1", 5, 0, 100), log(tmp_path / "d", "d:2", 5, 110, 200)]
    assert "tokens_held_twice" in judge_locks(twice).violations
    again = [waits(tmp_path / "waits", (1, 2, 7), (3, 4, 7), (5, 6, 8))]
    assert judge_locks([log(tmp_path / "e", "e:1", 9, 10, 20)], again).acquired_twice == (7,)


def waits(path: Path, *acquisitions: tuple[int, int, int]) -> Path:
    """Of each when it was asked for and had, in milliseconds, and its token."""
    path.write_text("".join(f"{asked * MS} {got * MS} {token}\n" for asked, got, token in acquisitions))
    return path


def test_tokens_of_waits_that_rise_are_fine(tmp_path: Path) -> None:
    """Also if one asked before another had it, and was told later: it may have been given first."""
    logs = [log(tmp_path / "a", "a:1", 5, 0, 100), log(tmp_path / "b", "b:2", 8, 310, 400)]
    found = [waits(tmp_path / "aw", (0, 0, 5), (149, 220, 6)), waits(tmp_path / "bw", (10, 150, 7), (220, 300, 8))]
    verdict = judge_locks(logs, found)
    assert verdict.violations == []
    assert (verdict.acquisitions, verdict.grants) == (4, 2)


@pytest.mark.parametrize(
    ("first", "second", "back"),
    [
        ((0, 149, 7), (150, 200, 6), ((7, 6),)),
        ((0, 150, 7), (150, 200, 6), ()),
        ((150, 200, 6), (0, 149, 7), ((7, 6),)),
        ((0, 149, 6), (150, 200, 7), ()),
    ],
    ids=["back", "beside each other", "back, in another file", "rising"],
)
def test_a_token_that_goes_back_where_no_log_has_it(
    first: tuple[int, int, int], second: tuple[int, int, int], back: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    logs = [log(tmp_path / "a", "a:1", 9, 300, 400)]
    verdict = judge_locks(logs, [waits(tmp_path / "aw", first), waits(tmp_path / "bw", second)])
    assert verdict.tokens_gone_back == back
    assert verdict.violations == (["tokens_gone_back"] if back else [])


def test_a_token_that_goes_back_from_a_log_to_the_waits_and_the_other_way(tmp_path: Path) -> None:
    logs = [log(tmp_path / "a", "a:1", 7, 100, 200)]
    assert judge_locks(logs, [waits(tmp_path / "after", (150, 160, 6))]).tokens_gone_back == ((7, 6),)
    assert judge_locks(logs, [waits(tmp_path / "before", (50, 60, 8))]).tokens_gone_back == ((8, 7),)
    assert judge_locks(logs, [waits(tmp_path / "rising", (50, 60, 6), (201, 210, 8))]).violations == []


def test_who_believes_under_no_token_is_found(tmp_path: Path) -> None:
    verdict = judge_locks([log(tmp_path / "a", "a:1", 0, 0, 100), log(tmp_path / "b", "b:2", 1, 110, 200)])
    assert verdict.without_token == ("a:1",)
    assert verdict.violations == ["without_token"]


@pytest.mark.parametrize("which", ["log", "waits"])
def test_what_is_no_text_is_not_judged(which: str, tmp_path: Path) -> None:
    """The program says so, and does not fail otherwise: whoever asked it reads its answer."""
    good, found = log(tmp_path / "log", "a:1", 1, 0, 100), waits(tmp_path / "waits", (0, 1, 1))
    command = [sys.executable, "-m", "lab.lock_judge", str(good), "--waits", str(found)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, json.loads(done.stdout)["violations"]) == (0, [])
    (tmp_path / which).write_bytes(b"\xff\xfe\n")
    with pytest.raises(Unjudgeable, match="no text"):
        judge_locks([good], [found])
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is no text" in done.stderr


def test_what_is_no_log_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(Unjudgeable):
        read_waits("one two three\n")
    with pytest.raises(Unjudgeable):
        judge_locks([])


def test_percentiles() -> None:
    assert percentiles([float(i) for i in range(1, 1001)]) == {"p50": 501, "p99": 991, "p99.9": 1000, "longest": 1000}
