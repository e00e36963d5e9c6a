"""The bench that compares two versions of the sources: what it makes of its samples."""

from __future__ import annotations

import cProfile
from typing import Any

import pytest

from bench.pages.profile import page
from bench.profile.__main__ import limits_of, rows_of, sources_of
from bench.profile.plan import MOST_OF_BEFORE
from bench.profile.work import where


def idle(leader: float, follower: float) -> dict[str, Any]:
    return {
        "leader": {"cpu_seconds_per_hour": leader, "wakeups_per_second": 2 * leader},
        "follower": {"cpu_seconds_per_hour": follower, "wakeups_per_second": 2 * follower},
    }


def result(**changes: Any) -> dict[str, Any]:
    lapse = {"cold_start_busiest_second": 50, "seconds": [12.0]}
    found = {
        "plan": {"rate": 500.0, "workers": 1000},
        "before": "0123456789abcdef",
        "load_averages": [[1.0, 2.0, 3.0], [1.5, 2.0, 3.0]],
        "cycle": {"before": idle(9.0, 7.0), "after": idle(4.5, 3.5)},
        "queue": {
            "before": [{"message_us": each, "requests_each": 0.6} for each in (300, 500, 310)],
            "after": [{"message_us": each, "requests_each": 0.6} for each in (200, 210, 900)],
        },
        "requests": {
            "before": [{"get_us": 150.0, "create_us": 600.0}],
            "after": [{"get_us": 90.0, "create_us": 540.0}],
        },
        "lapse": {"before": [{**lapse, "busiest_second": 1000}], "after": [{**lapse, "busiest_second": 40}]},
        "where": {version: [{"function": "f", "share": 0.5, "calls": 10}] for version in ("before", "after")},
    }
    return {**found, **changes}


def test_medians_of_both_versions_stand_side_by_side() -> None:
    rows = {what: (before, after) for what, before, after in rows_of(result())}
    assert rows["queue, CPU µs a message"] == (310, 210)
    assert rows["idle leader, CPU seconds an hour"] == (9.0, 4.5)
    assert rows["leader crashed, requests in the busiest second"] == (1000, 40)


def test_the_bars_are_met_and_can_be_missed() -> None:
    assert {limit.met for limit in limits_of(result())} == {True}
    assert len(limits_of(result())) == len(MOST_OF_BEFORE)
    worse = result(cycle={"before": idle(9.0, 7.0), "after": idle(8.9, 7.0)})
    assert [limit.met for limit in limits_of(worse)] == [False, True, True]


def test_what_was_not_measured_is_not_shown() -> None:
    few = {"requests": result()["requests"]}
    assert [what for what, _, _ in rows_of(few)] == ["`get` on a directory, CPU µs", "`create` on a directory, CPU µs"]
    assert len(limits_of(few)) == 1


def test_the_page_names_the_revision_and_every_figure() -> None:
    made = page(result())
    assert "`0123456789ab`" in made.text
    assert all(what in made.text for what, _, _ in rows_of(result()))
    assert "{" not in made.text.replace("{{profile-shares}}", "")
    assert "0.04" in made.pictures["profile-shares"]


def test_an_unknown_revision_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match=r"no-such-revision.*--before"):
        sources_of("no-such-revision")


def test_the_profile_leaves_out_waiting() -> None:
    profile = cProfile.Profile()
    profile.enable()
    sum(len(str(number)) for number in range(20_000))
    profile.disable()
    rows = where(profile)
    assert rows
    assert sum(row["share"] for row in rows) == pytest.approx(1.0, abs=0.05)
    assert not any("poll" in row["function"] for row in rows)
