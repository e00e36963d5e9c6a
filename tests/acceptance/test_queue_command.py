"""`tenure queue`, by real processes: put, work, look, decide on dead letters, pause, purge, end in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.process import Child
from tenure import Database
from tenure.errors import ConfigConflict
from tenure.plugins.queue import S3QueuePlugin
from tests.support.command import ok, tenure, tenure_child, tenure_process
from tests.support.waiting import eventually_here

PATIENCE = 60.0
UrlOf = Callable[[str], str]
STORES = ["directory", pytest.param("ministack", marks=pytest.mark.servers)]

HANDLERS = '''
import asyncio
import os
import sys
import time
from pathlib import Path

from tenure.plugins.queue import Reject


def say(*words):
    """One write: several processes and threads write to it."""
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())


def plain(message):
    say("got", message.id, message.attempt, message.body, *(f"{k}={v}" for k, v in message.headers.items()))


async def coroutine(message):
    plain(message)


def batch(messages):
    say("batch", len(messages))
    for message in messages:
        plain(message)


def picky(message):
    """Fails until the file `mended` is there."""
    plain(message)
    if not Path("mended").exists():
        raise ValueError("no mailbox \\x1b[31mada\\n")


def rejecting(message):
    raise Reject("never")


def exiting(message):
    plain(message)
    if message.body == "bad":
        sys.exit(3)
    if message.body == "interrupt":
        raise KeyboardInterrupt


def slow(message):
    say("begin", message.id, message.attempt, message.body)
    time.sleep(float(message.body))
    say("end", message.id)


async def slow_coroutine(message):
    say("begin", message.id, message.attempt, message.body)
    await asyncio.sleep(float(message.body))
    say("end", message.id)


broken = 5
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "handlers.py").write_text(HANDLERS)
    (folder / "failing.py").write_text("import nothing_of_that_name\n")
    (folder / "exiting.py").write_text("raise SystemExit(3)\n")
    return folder


def working_on(home: Path, url: str, queue: str, handler: str, *options: str) -> Child:
    work = ("queue", "work", url, queue, handler, *options, "--json", "--lease", "2s")
    return tenure_child(*work, folder=home, home=home)


@contextlib.contextmanager
def working(home: Path, url: str, queue: str, handler: str, *options: str) -> Iterator[Child]:
    """`tenure queue work` in a process of its own, once it has started."""
    with working_on(home, url, queue, handler, *options) as worker:
        eventually_here(lambda: worker.named("started") or not worker.runs, worker.report)
        assert worker.runs, worker.report()
        yield worker


def stats(home: Path, url: str, queue: str) -> dict[str, Any]:
    found = ok(tenure("queue", "stats", url, queue, "--json", home=home)).json()
    assert found["queue"] == queue
    return dict(found)


def until_stats(home: Path, url: str, queue: str, **wanted: object) -> dict[str, Any]:
    def fits() -> dict[str, Any] | None:
        found = stats(home, url, queue)
        return found if all(found[key] == value for key, value in wanted.items()) else None

    return dict(eventually_here(fits, lambda: stats(home, url, queue), pause=0.05))


# Everyday use


@pytest.mark.req("OP-1", "SQ-1")
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.slow
def test_what_was_put_is_handled_and_counted(kind: str, url_of: UrlOf, home: Path) -> None:
    url = url_of(kind)
    ids = ok(tenure_process("queue", "put", url, "mail", '{"to": "ada"}', "--header", "trace=7", home=home)).out.split()
    ids += ok(tenure_process("queue", "put", url, "mail", "-", "--as", "text", given="grüße", home=home)).out.split()
    lines = "".join(f'{{"n": {number}}}\n' for number in range(200))
    ids += ok(tenure_process("queue", "put", url, "mail", "--json-lines", given=lines, home=home)).out.split()
    assert len(set(ids)) == 202
    before = stats(home, url, "mail")
    assert (before["enqueued"], before["inbox"]) == (0, 3)  # durable, and no leader has ever been there

    with working(home, url, "mail", "handlers:plain", "--worker-id", "ada") as worker:
        after = until_stats(home, url, "mail", done=202)
        assert (after["ready"], after["in_flight"], after["dead"], after["workers"]) == (0, 0, 0, 1)
        assert worker.end() == 0
    got = [line.split(maxsplit=3) for line in worker.lines]
    assert sorted(words[1] for words in got) == sorted(ids)
    assert {words[3] for words in got} >= {"{'to': 'ada'} trace=7", "grüße", "{'n': 199}"}
    kinds = [event["event"] for event in worker.events]
    assert kinds[0] == "started"
    assert kinds[-2:] == ["stopping", "stopped"]
    assert {"leader", "leading"} <= set(kinds)
    assert worker.named("stopped")[0]["done"] == 202
    for name in ("queue stats", "queue peek"):
        assert "mail" in ok(tenure_process(*name.split(), url, "mail", home=home)).out


@pytest.mark.parametrize("options", [("handlers:coroutine",), ("handlers:plain", "--blocking", "process")])
def test_every_kind_of_handler(options: tuple[str, ...], url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ids = ok(tenure("queue", "put", url, "mail", "--json-lines", given="1\n2\n3\n", home=home)).out.split()
    with working(home, url, "mail", *options) as worker:
        eventually_here(lambda: len(worker.lines) == 3)
        assert worker.end(signal.SIGINT) == 0
    assert sorted(line.split()[1] for line in worker.lines) == sorted(ids)


def test_a_handler_of_batches(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "put", url, "mail", "--json-lines", given="1\n" * 30, home=home))
    with working(home, url, "mail", "handlers:batch", "--batch", "20", "--concurrency", "1") as worker:
        until_stats(home, url, "mail", done=30)
        assert worker.end() == 0
    sizes = [int(line.split()[1]) for line in worker.lines if line.startswith("batch")]
    assert sum(sizes) == 30
    assert 1 < max(sizes) <= 20


def test_what_waits_is_shown_without_being_taken_or_touched(url_of: UrlOf, home: Path, tmp_path: Path) -> None:
    url = url_of("directory")
    first = ok(tenure("queue", "put", url, "mail", '"a\\u001b[31m"', "--ordering-key", "k", home=home)).out.strip()
    ok(tenure("queue", "put", url, "mail", "2", "--delay", "1h", home=home))

    def files() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "home" not in path.parts
        }

    before = files()
    for _ in range(2):
        (message,) = ok(tenure("queue", "peek", url, "mail", "--json", home=home)).json()["messages"]
        assert (message["id"], message["body"], message["ordering_key"]) == (first, "a\x1b[31m", "k")
        assert message["ref"] is None
    shown = ok(tenure("queue", "peek", url, "mail", home=home)).out
    assert first in shown
    assert "a\\x1b[31m" in shown
    assert "\x1b" not in shown
    ok(tenure("queue", "stats", url, "mail", home=home))
    ok(tenure("queue", "dead", "list", url, "mail", home=home))
    assert files() == before

    # The same, once a leader has counted it.
    with working(home, url, "mail", "handlers:plain"):
        until_stats(home, url, "mail", done=1, delayed=1)
        ok(tenure("queue", "pause", url, "mail", "--wait", home=home))
        third = ok(tenure("queue", "put", url, "mail", "3", home=home)).out.strip()
        until_stats(home, url, "mail", ready=1, inbox=0)
        (message,) = ok(tenure("queue", "peek", url, "mail", "--json", home=home)).json()["messages"]
    assert (message["id"], message["body"], message["attempt"]) == (third, 3, 1)
    assert message["ref"] is not None


@pytest.mark.parametrize("kind", STORES)
def test_queues_are_listed(kind: str, url_of: UrlOf, home: Path) -> None:
    url = url_of(kind)
    names = ["mail", "mail-2", "mail box", "é/è"]
    for name in names:
        ok(tenure("queue", "put", url, name, "--json-lines", given="1\n2\n", home=home))
    ok(tenure("queue", "create", url, "created", home=home))

    async def put_strange() -> None:
        async with Database(url) as db:
            await db.plugin_storage("another", "mail").set("key", {})
            for key in ("name=~zz/log/1", "other/log/1", "name=~0a/log/1", "name=mailbox"):
                await db.store.put(f"plugin=s3-queue/{key}", b"1")

    listed = ok(tenure("queue", "list", url, home=home))
    assert (listed.out.splitlines(), listed.err) == (sorted([*names, "created"]), "")
    asyncio.run(put_strange())
    listed = ok(tenure("queue", "list", "--json", TENURE_URL=url, home=home))
    strange = ["name=mailbox", "name=~0a/", "name=~zz/", "other/"]
    assert listed.json() == {"queues": sorted([*names, "created"]), "unreadable": strange, "more": False}
    listed = ok(tenure("queue", "list", url, home=home))
    assert listed.out.splitlines() == sorted([*names, "created"])
    assert "tenure: other/ in plugin=s3-queue/ is no queue: its name was not made by tenure" in listed.err.splitlines()
    cut = ok(tenure("queue", "list", url, "--limit", "2", home=home))
    assert (len(cut.out.splitlines()), cut.err) == (2, "tenure: there are more than 2: see --limit\n")


def test_no_queues_are_listed(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    listed = ok(tenure("queue", "list", place.as_uri(), home=home))
    assert (listed.out, listed.err) == ("", f"tenure: there are no queues at {place.as_uri()}\n")
    assert list(place.iterdir()) == []
    missing = tenure("queue", "list", (tmp_path / "missing").as_uri(), home=home)
    assert (missing.code, missing.out) == (2, "")


@pytest.mark.slow
def test_stats_are_watched(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "put", url, "mail", "1", home=home))
    watch = ("queue", "stats", url, "mail", "--watch", "--interval", "200ms", "--for", "3s")
    looks = [json.loads(line) for line in ok(tenure(*watch, "--json", home=home)).out.splitlines()]
    assert len(looks) >= 2
    assert looks[-1]["done_per_second"] == 0
    lines = ok(tenure(*watch, home=home)).out.splitlines()
    assert len(lines) == 1  # nothing has changed
    assert "inbox 1" in lines[0]


# Dead letters


@pytest.mark.req("SQ-3")
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.slow
def test_what_fails_is_explained_and_can_be_brought_back(kind: str, url_of: UrlOf, home: Path) -> None:
    url = url_of(kind)
    message = ok(tenure("queue", "put", url, "mail", '{"to": "ada"}', "--max-attempts", "2", home=home)).out.strip()
    with working(home, url, "mail", "handlers:picky", "--worker-id", "ada") as worker:
        until_stats(home, url, "mail", dead=1)
        (letter,) = ok(tenure("queue", "dead", "list", url, "mail", "--json", home=home)).json()["letters"]
        assert (letter["id"], letter["attempts"], letter["body"]) == (message, 2, {"to": "ada"})
        assert [(note["attempt"], note["worker"]) for note in letter["history"]] == [(1, "ada"), (2, "ada")]
        assert letter["history"][1]["error"] == "ValueError: no mailbox \x1b[31mada\n"

        for name in (letter["ref"], message):
            shown = ok(tenure("queue", "dead", "show", url, "mail", name, home=home)).out
            assert "failed 2 times" in shown
            assert shown.count("ValueError: no mailbox \\x1b[31mada\\x0a") == 2
            assert '"to": "ada"' in shown
            assert "\x1b" not in shown
        listed = ok(tenure("queue", "dead", "list", url, "mail", home=home)).out
        assert letter["ref"] in listed
        assert "\x1b" not in listed
        failures = worker.named("failed")
        assert [failure["ref"] for failure in failures] == [letter["ref"]] * 2
        eventually_here(lambda: worker.named("dead"))

        (home / "mended").touch()
        redrive = ok(tenure("queue", "dead", "redrive", url, "mail", message, "--wait", "--json", home=home)).json()
        assert redrive["followed"]
        assert redrive["letters"] == 1
        until_stats(home, url, "mail", done=1, dead=0)
        assert worker.end() == 0
    assert [line.split()[2] for line in worker.lines] == ["1", "2", "1"]  # as if it were new


@pytest.mark.req("SQ-3")
def test_dead_letters_are_dropped(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    first, *_ = ok(tenure("queue", "put", url, "mail", "--json-lines", given="1\n2\n3\n", home=home)).out.split()
    with working(home, url, "mail", "handlers:rejecting"):
        until_stats(home, url, "mail", dead=3)
        assert "refused" in ok(tenure("queue", "dead", "show", url, "mail", first, home=home)).out
        ok(tenure("queue", "dead", "purge", url, "mail", first, "--wait", home=home))
        until_stats(home, url, "mail", dead=2)
        gone = tenure("queue", "dead", "redrive", url, "mail", first, home=home)
        assert gone.code == 1
        assert f"has no dead letter '{first}'" in gone.err
        unsure = tenure("queue", "dead", "purge", url, "mail", "--all", home=home)
        assert unsure.code == 2
        assert "--yes" in unsure.err
        ok(tenure("queue", "dead", "purge", url, "mail", "--all", "--yes", "--wait", home=home))
        assert stats(home, url, "mail")["dead"] == 0
    assert "has no dead letters" in ok(tenure("queue", "dead", "list", url, "mail", home=home)).out


# Commands


@pytest.mark.req("SQ-3")
@pytest.mark.parametrize("kind", STORES)
def test_pause_resume_and_purge(kind: str, url_of: UrlOf, home: Path) -> None:
    url = url_of(kind)
    ok(tenure("queue", "create", url, "mail", home=home))
    with working(home, url, "mail", "handlers:plain") as worker:
        paused = ok(tenure("queue", "pause", url, "mail", "--wait", home=home)).out
        assert "pause of 'mail': in effect" in paused
        ok(tenure("queue", "put", url, "mail", "--json-lines", given="1\n2\n3\n", home=home))
        assert until_stats(home, url, "mail", ready=3)["paused"]
        assert "paused" in ok(tenure("queue", "stats", url, "mail", home=home)).out
        assert worker.lines == []

        unsure = tenure("queue", "purge", url, "mail", home=home)
        assert (unsure.code, unsure.out) == (2, "")
        assert "--yes" in unsure.err
        ok(tenure("queue", "purge", url, "mail", "--yes", "--wait", home=home))
        assert stats(home, url, "mail")["ready"] == 0

        ok(tenure("queue", "put", url, "mail", "4", home=home))
        resumed = ok(tenure("queue", "resume", url, "mail", home=home)).out
        assert "durable; it takes effect when the queue's leader reads it" in resumed
        assert not until_stats(home, url, "mail", done=1)["paused"]
        assert worker.end() == 0
    assert [line.split()[3] for line in worker.lines] == ["4"]


def test_without_a_leader_a_command_is_durable_and_waits(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "put", url, "mail", "1", home=home))
    waited = tenure("queue", "pause", url, "mail", "--wait", "--timeout", "1s", home=home)
    assert waited.code == 2
    assert "durable, and no leader has read it in 1 s" in waited.out
    with working(home, url, "mail", "handlers:plain") as worker:
        assert until_stats(home, url, "mail", ready=1)["paused"]
        assert worker.lines == []


@pytest.mark.parametrize(
    "words", ["stats", "peek", "dead list", "pause", "resume", "purge --yes", "dead redrive --all"]
)
def test_a_queue_that_is_not_there_is_not_made_by_looking(words: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    refused = tenure("queue", *words.split(), url, "mial", home=home)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("tenure: there is no queue 'mial' at file://")
    assert list((tmp_path / "store").iterdir()) == []


# Ending


@pytest.mark.req("SQ-3")
@pytest.mark.parametrize("handler", ["handlers:slow", "handlers:slow_coroutine"])
@pytest.mark.slow
def test_what_runs_is_finished_and_the_rest_given_back(handler: str, url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ids = ok(tenure("queue", "put", url, "mail", "--json-lines", given="2\n0\n0\n", home=home)).out.split()
    with working(home, url, "mail", handler, "--concurrency", "1", "--prefetch", "3") as worker:
        eventually_here(lambda: worker.lines)
        assert worker.end() == 0
    begun = worker.lines[0].split()[1]
    assert worker.lines == [f"begin {ids[0]} 1 2", f"end {begun}"]
    assert worker.named("stopped")[0]["done"] == 1
    with working(home, url, "mail", handler) as other:
        until_stats(home, url, "mail", done=3)
        assert other.end() == 0
    again = [line.split() for line in other.lines if line.startswith("begin")]
    assert sorted((words[1], words[2]) for words in again) == sorted((each, "1") for each in ids[1:])


@pytest.mark.req("SQ-3")
@pytest.mark.parametrize("blocking", ["thread", "process"])
def test_what_takes_too_long_is_cut_short_and_tried_again(blocking: str, url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "create", url, "mail", "--set", "backoff=0s", home=home))
    message = ok(tenure("queue", "put", url, "mail", "600", home=home)).out.strip()
    options = ("--shutdown-timeout", "200ms", "--blocking", blocking)
    with working(home, url, "mail", "handlers:slow", *options) as worker:
        eventually_here(lambda: worker.lines)
        began = time.monotonic()
        assert worker.end() == 1
        assert time.monotonic() - began < 30  # not 600
    assert worker.named("stopped")[0]["cut_short"] == 1
    with working(home, url, "mail", "handlers:plain") as other:
        until_stats(home, url, "mail", done=1)
    assert other.lines == [f"got {message} 2 600"]


def test_a_second_signal_ends_it_at_once(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "put", url, "mail", "600", home=home))
    with working(home, url, "mail", "handlers:slow") as worker:
        eventually_here(lambda: worker.lines)
        worker.send(signal.SIGTERM)
        eventually_here(lambda: worker.named("stopping"))
        time.sleep(1.5)
        assert worker.end(signal.SIGINT) == 130


def test_a_handler_that_calls_sys_exit_has_failed_and_the_worker_goes_on(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    for body in ("bad", "good"):
        ok(tenure("queue", "put", url, "mail", body, "--as", "text", "--max-attempts", "1", home=home))
    with working(home, url, "mail", "handlers:exiting") as worker:
        until_stats(home, url, "mail", done=1, dead=1)
        assert worker.end() == 0
    (failure,) = worker.named("failed")
    assert failure["error"] == "SystemExit: 3"


def test_no_signal_is_blamed_for_what_the_handler_did(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "put", url, "mail", "interrupt", "--as", "text", home=home))
    with working_on(home, url, "mail", "handlers:exiting", "--shutdown-timeout", "200ms") as worker:
        assert worker.wait(PATIENCE) == 130
    assert "a second signal" not in worker.err
    assert worker.err.endswith("interrupted\n")


@pytest.mark.req("SQ-1")
@pytest.mark.slow
def test_two_work_and_one_takes_over(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    # What is handed to the dead one before anybody knows comes back after this.
    ok(tenure("queue", "create", url, "mail", "--set", "visibility_timeout=2s", "--set", "margin=1s", home=home))
    with working(home, url, "mail", "handlers:plain", "--worker-id", "ada") as ada:
        eventually_here(lambda: ada.named("leading"))
        with working(home, url, "mail", "handlers:plain", "--worker-id", "ben") as ben:
            until_stats(home, url, "mail", workers=2)
            ada.kill()
            eventually_here(lambda: ben.named("leading"))
            ok(tenure("queue", "put", url, "mail", "1", home=home))
            eventually_here(lambda: ben.lines)
            assert ben.named("leader")[-1]["leader"] == "ben"
            assert ben.end() == 0


# Settings


def test_what_it_was_created_with_holds_for_all(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    create = ("queue", "create", url, "mail", "--set", "max_attempts=1")
    created = ok(tenure(*create, "--set", "visibility_timeout=45s", "--json", home=home)).json()
    assert created == {
        "queue": "mail",
        "what": "created",
        "namespace": "default",
        "settings": {"max_attempts": 1, "visibility_timeout": 45.0},
    }
    assert ok(tenure(*create, "--json", home=home)).json()["what"] == "unchanged"
    other = tenure("queue", "create", url, "mail", "--set", "max_attempts=7", home=home)
    assert other.code == 1
    assert "was created with max_attempts=1, and not max_attempts=7" in other.err

    ok(tenure("queue", "put", url, "mail", "1", home=home))
    with working(home, url, "mail", "handlers:picky"):
        until_stats(home, url, "mail", dead=1)  # after one attempt
    elsewhere = tenure("queue", "work", url, "mail", "handlers:plain", "--namespace", "other", home=home)
    assert elsewhere.code == 2
    assert "namespace is 'other' here, and the queue 'mail' was created for 'default'" in elsewhere.err

    async def use() -> None:
        async with Database(url) as database:
            with pytest.raises(
                ConfigConflict, match=r"max_attempts is 5 here, and the queue 'mail' was created with 1"
            ):
                await database.use_plugin(S3QueuePlugin("mail", max_attempts=5))
            queue = await database.use_plugin(S3QueuePlugin("mail", producer_only=True, max_attempts=1))
            assert (queue.settings.max_attempts, queue.settings.visibility_timeout) == (1, 45.0)

    asyncio.run(use())

    changed = ok(
        tenure("queue", "create", url, "mail", "--set", "max_attempts=7", "--change", "--json", home=home)
    ).json()
    assert (changed["what"], changed["settings"]) == ("changed", {"max_attempts": 7, "visibility_timeout": 45.0})
    moved = tenure("queue", "create", url, "mail", "--namespace", "other", "--change", home=home)
    assert moved.code == 1
    assert "belongs to one election" in moved.err


def test_url_and_options_come_from_elsewhere_too(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "put", "mail", '"from the environment"', TENURE_URL=url, home=home))
    (home / "tenure.toml").write_text(
        f'url = "{url}"\n[queue.peek]\nlimit = 1\njson = true\n[queue.dead.list]\njson = true\n'
    )
    ok(tenure("queue", "put", "mail", "2", home=home))
    (message,) = ok(tenure("queue", "peek", "mail", home=home)).json()["messages"]
    assert message["body"] == "from the environment"
    assert ok(tenure("queue", "dead", "list", "mail", home=home)).json()["letters"] == []
    (home / "tenure.toml").write_text("[queue.peak]\nlimit = 1\n")
    assert "queue.peak is unknown: did you mean [queue.peek]?" in tenure("queue", "peek", "mail", home=home).err
    (home / "tenure.toml").write_text("[queue]\nlimit = 1\n")
    assert "such as [queue.create]" in tenure("queue", "peek", "mail", home=home).err
    (home / "tenure.toml").write_text("url =")
    assert tenure("queue", "peek", url, "mail", home=home).code == 2
    for words in ("queue --help", "queue peek --help", "queue dead list --help"):
        ok(tenure(*words.split(), home=home))


# What is asked wrongly


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["put", "URL", "q", "hello"], "BODY is no JSON"),
        (["put", "URL", "q"], "there is no BODY: give one"),
        (["put", "URL", "q", "1", "--json-lines"], "--json-lines and a BODY: give one of them"),
        (["put", "URL", "q", "--json-lines", "--dedup-key", "k"], "--json-lines and --dedup-key"),
        (["put", "URL", "q", "1", "--header", "x"], "--header is 'x': give NAME=VALUE"),
        (["put", "URL", "q", "1", "--header", "x=1", "--header", "x=2"], "--header is 'x=2': it is given twice"),
        (["put", "URL", "q", "1", "--delay", "5"], "Invalid value for '--delay': '5' is no duration"),
        (["put", "URL", "q", "1", "--priority", "1001"], "'--priority': give a whole number from -1000 to 1000"),
        (["put", "URL", "q", "1", "--priority", "high"], "give a whole number from -1000 to 1000, and not 'high'"),
        (["put", "file:///proc/nope", "q", "1"], "/proc/nope is unfit: the directory cannot be made"),
        (["list", "URL", "--limit", "0"], "give a whole number from 1 to 10000, and not '0'"),
        (["list"], "which store? Give its URL"),
        (["put", "URL", "q", "1", "--visibility", "1ms"], "Invalid value for '--visibility'"),
        (["put", "URL", "q", "1", "--ordering-key", "k" * 300], "ordering_key is"),
        (["put", "URL", "q", '"' + "x" * 300_000 + '"'], "body has 300,002 bytes, and the limit is 262,144"),
        (["put", "URL", "a\nb", "1"], r"NAME is 'a\nb': give 1 to 64 printable characters"),
        (["put", "q", "1"], "which store? Give its URL"),
        (["put", "/tmp/x", "q", "1"], "store URL '/tmp/x' does not begin with one of"),
        (["put", "URL"], "Missing argument 'NAME'"),
        (["stats", "URL", "q", "more"], "Got unexpected extra argument (more)"),
        (["peek", "URL", "q", "--limit", "0"], "Invalid value for '--limit'"),
        (["create", "URL", "q", "--set", "max_atempts=1"], "'max_atempts' is no setting of a queue: did you mean"),
        (["create", "URL", "q", "--set", "max_attempts"], "--set is 'max_attempts': give NAME=VALUE"),
        (["create", "URL", "q", "--set", "max_attempts=x"], "max_attempts is 'x': give a whole number"),
        (["create", "URL", "q", "--set", "max_attempts=0"], "max_attempts is 0: give a whole number from 1"),
        (["create", "URL", "q", "--set", "backoff=5"], "backoff is '5': give a number and its unit"),
        (["create", "URL", "q", "--set", "ordering=up"], "ordering is 'up': give one of 'wait', 'pass'"),
        (["dead", "redrive", "URL", "q"], "which dead letters? Name them by REF, or give --all"),
        (["dead", "redrive", "URL", "q", "x", "--all"], "which dead letters? Name them by REF, or give --all"),
        (["dead", "lst"], "tenure queue dead has no command 'lst': did you mean list?"),
        (["stat"], "tenure queue has no command 'stat': did you mean stats?"),
        (["work", "URL", "q", "handlers"], "HANDLER is 'handlers': give module:function"),
        (["work", "URL", "q", "nowhere:f"], "there is no module 'nowhere' in "),
        (["work", "URL", "q", "failing:f"], "'failing' cannot be imported (No module named 'nothing_of_that_name')"),
        (["work", "URL", "q", "exiting:f"], "'exiting' cannot be imported (SystemExit: 3)"),
        (["work", "URL", "q", "handlers:nope"], "'handlers' has no 'nope'"),
        (["work", "URL", "q", "handlers:broken"], "'handlers:broken' is a int, and no function"),
        (["work", "URL", "q", "handlers:plain", "--concurrency", "0"], "Invalid value for '--concurrency'"),
        (["work", "URL", "q", "handlers:plain", "--blocking", "x"], "Invalid value for '--blocking'"),
        (["work", "URL", "q", "handlers:plain", "--lease", "3"], "Invalid value for '--lease'"),
        (
            ["work", "URL", "q", "handlers:plain", "--set", "visibility_timeout=3s"],
            "visibility_timeout is a setting of the queue, and not of its election: `tenure queue create --set`",
        ),
        (["work", "URL", "q", "handlers:plain", "--set", "lease_timeot=3s"], "is no setting of CoordinatorConfig"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(words: list[str], complaint: str, home: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    refused = tenure("queue", *(place.as_uri() if word == "URL" else word for word in words), home=home)
    assert (refused.code, refused.out) == (2, "")
    assert complaint in refused.err
    assert refused.err.startswith("tenure: ")
    assert len(refused.err.splitlines()) <= 2
    kept = {path.name.rstrip("@") for path in place.rglob("*")}
    assert not kept & {"inbox", "settings.json"}  # nothing was added


def test_a_line_that_is_no_json_is_named(url_of: UrlOf, home: Path) -> None:
    refused = tenure("queue", "put", url_of("directory"), "mail", "--json-lines", given="{\n4\n", home=home)
    assert refused.code == 2
    assert "line 1 of standard input is no JSON" in refused.err
    assert "nothing was added" in refused.err
    assert refused.out == ""
    assert len(refused.err.splitlines()) == 1
    empty = ok(tenure("queue", "put", url_of("directory"), "mail", "--json-lines", "--json", home=home))
    assert empty.json() == {"queue": "mail", "count": 0, "ids": []}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "line 4 of standard input is no JSON"),
        (f'"{"x" * 300_000}"', "line 4 of standard input: body has 300,002"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_stands_before_such_a_line_is_added(bad: str, says: str, as_json: bool, url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    options = ["--json-lines", "--json"] if as_json else ["--json-lines"]
    refused = tenure("queue", "put", url, "mail", *options, given=f"1\n\n2\n{bad}\n4\n", home=home)
    assert refused.code == 2
    assert says in refused.err
    assert "the 2 messages before it were added, and nothing after it" in refused.err
    ids = refused.json()["ids"] if as_json else refused.out.split()
    waiting = ok(tenure("queue", "peek", url, "mail", "--json", home=home)).json()["messages"]
    assert [(each["id"], each["body"]) for each in waiting] == [(ids[0], 1), (ids[1], 2)]


def test_bytes_are_kept_as_they_are(url_of: UrlOf, home: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "put", url, "mail", "-", "--as", "bytes", given=b"\x00\xff", home=home))
    with working(home, url, "mail", "handlers:plain") as worker:
        eventually_here(lambda: worker.lines)
    assert worker.lines[0].endswith(r"b'\x00\xff'")


def test_settings_that_cannot_be_used_are_told(url_of: UrlOf, home: Path, tmp_path: Path) -> None:
    url = url_of("directory")
    ok(tenure("queue", "create", url, "mail", home=home))
    (record,) = [path for path in tmp_path.rglob("*settings*") if path.is_file()]
    for body in (b"{", b'{"tenure":"queue","writeId":"a","namespace":"default","settings":{"max_attempts":0}}'):
        record.write_bytes(body)
        for words in (["work", url, "mail", "handlers:plain"], ["put", url, "mail", "1"]):
            refused = tenure("queue", *words, home=home)
            assert refused.code == 2
            assert "settings.json of this queue" in refused.err
            assert "defect" not in refused.err
