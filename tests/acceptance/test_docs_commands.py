"""Every command that a page shows is run, as it stands there but for the places that it names.

Buckets become directories, in which a fleet is at work: two workers, the queues, jobs and counters that the pages
speak of. Programs that are not ours are stand-ins on the path. What needs root, a cluster, a cloud or an index of
packages is in `NOT_HERE`, with the reason; of that the syntax is checked. A synopsis (`tenure audit URL [--json]`) is
held against the options that there are.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from cronsim import CronSim

import tenure.blocking
from tenure.cli.main import cli as command_line
from tenure.cli.main import run as run_command
from tests.acceptance.pages import ROOT, SHELL, Block, all_blocks, as_printed, commands, shown
from tests.acceptance.test_docs_inventory import RUN_BY

PATIENCE = 60.0
NOT_HERE = {
    "gcloud": "a command of Google's, with an account",
    "az": "a command of Azure's, with an account",
    "kubectl": "needs a cluster",
    "helm": "needs a cluster",
    "systemctl": "needs systemd and root",
    "docker": "needs a daemon",
    "curl": "asks a server that only that page has running",
}
STAND_INS = ("celery", "consumer", "gunicorn", "uvicorn")
SLOW = ("demo", "simulate")
"""Commands that take long: they are run with the tests that do."""
SHORTER = (("--for 5s", "--for 1s"), ("--seeds 5000", "--seeds 3"), ("--minutes 5", "--minutes 2"))
EXIT_CODES = ((r"^tenure simulate .*--broken", 1),)
ENDLESS = ("run", "watch", "dashboard")
URL = re.compile(r"(?:s3|gs|az|file)://[^\s'\"]+")
SYNOPSIS = re.compile(r"\[[A-Z\-]|\]|(?<!\S)(?:URL|NAME|COMMAND|WORKER|CMD|JOB|RESOURCE)(?!\S)| \| ")

BLOCKS = [block for block in all_blocks() if block.kind == SHELL and (block.page, SHELL) not in RUN_BY]


def is_slow(block: Block) -> bool:
    return any(line.split()[:2] == ["tenure", word] for line in commands(block) for word in SLOW) and not any(
        SYNOPSIS.search(line) for line in commands(block)
    )


class Town:
    """A bucket with a fleet at work, and a path with programs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = (folder / "bucket").as_uri()
        self.path = folder / "bin"
        self.done: set[str] = set()
        for name in STAND_INS:
            self._program(self.path / name)
        self._program(folder / "consumer")
        self._program(folder / "opt" / "nightly" / "bin" / "python")
        self._program(folder / "opt" / "nightly" / "send-what-is-unsent")
        (folder / "opt" / "tenure").mkdir()
        (folder / "opt" / "tenure" / "bin").symlink_to(Path(sys.executable).parent)
        (folder / "manage.py").write_text("print('ran')\n")
        self.settings = folder / "quick.toml"
        self.settings.write_text("[timing]\nstartup_jitter_max = '0s'\n")
        self.environment = {
            **os.environ,
            "PATH": f"{self.path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }

    def _program(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho ran\n")
        path.chmod(0o755)

    def here(self, line: str) -> str:
        """The command, with places of this machine."""

        def place(found: re.Match[str]) -> str:
            if found[0].startswith("s3://bucket/app") and not re.search(r"\btenure run\b", line):
                return self.url
            return (self.folder / re.sub(r"\W+", "-", found[0])).as_uri()

        line = URL.sub(place, line).replace("/opt/", f"{self.folder}/opt/")
        for long, short in SHORTER:
            line = line.replace(long, short)
        return line

    def start(self, line: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("town"))
    config = tenure.CoordinatorConfig.fast(startup_jitter_max=0, min_epoch_duration=0.1)
    with contextlib.ExitStack() as stack:
        for worker in ("ada", "ben"):
            db = stack.enter_context(tenure.blocking.Database(town.url, worker_id=worker))
            coordinator = db.get_global_coordinator(config=config)
            coordinator.start()
            orders = db.use_plugin(tenure.S3QueuePlugin("orders", config=config))
            orders.on_message(lambda message: None, blocking="inline")
            jobs = tenure.SchedulerPlugin(config=config)
            jobs.declare("nightly", tenure.cron("30 2 * * *", timezone="Europe/Berlin"), command=("true",))
            db.use_plugin(jobs)
            counters = db.use_plugin(tenure.EventualConsistencyPlugin("pages", ["views"], config=config))
        orders.enqueue({"order": 1})
        counters.add("home", "views", mode="sync", timeout=PATIENCE)
        yield town


def _of(line: str) -> str:
    """Which program it is, and of tenure's commands which one."""
    words = shlex.split(line.replace("|", " | "))
    return " ".join(words[:2]) if words[0] == "tenure" else words[0]


def perform(town: Town, block: Block, line: str, printed: list[str]) -> None:
    program = shlex.split(line, comments=True)[0] if not SYNOPSIS.search(line) else line.split()[0]
    assert subprocess.run(["bash", "-n", "-c", line if not SYNOPSIS.search(line) else ":"]).returncode == 0, line
    if program in NOT_HERE:
        return
    if program == "make":
        subprocess.run([*shlex.split(line), "-n"], cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
    elif program == "pip":
        _installable(line)
    elif program == "python" and "examples/" in line:
        assert (ROOT / shlex.split(line)[1]).is_file()  # test_examples.py runs each
    elif program == "tenure" and SYNOPSIS.search(line):
        check_synopsis(line)
    elif re.match(r"(?:[\d*,/\-]+ ){5}", line):
        assert next(CronSim(" ".join(line.split()[:5]), _any_day()))
        finish(town, line.split(None, 5)[5], 0, printed)
    else:
        code = next((code for pattern, code in EXIT_CODES if re.search(pattern, line)), 0)
        if any("leads, epoch" in each for each in printed):
            take_over(town, line, printed)
        elif program == "tenure" and _endless(line):
            until_printed(town, line, printed)
        elif program == "tenure" and not re.search(r"[|&;<>]", line) and " run " not in line:
            in_process(town, line, code, printed)
        else:
            finish(town, line, code, printed)


def _any_day() -> Any:
    from datetime import UTC, datetime

    return datetime(2026, 5, 1, tzinfo=UTC)


def _endless(line: str) -> bool:
    words = shlex.split(line)
    if words[1] == "run":
        return words[words.index("--") + 1] in ("sh", "bash")  # others are stand-ins, and end
    return (words[1] in ENDLESS or words[1:3] == ["queue", "work"] or "--watch" in words) and "--for" not in words


def in_process(town: Town, line: str, code: int, printed: list[str]) -> None:
    """Most of what is shown: without the third of a second that a process takes to start."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = run_command(shlex.split(town.here(line))[1:])
    assert found == code, (line, out.getvalue(), err.getvalue())
    assert out.getvalue().strip(), line
    compare(printed, out.getvalue() + err.getvalue(), line)


def finish(town: Town, line: str, code: int, printed: list[str]) -> None:
    quick = town.here(line)
    if re.search(r"\btenure run\b", quick):
        quick = re.sub(r"(\btenure run \S+)", r"\1 --set startup_jitter_max=0s", quick)
    process = town.start(quick)
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        _end(process)
    assert process.returncode == code, (line, out)
    compare(printed, out, line)


def take_over(town: Town, line: str, printed: list[str]) -> None:
    """What somebody sees who stands by, and then leads: another was first, and is killed."""
    url = (town.folder / "taken-over").as_uri()
    quick = "--set startup_jitter_max=0s"
    first = town.start(f"exec tenure run {url} {quick} --lease 3s -- sleep 60")
    second = None
    ended = threading.Timer(PATIENCE, lambda: _end(first))
    ended.start()
    try:
        assert first.stdout is not None
        assert any("runs (pid" in each for each in first.stdout)
        second = town.start(re.sub(r"^tenure run \S+", f"exec tenure run {url} {quick}", line))
        assert second.stdout is not None
        said = ""
        for each in second.stdout:
            said += each
            if "leads, epoch" in each:
                _end(first)
        second.wait(PATIENCE)
    finally:
        ended.cancel()
        for process in (first, second):
            if process is not None:
                _end(process)
    compare(printed, said, line)


def until_printed(town: Town, line: str, printed: list[str]) -> None:
    """What ends only when it is told to: it is, once it has printed what it should, or anything."""
    quick = re.sub(r"^(tenure run \S+)", r"\1 --set startup_jitter_max=0s", town.here(line))
    process = town.start(f"exec {quick}")
    ended = threading.Timer(PATIENCE, lambda: _end(process))
    ended.start()
    said = ""
    try:
        assert process.stdout is not None
        for each in process.stdout:
            said += each
            if all(as_printed(expected).search(said) for expected in printed):
                break
        assert process.poll() is None, (line, said)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        process.wait(PATIENCE)
    finally:
        ended.cancel()
        _end(process)
    compare(printed, said, line)


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def compare(printed: list[str], said: str, line: str) -> None:
    for expected in printed:
        assert any(as_printed(expected).search(each) for each in said.splitlines()), (line, expected, said)


def check_synopsis(line: str) -> None:
    """The commands that it names are there, and so are their options."""
    root = command_line
    assert isinstance(root, click.Group)
    context = click.Context(root)
    words = [word for word in re.split(r"[\s\[\]|]+", line) if word]
    group: click.Command = root
    alternatives: list[click.Command] = []
    for word in words[1:]:
        if word == word.upper() or not re.fullmatch(r"[a-z\-]+", word) or word.startswith("-"):
            if alternatives:
                break
            continue
        found = group.get_command(context, word) if isinstance(group, click.Group) else None
        if found is None:
            break
        if isinstance(found, click.Group):
            group, alternatives = found, []
        else:
            alternatives.append(found)
    known = {name for each in [group, root, *alternatives] for parameter in each.params for name in parameter.opts}
    known |= {name for each in alternatives for parameter in each.params for name in parameter.secondary_opts}
    known.add("--debug")
    for option in re.findall(r"(?<![\w\-])--?[a-z][a-z\-]*", line):
        assert option in known, (line, option, sorted(known))
    assert alternatives or group is root or isinstance(group, click.Group), line


def _installable(line: str) -> None:
    """The index is not asked; what is named of ours has to be there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.search(r"\[([\w,]+)\]", line)
    assert named is None or set(named[1].split(",")) <= set(extras), line
    assert re.search(r"install '?(?:\.|dist/|tenure)", line), line


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, id=block.place, marks=[pytest.mark.slow] if is_slow(block) else []) for block in BLOCKS],
)
def test_commands(block: Block, town: Town) -> None:
    lines = shown(block) if block.language == "console" else [(line, []) for line in commands(block)]
    assert lines, f"{block.place}: no command in it"
    for line, printed in lines:
        # One store is as good as another where they are all directories, and a question asked twice has one answer.
        if (key := URL.sub("URL", line).replace("'", "")) not in town.done or printed:
            perform(town, block, line, printed)
        town.done.add(key)
