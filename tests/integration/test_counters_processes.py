"""Counters of real processes whose leader is killed again and again; a program of its own judges their files.

The figures are printed (`pytest -s`) and kept in .reports/counters.json.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lab.counter_cluster import CounterCluster, freeze_leaders, kill_leaders
from lab.counter_judge import VIOLATIONS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.clock
REPORT = ROOT / ".reports" / "counters.json"
CALM = 3.0
"""Seconds from the first entry of a leader to the next kill."""
FROZEN = 6.0
"""Seconds: longer than a lease, and until another leads."""
WITHIN = 90.0
SHARES = pytest.mark.parametrize(("share", "least"), [(4_000, 1), pytest.param(8_000, 2, marks=pytest.mark.trials)])
"""How many adds each of three processes makes, and how often the leader fails at least meanwhile."""


def record(what: str, verdict: dict[str, Any]) -> None:
    shown = {name: value for name, value in verdict.items() if name not in (*VIOLATIONS, "violations")}
    print(f"\n{what}: {json.dumps(shown)}")
    REPORT.parent.mkdir(exist_ok=True)
    known: dict[str, Any] = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    known[what] = shown
    REPORT.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


def planted(cluster: CounterCluster, change: Callable[[dict[str, Any], dict[str, int]], None]) -> set[str]:
    """What the judge says of this very run if something in what was told at the end is another."""
    was = cluster.final.read_text()
    told = json.loads(was)
    adding = (line for path in cluster.folder.glob("*.notes") for line in path.read_text().split("\n"))
    first = next(line for line in adding if line.startswith("added ")).split(" ")[3]
    texts = (path.read_text() for path in cluster.folder.glob(f"{first.partition(':')[0]}-*.notes"))
    call = next(word for text in texts for word in text.split() if word.startswith(f"{first}:")).split(":")
    change(told["records"][call[2]]["totals"], {call[3]: int(call[4])})
    cluster.final.write_text(json.dumps(told))
    code, verdict = cluster.judged()
    cluster.final.write_text(was)
    assert code == 1
    return set(verdict["violations"])


def lose(totals: dict[str, Any], amount: dict[str, int]) -> None:
    for field, value in amount.items():
        totals[field] -= value


def double(totals: dict[str, Any], amount: dict[str, int]) -> None:
    for field, value in amount.items():
        totals[field] += value


Trouble = Callable[[CounterCluster, tuple[str, ...]], Awaitable[list[float]]]
"""What leaders suffer for as long as anybody writes; gives how long each failover took."""


def killed(cluster: CounterCluster, options: tuple[str, ...]) -> Awaitable[list[float]]:
    return kill_leaders(cluster, CALM, options, WITHIN)


def frozen(cluster: CounterCluster, options: tuple[str, ...]) -> Awaitable[list[float]]:
    return freeze_leaders(cluster, CALM, FROZEN, WITHIN)


async def count_and_judge(
    url: str, folder: Path, writers: str, records: int, share: int, *more: str, trouble: Trouble = killed
) -> dict[str, Any]:
    options = ("--share", str(share), *more)
    async with CounterCluster(url, folder, records=records) as cluster:
        await cluster.insert_first()
        cluster.beside("changer")
        cluster.beside("reader")
        for name in writers:
            cluster.start(name, *options)
        failovers = await trouble(cluster, options)
        await cluster.end_others()
        await cluster.ask(WITHIN)
        code, verdict = cluster.judged()
        assert (code, verdict["violations"]) == (0, []), json.dumps(verdict, indent=2) + await cluster.report()
        assert verdict["calls"] == len(writers) * share
        assert verdict["acknowledged"] + verdict["unknown"] == verdict["calls"]
        assert verdict["terms"] >= len(failovers) + 1
        assert verdict["unread"] <= verdict["reads"] / 10, verdict
        assert verdict["open_reads"] > 0, "reads while something was under way"
        assert verdict["changes"] > 0
        assert verdict["again"] > 0, "calls were given again under their op_id"
        assert {"lost"} <= planted(cluster, lose) <= {"lost", "gone_back", "copies_differ", "history_differs"}
        # An amount that was subtracted and counts twice takes the total below what somebody has read.
        assert {"doubled"} <= planted(cluster, double) <= {"doubled", "gone_back", "copies_differ", "history_differs"}
    return {**verdict, "failovers": sorted(failovers)}


@pytest.mark.trials
@pytest.mark.slow
@pytest.mark.req("EC-1", "EC-2")
async def test_a_hundred_thousand_adds_while_every_leader_is_killed(
    url_of: Callable[[str], str], tmp_path: Path
) -> None:
    verdict = await count_and_judge(url_of("ministack"), tmp_path / "files", "abcdefgh", 1000, 12_500)
    assert verdict["calls"] == 100_000
    assert verdict["kills"] == len(verdict["failovers"]) >= 4
    assert verdict["unknown"] > 0, "some were killed in the middle of a call"
    record("100,000 adds, leaders killed, ministack", verdict)


@pytest.mark.slow
@pytest.mark.req("EC-1", "EC-2")
@SHARES
async def test_adds_while_leaders_are_killed_on_a_directory(
    share: int, least: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    verdict = await count_and_judge(url_of("directory"), tmp_path / "files", "abc", 200, share, "--burst", "10")
    assert verdict["kills"] == len(verdict["failovers"]) >= least
    record("adds, leaders killed, directory", verdict)


@pytest.mark.slow
@pytest.mark.req("EC-2")
@SHARES
async def test_adds_while_leaders_are_frozen_and_go_on(
    share: int, least: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    """A leader that sleeps through its term wakes up in the middle of what it did, beside the next one."""
    verdict = await count_and_judge(
        url_of("directory"), tmp_path / "files", "abc", 200, share, "--burst", "10", trouble=frozen
    )
    assert verdict["kills"] == 0
    assert len(verdict["failovers"]) >= least
    record("adds, leaders frozen, directory", verdict)
