"""`tenure counter`: count from a shell, and look at totals, rankings and history, with and without a leader."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tenure import CoordinatorConfig, EventualConsistencyPlugin, blocking
from tests.support.command import Run, environment, ok, tenure

PATIENCE = 60.0
UrlOf = Callable[[str], str]
SWIFT = CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
FIELDS = {"views": int, "paid": Decimal, "stats.peak": "float:max"}
EVIL = "ada \x1b[31m\u202e"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def leading(url: str, **options: Any) -> Iterator[tuple[blocking.Database, blocking.Counters]]:
    """Somebody who leads the counters, and looks for amounts all the time."""
    name = options.pop("name", None)
    plugin = EventualConsistencyPlugin("pages", FIELDS, config=SWIFT, interval=0.1, idle_budget=72_000, **options)
    with blocking.Database(url, worker_id="pod-7") as db:
        counters = db.use_plugin(plugin, name)
        deadline = time.monotonic() + PATIENCE
        while not counters.is_leading:
            assert time.monotonic() < deadline, "it does not lead"
            time.sleep(0.02)
        yield db, counters


def counter(home: Path, command: str, *words: str, **environment: str) -> Run:
    return tenure("counter", command, *words, **environment, home=home)


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


# With somebody who leads


@pytest.mark.req("EC-1")
@pytest.mark.servers
def test_on_an_s3_server(url_of: UrlOf, home: Path) -> None:
    url = url_of("ministack")
    with leading(url):
        given = ok(counter(home, "add", url, "pages", "home", "views", "5", "--sync", "--json")).json()
        assert (given["consolidated"], given["total"]) == (True, 5)
        assert ok(counter(home, "get", url, "pages", "home", "views")).out == "5\n"
        assert ok(counter(home, "top", url, "pages", "views", "--json")).json()["top"] == [
            {"id": "home", "value": 5, "calls": 1}
        ]
        assert ok(counter(home, "history", url, "pages", "home", "views", "--json")).json()["buckets"][0]["net"] == 5


@pytest.mark.req("EC-1", "EC-2")
def test_amounts_are_counted_and_told(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url) as (db, counters):
        db.resource("pages").insert({"title": "Home"}, id="home")
        told = ok(counter(home, "add", url, "pages", "home", "views", "--sync")).out
        assert told == "1 added to 'views' of 'home': its total is 1\n"
        for words in (("41",), ("10", "--sub"), ("-2",), ("7", "--op-id", "once"), ("7", "--op-id", "once")):
            assert ok(counter(home, "add", url, "pages", "home", "views", *words)).out.endswith("'home': durable\n")
        assert ok(counter(home, "get", url, "pages", "home", "views", "--consistent")).out == "37\n"
        assert ok(counter(home, "add", url, "pages", "home", "paid", "0.10", "--sync")).out.endswith("is 0.10\n")
        ok(counter(home, "add", url, "pages", "home", "paid", "0.20"))
        ok(counter(home, "add", url, "pages", "home", "stats.peak", "2.5"))
        ok(counter(home, "add", url, "pages", "about", "views", "3", "--set"))
        counters.consolidate(timeout=PATIENCE)
        assert db.resource("pages").get("home").data == {
            "title": "Home",
            "views": 37,
            "paid": "0.30",
            "stats": {"peak": 2.5},
        }
        found = ok(counter(home, "get", url, "pages", "home", "--json")).json()
        assert found["totals"] == {"views": 37, "paid": "0.30", "stats.peak": 2.5}
        assert found["counted_as"] == {"views": "int:sum", "paid": "decimal:sum", "stats.peak": "float:max"}
        assert (found["record"], found["consistent"]) == (True, False)
        shown = ok(counter(home, "get", url, "pages", "home")).out
        assert re.search(r"^paid +0\.30 +decimal:sum$", shown, re.MULTILINE)
        assert not ok(counter(home, "get", url, "pages", "about", "--json")).json()["record"]

        top = ok(counter(home, "top", url, "pages", "views", "--period", "day", "--json")).json()
        assert [(each["id"], each["value"], each["calls"]) for each in top["top"]] == [("home", 37, 5), ("about", 3, 1)]
        shown = ok(counter(home, "top", url, "pages", "views", "-n", "1")).out
        assert re.search(r"^1 +home +37 +5$", shown, re.MULTILINE)
        assert "about" not in shown

        (day,) = ok(counter(home, "history", url, "pages", "views", "--json")).json()["buckets"]
        expected = {"adds": 4, "added": 47, "subs": 1, "subbed": 10, "net": 37, "sets": 1, "period": "day"}
        assert expected.items() <= day.items()
        shown = ok(counter(home, "history", url, "pages", "home", "views", "--period", "hour")).out
        assert re.search(r"^\d{4}-\d\d-\d\d \d\d:00Z +hour +4 +47 +1 +10 +37$", shown, re.MULTILINE)
        peak = ok(counter(home, "history", url, "pages", "home", "stats.peak", "--json")).json()["buckets"]
        assert [(each["adds"], each["net"]) for each in peak] == [(1, None)]


@pytest.mark.req("EC-1")
def test_counters_in_another_time_zone_and_under_another_name(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url, name="traffic", timezone="Asia/Kathmandu") as (_, counters):
        named = ("--name", "traffic")
        ok(counter(home, "add", url, "pages", "home", "views", *named, "--sync"))
        assert counters.get("home", "views") == 1
        story = ok(counter(home, "history", url, "pages", "home", "views", "--json", *named)).json()
        assert story["timezone"] == "Asia/Kathmandu"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d 00:00 \+05:45", story["buckets"][0]["start"])
        start = story["buckets"][0]["start"][:10]
        for at, count in ((f"{start}T23:00", 1), (f"{start}T19:00Z", 0)):  # 23:00 there; 00:45 of the next day
            ranked = counter(home, "top", url, "pages", "views", "--period", "day", "--at", at, "--json", *named)
            assert len(ok(ranked).json()["top"]) == count, at
        refused = counter(home, "get", url, "pages", "home")
        assert refused.code == 1
        assert "nothing of 'pages' is counted" in refused.err
        assert "there are counters of 'traffic'" in refused.err


@pytest.mark.slow
def test_a_live_ranking_on_a_terminal_and_lines_elsewhere(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url) as (_, counters):
        counters.add("home", "views", 3, mode="sync", timeout=PATIENCE)
        watched = ("top", url, "pages", "views", "--watch", "--interval", "200ms", "--for", "1s")
        lines = ok(counter(home, *watched, "--json")).out.splitlines()
        assert len(lines) >= 2
        assert {json.loads(line)["top"][0]["value"] for line in lines} == {3}
        assert ok(counter(home, *watched)).out.count("home") == 1, "what has not changed is not told again"
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "tenure", "counter", *watched],
            cwd=home,
            env=environment({"TERM": "xterm"}),
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=subprocess.PIPE,
        )
        os.close(follower)
        seen = b""
        with contextlib.suppress(OSError):  # Linux says so when nobody writes any more
            while piece := os.read(leader, 65536):
                seen += piece
        os.close(leader)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, b"")
        assert seen.count(b"home") >= 2


# Without anybody


@pytest.mark.req("EC-1", "EC-2")
def test_nobody_needs_to_run(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(counter(home, "add", url, "pages", "home", "views", "3", "--new"))
    assert ok(counter(home, "get", url, "pages", "home", "views", "--consistent")).out == "3\n"
    waiting = ok(counter(home, "get", url, "pages", "home", "views"))
    assert waiting.out == "0\n"
    assert "1 object lies in the inbox" in waiting.err
    assert "no process has led these counters yet" in waiting.err
    for words in (("top", url, "pages", "views"), ("history", url, "pages", "home", "views")):
        empty = ok(counter(home, *words))
        assert "no leader has counted anything of 'views'" in empty.out
        assert "1 object lies in the inbox" in empty.err
    late = counter(home, "add", url, "pages", "home", "views", "--sync", "--timeout", "200ms", "--json")
    assert late.code == 2
    assert (late.json()["consolidated"], late.json()["total"]) == (False, None)
    assert "no process has led these counters yet" in late.json()["told"]
    assert ok(counter(home, "get", url, "pages", "home", "views", "--consistent")).out == "4\n"
    ok(counter(home, "add", url, "pages", "home", "paid", "1.5", "--kind", "decimal"))
    with leading(url) as (_, counters):
        counters.consolidate(timeout=PATIENCE)
        assert counters.get("home") == {"views": 4, "paid": Decimal("1.5"), "stats.peak": None}


def test_the_url_may_come_from_elsewhere(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(counter(home, "add", "pages", "home", "views", "--new", TENURE_URL=url))
    ok(counter(home, "add", "pages", "home", "views", "-4", TENURE_URL=url))
    assert ok(counter(home, "get", "pages", "home", "views", "--consistent", TENURE_URL=url)).out == "-3\n"
    assert ok(counter(home, "history", "pages", "views", TENURE_URL=url)).out.startswith("no leader")
    assert ok(counter(home, "top", "pages", "views", TENURE_URL=url)).out.startswith("no leader")


def test_looking_writes_nothing(tmp_path: Path, home: Path) -> None:
    place = tmp_path / "place"
    url = place.as_uri()
    ok(counter(home, "add", url, "pages", "home", "views", "--new"))
    before = files(place)
    for words in (
        ("get", url, "pages", "home"),
        ("get", url, "pages", "home", "--consistent"),
        ("top", url, "pages", "views"),
        ("history", url, "pages", "views"),
        ("history", url, "pages", "home", "views"),
    ):
        ok(counter(home, *words))
    assert files(place) == before


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("add", "pages", "home", "veiws"), 1, "did you mean 'views'? Or give --new"),
        (("add", "posts", "home", "views"), 1, "field 'views' of 'posts' is not counted"),
        (("add", "pages", "home", "views", "1.5"), 2, "AMOUNT is '1.5': give a whole number"),
        (("add", "pages", "home", "views", "many"), 2, "AMOUNT is 'many': give a whole number"),
        (("add", "pages", "home", "rate", "nan", "--kind", "float"), 2, "AMOUNT is nan: give a finite number"),
        (("add", "pages", "home", "paid", "NaN", "--kind", "decimal"), 2, "AMOUNT is Decimal('NaN'): give a Decimal"),
        (("add", "pages", "home", "views", "--set"), 2, "--set needs an AMOUNT"),
        (("add", "pages", "home", "views", "3", "--sub", "--set"), 2, "--sub and --set: give one of them"),
        (("add", "pages", "home", "low", "--sub", "--reducer", "min"), 2, "only a sum can be subtracted from"),
        (("add", "pages", "home", "views", "--kind", "float"), 2, "is counted as int:sum: leave it out"),
        (("add", "pages", "home", "views", "--timezone", "Europe/Berlin"), 2, "begin in UTC: leave it out"),
        (("add", "posts", "home", "views", "--timezone", "Mars/Base"), 2, "--timezone is 'Mars/Base': give the IANA"),
        (("add", "pages", "home", "stats..likes", "--new"), 2, "cannot be counted: give a name"),
        (("add", "pages", "auto-1/x" * 40, "views"), 2, "id"),
        (("add", "pages", "home", "views", "--op-id", ""), 2, "op-id is ''"),
        (("get", "pages", "home", "veiws"), 1, "did you mean 'views'?"),
        (("get", "page", "home"), 1, "there are counters of 'pages'"),
        (("top", "pages", "veiws"), 1, "did you mean 'views'?"),
        (("top", "pages", "views", "--at", "2026-01-01"), 2, "--at goes with --period"),
        (("top", "pages", "views", "--at", "noon", "--period", "day"), 2, "--at is 'noon'"),
        (("top", "pages", "views", "--at", "1969-07-20", "--period", "day"), 2, "give a time from 1970 to 9998"),
        (("top", "pages", "views", "-n", "0"), 2, "give a whole number from 1 to 10000"),
        (("history", "pages", "home", "views", "more"), 2, "history takes [ID] FIELD"),
        (("history", "pages", "views", "--period", "all"), 2, "--period all is for one record"),
        (("history", "pages", "home", "veiws"), 1, "did you mean 'views'?"),
    ],
)
def test_what_is_asked_wrongly_is_answered_and_nothing_is_written(
    tmp_path: Path, home: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    place = tmp_path / "place"
    ok(counter(home, "add", place.as_uri(), "pages", "home", "views", "--new"))
    before = files(place)
    refused = counter(home, words[0], place.as_uri(), *words[1:])
    assert (refused.code, refused.out) == (code, "")
    assert sentence in refused.err
    assert refused.err.count("\n") <= 2
    assert files(place) == before


@pytest.mark.parametrize("command", ["add", "get", "top", "history"])
def test_a_place_that_is_not_there_is_not_made(tmp_path: Path, home: Path, command: str) -> None:
    place = tmp_path / "nowhere"
    words = {"add": ("home", "views"), "get": ("home",), "top": ("views",), "history": ("views",)}[command]
    refused = counter(home, command, place.as_uri(), "pages", *words)
    assert refused.code == 2
    assert "there is no directory" in refused.err
    assert not place.exists()


def test_what_lies_in_a_bucket_cannot_act_on_a_terminal(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url) as (_, counters):
        counters.add(EVIL, "views", 3, mode="sync", timeout=PATIENCE)
        for words in (("top", url, "pages", "views"), ("top", url, "pages", "views", "--json")):
            shown = ok(counter(home, *words)).out
            assert "\x1b" not in shown
            assert "\u202e" not in shown
            assert "ada" in shown


def test_help_tells_what_it_does() -> None:
    for command in ("add", "get", "top", "history"):
        done = subprocess.run(
            [sys.executable, "-m", "tenure", "counter", command, "--help"], capture_output=True, text=True, check=True
        )
        assert "Exit code 0:" in " ".join(done.stdout.split())
