"""The command itself: help, version, its page, and the wheel in an empty environment."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import venv
from pathlib import Path

import click
import pytest

from tenure import __version__
from tenure.cli.main import cli, run
from tenure.cli.settings import load
from tenure.coordinator.audit import FindingKind, TermEnd
from tenure.election.records import encode
from tenure.observe.view import Kind
from tests.acceptance.test_status import DEAD, plant
from tests.support.command import tenure_process

COMMANDS = tuple(cli.all_commands(click.Context(cli)))
ROOT = Path(__file__).parents[2]


EXPECTED = {
    *("demo", "doctor", "plan", "simulate"),
    *("status", "watch", "workers", "audit"),
    *("run", "step-down", "transfer", "gc"),
}


@pytest.mark.req("OP-1")
def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert __version__ in tenure_process("--version").out
    assert "Usage: tenure" in tenure_process("--help").out
    assert set(COMMANDS) >= EXPECTED
    for name in COMMANDS:
        assert run([name, "--help"]) == 0
        assert f"Usage: tenure {name}" in capsys.readouterr().out


def test_an_unknown_command_is_refused_by_name() -> None:
    refused = tenure_process("docter")
    assert refused.code == 2
    assert refused.err.startswith("tenure: there is no command 'docter': did you mean doctor?")


def test_every_command_its_options_and_exit_codes_are_in_the_docs() -> None:
    """docs/command.md names each command, and every key and kind that a script may rely on."""
    page = (ROOT / "docs" / "command.md").read_text()
    for name in COMMANDS:
        assert f"| `{name}" in page, name
    for kind in (*Kind, *FindingKind, *TermEnd):
        assert f"`{kind.value}`" in page, kind
    for variable in ("TENURE_URL", "TENURE_NAMESPACE", "TENURE_CONFIG", "TENURE_DEBUG"):
        assert f"`{variable}`" in page
        assert variable in tenure_process("--help").out


def test_what_the_docs_show_as_tenure_toml_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "command.md").read_text()
    file = tmp_path / "tenure.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    found = load(file, cli.all_commands(click.Context(cli)))
    assert found.url == "s3://bucket/app"
    assert found.commands["run"] == {"when": "on-failure", "stop_within": "20s"}


def test_a_reader_that_leaves_is_no_error_worth_words(tmp_path: Path) -> None:
    line = f"{sys.executable} -m tenure simulate --help | true; {sys.executable} -m tenure --help >&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_output_that_is_closed_is_no_failure_and_goes_into_no_file(closed: str, tmp_path: Path) -> None:
    line = f"{sys.executable} -m tenure --version {closed}"
    assert subprocess.run(["bash", "-c", line], check=False, capture_output=True, timeout=60).returncode == 0
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from importlib import import_module\n"
        "command = import_module('tenure.cli.main')\n"
        "def run(words):\n"
        "    files = [open(f'opened-{number}', 'w') for number in range(5)]\n"
        "    for stream in (sys.stdout, sys.stderr):\n"
        "        print('words', file=stream, flush=True)\n"
        "    return 0\n"
        "command.run = run\n"
        "command.main()\n"
    )
    line = f"{sys.executable} script.py {closed}"
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0
    assert [path.read_text() for path in tmp_path.glob("opened-*")] == [""] * 5


def test_a_reader_that_leaves_is_not_told_that_nobody_leads(tmp_path: Path) -> None:
    """1 would mean that. The lease is held, and only the words could not be written."""
    asyncio.run(plant(tmp_path.as_uri(), encode(DEAD)))
    for arguments in ("", "--json"):
        command = f"{sys.executable} -m tenure status --no-wait {arguments} {tmp_path.as_uri()}"
        line = f"{command} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("2\n", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.slow
def test_output_that_cannot_be_written_is_named_and_what_was_done_is_said(unbuffered: str, tmp_path: Path) -> None:
    url = tmp_path.as_uri()

    def on_a_full_disk(*words: str, given: str = "") -> str:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "tenure", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                input=given,
                text=True,
                check=False,
                env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            )
        assert done.returncode == 2
        began = "tenure: standard output cannot be written to (No space left on device)"
        assert done.stderr.startswith(began)
        return done.stderr.removeprefix(began).strip()

    assert on_a_full_disk("queue", "put", url, "mail", "1").startswith("; the message was added, as ")
    assert on_a_full_disk("queue", "put", url, "mail", "--json-lines", given="1\n2\n") == "; 2 messages were added"
    assert on_a_full_disk("queue", "create", url, "mail").startswith("; what was asked for is done")
    assert on_a_full_disk("queue", "pause", url, "mail").startswith("; what was asked for is durable")
    assert on_a_full_disk("counter", "add", url, "pages", "home", "views", "--new").startswith("; what was asked for")
    assert on_a_full_disk("queue", "stats", url, "mail", "--json") == ""


@pytest.mark.parametrize("module", ["tenure.cli.main", "tenure.cli.watch"])
def test_an_interrupt_while_it_is_imported_is_no_traceback(module: str) -> None:
    script = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from tenure.cli import main\n"
        "sys.argv[1:] = ['watch', '--help']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() in ("", "interrupted")


def test_a_simulation_is_of_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--ttl", "--queue", "--seeds", "1"]) == 2
    assert capsys.readouterr().err == "tenure: --queue and --ttl: give one of them\n"


@pytest.mark.slow
def test_a_simulation_does_not_warn_of_the_trouble_that_it_makes() -> None:
    ran = tenure_process("simulate", "--seeds", "8", "--minutes", "5", "--processes", "2")
    assert (ran.code, ran.err) == (0, "")


def test_the_function_and_the_module_of_that_name() -> None:
    script = (
        "import tenure.cli.main, sys; from tenure.cli import main; assert main is sys.modules['tenure.cli.main'].main"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


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
