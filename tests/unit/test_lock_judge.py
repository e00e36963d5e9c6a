"""The judge of locks fails on what it must fail on."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.judge import Unjudgeable
from lab.lock_judge import judge_locks, percentiles, read_waits

MS = 1_000_000


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
    waits = tmp_path / "waits"
    waits.write_text("1 2 7\n3 4 7\n")
    assert "acquired_twice" in judge_locks([log(tmp_path / "e", "e:1", 9, 0, 20)], [waits]).violations


def test_what_is_no_log_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(Unjudgeable):
        read_waits("one two three\n")
    with pytest.raises(Unjudgeable):
        judge_locks([])


def test_percentiles() -> None:
    assert percentiles([float(i) for i in range(1, 1001)]) == {"p50": 501, "p99": 991, "p99.9": 1000, "longest": 1000}
