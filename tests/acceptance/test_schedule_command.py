"""`tenure schedule`: look at jobs and their times, run, pause and resume them, with and without somebody who leads."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tenure import CoordinatorConfig, Run, SchedulerPlugin, at, blocking, cron, every
from tenure.cli import schedule_history, schedule_list, schedule_times
from tests.support.command import Run as Ran
from tests.support.command import environment, ok, tenure
from tests.support.waiting import eventually_here

PATIENCE = 60.0
UrlOf = Callable[[str], str]
SWIFT = CoordinatorConfig.fast(startup_jitter_max=0, takeover_delay=0.05, min_epoch_duration=0)
FAR = at(datetime(2100, 1, 1, tzinfo=UTC))
EVIL = "no mailbox \x1b[31mada\n\u202e"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def leading(url: str, name: str | None = None) -> Iterator[blocking.Scheduler]:
    """Somebody who leads the schedule, and looks for commands all the time."""
    plugin = SchedulerPlugin(config=SWIFT, idle_budget=72_000, commands=[("true",)])

    @plugin.job(cron("30 2 * * *", timezone="Europe/Berlin"), id="nightly")
    def nightly() -> None: ...

    @plugin.job(FAR, id="failing", retries=1, backoff=0.01)
    def failing() -> None:
        raise ValueError(EVIL)

    @plugin.function("held")
    def held(run: Run) -> None:
        held_back.wait(PATIENCE)

    plugin.declare("slow", FAR, function="held")
    plugin.declare("off", cron("@weekly"), command=("true",), enabled=False)
    held_back = threading.Event()
    with blocking.Database(url, worker_id="pod-7") as db:
        scheduler = db.use_plugin(plugin, name)
        try:
            eventually_here(lambda: scheduler.is_leading and len(scheduler.jobs()) >= 4)
            yield scheduler
        finally:
            held_back.set()


def standing(home: Path, url: str) -> dict[str, dict[str, Any]]:
    found = ok(tenure("schedule", "list", url, "--json", home=home)).json()
    assert found["schedule"] == "scheduler"
    return {job["id"]: job for job in found["jobs"]}


# With somebody who leads


@pytest.mark.req("OP-1", "SC-1")
@pytest.mark.servers
def test_on_an_s3_server(url_of: UrlOf, home: Path) -> None:
    url = url_of("ministack")
    with leading(url):
        ran = ok(tenure("schedule", "run", url, "nightly", "--wait", "--json", home=home)).json()
        assert ran["record"]["state"] == "done"
        assert "'nightly' is paused" in ok(tenure("schedule", "pause", url, "nightly", home=home)).out
        assert standing(home, url)["nightly"]["state"] == "paused"


@pytest.mark.req("OP-1", "SC-1")
def test_jobs_are_listed_run_paused_and_resumed(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url):
        jobs = standing(home, url)
        assert {id: job["state"] for id, job in jobs.items()} == {
            "failing": "ready",
            "nightly": "ready",
            "off": "disabled",
            "slow": "ready",
        }
        nightly = jobs["nightly"]
        assert (nightly["schedule"], nightly["timezone"]) == ("cron 30 2 * * *", "Europe/Berlin")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d 0[23]:[03]0 \+0[12]:00", nightly["next_local"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\d 0[01]:[03]0Z", nightly["next_utc"])
        shown = ok(tenure("schedule", "list", url, home=home)).out
        assert re.search(r"^nightly +30 2 \* \* \* Europe/Berlin +\d{4}-", shown, re.MULTILINE)
        assert re.search(r"^off .* disabled *$", shown, re.MULTILINE)

        ran = ok(tenure("schedule", "run", url, "nightly", "--wait", "--json", home=home)).json()
        assert (ran["decided"], ran["record"]["outcome"], ran["record"]["state"]) == (True, "fired", "done")
        assert ran["run"] == ran["record"]["run"]
        assert standing(home, url)["nightly"]["last"] == ran["record"]
        failed = tenure("schedule", "run", url, "failing", "--wait", home=home)
        assert failed.code == 1
        assert "'failing' failed after 2 attempts, on pod-7" in failed.out
        slow = ok(tenure("schedule", "run", url, "slow", home=home))
        assert re.match(r"'slow' runs, on pod-7, token \d+, as slow#\w+$", slow.out)
        again = tenure("schedule", "run", url, "slow", home=home)
        assert (again.code, again.out) == (1, "")
        assert again.err == (
            "tenure: refused: a run of job 'slow' is open, and its overlap is 'skip': wait for its end\n"
        )
        waited = tenure("schedule", "run", url, "nightly", "--wait", "--timeout", "30s", home=home)
        assert waited.code == 0

        assert "'nightly' is paused" in ok(tenure("schedule", "pause", url, "nightly", home=home)).out
        assert (standing(home, url)["nightly"]["state"], standing(home, url)["slow"]["state"]) == ("paused", "running")
        times = ok(tenure("schedule", "next", url, "nightly", home=home))
        assert "'nightly' is paused: these are its times if it were not" in times.err
        assert len(times.out.splitlines()) >= 11
        resumed = ok(tenure("schedule", "resume", url, "nightly", "--json", home=home)).json()
        assert (resumed["op"], resumed["job"], resumed["decided"]) == ("resume", "nightly", True)
        assert "'nightly' is resumed: next at " in resumed["told"]

        everything = ok(tenure("schedule", "pause", url, "--all", home=home)).out
        assert "everything in 'scheduler' is paused" in everything
        assert "; 1 run goes on" in everything
        listed = ok(tenure("schedule", "list", url, home=home))
        assert "paused, running" in listed.out
        assert "tenure: everything is paused" in listed.err
        assert "`tenure schedule resume --all` goes on" in ok(tenure("schedule", "resume", url, "slow", home=home)).out
        assert "fires again" in ok(tenure("schedule", "resume", url, "--all", home=home)).out
        assert standing(home, url)["slow"]["state"] == "running"
        asked = ok(tenure("schedule", "pause", url, "off", "--no-wait", home=home)).out
        assert "durable; it takes effect when the schedule's leader reads it" in asked
        eventually_here(lambda: standing(home, url)["off"]["paused"])


@pytest.mark.req("OP-1", "SC-1")
def test_what_became_of_occurrences_is_told_and_chosen(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url) as scheduler:
        for job in ("failing", "nightly"):
            scheduler.run_now(job)
        eventually_here(lambda: scheduler.stats().failed == scheduler.stats().succeeded == 1)
    every_one = ok(tenure("schedule", "history", url, "--json", home=home)).json()["records"]
    assert sorted((record["job"], record["outcome"]) for record in every_one) == [
        ("failing", "failed"),
        ("nightly", "fired"),
    ]
    shown = ok(tenure("schedule", "history", url, home=home)).out
    assert r"    by hand; ValueError: no mailbox \x1b[31mada\x0a\u202e" in shown.splitlines()
    assert "\x1b" not in shown
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?Z  nightly  done .* pod-7$", shown, re.MULTILINE)
    for words, count in (
        (("failing",), 1),
        (("--outcome", "done"), 1),
        (("--outcome", "failed", "--outcome", "fired"), 2),
    ):
        assert len(ok(tenure("schedule", "history", url, *words, "--json", home=home)).json()["records"]) == count
    assert len(ok(tenure("schedule", "history", url, "--limit", "1", "--json", home=home)).json()["records"]) == 1
    nothing = ok(tenure("schedule", "history", url, "nightly", "--outcome", "missed-window", home=home))
    assert nothing.out == "nothing of that kind is on record of 'nightly'\n"


@pytest.mark.req("SC-1")
def test_a_job_whose_code_nobody_has_shows(url_of: UrlOf, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = url_of("directory")
    monkeypatch.setattr(schedule_list, "OVERDUE_MS", 0)
    with leading(url) as scheduler:
        scheduler.add("elsewhere", every(1), function="nobody-has-this")
        scheduler.add("tick", every(1), command=("true",))
        eventually_here(lambda: standing(home, url)["elsewhere"]["state"] == "unknown code")
        listed = ok(tenure("schedule", "list", url, home=home))
        assert "no decision on 'elsewhere', which should have fired: whoever leads does not have the code" in listed.err
        refused = tenure("schedule", "run", url, "elsewhere", home=home)
        assert refused.code == 1
        assert "the process that leads has no function 'nobody-has-this'" in refused.err
    eventually_here(lambda: standing(home, url)["tick"]["state"] == "overdue")
    assert "nobody leads its namespace 'default'" in ok(tenure("schedule", "list", url, home=home)).err


# Without


@pytest.mark.req("OP-1")
def test_without_a_leader_a_command_is_durable_and_waits(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url):
        pass
    for words in (("run", url, "nightly"), ("pause", url, "failing"), ("resume", url, "--all")):
        waited = tenure("schedule", *words, "--timeout", "200ms", home=home)
        assert waited.code == 2
        assert "durable, and nobody has decided on it in 0.2 s: nobody leads its namespace 'default'." in waited.out
        assert waited.out.endswith("It is followed once somebody leads who has this schedule\n")
    assert "3 objects lie in the inbox" in ok(tenure("schedule", "list", url, home=home)).err
    answer = tenure("schedule", "pause", url, "off", "--timeout", "100ms", "--json", home=home)
    assert (answer.code, answer.json()["decided"]) == (2, False)
    with leading(url) as scheduler:
        eventually_here(lambda: standing(home, url)["failing"]["state"] == "paused")
        eventually_here(lambda: scheduler.stats().succeeded == 1)


@pytest.mark.parametrize("words", ["list URL", "next URL nightly", "history URL", "run URL nightly", "pause URL --all"])
def test_a_schedule_that_is_not_there_is_not_made_by_looking(words: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    refused = tenure("schedule", *words.replace("URL", url).split(), home=home)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("tenure: there is no schedule 'scheduler' at file://")
    assert list((tmp_path / "store").iterdir()) == []


def test_what_was_mistyped_is_answered_with_what_there_is(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    with leading(url, "reports"):
        pass
    assert "there is 'reports': choose by --name" in tenure("schedule", "list", url, home=home).err
    for words in (("next", url, "nigthly"), ("history", url, "nigthly"), ("run", url, "nigthly")):
        refused = tenure("schedule", *words, "--name", "reports", home=home)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err == "tenure: the schedule 'reports' has no job 'nigthly': did you mean 'nightly'?\n"
    assert "`tenure schedule list` shows" in tenure("schedule", "pause", url, "xyz", "--name", "reports", home=home).err
    (home / "tenure.toml").write_text(f'url = "{url}"\n[schedule.next]\nname = "reports"\ncount = 2\njson = true\n')
    found = ok(tenure("schedule", "next", "nightly", home=home)).json()
    assert (found["schedule"], found["job"], len(found["fires"])) == ("reports", "nightly", 2)
    assert len(ok(tenure("schedule", "next", "nightly", "-n", "3", TENURE_URL=url, home=home)).json()["fires"]) == 3


# Previews


@pytest.mark.req("OP-1", "SC-1")
@pytest.mark.parametrize(
    ("dst", "spring", "autumn"),
    [
        ("skip", ["2026-03-30 02:30 +02:00"], ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]),
        ("once", ["2026-03-29 03:00 +02:00"], ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]),
        ("both", ["2026-03-29 03:00 +02:00"], ["2026-10-25 02:30 +02:00", "2026-10-25 02:30 +01:00"]),
    ],
)
def test_a_preview_needs_no_store_and_spells_out_clock_changes(
    dst: str, spring: list[str], autumn: list[str], home: Path
) -> None:
    preview = ("schedule", "next", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--dst", dst)
    for day, expected in (("2026-03-29", spring), ("2026-10-25", autumn)):
        words = (*preview, "--after", day, "-n", str(len(expected)))
        found = ok(tenure(*words, "--json", home=home)).json()
        assert [_minutes(fire["local"]) for fire in found["fires"]] == expected
        assert found["fires"][0]["note"]
        shown = ok(tenure(*words, TENURE_URL="file:///nowhere/to/be/found", home=home)).out
        assert found["fires"][0]["note"] in shown
        assert all(each in shown for each in expected)
    assert list(home.iterdir()) == []


def _minutes(local: str) -> str:
    return re.sub(r":00 (?=[+-])", " ", local)


def test_a_process_of_its_own_on_a_terminal_of_eighty_columns(
    url_of: UrlOf, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of("directory")
    with leading(url) as scheduler:
        scheduler.run_now("failing")
        eventually_here(lambda: scheduler.stats().failed == 1)
    shown = _on_a_terminal(home, 80, "schedule", "list", url)
    assert max(map(len, shown)) <= 80
    at = next(number for number, line in enumerate(shown) if line.startswith("nightly "))
    assert re.match(r"30 2 \* \* \* Europe/Berlin  0[01]:[03]0Z, in ", shown[at + 1])  # the second line of each job
    for module, words in (
        (schedule_history, ("history", url)),
        (schedule_times, ("next", url, "nightly", "--after", "2026-03-28")),
    ):
        monkeypatch.setattr(module, "console_for_output", lambda: Console(width=80, highlight=False))
        lines = ok(tenure("schedule", *words, home=home)).out.splitlines()
        assert max(map(len, lines)) <= 80
        assert any(line.startswith("    ") for line in lines)


def _on_a_terminal(home: Path, columns: int, *arguments: str) -> list[str]:
    control, terminal = pty.openpty()
    surroundings = environment({"COLUMNS": str(columns), "TERM": "xterm"})
    with subprocess.Popen(
        [sys.executable, "-m", "tenure", *arguments], cwd=home, env=surroundings, stdin=terminal, stdout=terminal
    ) as process:
        os.close(terminal)
        read = b""
        with contextlib.suppress(OSError):  # so a terminal ends
            while chunk := os.read(control, 65536):
                read += chunk
        os.close(control)
        assert process.wait(PATIENCE) == 0
    return _COLOURS.sub("", read.decode()).splitlines()


# What is asked wrongly


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["lst"], "tenure schedule has no command 'lst': did you mean list?"),
        (["list"], "which store? Give its URL"),
        (["list", "URL", "--limit", "0"], "give a whole number from 1 to 100000, and not '0'"),
        (["list", "URL", "--name", "a\nb"], r"--name is 'a\nb': give 1 to 64 printable characters"),
        (["next", "URL"], "which job? Give URL and JOB, or an expression by --cron"),
        (["next", "nightly"], "which store? Give its URL"),
        (["next", "--cron", "* * * *"], "cron is '* * * *', which has 4 fields: give five"),
        (["next", "--cron", "61 * * * *"], "cron is '61 * * * *': bad minute: give 0 to 59"),
        (["next", "--cron", "0 0 30 2 *"], "bad day-of-month"),
        (["next", "--cron", "@daily", "--timezone", "Europe/Berlinn"], "did you mean 'Europe/Berlin' or"),
        (["next", "--cron", "@daily", "--dst", "never"], "Invalid value for '--dst'"),
        (["next", "--cron", "@daily", "nightly"], "--cron and a JOB or URL: give one of them"),
        (["next", "--cron", "@daily", "URL"], "--cron and a JOB or URL: give one of them"),
        (["next", "--cron", "@daily", "--after", "soon"], "--after is 'soon': give a day or a time"),
        (["next", "--cron", "@daily", "-n", "0"], "give a whole number from 1 to 1000, and not '0'"),
        (["next", "URL", "nightly", "--timezone", "UTC"], "--timezone goes with --cron, and a job has its own"),
        (["history", "URL", "--outcome", "lost"], "Invalid value for '--outcome'"),
        (["run", "URL"], "Missing argument 'JOB'"),
        (["run", "URL", "nightly", "--timeout", "5"], "'5' is no duration"),
        (["pause", "URL"], "which job? Name it, or give --all for everything"),
        (["resume", "URL", "nightly", "--all"], "which job? Name it, or give --all for everything"),
        (["pause", "/tmp/x", "nightly"], "store URL '/tmp/x' does not begin with one of"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(words: list[str], complaint: str, home: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    refused: Ran = tenure("schedule", *(place.as_uri() if word == "URL" else word for word in words), home=home)
    assert (refused.code, refused.out) == (2, "")
    assert complaint in refused.err
    assert refused.err.startswith("tenure: ")
    assert len(refused.err.splitlines()) <= 2
    assert not place.exists()


def test_every_answer_is_one_json_object(home: Path) -> None:
    found = json.loads(ok(tenure("schedule", "next", "--cron", "@yearly", "-n", "1", "--json", home=home)).out)
    assert (found["job"], found["timezone"], found["fires"][0]["local"][4:]) == (None, "UTC", "-01-01 00:00:00 +00:00")
