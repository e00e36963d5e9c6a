"""Who judges a soak: what leaks is found through all that goes up and down, and what does not leak is left alone."""

from __future__ import annotations

import ctypes
import math
import os
from random import Random

import pytest

from lab.soak.fleet import LIMITS, Report, folder_of, proc
from lab.soak.judge import Limit, Series, judge, judge_all, slope, table
from lab.soak.node import malloc_state, measured
from lab.soak.simulated import BROKEN, HOURS, SimulatedSoak, less_days
from tenure.ledger.snapshots import Archivist

HOUR = 3600.0


def saw_tooth(at: float, growth: float = 0.0) -> float:
    """A log: a hundred entries more in ten minutes, and then it is trimmed."""
    return 100 + at % 600 / 6 + growth * at / HOUR


def roles(at: float) -> float:
    """Tasks of a process that leads every third time, and for longer and longer: no leak."""
    return 34 + (25 if at % 270 < 90 + at / 120 else 0)


def sampled(value: object, seed: int = 1, noise: float = 2.0) -> Series:
    assert callable(value)
    dice = Random(seed)
    return [(at, value(at) + dice.uniform(0, noise)) for at in (5.0 * number for number in range(720))]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("value", [saw_tooth, roles, lambda at: 50.0, lambda at: 500 * math.exp(-at / 200)])
def test_what_goes_up_and_down_is_flat(value: object, seed: int) -> None:
    row = judge("n1", "tasks", sampled(value, seed), Limit(4), after=1000.0)
    assert row.is_flat, row


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "value",
    [
        lambda at: saw_tooth(at, growth=20),
        lambda at: roles(at) + at / 200,
        lambda at: 50 + (at > 2000) * (at - 2000) / 60,
    ],
)
def test_what_leaks_is_found(value: object, seed: int) -> None:
    row = judge("n1", "tasks", sampled(value, seed), Limit(4), after=1000.0)
    assert not row.is_flat, row
    assert "GREW" in table([row])[1]


def test_a_leak_in_the_warm_up_is_none() -> None:
    row = judge("n1", "threads", sampled(lambda at: min(at, 900.0)), Limit(3), after=1000.0)
    assert row.is_flat, row


def test_too_few_samples_are_no_verdict() -> None:
    row = judge("n1", "rss", [(float(at), 1.0) for at in range(7)], Limit(1e9), after=0.0)
    assert not row.is_flat
    assert "TOO FEW" in table([row])[1]
    assert not Report(store="directory", minutes=1, warm_up=0, nodes=1, broken=[]).is_flat, "nothing was judged"


def test_a_quarter_of_the_samples_may_be_wild() -> None:
    dice = Random(1)
    series = [(float(at), dice.uniform(-1e6, 1e6) if dice.random() < 0.2 else 2.0 * at) for at in range(60)]
    assert slope(series) == pytest.approx(2.0, rel=0.2)


def test_a_limit_is_the_largest_of_its_three() -> None:
    assert Limit(3).of(7200, 1000) == 3
    assert Limit(3, an_hour=4).of(7200, 1000) == 8
    assert Limit(3, an_hour=4, share=0.1).of(7200, 1000) == 100


def test_each_series_has_a_limit() -> None:
    flat = [(float(at), 1.0) for at in range(20)]
    whats = [
        *proc(os.getpid()),
        *measured(),
        "bucket/leak",
        "bucket/s3-queue/log",
        "bucket/terms",
    ]
    rows = judge_all({("n1", what): flat for what in whats}, LIMITS, after=0.0)
    assert {row.what: row.limit for row in rows}["bucket/s3-queue/log"] == LIMITS["bucket"].least
    assert all(row.is_flat for row in rows)


@pytest.mark.parametrize(
    ("key", "folder"),
    [
        ("plugin=coordinator/namespace=default/terms/00000000000000000001.json", "terms"),
        ("plugin=coordinator/namespace=default/state.json", "namespace"),
        ("plugin=coordinator/namespace=default/workers/worker=a.json", "workers"),
        ("plugin=s3-queue/name=jobs/log/00000000000000000001", "s3-queue/log"),
        ("plugin=ttl/name=sessions/due/000/x/y", "ttl/due"),
        ("plugin=ttl/name=sessions/agreed.json", "ttl"),
        ("resource=pages/data/page0001.json", "data"),
        ("leak/n1-1-7", "leak"),
        ("stray", "other"),
    ],
)
def test_folders(key: str, folder: str) -> None:
    assert folder_of(key) == folder


def test_a_process_that_is_gone_has_nothing() -> None:
    assert proc(os.getpid())["files"] > 2
    assert proc(2**30) == {}


def pages(at: float, a_day: float) -> float:
    """Of a counter's history: one an hour, which become one a day when that is over."""
    return 10 + at % (24 * HOUR) / HOUR + a_day * (at // (24 * HOUR))


@pytest.mark.parametrize(("a_day", "is_flat"), [(1.0, True), (2.0, False)])
def test_a_page_a_day_is_no_leak_and_two_are(a_day: float, is_flat: bool) -> None:
    series = [(HOUR * number, pages(HOUR * number, a_day)) for number in range(8 * 24)]
    row = judge("all", "bucket/pages", less_days(series), Limit(5, share=0.1), after=24 * HOUR)
    assert row.is_flat is is_flat, row


def test_memory_that_python_knows_nothing_of_is_seen() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    before = malloc_state()
    if not before:
        pytest.skip("this libc has no mallinfo2")
    blocks = [libc.malloc(50_000) for _ in range(40)]
    held = malloc_state()["malloc"] - before["malloc"]
    for block in blocks:
        libc.free(ctypes.c_void_p(block))
    assert held >= 2_000_000
    assert malloc_state()["malloc"] - before["malloc"] < 1_000_000


@pytest.mark.slow
def test_five_simulated_hours_of_short_terms_are_flat() -> None:
    report = SimulatedSoak(HOURS).run()
    assert not report.failures
    assert report.terms > 40
    assert report.is_flat, "\n".join(table(report.rows))


@pytest.mark.trials
def test_what_leaks_in_simulated_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Archivist, "to_recall", lambda archivist: None)  # what was seen before a term does not count
    report = SimulatedSoak(HOURS, broken=tuple(BROKEN)).run()
    grew = {row.what for row in report.rows if not row.is_flat}
    assert not report.failures
    assert grew >= {"blocks", "objects", "tasks", "bucket/leak", "bucket/s3-queue/log"}, "\n".join(table(report.rows))
