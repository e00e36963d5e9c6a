"""A child process, what it has written, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.process import Child
from tests.support.command import tenure_child
from tests.support.waiting import eventually_here

TALKS = """
import json, os, sys, time
print("first", os.environ.get("NAME", "nobody"), os.getcwd(), flush=True)
print("no event", file=sys.stderr)
print(json.dumps({"event": "up", "n": 1}), file=sys.stderr)
print(json.dumps({"event": "idle"}), file=sys.stderr, flush=True)
sys.stdout.write("not yet a line"); sys.stdout.flush()
time.sleep(60)
"""


def test_what_it_has_written_so_far(tmp_path: Path) -> None:
    with Child([sys.executable, "-c", TALKS], tmp_path, env={"NAME": "ada"}, cwd=tmp_path) as child:
        eventually_here(lambda: "not yet" in child.out, child.report)
        assert child.lines == [f"first ada {tmp_path}"]
        assert child.events == [{"event": "up", "n": 1}, {"event": "idle"}]
        assert child.named("up") == [{"event": "up", "n": 1}]
        assert child.runs
        assert "runs\nfirst ada" in child.report()
        assert child.end() == -signal.SIGTERM
        assert "has ended with -15" in child.report()


def test_it_does_not_outlive_its_block(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Child(["sleep", "60"], tmp_path) as child:
        raise RuntimeError
    assert child.wait() == -signal.SIGKILL
    child.kill()  # once more does nothing


def test_one_that_does_not_end_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with Child(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"], tmp_path) as child:
        eventually_here(lambda: child.lines == ["up"], child.report)
        with pytest.raises(subprocess.TimeoutExpired):
            child.end(seconds=0.1)


def test_the_command_as_a_child(tmp_path: Path) -> None:
    with tenure_child("run", tmp_path.as_uri(), "--lease", "3s", "--", "sh", "-c", "exit 7", folder=tmp_path) as child:
        assert child.wait() == 7, child.report()
