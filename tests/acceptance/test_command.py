"""The command itself: help, version, the demo, and the wheel in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tenure import __version__
from tests.acceptance.command import tenure

COMMANDS = ("doctor", "demo", "status", "step-down", "transfer", "audit")
ROOT = Path(__file__).parents[2]


def test_version_and_help() -> None:
    assert __version__ in tenure("--version").out
    for arguments in ([], *([name] for name in COMMANDS)):
        run = tenure(*arguments, "--help")
        assert run.code == 0
        assert "Usage: tenure" in run.out


def test_an_unknown_command_is_refused_by_name() -> None:
    run = tenure("docter")
    assert run.code == 2
    assert "docter" in run.err


def test_the_demo_ends_with_a_result_that_a_newcomer_understands() -> None:
    run = tenure("demo")
    assert run.code == 0, run.out + run.err
    assert "ada leads" in run.out
    assert "is killed (SIGKILL)" in run.out
    assert "never two of them said at once that they lead" in run.out
    assert "3 terms, one leader each, no number missing" in run.out
    assert "All is right" in run.out
    assert "async with tenure.lead(" in run.out
    assert run.err == ""


@pytest.mark.slow
def test_the_demo_for_scripts() -> None:
    result = tenure("demo", "--json").json()
    changes = [result["elected"], result["after_kill"], result["after_stop"]]
    assert [change["epoch"] for change in changes] == [1, 2, 3]
    assert len({change["leader"] for change in changes}) == 3
    assert result["after_kill"]["seconds"] > 1.5  # nobody may lead before the lease has run out
    assert result["two_at_once"] == 0
    assert result["reports"] > 100
    assert result["audit"]["ok"] is True
    assert result["doctor"]["fit"] is True


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_demo_leaves_no_process_behind_when_it_is_stopped() -> None:
    demo = subprocess.Popen([sys.executable, "-m", "tenure", "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert demo.stdout is not None
    while b"epoch 1" not in demo.stdout.readline():
        pass
    started = _children(demo.pid)
    demo.terminate()
    demo.communicate(timeout=20)
    assert demo.returncode == 130
    assert len(started) == 3
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_nothing_happens_on_import() -> None:
    """No thread, no socket, and none of the heavy parts that a directory has no use for."""
    script = (
        "import sys, threading, logging, signal; before = signal.getsignal(signal.SIGTERM)\n"
        "import tenure, tenure.store\n"
        "assert threading.active_count() == 1 and not logging.getLogger().handlers\n"
        "assert signal.getsignal(signal.SIGTERM) is before\n"
        "assert 'obstore' not in sys.modules and 'boto3' not in sys.modules and 'rich' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, env=environment, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True, env=environment, capture_output=True)
    for command in ([str(tmp_path / "empty" / "bin" / "tenure")], [python, "-m", "tenure"]):
        done = subprocess.run(
            [*command, "doctor", (tmp_path / "store").as_uri(), "--json", "--rounds", "5"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert '"fit": true' in done.stdout
