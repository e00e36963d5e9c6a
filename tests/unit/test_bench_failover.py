"""`make bench-failover` is run by hand: what it counts, and that it still runs, is tested here."""

from __future__ import annotations

import asyncio
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.failover.__main__ import measure, parse, plan_of
from bench.failover.figures import Trial, judged, lasted, limits_of, quantile, samples_of, summary
from bench.failover.plan import KINDS, Plan
from bench.failover.systems import SYSTEMS, TenureOnDirectory
from bench.failover.table import failed, show
from bench.pages.failover import page
from lab.judge import Overlap

SECOND = 1_000_000_000
MS = 1_000_000


def log(folder: Path, name: str, *beliefs: tuple[float, float, bool], every: float = 0.01) -> Path:
    """What a process noted, from such a second to such a one."""
    path = folder / name
    lines = []
    term = 0
    for begin, end, leading in beliefs:
        term += leading
        for number in range(round((end - begin) / every)):
            at = round((begin + number * every) * SECOND)
            lines.append(f"{at} {at + 1000} {name} {term * leading} {leading:d} {leading:d}\n")
    path.write_text("".join(lines))
    return path


def test_a_takeover_lasts_from_the_signal_to_the_next_belief_of_another(tmp_path: Path) -> None:
    logs = [
        log(tmp_path, "one:1", (0, 5, True)),
        log(tmp_path, "two:2", (0, 8, False), (8, 20, True)),
        log(tmp_path, "three:3", (0, 20, False), (20.5, 25, True)),
    ]
    trials = [Trial("stop", "two:2", 20 * SECOND, 1.0), Trial("crash", "one:1", 5 * SECOND, 1.0)]
    found = judged(trials, logs)
    assert [(each["kind"], each["seconds"]) for each in found["trials"]] == [("crash", 3.0), ("stop", 0.5)]
    assert found["trials"][0]["successor"] == "two:2"
    assert found["overlaps"] == 0 and found["overlap_seconds"] == 0.0


def test_a_frozen_leader_overlaps_only_while_it_runs(tmp_path: Path) -> None:
    """It believed before and after its freeze; the time between is not held against it."""
    logs = [
        log(tmp_path, "one:1", (0, 5, True), (14, 14.2, True), (14.2, 20, False)),
        log(tmp_path, "two:2", (0, 8, False), (8, 20, True)),
    ]
    (trial,) = judged([Trial("freeze", "one:1", 5 * SECOND, 1.0)], logs)["trials"]
    assert trial["seconds"] == 3.0
    assert trial["overlaps"] == 1
    assert trial["overlap_seconds"] == pytest.approx(0.19, abs=0.011)


def test_a_trial_before_which_two_led_has_no_figure(tmp_path: Path) -> None:
    logs = [log(tmp_path, "one:1", (0, 5, True)), log(tmp_path, "two:2", (0, 4, False), (4, 9, True))]
    found = judged([Trial("crash", "one:1", 5 * SECOND, 1.0)], logs)
    assert found["trials"][0]["seconds"] is None
    assert found["overlap_seconds_at_start"] == pytest.approx(1.0, abs=0.02)
    assert failed({**found, "failures": []}) == 1
    nobody = judged([Trial("crash", "two:2", 9 * SECOND, 1.0)], logs)
    assert nobody["trials"][0]["note"] == "nobody led any more"


def test_what_several_pairs_share_counts_once() -> None:
    pairs = [(0, 10), (5, 15), (20, 21), (20, 20)]
    overlaps = [Overlap(("a", "b"), (1, 2), begin * SECOND, end * SECOND) for begin, end in pairs]
    assert lasted(overlaps) == 16.0
    assert lasted([]) == 0.0


def test_few_samples_have_their_greatest_as_p99() -> None:
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0.5, 0.99)] == [2.0, 3.0]
    assert quantile([float(number) for number in range(1, 201)], 0.99) == 198.0
    assert summary([]) == {}
    assert summary([1.0, 2.0, 6.0]) == {"trials": 3, "p50": 2.0, "p99": 6.0, "mean": 3.0}


def subject(system: str, *, overlaps: int = 0, violations: tuple[str, ...] = (), **seconds: float) -> dict[str, Any]:
    """Two trials of each kind at both leases, of so many seconds at 15 s and a fifth of it at 3 s."""

    def contest(lease: float) -> dict[str, Any]:
        each = {"overlaps": 0, "overlap_seconds": 0.0, "overlap_seconds_if_asked": 0.0}
        trials = [
            {**each, "kind": kind, "seconds": seconds[kind] * lease / 15 + more}
            for kind in KINDS
            for more in (-0.1, 0.1)
        ]
        trials[-1]["overlap_seconds"] = 0.25 * overlaps
        total = {"overlaps": overlaps, "overlap_seconds": 0.25 * overlaps, "overlap_seconds_if_asked": 0.0}
        used = 5.0 if system == "s3db" and lease == 3 else lease
        return {
            "asked_lease": lease,
            "lease": used,
            "trials": trials,
            "failures": [],
            "violations": violations,
            "settings": "its own",
            **total,
        }

    fields = {"system": system, "label": system, "version": "1", "belief": "it says so"}
    return {**fields, "contests": [contest(3.0), contest(15.0)]}


def all_subjects() -> list[dict[str, Any]]:
    return [
        subject("tenure", crash=13.0, stop=1.0, freeze=13.0),
        subject("s3db", crash=24.0, stop=8.0, freeze=20.0, overlaps=2),
        subject("etcd", crash=12.5, stop=0.01, freeze=12.5),
        subject("zookeeper", crash=13.5, stop=0.02, freeze=13.0),
        subject("redis", crash=12.0, stop=0.1, freeze=12.0, overlaps=1),
    ]


def test_the_bars_compare_means_at_leases_that_both_have() -> None:
    limits = limits_of(all_subjects())
    assert [round(limit.value, 3) for limit in limits] == [0, 0, 0.542, 0.125, 1.04, 0.963, 1.04, 0.963]
    assert all(limit.met for limit in limits)
    assert not any("s3db" in limit.what and "lease 3 s" in limit.what for limit in limits)


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"overlaps": 1}, "two led at once"),
        ({"violations": ("terms_resumed",)}, "rules broken"),
        ({"stop": 2.1}, "of s3db.js"),
        ({"crash": 14.6}, "of etcd's"),
    ],
)
def test_a_bar_is_missed(change: dict[str, Any], missed: str) -> None:
    ours = subject("tenure", **{"crash": 13.0, "stop": 1.0, "freeze": 13.0, **change})
    limits = limits_of([ours, *all_subjects()[1:]])
    assert [missed in limit.what for limit in limits if not limit.met] != []
    assert all(missed in limit.what for limit in limits if not limit.met)


def test_a_peer_without_figures_has_no_bar() -> None:
    assert not any(
        "etcd" in limit.what for limit in limits_of([each for each in all_subjects() if each["system"] != "etcd"])
    )


def test_the_table_and_the_page_show_every_system() -> None:
    subjects = all_subjects()
    console = Console(width=200, file=io.StringIO())
    show(subjects, (3.0, 15.0), console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "s3db (lease 5 s)" in shown and "0.5 (2 times; freeze 0.5)" in shown
    made = page({"subjects": subjects, "limits": []})
    assert set(made.pictures) == {"failover-3", "failover-15"}
    for name, svg in made.pictures.items():
        assert "{{" + name + "}}" in made.text
        circles = ElementTree.fromstring(svg).findall("{http://www.w3.org/2000/svg}circle")
        assert len(circles) == len(subjects) * len(KINDS) * 2
    assert "| s3db (lease 5 s) | 4.70 |" in made.text
    assert "Trials of each system: 2 of crash, 2 of stop, 2 of freeze." in made.text
    assert "trusts its last extension for 0.500 s" in made.text


def test_the_counts_are_those_that_were_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench.failover"])
    plan = plan_of(parse())
    assert plan == Plan.full()
    assert min(plan.trials[3.0].values()) >= 20 and min(plan.trials[15.0].values()) >= 5
    monkeypatch.setattr("sys.argv", ["bench.failover", "--leases", "15", "--trials", "2", "--seed", "7"])
    plan = plan_of(parse())
    assert (plan.trials, plan.seed) == ({15.0: dict.fromkeys(KINDS, 2)}, 7)
    monkeypatch.setattr("sys.argv", ["bench.failover", "--leases", "15", "--quick"])
    assert plan_of(parse()).trials == {15.0: dict.fromkeys(KINDS, 1)}


def test_no_system_is_listed_twice() -> None:
    assert len(SYSTEMS) == 6 and len({system.label for system in SYSTEMS.values()}) == 6


@pytest.mark.trials
def test_trials_are_made_with_real_processes(tmp_path: Path) -> None:
    system = TenureOnDirectory(tmp_path / "tenure", tmp_path)
    version = system.start()
    subjects, lacking = asyncio.run(measure([(system, version)], Plan.quick(), 1, tmp_path / "run", print))
    assert lacking == []
    (contest,) = subjects[0]["contests"]
    assert {trial["kind"] for trial in contest["trials"]} == set(KINDS)
    assert contest["overlaps"] == 0 and contest["violations"] == []
    assert 1.5 < samples_of(contest, "crash")[0] < 30
