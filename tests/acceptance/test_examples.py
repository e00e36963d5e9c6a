"""The examples run as they are: as processes, two at a time where it is the point that only one works.

Copies of an example write to one file, so that their lines lie there in the order in which they were written. One that
worked when it was no longer its turn shows as an epoch, or a token, that comes after a higher one.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.process import die_with_parent, free_port

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
TESTED = {
    "singleton_worker.py": "test_one_copy_works_and_another_goes_on_when_it_is_killed",
    "blocking.py": "test_threads_take_turns_too",
    "plugin.py": "test_the_hooks_are_called_in_one_copy_and_its_successor_goes_on_where_it_ended",
    "supervised_service.py": "test_the_children_run_on_one_node_and_move_with_leadership",
    "lock.py": "test_two_take_turns_and_what_comes_late_is_refused",
    "fenced_write.py": "test_a_former_leaders_write_is_refused",
    "poll_two_endpoints.py": "test_two_endpoints_are_polled",
    "scheduled_jobs.py": "test_jobs_fire_on_one_copy_and_go_on_where_it_ended",
    "expiring_sessions.py": "test_sessions_expire_that_nobody_uses",
    "counted_pages.py": "test_views_are_counted_once_whoever_dies",
}
MOST_LINES = 60
PATIENCE = 40.0


class Copies:
    """Processes of the examples, and what they have written."""

    def __init__(self, folder: Path, log: str = "lines") -> None:
        self.log = folder / log
        self.log.touch()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "error"}

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, f"examples/{name}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self.environment,
                preexec_fn=_as_in_a_terminal,
            )
        self.processes.append(process)
        return process

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def until(self, found: Callable[[list[str]], object]) -> list[str]:
        """The lines, once there is something to be found in them."""
        deadline = time.monotonic() + PATIENCE
        while not found(lines := self.lines()):
            assert time.monotonic() < deadline, "\n".join(lines)
            assert all(process.poll() in (None, 0, -signal.SIGKILL) for process in self.processes), "\n".join(lines)
            time.sleep(0.05)
        return lines

    def until_line(self, pattern: str, after: int = 0) -> re.Match[str]:
        """The first line from number `after` on that has the pattern in it."""
        lines = self.until(lambda lines: any(re.search(pattern, line) for line in lines[after:]))
        return next(filter(None, (re.search(pattern, line) for line in lines[after:])))

    def by_pid(self, pid: str) -> subprocess.Popen[bytes]:
        return next(process for process in self.processes if process.pid == int(pid))

    def end(self, process: subprocess.Popen[bytes], by: signal.Signals = signal.SIGINT) -> None:
        """As by Ctrl-C."""
        process.send_signal(by)
        self.ended(process)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait(PATIENCE)
        said = self.log.read_text()
        assert code == 0, said
        assert "Traceback" not in said, said

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def _as_in_a_terminal() -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell has its background jobs ignore it


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    started = Copies(tmp_path)
    yield started
    started.kill()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each example says if it is started once and without a URL, all of them at the same time."""
    folder = tmp_path_factory.mktemp("alone")
    runs = {name: Copies(folder, f"{name}.lines") for name in TESTED}
    options: dict[str, tuple[str, ...]] = dict.fromkeys(TESTED, ("--seconds", "4")) | {
        "fenced_write.py": (),
        "poll_two_endpoints.py": ("--port", str(free_port())),
    }
    try:
        for name, run in runs.items():
            run.start(name, *options[name])
        polling = runs["poll_two_endpoints.py"]
        polling.until_line("shop was well")
        polling.until_line("mail was well")
        polling.end(polling.processes[0])
        for run in runs.values():
            run.ended(run.processes[0])
        assert (folder / "tenure-examples").is_dir()
        yield {name: run.log.read_text() for name, run in runs.items()}
    finally:
        for run in runs.values():
            run.kill()


def mixed_up(lines: list[str], number: str = "epoch") -> list[str]:
    """Lines of somebody whose turn it was not: its number is lower than one before it, or another's."""
    found: list[str] = []
    highest, holder = 0, ""
    for line in lines:
        match = re.match(rf"(\S+): {number} (\d+)\b", line)
        if match is None:
            continue
        who, turn = match[1], int(match[2])
        if turn < highest or (turn == highest and who != holder):
            found.append(line)
        else:
            highest, holder = turn, who
    return found


def test_every_example_is_tested_short_and_says_how_to_run_it() -> None:
    examples = {path.name: path.read_text() for path in FOLDER.glob("*.py")}
    assert set(examples) == set(TESTED), "a new example needs a test, and a line in TESTED"
    assert all(callable(globals()[test]) for test in TESTED.values())
    table = (FOLDER / "README.md").read_text()
    for name, text in examples.items():
        assert f"\n    python examples/{name} [URL]" in text
        assert len(text.splitlines()) < MOST_LINES
        assert f"[{name}]({name})" in table


def test_two_at_work_would_be_noticed() -> None:
    good = ["a: epoch 1, item 1", "a: waits", "b: epoch 2, item 1", "b: epoch 2, item 2"]
    assert mixed_up(good) == []
    assert mixed_up([*good, "a: epoch 1, item 2"]) == ["a: epoch 1, item 2"]
    assert mixed_up([*good, "a: epoch 2, item 1"]) == ["a: epoch 2, item 1"]


def test_alone_and_without_a_url_each_ends_by_itself(alone: dict[str, str]) -> None:
    assert set(alone) == set(TESTED)
    assert "waits for its turn" in alone["singleton_worker.py"]


def test_a_former_leaders_write_is_refused(alone: dict[str, str]) -> None:
    said = alone["fenced_write.py"].splitlines()
    assert said[0].startswith("ada leads, epoch 1,")
    assert "it leads is True" in said[1]
    assert said[2] == "ben leads, epoch 2, and claims the report: b'by ada'"
    assert said[3].startswith("a write of ada's: Fenced, 'reports/latest' belongs to epoch 2")
    assert said[4].startswith("a write of ada's: LeadershipLost, epoch 1 of 'reports' is over")
    assert said[5:] == ["the report is b'by ben'"]


def test_two_endpoints_are_polled(alone: dict[str, str]) -> None:
    said = alone["poll_two_endpoints.py"]
    assert re.search(r"shop-0000000001 on node-\d+: 200 OK\n", said)
    assert re.search(r"mail-0000000001 on node-\d+: 503 Service Unavailable, and 200 is expected\n", said)
    for found in re.finditer(r"(\w+) was well in (\d+) of (\d+) checks\n", said):
        assert int(found[2]) == (int(found[3]) if found[1] == "shop" else 0)


@pytest.mark.slow
def test_one_copy_works_and_another_goes_on_when_it_is_killed(copies: Copies, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    for _ in range(2):
        copies.start("singleton_worker.py", url, "--seconds", "60")
    copies.until(lambda lines: sum("waits for its turn" in line for line in lines) == 2)
    first = copies.until_line(r"worker-(\d+): epoch (\d+), item 2")
    leader = copies.by_pid(first[1])
    leader.kill()
    leader.wait()
    second = copies.until_line(rf"worker-(?!{first[1]})(\d+): epoch (\d+), item 2")
    assert int(second[2]) > int(first[2])
    copies.end(copies.by_pid(second[1]), signal.SIGTERM)
    assert mixed_up(copies.lines()) == []


def test_threads_take_turns_too(copies: Copies, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    for _ in range(2):
        copies.start("blocking.py", url, "--seconds", "60")
    copies.until(lambda lines: sum("waits for its turn" in line for line in lines) == 2)
    first = copies.until_line(r"worker-(\d+): epoch (\d+), item 2")
    copies.end(copies.by_pid(first[1]))
    second = copies.until_line(rf"worker-(?!{first[1]})(\d+): epoch (\d+), item 2")
    assert int(second[2]) > int(first[2])
    copies.end(copies.by_pid(second[1]), signal.SIGTERM)
    assert mixed_up(copies.lines()) == []


def test_the_hooks_are_called_in_one_copy_and_its_successor_goes_on_where_it_ended(
    copies: Copies, tmp_path: Path
) -> None:
    url = (tmp_path / "bucket").as_uri()
    for _ in range(2):
        copies.start("plugin.py", url, "--seconds", "60")
    first = copies.until_line(r"worker-(\d+): epoch \d+ reads page 3")
    copies.until_line(rf"worker-(?!{first[1]})\d+: sees worker-{first[1]} lead")
    copies.end(copies.by_pid(first[1]))
    second = copies.until_line(rf"worker-(?!{first[1]})(\d+): epoch (\d+) reads page")
    copies.end(copies.by_pid(second[1]))
    lines = copies.lines()
    pages = [int(found[1]) for line in lines if (found := re.search(r"reads page (\d+)", line))]
    # One that was cancelled between reading a page and noting it is read once more.
    assert all(later - earlier in (0, 1) for earlier, later in itertools.pairwise(pages))
    assert sum("begins after page" in line for line in lines) == sum("to spare" in line for line in lines) >= 2
    assert mixed_up(lines) == []


@pytest.mark.slow
def test_jobs_fire_on_one_copy_and_go_on_where_it_ended(copies: Copies, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    for _ in range(2):
        copies.start("scheduled_jobs.py", url, "--seconds", "60")
    first = copies.until_line(r"worker-(\d+): epoch (\d+), flaky, attempt 2 with token (\d+)")
    copies.end(copies.by_pid(first[1]))
    second = copies.until_line(rf"worker-(?!{first[1]})(\d+): epoch (\d+), flaky, attempt 2 with token (\d+)")
    assert (int(second[2]), int(second[3])) > (int(first[2]), int(first[3]))
    copies.end(copies.by_pid(second[1]))
    lines = copies.lines()
    ticks = [found[1] for line in lines if (found := re.search(r"tick of (\d\d:\d\d:\d\d)", line))]
    # One that was cut short in the moment of leaving is begun again by the successor.
    assert len(ticks) - len(set(ticks)) <= 1
    assert mixed_up(lines) == []


def test_the_children_run_on_one_node_and_move_with_leadership(copies: Copies, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    for _ in range(2):
        copies.start("supervised_service.py", url, "--seconds", "60")
    first = copies.until_line(r"node-(\d+): epoch \d+, program with token (\d+)")
    copies.until_line(rf"node-(?!{first[1]})\d+: on node-{first[1]}, mailer is \S+, program is \S+$")
    copies.end(copies.by_pid(first[1]))
    second = copies.until_line(rf"node-(?!{first[1]})(\d+): epoch \d+, program with token (\d+)")
    assert int(second[2]) > int(first[2])
    copies.end(copies.by_pid(second[1]))
    assert mixed_up(copies.lines()) == []


def test_two_take_turns_and_what_comes_late_is_refused(copies: Copies, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    both = [copies.start("lock.py", url, "--seconds", "60") for _ in range(2)]
    copies.until(lambda lines: all(sum(f"worker-{each.pid}: refused" in line for line in lines) >= 2 for each in both))
    for process in both:
        copies.end(process)
    lines = copies.lines()
    assert mixed_up(lines, "token") == []
    taken = [tuple(map(int, found.groups())) for line in lines if (found := re.search(r"token (\d+), (\d+) ap", line))]
    tokens, left = zip(*taken, strict=True)
    assert sorted(set(tokens)) == list(tokens)
    # What was refused took no apple. One whose turn was cut short may have taken one, and not said so.
    assert len(left) <= 1_000_000 - left[-1] <= len(left) + len(both)


@pytest.mark.slow
def test_sessions_expire_that_nobody_uses(copies: Copies, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    first, second = [copies.start("expiring_sessions.py", url, "--seconds", "60") for _ in range(2)]
    for process in (first, second):
        copies.until_line(rf"expired .*\bben-worker-{process.pid}\b")
    first.kill()
    first.wait()
    killed = len(copies.lines())
    copies.until_line(rf"worker-{second.pid}: expired .*\bada-worker-{first.pid}\b", after=killed)
    copies.until_line(rf"worker-{second.pid}: ada is there until \S+, 1 sessions", after=killed)
    copies.end(second)


@pytest.mark.req("EC-1", "EC-2")
@pytest.mark.slow
def test_views_are_counted_once_whoever_dies(copies: Copies, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    first, second = [copies.start("counted_pages.py", url, "--seconds", "60") for _ in range(2)]
    for process in (first, second):
        copies.until_line(rf"worker-{process.pid}: .* in the records .*'home': [1-9]")
    first.kill()
    first.wait()
    copies.until_line(rf"worker-{second.pid}: has counted", after=len(copies.lines()))
    copies.end(second)
    third = copies.start("counted_pages.py", url, "--seconds", "60")
    told = copies.until_line(rf"worker-{third.pid}: together (.*), in the records")[1]
    copies.end(third)
    known = [
        int(re.findall(rf"worker-{process.pid}: has counted (\d+)", "\n".join(copies.lines()))[-1])
        for process in (first, second)
    ]
    together = sum(map(int, re.findall(r"\d+", told)))
    # The two that ended may have had a hundred more on their way, of which any number got there.
    assert sum(known) + 100 <= together <= sum(known) + 300
